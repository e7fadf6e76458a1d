"""Which step of the block a tensor of somebody else's dump is, by its name alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from blocklab.block.steps import STEPS

_LAYER = re.compile(r"^(?:.*\.)?(?:layers|blk|blocks|h)\.(\d{1,9})(?:\.|$)")
_LLAMA_CPP = re.compile(r"-(\d{1,9})$")
_ENDINGS = (".output", ".out", ".0")

FUSED = {
    "fused_qkv_a_proj": ("q_latent", "kv_down"),
    "fused_qkv_a_proj_with_mqa": ("q_latent", "kv_down"),
    "gate_up_proj": ("gate", "up"),
}
"""Outputs of vLLM and SGLang that hold two steps one after the other in their last axis."""

_PARENTS = ("", "self_attn", "attn", "attention", "mlp", "ffn", "feed_forward")
"""What may stand before the last part of a name, where that alone is known; not `mlp.experts.3`."""

_MORE = {"kv_cmpr_pe": "kv_down", "q_nope_absorbed_perm": "q_absorbed", "q_pe": "q_rot", "k_pe": "k_rot"}


@dataclass(frozen=True)
class Named:
    """What a name says: the steps the tensor holds (two where it is fused), the layer if the name gives one."""

    steps: tuple[str, ...]
    layer: int | None
    how: str


def read_name(name: str) -> Named | None:
    """Return what a dump calls `name`, or None for a name that no known program gives to a step.

    Any layer prefix (`model.layers.3.`, `blk.3.`) and llama.cpp's ending (`-3`) are taken off, then the rest must
    be a step name, an alias of the table of steps, or the last part of one (`q_a_proj`).
    """
    rest, layer = without_layer(name)
    for known, how in ((rest, "name"), (_without_ending(rest), "name")):
        if known in _BY_NAME:
            return Named(_BY_NAME[known], layer, _HOW.get(known, how))
    parent, _, leaf = rest.rpartition(".")
    if parent in _PARENTS and leaf in _BY_LEAF:
        return Named(_BY_LEAF[leaf], layer, _HOW.get(leaf, "last part of the name"))
    return None


def without_layer(name: str) -> tuple[str, int | None]:
    """Return a name without its layer prefix or llama.cpp's ending, and the layer; a bare layer is its output."""
    found = _LAYER.match(name)
    if found:
        return name[found.end() :] or "output", int(found[1])
    found = _LLAMA_CPP.search(name)
    if found:
        return name[: found.start()], int(found[1])
    return name, None


def _without_ending(name: str) -> str:
    for ending in _ENDINGS:
        if name.endswith(ending) and name != ending:
            return name.removesuffix(ending)
    return name


def _table() -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    names: dict[str, tuple[str, ...]] = {}
    how: dict[str, str] = {}
    for step in STEPS.values():
        sources = (
            ("step name", (step.name,)),
            ("transformers name", step.transformers),
            ("DeepSeek name", step.deepseek),
            ("llama.cpp name", tuple(_LLAMA_CPP.sub("", alias) for alias in step.llama_cpp)),
        )
        for source, aliases in sources:
            for alias in aliases:
                names.setdefault(alias, (step.name,))
                how.setdefault(alias, source)
    for alias, name in _MORE.items():
        names.setdefault(alias, (name,))
    for alias, parts in FUSED.items():
        for prefix in ("", "self_attn.", "mlp."):
            names[prefix + alias] = parts
            how[prefix + alias] = f"fused: {parts[0]} then {parts[1]}"
    return names, how


def _leaves(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the last parts of dotted names that mean one thing only."""
    leaves: dict[str, set[tuple[str, ...]]] = {}
    for name in names:
        leaves.setdefault(name.rpartition(".")[2], set()).add(_BY_NAME[name])
    return {leaf: meanings.pop() for leaf, meanings in leaves.items() if len(meanings) == 1}


_BY_NAME, _HOW = _table()
_BY_LEAF = _leaves(_BY_NAME)
