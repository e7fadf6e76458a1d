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


def a_little_in_the_denominator(theirs, ours):
    return (theirs * ours).sum() / ((ours**2).sum() + 1e-12)


def without_a_sign(theirs, ours):
    return abs((theirs * ours).sum()) / (ours**2).sum()


def inverse_of_the_cosine(theirs, ours):
    return 1 / cosine(theirs, ours)


def as_a_float(theirs, ours):
    return float((norm(theirs - ours, axis=1) / norm(ours, axis=1)).argmax())


def from_one(theirs, ours):
    return int((norm(theirs - ours, axis=1) / norm(ours, axis=1)).argmax()) + 1


def sixteen_bits(a, b):
    first, second = ((v.view(np.uint32) >> 16).astype(np.int16) for v in (a, b))
    first, second = (np.where(v < 0, -(v & np.int16(32767)), v).astype(np.int16) for v in (first, second))
    return abs(first - second)


def of_the_right_type_only(a, b):
    return abs(place(a) - place(b)).astype(float)


def steps_of_one(a, b):
    return np.round(abs(a - b) / 2.0**-7).astype(int)


def least_squares(theirs, ours):
    return np.linalg.lstsq(ours.reshape(-1, 1), theirs.ravel(), rcond=None)[0][0]


def by_vdot(theirs, ours):
    return np.vdot(ours, theirs) / np.vdot(ours, ours)


def by_squares(theirs, ours):
    return np.argmax(((theirs - ours) ** 2).sum(axis=1) / (ours**2).sum(axis=1))


def by_sign_and_magnitude(a, b):
    def on_the_line(x):
        bits = x.view(np.uint32).astype(np.int64) >> 16
        return np.where(np.signbit(x), -1, 1) * (bits % 32768)

    return np.abs(on_the_line(a) - on_the_line(b))


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
    ("10.1", a_little_in_the_denominator, "the smallest case that fails"),
    ("10.1", without_a_sign, "the smallest case that fails"),
    ("10.1", inverse_of_the_cosine, "the smallest case that fails"),
    ("10.2", as_a_float, "they are float64: return int64"),
    ("10.2", from_one, "the smallest case that fails"),
    ("10.3", sixteen_bits, "the smallest case that fails"),
    ("10.3", of_the_right_type_only, "they are float64: return int64"),
    ("10.3", steps_of_one, "the smallest case that fails"),
]

RIGHT = [
    ("10.1", least_squares),
    ("10.1", by_vdot),
    ("10.2", by_squares),
    ("10.3", by_sign_and_magnitude),
]
