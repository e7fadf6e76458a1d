"""Conformance parts about the rotary table: YaRN's frequencies at early and late positions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from blocklab.block.config import BlockConfig, Yarn
from blocklab.conformance.part import Deviation, Part, rounded, within

_POSITIONS = np.array([0, 1, 2, 17, 255, 1000, 4095, 4096, 32768, 100000, 131071])
_MODELS = {"kimi-k2": "factor 32, beta_fast 1, beta_slow 1", "deepseek-v3": "factor 40, beta_fast 32, beta_slow 1"}


def rotary_parts() -> Iterator[Part]:
    """Yield the parts about the table, one for each model."""
    for preset in _MODELS:
        yield _table(preset)


def _table(preset: str) -> Part:
    config = BlockConfig.preset(preset)
    yarn = config.yarn
    assert yarn is not None
    omega = _frequencies(config)
    table = _cos_sin(omega, _POSITIONS)
    error = 2.0**-22 + 2.0**-21 * _POSITIONS[:, None, None] * omega[:, None]
    return Part(
        f"rotary_table.{preset}",
        f"cos and sin [11 positions, 32 pairs, 2] for theta {config.rope_theta:g}, 64 rotary channels and YaRN with"
        f" {_MODELS[preset]}, original context 4096, mscale = mscale_all_dim = 1",
        {f"rotary_table.{preset}.positions": _POSITIONS},
        within(table, error),
        output="float32 or float64",
        tolerance="2^-22 + 2^-21 angle: what float32 frequencies and angles lose",
        deviations=[Deviation(n, s, within(value, error)) for n, s, value in _deviations(config, yarn, omega, table)],
        labels=[f"position {p}" for p in _POSITIONS],
    )


def _frequencies(config: BlockConfig) -> np.ndarray:
    """Return omega [32] in float64 from YaRN's formulas, pair by pair."""
    R, yarn = config.qk_rope_head_dim, config.yarn
    found = []
    for pair in range(R // 2):
        omega = config.rope_theta ** (-2 * pair / R)
        if yarn is not None:
            low, high = (_pair_with_turns(config, yarn, turns) for turns in (yarn.beta_fast, yarn.beta_slow))
            low, high = max(np.floor(low), 0), min(np.ceil(high), R - 1)
            ramp = min(max((pair - low) / ((high - low) or 0.001), 0), 1)
            omega = omega * (1 - ramp) + omega / yarn.factor * ramp
        found.append(omega)
    return np.array(found)


def _pair_with_turns(config: BlockConfig, yarn: Yarn, turns: float) -> float:
    turns_of_first = yarn.original_max_position_embeddings / (2 * np.pi)
    return float(config.qk_rope_head_dim * np.log(turns_of_first / turns) / (2 * np.log(config.rope_theta)))


def _cos_sin(omega: np.ndarray, positions: np.ndarray) -> np.ndarray:
    angles = positions[:, None] * omega
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


def _deviations(
    config: BlockConfig, yarn: Yarn, omega: np.ndarray, table: np.ndarray
) -> Iterator[tuple[str, str, np.ndarray]]:
    def other(**changes: object) -> np.ndarray:
        return _cos_sin(_frequencies(dataclasses.replace(config, **changes)), _POSITIONS)  # type: ignore[arg-type]

    theta = 10000.0 if config.rope_theta != 10000.0 else 50000.0
    fast = 32.0 if yarn.beta_fast != 32.0 else 1.0
    yield "missing-yarn", "without YaRN", other(yarn=None)
    yield "wrong-theta", f"theta is {theta:g}", other(rope_theta=theta)
    yield "wrong-beta-fast", f"beta_fast is {fast:g}", other(yarn=dataclasses.replace(yarn, beta_fast=fast))
    yield "all-divided", "every frequency is divided by the factor", _cos_sin(_plain(config) / yarn.factor, _POSITIONS)
    name = "frequencies-bf16"
    yield (
        name,
        "frequencies are rounded to bfloat16 before the multiplication",
        _cos_sin(rounded(omega, "bfloat16"), _POSITIONS),
    )
    yield "rotary-table-bf16", "cos and sin are rounded to bfloat16", rounded(table, "bfloat16")
    yield "positions-bf16", "positions are rounded to bfloat16", _cos_sin(omega, rounded(1.0 * _POSITIONS, "bfloat16"))
    yield (
        "positions-from-zero",
        "rows are numbered from 0; positions are ignored",
        _cos_sin(omega, np.arange(len(_POSITIONS))),
    )
    mscale = 0.1 * np.log(yarn.factor) + 1
    yield "mscale-in-rotary", "cos and sin are multiplied by mscale", table * mscale
    yield "sin-first", "sin comes before cos", table[..., ::-1]


def _plain(config: BlockConfig) -> np.ndarray:
    return _frequencies(dataclasses.replace(config, yarn=None))
