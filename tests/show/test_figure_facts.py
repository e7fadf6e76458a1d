"""Every committed picture is made again, and its sentence is held against the arrays behind it."""

import numpy as np
import pytest
from matplotlib import image

from blocklab.show import style
from blocklab.show.example import cat as example
from blocklab.synth.weights import outlier_neurons
from figures.make import PICTURES, TOKEN, example_trace, make_figures, readme


def data(name):
    return next(p for p in PICTURES if p.name == name).arrays


def test_all_are_made_again_under_their_names(tmp_path, figures, monkeypatch):
    monkeypatch.setattr(style, "DPI", style.DPI // 3)  # three times as small is drawn faster
    made = make_figures(tmp_path)
    assert {path.name for path in made} == {path.name for path in figures.iterdir() if path.suffix in (".png", ".md")}
    assert sum(path.stat().st_size for path in figures.iterdir()) < 2_500_000
    for path in made:
        if path.suffix == ".png":
            ours, committed = image.imread(path), image.imread(figures / path.name)
            assert ours.shape[0] > 80
            assert abs(3 * ours.shape[0] - committed.shape[0]) <= 3
    assert (figures / "README.md").read_text(encoding="utf-8") == readme()


def test_the_same_picture_gives_the_same_bytes(tmp_path):
    from blocklab.show.style import save

    picture = next(p for p in PICTURES if p.name == "attn-norm-channels")
    for ending in ("png", "svg"):
        for name in ("a", "b"):
            save(picture.draw(data(picture.name)), tmp_path / f"{name}.{ending}")
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_channel_426_is_nine_times_as_loud_as_the_median():
    channels = data("attn-norm-channels")
    assert channels.loudest == 426
    assert 9 <= channels.rms[426] / channels.median < 10
    assert len(channels.outliers) == 2


def test_four_neurons_are_trimmed():
    shown = data("act-heatmap")
    peaks = np.abs(shown.view.values).max(axis=0)
    assert [column for column, _ in shown.loudest[:4]] == [226, 747, 0, 881]
    assert sorted(peaks)[-4] > 10 > 2 * sorted(peaks)[-5]
    assert shown.range.limit < 2
    assert np.quantile(peaks, 0.97) < 2
    assert np.abs(shown.cells).max() == peaks.max(), "pooling keeps the loudest"


def test_heads_look_where_they_are_built_to():
    shares = data("pattern-heads").shares
    T = shares.shape[1]
    ids = example().tokens.ids[0]
    assert (shares[0, np.arange(1, T), np.arange(T - 1)] > 0.99).all()
    equal = np.tril(ids[:, None] == ids[None])
    assert (shares[1][equal] > 0.9 / equal.sum(1).repeat(equal.sum(1))).all()
    assert (shares[2, :, 0] > 0.99).all()
    assert (shares[3:, -1].max(axis=1) < 0.5).all()


def test_token_7():
    found = data("pattern-token-7")
    labels, rows = found.labels, found.shares[:, TOKEN]
    assert labels[TOKEN] == "t"
    assert labels[rows[0].argmax()] == "a"
    assert rows[0].argmax() == TOKEN - 1
    np.testing.assert_allclose(rows[1][[1, 7]], 0.5, atol=0.01)
    assert rows[2].argmax() == 0
    assert found.hidden[:, TOKEN, TOKEN + 1 :].all()
    assert not found.hidden[:, TOKEN, : TOKEN + 1].any()


def test_the_softmax_scale():
    found = data("softmax-scale")
    scales, keys = list(found.full_size.values()), list(found.keys.values())
    assert scales[-1] == pytest.approx(0.13086079996295005, rel=1e-15)
    assert scales[-1] == pytest.approx(192**-0.5 * (0.1 * np.log(32) + 1) ** 2)
    assert scales == sorted(scales)
    assert keys == sorted(keys, reverse=True)


def test_fp8_causes_nearly_all_of_the_error_of_mlp_out():
    found = data("waterfall")
    errors = {recipe: steps["mlp_out"] for recipe, steps in found.errors.items()}
    assert found.share_of_fp8() > 0.95
    assert errors["deepseek-fp8"] > 5 * errors["deepseek-bf16"]
    assert errors["hopper-fp8"] == pytest.approx(errors["deepseek-fp8"], rel=0.05)
    assert errors["float32"] < 1e-5


def test_the_error_of_mlp_out_sits_at_the_vowel_neuron():
    shown, relative = data("mlp-out-error")
    squares = (shown.values**2).sum(axis=1)
    at_a = [t for t, label in enumerate(shown.row_labels) if label == "a"]
    assert len(at_a) == 3
    assert squares[at_a].sum() / squares.sum() == pytest.approx(0.75, abs=0.02)
    assert relative == pytest.approx(data("waterfall").errors["deepseek-fp8"]["mlp_out"])
    exact, fp8 = (example_trace(recipe)["act"][0, at_a, 0] for recipe in ("float64", "deepseek-fp8"))
    np.testing.assert_allclose(exact, 13.5, atol=0.15)
    np.testing.assert_allclose(fp8, 11.6, atol=0.2)


def test_the_fp8_grid():
    use = data("fp8-grid")
    assert use.shares.sum() == pytest.approx(1)
    assert use.largest >= 1 / 128
    assert use.subnormal == pytest.approx(0.002, abs=0.0005)
    assert use.shares[(use.magnitudes >= 8) & (use.magnitudes < 128)].sum() > 0.6


def test_the_scales_of_a_weight():
    found = data("weight-scales")
    assert found.log2.shape == (12, 5)
    assert found.zero.sum() == 1
    assert found.zero[11, 0]
    assert set(outlier_neurons(example().model.config) // 128) == {1, 5, 6}
    means = np.where(found.zero, np.nan, found.log2)
    order = np.argsort(-np.nanmean(means, axis=1))
    assert set(order[:3].tolist()) == {1, 5, 6}
    quiet = [i for i in range(2, 11) if i not in (5, 6)]
    steps = np.diff(found.log2[quiet], axis=1)
    np.testing.assert_allclose(np.abs(steps), np.round(np.abs(steps)), atol=0.3)


def test_rotary_angles():
    found = data("rotary-angles")
    turns = found.angles[-1] / (2 * np.pi)
    assert turns[0] > 40
    assert turns[20:].max() < 0.01


def test_the_yarn_ramp():
    found = data("yarn-ramp")
    assert (found.low, found.high) == (19, 20)
    np.testing.assert_allclose(found.yarn / found.plain, [1.0] * 20 + [32.0] * 12)
    changed = np.flatnonzero(found.other_ramp)
    assert changed[0] == 9
    assert found.context == (4096, 131072)


def test_the_register_loses_ten_times_as_much():
    found = data("accumulator")
    assert found.k[-1] == 7168
    assert 10 < found.register[-1] / found.promoted[-1] < 20
    assert found.promoted[-1] == pytest.approx(1.2e-4, rel=0.2)
    assert found.register[-1] > 2.0**-9 / np.sqrt(3)
    assert found.exact[-1] < 1e-6


@pytest.fixture(scope="module")
def figures():
    from pathlib import Path

    return Path(__file__).parents[2] / "figures"
