"""Three heads and one neuron built by hand, as wires laid over the noise of the synthetic weights.

Everything is measured in r = RESIDUAL, the root mean square of an ordinary channel of the embedding:

| channels of the residual stream      | holds                                                        |
|--------------------------------------|--------------------------------------------------------------|
| code      0 .. 63                    | +-r: the byte of this token, `byte_codes`                    |
| previous  64 .. 127                  | 0; head 0 writes the code of the previous byte here          |
| start     128                        | 8 r for START_OF_TEXT, 0 for all others                      |
| vowel     129                        | 0; neuron 0 writes here                                      |
| loud      2 D / 3                    | 32 r for every token: the massive activation that trained    |
|                                      | models use as a bias (arXiv 2402.17762); so do these heads   |

RMSNorm divides all of them by the same number, so that a channel at r arrives as u (`unit`), and the loud
one, whose gain is 1/4, as 8 u. Latents hold code (size u), then one bias or start latent (size 4 u) and noise
of about u; the latent norm turns u into about 1 and 4 u into about 4.

Head 0 looks at the PREVIOUS token, through the rotary part alone. The bias gives constant vectors: in pair i
    k_rope = kappa (1, 0)        q_rope = mu omega_i (cos omega_i, -sin omega_i)
so that after the rotation by the positions s of the key and t of the query
    score = scale kappa mu sum_i omega_i cos(omega_i (t - 1 - s)),
largest where every cosine is 1: s = t - 1. The weights omega_i let the fast pairs, which tell neighbours apart,
count most, and the slow ones keep out what is a full turn of the fast ones away. Token 0 sees only itself.
The head moves the code: v = code of the key, W_O writes it, at size r, into the channels `previous`.

Head 1 looks at EQUAL BYTES, itself among them, through the nope part alone: q_nope and k_nope are the codes, and
    score = scale a^2 <code(query), code(key)> = 64 scale a^2 for equal bytes, at most 1/8 of that for others.
All equal bytes share the attention evenly.

Head 2 looks at the FIRST token, through the nope part: q_nope is constant, k_nope is the start latent. Rotary
angles know distances only, and a byte does not know that it comes first, so the token says so, as the begin
token of trained models does, which is their attention sink (arXiv 2309.17453): `text_tokens` puts START_OF_TEXT
before the bytes. Without it all keys score alike and the head looks everywhere evenly.

Neuron 0 fires on the VOWELS a e i o u: gate = 16 u (sum over vowels <code, vowel code> / 64 - 3/4), which is 4
for a vowel and at most -2 for any other byte (five interferences of 1/8), up = 4; W_down writes 4 r to `vowel`.
(A little less in fact, since the residual has grown by what attention added, and the norm divides by more.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from blocklab.block.config import BlockConfig
from blocklab.block.rotary import inverse_frequencies

RESIDUAL = 2.0**-4
"""Root mean square r of an ordinary channel of the embedding."""

LOUDNESS, LOUD_GAIN, MARK = 32.0, 0.25, 8.0
"""The loud channel in units of r, its norm gain, and the start mark in units of r."""

START_OF_TEXT = 2
"""The byte that starts a text: ASCII's STX."""

CODE = 64
"""Width of a byte's code."""

CODES, PREVIOUS, START, VOWEL = slice(0, CODE), slice(CODE, 2 * CODE), 2 * CODE, 2 * CODE + 1

PREVIOUS_LOGIT, EQUAL_LOGIT, START_LOGIT = 36.0, 16.0, 16.0
"""Scores of a hit before the latent norms' deviations (up to a third). The previous token's is higher, since its
neighbours still get 4/5 of it: e^(-36 / 5) keeps them below 1/1000."""

KAPPA = 4.0
"""Size of the constant rotary key."""


@dataclass(frozen=True)
class Wires:
    """Entries laid over a matrix of noise: rows `cleared` are zero first, then W[rows[i], columns[i]] = values[i]."""

    cleared: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray


def fits(config: BlockConfig) -> bool:
    """Whether the heads fit: 64-wide codes through both latents, 16 rotary pairs, a fourth head that is noise."""
    c = config
    latent = min(c.kv_lora_rank, c.q_lora_rank or c.kv_lora_rank)
    wide = min(c.qk_nope_head_dim, c.v_head_dim) >= CODE and c.qk_rope_head_dim >= CODE // 2
    return wide and latent >= 2 * CODE and c.hidden_size >= 4 * CODE and c.num_attention_heads >= 4


def loud_channel(config: BlockConfig) -> int:
    """Return the index of the loud channel."""
    return 2 * config.hidden_size // 3


def unit(config: BlockConfig) -> float:
    """Return u, the normed size of a channel at r: r / sqrt(mean x^2) with one channel at 32 r and the rest at r."""
    D = config.hidden_size
    return math.sqrt(D / (LOUDNESS**2 + D - 1))


def byte_codes() -> np.ndarray:
    """Return the codes of the 256 bytes, +-1, [256, 64]: <c, c'> / 64 is 1 for equal bytes, 0 or +-1/8 for others.

    code_b[x] = (-1)^(<u, x> + p . M_a q),  x = (p, q) of 3 + 3 bits,  b = (a, u) of 2 + 6 bits,  sums mod 2

    With one a these are 64 orthogonal Walsh functions. M_a = 0, 1, C, C^2 with C the companion matrix of
    z^3 + z + 1: every difference of two is invertible, so that for unequal a the product of two codes is a bent
    function, whose sum over all x is +-8, the least that is possible for all u at once (Kerdock, 1972).
    Random codes of this width interfere up to 0.5.
    """
    x = np.arange(CODE)[:, None] >> np.arange(5, -1, -1) & 1  # [64, 6] bits
    p, q = x[:, :3], x[:, 3:]
    C = np.array([[0, 0, 1], [1, 0, 1], [0, 1, 0]])
    forms = [np.zeros((3, 3), int), np.eye(3, dtype=int), C, C @ C]
    quadratic = np.stack([((p @ M) * q).sum(1) for M in forms])  # [4, 64]
    linear = x @ x.T  # [64 codes, 64]
    exponent = (quadratic[:, None, :] + linear).reshape(256, CODE)  # [256, 64]
    return (1.0 - 2.0 * (exponent % 2)).astype(np.float32)


def wired_channels(config: BlockConfig, norm: str) -> int:
    """Return how many leading channels of a norm carry wires: their gain is 1."""
    if not fits(config):
        return 0
    return CODE + 1 if norm.startswith("self_attn.") else VOWEL + 1


def wires(config: BlockConfig, name: str) -> Wires | None:
    """Return the wires of a matrix by its checkpoint name, or None where it is all noise."""
    build = _BUILDERS.get(name)
    if build is None or not fits(config):
        return None
    cleared, entries = build(config)
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    return Wires(cleared, rows, columns, values.astype(np.float32))


Entries = list[tuple[np.ndarray, np.ndarray, np.ndarray]]
_EACH = np.arange(CODE)


def _wire(rows: np.ndarray | int, columns: np.ndarray | int, values: np.ndarray | float) -> Entries:
    """Return entries W[rows, columns] = values, single numbers repeated."""
    r, c, v = np.broadcast_arrays(np.atleast_1d(rows), columns, np.asarray(values, dtype=np.float64))
    return [(r, c, v)]


def _q_a_proj(c: BlockConfig) -> tuple[np.ndarray, Entries]:
    """Latents 0-63 are the code channels, latent 64 half the loud channel: 4 u."""
    return np.arange(CODE + 1), _wire(_EACH, _EACH, 1.0) + _wire(CODE, loud_channel(c), 0.5)


def _kv_a_proj(c: BlockConfig) -> tuple[np.ndarray, Entries]:
    """Latents 0-63 are the code, latent 64 half the start channel; k_rope is (kappa, 0) from the loud channel."""
    k_rope = c.kv_lora_rank + np.arange(0, c.qk_rope_head_dim, 2)
    bias = LOUDNESS * LOUD_GAIN * unit(c)
    return np.arange(CODE + 1), (
        _wire(_EACH, _EACH, 1.0) + _wire(CODE, START, 0.5) + _wire(k_rope, loud_channel(c), KAPPA / bias)
    )


def _q_b_proj(c: BlockConfig) -> tuple[np.ndarray, Entries]:
    """Queries of heads 0-2, from the query latents, or from the channels themselves where there are none."""
    N, width, scale = c.qk_nope_head_dim, c.qk_head_dim, c.softmax_scale
    if c.q_lora_rank is not None:
        code, bias_input, bias = 1.0, CODE, 4.0
    else:
        code, bias_input, bias = unit(c), loud_channel(c), LOUDNESS * LOUD_GAIN * unit(c)
    omega = inverse_frequencies(c)  # [R/2]
    mu = PREVIOUS_LOGIT / (scale * KAPPA * omega.sum())
    pair = N + np.arange(0, c.qk_rope_head_dim, 2)
    return np.arange(3 * width), (
        _wire(pair, bias_input, mu * omega * np.cos(omega) / bias)
        + _wire(pair + 1, bias_input, -mu * omega * np.sin(omega) / bias)
        + _wire(width + _EACH, _EACH, math.sqrt(EQUAL_LOGIT / (CODE * scale)) / code)
        + _wire(2 * width + _EACH, bias_input, math.sqrt(START_LOGIT / (CODE * scale)) / bias)
    )


def _kv_b_proj(c: BlockConfig) -> tuple[np.ndarray, Entries]:
    """Nope keys of heads 0-2 (0, the code, the start latent) and the values of head 0 (the code)."""
    N, width, scale = c.qk_nope_head_dim, c.qk_nope_head_dim + c.v_head_dim, c.softmax_scale
    nope = [head * width + np.arange(N) for head in range(3)]
    return np.concatenate([*nope, np.arange(N, width)]), (
        _wire(N + _EACH, _EACH, 1.0)
        + _wire(width + _EACH, _EACH, math.sqrt(EQUAL_LOGIT / (CODE * scale)))
        + _wire(2 * width + _EACH, CODE, math.sqrt(START_LOGIT / (CODE * scale)) / 4.0)
    )


def _o_proj(c: BlockConfig) -> tuple[np.ndarray, Entries]:
    """The channels `previous` take head 0's values; no other head writes to the wired channels."""
    return np.arange(VOWEL + 1), _wire(CODE + _EACH, _EACH, RESIDUAL)


def _gate_proj(c: BlockConfig) -> tuple[np.ndarray, Entries]:
    """Neuron 0: 16 u (sum of the vowels' likeness - 3/4)."""
    likeness = byte_codes()[list(b"aeiou")].sum(0) / CODE
    return np.arange(1), (
        _wire(0, _EACH, 16 * likeness / unit(c))
        + _wire(0, loud_channel(c), -16 * 0.75 / (LOUDNESS * LOUD_GAIN * unit(c)))
    )


def _up_proj(c: BlockConfig) -> tuple[np.ndarray, Entries]:
    """Neuron 0: the constant 4."""
    return np.arange(1), _wire(0, loud_channel(c), 4 / (LOUDNESS * LOUD_GAIN * unit(c)))


def _down_proj(c: BlockConfig) -> tuple[np.ndarray, Entries]:
    """The channel `vowel` takes neuron 0, which fires with silu(4) 4 = 16, and nothing else."""
    return np.array([VOWEL]), _wire(VOWEL, 0, 4 * RESIDUAL / 16)


_BUILDERS = {
    "self_attn.q_a_proj.weight": _q_a_proj,
    "self_attn.q_b_proj.weight": _q_b_proj,
    "self_attn.q_proj.weight": _q_b_proj,
    "self_attn.kv_a_proj_with_mqa.weight": _kv_a_proj,
    "self_attn.kv_b_proj.weight": _kv_b_proj,
    "self_attn.o_proj.weight": _o_proj,
    "mlp.gate_proj.weight": _gate_proj,
    "mlp.up_proj.weight": _up_proj,
    "mlp.down_proj.weight": _down_proj,
}
