"""The pictures that the project shows: what each is of, what to see in it, and how to make it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklab.block.config import BlockConfig
from blocklab.block.masks import causal_mask
from blocklab.errors import InputError
from blocklab.show import style
from blocklab.show.accumulator import accumulation, draw_accumulation
from blocklab.show.attention_plot import draw_gaze, draw_patterns, patterns
from blocklab.show.channels_plot import channels, draw_channels
from blocklab.show.example import PRESET, TEXT, cat
from blocklab.show.fp8_histogram import draw_grid_use, step_grid_use
from blocklab.show.heatmap import draw_heat_map, error_view, heat_map
from blocklab.show.rotary_plots import angles, draw_angles, draw_ramp, ramp
from blocklab.show.views import view
from blocklab.show.waterfall import draw_waterfall, waterfall
from blocklab.show.weight_scales import block_scales, draw_block_scales
from blocklab.store.trace import Trace
from blocklab.store.writing import atomic_write
from figures.softmax_scale import draw_scale_effect, scale_effect

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOKEN = 7
"""The query that is looked at: the t of "cat"."""

SMALL = f"{PRESET}, synthetic weights, deepseek-fp8: {TEXT!r}"


@dataclass(frozen=True)
class Picture:
    """One committed picture.

    see   one sentence: what to see in it
    data  computes the arrays behind it
    draw  the picture of these arrays
    """

    name: str
    see: str
    data: Callable[[], Any]
    draw: Callable[[Any], Figure]

    @cached_property
    def arrays(self) -> Any:
        """The arrays behind the picture, computed once."""
        return self.data()

    def make(self) -> Figure:
        """Compute and draw."""
        return self.draw(self.arrays)


@cache
def example_trace(recipe: str = "deepseek-fp8") -> Trace:
    """Return the trace of the example text under a recipe."""
    return cat().trace(recipe)


def kimi() -> BlockConfig:
    """Return the published config."""
    return BlockConfig.preset("kimi-k2")


PICTURES = (
    Picture(
        "attn-norm-channels",
        "One channel, 426, is nine times as loud as the median channel after the first norm, and one other is above"
        " four times.",
        lambda: channels(example_trace(), "attn_norm"),
        lambda data: draw_channels(data, SMALL),
    ),
    Picture(
        "act-heatmap",
        "Neurons 226, 747, 0 and 881 reach 10 to 28 where nearly all others stay below 2; they are trimmed and marked"
        " by triangles, since colours that reach them would show nothing else.",
        lambda: heat_map(view(example_trace(), "act")),
        lambda data: draw_heat_map(data, SMALL),
    ),
    Picture(
        "pattern-heads",
        "Head 0 looks at the token before, head 1 at equal bytes, head 2 at the first token; the others are noise, and"
        " look anywhere.",
        lambda: patterns(example_trace()),
        draw_patterns,
    ),
    Picture(
        "pattern-token-7",
        "From token 7, the t of cat, head 0 looks at the a before it, head 1 evenly at both t's so far, head 2 at the"
        " start of the text.",
        lambda: patterns(example_trace()),
        lambda data: draw_gaze(data, TOKEN, SMALL),
    ),
    Picture(
        "softmax-scale",
        "The right scale of Kimi K2, 0.1309, is 192^-1/2 times the square of YaRN's mscale; every smaller one spreads"
        " attention over more keys.",
        lambda: scale_effect(example_trace(), cat().model.config, kimi(), head=7, query=len(cat().positions) - 1),
        lambda data: draw_scale_effect(data, PRESET),
    ),
    Picture(
        "waterfall",
        "Nearly all of the error of mlp_out comes from FP8: it is several times the error of bfloat16 alone, and"
        " Hopper's register adds next to nothing.",
        lambda: waterfall(cat().weights, cat().tokens.x, cat().positions, causal_mask(len(cat().positions))),
        lambda data: draw_waterfall(data, f"{PRESET}, synthetic weights: {TEXT!r}"),
    ),
    Picture(
        "mlp-out-error",
        "Three quarters of the squared error of mlp_out sit at the three a's: there the vowel neuron, 13.5 in float64,"
        " is 11.6 under FP8, and its column of W_down carries that to all channels.",
        lambda: error_view(example_trace("float64"), example_trace(), "mlp_out"),
        lambda data: draw_heat_map(
            heat_map(data[0]), f"deepseek-fp8 minus float64: {data[1]:.1%} of the norm", "error / rms of the step"
        ),
    ),
    Picture(
        "fp8-grid",
        "The largest of each 128 values is at 448, most lie between 8 and 128, and 0.2 % are subnormal: e4m3 has room"
        " below, not above.",
        lambda: step_grid_use(example_trace(), "mlp_out.in.codes"),
        lambda data: draw_grid_use(data, "The quantised input of mlp_out on the e4m3 grid", SMALL),
    ),
    Picture(
        "weight-scales",
        "Neighbouring blocks differ by factors of two, so that a lost or transposed scale shows; rows 1, 5 and 6, with"
        " the outlier neurons, have larger scales; the block of zeros is hatched.",
        lambda: block_scales(cat().weights, "mlp.up_proj.weight"),
        draw_block_scales,
    ),
    Picture(
        "rotary-angles",
        "The first pairs turn within a few positions, the last ones hardly move in 256: fast pairs tell neighbours"
        " apart, slow ones far places.",
        lambda: angles(kimi(), np.arange(256)),
        lambda data: draw_angles(data, "Kimi K2, with YaRN"),
    ),
    Picture(
        "yarn-ramp",
        "Kimi K2 keeps pairs 0 to 19 and slows pairs 20 to 31 by 32, in one step; the usual beta_fast of 32 would"
        " slow pairs from 9 on.",
        lambda: ramp(kimi()),
        lambda data: draw_ramp(data, "Kimi K2: theta 50000, factor 32, beta_fast 1"),
    ),
    Picture(
        "accumulator",
        "Left alone for 7168 products, Hopper's 14-bit register loses ten times as much as one that is promoted to"
        " float32 every 128, and more than a rounding to bfloat16 does.",
        accumulation,
        lambda data: draw_accumulation(data, "rms over 256 dots of normal values on the e4m3 grid"),
    ),
)
"""The pictures in the order in which a reader meets them."""


def make_figures(directory: str | Path) -> list[Path]:
    """Write all pictures as PNG, and the README that says what to see, into a folder; return the files.

    Errors: InputError where the folder cannot be written.
    """
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}") from None
    files = []
    for picture in PICTURES:
        files.append(folder / f"{picture.name}.png")
        style.save(picture.make(), files[-1])
    atomic_write(folder / "README.md", readme())
    return [*files, folder / "README.md"]


def readme() -> str:
    """Return the text that says what to see in each picture."""
    parts = [
        "# Figures",
        "Made by `blocklab figures`; the numbers in the sentences are tested. Nothing here is edited.",
    ]
    parts += [f"## {picture.name}\n\n{picture.see}\n\n![{picture.name}]({picture.name}.png)" for picture in PICTURES]
    return "\n\n".join(parts) + "\n"
