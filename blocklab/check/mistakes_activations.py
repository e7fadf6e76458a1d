"""Mistakes in quantising activations to FP8: floor, granularity, overflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from blocklab.check.case import Case, Rewrite, Seen
from blocklab.check.graph import inputs_of
from blocklab.check.variation import EVERY_LINEAR, Mistake, Variation
from blocklab.numerics import encode, quantize

FLOORS = (1e-10, 1e-4, 1e-12, 1e-6, 1e-5, 1e-8, 1e-3, 1e-2, 1e-1)

Quantise: TypeAlias = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Activations [T, K] -> codes [T, K], scales [T or 1, groups or 1]."""


def _quantising(case: Case, how: Quantise, detail: str) -> Iterator[Variation]:
    """Yield the run whose FP8 linears quantise their inputs in another way, if the recipe quantises at all."""
    if not case.recipe.fp8_linear:
        return
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def codes_of(step: str) -> Rewrite:
        def codes(seen: Seen, value: np.ndarray, case: Case) -> np.ndarray:
            source = inputs_of(step, case)[0]
            x = case.with_cached(source, seen[source])
            found[step] = how(x.reshape(-1, value.shape[-1]))
            return found[step][0].reshape(value.shape)

        return codes

    def scale_of(step: str) -> Rewrite:
        def scale(seen: Seen, value: np.ndarray, case: Case) -> np.ndarray:
            flat = (value.size // value.shape[-1], value.shape[-1])
            return np.broadcast_to(found[step][1], flat).reshape(value.shape)

        return scale

    steps = [step for step in EVERY_LINEAR if step not in ("q_absorbed", "z")]
    rewrites = {f"{step}.in.codes": codes_of(step) for step in steps}
    rewrites |= {f"{step}.in.scale": scale_of(step) for step in steps}
    yield Variation(detail, case.rewriting(**rewrites))


def amax_floor(case: Case) -> Iterator[Variation]:
    """Take another floor for the largest magnitude of a group."""
    for floor in FLOORS:
        if case.recipe.fp8_linear and floor != case.recipe.amax_floor:
            detail = f"amax floor {floor:g} instead of {case.recipe.amax_floor:g}"
            yield Variation(detail, case.with_recipe(amax_floor=floor))
    group, floor = case.recipe.group, case.recipe.amax_floor

    def at_most(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        amax = np.minimum(_group_amax(x, group), np.float32(floor))
        return _scaled_codes(x, np.maximum(amax, np.float32(1e-30)) / np.float32(448), group, "saturate")

    yield from _quantising(case, at_most, "the amax floor is taken as a ceiling")


def activation_per_token(case: Case) -> Iterator[Variation]:
    """Give a token one scale instead of one for every 128 channels."""
    floor = case.recipe.amax_floor
    detail = "activations are quantised with one scale a token"
    yield from _quantising(case, lambda x: quantize(x, block=(1, None), amax_floor=floor), detail)


def activation_per_tensor(case: Case) -> Iterator[Variation]:
    """Give all tokens one scale."""
    floor = case.recipe.amax_floor
    detail = "activations are quantised with one scale for all tokens"
    yield from _quantising(case, lambda x: quantize(x, block=(None, None), amax_floor=floor), detail)


def fp8_overflow_nan(case: Case) -> Iterator[Variation]:
    """Turn what exceeds 448 after scaling into NaN instead of 448."""
    group, floor = case.recipe.group, np.float32(case.recipe.amax_floor)

    def rounded_down(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scale = np.maximum(_group_amax(x, group), floor) / np.float32(448)
        return _scaled_codes(x, np.exp2(np.floor(np.log2(scale))).astype(np.float32), group, "nan")

    def unscaled(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _scaled_codes(x, np.ones_like(_group_amax(x, group)), group, "nan")

    yield from _quantising(case, rounded_down, "scales are rounded down to powers of two and what exceeds 448 is NaN")
    yield from _quantising(case, unscaled, "activations are cast without a scale and what exceeds 448 is NaN")


def _group_amax(x: np.ndarray, group: int) -> np.ndarray:
    return np.maximum.reduceat(np.abs(x), np.arange(0, x.shape[-1], group), axis=-1)


def _scaled_codes(x: np.ndarray, scale: np.ndarray, group: int, overflow: str) -> tuple[np.ndarray, np.ndarray]:
    spread = np.repeat(scale, group, axis=-1)[..., : x.shape[-1]]
    return encode(x / spread, "e4m3fn", overflow), scale.astype(np.float32)  # type: ignore[arg-type]


_QUANTISED = tuple(step for step in EVERY_LINEAR if step not in ("q_absorbed", "z"))

ACTIVATIONS = (
    Mistake(
        "fp8-overflow-nan",
        "turns activations that exceed 448 after scaling into NaN instead of 448",
        "the first linear, NaN in whole tokens",
        _QUANTISED,
        fp8_overflow_nan,
    ),
    Mistake(
        "amax-floor",
        "takes another floor for the largest magnitude of a group of activations, or a ceiling",
        "linears, in quiet tokens and channels",
        _QUANTISED,
        amax_floor,
    ),
    Mistake(
        "activation-per-token",
        "quantises activations with one scale a token instead of one for 128 channels",
        "the first linear, most in tokens with a loud channel",
        _QUANTISED,
        activation_per_token,
    ),
    Mistake(
        "activation-per-tensor",
        "quantises activations with one scale for all tokens",
        "the first linear, most in quiet tokens",
        _QUANTISED,
        activation_per_tensor,
        by_token=False,
    ),
)
"""This module's part of the catalogue."""
