"""Exercises of tutorial 9: a relative error, a patch, a share of squares, what each step adds."""

import numpy as np
from checks import Exercise, Turn


def error(found, right, *, by="right", keep="finite", power=2):
    if keep == "finite":
        seen = np.isfinite(right)
        found, right = found[seen], right[seen]
    elif keep == "zeros":
        found, right = (np.where(np.isfinite(v), v, 0) for v in (found, right))
    over = {"right": right, "found": found}[by]
    return (np.sum(np.abs(found - right) ** power) / np.sum(np.abs(over) ** power)) ** (1 / power)


def mean_of_ratios(found, right):
    seen = np.isfinite(right)
    return np.mean(np.abs(found[seen] - right[seen]) / np.abs(right[seen]))


def largest(found, right):
    seen = np.isfinite(right)
    return np.max(np.abs(found[seen] - right[seen])) / np.max(np.abs(right[seen]))


def absolute(found, right):
    seen = np.isfinite(right)
    return np.linalg.norm(found[seen] - right[seen])


def difference_of_lengths(found, right):
    seen = np.isfinite(right)
    a, b = np.linalg.norm(found[seen]), np.linalg.norm(right[seen])
    return abs(a - b) / b


def patch(value, right, tokens, channels, *, where="both"):
    out = value.copy()
    if where == "both":
        for t in tokens:
            out[:, t, channels] = right[:, t, channels]
    elif where == "channels":
        out[..., channels] = right[..., channels]
    elif where == "tokens":
        out[:, tokens] = right[:, tokens]
    elif where == "outside":
        out = patch(right, value, tokens, channels)
    elif where == "first":
        for t in tokens:
            out[0, t, channels] = right[0, t, channels]
    elif where == "zero":
        for t in tokens:
            out[:, t, channels] = 0
    elif where == "either":
        out = patch(patch(value, right, tokens, channels, where="channels"), right, tokens, channels, where="tokens")
    return out


def pairwise(value, right, tokens, channels):
    """numpy pairs two lists of indices: [t0, c0], [t1, c1], ..., repeated where one is shorter."""
    out = value.copy()
    n = max(len(tokens), len(channels))
    for i in range(n):
        t, c = tokens[i % len(tokens)], channels[i % len(channels)]
        out[:, t, c] = right[:, t, c]
    return out


def relative(found, right):
    return np.linalg.norm(found - right) / np.linalg.norm(right)


def added(x, exact, rough, *, go_on="exact", start="same", cumulative=False):
    errors, along, other = [], x, x
    for good, bad in zip(exact, rough, strict=True):
        right, found = good(along), bad(other if start == "own" else along)
        errors.append(relative(found, right))
        other = found
        along = right if go_on == "exact" else found
    return np.cumsum(errors) if cumulative else np.array(errors)


def always_from_x(x, exact, rough):
    return np.array([relative(bad(x), good(x)) for good, bad in zip(exact, rough, strict=True)])


def differences(x, exact, rough):
    return np.diff(added(x, exact, rough, start="own"), prepend=0.0)


def only_last(x, exact, rough):
    return added(x, exact, rough)[-1]


_rng = np.random.default_rng(9)


def _scores(shape):
    right = _rng.standard_normal(shape) * 3
    found = right + 0.1 * _rng.standard_normal(shape)
    hidden = _rng.random(shape) < 0.3
    right[hidden] = found[hidden] = -np.inf
    return found, right


def _patch(B, T, F, tokens, channels):
    return _rng.standard_normal((B, T, F)), _rng.standard_normal((B, T, F)), tokens, channels


def _rounding(digits):
    return lambda v: np.round(v, digits)


def _rotation(angle):
    cos, sin = np.cos(angle), np.sin(angle)
    return lambda v: np.stack([cos * v[0] - sin * v[1], sin * v[0] + cos * v[1], 3 * v[2] - v[0]])


_EXACT = [_rotation(0.3), np.tanh, _rotation(1.1)]
_ROUGH = [
    lambda v: _rounding(1)(_EXACT[0](v)),
    lambda v: _rounding(2)(np.tanh(v)),
    lambda v: 1.02 * _EXACT[2](v),
]
_found, _right = _scores((2, 3, 5))

_FAINT = (1e-14 * np.array([1.1, 2.0]), 1e-14 * np.array([1.0, 2.0]))
_LOST = (np.array([1.0, np.nan, 2.5]), np.array([1.0, 2.0, 2.0]))

EXERCISES = [
    Exercise(
        "9.1",
        "masked_relative_error",
        right=error,
        cases=[
            (_found, _right),
            (np.array([1.0, 2.0, 2.5]), np.array([1.0, 2.0, 2.0])),
            _scores((4, 4)),
            _LOST,
            _FAINT,
        ],
        turns=(
            Turn(
                lambda f, r: error(np.where(np.isfinite(f), f, r), r),
                "this leaves out what is not finite in found: a NaN where a number belongs would count as no error."
                " Leave out what is hidden in right.",
            ),
            Turn(
                lambda f, r: error(f, r, keep="all"),
                "-inf minus -inf is not a number: leave those entries out, np.isfinite(right).",
            ),
            Turn(
                lambda f, r: error(f, r, by="found"),
                "divide by the length of what is right, not of what was found.",
            ),
            Turn(
                lambda f, r: absolute(f, r) / (np.linalg.norm(r[np.isfinite(r)]) + 1e-12),
                "a small number added to the length of right makes errors of faint arrays look small: leave it out.",
            ),
            Turn(absolute, "this is absolute: divide by the length of what is right."),
            Turn(mean_of_ratios, "the mean of each entry's ratio is ruled by entries near 0. Divide length by length."),
            Turn(largest, "this compares the largest entries. The length of a vector is np.linalg.norm."),
            Turn(
                lambda f, r: error(f, r) ** 2,
                "this is the square: take the root, or use np.linalg.norm.",
            ),
            Turn(
                lambda f, r: error(f, r, power=1),
                "these are sums of magnitudes. The length of a vector is np.linalg.norm.",
            ),
            Turn(
                difference_of_lengths,
                "two vectors of equal length can be far apart: take the length of the difference.",
            ),
        ),
        well_done="You need no more to draw the waterfall.",
        hint="seen = np.isfinite(right) picks the entries that count. Then length of the difference over "
        "length of right, both over these entries.",
        on_error="found[seen] with a boolean array is one long vector, whatever the shape was.",
    ),
    Exercise(
        "9.2",
        "patched",
        right=patch,
        cases=[
            _patch(2, 6, 7, [1, 4], [0, 3, 5]),
            _patch(1, 5, 4, [2, 0], [3, 1]),
            _patch(3, 4, 9, [3], [8, 2]),
            _patch(1, 2, 3, [1], [0, 2]),
        ],
        turns=(
            Turn(
                lambda *a: patch(*a, where="channels"),
                "all tokens are patched: only the given ones should be.",
            ),
            Turn(
                lambda *a: patch(*a, where="tokens"),
                "all channels are patched: only the given ones should be.",
            ),
            Turn(
                lambda *a: patch(*a, where="either"),
                "a patched entry has a given token and a given channel, not one of the two.",
            ),
            Turn(
                pairwise,
                "numpy pairs two lists of indices: [t0, c0], [t1, c1]. For every combination loop over the tokens, or"
                " use np.ix_.",
            ),
            Turn(lambda *a: patch(*a, where="outside"), "this patches everything else: copy value, not right."),
            Turn(lambda *a: patch(*a, where="first"), "only the first batch entry is patched."),
            Turn(
                lambda *a: patch(*a, where="zero"), "0 takes the channels out. They should have the values of `right`."
            ),
            Turn(lambda value, right, t, c: value, "nothing was patched."),
            Turn(lambda value, right, t, c: right, "everything was patched."),
        ),
        well_done="With Replace(gate=lambda v: patched(v, ...)) it runs inside the block.",
        hint="Copy value first. Then loop over the tokens: out[:, t, channels] is one token's part for all "
        "batch entries.",
        on_error="value[:, t, channels] is one token's part, [B, len(channels)].",
    ),
    Exercise(
        "9.3",
        "share_removed",
        right=lambda b, a: 1 - (a / b) ** 2,
        cases=[(0.077, 0.035), (0.5, 0.5), (0.02, 0.03)],
        turns=(
            Turn(lambda b, a: 1 - a / b, "this is the share of the error itself. Square the ratio."),
            Turn(lambda b, a: (a / b) ** 2, "this is the share that is left: subtract it from 1."),
            Turn(lambda b, a: b**2 - a**2, "this is the square that was removed. Over which square is it a share?"),
            Turn(lambda b, a: (1 - a / b) ** 2, "square each error first: the ratio, and not the difference."),
            Turn(lambda b, a: (b**2 - a**2) / a**2, "a share of the square *before* the patch."),
            Turn(lambda b, a: 1 - (b / a) ** 2, "the ratio is upside down: after over before."),
            Turn(
                lambda b, a: max(0.0, 1 - (a / b) ** 2),
                "a patch may make it worse, and its share is negative then. Do not hide it.",
            ),
        ),
        well_done="0.79 for the neuron of this tutorial; negative for attn_out.",
        hint="What is left of the square is (after / before) ** 2.",
    ),
    Exercise(
        "9.4",
        "errors_added",
        right=added,
        cases=[
            (np.array([0.37, -0.82, 0.55]), _EXACT, _ROUGH),
            (np.array([1.37, 0.44, -0.28]), _EXACT[:2], _ROUGH[:2]),
        ],
        turns=(
            Turn(
                lambda *a: added(*a, start="own"),
                "this is end to end: the rough steps feed each other. Give each one the exact input.",
            ),
            Turn(
                lambda *a: added(*a, go_on="rough"),
                "the next step must go on from the exact result, not from the rough one.",
            ),
            Turn(always_from_x, "each step reads what the step before returned, not x again."),
            Turn(
                differences,
                "errors do not subtract: one may cancel another. Run each rough step on the exact input.",
            ),
            Turn(lambda *a: added(*a, cumulative=True), "the errors have been summed up: one for each step, please."),
            Turn(only_last, "this is the last step's error alone: return one for each step."),
        ),
        well_done="This is the local comparison of `blocklab validate`, in one loop.",
        hint="Walk along both lists. At each step give the same exact array to both functions, note the "
        "relative error, and go on with the exact result.",
        on_error="for e, r in zip(exact, rough): both are functions of one array.",
    ),
]
