"""Random numbers that are the same on every machine and with every numpy: functions of a name and a seed.

But for `log_normal`, whose exponential is the machine's: its last float64 bit may differ, which shows in a stored
bfloat16 number only at a tie.
"""

from __future__ import annotations

import math
import zlib

import numpy as np


def noise(name: str, seed: int, part: int, n: int) -> np.ndarray:
    """Return n float32 numbers of mean 0 and variance 1 that depend on (name, seed, part): sums of four uniform ones.

    Nearly normal, and never beyond 3.47. Only the raw stream of a bit generator is promised to stay the same in
    all numpy versions; the sums are of 16-bit integers, so that no library function rounds.
    """
    bits = np.random.PCG64([seed, zlib.crc32(name.encode()), part]).random_raw(n)
    words = bits.view(np.uint16).reshape(n, 4)
    total = words[:, 0].astype(np.int32)
    for k in (1, 2, 3):
        total += words[:, k]
    total -= 4 * 65535 // 2  # the mean
    z = total.astype(np.float32)
    z *= np.float32(1 / math.sqrt(4 * (65536**2 - 1) / 12))  # the variance of one of them is (65536^2 - 1) / 12
    return z


def log_normal(name: str, seed: int, n: int, sigma: float) -> np.ndarray:
    """Return n numbers e^(sigma z - sigma^2), whose mean square is 1."""
    return np.exp(sigma * noise(name, seed, 0, n).astype(np.float64) - sigma**2)
