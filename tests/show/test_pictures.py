import re
import warnings
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text

from blocklab.block.config import BlockConfig
from blocklab.errors import InputError
from blocklab.show import KINDS, plot, save, step_page, style
from blocklab.show.attention_plot import hidden_keys, patterns
from blocklab.show.example import cat as example
from blocklab.show.explore_measures import histogram
from blocklab.show.fp8_histogram import grid_use, step_grid_use
from blocklab.show.heatmap import error_view, heat_map
from blocklab.show.rotary_plots import draw_ramp, ramp
from blocklab.show.views import view
from blocklab.show.waterfall import ErrorTap, Waterfall, draw_waterfall, relative_error
from blocklab.show.weight_scales import block_scales
from blocklab.store.trace import Trace


def some_of(trace, *names, **changed):
    return Trace({n: trace[n] for n in names} | changed, {}, {}, {}, {})


ROOT = Path(__file__).parents[2]


class TestEveryKind:
    @pytest.mark.parametrize("kind", KINDS)
    def test_is_drawn(self, golden_trace, fp8_weights, kind, tmp_path):
        trace = golden_trace("deepseek-fp8")
        step, against = "pattern" if kind == "pattern" else "q", trace if kind == "error" else None
        made = plot(trace, step, kind, against=against, weights=fp8_weights)
        save(made, tmp_path / "a.png")
        assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
        assert all(ax.get_title(loc="left") for ax in made.axes if ax.images or ax.lines)

    def test_no_pyplot(self):
        import subprocess
        import sys

        code = "import sys; from figures.make import PICTURES; PICTURES[0].make(); print(sorted(sys.modules))"
        loaded = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout
        assert "'matplotlib.figure'" in loaded
        assert "matplotlib.pyplot" not in loaded

    def test_commands_without_pictures_do_not_load_matplotlib(self):
        import subprocess
        import sys

        code = "import sys; from blocklab.cli import main; main(['params']); print('matplotlib' in sys.modules)"
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert shown.splitlines()[-1] == "False"


class TestForeignTraces:
    def test_one_array_and_nothing_else_is_enough(self, cat):
        for name in ("attn_norm", "q", "pattern", "attn_masked"):
            dump = some_of(cat, name)
            kinds = {"pattern": ("pattern", "heatmap"), "attn_masked": ("heatmap",)}
            for kind in kinds.get(name, ("heatmap", "channels", "histogram")):
                plot(dump, name, kind)

    def test_flattened_arrays_are_shown_as_they_are(self, cat):
        flat = some_of(cat, q=cat["q"].reshape(1, 23, -1))
        assert view(flat, "q").values.shape == (23, 1280)

    @pytest.mark.parametrize(
        ("step", "kind", "options", "words"),
        [
            ("gate", "histogram", {"head": 1}, "kind histogram takes no head; expected kind heatmap, error, pattern"),
            ("gate", "channels", {"token": 1}, "kind channels takes no token"),
            ("gate", "heatmap", {"against": True}, "kind heatmap takes no against; expected kind error"),
            ("gate", "pattern", {}, "expected step pattern; found gate"),
            ("attn_scores", "channels", {}, "kind channels needs channels"),
        ],
    )
    def test_what_a_kind_does_not_show_is_refused(self, cat, step, kind, options, words):
        options = {name: cat if name == "against" else value for name, value in options.items()}
        with pytest.raises(InputError, match=words):
            plot(cat, step, kind, **options)

    def test_what_is_no_number_stays_visible_and_is_counted(self, cat):
        gate = cat["gate"].copy()
        gate[0, 3, 700], gate[0, 4, 900] = np.inf, np.nan
        spoiled = some_of(cat, gate=gate)
        assert np.isnan(heat_map(view(spoiled, "gate")).cells).sum() == 2
        for kind in ("heatmap", "channels", "histogram"):
            texts = [text.get_text() for text in plot(spoiled, "gate", kind).findobj(Text)]
            assert any("left out: 1 NaN, 1 infinite" in text for text in texts), kind

    def test_what_is_missing_is_told(self, cat):
        dump = some_of(cat, "attn_norm")
        for kind, message in (("ramp", "needs the config"), ("recipes", "needs the weights"), ("error", "--against")):
            with pytest.raises(InputError, match=message):
                plot(dump, "attn_norm", kind)
        with pytest.raises(InputError, match="no resid_pre to start from"):
            plot(dump, "attn_norm", "recipes", weights=example().weights)
        with pytest.raises(InputError, match="the trace has no q; it has attn_norm"):
            plot(dump, "q")


class TestViews:
    def test_heads_lie_side_by_side(self, cat):
        shown = view(cat, "q_rot")
        np.testing.assert_array_equal(shown.values[:, 64:128], cat["q_rot"][0, :, 1])
        assert shown.column_name(64 + 5) == "head 1, 5"

    def test_one_head_and_one_token(self, cat):
        np.testing.assert_array_equal(view(cat, "z", head=3).values, cat["z"][0, :, 3])
        np.testing.assert_array_equal(view(cat, "z", token=7).values, cat["z"][0, 7])
        np.testing.assert_array_equal(view(cat, "pattern", token=7).values, cat["pattern"][0, :, 7])
        assert view(cat, "pattern", head=1).column_labels[:4] == ["^", "t", "h", "e"]

    @pytest.mark.parametrize("wrong", [{"batch": 1}, {"head": 8}, {"token": 23}])
    def test_indices_out_of_range(self, cat, wrong):
        with pytest.raises(InputError, match=r"expected 0 to \d+; found"):
            view(cat, "z", **wrong)


class TestHeatMap:
    def test_masked_scores_are_left_out_of_the_colours(self, cat):
        shown = heat_map(view(cat, "attn_masked", head=3))
        finite = shown.cells[np.isfinite(shown.cells)]
        assert shown.range.limit == np.abs(finite).max() < 10
        assert np.isinf(shown.cells).sum() == 23 * 22 // 2

    def test_marks_name_the_loudest_columns(self, cat):
        shown = heat_map(view(cat, "act"), columns=160)
        assert shown.pooled == (1, 10)
        assert shown.loudest[0] == (226, 28.375)

    def test_errors_are_in_units_of_the_step(self, cat):
        doubled = some_of(cat, attn_norm=cat["attn_norm"] * 1.5)
        shown, relative = error_view(cat, doubled, "attn_norm")
        assert relative == pytest.approx(0.5)
        size = np.sqrt(np.mean(cat["attn_norm"].astype(np.float64) ** 2))
        np.testing.assert_allclose(shown.values, cat["attn_norm"][0] / 2 / size, rtol=1e-6)

    def test_errors_need_equal_shapes(self, cat):
        with pytest.raises(InputError, match="equal shapes"):
            error_view(cat, some_of(cat, q=cat["q"][:, :3]), "q")


class TestAttention:
    def test_hidden_keys_without_the_masked_scores(self, cat):
        np.testing.assert_array_equal(hidden_keys(cat), hidden_keys(some_of(cat, "pattern")))

    def test_heads_are_chosen(self, cat):
        assert patterns(cat, [3]).heads == (3,)
        with pytest.raises(InputError, match="head: expected 0 to 7; found 8"):
            patterns(cat, [8])


def test_grid_use_counts_magnitudes():
    use = grid_use(np.array([0x7E, 0xFE, 0x01, 0x00], np.uint8), 1)
    assert (use.largest, use.subnormal, use.zero) == (0.5, 0.25, 0.25)
    assert use.magnitudes[[0, 1, 8, 126]].tolist() == [0, 2.0**-9, 2.0**-6, 448]


def test_a_quantised_input_and_its_step_use_the_same_grid(cat):
    np.testing.assert_array_equal(step_grid_use(cat, "act").shares, step_grid_use(cat, "mlp_out.in.codes").shares)


def test_block_scales_by_any_name():
    weights = example().weights
    for name in ("mlp.up_proj.weight", "mlp.up_proj", "up_proj"):
        assert block_scales(weights, name).name == "mlp.up_proj.weight"
    assert block_scales(weights, "kv_a_proj_with_mqa").short == (64, 0)
    with pytest.raises(InputError, match="has no block scales"):
        block_scales(weights, "input_layernorm")
    with pytest.raises(InputError, match="no weight 'nothing'"):
        block_scales(weights, "nothing")


def test_relative_error_leaves_out_what_is_not_finite():
    a, b = np.array([3.0, 4.0, -np.inf]), np.array([3.0, 4.5, -np.inf])
    assert relative_error(a, b) == pytest.approx(0.1)
    tap = ErrorTap({"q": a})
    tap("q", b)
    assert tap.errors == {"q": pytest.approx(0.1)}


def test_masks_of_the_lowest_number_count_as_hidden(cat):
    hidden = np.isinf(cat["attn_masked"])
    lowest = some_of(cat, "pattern", attn_masked=np.where(hidden, np.float32(-3.39e38), cat["attn_masked"]))
    np.testing.assert_array_equal(hidden_keys(lowest), hidden[0])
    assert heat_map(view(lowest, "attn_masked")).range.limit < 40
    tap = ErrorTap({"attn_masked": lowest["attn_masked"]})
    tap("attn_masked", np.where(hidden, np.float32(-3.39e38), cat["attn_masked"] * np.float32(1.25)))
    assert tap.errors["attn_masked"] == pytest.approx(0.25)


def test_files_that_cannot_be_written(cat, tmp_path):
    made = plot(cat, "k_rot")
    with pytest.raises(InputError, match=r"ends in \.png or \.svg"):
        save(made, tmp_path / "a.pdf")
    with pytest.raises(InputError, match="cannot be written"):
        save(made, tmp_path / "none" / "a.png")


@pytest.mark.parametrize("step", ["resid_post", "kv_latent", "k_rot", "z"])
def test_channels_of_which_none_is_loud_are_drawn_without_a_warning(step, tmp_path):
    rng = np.random.default_rng(0)
    shape = (1, 9, 4, 16) if step == "z" else (1, 9, 64)
    made = Trace({step: rng.standard_normal(shape).astype(np.float32)}, {}, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(plot(made, step, "channels"), tmp_path / "p.png")


@pytest.mark.parametrize("size", [1e308, 1e200, 5e-324])
def test_values_at_the_ends_of_float64_are_shown_without_a_warning(size, tmp_path):
    value = np.where(np.arange(9 * 64).reshape(1, 9, 64) % 2, size, -size)
    pattern = np.full((1, 2, 9, 9), size)
    made = Trace({"resid_post": value, "pattern": pattern}, {}, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, relative = error_view(made, made, "resid_post")
        step_page(made, "pattern")
        step_page(made, "resid_post")
        histogram(value, size)
    assert relative == 0


@pytest.mark.parametrize("length", [4096, 10_000_000, 1 << 30])
def test_a_ramp_of_any_context_is_drawn_without_a_warning(length, tmp_path):
    small = BlockConfig.preset("kimi-k2-small")
    config = replace(small, yarn=replace(small.yarn, original_max_position_embeddings=length))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(draw_ramp(ramp(config)), tmp_path / "r.png")


def test_a_waterfall_without_errors_is_drawn(tmp_path):
    made = draw_waterfall(Waterfall({"float64": {"q": 0.0, "z": 0.0}, "float32": {"q": 0.0, "z": 0.0}}, "z"))
    save(made, tmp_path / "w.png")


def test_pictures_and_the_explorer_page_have_the_same_colours():
    css = (resources.files("blocklab.show") / "explorer" / "style.css").read_text(encoding="utf-8")
    named = dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", css.partition("}")[0]))
    colours = style.signed()
    for place, name in ((0, "cold-2"), (0.25, "cold-1"), (0.5, "zero"), (0.75, "warm-1"), (0.999, "warm-2")):
        expected = [int(named[name][i : i + 2], 16) for i in (1, 3, 5)]
        np.testing.assert_allclose(np.multiply(colours(place)[:3], 255), expected, atol=2)
    for place, name in ((-0.1, "cold-beyond"), (1.1, "warm-beyond")):
        assert [round(255 * part) for part in colours(place)[:3]] == [
            int(named[name][i : i + 2], 16) for i in (1, 3, 5)
        ]
