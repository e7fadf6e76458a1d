"""One parameter as a checkpoint stores it: codes and, for FP8, the scales of its blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType

from blocklab.errors import InputError
from blocklab.file_array import in_memory
from blocklab.numerics.codes import decode
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
        scale = None if self.scale is None else move(self.scale, xp)
        return replace(self, raw=move(in_memory(self.raw), xp), scale=scale)
