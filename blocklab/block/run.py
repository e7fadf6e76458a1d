"""One run of the block: what is computed, and what the block says to it at every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from blocklab.block.cache import LatentCache
from blocklab.block.config import BlockConfig
from blocklab.block.operations import as_it_is, rms_norm, rotate
from blocklab.block.steps import STEPS
from blocklab.block.taps import Tap, listens, no_tap, see
from blocklab.numerics import Recipe, round_to
from blocklab.numerics.linears import multiply
from blocklab.numerics.threads import elementwise
from blocklab.numerics.weight import Weight
from blocklab.xp import Array


@dataclass(frozen=True)
class Run:
    """What is being computed; attention and MLP say of each value which step it is.

    config     sizes, eps and rotary settings of the block
    recipe     where values are rounded, and how dots accumulate
    attention  "naive" or "absorb"
    cache      keys of earlier tokens, which the run extends
    tap        sees every step, and may replace it
    """

    config: BlockConfig
    recipe: Recipe
    attention: str = "naive"
    cache: LatentCache | None = None
    tap: Tap = no_tap

    def show(self, step: str, value: Array) -> Array:
        """Show a value that needs no rounding to the tap and return what the tap makes of it."""
        return see(self.tap, step, self.round(step, value) if step in self.recipe.exceptions else value)

    def store(self, step: str, value: Array) -> Array:
        """Round a value to the step's format, once, and show it."""
        return see(self.tap, step, self.round(step, value))

    def linear(self, step: str, x: Array, weight: Weight) -> Array:
        """Multiply x [B, T, K] or [B, T, H, K / H] by a weight [N, K] and store W x in the axes of the step."""
        N, K = weight.shape
        y = multiply(x.reshape(*x.shape[:2], K), weight, self.recipe, step, partial(see, self.tap))  # [B, T, N]
        H = self.config.num_attention_heads
        heads = (H, N // H) if "H" in STEPS[step].axes else (N,)
        return self.store(step, y.reshape(*y.shape[:2], *heads))

    def norm(self, step: str, x: Array, gain: Weight) -> Array:
        """Store the RMSNorm of x [B, T, .]; norm="twice" rounds before the gain, too."""
        inner = self.rounding(step) if self.recipe.norm == "twice" else as_it_is
        return self.store(step, rms_norm(self.work(x), self.work(gain.values()), self.eps(step), inner))

    def rotate(self, step: str, x: Array, R: Array) -> Array:
        """Store x [B, T, R] or [B, T, H, R] rotated by R; rotation="each" rounds every product, too."""
        inner = self.rounding(step) if self.recipe.rotation == "each" else as_it_is
        return self.store(step, rotate(self.work(x), R, inner))

    def each(self, step: str, formula: Callable[..., Array], *arrays: Array) -> Array:
        """Store a formula of single elements, computed in parts on threads."""

        def part(*parts: Array) -> Array:
            return self.round(step, formula(*map(self.work, parts)))

        return see(self.tap, step, elementwise(part, self.recipe.carrier, *arrays))

    def round(self, step: str, value: Array) -> Array:
        """Return a value in the step's format, without showing it."""
        return self.recipe.round(value, step)

    def rounding(self, step: str) -> Callable[[Array], Array]:
        """Return what rounds to the step's format inside the step, in the precision at hand."""
        return lambda value: round_to(value, self.recipe.format_of(step))

    def work(self, value: Array) -> Array:
        """Return a value in the precision of what happens inside a step."""
        return value.astype(self.recipe.work, copy=False)

    def eps(self, step: str) -> float:
        """Return the eps of a norm: the config's, but for the latent norms of recipes that have their own."""
        own = self.recipe.latent_norm_eps if STEPS[step].eps == "latent_norm_eps" else None
        return self.config.rms_norm_eps if own is None else own

    def listens(self, *steps: str) -> bool:
        """Whether the tap sees any of the steps."""
        return any(listens(self.tap, step) for step in steps)

    def quiet(self) -> Run:
        """Return this run with nobody listening."""
        return replace(self, tap=no_tap)
