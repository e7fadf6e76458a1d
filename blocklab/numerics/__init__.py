"""Number formats, scaling, dots and recipes: what the block computes with."""

from blocklab.numerics.codes import decode, encode
from blocklab.numerics.dots import dot, fp8_matmul
from blocklab.numerics.formats import FORMATS, Format, decode_plain, get_format, round_plain
from blocklab.numerics.microscaling import dequantize_mx, dequantize_nvfp4, quantize_mx, quantize_nvfp4
from blocklab.numerics.recipes import RECIPES, Recipe, get_recipe
from blocklab.numerics.rounding import round_to
from blocklab.numerics.scaling import dequantize, quantize
from blocklab.numerics.tensor_core import CORES, TensorCore, step_plain, tensor_core_dot

__all__ = [
    "CORES",
    "FORMATS",
    "RECIPES",
    "Format",
    "Recipe",
    "TensorCore",
    "decode",
    "decode_plain",
    "dequantize",
    "dequantize_mx",
    "dequantize_nvfp4",
    "dot",
    "encode",
    "fp8_matmul",
    "get_format",
    "get_recipe",
    "quantize",
    "quantize_mx",
    "quantize_nvfp4",
    "round_plain",
    "round_to",
    "step_plain",
    "tensor_core_dot",
]
