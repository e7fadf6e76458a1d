"""Any config.json is refused in one line, or read: every number that follows from it is finite."""

from __future__ import annotations

import json
import math

import numpy as np
from harness import refused, target
from hypothesis import strategies as st
from material import scratch, settings
from mutations import Damage, Edit, as_json, damaged, damages, edited, edits, odd_json
from test_headers import _copy

from blocklab.block.config import BlockConfig
from blocklab.block.dense import dense_block
from blocklab.block.masks import causal_mask
from blocklab.block.rotary import rotary_table
from blocklab.commands.options import read_model
from blocklab.store.accounting import components, totals
from blocklab.store.checkpoint import load_weights
from blocklab.store.inputs import tokens_from_seed

NAMES = sorted({*json.loads(settings()), "rope_parameters", "text_config", "moe_layer_freq", "mlp_bias"})
ROPE = sorted({*json.loads(settings())["rope_scaling"], "rope_theta", "rope_type", "truncate", "attention_factor"})


def use(text: bytes) -> None:
    """Do all that depends on settings alone, then load and run the tiny checkpoint with them."""
    path = scratch() / "config.json"
    path.write_bytes(text)
    config = BlockConfig.from_json(path)
    assert 0 < config.softmax_scale < math.inf
    totals(components(config))
    if config.qk_rope_head_dim < 10_000:
        for precision in ("float32", "float64"):
            assert np.isfinite(rotary_table(config, np.arange(3), precision)).all()
    folder = _copy(1)
    (folder / "config.json").write_bytes(text)
    weights = load_weights(folder)
    x = np.random.default_rng(1).standard_normal((1, 3, config.hidden_size)).astype(np.float32)
    for recipe in ("float32", "deepseek-fp8"):
        y = dense_block(x, rotary_table(config, np.arange(3)), causal_mask(3), weights, recipe)
        assert np.isfinite(y).all()
    model, _ = read_model(_Options(str(folder)))
    assert np.isfinite(tokens_from_seed(model, 1, 3, 0).x).all()


class _Options:
    preset, layer, seed = None, None, None

    def __init__(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint


@target(st.tuples(edits, st.one_of(st.just([]), damages)), quick=100)
def test_configs(case: tuple[list[Edit], list[Damage]]) -> str | None:
    text = as_json(edited(json.loads(settings()), case[0])).encode("utf-8", "surrogatepass")
    return refused(lambda: use(damaged(text, case[1])))


@target(st.tuples(st.sampled_from(NAMES), odd_json), quick=150)
def test_settings(case: tuple[str, object]) -> str | None:
    text = as_json(json.loads(settings()) | {case[0]: case[1]})
    return refused(lambda: use(text.encode("utf-8", "surrogatepass")))


@target(st.tuples(st.sampled_from(ROPE), odd_json, st.sampled_from(ROPE), st.floats()), quick=150)
def test_rope_settings(case: tuple[str, object, str, float]) -> str | None:
    whole = json.loads(settings())
    name = "rope_scaling" if len(case[0]) % 2 else "rope_parameters"
    whole[name] = whole["rope_scaling"] | {case[2]: case[3]} | {case[0]: case[1]}

    def run() -> None:
        use(as_json(whole).encode("utf-8", "surrogatepass"))
        config = BlockConfig.from_json(scratch() / "config.json")
        factor = None if config.yarn is None else config.yarn.factor
        for rope in (whole, whole["rope_scaling"], whole.get("rope_parameters") or {}):  # nothing is dropped
            assert rope.get("rope_theta") in (None, config.rope_theta)
            assert rope.get("factor") in (None, factor)

    return refused(run)
