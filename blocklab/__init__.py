"""blocklab: one Kimi K2 transformer block in plain numpy, step by step, with every rounding of FP8 and bfloat16."""

from blocklab.block.config import BlockConfig
from blocklab.block.dense import dense_block
from blocklab.block.masks import causal_mask
from blocklab.block.rotary import rotary_table
from blocklab.errors import InputError
from blocklab.numerics import RECIPES

__version__ = "0.1.0"

__all__ = [
    "RECIPES",
    "BlockConfig",
    "InputError",
    "causal_mask",
    "dense_block",
    "rotary_table",
]
