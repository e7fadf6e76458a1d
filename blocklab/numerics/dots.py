"""Dots: FP8 products stretch by stretch of K, and products of other numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np

from blocklab.errors import InputError, brief
from blocklab.file_array import FileArray
from blocklab.numerics.codes import check_codes, decode, decode_scaled
from blocklab.numerics.formats import Format, get_format
from blocklab.numerics.options import chosen, is_count
from blocklab.numerics.rounding import check_array
from blocklab.numerics.scaling import (
    Block,
    block_sizes,
    check_grid,
    check_scale,
    dequantize,
    dequantize_tile,
    element_format,
    row_scales,
)
from blocklab.numerics.tensor_core import CORES, Operand, TensorCore, check_promote, fits_float32, register_dot
from blocklab.numerics.threads import spread_rows
from blocklab.numerics.tiles import tiled_product
from blocklab.xp import Array, array_module

Accumulate = Literal["exact", "float32", "hopper", "ada", "blackwell", "hopper-bf16"]

ROWS = 1024
"""Rows of the weight that are multiplied together."""

TOKENS, CORE_TOKENS = 128, 64
"""Tokens that are multiplied together, exactly and by a tensor core: their sums stay in a cache while K goes by."""

BLAS_ROWS = 32
"""Rows in one call of BLAS: few enough to stay in the calling thread, as `tiles` explains."""


def fp8_matmul(
    a_codes: Array,
    a_scale: Array,
    w_codes: Array,
    w_scale: Array,
    accumulate: Accumulate | TensorCore = "exact",
    *,
    group: int | None = 128,
    block: Block = (128, 128),
    promote: int | None = 128,
    scale_order: Literal["separate", "folded"] = "separate",
    a_format: str = "e4m3fn",
    w_format: str = "e4m3fn",
) -> Array:
    """Return the product of scaled FP8 activations and weights, [..., N] in float32.

    acc = acc + (dot s_a) s_w in float32, over the stretches of K in which neither scale changes, in order;
    "folded": acc + dot (s_a s_w). dot is the sum of one stretch, 128 products for the usual scales, in float32.

    a_codes: uint8 [..., K], a_scale: float32 [..., ceil(K/group)]; w_codes: uint8 [N, K], w_scale: float32
    [ceil(N/block[0]), ceil(K/block[1])]; None in group or block means one scale for all.
    accumulate: "exact" sums a stretch in float64 and rounds once. For e4m3fn, e4m3fnuz and e2m1 operands that sum is
    exact up to 2^17 products, so the result has the same bits for any batch, tile, thread count, BLAS and device;
    sums of e5m2 products can be inexact in the last float64 bit. "float32" multiplies by the scales first and sums all
    of K with BLAS: fast, in no specified order. "hopper", another name in `tensor_core.CORES` or a TensorCore adds
    in that unit's register, from 0.
    promote: for tensor cores, products between two promotions of the register to float32, a multiple of the core's
    terms. Where it joins several stretches (None: all of them), their scales must be equal: use per-token and
    per-tensor scales.
    Special values: NaN and infinity as in IEEE arithmetic.
    Raises InputError for what are no arrays, and for dtypes, shapes, grids of scales or options that do not fit.
    Source: DeepSeek-V3 inference/kernel.py, fp8_gemm_kernel, and report section 3.3.2; DeepGEMM for "folded".
    """
    xp = array_module(a_codes, a_scale, w_codes, w_scale)
    for name in (a_format, w_format):
        element_format(name, "fp8_matmul")
    group, promote = _count_or_none("group", group), _count_or_none("promote", promote)
    sizes = rows, columns = _check_shapes(a_codes, a_scale, w_codes, w_scale, group, block)
    (count, k), core = w_codes.shape, _core_of(accumulate)
    scales = _Scales.of(a_scale, row_scales(w_scale, rows, count), group or k, columns, scale_order)
    stretches = _stretches(k, scales) if core is None else _promotions(k, scales, core, promote)
    check_codes("fp8_matmul: w_codes", _in_hand(w_codes), get_format(w_format))
    if accumulate == "float32":
        x = dequantize(a_codes, a_scale, (1, group), a_format).reshape(-1, k)
        y = tiled_product(x, count, lambda *tile: dequantize_tile(w_codes, w_scale, sizes, w_format, *tile), "float32")
        return y.reshape(*a_codes.shape[:-1], count)
    values = decode(a_codes.reshape(-1, k), a_format)
    out = xp.empty((values.shape[0], count), np.float32)
    step = TOKENS if core is None else CORE_TOKENS
    if xp is not np:
        step = max(step, values.shape[0])
    for first in range(0, values.shape[0], step):
        tokens = slice(first, first + step)
        dot: _Dot = _ExactDot(values[tokens]) if core is None else _CoreDot(values[tokens], core, (a_format, w_format))

        def tile(part: slice, tokens: slice = tokens, dot: _Dot = dot) -> None:
            with np.errstate(all="ignore"):
                sums = _accumulate(dot, w_codes[part], get_format(w_format), scales.tile(tokens, part), stretches)
            out[tokens, part] = sums.T

        spread_rows(tile, count, ROWS, BLAS_ROWS, xp)
    return out.reshape(*a_codes.shape[:-1], count)


def dot(x: Array, w: Array, accumulate: str = "float32") -> Array:
    """Return x w^T, [..., N], for numbers that are not FP8; nothing is rounded after the sum.

    x: [..., K], w: [N, K]. "float32" is BLAS in float32, its order unspecified; all other kinds, "exact" and the
    tensor cores, sum in float64 and return float64, which the caller rounds once.
    Special values: as in IEEE arithmetic; what exceeds the precision of the sum is infinite.
    Raises InputError for what are no arrays of real numbers, when K differs, and for a kind that does not exist.
    """
    _core_of(accumulate, "dot")
    for name, operand in (("x", x), ("w", w)):
        check_array(operand, f"dot: {name}", "biuf")
    if x.ndim == 0 or w.ndim != 2 or x.shape[-1] != w.shape[1]:
        raise InputError(f"dot: expected x [..., K] and w [N, K], found {list(x.shape)} and {list(w.shape)}")
    xp = array_module(x, w)
    dtype = np.float32 if accumulate == "float32" else np.float64
    out = xp.empty((math.prod(x.shape[:-1]), w.shape[0]), dtype)
    step = max(w.shape[0], 1) if w.dtype == dtype else 2 * ROWS  # a tile at a time where it must be widened
    with np.errstate(all="ignore"):
        flat = x.reshape(out.shape[0], x.shape[-1]).astype(dtype, copy=False)
        for start in range(0, w.shape[0], step):
            part = slice(start, start + step)
            out[:, part] = xp.matmul(w[part].astype(dtype, copy=False), flat.T).T  # faster than x w^T for few tokens
    return out.reshape(*x.shape[:-1], w.shape[0])


@dataclass(frozen=True)
class _Scales:
    """Scales of activations [groups, tokens] and of weights [blocks, rows], and the steps of K they change at."""

    tokens: Array
    rows: Array
    group: int
    columns: int
    folded: bool

    @classmethod
    def of(cls, a_scale: Array, w_scale: Array, group: int, columns: int, scale_order: str) -> _Scales:
        if not chosen(scale_order, "separate", "folded"):
            raise InputError(f"fp8_matmul: expected scale_order 'separate' or 'folded', found {brief(scale_order)}")
        xp = array_module(a_scale, w_scale)
        tokens = xp.ascontiguousarray(a_scale.reshape(-1, a_scale.shape[-1]).T)
        return cls(tokens, xp.ascontiguousarray(w_scale.T), group, columns, scale_order == "folded")

    def tile(self, tokens: slice, rows: slice) -> _Scales:
        return _Scales(self.tokens[:, tokens], self.rows[:, rows], self.group, self.columns, self.folded)

    def apply(self, sums: Array, k: int) -> None:
        """Multiply sums [rows, tokens] of the stretch that starts at `k`, in place."""
        of_tokens, of_rows = self.tokens[k // self.group][None], self.rows[k // self.columns][:, None]
        if self.folded:
            sums *= of_tokens * of_rows
        else:
            sums *= of_tokens
            sums *= of_rows

    def equal_around(self, k: int) -> bool:
        """Return whether no scale changes at `k`; NaN is no change from NaN."""
        xp = array_module(self.tokens)
        return all(
            bool(((before == after) | (xp.isnan(before) & xp.isnan(after))).all())
            for before, after in (
                (scale[(k - 1) // step], scale[k // step])
                for scale, step in ((self.tokens, self.group), (self.rows, self.columns))
            )
        )


def _accumulate(dot: _Dot, w_codes: Array, fmt: Format, scales: _Scales, stretches: list[slice]) -> Array:
    """Return sums [rows, tokens] for the weight rows given: dot, scale, add, stretch by stretch."""
    xp = array_module(w_codes)
    shape = (scales.rows.shape[1], scales.tokens.shape[1])
    total, sums = xp.zeros(shape, np.float32), xp.empty(shape, np.float32)
    for stretch in stretches:
        w = xp.empty((shape[0], stretch.stop - stretch.start), np.float32)
        decode_scaled(w, w_codes[:, stretch], fmt)
        dot(w, stretch, sums)
        scales.apply(sums, stretch.start)
        total += sums
    return total


class _Dot(Protocol):
    def __call__(self, w: Array, stretch: slice, out: Array) -> None:
        """Write the dots of weights [rows, k] and the tokens over a stretch of K into [rows, tokens] float32."""


class _ExactDot:
    """Dots by BLAS in float64, rounded once."""

    def __init__(self, values: Array) -> None:
        xp = array_module(values)
        self.values = xp.ascontiguousarray(values.T.astype(np.float64))  # [K, tokens]

    def __call__(self, w: Array, stretch: slice, out: Array) -> None:
        xp = array_module(w)
        values = self.values[stretch]
        w = w.astype(np.float64)
        size = BLAS_ROWS if xp is np else w.shape[0]
        whole = w.shape[0] // size * size
        if whole:
            out[:whole] = xp.matmul(w[:whole].reshape(-1, size, w.shape[1]), values).reshape(whole, -1)
        out[whole:] = xp.matmul(w[whole:], values)


class _CoreDot:
    """Dots by a tensor core."""

    def __init__(self, values: Array, core: TensorCore, formats: tuple[str, str]) -> None:
        xp = array_module(values)
        self.core, self.w_format, self.narrow = core, formats[1], fits_float32(core, formats)
        self.values = Operand.of(xp.ascontiguousarray(values.T)[:, :, None], formats[0], self.narrow)

    def __call__(self, w: Array, stretch: slice, out: Array) -> None:
        xp = array_module(w)
        weights = Operand.of(xp.ascontiguousarray(w.T)[:, None, :], self.w_format, self.narrow)  # [k, 1, rows]
        register = xp.zeros(out.shape[::-1], np.float32)  # rows last: they are the longer inner loop
        out[...] = register_dot(self.values[stretch], weights, register, self.core).T


def _core_of(accumulate: str | TensorCore, operation: str = "fp8_matmul") -> TensorCore | None:
    if isinstance(accumulate, TensorCore):
        return accumulate
    if chosen(accumulate, "exact", "float32"):
        return None
    if chosen(accumulate, *CORES):
        return CORES[accumulate]
    raise InputError(
        f"{operation}: expected accumulate 'exact', 'float32' or one of {', '.join(CORES)}; found {brief(accumulate)}"
    )


def _count_or_none(name: str, number: int | None) -> int | None:
    if number is not None and not is_count(number):
        raise InputError(f"fp8_matmul: expected {name} to be a positive integer or None, found {brief(number)}")
    return None if number is None else int(number)


def _check_shapes(
    a_codes: Array, a_scale: Array, w_codes: Array, w_scale: Array, group: int | None, block: Block
) -> tuple[int, int]:
    """Return the rows and columns of a block of weights, once all shapes fit."""
    for name, codes in (("a_codes", a_codes), ("w_codes", w_codes)):
        check_array(_in_hand(codes), f"fp8_matmul: {name}")
    for name, scale in (("a_scale", a_scale), ("w_scale", w_scale)):
        check_scale(f"fp8_matmul: {name}", scale)
    if a_codes.ndim == 0 or w_codes.ndim != 2 or a_codes.shape[-1] != w_codes.shape[1] or 0 in w_codes.shape:
        raise InputError(
            "fp8_matmul: expected a_codes [..., K] and w_codes [N, K],"
            f" found {list(a_codes.shape)} and {list(w_codes.shape)}"
        )
    rows, columns = block_sizes(block, w_codes.shape, "fp8_matmul")
    check_grid("fp8_matmul", "a_scale", a_scale, a_codes.shape, 1, group or a_codes.shape[-1])
    check_grid("fp8_matmul", "w_scale", w_scale, w_codes.shape, rows, columns)
    return rows, columns


def _in_hand(codes: Array) -> Array:
    """Return what can be checked of codes without reading a file: for those in one, the dtype."""
    return codes[:0] if isinstance(codes, FileArray) else codes


def _slices(cuts: set[int]) -> list[slice]:
    edges = sorted(cuts)
    return [slice(start, stop) for start, stop in pairwise(edges)]


def _stretches(k: int, scales: _Scales) -> list[slice]:
    """Return the stretches of K in which no scale changes."""
    return _slices({*range(0, k, scales.group), *range(0, k, scales.columns), k})


def _promotions(k: int, scales: _Scales, core: TensorCore, promote: int | None) -> list[slice]:
    """Return the stretches of K between two promotions; scales that change inside one are refused."""
    check_promote("fp8_matmul", core, promote)
    step = promote or k
    changes = {stretch.start for stretch in _stretches(k, scales)}
    cuts = {*range(0, k, step), k}
    if step < min(scales.group, scales.columns, k):
        cuts |= changes
    for change in sorted(changes - cuts):
        if not scales.equal_around(change):
            raise InputError(
                f"fp8_matmul: promote={promote} adds products with different scales in one register:"
                f" expected equal scales on both sides of k = {change}, found others; quantize with blocks of"
                " (1, None) and (N, None), or promote at each change"
            )
    return _slices(cuts)
