"""Options that several commands share: which block, which tokens, which arithmetic."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import numpy as np

from blocklab.block.config import PRESETS
from blocklab.block.dense import dense_block
from blocklab.block.masks import causal_mask
from blocklab.block.rotary import rotary_table
from blocklab.block.taps import Tap, listens
from blocklab.errors import InputError, brief
from blocklab.numerics import RECIPES, Recipe, get_recipe
from blocklab.store.estimate import estimate
from blocklab.store.inputs import (
    Model,
    Tokens,
    open_model,
    parse_positions,
    tokens_from_file,
    tokens_from_ids,
    tokens_from_seed,
    tokens_from_text,
)
from blocklab.store.memory import require_memory
from blocklab.store.trace import Recorder, Trace, recorded
from blocklab.xp import asnumpy, move, open_device

DEFAULT_PRESET, DEFAULT_RECIPE = "kimi-k2-small", "deepseek-fp8"
NO_LAYER = "--layer is for a checkpoint; a preset has one block"


@dataclass(frozen=True)
class Setup:
    """What a run needs: a block, tokens at positions, and the arithmetic."""

    model: Model
    tokens: Tokens
    positions: np.ndarray
    recipe: Recipe
    attention: str
    origin: Mapping[str, str]
    xp: ModuleType = np

    @cached_property
    def R(self) -> np.ndarray:
        """The rotary table, in the precision of the recipe."""
        return rotary_table(self.model.config, self.positions, self.recipe.rotary_table)

    @cached_property
    def M(self) -> np.ndarray:
        """The causal mask."""
        return causal_mask(self.tokens.x.shape[1])

    @property
    def about(self) -> dict[str, str]:
        """What a trace of this run says about itself, as text."""
        labels = {"labels": json.dumps(self.tokens.labels)} if self.tokens.labels else {}
        places = json.dumps(self.positions.tolist())
        return {"model": self.model.name, "source": self.tokens.source, "positions": places, **self.origin, **labels}

    def trace(self, steps: str = "*,*.in.*") -> Trace:
        """Run the block and keep its steps."""
        recorder = Recorder(steps)
        self.run(recorder, kept=recorder)
        return self.recorded(recorder)

    def run(self, tap: Tap, kept: Recorder | None = None) -> np.ndarray:
        """Run the block under a tap, on the GPU if that is where `xp` lives, and return its output.

        kept  the recorder in the tap, if any
        Errors: InputError before anything is computed, where the run would need more memory than is free.
        """
        if self.xp is np:
            self._require_memory(tap, kept)
        x, R, M = (move(a, self.xp) for a in (self.tokens.x, self.R, self.M))
        weights = self.model.weights if self.xp is np else self.model.weights.to(self.xp)
        return asnumpy(dense_block(x, R, M, weights, self.recipe, self.attention, tap=tap))

    def _require_memory(self, tap: Tap, kept: Recorder | None) -> None:
        B, T, _ = self.tokens.x.shape
        keeps = kept.wants if kept is not None else lambda name: False
        need = estimate(self.model.config, B, T, T, self.recipe, lambda name: listens(tap, name), keeps)
        advice = f"take fewer than {T} tokens"
        if need.scores > need.total / 2 and listens(tap, "pattern"):
            advice += ", or leave out the scores (--steps 'resid_*,mlp_*'), which are then computed in tiles"
        elif need.kept > need.total / 2:
            advice += ", or record fewer steps (--steps)"
        require_memory(need.total, f"{B} x {T} tokens in {self.recipe.name}", advice)

    def recorded(self, recorder: Recorder) -> Trace:
        """Return what a recorder kept of this run, and what a trace should say about it."""
        return recorded(recorder, self.R, self.M, self.model.config, self.recipe, self.attention, **self.about)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add --preset, --checkpoint, --layer and --seed."""
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--preset", choices=PRESETS, help=f"default: {DEFAULT_PRESET}")
    model.add_argument("--checkpoint", metavar="DIR", help="a checkpoint in the published layout")
    parser.add_argument("--layer", type=int, help="which dense layer of the checkpoint (default: 0)")
    parser.add_argument("--seed", type=int, help="of synthetic weights and input (default: 0)")


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Add --input, --token-ids, --text, --batch, --tokens and --positions."""
    tokens = parser.add_mutually_exclusive_group()
    tokens.add_argument("--input", metavar="FILE", help="activations: `input` of a safetensors or npz file")
    tokens.add_argument("--token-ids", metavar="1,2,3", help="rows of the embedding")
    tokens.add_argument("--text", help="bytes as tokens, for presets and checkpoints made by synth")
    parser.add_argument("--batch", type=int, help="of the seeded input (default: 1)")
    parser.add_argument("--tokens", type=int, help="of the seeded input (default: 16)")
    parser.add_argument("--positions", metavar="START|LIST", help="default: from 0")


def add_recipe_options(parser: argparse.ArgumentParser) -> None:
    """Add --recipe and --attention."""
    parser.add_argument(
        "--recipe",
        metavar="NAME[,OPTION=VALUE]",
        help=f"where to round: {', '.join(RECIPES)} (default: {DEFAULT_RECIPE})",
    )
    parser.add_argument("--attention", choices=("naive", "absorb"), help="default: naive")


def read_model(
    options: argparse.Namespace, origin: Mapping[str, str] | None = None, source: str = "trace"
) -> tuple[Model, dict[str, str]]:
    """Open the block that the options name, and say which it is, so that a trace can name it again.

    origin  what a trace says about its own block (its metadata), used where the options name none
    source  the trace's file, for messages
    """
    origin = {} if origin is None or options.preset or options.checkpoint else origin
    checkpoint = options.checkpoint or origin.get("checkpoint")
    preset = options.preset or origin.get("preset", DEFAULT_PRESET)
    layer = told_number(origin, "layer", source) if options.layer is None else options.layer
    seed = told_number(origin, "seed", source) if options.seed is None else options.seed
    if seed < 0:
        raise InputError(f"seed: expected 0 or more; found {seed}")
    where = {"checkpoint": str(checkpoint), "layer": str(layer)} if checkpoint else {"preset": preset}
    return open_model(preset, checkpoint, layer, seed), where | {"seed": str(seed)}


def told_number(origin: Mapping[str, str], name: str, where: str) -> int:
    """Return the layer or seed that a trace says it came from, 0 where it says nothing."""
    text = origin.get(name, "0")
    if not (text.isdecimal() and len(text) < 20):
        raise InputError(f"{where}: metadata {name}: expected a number from 0 on; found {brief(text)}")
    return int(text)


def read_setup(options: argparse.Namespace) -> Setup:
    """Open the block, the tokens and the recipe that the options name."""
    if options.layer is not None and not options.checkpoint:
        raise InputError(NO_LAYER)
    recipe, xp = get_recipe(options.recipe or DEFAULT_RECIPE), open_device(getattr(options, "device", "cpu"))
    model, origin = read_model(options)
    tokens = read_tokens(model, options)
    positions = parse_positions(options.positions, tokens.x.shape[1])
    return Setup(model, tokens, positions, recipe, options.attention or "naive", origin, xp)


def refuse_run_options(options: argparse.Namespace, *others: str) -> None:
    """Refuse, beside --trace, the options of a new run: of its input and arithmetic, and `others`."""
    names = ("input", "token_ids", "text", "batch", "tokens", "positions", "attention", *others)
    given = [name for name in names if getattr(options, name) is not None]
    if given:
        raise InputError(f"--{given[0].replace('_', '-')} is for a new run; --trace shows one that is saved")


def read_tokens(model: Model, options: argparse.Namespace) -> Tokens:
    """Return the input that the options name: a text, a file, token ids, or seeded random tokens."""
    chosen = [n for n in ("input", "token_ids", "text") if getattr(options, n) is not None]
    sized = [n for n in ("batch", "tokens") if getattr(options, n) is not None]
    if chosen and sized:
        raise InputError(f"--{sized[0]} is for the seeded input; --{chosen[0].replace('_', '-')} brings its own size")
    if options.text is not None:
        return tokens_from_text(model, options.text)
    if options.input is not None:
        return tokens_from_file(model.config, options.input)
    if options.token_ids is not None:
        try:
            ids = [int(i) for i in options.token_ids.split(",")]
        except ValueError:
            raise InputError(f"token ids: expected integers such as 1,2,3; found {options.token_ids!r}") from None
        return tokens_from_ids(model, ids)
    batch, length = (
        default if given is None else given for given, default in ((options.batch, 1), (options.tokens, 16))
    )
    return tokens_from_seed(model, batch, length, model.seed)
