"""Runs of small blocks whose sizes all differ, and dumps of them as other programs would record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocklab.block.cache import LatentCache
from blocklab.block.config import BlockConfig, Yarn
from blocklab.block.masks import causal_mask
from blocklab.block.rotary import rotary_table
from blocklab.check.case import Case
from blocklab.numerics import get_recipe, round_to
from blocklab.synth.weights import synthetic_weights

TRANSFORMERS = (
    *("attn_norm", "q_latent", "q_latent_norm", "q", "kv_down", "kv_latent_norm", "kv_up", "pattern", "attn_out"),
    *("mlp_norm", "gate", "up", "mlp_out", "resid_post"),
)
DEEPSEEK = (*TRANSFORMERS[:4], "q_rot", *TRANSFORMERS[4:6], "k_rot", "kv_up", *TRANSFORMERS[8:])

KIMI = Yarn(32.0, 4096, beta_fast=1.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)
V3 = Yarn(40.0, 4096, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)


def small_config(**settings) -> BlockConfig:
    sizes = {
        **{"hidden_size": 192, "intermediate_size": 320, "num_attention_heads": 3, "q_lora_rank": 160},
        **{"kv_lora_rank": 144, "qk_nope_head_dim": 40, "qk_rope_head_dim": 32, "v_head_dim": 24},
        **{"rms_norm_eps": 1e-6, "rope_theta": 50000.0, "yarn": KIMI, "weight_block_size": (64, 48)},
    }
    return BlockConfig(**(sizes | settings))


@dataclass(frozen=True)
class Setting:
    config: BlockConfig
    dtype: str
    recipe: str
    seed: int
    start: int
    stride: int
    batch: int
    tokens: int
    attention: str = "naive"


SETTINGS = {
    "float32": Setting(small_config(), "bfloat16", "float32", 3, 0, 17, 2, 20),
    "bfloat16": Setting(
        small_config(hidden_size=224, num_attention_heads=4, qk_nope_head_dim=24, yarn=V3, rope_theta=10000.0),
        *("bfloat16", "bfloat16", 5, 400, 53, 1, 24),
    ),
    "deepseek-bf16": Setting(
        small_config(intermediate_size=256, v_head_dim=48), "fp8", "deepseek-bf16", 7, 1000, 11, 1, 18
    ),
    "absorb": Setting(
        small_config(intermediate_size=208, v_head_dim=56), "fp8", "deepseek-bf16", 8, 90, 29, 1, 15, "absorb"
    ),
    "deepseek-fp8": Setting(
        small_config(hidden_size=320, intermediate_size=448, q_lora_rank=192, kv_lora_rank=160),
        *("fp8", "deepseek-fp8", 11, 70, 31, 2, 12),
    ),
}


def make_run(name: str, cached: int = 0) -> Case:
    """A correct run; with `cached`, after so many tokens. Token 2 is quiet, channel 5 loud, a group of token 3 zero."""
    s = SETTINGS[name]
    rng, recipe = np.random.default_rng(s.seed), get_recipe(s.recipe)
    x = rng.standard_normal((s.batch, s.tokens, s.config.hidden_size))
    x *= 2.0 ** rng.integers(-2, 2, (s.batch, s.tokens, 1))
    x[..., 5] *= 16
    x[:, 2] *= 2.0**-27
    x[:, 3, :128] = 0
    x = round_to(x, "bfloat16").astype(np.float32)
    positions = np.broadcast_to(s.start + s.stride * np.arange(s.tokens), (s.batch, s.tokens))
    cache = None
    if cached:
        widths = (s.config.kv_lora_rank, s.config.qk_rope_head_dim)
        past = (round_to(rng.standard_normal((s.batch, cached, w)), "bfloat16").astype(np.float32) for w in widths)
        cache = LatentCache(*past)
    return Case(
        x,
        positions,
        np.asarray(rotary_table(s.config, positions, recipe.rotary_table)),
        causal_mask(s.tokens, s.tokens + cached),
        synthetic_weights(s.config, s.seed, s.dtype),
        recipe,
        s.attention,
        cache,
    )


def dump_of(spoiled: Case, claimed: Case, steps=None) -> dict[str, np.ndarray]:
    """What `spoiled` computes, recorded as if it were `claimed`; `steps` None shows all of them."""
    dump = {"input": claimed.x, "position_ids": claimed.positions}
    if claimed.cache is not None:
        dump |= {"cache.kv_latent_norm": claimed.cache.kv_latent_norm, "cache.k_rot": claimed.cache.k_rot}
    return dump | {name: value for name, value in spoiled.record().items() if steps is None or name in steps}
