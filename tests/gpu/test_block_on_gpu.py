"""Whole blocks on cupy arrays: every step of every recipe, caches, masks, taps and the command line."""

import numpy as np
import pytest

from blocklab import RECIPES, causal_mask, dense_block, rotary_table
from blocklab.block import masks
from blocklab.block.cache import LatentCache
from blocklab.block.taps import Replace
from blocklab.cli import main
from blocklab.numerics import get_recipe
from blocklab.store.statistics import statistics
from blocklab.store.trace import trace
from blocklab.xp import asnumpy
from formulas import rotate, silu, softmax
from goldens import FIXTURES, load_weights

CHECKPOINTS = {"float64": "kimi-f32", "float32": "v3-f32", "bfloat16": "v2lite-bf16", "deepseek-bf16": "kimi-fp8"}
CHECKPOINTS |= {"deepseek-fp8": "kimi-fp8", "hopper-fp8": "kimi-fp8"}
NAMES = (*RECIPES, "bfloat16,accumulate=exact", "deepseek-bf16,accumulate=exact", "float32,accumulate=exact")
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 1e-2}


def inputs(checkpoint, B=2, T=6, start=1000):
    weights = load_weights(FIXTURES / "checkpoints" / checkpoint)
    x = np.random.default_rng(1).standard_normal((B, T, weights.config.hidden_size)).astype(np.float32)
    return x, rotary_table(weights.config, np.arange(start, start + T)), causal_mask(T), weights


def moved(cupy, x, R, M, weights):
    return cupy.asarray(x), cupy.asarray(R), cupy.asarray(M), weights.to(cupy)


def compare(same, cupy, found, expected, recipe):
    unordered = recipe.accumulate == "float32" or recipe.storage == "float64"  # no rounding hides the order of sums
    options = {"exact": False, "tolerance": TOLERANCE[recipe.storage], "blas": unordered}
    same(cupy.asarray(found), expected, **options)


@pytest.mark.parametrize("attention", ["naive", "absorb"])
@pytest.mark.parametrize("name", NAMES)
def test_every_step_of_every_recipe(cupy, same, name, attention):
    given, recipe = inputs(CHECKPOINTS[name.partition(",")[0]]), get_recipe(name)
    expected = trace(*given, name, attention, steps="*,*.in.*")
    found = trace(*moved(cupy, *given), name, attention, steps="*,*.in.*")
    assert list(found) == list(expected)
    for step in expected:
        if step.endswith(".codes") and cupy.__version__ != "fake":
            continue  # an activation that differs in its last place can have another code
        compare(same, cupy, found[step], expected[step], recipe)
    assert found.summary.keys() == expected.summary.keys()


@pytest.mark.parametrize("name", NAMES)
def test_without_a_tap_nothing_leaves_the_gpu(cupy, same, name):
    given = inputs(CHECKPOINTS[name.partition(",")[0]])
    y = dense_block(*moved(cupy, *given), name)
    assert isinstance(y, cupy.ndarray)
    compare(same, cupy, y, dense_block(*given, name), get_recipe(name))


@pytest.mark.parametrize(
    "options",
    ["scale=ue8m0", "quotient=reciprocal", "scale_order=folded", "group=64", "norm=twice", "granularity=tensor"],
)
def test_recipe_options(cupy, same, options):
    given, name = inputs("kimi-fp8"), f"deepseek-fp8,{options}"
    same(dense_block(*moved(cupy, *given), name), dense_block(*given, name), exact=False, tolerance=1e-2)


@pytest.mark.parametrize("attention", ["naive", "absorb"])
@pytest.mark.parametrize("name", ["float64", "deepseek-fp8"])
def test_decoding_with_a_cache(cupy, same, name, attention):
    x, R, _, weights = inputs(CHECKPOINTS[name.partition(",")[0]])
    outputs = []
    for on_gpu in (True, False):
        cache, parts = LatentCache(), []
        w = weights.to(cupy) if on_gpu else weights
        for start, stop in ((0, 4), (4, 5), (5, 6)):
            given = (x[:, start:stop], R[start:stop], causal_mask(stop - start, stop))
            given = map(cupy.asarray, given) if on_gpu else given
            parts.append(asnumpy(dense_block(*given, w, name, attention, cache)))
        assert len(cache) == 6
        outputs.append(np.concatenate(parts, 1))
    compare(same, cupy, *outputs, get_recipe(name))


def additive(low):
    return np.where(causal_mask(6), 0.0, low).astype(np.float32)


HIDING = causal_mask(6) & (np.arange(6) != 0)


@pytest.mark.parametrize(
    "M",
    [
        additive(-np.inf),
        additive(np.finfo(np.float32).min),
        HIDING,
        np.where(HIDING, 0, np.finfo(np.float32).min).astype(np.float32),
        masks.combine_masks(causal_mask(6), masks.padding_mask(np.array([0, 2]), 6)),
        np.repeat(causal_mask(6)[None], 2, 0),
    ],
    ids=["-inf", "lowest", "row hidden", "row hidden by lowest", "padding", "batch"],
)
@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16"])
def test_masks(cupy, same, M, name):
    x, R, _, weights = inputs(CHECKPOINTS[name.partition(",")[0]])
    expected, found = dense_block(x, R, M, weights, name), dense_block(*moved(cupy, x, R, M, weights), name)
    compare(same, cupy, found, expected, RECIPES[name])


def test_masks_are_combined_on_the_gpu(cupy, same):
    padding = masks.padding_mask(np.array([0, 2]), 6)
    for M in (additive(-np.inf), additive(-1e30)):
        same(masks.combine_masks(cupy.asarray(M), cupy.asarray(padding)), masks.combine_masks(M, padding))
        same(masks.as_boolean(cupy.asarray(M)), masks.as_boolean(M))


@pytest.mark.parametrize("name", RECIPES)
def test_single_operations(cupy, same, name):
    recipe = RECIPES[name]
    x = np.random.default_rng(2).standard_normal((1, 3, 4, 8)).astype(recipe.carrier)
    R = np.exp(1j * np.arange(12.0).reshape(3, 4))
    tolerance = TOLERANCE[recipe.storage]
    same(rotate(cupy.asarray(x), cupy.asarray(R), recipe), rotate(x, R, recipe))
    extreme = np.concatenate([x.reshape(-1), np.array([-1000, -89, 0, 100, np.inf], recipe.carrier)])
    same(silu(cupy.asarray(extreme), recipe), silu(extreme, recipe), exact=False, tolerance=tolerance)
    scores = np.where(np.arange(8) < 5, x, x.dtype.type(-np.inf))
    scores[0, 0, 0] = -np.inf
    same(softmax(cupy.asarray(scores), recipe), softmax(scores, recipe), exact=False, tolerance=tolerance)


def test_statistics_and_replacements(cupy, same):
    x = np.array([1.0, -3.0, 0.0, np.nan, -np.inf], np.float32)
    assert statistics(cupy.asarray(x)) == statistics(x)
    given = inputs("kimi-fp8")
    tap, on_gpu = (Replace(z=lambda z: z * 2) for _ in range(2))
    expected = dense_block(*given, "deepseek-fp8", tap=tap)
    found = dense_block(*moved(cupy, *given), "deepseek-fp8", tap=on_gpu)
    same(found, expected, exact=False, tolerance=1e-2)


def test_weights_move_and_come_back(cupy):
    weights = inputs("kimi-fp8")[3]
    there = weights.to(cupy)
    assert there.mlp.up_proj.block == weights.mlp.up_proj.block
    assert isinstance(there.mlp.up_proj.raw, cupy.ndarray)
    assert isinstance(there.mlp.up_proj.scale, cupy.ndarray)
    back = there.to(np)
    for name, weight in weights.named().items():
        np.testing.assert_array_equal(back.named()[name].raw, weight.raw)
    assert weights.self_attn.q_a_proj is not None
    assert inputs("v2lite-bf16")[3].to(cupy).self_attn.q_a_proj is None


def test_the_command_line(cupy, tmp_path, capsys):
    common = ["run", "--tokens", "4", "--digest", "--json"]
    digests = []
    for device in ("cpu", "gpu"):
        trace_file = str(tmp_path / f"{device}.safetensors")
        assert main([*common, "--device", device, "--trace", trace_file, "--output", trace_file + ".y"]) == 0
        digests.append(capsys.readouterr().out)
    if cupy.__version__ == "fake":
        assert [line for line in digests[0].splitlines() if "sha256" in line] == [
            line for line in digests[1].splitlines() if "sha256" in line
        ]
        assert (tmp_path / "cpu.safetensors.y").read_bytes() == (tmp_path / "gpu.safetensors.y").read_bytes()
