"""Exercises of tutorial 7: decode a byte, round, encode, the gap."""

import math

import numpy as np
from checks import Exercise, Turn

NAN = float("nan")


def decoded(byte, *, bias=7, hidden_always=False, low=1, bits=3, nan=True, sign=True):
    s, field, m = byte >> 7, (byte & 0x7F) >> bits, byte & ((1 << bits) - 1)
    if nan and byte & 0x7F == 0x7F:
        return NAN
    if field == 0 and not hidden_always:
        value = m / 2**bits * 2.0 ** (low - bias)
    else:
        value = (1 + m / 2**bits) * 2.0 ** (field - bias)
    return -value if s and sign else value


def rounded(x, *, top=448.0, least=-6, bits=3, integer=np.rint, flush=False):
    x = np.asarray(x, np.float64)
    y = np.clip(x, -top, top) if top else x
    exponent = np.where(np.isfinite(y), np.frexp(np.where(np.isfinite(y), y, 1))[1] - 1, 0)
    gap = 2.0 ** (np.maximum(exponent, least) - bits)
    y = integer(y / gap) * gap
    return np.where(np.abs(y) < 2.0**-6, 0.0, y) if flush else y


def away(x):
    """Ties away from zero."""
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def up(x):
    return np.floor(x + 0.5)


def to_nan(x):
    y = rounded(x, top=0)
    return np.where(np.abs(y) > 448, NAN, y)


def coded(x, *, carry=True, least=-6, saturate=True, sign=True, integer=np.rint, twos=False):
    magnitude = min(abs(x), 448.0) if saturate else abs(x)
    if math.isinf(magnitude):
        return 0x7F | (0x80 if x < 0 else 0)
    exponent = max(math.frexp(magnitude)[1] - 1, least) if magnitude else least
    gaps = int(integer(magnitude / 2.0 ** (exponent - 3)))
    if carry:
        code = (exponent + 6) * 8 + gaps
    else:
        code = (exponent + 7) * 8 + (gaps - 8) % 8 if magnitude >= 2.0**-6 else gaps % 8
    code = min(code, 0x7F)
    if twos:
        return (256 - code) % 256 if x < 0 else code
    return code | (0x80 if x < 0 and sign else 0)


def gap(x, *, least=-6, bits=3, shift=0.0):
    exponent = max(math.frexp(x)[1] - 1, least) if least is not None else math.frexp(x)[1] - 1
    return 2.0 ** (exponent - bits + shift)


def gap_below(x):
    """A power of two has a smaller gap below it."""
    fraction, exponent = math.frexp(x)
    exponent -= 1
    return 2.0 ** (max(exponent - (fraction == 0.5), -6) - 3)


_rng = np.random.default_rng(7)
_sizes = _rng.standard_normal(200) * 2.0 ** _rng.uniform(-12, 7, 200)
_ties = np.array([4.25, 4.75, -4.25, 17.0, 19.0, 2.0**-10, 3 * 2.0**-10, 1.0625, 124.3, 0.0])
_large = np.array([448.0, 449.0, 464.0, 465.0, -1e4, np.inf, -np.inf, np.nan, 3.0])
_grid = np.array([decoded(code) for code in range(0x7F)])
_middle = (_grid[:-1] + _grid[1:]) / 2
_edges = np.concatenate([_middle, np.nextafter(_middle, 0), np.nextafter(_middle, 1000), [463.9, 464.0, 464.1]])

EXERCISES = [
    Exercise(
        "7.1",
        "decode_byte",
        right=decoded,
        cases=[(b,) for b in range(256)],
        turns=(
            Turn(
                lambda b: decoded(b, hidden_always=True),
                "a field of 0 has no hidden 1: then the value is m / 8 * 2^-6.",
            ),
            Turn(
                lambda b: decoded(b, low=0),
                "subnormal numbers have the exponent of field 1, -6, not -7: otherwise there is a gap below 2^-6.",
            ),
            Turn(lambda b: decoded(b, nan=False), "0x7F and 0xFF are NaN, not 480."),
            Turn(lambda b: decoded(b, sign=False), "the first bit is the sign."),
            Turn(lambda b: decoded(b, bias=8), "the bias is 7; with 8 these are the numbers of e4m3fnuz."),
            Turn(lambda b: decoded(b, bias=0), "subtract the bias, 7, from the field."),
            Turn(
                lambda b: decoded(b, bits=2, bias=15),
                "this is e5m2, with 5 bits for the exponent: e4m3 has 4, and 3 for the fraction.",
            ),
            Turn(
                lambda b: NAN if b & 0x78 == 0x78 else decoded(b),
                "only 0x7F and 0xFF are NaN: the other codes with field 15 are the numbers from 256 to 448.",
            ),
        ),
        well_done="All 256 bytes are yours.",
        hint="Cut the byte into s, E and m as at the head of the tutorial. There are three kinds of bytes: "
        "NaN, E = 0, and the others.",
        on_error="byte >> 3 & 0b1111 is the exponent field, byte & 0b111 the fraction.",
        tolerance=0.0,
    ),
    Exercise(
        "7.2",
        "round_e4m3",
        right=rounded,
        cases=[(_sizes,), (_ties,), (_large,), (np.append(_edges, -_edges),), (np.array([4.25, -500.0, 0.001]),)],
        turns=(
            Turn(
                lambda x: rounded(x, top=0),
                "numbers above 448 must become 448. Clip x first: then 464 to 480 are right too.",
            ),
            Turn(
                to_nan,
                "this is the other convention, NaN for what is too large. Here it saturates: 448.",
            ),
            Turn(
                lambda x: rounded(x, least=-1000),
                "subnormal numbers are missing: below 2^-6 the gap stays 2^-9. Take the larger of exponent and -6.",
            ),
            Turn(
                lambda x: rounded(x, flush=True),
                "this turns what is below 2^-6 into 0. There are 7 subnormal numbers, multiples of 2^-9: keep them.",
            ),
            Turn(lambda x: rounded(x, integer=away), "a tie goes to the even number, not away from zero: np.rint."),
            Turn(lambda x: rounded(x, integer=up), "a tie goes to the even number, not up: np.rint."),
            Turn(lambda x: rounded(x, integer=np.trunc), "this cuts off. Round to nearest: np.rint."),
            Turn(lambda x: rounded(x, integer=np.floor), "this rounds down. Round to nearest: np.rint."),
            Turn(
                lambda x: rounded(x, bits=4),
                "the grid is twice too fine: 8 gaps in a binade, so 2^(exponent - 3).",
            ),
            Turn(
                lambda x: rounded(x, bits=2),
                "the grid is twice too coarse: 8 gaps in a binade. np.frexp returns an exponent that is one too high.",
            ),
            Turn(
                lambda x: rounded(x, least=-7),
                "the smallest normal number is 2^-6, and subnormal numbers have its gap.",
            ),
            Turn(
                lambda x: rounded(x, least=-5),
                "the smallest normal number is 2^-6, and subnormal numbers have its gap.",
            ),
            Turn(
                lambda x: rounded(np.asarray(x, np.float32)),
                "this rounds to float32 first. A number just above a tie lands on the tie then, and goes to the even"
                " one: rounding twice is not rounding once.",
            ),
            Turn(
                lambda x: np.nan_to_num(rounded(x)),
                "NaN is no number that could be rounded: it stays NaN.",
            ),
            Turn(
                lambda x: np.minimum(rounded(x, top=0), 448.0),
                "negative numbers overflow too: -448 is the least.",
            ),
        ),
        well_done="In every bit what the library does.",
        hint="Clip first, then do what round_by_hand does. np.frexp says exponent 0 for the number 0, which "
        "is harmless: 0 / gap is 0.",
        on_error="np.frexp, np.maximum, np.rint and np.clip work on arrays; `if` does not.",
        tolerance=0.0,
    ),
    Exercise(
        "7.3",
        "encode_number",
        right=coded,
        cases=[
            (v,)
            for v in (
                124.3,
                11.3,
                -2.5,
                0.01,
                -0.0153,
                2.0**-10,
                0.0,
                -0.0,
                448.0,
                463.0,
                464.0,
                -1e4,
                np.inf,
                4.25,
                4.75,
                1.0,
                -1e-5,
                -(2.0**-10),
                -1e-300,
                *_edges,
            )
        ],
        turns=(
            Turn(
                lambda x: coded(x, carry=False),
                "the carry is lost: 124.3 must become 128 (0x70), not 64 (0x68). Add exponent and fraction as numbers.",
            ),
            Turn(
                lambda x: coded(x, saturate=False),
                "too large numbers become 448, 0x7E. 0x7F is NaN.",
            ),
            Turn(lambda x: coded(x, sign=False), "the sign is missing: bit 7, 0x80."),
            Turn(
                lambda x: coded(x) if coded(x) != 0x80 else 0,
                "tiny negative numbers round to -0, whose code is 0x80: the sign stays. Only 0 itself counts as"
                " positive, with either sign.",
            ),
            Turn(lambda x: coded(x, twos=True), "negative numbers are not two's complement: only bit 7 is set."),
            Turn(lambda x: coded(x, integer=np.trunc), "this cuts off. Round to nearest: np.rint."),
            Turn(lambda x: coded(x, integer=away), "a tie goes to the even number: np.rint, or Python's round."),
            Turn(
                lambda x: coded(x) if abs(x) >= 2.0**-6 else (0x80 if x < 0 else 0),
                "subnormal numbers are missing: below 2^-6 the code is the number of gaps of 2^-9.",
            ),
            Turn(
                lambda x: coded(x) if x else 40,
                "the code of 0 is 0. math.frexp(0) says exponent 0, as if 0 were near 1: treat it as subnormal.",
            ),
            Turn(
                lambda x: int(rounded(x)),
                "this is the rounded number itself. The code is the byte: exponent field times 8, plus the fraction.",
            ),
        ),
        well_done="124.3 keeps its carry.",
        hint="encode_by_hand above does it for positive numbers up to 448. Before it, take the magnitude and "
        "the smaller of that and 448; after it, set bit 7 for numbers below 0.",
        on_error="math.frexp(x) gives (f, e) with x = f * 2^e and f from 1/2 to 1; of infinity it gives nonsense.",
        tolerance=0.0,
        same_type=True,
    ),
    Exercise(
        "7.4",
        "gap_above",
        right=gap,
        cases=[(float(v),) for v in _grid[1:-1]],
        turns=(
            Turn(
                lambda x: gap(x, least=None),
                "below 2^-6 the gap does not shrink any more: subnormal numbers are 2^-9 apart.",
            ),
            Turn(lambda x: gap(x, shift=-1), "half the gap is the largest error. The gap itself is twice that."),
            Turn(lambda x: gap(x, shift=1), "twice too large: math.frexp returns an exponent that is one too high."),
            Turn(gap_below, "this is the gap below. At a power of two the gap above is twice as large."),
            Turn(lambda x: x / 8, "the gap is the same all over a binade: take the power of two below x, over 8."),
            Turn(lambda x: gap(x, bits=7), "this is bfloat16's gap."),
            Turn(lambda x: gap(x, bits=2, least=-14), "this is e5m2's gap."),
        ),
        well_done="Half of it, over the number, is at most 1/16.",
        hint="Find the binade with math.frexp, at least that of 2^-6; there are 8 gaps in it.",
        tolerance=0.0,
    ),
]
