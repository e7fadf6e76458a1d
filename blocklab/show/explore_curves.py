"""What each step alone adds to the error, for the explorer's chart."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from blocklab.numerics import Recipe, round_to
from blocklab.show.waterfall import ErrorTap
from blocklab.xp import Array


class AloneTap(ErrorTap):
    """A tap that measures each step against another run's values and then goes on with those, rounded as stored."""

    def __init__(self, reference: Mapping[str, np.ndarray], recipe: Recipe) -> None:
        """Compare with a trace; the run is in this recipe."""
        super().__init__(reference)
        self.storage = recipe.storage

    def __call__(self, name: str, value: Array) -> Array:
        """Measure the value and return the other run's."""
        super().__call__(name, value)
        return round_to(self.reference[name], self.storage).astype(value.dtype, copy=False)
