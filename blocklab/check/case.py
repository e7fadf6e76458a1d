"""One run of the block with everything it is given, and small changes to it: what a mistake is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from blocklab.block.cache import LatentCache
from blocklab.block.config import BlockConfig
from blocklab.block.dense import dense_block, mlp_half
from blocklab.block.masks import fit_mask
from blocklab.block.rotary import rotary_table
from blocklab.block.run import Run
from blocklab.block.steps import STEPS
from blocklab.block.taps import Tap, listens, no_tap, see
from blocklab.block.weights import BlockWeights
from blocklab.numerics import Recipe
from blocklab.store.trace import Recorder

Seen: TypeAlias = Mapping[str, np.ndarray]
Rewrite: TypeAlias = "Callable[[Seen, np.ndarray, Case], np.ndarray]"
"""(values of the steps before, this step's value, run) -> what the step is instead."""


@dataclass(frozen=True)
class Case:
    """A run of the block: arguments of `dense_block`, and steps that are rewritten on the way.

    positions  [B, T]; R is their rotary table
    prefill    tokens that were computed at once before the rest came one by one or in a chunk; None for all
    theirs     what somebody recorded of a run meant to be this one, from which a mistake's number can be read off
    rewrite    step, or NAME.in.codes and NAME.in.scale of an FP8 linear -> what it is instead
    """

    x: np.ndarray
    positions: np.ndarray
    R: np.ndarray
    M: np.ndarray
    weights: BlockWeights
    recipe: Recipe
    attention: str = "naive"
    cache: LatentCache | None = None
    rewrite: Mapping[str, Rewrite] = field(default_factory=dict)
    prefill: int | None = None
    theirs: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def config(self) -> BlockConfig:
        """The sizes and settings of the block."""
        return self.weights.config

    @property
    def block(self) -> Run:
        """What the block says of this run to its formulas, with nobody listening."""
        return Run(self.config, self.recipe, self.attention)

    def go(self, tap: Tap = no_tap) -> np.ndarray:
        """Run the block under a tap and return its output. The cache stays as it is."""
        cache = None if self.cache is None else replace(self.cache)  # the block extends it
        watched = _Rewriting(self, tap) if self.rewrite else tap
        return np.asarray(
            dense_block(self.x, self.R, self.M, self.weights, self.recipe, self.attention, cache, watched)
        )

    def go_from(self, attn_out: np.ndarray, tap: Tap) -> None:
        """Run under a tap what follows attention, as `dense_block` does, from a recorded attn_out."""
        block = replace(self.block, tap=_Rewriting(self, tap) if self.rewrite else tap)
        x = block.store("resid_pre", self.x)
        block.norm("attn_norm", x, self.weights.input_layernorm)
        x = block.store("resid_mid", x + see(block.tap, "attn_out", attn_out))
        mlp_half(block, x, self.weights)

    def record(self, steps: str = "*") -> dict[str, np.ndarray]:
        """Run the block and return its steps."""
        recorder = Recorder(steps)
        self.go(recorder)
        return recorder.values

    def change(self, **changes: Any) -> Case:
        """Return this run with other arguments."""
        return replace(self, **changes)

    def rewriting(self, **steps: Rewrite) -> Case:
        """Return this run with some steps rewritten, beside those that are already."""
        return self.change(rewrite={**self.rewrite, **steps})

    def with_config(self, **settings: Any) -> Case:
        """Return this run with other settings in its config; the rotary table stays."""
        config = replace(self.config, **settings)
        return self.change(weights=replace(self.weights, config=config))

    def with_recipe(self, **options: Any) -> Case:
        """Return this run with other options in its recipe."""
        return self.change(recipe=self.recipe.replace(**options))

    def with_table(self, config: BlockConfig, positions: np.ndarray | None = None) -> Case:
        """Return this run with the rotary table of another config or of other positions."""
        places = self.positions if positions is None else positions
        return self.change(R=np.asarray(rotary_table(config, places, self.recipe.rotary_table)))

    def mask(self, values: np.ndarray) -> np.ndarray:
        """Return the mask fitted to scores [B, H, T, S]."""
        return np.asarray(fit_mask(self.M, *values.shape))

    def with_cached(self, name: str, value: np.ndarray) -> np.ndarray:
        """Return a step that a cache keeps with the cached positions before the new ones; others as they are."""
        cached = getattr(self.cache, name, None)
        return value if cached is None else np.concatenate([cached, value], axis=1)

    @property
    def past(self) -> int:
        """The number of cached positions."""
        return 0 if self.cache is None else len(self.cache)

    def take(self, sequences: slice, tokens: np.ndarray) -> Case:
        """Return the run of some tokens of some sequences; all that is cached stays."""
        B = len(self.x)
        R = self.R[sequences] if self.R.ndim == 3 and len(self.R) == B else self.R
        M = self.M[sequences] if self.M.ndim > 2 and len(self.M) == B else self.M
        M = M if M.shape[-2] == 1 else M[..., tokens, :]
        M = M[..., all_keys(tokens, self.past)]
        cache = self.cache
        if cache is not None:
            assert cache.kv_latent_norm is not None
            assert cache.k_rot is not None
            cache = LatentCache(cache.kv_latent_norm[sequences], cache.k_rot[sequences])
        x, positions = self.x[sequences][:, tokens], self.positions[sequences][:, tokens]
        return self.change(x=x, positions=positions, R=R[..., tokens, :], M=M, cache=cache)

    def doubled(self) -> Case:
        """Return this run with every sequence twice: the first copy to leave alone, the second to work on."""
        B = len(self.x)
        R = np.broadcast_to(self.R, (B, *self.R.shape[-2:]))
        M = np.concatenate([self.M, self.M]) if self.M.ndim > 2 and len(self.M) == B else self.M
        cache = self.cache
        if cache is not None:
            assert cache.kv_latent_norm is not None
            assert cache.k_rot is not None
            cache = LatentCache(np.concatenate([cache.kv_latent_norm] * 2), np.concatenate([cache.k_rot] * 2))
        twice = (np.concatenate([a, a]) for a in (self.x, self.positions, R))
        x, positions, R = twice
        return self.change(x=x, positions=positions, R=R, M=M, cache=cache)


def all_keys(tokens: np.ndarray, past: int) -> np.ndarray:
    """Return the keys of some tokens: all cached ones, and their own."""
    return np.concatenate([np.arange(past), past + tokens])


class _Rewriting:
    """The tap that rewrites steps, then shows them to another, whose replacements later rewrites see."""

    def __init__(self, case: Case, tap: Tap) -> None:
        self.case, self.tap = case, tap
        self.seen: dict[str, np.ndarray] = {}

    def wants(self, name: str) -> bool:
        return name in STEPS or name in self.case.rewrite or listens(self.tap, name)

    def __call__(self, name: str, value: np.ndarray) -> np.ndarray:
        rewrite = self.case.rewrite.get(name)
        if rewrite is not None:
            value = np.ascontiguousarray(rewrite(self.seen, value, self.case), dtype=value.dtype)
        value = see(self.tap, name, value)
        self.seen[name] = value
        return value
