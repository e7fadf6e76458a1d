"""Rotary position embedding: the table of angles with YaRN, and the rotation of pairs."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from blocklab.block.config import BlockConfig, Yarn, yarn_mscale
from blocklab.errors import InputError, brief
from blocklab.numerics.options import chosen
from blocklab.xp import Array

Precision = Literal["float64", "float32"]


def correction_range(config: BlockConfig) -> tuple[int, int]:
    """Return YaRN's (low, high): pairs up to low keep their frequency, from high on it is divided by factor.

    A pair index d makes R^... turns over the original context; low and high are where it makes beta_fast
    and beta_slow turns:  d(n) = R ln(L / (2 pi n)) / (2 ln theta),  low = floor(d(beta_fast)) >= 0,
    high = ceil(d(beta_slow)) <= R - 1.  Source: arXiv 2309.00071, section 3.2; DeepSeek-V3 inference code.
    """
    yarn = config.yarn
    if yarn is None:
        raise InputError("this config has no YaRN: rope_scaling is null")

    def pair_with_turns(turns: float) -> float:
        wavelengths = math.log(yarn.original_max_position_embeddings / (turns * 2 * math.pi))
        return config.qk_rope_head_dim * wavelengths / (2 * math.log(config.rope_theta))

    low = max(math.floor(pair_with_turns(yarn.beta_fast)), 0)
    high = min(math.ceil(pair_with_turns(yarn.beta_slow)), config.qk_rope_head_dim - 1)
    return low, max(low, high)


def yarn_ramp(config: BlockConfig) -> np.ndarray:
    """Return for each pair the share of its stretched frequency: 0 up to low, 1 from high on.  [R/2]

    Equal low and high give a step: published code widens the range by 0.001.
    """
    low, high = correction_range(config)
    pairs = np.arange(config.qk_rope_head_dim // 2)
    return np.clip((pairs - low) / (high - low or 0.001), 0.0, 1.0)


def inverse_frequencies(config: BlockConfig, precision: Precision = "float64") -> np.ndarray:
    """Return the angle per position of each pair: theta^(-2i/R), under YaRN blended with itself / factor.  [R/2]

    omega_i / factor * (1 - keep_i) + omega_i keep_i, omega_i = theta^(-2i/R), keep_i = 1 - ramp_i.
    precision "float32" rounds every operation to float32, as published code does; the power itself is
    computed in float64 and then rounded, so that the bits depend on the machine at a tie at most.
    Errors: InputError for another precision.
    """
    if not chosen(precision, "float64", "float32"):
        raise InputError(f"rotary table: precision must be 'float64' or 'float32'; found {brief(precision)}")
    dtype = np.dtype(precision)
    exponents = np.arange(0, config.qk_rope_head_dim, 2).astype(dtype) / dtype.type(config.qk_rope_head_dim)
    wavelengths = (config.rope_theta ** exponents.astype(np.float64)).astype(dtype)
    plain = 1 / wavelengths
    if config.yarn is None:
        return plain
    stretched = 1 / (dtype.type(config.yarn.factor) * wavelengths)
    keep = 1 - yarn_ramp(config).astype(dtype)
    return stretched * (1 - keep) + plain * keep  # 1 - keep is not ramp in float32: published code rounds twice


def rotary_table(config: BlockConfig, positions: Array, precision: Precision = "float64") -> np.ndarray:
    """Return e^{i p omega} for every position and pair, complex [..., T, R/2].

    positions  integers [T] or [B, T]
    precision  "float64" -> complex128; "float32" -> complex64, angles as published code computes them:
               at position 100,000 they are off by up to 4e-3
    YaRN multiplies by mscale(mscale) / mscale(mscale_all_dim), which is 1 for Kimi K2 and DeepSeek-V3.
    The frequencies are never rounded to the storage format before the multiplication.
    Errors: InputError for positions that are not integers or are negative, and for another precision.
    """
    positions = np.asarray(positions)
    if positions.dtype.kind not in "iu" or positions.ndim == 0 or (positions.size and positions.min() < 0):
        raise InputError(
            f"rotary table: positions must be non-negative integers [T] or [B, T];"
            f" found {positions.dtype}{list(positions.shape)}"
        )
    omega = inverse_frequencies(config, precision)
    angles = (positions[..., None].astype(omega.dtype) * omega).astype(np.float64)  # [..., T, R/2]
    table = rotary_factor(config.yarn) * (np.cos(angles) + 1j * np.sin(angles))
    return table.astype(np.result_type(omega, np.complex64))


def rotary_factor(yarn: Yarn | None) -> float:
    """Return YaRN's factor on cos and sin: mscale(mscale) / mscale(mscale_all_dim); 1 without YaRN."""
    if yarn is None:
        return 1.0
    return yarn_mscale(yarn.factor, yarn.mscale) / yarn_mscale(yarn.factor, yarn.mscale_all_dim)
