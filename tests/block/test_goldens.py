"""Every step against other implementations, computed from what they recorded before it."""

import numpy as np
import pytest

from goldens import DUMPS, read_dump, run_along

STEPS_IN_A_DUMP = {"transformers": 13, "DeepSeek-V3": 15}


@pytest.mark.parametrize("name", DUMPS)
def test_every_recorded_step(name):
    _, metadata, _ = read_dump(name)
    storage_is_bfloat16 = metadata["recipe"] != "float32"
    seen = []

    def see(step, ours, theirs):
        seen.append(step)
        difference = np.abs(ours.astype(np.float64) - theirs)
        if not storage_is_bfloat16:
            assert np.linalg.norm(difference) <= 1e-6 * np.linalg.norm(theirs), step
            return
        ulp = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(theirs), 2.0**-126))) - 7)
        assert (difference <= ulp).all(), step
        # one element of these small tensors may sit on a tie; in the large ones 0.1 %
        assert (difference > 0).sum() <= max(1, 1e-3 * ours.size), step

    run_along(name, see)
    expected = STEPS_IN_A_DUMP["DeepSeek-V3" if "deepseek" in name else "transformers"]
    assert len(seen) >= expected, seen


@pytest.mark.parametrize("name", DUMPS)
def test_the_whole_block(name):
    _, metadata, _ = read_dump(name)
    errors = {}

    def see(step, ours, theirs):
        errors[step] = np.linalg.norm(ours.astype(np.float64) - theirs) / np.linalg.norm(theirs)

    run_along(name, see, follow=False)
    tolerance = 1e-5 if metadata["recipe"] == "float32" else 4e-3
    assert max(errors.values()) <= tolerance, errors
