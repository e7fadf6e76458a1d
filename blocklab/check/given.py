"""What a run is given beside its input, taken from a dump where it says so: positions, mask, rotary table, cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocklab.block.cache import LatentCache
from blocklab.block.config import BlockConfig
from blocklab.block.masks import causal_mask, check_mask, combine_masks
from blocklab.block.rotary import inverse_frequencies, rotary_table
from blocklab.check.dump import CACHES, TABLES, Dump
from blocklab.check.error_attention import frequency_room
from blocklab.errors import InputError
from blocklab.numerics import Recipe
from blocklab.store.inputs import checked_positions, require_activations, told_positions


@dataclass(frozen=True)
class Given:
    """Positions [B, T], rotary table complex [B, T, R/2], mask, cache; and where each came from, in words."""

    positions: np.ndarray
    R: np.ndarray
    M: np.ndarray
    cache: LatentCache | None
    their_table: bool
    notes: tuple[str, ...]


def given_by(dump: Dump, config: BlockConfig, recipe: Recipe) -> Given:
    """Return what the run of this dump was given, with plain assumptions where the dump does not say.

    A rotary table is used where it agrees with the config's; where not, ours is, so that the steps show it.
    """
    cache = _cache(dump, config)
    past = len(cache) if cache is not None else 0
    notes: list[str] = []
    table = _table(dump, config)
    positions = _positions(dump, config, table, past, notes)
    M = _mask(dump, past, notes)
    _require_sight(M, dump.source)
    R = np.asarray(rotary_table(config, positions, recipe.rotary_table))
    theirs = table is not None and _agrees(table, config, positions, recipe, notes)
    if theirs and table is not None:
        R = np.broadcast_to(table, R.shape)
    return Given(positions, R, M, cache, theirs, tuple(notes))


def _positions(dump: Dump, config: BlockConfig, table: np.ndarray | None, past: int, notes: list[str]) -> np.ndarray:
    B, T, _ = dump.x.shape
    found, where = dump.given.get("position_ids"), f"{dump.source}: position_ids"
    if found is None and "positions" in dump.metadata:
        where = f"{dump.source}: metadata positions"
        found = told_positions(dump.metadata["positions"], where)
    if found is not None:
        return np.broadcast_to(checked_positions(found, B, T, where), (B, T))
    counted = np.broadcast_to(np.arange(past, past + T), (B, T))
    if table is not None:
        guess = np.broadcast_to(_positions_of(table, config), (B, T))
        ours = rotary_table(config, guess)
        if (np.abs(table - ours) <= _table_bound(config, guess)).all():
            notes.append("no position_ids: positions found from the rotary table")
            return guess
    notes.append(f"no position_ids: positions {past} to {past + T - 1} assumed")
    return counted


def _positions_of(table: np.ndarray, config: BlockConfig) -> np.ndarray:
    """Return the integer positions whose slowest pair has the angles of the table."""
    angle = np.angle(table[..., -1]) % (2 * np.pi)
    return np.rint(angle / inverse_frequencies(config)[-1]).astype(np.int64)


def _mask(dump: Dump, past: int, notes: list[str]) -> np.ndarray:
    B, T, _ = dump.x.shape
    S = past + T
    causal = causal_mask(T, S)
    mask = dump.given.get("attention_mask")
    if mask is None:
        notes.append("no attention_mask: causal mask assumed")
        return causal
    if mask.dtype.kind in "iu" and (mask >> 1).any():
        raise InputError(
            f"{dump.source}: attention_mask: expected flags 0 and 1, or floats to add; found other integers"
        )
    if mask.shape == (B, S) and not _by_query(mask, causal):
        return _padded(mask, causal, notes)
    if mask.dtype.kind in "iu":
        mask = mask != 0
    try:
        check_mask(mask)
    except InputError as error:
        raise InputError(f"{dump.source}: attention_{error}") from None
    if mask.ndim not in (2, 3, 4) or mask.shape[-1] != S or mask.shape[-2] not in (1, T):
        raise InputError(
            f"{dump.source}: attention_mask: expected [.., {T}, {S}] or [{B}, {S}]; found {list(mask.shape)}"
        )
    if mask.ndim > 2 and mask.shape[0] not in (1, B):
        raise InputError(f"{dump.source}: attention_mask: expected a batch of {B}; found {list(mask.shape)}")
    later = (mask if mask.dtype.kind == "b" else mask > -32752.0) & ~causal
    if later.any():
        notes.append("the dump's attention_mask lets queries see later keys, and is used as it is")
    return mask


def _by_query(mask: np.ndarray, causal: np.ndarray) -> bool:
    """Whether a mask [B, S] that is as long as [T, S] is meant to be that: floats and booleans, and causal flags."""
    if mask.shape != causal.shape:
        return False
    flags = mask != 0
    below = not (flags & ~causal).any() and bool(flags.diagonal().all())
    return below or mask.dtype.kind not in "iu"


def _padded(mask: np.ndarray, causal: np.ndarray, notes: list[str]) -> np.ndarray:
    """Return the causal mask without padded keys: flags with 1 for real keys, or floats to add, 0 for real keys."""
    added = mask.dtype.kind == "f" and not (mask > 0).any()
    how = "to be added, 0" if added else "1"
    notes.append(f"attention_mask [B, S] taken as a padding mask: {how} for real keys, causal otherwise")
    return np.asarray(combine_masks(causal, (mask if added else mask != 0)[:, None, None, :]))


def _require_sight(mask: np.ndarray, source: str) -> None:
    seeing = mask if mask.dtype.kind == "b" else np.isfinite(mask)
    if not seeing.any():
        raise InputError(f"{source}: attention_mask: expected queries that see some key; found none")


def _table(dump: Dump, config: BlockConfig) -> np.ndarray | None:
    """Return the dump's cos + i sin [B or 1, T, R/2], or None; a table of width R repeats its pairs."""
    cos, sin = _both(dump, TABLES)
    if cos is None or sin is None:
        return None
    B, T, _ = dump.x.shape
    pairs = config.qk_rope_head_dim // 2
    if cos.shape != sin.shape or cos.ndim not in (2, 3) or cos.shape[-1] not in (pairs, 2 * pairs):
        raise InputError(
            f"{dump.source}: rotary.cos, rotary.sin: expected [B, T, R/2] = [{B}, {T}, {pairs}];"
            f" found {list(cos.shape)} and {list(sin.shape)}"
        )
    if cos.dtype.kind != "f" or sin.dtype.kind != "f" or not (np.isfinite(cos).all() and np.isfinite(sin).all()):
        raise InputError(f"{dump.source}: rotary.cos, rotary.sin: expected finite floats; found others")
    table = (cos + 1j * sin)[..., :pairs]
    with np.errstate(all="ignore"):
        size = np.abs(table)
    if table.size and not 0.1 < size.min() <= size.max() < 10:  # with mscale they are not 1
        raise InputError(
            f"{dump.source}: rotary.cos, rotary.sin: expected cos^2 + sin^2 to be near 1;"
            f" found {size.min() ** 2:.3g} to {size.max() ** 2:.3g}"
        )
    table = table[None] if table.ndim == 2 else table
    if table.shape[1] != T or table.shape[0] not in (1, B):
        raise InputError(f"{dump.source}: rotary.cos: expected [{B}, {T}, {pairs}]; found {list(cos.shape)}")
    return np.asarray(table)


def _agrees(table: np.ndarray, config: BlockConfig, positions: np.ndarray, recipe: Recipe, notes: list[str]) -> bool:
    bound = _table_bound(config, positions)
    if recipe.rotation == "each":
        bound = bound + 2.0**-8
    difference = np.abs(table - rotary_table(config, positions))
    if (difference <= bound).all():
        notes.append("rotary.cos, rotary.sin of the dump agree with the config's table and are used")
        return True
    b, t, pair = np.unravel_index(int(np.argmax(difference - bound)), difference.shape)
    notes.append(
        f"rotary.cos, rotary.sin of the dump differ from the config's table by {difference[b, t, pair]:.2g} at"
        f" position {positions[b, t]}, pair {pair}: ours are used"
    )
    return False


def _table_bound(config: BlockConfig, positions: np.ndarray) -> np.ndarray:
    """Return how far float32 tables of one config may be apart: some ulps of the frequency, times the position."""
    turned = positions[..., None] * inverse_frequencies(config)  # [B, T, R/2]
    return np.asarray((8 * (1 + turned) + turned * frequency_room(config)) * 2.0**-24)


def _both(dump: Dump, names: tuple[str, ...]) -> list[np.ndarray | None]:
    """Return two arrays that make sense together only, or two times None."""
    found = [dump.given.get(name) for name in names]
    if sum(array is None for array in found) == 1:
        raise InputError(f"{dump.source}: expected {' and '.join(names)} together; found one of them")
    return found


def _cache(dump: Dump, config: BlockConfig) -> LatentCache | None:
    latent, k_rot = _both(dump, CACHES)
    if latent is None or k_rot is None:
        return None
    B = len(dump.x)
    for name, array, width in zip(CACHES, (latent, k_rot), (config.kv_lora_rank, config.qk_rope_head_dim), strict=True):
        if array.ndim != 3 or array.shape != (B, latent.shape[1], width):
            raise InputError(f"{dump.source}: {name}: expected [{B}, S, {width}]; found {list(array.shape)}")
        if array.dtype.kind != "f":
            raise InputError(f"{dump.source}: {name}: expected floats; found {array.dtype}")
        require_activations(array, f"{dump.source}: {name}")
    return LatentCache(latent, k_rot)
