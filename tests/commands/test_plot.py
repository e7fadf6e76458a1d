import pytest

from blocklab.cli import main


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    for recipe in ("deepseek-fp8", "float64"):
        path = str(folder / f"{recipe}.safetensors")
        assert main(["run", "--text", "the cat", "--recipe", recipe, "--trace", path]) == 0
    return folder


def drawn(traces, tmp_path, *arguments, name="a.png"):
    output = tmp_path / name
    assert main(["plot", str(traces / "deepseek-fp8.safetensors"), *arguments, "-o", str(output)]) == 0
    return output.read_bytes()


def test_png_and_svg(traces, tmp_path, capsys):
    assert drawn(traces, tmp_path, "attn_norm")[:4] == b"\x89PNG"
    svg = drawn(traces, tmp_path, "attn_norm", name="a.svg")
    assert b"<svg" in svg
    assert b"<dc:date>" not in svg
    assert capsys.readouterr().out.splitlines()[-1].endswith("a.svg")


def test_kinds_that_need_more_than_the_trace(traces, tmp_path):
    # The block is known from the trace: no --preset.
    for arguments in (["gate", "--kind", "scales"], ["pattern", "--token", "3"]):
        assert drawn(traces, tmp_path, *arguments)
    assert drawn(traces, tmp_path, "mlp_out", "--against", str(traces / "float64.safetensors"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["attn_norms", "-o", "a.png"], "plot: no step 'attn_norms'; the steps are resid_pre"),
        (["nope", "-o", "a.png", "--kind", "ramp"], "plot: no step 'nope'"),
        (["q_absorbed", "-o", "a.png"], "the trace has no q_absorbed"),
        (["attn_norm", "-o", "a.gif"], "ends in .png or .svg"),
        (["attn_norm", "--kind", "pie", "-o", "a.png"], "pie"),
        (["pattern", "--head", "8", "-o", "a.png"], "head: expected 0 to 7; found 8"),
        (["pattern", "--token", "8", "-o", "a.png"], "token: expected 0 to 7; found 8"),
        (
            ["attn_norm", "--kind", "scales", "-o", "a.png"],
            "input_layernorm.weight is bfloat16 and has no block scales",
        ),
        (["q_nope", "--kind", "scales", "-o", "a.png"], "q_nope uses no weight"),
        (["attn_norm"], "-o"),
    ],
)
def test_bad_input_is_one_line(traces, capsys, arguments, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["plot", str(traces / "deepseek-fp8.safetensors"), *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "a.png").exists()
