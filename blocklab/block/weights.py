"""The parameters of a block under the names of the published checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from blocklab.block.config import BlockConfig
from blocklab.errors import InputError, listed
from blocklab.file_array import in_memory
from blocklab.numerics import decode
from blocklab.numerics.scaling import block_sizes, check_grid, dequantize_tile
from blocklab.xp import Array, move


@dataclass(frozen=True, eq=False)
class Weight:
    """One parameter as it is stored: raw values, and block scales where it is FP8.

    raw     [N, K] or [N]: codes (uint8 for e4m3fn, uint16 for bfloat16), else floats; a checkpoint's is a FileArray,
            of which nothing is read before it is used
    format  "e4m3fn", "bfloat16", "float16", "float32" or "float64"
    scale   [ceil(N / block[0]), ceil(K / block[1])] float32, which multiplies; FP8 only
    block   rows and columns that share one scale; the last ones may be short; FP8 only
    """

    raw: Array
    format: str
    scale: Array | None = None
    block: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if (self.scale is None) != (self.block is None):
            raise InputError(f"weight: expected scales and their blocks together; found one, and blocks {self.block}")
        if self.scale is not None and self.block is not None:
            rows, columns = block_sizes(self.block, self.shape, "weight")
            check_grid("weight", "scale", self.scale, self.shape, rows, columns)

    @property
    def shape(self) -> tuple[int, ...]:
        """[N, K] of a matrix, [N] of a gain."""
        return tuple(self.raw.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the values and the scales as stored."""
        return int(self.raw.nbytes) + (0 if self.scale is None else int(self.scale.nbytes))

    def values(self, rows: slice = slice(None), columns: slice = slice(None)) -> Array:
        """Return a tile of values: float32(code) * scale in float32 for FP8, exact otherwise."""
        if self.scale is None or self.block is None:
            return decode(self.raw[rows, columns] if self.raw.ndim > 1 else self.raw[rows], self.format)
        return dequantize_tile(self.raw, self.scale, self.block, self.format, rows, columns)

    def to(self, xp: ModuleType) -> Weight:
        """Return the weight with codes and scales as arrays of numpy or cupy."""
        return replace(
            self, raw=move(in_memory(self.raw), xp), scale=None if self.scale is None else move(self.scale, xp)
        )


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """The weights of latent attention, each [out, in]."""

    q_a_proj: Weight | None  # None where queries are not compressed: q_lora_rank null
    q_a_layernorm: Weight | None
    q_b_proj: Weight  # the checkpoint's q_proj where queries are not compressed
    kv_a_proj_with_mqa: Weight
    kv_a_layernorm: Weight
    kv_b_proj: Weight
    o_proj: Weight


@dataclass(frozen=True, eq=False)
class MlpWeights:
    """The weights of the SwiGLU MLP, each [out, in]."""

    gate_proj: Weight
    up_proj: Weight
    down_proj: Weight


@dataclass(frozen=True, eq=False)
class BlockWeights:
    """All parameters of one dense block, and the config that they fit."""

    config: BlockConfig
    input_layernorm: Weight
    self_attn: AttentionWeights
    post_attention_layernorm: Weight
    mlp: MlpWeights

    def __post_init__(self) -> None:
        named = self.named()
        for name, shape in weight_shapes(self.config).items():
            found = named[name].shape if isinstance(named[name], Weight) else type(named[name]).__name__
            if found != shape:
                raise InputError(f"weights: {name}: expected a Weight {list(shape)}; found {found}")

    @classmethod
    def from_mapping(cls, config: BlockConfig, named: Mapping[str, Weight]) -> BlockWeights:
        """Build from the names of `weight_shapes(config)`.

        Errors: InputError for a name that is missing, and for another shape.
        """
        missing = weight_shapes(config).keys() - named.keys()
        if missing:
            raise InputError(f"weights: expected {min(missing)}; found {listed(named)}")
        attention: dict[str, Any] = dict.fromkeys(AttentionWeights.__dataclass_fields__)
        mlp = {}
        for name in weight_shapes(config):
            part, _, leaf = name.removesuffix(".weight").partition(".")
            if part == "self_attn":
                attention["q_b_proj" if leaf == "q_proj" else leaf] = named[name]
            elif part == "mlp":
                mlp[leaf] = named[name]
        return cls(
            config,
            input_layernorm=named["input_layernorm.weight"],
            self_attn=AttentionWeights(**attention),
            post_attention_layernorm=named["post_attention_layernorm.weight"],
            mlp=MlpWeights(**mlp),
        )

    def to(self, xp: ModuleType) -> BlockWeights:
        """Return the weights as arrays of numpy or cupy, still encoded: `weights.to(cupy)` copies them to the GPU."""
        moved = {name: weight.to(xp) for name, weight in self.named().items()}
        return self.from_mapping(self.config, moved)

    def named(self) -> dict[str, Weight]:
        """Return every weight under its checkpoint name, relative to the layer."""
        found = {}
        for name in weight_shapes(self.config):
            part, _, leaf = name.removesuffix(".weight").partition(".")
            holder = getattr(self, part)
            found[name] = getattr(holder, "q_b_proj" if leaf == "q_proj" else leaf) if leaf else holder
        return found


def require_weights(weights: object) -> None:
    """Refuse what are no weights of a block."""
    if not isinstance(weights, BlockWeights):
        raise InputError(
            "weights: expected BlockWeights, from load_weights(path) or synthetic_weights(config);"
            f" found {type(weights).__name__}"
        )


def weight_shapes(config: BlockConfig) -> dict[str, tuple[int, ...]]:
    """Return name (relative to the layer) -> shape of every parameter of a dense block, in reading order."""
    c = config
    query_width = c.num_attention_heads * c.qk_head_dim
    shapes: dict[str, tuple[int, ...]] = {"input_layernorm.weight": (c.hidden_size,)}
    if c.q_lora_rank is None:
        shapes["self_attn.q_proj.weight"] = (query_width, c.hidden_size)
    else:
        shapes["self_attn.q_a_proj.weight"] = (c.q_lora_rank, c.hidden_size)
        shapes["self_attn.q_a_layernorm.weight"] = (c.q_lora_rank,)
        shapes["self_attn.q_b_proj.weight"] = (query_width, c.q_lora_rank)
    shapes |= {
        "self_attn.kv_a_proj_with_mqa.weight": (c.kv_lora_rank + c.qk_rope_head_dim, c.hidden_size),
        "self_attn.kv_a_layernorm.weight": (c.kv_lora_rank,),
        "self_attn.kv_b_proj.weight": (c.num_attention_heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank),
        "self_attn.o_proj.weight": (c.hidden_size, c.num_attention_heads * c.v_head_dim),
        "post_attention_layernorm.weight": (c.hidden_size,),
        "mlp.gate_proj.weight": (c.intermediate_size, c.hidden_size),
        "mlp.up_proj.weight": (c.intermediate_size, c.hidden_size),
        "mlp.down_proj.weight": (c.hidden_size, c.intermediate_size),
    }
    return shapes
