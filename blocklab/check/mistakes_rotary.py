"""Mistakes in rotary embedding: which elements form a pair, which frequencies, which positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from blocklab.block.config import yarn_mscale
from blocklab.block.rotary import inverse_frequencies, rotary_factor
from blocklab.check.case import Case, Seen
from blocklab.check.variation import Mistake, Variation, with_softmax_scale, with_yarn
from blocklab.numerics import round_to

THETAS = (10000.0, 50000.0, 500000.0, 1000000.0, 100000.0, 8000000.0, 10000000.0)
BETAS = (32.0, 1.0, 64.0, 16.0, 8.0, 4.0, 2.0)


def halves_to_pairs(x: np.ndarray) -> np.ndarray:
    """Reorder the last axis from half-split (all first, then all second elements) to neighbouring pairs."""
    half = x.shape[-1] // 2
    return np.stack([x[..., :half], x[..., half:]], axis=-1).reshape(x.shape)


def pairs_to_halves(x: np.ndarray) -> np.ndarray:
    """Reorder the last axis from neighbouring pairs to half-split."""
    return np.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)


def rope_half_split(case: Case) -> Iterator[Variation]:
    """Pair element i with i + R/2, although the weights are made for neighbours."""
    yield _rotating(
        case,
        "element i turned with element i + R/2 instead of its neighbour",
        lambda x, case, step: pairs_to_halves(case.block.rotate(step, halves_to_pairs(x), case.R)),
    )


def rope_permuted_twice(case: Case) -> Iterator[Variation]:
    """Reorder for half-split rotation a second time, after the weights were already reordered."""
    yield _rotating(
        case,
        "reordered for half-split rotation a second time",
        lambda x, case, step: case.block.rotate(step, pairs_to_halves(x), case.R),
    )


def _rotating(case: Case, detail: str, turn: Callable[[np.ndarray, Case, str], np.ndarray]) -> Variation:
    R = case.config.qk_rope_head_dim

    def q_rot(seen: Seen, value: np.ndarray, case: Case) -> np.ndarray:
        return turn(seen["q"][..., -R:], case, "q_rot")

    def k_rot(seen: Seen, value: np.ndarray, case: Case) -> np.ndarray:
        return turn(seen["kv_down"][..., -R:], case, "k_rot")

    return Variation(detail, case.rewriting(q_rot=q_rot, k_rot=k_rot))


def missing_yarn(case: Case) -> Iterator[Variation]:
    """Leave the frequencies as they were before YaRN."""
    if case.config.yarn is None:
        return
    plain = case.with_table(replace(case.config, yarn=None))
    yield Variation("the frequencies are not stretched", plain, ("q_rot", "k_rot"))
    without = with_softmax_scale(plain, case.config.qk_head_dim**-0.5)
    yield Variation(
        "rope_scaling is ignored: frequencies not stretched, mscale missing from the softmax scale", without
    )


def wrong_beta_fast(case: Case) -> Iterator[Variation]:
    """Take a common default for beta_fast instead of the config's value."""
    yarn = case.config.yarn
    for beta in BETAS:
        if yarn is not None and beta != yarn.beta_fast and beta >= yarn.beta_slow:
            varied = with_yarn(case, beta_fast=beta)
            assert varied is not None
            yield Variation(f"beta_fast {beta:g} instead of {yarn.beta_fast:g}", varied)


def wrong_theta(case: Case) -> Iterator[Variation]:
    """Take another model's rope_theta."""
    for theta in THETAS:
        if theta != case.config.rope_theta:
            varied = case.with_table(replace(case.config, rope_theta=theta))
            yield Variation(f"rope_theta {theta:g} instead of {case.config.rope_theta:g}", varied)


def rotary_table_bf16(case: Case) -> Iterator[Variation]:
    """Round frequencies, angles or the table itself to bfloat16."""
    omega = inverse_frequencies(case.config, "float32")
    narrow = round_to(omega, "bfloat16")
    places = case.positions[..., None].astype(np.float32)
    factor = rotary_factor(case.config.yarn)
    yield Variation("inverse frequencies rounded to bfloat16", case.change(R=_table(places * narrow, factor)))
    angles = round_to(round_to(places, "bfloat16") * narrow, "bfloat16")
    yield Variation("frequencies, positions and angles in bfloat16", case.change(R=_table(angles, factor)))
    yield Variation("angles rounded to bfloat16", case.change(R=_table(round_to(places * omega, "bfloat16"), factor)))
    if case.recipe.rotation != "each":
        exact = _table(places * omega, factor)
        rounded = round_to(exact.real.copy(), "bfloat16") + 1j * round_to(exact.imag.copy(), "bfloat16")
        yield Variation("cos and sin rounded to bfloat16", case.change(R=rounded))


def _table(angles: np.ndarray, factor: float) -> np.ndarray:
    wide = angles.astype(np.float64)
    return np.asarray((factor * (np.cos(wide) + 1j * np.sin(wide))).astype(np.complex64))


def positions_from_zero(case: Case) -> Iterator[Variation]:
    """Count positions from the start of what was passed in, whatever they are."""
    counted = np.broadcast_to(np.arange(case.positions.shape[-1]), case.positions.shape)
    if (counted != case.positions).any():
        varied = case.with_table(case.config, counted)
        yield Variation(f"positions from 0 instead of {int(case.positions.flat[0])}", varied)


def mscale_in_rotary(case: Case) -> Iterator[Variation]:
    """Multiply cos and sin by mscale."""
    yarn = case.config.yarn
    mscale = 1.0 if yarn is None else yarn_mscale(yarn.factor, yarn.mscale_all_dim or yarn.mscale)
    if mscale == 1.0:
        return
    varied = case.change(R=(case.R * mscale).astype(case.R.dtype))
    yield Variation(f"cos and sin are {mscale:.4f} times what they should be", varied, ("q_rot", "k_rot"))
    moved = with_softmax_scale(varied, case.config.qk_head_dim**-0.5)
    yield Variation(f"mscale {mscale:.4f} multiplies cos and sin instead of the softmax scale", moved)


_ROTATED = ("q_rot", "k_rot")

ROTARY = (
    Mistake(
        "rope-half-split",
        "rotates element i with element i + R/2, although the weights are made for neighbours",
        "q_rot, k_rot, then the pattern; not at position 0",
        _ROTATED,
        rope_half_split,
    ),
    Mistake(
        "rope-permuted-twice",
        "reorders queries and keys for half-split rotation, after the weights were already reordered",
        "q_rot, k_rot, then the pattern; not at position 0",
        _ROTATED,
        rope_permuted_twice,
    ),
    Mistake(
        "mscale-in-rotary",
        "multiplies cos and sin by mscale, which is for the softmax scale",
        "q_rot, k_rot, by a constant ratio; position 0 too",
        (*_ROTATED, "attn_scores"),
        mscale_in_rotary,
    ),
    Mistake(
        "missing-yarn",
        "rotates by the frequencies before YaRN",
        "q_rot, k_rot, in the slow pairs, at late positions",
        (*_ROTATED, "attn_scores"),
        missing_yarn,
    ),
    Mistake(
        "wrong-beta-fast",
        "takes beta_fast 32, the common default, where the config says 1, or the other way round",
        "q_rot, k_rot, in the middle pairs",
        _ROTATED,
        wrong_beta_fast,
    ),
    Mistake(
        "wrong-theta",
        "takes another model's rope_theta",
        "q_rot, k_rot, in all pairs but the first",
        _ROTATED,
        wrong_theta,
    ),
    Mistake(
        "rotary-table-bf16",
        "rounds frequencies or angles to bfloat16 before cos and sin",
        "q_rot, k_rot, growing with the position; hardly in the pattern",
        _ROTATED,
        rotary_table_bf16,
    ),
    Mistake(
        "positions-from-zero",
        "counts positions from the start of what was passed in",
        "q_rot and k_rot, and nothing after them",
        _ROTATED,
        positions_from_zero,
    ),
)
"""This module's part of the catalogue."""
