"""Wrong attempts at tutorial 5: (exercise, attempt, words of its hint)."""

import numpy as np


def textbook(scores):
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def no_maximum(scores):
    e = np.exp(scores)
    return e / np.sum(e, axis=-1, keepdims=True)


def no_maximum_but_empty_rows(scores):
    e = np.exp(scores)
    total = np.sum(e, axis=-1, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total != 0)


def one_maximum(scores):
    top = np.max(scores)
    e = np.exp(scores - (0 if np.isinf(top) else top))
    total = np.sum(e, axis=-1, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total != 0)


def one_maximum_and_nan(scores):
    e = np.exp(scores - np.max(scores))
    return e / np.sum(e, axis=-1, keepdims=True)


def lowest_finite(scores):
    return textbook(np.where(np.isinf(scores), np.finfo(np.float64).min, scores))


def nan_to_zero(scores):
    return np.nan_to_num(no_maximum(scores))


def first_axis(scores):
    top = np.max(scores, axis=0, keepdims=True)
    e = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = e.sum(axis=0, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total != 0)


def no_keepdims(scores):
    return np.exp(scores - scores.max(axis=-1))


def positions(T, S):
    return np.arange(S - T, S)[:, None], np.arange(S)[None]


def upper_left(T, S, window):
    return np.array([[i - window < j <= i for j in range(S)] for i in range(T)])


def one_more(T, S, window):
    i, j = positions(T, S)
    return (j <= i) & (j >= i - window)


def one_less(T, S, window):
    i, j = positions(T, S)
    return (j <= i) & (j > i - window + 1)


def not_itself(T, S, window):
    i, j = positions(T, S)
    return (j < i) & (j > i - window)


def one_ahead(T, S, window):
    i, j = positions(T, S)
    return (j <= i + 1) & (j > i - window)


def right_window(T, S, window):
    i, j = positions(T, S)
    return (j <= i) & (j > i - window)


def true_is_hidden(T, S, window):
    return ~right_window(T, S, window)


def open_future(T, S, window):
    i, j = positions(T, S)
    return j > i - window


def causal(T, S, window):
    return np.tri(T, S, S - T, dtype=bool)


def integers(T, S, window):
    return right_window(T, S, window) * 1


def floats(T, S, window):
    return right_window(T, S, window) * 1.0


def additive(T, S, window):
    return np.where(right_window(T, S, window), 0, -np.inf)


def added(m_1, total_1, z_1, m_2, total_2, z_2):
    return (z_1 + z_2) / (total_1 + total_2)[:, None]


def factors(m_1, m_2):
    m = np.maximum(m_1, m_2)
    return np.exp(m_1 - m), np.exp(m_2 - m)


def values_only(m_1, total_1, z_1, m_2, total_2, z_2):
    a, b = factors(m_1, m_2)
    return (z_1 * a[:, None] + z_2 * b[:, None]) / (total_1 + total_2)[:, None]


def not_divided(m_1, total_1, z_1, m_2, total_2, z_2):
    a, b = factors(m_1, m_2)
    return z_1 * a[:, None] + z_2 * b[:, None]


def mean_of_results(m_1, total_1, z_1, m_2, total_2, z_2):
    return 0.5 * z_1 / total_1[:, None] + 0.5 * z_2 / total_2[:, None]


def mean_without_nan(m_1, total_1, z_1, m_2, total_2, z_2):
    return np.nan_to_num(mean_of_results(m_1, total_1, z_1, m_2, total_2, z_2))


def without_a_maximum(m1, total1, z1, m2, total2, z2):
    first, second = np.exp(m1), np.exp(m2)
    mixed = first[:, None] * z1 + second[:, None] * z2
    return mixed / (first * total1 + second * total2)[:, None]


def inverse_factors(m_1, total_1, z_1, m_2, total_2, z_2):
    a, b = factors(m_1, m_2)
    a, b = 1 / a, 1 / b
    return (z_1 * a[:, None] + z_2 * b[:, None]) / (total_1 * a + total_2 * b)[:, None]


def from_the_second(m_1, total_1, z_1, m_2, total_2, z_2):
    a = np.exp(m_1 - m_2)
    return (z_1 * a[:, None] + z_2) / (total_1 * a + total_2)[:, None]


def axis_forgotten(m_1, total_1, z_1, m_2, total_2, z_2):
    a, b = factors(m_1, m_2)
    return (z_1 * a + z_2 * b) / (total_1 * a + total_2 * b)


def textbook_without_nan(scores):
    return np.nan_to_num(textbook(scores))


def positive_sums_only(scores):
    top = np.max(scores, axis=-1, keepdims=True)
    e = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    return np.where(total > 0, e / np.where(total > 0, total, 1), 0)


def a_little_in_the_denominator(scores):
    top = np.max(scores, axis=-1, keepdims=True)
    e = np.exp(scores - np.where(np.isneginf(top), 0, top))
    return e / (e.sum(axis=-1, keepdims=True) + 1e-12)


def clipped(scores):
    e = np.exp(np.clip(scores, -700, 700))
    return e / e.sum(axis=-1, keepdims=True)


def one_key_and_itself(T, S, window):
    i, j = positions(T, S)
    return (j == i) | (j == i - window + 1)


def first_half_only(m_1, total_1, z_1, m_2, total_2, z_2):
    return z_1 / total_1[:, None]


def larger_maximum_wins(m_1, total_1, z_1, m_2, total_2, z_2):
    first = (m_1 >= m_2)[:, None]
    with np.errstate(all="ignore"):
        return np.where(first, z_1 / total_1[:, None], z_2 / total_2[:, None])


def safe(scores):
    top = np.max(scores, axis=-1, keepdims=True)
    e = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total != 0)


def by_logarithm(scores):
    top = np.max(scores, axis=-1, keepdims=True)
    top = np.where(np.isneginf(top), 0, top)
    total = np.exp(scores - top).sum(axis=-1, keepdims=True)
    return np.exp(scores - top - np.log(np.where(total == 0, 1, total)))


def rows_by_a_loop(scores):
    flat = scores.reshape(-1, scores.shape[-1])
    out = [np.zeros(len(r)) if np.all(r == -np.inf) else textbook(r) for r in flat]
    return np.array(out).reshape(scores.shape)


def by_tri(T, S, window):
    return np.tri(T, S, S - T, dtype=bool) & ~np.tri(T, S, S - T - window, dtype=bool)


def by_shares(m_1, total_1, z_1, m_2, total_2, z_2):
    with np.errstate(divide="ignore"):
        a, b = m_1 + np.log(total_1), m_2 + np.log(total_2)
    whole = np.logaddexp(a, b)
    parts = [
        np.exp(x - whole)[:, None] * z / np.where(t == 0, 1, t)[:, None]
        for x, z, t in ((a, z_1, total_1), (b, z_2, total_2))
    ]
    return parts[0] + parts[1]


WRONG = [
    ("5.1", textbook, "rows of -inf give NaN"),
    ("5.1", no_maximum, "large scores overflow"),
    ("5.1", no_maximum_but_empty_rows, "large scores overflow"),
    ("5.1", one_maximum, "one maximum of the whole array"),
    ("5.1", one_maximum_and_nan, "one maximum of the whole array"),
    ("5.1", lowest_finite, "give 1/S"),
    ("5.1", nan_to_zero, "hides the overflow"),
    ("5.1", first_axis, "axis=-1"),
    ("5.1", no_keepdims, "keeps the shapes in step"),
    ("5.2", upper_left, "aligned upper left"),
    ("5.2", one_more, "one key too many"),
    ("5.2", one_less, "one key too few"),
    ("5.2", not_itself, "may look at itself"),
    ("5.2", one_ahead, "off by one"),
    ("5.2", true_is_hidden, "upside down"),
    ("5.2", open_future, "the future is open"),
    ("5.2", causal, "Where is the window"),
    ("5.2", integers, "return booleans"),
    ("5.2", floats, "return booleans"),
    ("5.2", additive, "to be added"),
    ("5.3", added, "different maxima"),
    ("5.3", values_only, "the sums need the same factors"),
    ("5.3", not_divided, "divide by the sum"),
    ("5.3", mean_of_results, "each half counts"),
    ("5.3", mean_without_nan, "each half counts"),
    ("5.3", without_a_maximum, "e^m overflows"),
    ("5.3", inverse_factors, "upside down"),
    ("5.3", from_the_second, "right, until"),
    ("5.3", axis_forgotten, "total[:, None] meets"),
    ("5.1", textbook_without_nan, "a NaN among the scores"),
    ("5.1", positive_sums_only, "a NaN among the scores"),
    ("5.1", a_little_in_the_denominator, "the smallest case that fails"),
    ("5.1", clipped, "the smallest case that fails"),
    ("5.2", one_key_and_itself, "the smallest case that fails"),
    ("5.3", first_half_only, "the smallest case that fails"),
    ("5.3", larger_maximum_wins, "the smallest case that fails"),
]

RIGHT = [
    ("5.1", safe),
    ("5.1", by_logarithm),
    ("5.1", rows_by_a_loop),
    ("5.2", right_window),
    ("5.2", by_tri),
    ("5.3", by_shares),
]
