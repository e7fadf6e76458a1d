"""Number formats, scaling, dots and recipes: what the block computes with."""

from blocklab.numerics.codes import decode, encode
from blocklab.numerics.dots import dot, fp8_matmul
from blocklab.numerics.formats import FORMATS, Format, get_format
from blocklab.numerics.recipes import RECIPES, Recipe, get_recipe
from blocklab.numerics.rounding import round_to
from blocklab.numerics.scaling import dequantize, quantize

__all__ = [
    "FORMATS",
    "RECIPES",
    "Format",
    "Recipe",
    "decode",
    "dequantize",
    "dot",
    "encode",
    "fp8_matmul",
    "get_format",
    "get_recipe",
    "quantize",
    "round_to",
]
