"""Scaling: FP8 codes and the float32 scales that multiply them, one scale for each block of a matrix."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Real
from typing import Literal

import numpy as np

from blocklab.errors import InputError, brief
from blocklab.file_array import in_memory
from blocklab.numerics.codes import check_codes, decode_into, decode_scaled, encode_into
from blocklab.numerics.formats import Format, get_format
from blocklab.numerics.options import chosen, is_count
from blocklab.numerics.rounding import as_floats, check_array, round_into, split_into
from blocklab.xp import Array, array_module

Block = tuple[int | None, int | None]
"""Rows and columns that share a scale; None means all of them."""

ROW_CHUNK, BAND_CHUNK = 1 << 16, 1 << 19
"""Elements of whole rows that are scaled together, to stay in the L2 cache, and of bands of rows: longer steps, so
that two threads seldom wait for each other."""


def quantize(
    x: Array,
    format: str = "e4m3fn",
    block: Block = (1, 128),
    amax_floor: float = 1e-4,
    scale: Literal["float32", "ue8m0"] = "float32",
    quotient: Literal["divide", "reciprocal"] = "divide",
) -> tuple[Array, Array]:
    """Return the codes of `x` and the scales that multiply them back.

    s = float32(max(amax, amax_floor) / max) for each block, then code = encode(x / s), or encode(x * (1 / s)).

    x: [..., N, K], float32 or float64. codes: uint8 [..., N, K]. scales: float32 [..., ceil(N/rows), ceil(K/columns)]
    for `block` = (rows, columns), None for all: (1, 128) activations, (128, 128) weights, (1, None) per token,
    (None, None) per tensor. The last block may be short. A vector [K] is one row and has scales [ceil(K/columns)].
    Precision: amax, quotients and reciprocal are in x's dtype, so float32 x gives the float32 kernel of
    DeepSeek and Triton; float64 x is rounded once, at its code. Either way the scale is float32 before it divides.
    scale="ue8m0" rounds it up to a power of two by its exponent bits.
    Special values: a block of zeros has codes 0. A NaN makes the scale and all codes of its block NaN. An infinity
    makes the scale infinite, its own code NaN and the other codes 0. e2m1, which has no NaN, refuses both.
    Raises InputError for a format that is not FP8 or FP4, for blocks and options that do not exist, and for a floor
    whose scale would not be a normal float32.
    Source: DeepSeek-V3 report section 3.3, its inference/kernel.py; DeepGEMM for "reciprocal" and "ue8m0".
    """
    x = as_floats(x, "quantize")
    fmt = element_format(format, "quantize")
    rows, columns = block_sizes(block, x.shape, "quantize")
    floor = _checked_floor(amax_floor, fmt)
    if not chosen(scale, "float32", "ue8m0") or not chosen(quotient, "divide", "reciprocal"):
        raise InputError(
            "quantize: expected scale 'float32' or 'ue8m0' and quotient 'divide' or 'reciprocal',"
            f" found {brief(scale)} and {brief(quotient)}"
        )
    with np.errstate(all="ignore"):
        amax = block_amax(x, rows, columns)
        scales = array_module(x).maximum(amax, x.dtype.type(floor)) / x.dtype.type(fmt.max)
        scales = scales.astype(np.float32)
        if scale == "ue8m0":
            scales = round_up_to_power(scales)
        codes = _encode_scaled(x, scales, rows, columns, fmt, quotient)
    return codes, scales


def dequantize(
    codes: Array,
    scale: Array,
    block: Block = (128, 128),
    format: str = "e4m3fn",
    first_row: int = 0,
    out: Array = None,
) -> Array:
    """Return decode(codes) * scale in float32.

    codes: [..., N, K] uint8; scale: [..., ceil(N/rows), ceil(K/columns)] float32 for `block` = (rows, columns).
    first_row: `codes` are the rows from this one on of a matrix whose whole grid of scales is given, so a tile need
    not start or end with a block. out: a contiguous float32 array to write into.
    Special values: NaN codes and NaN scales give NaN, an infinite scale gives infinity, and NaN for code 0.
    Raises InputError when the grid of scales does not fit the codes, for arrays of other dtypes, and for a first_row
    that is no integer from 0 on.
    Source: DeepSeek-V3 inference/kernel.py, weight_dequant.
    """
    fmt, codes = element_format(format, "dequantize"), in_memory(codes)
    check_codes("dequantize", codes, fmt)
    rows, columns = block_sizes(block, codes.shape, "dequantize")
    if not is_count(first_row, 0):
        raise InputError(f"dequantize: expected first_row to be a non-negative integer, found {brief(first_row)}")
    first_row = int(first_row)
    check_scale("dequantize: scale", scale)
    check_grid("dequantize", "scale", scale, codes.shape, rows, columns, first_row)
    xp = array_module(codes, scale)
    if out is None:
        out = xp.empty(codes.shape, np.float32)
    else:
        _check_out(out, codes.shape)
    with np.errstate(all="ignore"):
        if codes.ndim == 2 and rows > 1:
            _dequantize_bands(out, codes, scale, rows, columns, fmt, first_row)
            return out
        flat, target = codes.reshape(-1, codes.shape[-1]), out.reshape(-1, codes.shape[-1])
        count = codes.shape[-2] if codes.ndim > 1 else 1
        per_row = row_scales(scale, rows, count, first_row).reshape(flat.shape[0], scale.shape[-1])
        for part in row_chunks(flat):
            decode_into(target[part], flat[part], fmt)
            for values, factor in _column_blocks(target[part], per_row[part], columns):
                values *= factor
    return out


def _checked_floor(amax_floor: float, fmt: Format) -> float:
    """Return the floor as a float; refuse what is none, or would give a scale that is no normal float32."""
    try:
        floor = float(amax_floor) if isinstance(amax_floor, Real) else np.nan
    except OverflowError:
        floor = np.inf
    if not 2.0**-126 <= floor / fmt.max <= 2.0**127:
        least = fmt.max * 2.0**-126
        raise InputError(f"quantize: expected a finite amax_floor of at least {least:.3g}, found {brief(amax_floor)}")
    return floor


def _check_out(out: Array, shape: tuple[int, ...]) -> None:
    """Refuse an array that `dequantize` cannot write its values of this shape into."""
    check_array(out, "dequantize: out")
    fits = out.shape == shape and out.dtype == np.float32
    if not fits or not out.flags.c_contiguous or not getattr(out.flags, "writeable", True):
        found = f"{out.dtype}{list(out.shape)}" + " that is read-only or not contiguous" * fits
        raise InputError(f"dequantize: expected a contiguous, writable float32 out{list(shape)}, found {found}")


def dequantize_tile(
    codes: Array, scale: Array, block: Block, format: str, rows: slice, columns: slice, storage: str = "float32"
) -> Array:
    """Return rows and columns of `dequantize(codes, scale, block, format)`, [N, K], without computing the others.

    Neither need start or end with a block. storage: "bfloat16" rounds the values to it.
    """
    height, width = int(block[0] or codes.shape[0]), int(block[1] or codes.shape[1])
    top, bottom, _ = rows.indices(codes.shape[0])
    left, right, _ = columns.indices(codes.shape[1])
    start = left // width * width
    grid = scale[top // height : -(-bottom // height), start // width : -(-right // width)]
    values = array_module(codes).empty((max(bottom - top, 0), max(right - start, 0)), np.float32)
    with np.errstate(all="ignore"):
        codes = codes[top:bottom, start:right]
        _dequantize_bands(values, codes, grid, height, width, get_format(format), top % height)
        if storage == "bfloat16":
            _round_scaled(values, grid, get_format(format))
    return values if start == left else array_module(values).ascontiguousarray(values[:, left - start :])


def _round_scaled(values: Array, scale: Array, fmt: Format) -> None:
    """Round products of FP8 numbers and scales to bfloat16, in place: quickly where the scales are no extremes."""
    xp, bfloat16 = array_module(values), get_format("bfloat16")
    magnitude = xp.abs(scale)
    if values.size and magnitude.min() > 2.0**-100 and magnitude.max() < 2.0**90 and not fmt.has_infinity:
        split_into(values, values, bfloat16)
    else:
        round_into(values, values, bfloat16, "nan")


def block_amax(x: Array, rows: int, columns: int) -> Array:
    """Return the largest magnitude of each block, NaN where a block holds one: [..., ceil(N/rows), ceil(K/columns)]."""
    xp = array_module(x)
    flat = x.reshape(-1, x.shape[-1])
    amax = xp.empty((flat.shape[0], -(-flat.shape[1] // columns)), x.dtype)
    for part in row_chunks(flat):
        for values, target in _column_blocks(xp.abs(flat[part]), amax[part], columns):
            target[..., 0] = values.max(-1)
    amax = amax.reshape(*x.shape[:-1], amax.shape[1])
    if rows == 1 or x.ndim == 1 or x.shape[-2] == 0:
        return amax
    whole = x.shape[-2] // rows * rows
    lead, width = x.shape[:-2], amax.shape[-1]
    parts = [amax[..., :whole, :].reshape(*lead, whole // rows, rows, width).max(-2)] if whole else []
    if whole < x.shape[-2]:
        parts.append(amax[..., whole:, :].max(-2, keepdims=True))
    return xp.concatenate(parts, axis=-2)


def round_up_to_power(scale: Array) -> Array:
    """Return 2^ceil(log2(scale)) from the exponent bits: one more where the fraction is not zero."""
    xp = array_module(scale)
    bits = (scale.view(np.uint32) + np.uint32(0x7FFFFF)) & np.uint32(0x7F800000)
    return xp.where(xp.isfinite(scale), bits.view(np.float32), scale)


def row_scales(scale: Array, rows: int, count: int, first_row: int = 0) -> Array:
    """Return the scales of each of `count` rows from `first_row` on: [..., count, ceil(K/columns)]."""
    if rows == 1 and first_row == 0:
        return scale
    if scale.ndim == 1:
        return scale[None]
    index = array_module(scale).arange(first_row, first_row + count) // rows
    return scale[..., index, :]


def row_chunks(flat: Array) -> Iterator[slice]:
    """Yield slices of rows with some 2^16 elements together; all rows at once on a GPU."""
    step = max(ROW_CHUNK // max(flat.shape[1], 1), 1) if array_module(flat) is np else max(flat.shape[0], 1)
    for start in range(0, flat.shape[0], step):
        yield slice(start, start + step)


def _dequantize_bands(
    out: Array, codes: Array, scale: Array, rows: int, columns: int, fmt: Format, first_row: int
) -> None:
    """Write decode(codes) * scale into `out` [N, K]: whole bands of rows that share scales together, cut ones alone."""
    count, k = codes.shape
    step = max(BAND_CHUNK // max(k, 1), 1) if array_module(codes) is np else max(count, 1)
    start = 0
    while start < count:
        band, into = divmod(first_row + start, rows)
        height = min(rows - into, step, count - start)
        bands = min(step, count - start) // rows if height == rows else 1
        part, shape = slice(start, start + bands * height), (bands, height, k)
        factors = array_module(scale).repeat(scale[band : band + bands, : -(-k // columns)], columns, axis=1)[:, :k]
        decode_scaled(out[part].reshape(shape), codes[part].reshape(shape), fmt, factors[:, None])
        start = part.stop


def check_scale(label: str, scale: Array) -> None:
    """Refuse scales that are no float32 array."""
    check_array(scale, label)
    if scale.dtype != np.float32:
        raise InputError(f"{label}: expected float32, found {scale.dtype}{list(scale.shape)}")


def check_grid(
    operation: str, name: str, scale: Array, shape: tuple[int, ...], rows: int, columns: int, first_row: int = 0
) -> None:
    """Refuse a grid of scales that is not one scale for each rows x columns block of a matrix of `shape`.

    With `first_row`, the matrix may go on below the codes, so the grid may have more rows than they need.
    """
    expected = (*shape[:-1], -(-shape[-1] // columns))
    if len(shape) > 1:
        expected = (*shape[:-2], -(-(first_row + shape[-2]) // rows), expected[-1])
    found = tuple(scale.shape)
    longer = (
        len(found) == len(shape) > 1
        and found[:-2] + found[-1:] == expected[:-2] + expected[-1:]
        and found[-2] >= expected[-2]
    )
    if found != expected and not (first_row and longer):
        raise InputError(
            f"{operation}: {name} of codes {list(shape)} in blocks of {rows} x {columns}:"
            f" expected shape {list(expected)}, found {list(found)}"
        )


def _encode_scaled(x: Array, scales: Array, rows: int, columns: int, fmt: Format, quotient: str) -> Array:
    xp = array_module(x)
    codes = xp.empty(x.shape, np.uint8)
    flat, target = x.reshape(-1, x.shape[-1]), codes.reshape(-1, x.shape[-1])
    factor = x.dtype.type(1) / scales if quotient == "reciprocal" else scales.astype(x.dtype, copy=False)
    apply = xp.multiply if quotient == "reciprocal" else xp.divide
    count = x.shape[-2] if x.ndim > 1 else 1
    per_row = row_scales(factor, rows, count).reshape(flat.shape[0], scales.shape[-1])
    for part in row_chunks(flat):
        scaled = xp.empty(flat[part].shape, x.dtype)
        blocks = _column_blocks(flat[part], per_row[part], columns)
        for (values, by), (room, _) in zip(blocks, _column_blocks(scaled, per_row[part], columns), strict=True):
            apply(values, by, out=room)
        encode_into(target[part], scaled, fmt, "saturate")
    return codes


def _column_blocks(matrix: Array, scales: Array, columns: int) -> Iterator[tuple[Array, Array]]:
    """Yield [rows, blocks, columns] views of a matrix, each beside its [rows, blocks, 1] scales: whole and short."""
    whole = matrix.shape[1] // columns
    split = whole * columns
    if whole:
        yield matrix[:, :split].reshape(matrix.shape[0], whole, columns), scales[:, :whole, None]
    if split < matrix.shape[1]:
        yield matrix[:, None, split:], scales[:, whole:, None]


def block_sizes(block: Block, shape: tuple[int, ...], operation: str) -> tuple[int, int]:
    """Return rows and columns of a block of an array of this shape; refuse what is none, and arrays without columns."""
    if len(shape) == 0 or shape[-1] == 0:
        raise InputError(f"{operation}: expected an array [..., N, K] with K > 0, found {list(shape)}")
    limits = (max(shape[-2], 1) if len(shape) > 1 else 1, shape[-1])
    pair = block if isinstance(block, (tuple, list)) and len(block) == 2 else (0, 0)
    sizes = tuple(limit if size is None else size for size, limit in zip(pair, limits, strict=True))
    if not all(map(is_count, sizes)):
        raise InputError(f"{operation}: expected a block of two positive numbers (None for all), found {brief(block)}")
    return int(sizes[0]), int(sizes[1])


def element_format(name: str, operation: str) -> Format:
    """Return a format whose elements have scales beside them; refuse others."""
    fmt = get_format(name)
    if fmt.bits > 8 or not fmt.signed:
        raise InputError(f"{operation}: expected an FP8 or FP4 format, found {fmt.name}")
    return fmt
