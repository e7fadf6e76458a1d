from blocklab.cli import main
from figures import make


def test_they_are_written_and_listed(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(make, "PICTURES", make.PICTURES[:1])
    assert main(["figures", "-o", str(tmp_path / "new" / "folder")]) == 0
    assert "attn-norm-channels.png" in capsys.readouterr().out
    text = (tmp_path / "new" / "folder" / "README.md").read_text(encoding="utf-8")
    assert make.PICTURES[0].see in text


def test_a_folder_that_cannot_be_made(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert main(["figures", "-o", str(tmp_path / "file")]) == 2
    assert "cannot be made" in capsys.readouterr().err


def test_a_folder_without_the_makers_is_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("blocklab.commands.figures.MAKERS", tmp_path / "figures" / "make.py")
    assert main(["figures", "-o", str(tmp_path / "out")]) == 2
    assert "make.py" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
