"""Wrong attempts at tutorial 10: (exercise, attempt, words of its hint)."""

import numpy as np

norm = np.linalg.norm


def cosine(theirs, ours):
    return (theirs * ours).sum() / norm(theirs) / norm(ours)


def other_way(theirs, ours):
    return (theirs * ours).sum() / (theirs**2).sum()


def lengths(theirs, ours):
    return np.sqrt((theirs**2).sum() / (ours**2).sum())


def mean_ratio(theirs, ours):
    return (theirs / ours).mean()


def median_ratio(theirs, ours):
    return np.median(theirs / ours)


def sums(theirs, ours):
    return theirs.sum() / ours.sum()


def product(theirs, ours):
    return np.vdot(theirs, ours)


def matrix_product(theirs, ours):
    return (theirs @ ours) / (ours @ ours)


def over_theirs(theirs, ours):
    return int(np.argmax(np.linalg.norm(theirs - ours, axis=-1) / np.linalg.norm(theirs, axis=-1)))


def absolute(theirs, ours):
    return norm(theirs - ours, axis=1).argmax()


def largest_entry(theirs, ours):
    return np.unravel_index(abs(theirs - ours).argmax(), ours.shape)[0]


def channel(theirs, ours):
    return (norm(theirs - ours, axis=0) / norm(ours, axis=0)).argmax()


def summed(theirs, ours):
    return (abs(np.sum(theirs - ours, axis=1)) / norm(ours, axis=1)).argmax()


def flat(theirs, ours):
    return abs(theirs - ours).argmax()


def best(theirs, ours):
    return (norm(theirs - ours, axis=1) / norm(ours, axis=1)).argmin()


def largest_error(theirs, ours):
    return (norm(theirs - ours, axis=1) / norm(ours, axis=1)).max()


def wrong_axis(theirs, ours):
    return (norm(theirs - ours, axis=1) / norm(ours, axis=2)).argmax()


def code(x):
    return (x.view(np.int32) >> 16).astype(int)


def place(x):
    return np.where(code(x) < 0, -(code(x) & 32767), code(x))


def codes_alone(a, b):
    return abs(code(a) - code(b))


def of_float32(a, b):
    x, y = (
        np.where(v.view(np.int32) < 0, -(v.view(np.int32) & 0x7FFFFFFF).astype(int), v.view(np.int32)) for v in (a, b)
    )
    return abs(x - y)


def with_sign(a, b):
    return place(a) - place(b)


def over_the_gap(a, b):
    gap = 2.0 ** (np.frexp(np.where(a == 0, 1, a))[1] - 8.0)
    return np.round(abs(a.astype(float) - b) / gap).astype(int)


def whether(a, b):
    return 1 * (a != b)


def values(a, b):
    return abs(a - b)


def shifted_floats(a, b):
    return abs((a >> 16) - (b >> 16))


WRONG = [
    ("10.1", cosine, "this is the cosine"),
    ("10.1", other_way, "the other way round"),
    ("10.1", lengths, "the ratio of lengths"),
    ("10.1", mean_ratio, "the mean of ratios"),
    ("10.1", median_ratio, "the median"),
    ("10.1", sums, "sums cancel"),
    ("10.1", product, "divide by the sum"),
    ("10.1", matrix_product, "works for any shape"),
    ("10.2", over_theirs, "theirs may be nearly 0"),
    ("10.2", absolute, "loud tokens win"),
    ("10.2", largest_entry, "largest single error"),
    ("10.2", channel, "this is a channel"),
    ("10.2", summed, "cancel in a sum"),
    ("10.2", flat, "without an axis"),
    ("10.2", best, "where it is best"),
    ("10.2", largest_error, "the error itself"),
    ("10.2", wrong_axis, "one length for each position"),
    ("10.3", codes_alone, "as long as the signs agree"),
    ("10.3", of_float32, "steps of float32"),
    ("10.3", with_sign, "this has a sign"),
    ("10.3", over_the_gap, "gap at a"),
    ("10.3", whether, "only whether they differ"),
    ("10.3", values, "difference of the values"),
    ("10.3", shifted_floats, "codes are integers"),
]
