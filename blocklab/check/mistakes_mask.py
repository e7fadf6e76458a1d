"""Mistakes in the mask and in the softmax."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from blocklab.block.masks import as_boolean
from blocklab.check.case import Case, Seen
from blocklab.check.variation import Mistake, Variation
from blocklab.numerics import round_to


def missing_mask(case: Case) -> Iterator[Variation]:
    """Let every query see every key."""
    if not as_boolean(case.M).all():
        yield Variation("queries see later keys", case.change(M=np.ones(case.M.shape, bool)))


def mask_off_by_one(case: Case) -> Iterator[Variation]:
    """Let every query see one key more, or one fewer."""
    M = np.asarray(as_boolean(case.M))
    more, fewer = M.copy(), np.zeros_like(M)
    more[..., 1:] |= M[..., :-1]
    fewer[..., :-1] = M[..., 1:]
    if (more != M).any():
        yield Variation("every query sees one key too many", case.change(M=more))
    if (fewer & M).any() and (fewer != M).any():
        yield Variation("no query sees its own key", case.change(M=fewer & M))


def mask_added_as_bool(case: Case) -> Iterator[Variation]:
    """Add the boolean mask to the scores as 0 and 1."""

    def attn_masked(seen: Seen, value: np.ndarray, case: Case) -> np.ndarray:
        scores = seen["attn_scores"]
        return np.asarray(round_to(scores + as_boolean(case.mask(scores)).astype(scores.dtype), case.recipe.storage))

    if not as_boolean(case.M).all():
        yield Variation("True and False were added to the scores as 1 and 0", case.rewriting(attn_masked=attn_masked))


def mask_upper_left(case: Case) -> Iterator[Variation]:
    """Align the causal mask with the first key although earlier keys are cached."""
    T, S = case.x.shape[1], case.M.shape[-1]
    if S > T:
        yield Variation("query i sees keys 0 to i, the cached ones counted in", case.change(M=np.tri(T, S, dtype=bool)))
    elif case.prefill is not None and 0 < case.prefill < T:
        p = case.prefill
        M = np.array(np.broadcast_to(as_boolean(case.M), (*case.M.shape[:-2], T, S)))
        alone, chunk = M.copy(), M.copy()
        alone[..., p:, :] = np.arange(S) == 0
        chunk[..., p:, :] = np.tri(T - p, S, dtype=bool)
        yield Variation(f"every token after the first {p} sees key 0 alone", case.change(M=alone))
        yield Variation(f"tokens after the first {p} see keys from 0 on again", case.change(M=chunk))


def softmax_in_low_precision(case: Case) -> Iterator[Variation]:
    """Compute exp, sum and quotient in a 16-bit format."""
    for number_format in ("bfloat16", "float16"):
        for running in (False, True):

            def pattern(
                seen: Seen, value: np.ndarray, case: Case, form: str = number_format, running: bool = running
            ) -> np.ndarray:
                return _low_softmax(seen["attn_masked"], form, running)

            adds = "a running sum" if running else "sum"
            detail = f"exp, {adds} and quotient of the softmax are rounded to {number_format}"
            yield Variation(detail, case.rewriting(pattern=pattern))


def _low_softmax(scores: np.ndarray, number_format: str, running: bool) -> np.ndarray:
    def low(x: np.ndarray) -> np.ndarray:
        return np.asarray(round_to(x, number_format))

    with np.errstate(all="ignore"):
        scores = low(np.maximum(scores.astype(np.float32), np.float32(-3e38)))
        e = low(np.exp(low(scores - scores.max(-1, keepdims=True))))
        total = low(e.sum(-1, keepdims=True))
        if running:
            total = np.zeros_like(total)
            for s in range(e.shape[-1]):
                total = low(total + e[..., s : s + 1])
        return low(e / total)


_MASKED = ("attn_masked",)

MASK = (
    Mistake(
        "softmax-in-low-precision",
        "computes exp, sum and quotient of the softmax in 16 bits",
        "pattern, by an ulp or two",
        ("pattern",),
        softmax_in_low_precision,
    ),
    Mistake(
        "missing-mask",
        "lets queries see later keys",
        "attn_masked, pattern; most at early queries, not at the last",
        _MASKED,
        missing_mask,
    ),
    Mistake(
        "mask-off-by-one",
        "lets every query see one key too many, or not its own",
        "attn_masked, pattern",
        _MASKED,
        mask_off_by_one,
    ),
    Mistake(
        "mask-added-as-bool",
        "adds the boolean mask to the scores as 0 and 1",
        "attn_masked, pattern",
        _MASKED,
        mask_added_as_bool,
    ),
    Mistake(
        "mask-upper-left",
        "aligns the causal mask with the first key although keys are cached",
        "attn_masked, pattern; with a cache only",
        _MASKED,
        mask_upper_left,
    ),
)
"""This module's part of the catalogue."""
