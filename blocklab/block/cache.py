"""The cache of latent attention: per token one latent and one rotary key, shared by all heads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from blocklab.errors import InputError
from blocklab.xp import Array, array_module


@dataclass(eq=False)
class LatentCache:
    """What earlier tokens leave behind: kv_latent_norm [B, S, C] and k_rot [B, S, R], 576 numbers a token in Kimi K2.

    `dense_block(..., cache=cache)` appends the new tokens and attends to all of them.
    """

    kv_latent_norm: Array | None = None
    k_rot: Array | None = None

    def __len__(self) -> int:
        """Return the number of cached positions S."""
        return 0 if self.kv_latent_norm is None else int(self.kv_latent_norm.shape[1])

    def extend(self, kv_latent_norm: Array, k_rot: Array) -> tuple[Array, Array]:
        """Append the new positions and return all of them: [B, S, C] and [B, S, R].

        Errors: InputError if the batch or a width differs from what is cached, and for a cache that is none: halves
        [B, S, C] and [B, S, R] of floats, or neither.
        """
        self._require_halves()
        latents = _joined("kv_latent_norm", self.kv_latent_norm, kv_latent_norm)
        keys = _joined("k_rot", self.k_rot, k_rot)
        self.kv_latent_norm, self.k_rot = latents, keys  # both or neither
        return latents, keys

    def _require_halves(self) -> None:
        a, b = self.kv_latent_norm, self.k_rot
        if a is None and b is None:
            return
        if a is None or b is None or a.ndim != 3 or b.ndim != 3 or a.shape[:2] != b.shape[:2]:
            found = " and ".join("None" if half is None else str(list(half.shape)) for half in (a, b))
            raise InputError(f"cache: expected halves [B, S, C] and [B, S, R]; found {found}")
        if a.dtype.kind != "f" or b.dtype.kind != "f":
            raise InputError(f"cache: expected floats; found {a.dtype} and {b.dtype}")


def _joined(name: str, old: Array | None, new: Array) -> Array:
    if old is None:
        return array_module(new).array(new)  # the caller, or a tap, may go on to change his own
    if old.shape[0] != new.shape[0] or old.shape[2] != new.shape[2]:
        raise InputError(f"cache: {name} holds [B, S, width] = {list(old.shape)}; found new values {list(new.shape)}")
    return array_module(old, new).concatenate([old, new], axis=1)


@contextmanager
def undone_on_error(cache: LatentCache | None) -> Iterator[None]:
    """Put a cache back to what it holds now if anything goes wrong inside, so that a retry sees no token twice."""
    before = None if cache is None else (cache.kv_latent_norm, cache.k_rot)
    try:
        yield
    except BaseException:
        if cache is not None and before is not None:
            cache.kv_latent_norm, cache.k_rot = before
        raise
