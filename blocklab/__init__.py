"""blocklab: one Kimi K2 transformer block in plain numpy, step by step, with every rounding of FP8 and bfloat16."""

from blocklab.block.cache import LatentCache
from blocklab.block.config import BlockConfig
from blocklab.block.dense import dense_block
from blocklab.block.masks import causal_mask
from blocklab.block.rotary import rotary_table
from blocklab.check import compare, validate
from blocklab.errors import InputError
from blocklab.numerics import RECIPES
from blocklab.store.checkpoint import load_weights
from blocklab.store.trace import load_trace, trace
from blocklab.synth.weights import synthetic_embedding, synthetic_weights, text_tokens

__version__ = "0.1.0"

__all__ = [
    "RECIPES",
    "BlockConfig",
    "InputError",
    "LatentCache",
    "__version__",
    "causal_mask",
    "compare",
    "dense_block",
    "load_trace",
    "load_weights",
    "rotary_table",
    "synthetic_embedding",
    "synthetic_weights",
    "text_tokens",
    "trace",
    "validate",
]
