"""Exercises of tutorial 10: the best-fit ratio, the worst position, distances along the bfloat16 grid."""

import numpy as np
from checks import Exercise, Turn

from blocklab.numerics import round_to


def ratio(theirs, ours):
    return np.sum(theirs * ours) / np.sum(ours * ours)


def cosine(theirs, ours):
    return np.sum(theirs * ours) / np.sqrt(np.sum(ours**2) * np.sum(theirs**2))


def worst(theirs, ours, *, over=True, axis=-1, power=2):
    error = np.sum(np.abs(theirs - ours) ** power, axis=axis)
    size = np.sum(np.abs(ours) ** power, axis=axis) if over else 1
    return int(np.argmax(error / size))


def sum_of_differences(theirs, ours):
    return int(np.argmax(np.abs((theirs - ours).sum(-1)) / np.linalg.norm(ours, axis=-1)))


def codes(x):
    return np.ascontiguousarray(x, np.float32).view(np.int32).astype(np.int64) >> 16


def places(x):
    """Place on the grid: negative codes count downwards from 0."""
    bits = codes(x) & 0xFFFF
    return np.where(bits & 0x8000, -(bits & 0x7FFF), bits)


def apart(a, b):
    return np.abs(places(a) - places(b))


def of_codes(a, b):
    return np.abs(codes(a) - codes(b))


def of_float32(a, b):
    x, y = (np.ascontiguousarray(v, np.float32).view(np.int32).astype(np.int64) for v in (a, b))
    x, y = (np.where(v < 0, -(v & 0x7FFFFFFF), v) for v in (x, y))
    return np.abs(x - y)


def signed(a, b):
    return places(a) - places(b)


def relative_ulps(a, b):
    """The difference over the gap at a."""
    gap = 2.0 ** (np.frexp(np.where(a == 0, 1, a))[1] - 8)
    return np.rint(np.abs(a.astype(np.float64) - b) / gap).astype(np.int64)


def different(a, b):
    return (a != b).astype(np.int64)


_rng = np.random.default_rng(10)


def _pair(shape, factor):
    ours = _rng.standard_normal(shape)
    return factor * ours + 0.3 * _rng.standard_normal(shape), ours


def _positions(T, D, worst_at, loud, spread, spike):
    """Errors that are worst relative to the token at one place, in absolute terms and in sum at others."""
    ours = _rng.standard_normal((T, D))
    ours[loud] *= 50
    ours[worst_at] *= 0.1
    error = 0.02 * _rng.standard_normal((T, D))
    error[loud] = 0.6 * np.resize([1.0, -1.0], D)
    error[worst_at] = 0.09 * np.resize([1.0, -1.0], D)
    error[spread] = 0.04
    error[spread, 0] += 0.3
    ours[spike] *= 3
    error[spike, -1] = 1.0
    return ours + error, ours


def _vanished(T, D, gone, twice):
    """One token of theirs is nearly 0, which is an error of 1; another is 2.5 times ours, an error of 1.5."""
    ours = _rng.standard_normal((T, D))
    theirs = ours * (1 + 0.01 * _rng.standard_normal((T, D)))
    theirs[gone] *= 1e-3
    theirs[twice] = 2.5 * ours[twice]
    return theirs, ours


def _bf16(values):
    return np.asarray(round_to(np.asarray(values, np.float32), "bfloat16"), np.float32)


_tiny = np.float32(2.0**-133)
_random = _bf16(_rng.standard_normal((3, 7)) * 2.0 ** _rng.integers(-3, 4, (3, 7)))
_near = _bf16(_random * (1 + 0.02 * _rng.standard_normal((3, 7))))

EXERCISES = [
    Exercise(
        "10.1",
        "best_fit_ratio",
        right=ratio,
        cases=[
            _pair((4, 9), 0.5),
            _pair((20,), 1.7),
            _pair((2, 3, 4), -1.0),
            (np.array([3e-9, 1e-9]), np.array([1e-9, 2e-9])),
        ],
        turns=(
            Turn(cosine, "this is the cosine: divide by the square of the length of ours, not by both lengths."),
            Turn(
                lambda t, o: np.sum(t * o) / np.sum(t * t),
                "this is the ratio the other way round: divide by ours squared.",
            ),
            Turn(
                lambda t, o: np.linalg.norm(t) / np.linalg.norm(o),
                "the ratio of lengths is not the best fit: noise makes theirs longer, and the sign is lost.",
            ),
            Turn(lambda t, o: np.mean(t / o), "the mean of ratios is ruled by entries of ours near 0."),
            Turn(lambda t, o: np.median(t / o), "the median is not the least-squares ratio (but not bad)."),
            Turn(lambda t, o: np.sum(t) / np.sum(o), "sums cancel: weight every entry by ours, then add."),
            Turn(lambda t, o: np.sum(t * o), "divide by the sum of ours squared."),
        ),
        well_done="0.5515 says mscale squared is missing; 0.5 says e4m3fn was read as e4m3fnuz.",
        hint="Minimise the sum of (theirs - r ours)^2 over r: set its derivative to 0.",
        on_error="np.sum(theirs * ours) works for any shape; `@` does not.",
    ),
    Exercise(
        "10.2",
        "worst_position",
        right=worst,
        cases=[
            (*_positions(7, 5, 4, 1, 2, 3),),
            (*_positions(5, 8, 1, 3, 0, 2),),
            (*_positions(11, 6, 9, 5, 7, 2),),
            _vanished(6, 5, 4, 1),
            (np.array([[10.0, 12.0], [1.0, 3.0], [5.0, 5.0]]), np.array([[10.0, 10.0], [1.0, 1.0], [5.0, 5.5]])),
        ],
        turns=(
            Turn(
                lambda t, o: int(np.argmax(np.linalg.norm(t - o, axis=-1) / np.linalg.norm(t, axis=-1))),
                "divide by the size of ours: theirs may be nearly 0 where it is wrong.",
            ),
            Turn(
                lambda t, o: worst(t, o, over=False),
                "this is the largest absolute error, and loud tokens win. Divide by the size of ours at each position.",
            ),
            Turn(
                lambda t, o: int(np.argmax(np.abs(t - o)) // o.shape[1]),
                "this is the position of the largest single error. Take the length of each row.",
            ),
            Turn(lambda t, o: worst(t, o, axis=0), "this is a channel: add up over the last axis."),
            Turn(
                sum_of_differences,
                "errors of both signs cancel in a sum: take the length, np.linalg.norm(..., axis=-1).",
            ),
            Turn(
                lambda t, o: int(np.argmax(np.abs(t - o))),
                "np.argmax without an axis counts through the whole array: take lengths of rows first.",
            ),
            Turn(
                lambda t, o: int(np.argmin(np.linalg.norm(t - o, axis=-1) / np.linalg.norm(o, axis=-1))),
                "this is where it is best: np.argmax.",
            ),
            Turn(
                lambda t, o: float(np.max(np.linalg.norm(t - o, axis=-1) / np.linalg.norm(o, axis=-1))),
                "this is the error itself: return its position, np.argmax.",
            ),
        ),
        well_done="This is the column `worst at` of the report.",
        hint="Two lengths for each position, both along the last axis: of the difference, and of ours.",
        on_error="np.linalg.norm(x, axis=-1) has one length for each position.",
        same_type=True,
    ),
    Exercise(
        "10.3",
        "steps_apart",
        right=apart,
        cases=[
            (_random, _near),
            (_bf16([1.0, 1.0, 2.0, 0.0, 0.0]), _bf16([1.0078125, 0.99609375, 1.9921875, _tiny, -0.0])),
            (_bf16([-1.0, -2.0, _tiny, 0.5]), _bf16([-1.0078125, -1.9921875, -_tiny, -0.5])),
            (_bf16([3e38]), _bf16([-3e38])),
        ],
        turns=(
            Turn(
                of_codes,
                "right as long as the signs agree. Negative codes grow downwards: map them to minus their magnitude.",
            ),
            Turn(of_float32, "these are steps of float32: shift the bits right by 16."),
            Turn(signed, "this has a sign: return the distance, np.abs."),
            Turn(
                relative_ulps,
                "this divides by the gap at a, which is another one across a power of two or near 0. Count codes.",
            ),
            Turn(different, "this says only whether they differ. Count the steps."),
            Turn(
                lambda a, b: np.abs(a - b),
                "this is the difference of the values. Count numbers between them: compare the codes.",
            ),
        ),
        well_done="-0 and 0 are the same place, and the report's `ulp` means this, roughly.",
        hint="Map each number to its place on the grid: the code for positive numbers, minus the code of the "
        "magnitude for negative ones. Then subtract.",
        on_error="a.view(np.int32) needs a float32 array; codes are integers.",
        same_type=True,
    ),
]
