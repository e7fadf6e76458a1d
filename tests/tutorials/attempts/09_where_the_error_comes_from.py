"""Wrong attempts at tutorial 9: (exercise, attempt, words of its hint)."""

import numpy as np

norm = np.linalg.norm


def with_infinity(found, right):
    return np.sqrt(((found - right) ** 2).sum() / (right**2).sum())


def finite(found, right):
    return found[np.isfinite(right)], right[np.isfinite(right)]


def finite_found(found, right):
    seen = np.isfinite(found) & np.isfinite(right)
    return np.linalg.norm((found - right)[seen]) / np.linalg.norm(right[np.isfinite(right)])


def over_found(found, right):
    f, r = finite(found, right)
    return norm(f - r) / norm(f)


def not_relative(found, right):
    f, r = finite(found, right)
    return norm(f - r)


def mean_ratio(found, right):
    f, r = finite(found, right)
    return (abs(f - r) / abs(r)).mean()


def largest_over_largest(found, right):
    f, r = finite(found, right)
    return abs(f - r).max() / abs(r).max()


def squared(found, right):
    f, r = finite(found, right)
    return ((f - r) ** 2).mean() / (r**2).mean()


def magnitudes(found, right):
    f, r = finite(found, right)
    return abs(f - r).sum() / abs(r).sum()


def lengths(found, right):
    f, r = finite(found, right)
    return abs(norm(f) - norm(r)) / norm(r)


def matrix_norm(found, right):
    return norm(found - right, 2) / norm(right, 2)


def every_token(value, right, tokens, channels):
    out = value.copy()
    out[:, :, channels] = right[:, :, channels]
    return out


def every_channel(value, right, tokens, channels):
    out = value.copy()
    out[:, tokens, :] = right[:, tokens, :]
    return out


def one_or_the_other(value, right, tokens, channels):
    return every_channel(every_token(value, right, tokens, channels), right, tokens, channels)


def all_pairs(value, right, tokens, channels):
    out = value.copy()
    for t in tokens:
        for c in channels:
            out[:, t, c] = right[:, t, c]
    return out


def lists_side_by_side(value, right, tokens, channels):
    out = value.copy()
    n = max(len(tokens), len(channels))
    t, c = (np.resize(indices, n) for indices in (tokens, channels))
    out[:, t, c] = right[:, t, c]
    return out


def two_lists(value, right, tokens, channels):
    out = value.copy()
    out[:, tokens, channels] = right[:, tokens, channels]
    return out


def the_rest(value, right, tokens, channels):
    return all_pairs(right, value, tokens, channels)


def first_entry(value, right, tokens, channels):
    out = value.copy()
    out[0] = all_pairs(value, right, tokens, channels)[0]
    return out


def removed(value, right, tokens, channels):
    return all_pairs(value, np.zeros_like(right), tokens, channels)


def untouched(value, right, tokens, channels):
    copy = value.copy()
    all_pairs(copy, right, tokens, channels)
    return copy


def everything(value, right, tokens, channels):
    return right.copy()


def in_place(value, right, tokens, channels):
    for t in tokens:
        value[:, t, channels] = right[:, t, channels]
    return value


def of_the_error(before, after):
    return (before - after) / before


def left(before, after):
    return after**2 / before**2


def square_removed(before, after):
    return (before - after) * (before + after)


def difference_squared(before, after):
    return ((before - after) / before) ** 2


def over_after(before, after):
    return (before**2 - after**2) / after**2


def upside_down(before, after):
    return 1 - before**2 / after**2


def never_negative(before, after):
    return 0.0 if after > before else 1 - after**2 / before**2


def distance(found, right):
    return norm(found - right) / norm(right)


def end_to_end(x, exact, rough):
    errors, y = [], x
    for e, r in zip(exact, rough, strict=True):
        x, y = e(x), r(y)
        errors.append(distance(y, x))
    return errors


def on_from_the_rough_one(x, exact, rough):
    errors = []
    for e, r in zip(exact, rough, strict=True):
        right, x = e(x), r(x)
        errors.append(distance(x, right))
    return errors


def from_x(x, exact, rough):
    return [distance(r(x), e(x)) for e, r in zip(exact, rough, strict=True)]


def subtracted(x, exact, rough):
    errors = end_to_end(x, exact, rough)
    return [error - before for error, before in zip(errors, [0, *errors], strict=False)]


def local(x, exact, rough):
    errors = []
    for e, r in zip(exact, rough, strict=True):
        errors.append(distance(r(x), e(x)))
        x = e(x)
    return errors


def running_total(x, exact, rough):
    errors = local(x, exact, rough)
    return [sum(errors[: i + 1]) for i in range(len(errors))]


def last(x, exact, rough):
    return local(x, exact, rough)[-1]


def called_as_one(x, exact, rough):
    return exact(x) - rough(x)


def a_little_in_the_denominator(found, right):
    f, r = finite(found, right)
    return norm(f - r) / (norm(r) + 1e-12)


def no_channel(value, right, tokens, channels):
    out = value.copy()
    out[:, tokens[0], channels] = right[:, tokens[0], channels]
    return out


def half_way(value, right, tokens, channels):
    return (value + all_pairs(value, right, tokens, channels)) / 2


def zero_for_nothing(before, after):
    return 0.0


def root_of_the_share(before, after):
    return np.sqrt(abs(1 - (after / before) ** 2))


def absolute_share(before, after):
    return abs(1 - (after / before) ** 2)


def absolute_errors(x, exact, rough):
    errors = []
    for e, r in zip(exact, rough, strict=True):
        errors.append(norm(r(x) - e(x)))
        x = e(x)
    return errors


def over_the_rough(x, exact, rough):
    errors = []
    for e, r in zip(exact, rough, strict=True):
        errors.append(norm(r(x) - e(x)) / norm(r(x)))
        x = e(x)
    return errors


def exact_on_rough_input(x, exact, rough):
    errors, y = [], x
    for e, r in zip(exact, rough, strict=True):
        errors.append(distance(e(y), e(x)))
        x, y = e(x), r(y)
    return errors


def by_where(found, right):
    seen = np.isfinite(right)
    over = np.sqrt(np.sum(np.where(seen, right, 0) ** 2))
    with np.errstate(invalid="ignore"):
        return np.sqrt(np.sum(np.where(seen, found - right, 0) ** 2)) / over


def by_grid(value, right, tokens, channels):
    out = np.array(value)
    place = np.ix_(range(len(value)), tokens, channels)
    out[place] = right[place]
    return out


def by_mask(value, right, tokens, channels):
    t, c = np.isin(np.arange(value.shape[1]), tokens), np.isin(np.arange(value.shape[2]), channels)
    return np.where(t[:, None] & c, right, value)


def over_the_square(before, after):
    return (before - after) * (before + after) / before**2


WRONG = [
    ("9.1", with_infinity, "is not a number"),
    ("9.1", finite_found, "would count as no error"),
    ("9.1", over_found, "not of what was found"),
    ("9.1", not_relative, "this is absolute"),
    ("9.1", mean_ratio, "entries near 0"),
    ("9.1", largest_over_largest, "the largest entries"),
    ("9.1", squared, "this is the square"),
    ("9.1", magnitudes, "sums of magnitudes"),
    ("9.1", lengths, "can be far apart"),
    ("9.1", matrix_norm, "one long vector"),
    ("9.2", every_token, "all tokens are patched"),
    ("9.2", every_channel, "all channels are patched"),
    ("9.2", one_or_the_other, "not one of the two"),
    ("9.2", lists_side_by_side, "numpy pairs two lists"),
    ("9.2", two_lists, "is one token's part"),
    ("9.2", the_rest, "everything else"),
    ("9.2", first_entry, "only the first batch entry"),
    ("9.2", removed, "takes the channels out"),
    ("9.2", untouched, "nothing was patched"),
    ("9.2", everything, "everything was patched"),
    ("9.2", in_place, "in place"),
    ("9.3", of_the_error, "Square the ratio"),
    ("9.3", left, "the share that is left"),
    ("9.3", square_removed, "Over which square"),
    ("9.3", difference_squared, "square each error first"),
    ("9.3", over_after, "*before* the patch"),
    ("9.3", upside_down, "upside down"),
    ("9.3", never_negative, "Do not hide it"),
    ("9.4", end_to_end, "this is end to end"),
    ("9.4", on_from_the_rough_one, "go on from the exact result"),
    ("9.4", from_x, "not x again"),
    ("9.4", subtracted, "errors do not subtract"),
    ("9.4", running_total, "summed up"),
    ("9.4", last, "the last step's error alone"),
    ("9.4", called_as_one, "both are functions of one array"),
    ("9.1", a_little_in_the_denominator, "errors of faint arrays look small"),
    ("9.2", no_channel, "the smallest case that fails"),
    ("9.2", half_way, "the smallest case that fails"),
    ("9.3", zero_for_nothing, "the smallest case that fails"),
    ("9.3", root_of_the_share, "the smallest case that fails"),
    ("9.3", absolute_share, "the smallest case that fails"),
    ("9.4", absolute_errors, "the smallest case that fails"),
    ("9.4", over_the_rough, "the smallest case that fails"),
    ("9.4", exact_on_rough_input, "the smallest case that fails"),
]

RIGHT = [
    ("9.1", by_where),
    ("9.2", all_pairs),
    ("9.2", by_grid),
    ("9.2", by_mask),
    ("9.3", over_the_square),
    ("9.4", local),
]
