"""Mistakes in norms, residual stream and MLP."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from blocklab.block.operations import silu
from blocklab.block.steps import STEPS
from blocklab.check.case import Case, Rewrite, Seen
from blocklab.check.variation import Mistake, Variation
from blocklab.numerics import Recipe, round_to

EPSILONS = (1e-5, 1e-6, 1e-8, 1e-12)


def missing_q_norm(case: Case) -> Iterator[Variation]:
    """Use the query latent without its norm."""
    if case.config.q_lora_rank is not None:
        yield Variation("the query latent is not normed", case.rewriting(q_latent_norm=_instead("q_latent")))


def missing_kv_norm(case: Case) -> Iterator[Variation]:
    """Use the key-value latent without its norm."""
    yield Variation("the key-value latent is not normed", case.rewriting(kv_latent_norm=_instead("kv_latent")))


def _instead(source: str) -> Rewrite:
    return lambda seen, value, case: seen[source]


def wrong_eps(case: Case) -> Iterator[Variation]:
    """Take another eps than the config's, in all norms or in the two latent norms."""
    own = case.config.rms_norm_eps
    candidates = list(dict.fromkeys((*_eps_of_theirs(case), *EPSILONS)))
    for eps in candidates:
        if eps != own:
            changed = case.with_config(rms_norm_eps=eps).with_recipe(latent_norm_eps=None)
            yield Variation(f"rms_norm_eps {eps:g} instead of {own:g}", changed)
    for eps in candidates:
        if eps != (case.recipe.latent_norm_eps or own):
            changed = case.with_recipe(latent_norm_eps=eps)
            yield Variation(f"eps {eps:g} in the latent norms", changed, _LATENT_NORMS)


def _eps_of_theirs(case: Case) -> Iterator[float]:
    """Yield the eps that their norms seem to have, to two digits.

    theirs = g x / sqrt(ms + eps), so eps = (g x / theirs)^2 - ms: read off at the quietest token, where it is largest.
    """
    w, theirs = case.weights, case.theirs
    inputs = {
        "attn_norm": (case.x, w.input_layernorm),
        "q_latent_norm": (theirs.get("q_latent"), w.self_attn.q_a_layernorm),
        "kv_latent_norm": (theirs.get("kv_down"), w.self_attn.kv_a_layernorm),
        "mlp_norm": (_resid_mid(case), w.post_attention_layernorm),
    }
    for step, (x, gain) in inputs.items():
        if step not in theirs or x is None or gain is None:
            continue
        y = theirs[step].reshape(-1, gain.shape[0]).astype(np.float64)
        x = x.reshape(len(y), -1)[:, : gain.shape[0]].astype(np.float64)
        mean_square = np.square(x).mean(-1)
        quiet = int(np.argmin(np.where(mean_square > 0, mean_square, np.inf)))
        scaled = x[quiet] * gain.values()
        with np.errstate(all="ignore"):
            eps = float((np.vdot(scaled, scaled) / np.vdot(scaled, y[quiet])) ** 2 - mean_square[quiet])
        if math.isfinite(eps) and 1e-30 < eps <= 0.1:
            yield float(f"{eps:.1e}")


def _resid_mid(case: Case) -> np.ndarray | None:
    if "resid_mid" in case.theirs:
        return case.theirs["resid_mid"]
    return case.x + case.theirs["attn_out"] if "attn_out" in case.theirs else None


def norm_rounds_once(case: Case) -> Iterator[Variation]:
    """Multiply by the gain before the one rounding, in all norms or in one of them."""
    if case.recipe.norm == "twice" and _narrow(case):
        yield from _in_norms(case, "once", "the gain is multiplied before the result is rounded")


def norm_rounds_twice(case: Case) -> Iterator[Variation]:
    """Round before the gain is multiplied, and again after, in all norms or in one of them."""
    if case.recipe.norm == "once" and _narrow(case):
        yield from _in_norms(case, "twice", "the normed value is rounded before the gain is multiplied")


def _in_norms(case: Case, norm: Literal["once", "twice"], detail: str) -> Iterator[Variation]:
    recipe = case.recipe.replace(norm=norm)
    yield Variation(detail, case.change(recipe=recipe))
    for step in _NORMS:
        yield Variation(f"{detail}, in this norm alone", case.rewriting(**{step: _normed(step, recipe)}), (step,))


def _normed(step: str, recipe: Recipe) -> Rewrite:
    """Return the rewrite of one norm under another recipe."""

    def rewrite(seen: Seen, value: np.ndarray, case: Case) -> np.ndarray:
        norm = STEPS[step]
        gain = case.weights.named()[norm.weight or ""]
        return np.asarray(case.with_recipe(norm=recipe.norm).block.norm(step, seen[norm.inputs[0]], gain))

    return rewrite


def _narrow(case: Case) -> bool:
    return case.recipe.storage in ("bfloat16", "float16")


def residual_from_norm(case: Case) -> Iterator[Variation]:
    """Add the branch to the normed value instead of the residual stream."""

    def added(stream: str, branch: str) -> Rewrite:
        def rewrite(seen: Seen, value: np.ndarray, case: Case) -> np.ndarray:
            return np.asarray(round_to(seen[stream] + seen[branch], case.recipe.storage))

        return rewrite

    mid = case.rewriting(resid_mid=added("attn_norm", "attn_out"))
    yield Variation("attention's output is added to attn_norm", mid, ("resid_mid",))
    post = case.rewriting(resid_post=added("mlp_norm", "mlp_out"))
    yield Variation("the MLP's output is added to mlp_norm", post, ("resid_post",))
    both = mid.rewriting(resid_post=added("mlp_norm", "mlp_out"))
    yield Variation("both branches are added to the normed values", both)


def gate_up_swapped(case: Case) -> Iterator[Variation]:
    """Exchange gate and up, in the weights or in the product."""
    mlp = case.weights.mlp
    swapped = replace(mlp, gate_proj=mlp.up_proj, up_proj=mlp.gate_proj)
    weights = case.change(weights=replace(case.weights, mlp=swapped))
    yield Variation("gate and up are exchanged", weights, ("gate", "up"))
    for step, other in (("gate", "up"), ("up", "gate")):
        one = replace(mlp, **{f"{step}_proj": getattr(mlp, f"{other}_proj")})
        changed = case.change(weights=replace(case.weights, mlp=one))
        yield Variation(f"{step} is computed with {other}'s weights", changed, (step,))

    def act(seen: Seen, value: np.ndarray, case: Case) -> np.ndarray:
        return np.asarray(case.block.round("act", case.block.each("gate_act", silu, seen["up"]) * seen["gate"]))

    yield Variation("silu is applied to up instead of gate", case.rewriting(act=act), ("act",))


def gelu_for_silu(case: Case) -> Iterator[Variation]:
    """Use another activation."""
    for name, function in _ACTIVATIONS.items():

        def gate_act(
            seen: Seen, value: np.ndarray, case: Case, f: Callable[[np.ndarray], np.ndarray] = function
        ) -> np.ndarray:
            return np.asarray(round_to(f(seen["gate"].astype(np.float64)), case.recipe.storage))

        yield Variation(f"{name} instead of silu", case.rewriting(gate_act=gate_act))


def _gelu(x: np.ndarray) -> np.ndarray:
    erf = np.vectorize(math.erf, otypes=[np.float64])
    return np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2))))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": _gelu,
    "gelu (tanh form)": _gelu_tanh,
    "relu": lambda x: np.maximum(x, 0),
}


_LATENT_NORMS = ("q_latent_norm", "kv_latent_norm")
_NORMS = ("attn_norm", *_LATENT_NORMS, "mlp_norm")

BLOCK = (
    Mistake(
        "missing-q-norm",
        "leaves out the norm of the query latent",
        "q_latent_norm",
        ("q_latent_norm",),
        missing_q_norm,
    ),
    Mistake(
        "missing-kv-norm",
        "leaves out the norm of the key-value latent",
        "kv_latent_norm",
        ("kv_latent_norm",),
        missing_kv_norm,
    ),
    Mistake(
        "wrong-eps",
        "takes another eps than the config's in the norms",
        "attn_norm, in the quiet tokens",
        _NORMS,
        wrong_eps,
    ),
    Mistake(
        "norm-rounds-once",
        "multiplies by the gain before the one rounding, where the recipe rounds first",
        "attn_norm, by one ulp in a quarter of the elements",
        _NORMS,
        norm_rounds_once,
    ),
    Mistake(
        "norm-rounds-twice",
        "rounds before the gain is multiplied and again after, where the recipe rounds once",
        "attn_norm, by one ulp in a quarter of the elements",
        _NORMS,
        norm_rounds_twice,
    ),
    Mistake(
        "gate-up-swapped",
        "exchanges gate and up",
        "gate, which equals our up",
        ("gate", "up", "act"),
        gate_up_swapped,
    ),
    Mistake(
        "gelu-for-silu",
        "uses gelu, or relu, in the MLP",
        "gate_act",
        ("gate_act",),
        gelu_for_silu,
    ),
    Mistake(
        "residual-from-norm",
        "adds a branch to the normed value instead of the residual stream",
        "resid_mid, resid_post",
        ("resid_mid", "resid_post"),
        residual_from_norm,
    ),
)
"""This module's part of the catalogue."""
