"""Solutions of tutorial 7."""

import math

import numpy as np


def decode_byte(byte):
    s, E, m = byte >> 7, byte >> 3 & 0b1111, byte & 0b111
    if E == 15 and m == 7:
        return float("nan")
    magnitude = m * 2.0**-9 if E == 0 else (1 + m / 8) * 2.0 ** (E - 7)
    return -magnitude if s else magnitude


def round_e4m3(x):
    x = np.clip(x, -448, 448)
    exponent = np.maximum(np.frexp(x)[1] - 1, -6)
    gap = 2.0 ** (exponent - 3)
    return np.rint(x / gap) * gap


def encode_number(x):
    magnitude = min(abs(x), 448.0)
    exponent = max(math.frexp(magnitude)[1] - 1, -6) if magnitude else -6
    code = (exponent + 6) * 8 + round(magnitude / 2.0 ** (exponent - 3))
    return code | 0x80 if x < 0 else code


def gap_above(x):
    exponent = max(math.frexp(x)[1] - 1, -6)
    return 2.0 ** (exponent - 3)
