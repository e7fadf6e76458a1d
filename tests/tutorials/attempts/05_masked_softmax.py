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
]
