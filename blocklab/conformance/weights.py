"""Conformance parts about block scales of weights: quantised, and dequantised with short last blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from blocklab.conformance.activations import F32, FLOOR, MAX, blocks, e4m3fn, midpoints, spread
from blocklab.conformance.part import Part, deviation, exact, noise, noise_codes, rounded
from blocklab.numerics.formats import decode_plain


def weight_parts() -> Iterator[Part]:
    """Yield the parts about weights."""
    yield from _weights()
    yield _dequantize()


def _weights() -> Iterator[Part]:
    x = noise("conformance weights", 192, 160)
    x[:128, :128] *= F32(2.0**-5)
    x[128:, :128] *= F32(2.0**3)
    x[128:, 128:] = 0
    x[1, :128], x[0, 0] = F32(15 * 2.0**-10) * midpoints()[:128], F32(448 * 15 * 2.0**-10)
    inputs = {"quantize.blocks.w": x}
    amax = blocks(x, 128, 128)
    scale = np.maximum(amax, FLOOR) / MAX
    rule = "w [192, 160] in blocks of 128 x 128, the last ones short; s = max(amax, 1e-4) / 448 in float32"
    nothing = deviation("no-floor", "amax has no floor: a block of zeros has scale 0", amax / MAX)
    one = deviation("zeros-to-one", "a block of zeros has scale 1", np.where(amax > 0, scale, F32(1)))
    inverse = deviation(
        "inverse-scale", "the scale is stored as 448 / amax, which divides", MAX / np.maximum(amax, FLOOR)
    )
    yield Part("quantize.blocks.scale", rule, inputs, exact(scale), deviations=[nothing, one, inverse])
    with np.errstate(all="ignore"):
        reciprocal = e4m3fn(x * spread(F32(1) / scale, 128, 128, x.shape))
        zero_by_zero = e4m3fn(x / spread(amax / MAX, 128, 128, x.shape))
    yield Part(
        "quantize.blocks.codes",
        f"{rule}; the e4m3fn code of w / s",
        inputs,
        exact(e4m3fn(x / spread(scale, 128, 128, x.shape))),
        output="uint8 (codes)",
        deviations=[
            deviation("reciprocal", "multiplied by the rounded 1 / s instead of divided by s", reciprocal),
            deviation("no-floor", "amax has no floor: a block of zeros is 0 / 0", zero_by_zero),
        ],
        codes="e4m3fn",
        elementwise="quantize.blocks.w",
    )


def _dequantize() -> Part:
    shape = (576, 576)
    codes = noise_codes("conformance dequantize", *shape)
    turn = np.arange(5)[:, None] - 2 * np.arange(5)
    scale = np.ldexp(1 + np.abs(noise("conformance scales", 5, 5)) / 4, turn).astype(np.float32)
    table = np.array([decode_plain(code, "e4m3fn") for code in range(256)], np.float32)
    twin = np.array([decode_plain(code, "e4m3fnuz") for code in range(256)], np.float32)
    values, factor = table[codes], spread(scale, 128, 128, shape)
    lost, missing = scale[[0, 1, 2, 3, 3]], np.concatenate([scale[:4], np.ones((1, 5), np.float32)])
    inferred = scale[np.minimum(np.arange(576) // (576 // 5), 4)][:, np.arange(576) // 128]
    known = [
        deviation("scale-divided", "the scale divides instead of multiplying", values / factor),
        deviation("scale-missing", "the scale is left out", values),
        deviation("scale-transposed", "the grid of scales is transposed", values * spread(scale.T, 128, 128, shape)),
        deviation(
            "last-row-repeated", "rows 512-575 use the fourth row of scales", values * spread(lost, 128, 128, shape)
        ),
        deviation("last-row-lost", "rows 512-575 have no scale", values * spread(missing, 128, 128, shape)),
        deviation("block-inferred", "the block's height is inferred as 576 // 5 = 115", values * inferred),
        deviation("e4m3fnuz-table", "codes are read as e4m3fnuz", twin[codes] * factor),
        deviation("bfloat16", "the result is rounded to bfloat16", rounded(values * factor, "bfloat16")),
    ]
    return Part(
        "dequantize.blocks",
        "e4m3fn codes [576, 576] times the scale of their block of 128 x 128, in float32; rows and columns 512-575"
        " use the fifth row and column of scales",
        {"dequantize.blocks.codes": codes, "dequantize.blocks.scale": scale},
        exact(values * factor),
        deviations=known,
        elementwise="dequantize.blocks.codes",
    )
