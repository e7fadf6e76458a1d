"""How fast the numerics are, each beside what one would use instead: `python -m benchmarks.numerics [--quick]`.

Both sides of a pair are timed alternately in one run, and the medians are compared: times change with the machine and
its load, ratios hardly do. Set OPENBLAS_NUM_THREADS=1 for one thread each.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import ml_dtypes
import numpy as np

from blocklab.numerics import decode, encode, fp8_matmul, quantize, round_to

Pair = tuple[str, Callable[[], object], str, Callable[[], object], float]
"""What, how, beside what, how, and the work of one call in units of 10^9."""


def conversions(count: int = 32 << 20) -> list[Pair]:
    """Return the pairs of rounding, encoding and decoding `count` values, against ml_dtypes."""
    x = (np.random.default_rng(0).standard_normal(count, np.float32)) * np.float32(100)
    codes = encode(x)
    fp8, low, high = ml_dtypes.float8_e4m3fn, np.float32(-448), np.float32(448)
    size = count / 1e9
    return [
        (
            "round_to e4m3fn",
            lambda: round_to(x, "e4m3fn"),
            "clip, astype twice",
            lambda: np.clip(x, low, high).astype(fp8).astype(np.float32),
            size,
        ),
        (
            "round_to bfloat16",
            lambda: round_to(x, "bfloat16"),
            "astype twice",
            lambda: x.astype(ml_dtypes.bfloat16).astype(np.float32),
            size,
        ),
        ("encode e4m3fn", lambda: encode(x), "clip, astype", lambda: np.clip(x, low, high).astype(fp8), size),
        ("decode e4m3fn", lambda: decode(codes), "astype", lambda: codes.view(fp8).astype(np.float32), size),
        ("quantize 1 x 128", lambda: quantize(x.reshape(-1, 4096)), "a copy", lambda: x.copy(), size),
    ]


def products(tokens: int = 128, rows: int = 18432, k: int = 7168, core_rows: int = 1024) -> list[Pair]:
    """Return the pairs of FP8 products against the float32 product of the same shape; tensor core on fewer rows."""
    rng = np.random.default_rng(0)
    a, w = rng.standard_normal((tokens, k), np.float32), rng.standard_normal((rows, k), np.float32)
    few = w[:core_rows].copy()
    qa, qw = quantize(a), quantize(w, block=(128, 128))
    qfew = quantize(few, block=(128, 128))
    shape, work = f"{tokens} x {k} x ", tokens * k / 1e9
    return [
        (f"exact {shape}{rows}", lambda: fp8_matmul(*qa, *qw), "float32", lambda: a @ w.T, rows * work),
        (f"float32 {shape}{rows}", lambda: fp8_matmul(*qa, *qw, "float32"), "float32", lambda: a @ w.T, rows * work),
        (
            f"hopper {shape}{core_rows}",
            lambda: fp8_matmul(*qa, *qfew, "hopper"),
            "float32",
            lambda: a @ few.T,
            core_rows * work,
        ),
    ]


def measure(pair: Pair, repeats: int = 5) -> tuple[float, float]:
    """Return the median seconds of both sides, timed alternately after one call each."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(repeats + 1):
        for call, times in zip((pair[1], pair[3]), seconds, strict=True):
            start = time.perf_counter()
            call()
            if turn:
                times.append(time.perf_counter() - start)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def main(quick: bool = False) -> None:
    """Print a table."""
    pairs = conversions(1 << 20) + products(16, 1024, 1024, 256) if quick else conversions() + products()
    print(f"{'':<28}{'seconds':>9}{'10^9/s':>8}   {'beside':<20}{'seconds':>9}  time, theirs = 1")
    for pair in pairs:
        ours, theirs = measure(pair)
        print(f"{pair[0]:<28}{ours:>9.4f}{pair[4] / ours:>8.2f}   {pair[2]:<20}{theirs:>9.4f}{ours / theirs:>10.3f}")


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
