"""Comparing two dumps without a model; the measures; the picture."""

import json
import math

import numpy as np
import pytest
from validation_runs import TRANSFORMERS, dump_of, make_run

from blocklab.check.compare_dumps import compare
from blocklab.check.measures import error_by_position, measure, ulp
from blocklab.check.mistakes import inject
from blocklab.check.validation import validate
from blocklab.errors import InputError
from blocklab.numerics import FORMATS, round_to
from blocklab.show.validation_plot import plot_validation, validation_plot
from goldens import FIXTURES, read_dump


@pytest.mark.parametrize("number_format", ["bfloat16", "float16", "e4m3fn"])
def test_an_ulp_is_the_distance_to_the_next_number(number_format):
    fmt = FORMATS[number_format]
    values = np.array([0.0, fmt.min_subnormal, fmt.min_normal, 1.0, 1.75, 3.0, 96.0], np.float64)
    steps = ulp(values, number_format)
    assert (round_to(values + steps, number_format) == values + steps).all()
    assert (round_to(values + steps / 4, number_format) == values).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_ulp_of_working_precisions(dtype):
    values = np.array([1e-300 if dtype == "float64" else 1e-40, 0.3, 1.0, -7.0, 1e5]).astype(dtype)
    assert np.array_equal(ulp(values, dtype), np.abs(np.spacing(values)).astype(np.float64))


def test_measures_of_a_known_difference():
    ours = np.ones((2, 4, 300), np.float32)
    theirs = ours.copy()
    theirs[1, 2, 140] = 1 + 2.0**-6
    theirs[0, 0, 0] = np.nan
    m = measure("attn_norm", theirs, ours, "bfloat16")
    assert (m.nan_theirs, m.nan_ours, m.inf_theirs) == (1, 0, 0)
    assert m.equal == 1 - 2 / 2400
    assert m.max_ulp == math.inf  # the NaN
    m = measure("attn_norm", np.nan_to_num(theirs, nan=1.0), ours, "bfloat16")
    assert (m.max_ulp, m.p99_ulp, m.max_abs) == (2.0, 0.0, 2.0**-6)
    assert m.relative == pytest.approx(2.0**-6 / math.sqrt(2400))
    assert (m.worst_position, m.worst_head, m.worst_block) == ((1, 2), None, 128)
    assert json.dumps(m.to_json(), allow_nan=False)


def test_the_ratio_sees_what_the_cosine_does_not():
    ours = np.random.default_rng(0).standard_normal((1, 3, 4, 5)).astype(np.float32)
    m = measure("z", ours * np.float32(0.5515), ours, "float32")
    assert m.cosine == pytest.approx(1, abs=1e-9)
    assert m.ratio == pytest.approx(0.5515, rel=1e-6)


def test_hidden_scores_are_equal_whatever_hides_them():
    ours = np.where(np.tri(4, dtype=bool), 1.0, -np.inf).astype(np.float32)[None, None]
    theirs = np.where(np.tri(4, dtype=bool), 1.0, np.finfo(np.float32).min).astype(np.float32)[None, None]
    m = measure("attn_masked", theirs, ours, "float32")
    assert (m.equal, m.relative, m.max_abs) == (1, 0, 0)


def test_error_by_position_finds_the_token_and_the_head():
    run = make_run("float32")
    z = run.record()["z"]
    wrong = z.copy()
    wrong[1, 7, 2] *= 1.5
    errors = error_by_position("z", wrong, z)
    assert errors.shape == z.shape[:2]
    assert np.argwhere(errors).tolist() == [[1, 7]]
    assert measure("z", wrong, z, "float32").worst_head == 2


def test_two_equal_dumps():
    path = FIXTURES / "dumps" / "kimi-bf16.safetensors"
    found = compare(path, path)
    assert (found.verdict, found.exit_status, found.storage) == ("pass", 0, "bfloat16")
    assert found.sentence == "All 15 common tensors are equal."


def test_one_mistake_between_two_files():
    folder = FIXTURES / "mistakes"
    found = compare(folder / "none.safetensors", folder / "missing-mscale.safetensors")
    assert (found.verdict, found.first_divergence, found.exit_status) == ("diverged", "pattern", 1)
    assert found.sentence.startswith("`pattern` is the first step that differs, by ")
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert [s["step"] for s in data["steps"] if s["end_to_end"]["pass"]][-1] == "kv_up"
    assert "pattern" in found.table()


def test_a_trace_and_another_programs_dump_in_other_layouts():
    arrays, _, weights = read_dump("kimi-bf16")
    report = validate(dict(arrays), weights, "bfloat16")
    assert report.verdict == "pass"
    run = make_run("bfloat16")
    ours = dump_of(run, run)
    B, T = run.x.shape[:2]
    theirs = {"self_attn.q_b_proj": ours["q"].reshape(B, T, -1), "self_attn.kv_b_proj": ours["kv_up"].swapaxes(1, 2)}
    found = compare(ours, theirs)
    assert [pair.step for pair in found.pairs] == ["q", "kv_up"]
    assert all(pair.measures.equal == 1 for pair in found.pairs)


def test_different_inputs_are_said():
    run = make_run("float32")
    a = dump_of(run, run, TRANSFORMERS)
    b = {name: value * 2 for name, value in a.items()}
    assert compare(a, b).sentence == "The inputs differ, so that nothing after them can be equal."


def test_dumps_with_nothing_in_common_or_other_shapes_are_refused():
    one, other = {"gate": np.ones((1, 2, 3))}, {"up": np.ones((1, 2, 3))}
    with pytest.raises(InputError, match="a and b: expected tensors of the same steps; found gate and up"):
        compare(one, other)
    with pytest.raises(InputError, match=r"b: gate: expected gate \[B 1, T 2, F 3\].*found \[1, 2, 4\]"):
        compare(one, {"gate": np.ones((1, 2, 4))})


def test_the_picture_shows_every_step(tmp_path):
    run = make_run("float32")
    report = validate(dump_of(inject(run, "missing-mask"), run, TRANSFORMERS), run.weights, "float32")
    figure = validation_plot(report)
    left, right = figure.axes[:2]
    assert [text.get_text() for text in left.get_yticklabels()] == list(report.errors_by_position())
    assert right.get_xlabel() == "query position"
    local = report.errors_by_position()["pattern"][0]
    assert local[:, 0].min() > 100 * local[:, -1].max()  # the last query hides a missing mask
    for name in ("a.png", "a.svg"):
        plot_validation(report, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    with pytest.raises(InputError, match=r"\.png or \.svg"):
        plot_validation(report, tmp_path / "a.txt")


@pytest.mark.parametrize("array", [[1.0], None, "text", np.array([None]), np.ones(3, complex)], ids=str)
def test_what_is_no_array_is_refused(array):
    with pytest.raises(InputError, match="b: expected names with arrays of real numbers; found 'q' with"):
        compare({"q": np.ones((1, 2, 3, 4), np.float32)}, {"q": array})


def test_tiny_and_huge_values_differ_as_others_do():
    """Their squares are no float64 numbers."""
    for size in (1e-300, 1e300):
        q = np.full((1, 2, 3, 4), size)
        measures = compare({"q": 3 * q}, {"q": q}).pairs[0].measures
        assert measures.relative == pytest.approx(2 / 3)
        assert measures.ratio == pytest.approx(1 / 3)


def test_what_is_not_finite_is_counted_by_kind():
    q = np.ones((1, 2, 3, 4), np.float32)
    other = q.copy()
    other[0, 0, 0, :2] = np.inf
    assert compare({"q": q}, {"q": other}).sentence == "`q` is the first step that differs: 2 infinities in b, 0 in a."
    moved = other[:, ::-1]
    assert "NaN or infinities in other places" in compare({"q": moved}, {"q": other}).sentence


def test_one_number_for_a_step_and_whose_shape_is_wrong():
    q, one = np.ones((1, 2, 3, 4), np.float32), np.ones((), np.float32)
    assert compare({"q": one}, {"q": one}).verdict == "pass"
    with pytest.raises(InputError, match=r"^a: q: "):
        compare({"q": one}, {"q": q})
    with pytest.raises(InputError, match=r"^b: q: "):
        compare({"q": q}, {"q": one})


def test_a_name_of_any_length_is_one_short_line():
    with pytest.raises(InputError) as told:
        compare({"layers." + "9" * 5000: np.ones(3, complex)}, {})
    assert len(str(told.value)) < 500
