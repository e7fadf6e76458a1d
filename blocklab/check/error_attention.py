"""How far open the steps of attention are before they are stored: the rules that `tolerance` explains."""

from __future__ import annotations

import numpy as np

from blocklab.block.config import BlockConfig
from blocklab.block.rotary import inverse_frequencies, yarn_ramp
from blocklab.block.steps import Step
from blocklab.check.error_rules import (
    Open,
    State,
    Variance,
    all_keys,
    all_keys_variance,
    drift,
    known,
    square,
    weight_of,
)
from blocklab.check.measures import HIDDEN, ulp


def rotation(u: State, wire: Step, value: np.ndarray) -> Open:
    """Return what is open in the rotation of the last part of another step."""
    x, R = u.values[wire.inputs[0]], value.shape[-1]
    size = np.hypot(*_pairs(x[..., -R:].astype(np.float64)))  # [B, T, (H,) R/2]
    angles = _angles(u, value.ndim)
    own = np.square(size * (2 + angles) * u.unit)
    inherited = u.variance[wire.inputs[0]]
    if not known(inherited):
        own = own + np.maximum(*_pairs(np.asarray(inherited)[..., -R:]))
    flips = size * angles * frequency_room(u.case.config) * u.unit
    if u.case.recipe.rotation == "each":
        flips = flips + 2 * ulp(size, u.storage)
    return Open(np.repeat(own, 2, -1), np.repeat(flips, 2, -1) if flips.any() else 0.0)


def frequency_room(config: BlockConfig) -> np.ndarray:
    """Return how many units of 2^-24 a float32 frequency may be off by, relative to itself, beside an ulp.  [R/2]

    e = 2i / R       a rounded exponent moves theta^-e by e ln(theta) units; so do a rounded logarithm and its product
                     with e where the power is an exponential: three roundings at most
    i                where a frequency is the one before times theta^(-2/R), that factor's rounding grows with the pair
    YaRN's ramp      omega = slow + keep (fast - slow), fast = factor slow: a keep that is off by half a unit of 1, as
                     a rounded quotient is, moves omega by half a unit of (fast - slow) / omega, which is up to
                     factor - 1 where keep is small; two implementations may be off to two sides
    """
    pairs = np.arange(config.qk_rope_head_dim // 2)
    room = 1.5 * pairs + 6 * pairs / config.qk_rope_head_dim * np.log(config.rope_theta)
    if config.yarn is None:
        return np.asarray(room)
    keep, more = 1 - yarn_ramp(config), config.yarn.factor - 1
    return np.asarray(room + np.where((keep > 0) & (keep < 1), more / (1 + keep * more), 0))


def _pairs(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x[..., 0::2], x[..., 1::2]


def _angles(u: State, axes: int) -> np.ndarray:
    """Return the angle that each pair is turned by, [B, T, (1,) R/2]; zero where the table is theirs."""
    turned = u.case.positions[..., None] * inverse_frequencies(u.case.config) * (not u.their_table)
    return np.asarray(turned if axes == 3 else turned[:, :, None])


def scores(u: State, wire: Step, value: np.ndarray) -> Open:
    """Return what is open in two dots, added; queries [B, T, H, .], keys [B, S, (H,) .]."""
    absorb = u.case.attention == "absorb"
    total: Variance = 0.0
    for query, key in (wire.inputs[:2], wire.inputs[2:]):
        q, k = u.values[query].astype(np.float64), all_keys(u, key).astype(np.float64)
        steady = drift(q.shape[-1], _dots(q, k), u.unit)
        q, k = square(q), square(k)
        total = total + q.shape[-1] / 3 * u.unit**2 * _dots(q, k) + steady
        if not known(u.variance[key]):
            total = total + _dots(q, all_keys_variance(u, key))
        if not known(u.variance[query]):
            total = total + _dots(np.asarray(u.variance[query]), k)
    visible = np.where(value > HIDDEN, value, 0)
    scale = u.case.config.softmax_scale
    flips = (2 if absorb else 1) * scale * ulp(visible / scale, u.storage)
    return Open(scale**2 * total + np.square(u.unit * visible), flips)


def masked(u: State, wire: Step, value: np.ndarray) -> Open:
    """Return that hidden scores are known; the others are as open as before."""
    variance = u.variance[wire.inputs[0]]
    return Open(variance if known(variance) else np.where(value > HIDDEN, variance, 0))


def softmax(u: State, wire: Step, value: np.ndarray) -> Open:
    """Return what is open in shares of masked scores."""
    s, p = u.values[wire.inputs[0]].astype(np.float64), value.astype(np.float64)
    visible = s > HIDDEN
    below = np.where(visible, s.max(-1, keepdims=True) - s, 0)
    relative = np.square((2 + below / 2 + (s.shape[-1] / 3) ** 0.5) * u.unit)
    inherited = u.variance[wire.inputs[0]]
    if not known(inherited):
        inherited = np.where(visible, inherited, 0)
        # dp_i = p_i (ds_i - sum p ds): a key that takes all has nothing to lose. Equal keys have equal errors.
        relative = relative + (1 - 2 * p) * inherited + np.square((p * np.sqrt(inherited)).sum(-1, keepdims=True))
    return Open(np.square(p) * np.maximum(relative, 0))


def mixing(u: State, wire: Step, value: np.ndarray) -> Open:
    """Return what is open in pattern times values: result [B, T, H, .]."""
    pattern, keys = wire.inputs
    p, v = square(u.values[pattern]), square(all_keys(u, keys))
    total = p.shape[-1] / 3 * u.unit**2 * _mix(p, v) + drift(p.shape[-1], value, u.unit)
    if not known(u.variance[keys]):
        total = total + _mix(p, all_keys_variance(u, keys))
    if not known(u.variance[pattern]):
        total = total + _mix(np.asarray(u.variance[pattern]), v)
    return Open(total)


def _dots(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return [B, H, T, S] from [B, T, H, .] and [B, S, H, .] or [B, S, .]."""
    k = k[:, :, None] if k.ndim == 3 else k
    return np.asarray(np.matmul(q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1)))


def _mix(p: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return [B, T, H, .] from [B, H, T, S] and [B, S, H, .] or [B, S, .]."""
    v = v[:, :, None] if v.ndim == 3 else v
    return np.asarray(np.matmul(p, v.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3))


def absorbed(u: State, wire: Step, value: np.ndarray) -> Open:
    """Return what is open in q_absorbed (W_UK^T q_nope) or, absorbed, in z (W_UV z_latent): [B, T, H, .]."""
    c, x = u.case.config, u.values[wire.inputs[0]]
    H, N = c.num_attention_heads, c.qk_nope_head_dim
    W = np.square(weight_of(u, wire).values().astype(np.float64)).reshape(H, -1, c.kv_lora_rank)
    W = W[:, :N] if wire.kind == "absorb" else W[:, N:].transpose(0, 2, 1)  # [H, in, out]
    per_input = x.shape[-1] / 3 * u.unit**2 * square(x) + u.variance[wire.inputs[0]]
    products = np.matmul(per_input.transpose(0, 2, 1, 3), W).transpose(0, 2, 1, 3)
    return Open(products + drift(x.shape[-1], value, u.unit))
