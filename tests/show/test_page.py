import numpy as np
import pytest

from blocklab.block.steps import STEPS
from blocklab.show.about import config_of, labels_of, parameters_of, recipe_of
from blocklab.show.facts import change, fp8_facts, gazes, loud_channels, quantised_input
from blocklab.show.formula import plain_formula
from blocklab.show.page import step_page
from blocklab.show.picture import draw, draw_cells, levels
from blocklab.show.stepper import destination, print_all, walk
from blocklab.store.trace import Trace, load_trace

NAMES = ["resid_pre", "attn_norm", "q_latent", "q_latent_norm", "q"]


class TestPage:
    def test_every_step_fits_the_width(self, cat):
        for step, _ in cat.steps():
            page = step_page(cat, step.name, 90)
            assert max(map(len, page.splitlines())) <= 90, step.name
            for line in ("formula", "source", "shape", "parameters", "numbers"):
                assert f"\n{line}" in page

    def test_the_loudest_channel_after_the_first_norm(self, cat):
        page = step_page(cat, "attn_norm")
        assert "loudest channel 426 rms 5.052 (9.4 x median)" in page
        assert "input_layernorm.weight [640]" in page
        assert "B 1, T 23, D 640 (B batch, T query position, D model width), stored as bfloat16" in page
        assert "from resid_pre: rms 0.09899 → 0.6428" in page

    def test_which_head_looks_where_at_token_7(self, cat):
        page = step_page(cat, "pattern", query=7)
        assert "head 0      query 7 looks at key 6 'a' with 1.000 (spread over one key)" in page
        assert "head 2      query 7 looks at key 0 '^' with 1.000" in page

    def test_fp8_inputs_are_described(self, cat):
        assert "FP8 input   0.85% of the codes at 448, 0.19% subnormal" in step_page(cat, "mlp_out")

    def test_quantised_inputs_that_were_not_traced_are_made_again(self, cat):
        bare = Trace({n: v for n, v in cat.items() if ".in." not in n}, {}, cat.formats, cat.given, cat.metadata)
        for step in ("q", "attn_out", "mlp_out"):
            codes, scale = quantised_input(bare, step)
            np.testing.assert_array_equal(codes, cat[f"{step}.in.codes"])
            np.testing.assert_array_equal(scale, cat[f"{step}.in.scale"])
        assert quantised_input(bare, "attn_norm") is None

    def test_a_trace_that_says_nothing_about_itself(self, golden_trace):
        full = golden_trace("float32")
        dump = Trace({"q_latent": full["q_latent"], "pattern": full["pattern"]}, {}, {})
        assert config_of(dump) is None
        assert recipe_of(dump) is None
        assert labels_of(dump, 7) is None
        assert parameters_of(dump, "q_latent") == [("self_attn.q_a_proj.weight", ())]
        for name in dump:
            assert name in step_page(dump, name)

    def test_a_page_survives_infinities_and_nan(self, golden_trace):
        value = golden_trace("float32")["q_latent"].copy()
        value[0, 0, 0], value[0, 1, 1] = np.nan, np.inf
        page = step_page(Trace({"q_latent": value}, {}, {}), "q_latent")
        assert "1 NaN" in page
        assert "?" in page


class TestFacts:
    def test_loud_channels_of_heads(self):
        value = np.ones((1, 3, 2, 4))
        value[..., 1, 2] = 8
        (loudest, *_) = loud_channels(value)
        assert loudest.index == (1, 2)
        assert loudest.ratio == 8

    def test_gazes(self):
        pattern = np.array([[[[0.5, 0.5, 0, 0]], [[0, 0, 1, 0]]]])
        even, sharp = gazes(pattern, 0)
        assert even.spread == pytest.approx(2)
        assert (sharp.key, sharp.share, sharp.spread) == (2, 1, 1)

    def test_fp8_facts(self):
        codes = np.array([0x7E, 0xFE, 0x00, 0x80, 0x07, 0x08, 0x38, 0x38], np.uint8)
        facts = fp8_facts(codes, np.array([0.5, 2.0], np.float32))
        assert (facts.largest, facts.subnormal, facts.zero) == (0.25, 0.125, 0.25)
        assert (facts.scale_min, facts.scale_max) == (0.5, 2.0)

    def test_change(self, cat):
        found = change(cat, "resid_pre", "resid_mid")
        out, x = cat["attn_out"].astype(np.float64), cat["resid_pre"].astype(np.float64)
        assert found.relative == pytest.approx(np.linalg.norm(out) / np.linalg.norm(x), rel=1e-2)


class TestPicture:
    def test_levels_halve(self):
        assert levels(np.array([1.0, -0.51, 0.5, 0.25, 2.0**-8, 0.0]), 1.0).tolist() == [8, 8, 7, 6, 0, 0]

    def test_cells(self):
        assert draw_cells(np.array([[1.0, 0.3, 0.0, -np.inf, np.nan]]), 1.0) == ["█▇ ·?"]

    def test_one_loud_channel_is_seen_and_the_others_too(self):
        value = np.full((1, 30, 640), 0.5)
        value[..., 426] = -16
        legend, *rows = draw(value, None, width=64)
        assert "a cell is the loudest of 3 position(s) x 10 channel(s)" in legend
        assert len(rows) == 12
        assert all(row.count("█") == 1 and row.count("▃") == 63 for row in rows)


def test_formulas_are_plain():
    assert plain_formula(STEPS["attn_scores"].formula) == "s = γ (q^N k^N + q̃^R k̃^R)"
    for step in STEPS.values():
        assert "\\" not in plain_formula(step.formula)
        assert "{" not in plain_formula(step.formula)


class TestStepper:
    @pytest.mark.parametrize(
        ("answer", "goal"),
        [("", 2), ("b", 0), ("q_latent_norm", 3), ("attn", 1), ("/q", 4), ("5", 4), ("resid", 0)],
    )
    def test_destinations(self, answer, goal):
        assert destination(answer, 1, NAMES) == goal

    def test_the_first_step_has_none_before_it(self):
        assert destination("b", 0, NAMES) == 0

    def test_unknown_names_get_suggestions(self):
        assert destination("q_l", 1, NAMES) == "no step 'q_l'; do you mean q_latent, q_latent_norm?"
        assert "l lists them" in destination("zzz", 1, NAMES)

    def test_a_walk(self, cat):
        answers = iter(["", "b", "mlp_out", "l", "what", "", "q"])
        shown = []
        walk(cat, [s.name for s, _ in cat.steps()], 80, None, shown.append, lambda _: next(answers))
        titles = [text.split()[0] for text in shown]
        assert titles == ["resid_pre", "attn_norm", "resid_pre", "mlp_out", "resid_pre", "no", "resid_post"]

    def test_it_ends_after_the_last_step_and_at_the_end_of_input(self, cat):
        def closed(_):
            raise EOFError

        for ask in (lambda _: "", closed):
            walk(cat, ["q", "pattern"], 80, None, lambda _: None, ask)

    def test_print_all(self, cat):
        shown = []
        print_all(cat, ["q", "pattern"], 80, 3, shown.append)
        assert len(shown) == 2


def test_a_saved_trace_gives_the_same_pages(cat, tmp_path):
    cat.save(tmp_path / "cat.safetensors")
    loaded = load_trace(tmp_path / "cat.safetensors")
    for step, _ in cat.steps():
        assert step_page(loaded, step.name) == step_page(cat, step.name)
