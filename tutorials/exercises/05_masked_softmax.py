"""Exercises of tutorial 5: a safe softmax, a sliding window, two halves of a softmax."""

import numpy as np
from checks import Exercise, Turn

INF = np.inf


def softmax(s, axis=-1, empty=0.0):
    top = s.max(axis=axis, keepdims=True)
    e = np.exp(s - np.where(top == -INF, 0.0, top))
    total = e.sum(axis=axis, keepdims=True)
    return np.where(total == 0, empty, e / np.where(total == 0, 1.0, total))


def unsafe(s):
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def overflowing(s, empty=np.nan):
    e = np.exp(s)
    total = e.sum(axis=-1, keepdims=True)
    return np.where(total == 0, empty, e / np.where(total == 0, 1.0, total))


def one_maximum(s, empty=0.0):
    top = s.max()
    e = np.exp(s - (0.0 if top == -INF and empty == 0 else top))
    total = e.sum(axis=-1, keepdims=True)
    return np.where(total == 0, empty, e / np.where(total == 0, 1.0, total))


def window(T, S, w, *, shift=0, before=0, aligned=True, causal=True):
    query = np.arange(T)[:, None] + (S - T if aligned else 0)
    key = np.arange(S)
    seen = key > query - w - before
    return seen & (key <= query + shift) if causal else seen


def merged(m1, l1, z1, m2, l2, z2, *, rescale=True, divide=True):
    m = np.maximum(m1, m2)
    a, b = (np.exp(m1 - m), np.exp(m2 - m)) if rescale else (np.ones_like(m), np.ones_like(m))
    z = z1 * a[:, None] + z2 * b[:, None]
    return z / (l1 * a + l2 * b)[:, None] if divide else z


def from_zero(m1, l1, z1, m2, l2, z2):
    """Both halves measured from 0: e^m is infinite for a large maximum."""
    a, b = np.exp(m1), np.exp(m2)
    return (z1 * a[:, None] + z2 * b[:, None]) / (l1 * a + l2 * b)[:, None]


def averaged(m1, l1, z1, m2, l2, z2):
    """The mean of two finished results."""
    return (z1 / l1[:, None] + z2 / l2[:, None]) / 2


def sums_not_rescaled(m1, l1, z1, m2, l2, z2):
    m = np.maximum(m1, m2)
    return (z1 * np.exp(m1 - m)[:, None] + z2 * np.exp(m2 - m)[:, None]) / (l1 + l2)[:, None]


def upside_down(m1, l1, z1, m2, l2, z2):
    m = np.maximum(m1, m2)
    a, b = np.exp(m - m1), np.exp(m - m2)
    return (z1 * a[:, None] + z2 * b[:, None]) / (l1 * a + l2 * b)[:, None]


def by_difference(m1, l1, z1, m2, l2, z2):
    """Right where no half is hidden, but e^(m - m') overflows or is inf - inf elsewhere."""
    a = np.exp(m1 - m2)
    return (z1 * a[:, None] + z2) / (l1 * a + l2)[:, None]


_rng = np.random.default_rng(5)


def _scores():
    s = _rng.standard_normal((2, 4, 6)) * 3
    s[0, 1] += 1500  # so far above the others that they underflow under one maximum
    s[0, 2] -= 1500
    s[1, 0] = -INF
    s[1, 3, 2:] = -INF
    return s


def _halves():
    s, v = _rng.standard_normal((5, 9)) * 4, _rng.standard_normal((9, 3))
    s[1, :5] = -INF
    s[2, 5:] = -INF
    s[3, :5] += 900
    s[4, 5:] += 900
    parts = []
    for part in (slice(0, 5), slice(5, 9)):
        m = s[:, part].max(axis=1)
        e = np.exp(s[:, part] - np.where(m == -INF, 0, m)[:, None])
        parts += [m, e.sum(axis=1), e @ v[part]]
    return tuple(parts)


EXERCISES = [
    Exercise(
        "5.1",
        "safe_softmax",
        right=softmax,
        cases=[
            (_scores(),),
            (np.array([1.0, 2.0, 3.0]),),
            (np.array([0.0, 40.0, -INF]),),
            (np.full((2, 3), -INF),),
            (np.array([[0.0, np.nan], [-INF, -INF], [1.0, 1.0]]),),
        ],
        turns=(
            Turn(
                unsafe,
                "rows of -inf give NaN: there -inf is subtracted from -inf. Subtract 0 where the maximum is -inf, and"
                " do not divide by a sum of 0.",
            ),
            Turn(
                lambda s: np.nan_to_num(unsafe(s)),
                "a NaN among the scores, somebody else's mistake, comes out as a row of zeros here, and nobody will"
                " ever see it. Only rows of nothing but -inf give zeros: find them by their maximum, or by a sum that"
                " equals 0, and leave NaN alone.",
            ),
            Turn(overflowing, "large scores overflow: subtract the maximum of each row first."),
            Turn(lambda s: overflowing(s, 0.0), "large scores overflow: subtract the maximum of each row first."),
            Turn(
                one_maximum,
                "this subtracts one maximum of the whole array: rows far below it underflow to 0 / 0. Every row has its"
                " own (axis=-1, keepdims=True).",
            ),
            Turn(
                lambda s: one_maximum(s, np.nan),
                "this subtracts one maximum of the whole array: rows far below it underflow to 0 / 0. Every row has its"
                " own (axis=-1, keepdims=True).",
            ),
            Turn(
                lambda s: softmax(s, empty=1 / s.shape[-1]),
                "rows of -inf give 1/S, which is what the lowest finite number does. Here they should be 0.",
            ),
            Turn(
                lambda s: np.nan_to_num(overflowing(s)),
                "replacing NaN afterwards hides the overflow: a row of large scores comes out as 0. Subtract the"
                " maximum first.",
            ),
            Turn(lambda s: softmax(s, axis=0), "the shares of one query are along the last axis: axis=-1."),
        ),
        well_done="No mask will surprise it.",
        tolerance=5e-13,
        hint="Where the maximum of a row is -inf, subtract 0 instead. Then e is 0 everywhere in that row, and "
        "its sum is 0: divide by 1 there.",
        on_error="axis=-1, keepdims=True keeps the shapes in step.",
    ),
    Exercise(
        "5.2",
        "window_mask",
        right=window,
        cases=[(3, 8, 3), (5, 5, 2), (4, 6, 100), (1, 4, 1), (2, 3, 2)],
        turns=(
            Turn(
                lambda T, S, w: window(T, S, w, aligned=False),
                "aligned upper left: row 0 is the first new token, and S - T cached ones are before it.",
            ),
            Turn(
                lambda T, S, w: window(T, S, w, before=1), "one key too many: with window 1 a token sees only itself."
            ),
            Turn(lambda T, S, w: window(T, S, w, before=-1), "one key too few: with window 1 a token sees itself."),
            Turn(lambda T, S, w: window(T, S, w, shift=-1), "a token may look at itself."),
            Turn(lambda T, S, w: window(T, S, w, shift=1), "a token sees the one after it: off by one."),
            Turn(lambda T, S, w: ~window(T, S, w), "upside down: True where a query may look."),
            Turn(lambda T, S, w: window(T, S, w, causal=False), "the future is open: no key after the query itself."),
            Turn(lambda T, S, w: window(T, S, S + T), "that is the causal mask. Where is the window?"),
            Turn(
                lambda T, S, w: window(T, S, w).astype(np.int64),
                "return booleans: numbers 0 and 1 look like a mask to be added, which hides nothing.",
            ),
            Turn(
                lambda T, S, w: window(T, S, w).astype(np.float64),
                "return booleans: numbers 0 and 1 look like a mask to be added, which hides nothing.",
            ),
            Turn(
                lambda T, S, w: np.where(window(T, S, w), 0.0, -INF),
                "this mask is to be added. Return booleans, True where a query may look.",
            ),
        ),
        well_done="It works with a cache and without.",
        hint="Give each query its position in the whole text, np.arange(S - T, S)[:, None], and each key its "
        "own, np.arange(S). The mask is two comparisons.",
    ),
    Exercise(
        "5.3",
        "merge",
        right=merged,
        cases=[_halves(), _halves()],
        turns=(
            Turn(
                lambda *a: merged(*a, rescale=False),
                "the halves are measured from different maxima. Bring both to the larger one: times e^(m - larger).",
            ),
            Turn(
                sums_not_rescaled,
                "the sums need the same factors e^(m - larger) as the values.",
            ),
            Turn(lambda *a: merged(*a, divide=False), "divide by the sum at the end."),
            Turn(
                averaged,
                "each half counts by its own sum, and they are not equal: add the values first, and divide at the end.",
            ),
            Turn(
                lambda *a: np.nan_to_num(averaged(*a)),
                "each half counts by its own sum, and they are not equal: add the values first, and divide at the end.",
            ),
            Turn(
                from_zero,
                "e^m overflows for a large maximum: measure both halves from the larger one, e^(m - larger).",
            ),
            Turn(upside_down, "the factors are upside down: what was measured from a smaller maximum becomes smaller."),
            Turn(
                by_difference,
                "right, until a maximum is -inf or far above the other: measure both from the larger one, then no"
                " exponent is positive.",
            ),
        ),
        well_done="This is how attention over long texts is split among GPUs, and how tiles are merged.",
        hint="Let m be the larger of the two maxima. A half that was measured from m_1 becomes one measured "
        "from m when it is multiplied by e^(m_1 - m).",
        on_error="m and total have shape [T]: total[:, None] meets z [T, V].",
    ),
]
