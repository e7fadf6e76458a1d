"""Solutions of tutorial 9."""

import numpy as np


def masked_relative_error(found, right):
    seen = np.isfinite(right)
    return np.linalg.norm(found[seen] - right[seen]) / np.linalg.norm(right[seen])


def patched(value, right, tokens, channels):
    value = value.copy()
    for t in tokens:
        value[:, t, channels] = right[:, t, channels]
    return value


def share_removed(before, after):
    return 1 - (after / before) ** 2  # negative for a patch that makes it worse


def errors_added(x, exact, rough):
    errors = []
    for exact_step, rough_step in zip(exact, rough, strict=True):
        right, found = exact_step(x), rough_step(x)
        errors.append(np.linalg.norm(found - right) / np.linalg.norm(right))
        x = right  # the next step starts from the exact value
    return np.array(errors)
