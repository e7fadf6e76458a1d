import re
import subprocess
import sys

import pytest

from blocklab import RECIPES, BlockConfig, InputError
from blocklab.cli import main
from blocklab.store import memory
from blocklab.store.estimate import estimate
from blocklab.store.memory import free_memory, require_memory

KIMI = BlockConfig.preset("kimi-k2")


def everything(name):
    return True


def nothing(name):
    return False


def test_what_is_free_is_the_least_of_system_and_group(monkeypatch):
    monkeypatch.setattr(memory, "_available", lambda: 7)
    monkeypatch.setattr(memory, "_left_in_groups", lambda: 5)
    assert free_memory() == 5
    monkeypatch.setattr(memory, "_left_in_groups", lambda: None)
    assert free_memory() == 7


def test_a_system_that_does_not_say_refuses_nothing(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    require_memory(1 << 60, "a run", "take less")


def test_a_refusal_says_need_free_and_what_to_change(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 3 << 30)
    with pytest.raises(
        InputError, match=r"^a run would need about 4\.0 GiB of memory, and 3\.0 GiB are free: take less"
    ):
        require_memory(4 << 30, "a run", "take less")


def test_group_limits(tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    (tmp_path / "memory.stat").write_text("active_file 70\ninactive_file 30\n")
    nowhere = tmp_path / "nowhere"
    assert memory._left_in_groups(tmp_path, nowhere) == 630
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._left_in_groups(tmp_path, nowhere) is None


def make_group(folder, limit, used, version=2, inactive=0):
    folder.mkdir(parents=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for name, value in zip(names, (limit, used), strict=True):
        (folder / name).write_text(f"{value}\n")
    (folder / "memory.stat").write_text(f"{'total_' if version == 1 else ''}inactive_file {inactive}\n")


def test_groups_inside_groups_and_those_of_version_1(tmp_path):
    told, root = tmp_path / "cgroup", tmp_path / "fs"
    told.write_text("0::/outer/inner\n")
    make_group(root / "outer" / "inner", "max", 10)
    assert memory._left_in_groups(root, told) is None
    (root / "outer" / "inner" / "memory.max").write_text("1000")
    assert memory._left_in_groups(root, told) == 990
    for name, value in (("memory.max", 500), ("memory.current", 100), ("memory.stat", "inactive_file 5")):
        (root / "outer" / name).write_text(str(value))
    assert memory._left_in_groups(root, told) == 405
    told.write_text("5:cpu:/a\n4:memory,hugetlb:/docker/x:y\n0::/\n")
    make_group(root / "memory" / "docker" / "x:y", 300, 100, version=1, inactive=20)
    assert memory._left_in_groups(root, told) == 220


def test_the_mask_counts():
    recipe = RECIPES["deepseek-bf16"]
    assert estimate(KIMI, 1, 409_600, 409_600, recipe, nothing, nothing).total > 409_600**2


def test_scores_that_nobody_sees_do_not_grow_with_t_squared():
    recipe = RECIPES["deepseek-fp8"]
    seen, unseen = (estimate(KIMI, 1, 8192, 8192, recipe, listens, nothing).total for listens in (everything, nothing))
    assert seen > 100 << 30
    assert unseen < 4 << 30
    # 64 heads x 8192 x 8192 float32 values of three steps, and what else is recorded
    kept = estimate(KIMI, 1, 8192, 8192, recipe, everything, everything).kept
    assert kept > 3 * 4 * 64 * 8192**2


def test_a_run_that_would_not_fit_says_so_before_it_starts(capsys, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 1 << 30)
    assert main(["run", "--tokens", "3000"]) == 2
    err = capsys.readouterr().err
    assert "1 x 3000 tokens in deepseek-fp8 would need about" in err
    assert "leave out the scores" in err
    assert main(["run", "--tokens", "100000000"]) == 2
    assert "an input of 1 x 100000000 tokens would need about" in capsys.readouterr().err


def test_a_need_that_no_float_can_hold() -> None:
    with pytest.raises(InputError, match=r"it would need about .* GiB of memory"):
        require_memory(10**400, "it", "take less")


def test_a_limit_of_the_shell_is_told_before_the_run_starts():
    command = f"ulimit -v 900000; {sys.executable} -m blocklab run --tokens 2000"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == 2
    assert re.fullmatch(r"1 x 2000 tokens .* need about 1\.\d GiB of memory, and 0\.\d GiB are free: .*\n", done.stderr)
