"""Reading a published config.json: what its spellings mean for a block."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from blocklab.errors import brief, listed, shown
from blocklab.json_file import json_kind
from blocklab.values import LARGEST_SIZE, require, require_number

_ORIGINAL = "original_max_position_embeddings"
_YARN = {"factor": None, _ORIGINAL: None, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.0}
"""YaRN's settings, and what published code takes where a config leaves one out."""

_ROPE = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "attention_factor", "truncate", *_YARN}


def block_settings(settings: Any) -> dict[str, Any]:
    """Return the arguments of `BlockConfig` from the parsed object of a config.json; `yarn` is a dict of its own.

    What stands under `text_config` is taken where there is one.
    Errors: InputError for a setting that is missing, that contradicts another, or that describes another kind of block.
    """
    if isinstance(settings, Mapping) and "text_config" in settings:
        settings = _text_settings(settings)
    require(isinstance(settings, Mapping), f"expected a JSON object, found {json_kind(settings)}")
    for name, only in (
        ("hidden_act", "silu"),
        ("attention_bias", False),
        ("mlp_bias", False),
        ("rope_interleave", True),
    ):
        found = settings.get(name, only)
        require(found == only, f"{name} must be {json.dumps(only)} for this block; found {brief(found)}")
    heads = _integer(settings, "num_attention_heads")
    kv_heads = settings.get("num_key_value_heads", heads)
    require(
        kv_heads == heads,
        f"num_key_value_heads must equal num_attention_heads in latent attention; found {brief(kv_heads)} and {heads}",
    )
    rope_theta, yarn = _parse_rope(settings)
    experts = None if settings.get("n_routed_experts") is None else _integer(settings, "n_routed_experts")
    optional = {
        name: _integer(settings, name)
        for name in ("max_position_embeddings", "num_hidden_layers", "moe_layer_freq", "vocab_size")
        if settings.get(name) is not None
    }
    return {
        "hidden_size": _integer(settings, "hidden_size"),
        "intermediate_size": _integer(settings, "intermediate_size"),
        "num_attention_heads": heads,
        "q_lora_rank": None if settings.get("q_lora_rank", 0) is None else _integer(settings, "q_lora_rank"),
        "kv_lora_rank": _integer(settings, "kv_lora_rank"),
        "qk_nope_head_dim": _integer(settings, "qk_nope_head_dim"),
        "qk_rope_head_dim": _integer(settings, "qk_rope_head_dim"),
        "v_head_dim": _integer(settings, "v_head_dim"),
        "rms_norm_eps": _number(settings, "rms_norm_eps"),
        "rope_theta": rope_theta,
        "yarn": yarn,
        "first_k_dense_replace": _integer(settings, "first_k_dense_replace", 0) if experts else None,
        "weight_block_size": _parse_block_size(settings.get("quantization_config")),
        **optional,
    }


def _text_settings(settings: Mapping[str, Any]) -> Any:
    """Return `text_config`, with what may also stand beside it: rotary settings and quantization_config."""
    inner = settings["text_config"]
    if not isinstance(inner, Mapping):
        return inner
    for name in ("quantization_config", "rope_theta", "rope_scaling", "rope_parameters"):
        outer = settings.get(name)
        if outer is not None:
            _agree(f"text_config.{name}", inner.get(name), name, outer)
            inner = {**inner, name: outer}
    return inner


def _parse_rope(settings: Mapping[str, Any]) -> tuple[float, dict[str, Any] | None]:
    """Read both spellings: `rope_scaling` beside a top-level rope_theta, and `rope_parameters` with both.

    What is said twice must be the same.
    """
    found: dict[str, dict[str, Any] | None] = {}
    theta = None if settings.get("rope_theta") is None else ("rope_theta", _number(settings, "rope_theta"))
    _require_whole_rotation("", settings, settings)
    for name in ("rope_parameters", "rope_scaling"):
        label, rope = _rope_settings(settings, name)
        if rope.get("rope_theta") is not None:
            own = (f"{label}.rope_theta", _number(rope, "rope_theta"))
            _agree(*(theta or own), *own)
            theta = theta or own
        _require_whole_rotation(f"{label}.", rope, settings)
        if rope:
            found[label] = _parse_yarn(rope)
    require(theta is not None, "rope_theta is missing")
    (first, yarn), *others = found.items() or [("", None)]
    for label, other in others:
        require(yarn == other, f"{first} and {label} contradict each other: found {_about(yarn)} and {_about(other)}")
    original = settings.get(_ORIGINAL)
    if yarn is not None and original is not None:
        _agree(_ORIGINAL, original, f"{first}.{_ORIGINAL}", yarn[_ORIGINAL])
    return theta[1] if theta else math.nan, yarn


def _rope_settings(settings: Mapping[str, Any], name: str) -> tuple[str, Mapping[str, Any]]:
    """Return what names rotary settings in a message, and those settings; they may be told by kind of layer."""
    rope = settings.get(name)
    rope = {} if rope is None else rope
    require(isinstance(rope, Mapping), f"rope settings must be an object or null; found {json_kind(rope)}")
    if any(isinstance(value, Mapping) for value in rope.values()):
        fine = len(rope) == 1
        require(fine, f"{name} must be of one kind of layer, or of all; found {listed(rope)}")
        ((kind, rope),) = rope.items()
        name = f"{name}.{shown(kind)}"
    unknown = [key for key, value in rope.items() if key not in _ROPE and value is not None]
    require(not unknown, f"{name} has settings that mean nothing here: {listed(unknown)}")
    return name, rope


def _parse_yarn(rope: Mapping[str, Any]) -> dict[str, Any] | None:
    kinds = [rope[name] for name in ("rope_type", "type") if rope.get(name) is not None]
    kind = kinds[0] if kinds else "default"
    require(len(kinds) < 2 or kinds[0] == kinds[1], f"rope_type and type contradict each other: found {brief(kinds)}")
    stretched = [name for name in _YARN if rope.get(name) is not None]
    require(bool(kinds) or "factor" not in rope, "rope settings with a factor must say their type: yarn")
    if kind == "default":
        require(not stretched, f"rope type default has no {listed(stretched)}: yarn has")
        return None
    require(kind == "yarn", f"rope type must be yarn, default or absent; found {brief(kind)}")
    for name, only in (("attention_factor", None), ("truncate", True)):
        found = rope.get(name, only)
        require(found == only, f"rope {name} must be absent for this block; found {brief(found)}")
    numbers = {name: _number(rope, name) for name in stretched if name not in ("factor", _ORIGINAL)}
    return _YARN | {"factor": _number(rope, "factor"), _ORIGINAL: _integer(rope, _ORIGINAL)} | numbers


def _require_whole_rotation(where: str, rope: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Refuse a partial_rotary_factor by which another number of a head's channels rotates than qk_rope_head_dim."""
    if rope.get("partial_rotary_factor") is None:
        return
    share, width = _number(rope, "partial_rotary_factor"), _integer(settings, "qk_rope_head_dim")
    heads = [width] if settings.get("head_dim") is None else [width, _integer(settings, "head_dim")]
    require(
        any(int(share * head) == width for head in heads if 0 < head <= LARGEST_SIZE and 0 < share <= 1),
        f"{where}partial_rotary_factor must be 1, since all of qk_rope_head_dim {width} rotates; found {share}",
    )


def _agree(name: str, value: Any, other: str, said: Any) -> None:
    """Refuse two settings of one meaning that differ; null says nothing."""
    same = value is None or value == said
    require(same, f"{name} and {other} contradict each other: found {brief(value)} and {brief(said)}")


def _about(yarn: dict[str, Any] | None) -> str:
    return "default" if yarn is None else f"yarn ({', '.join(f'{k} {v:g}' for k, v in yarn.items())})"


def _parse_block_size(quantization: Any) -> tuple[int, int] | None:
    if quantization is None:
        return None
    require(isinstance(quantization, Mapping), f"quantization_config must be an object; found {brief(quantization)}")
    size = quantization.get("weight_block_size")
    if size is None:
        return None
    for name, only in (("quant_method", "fp8"), ("fmt", "e4m3")):
        found = quantization.get(name, only)
        require(found == only, f"quantization_config {name} must be {only} for blocks of FP8; found {brief(found)}")
    require(isinstance(size, list), f"weight_block_size must be two positive integers; found {brief(size)}")
    return tuple(size)  # checked by BlockConfig


def _integer(settings: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = settings.get(name, default)
    require(value is not None, f"{name} is missing")
    require(type(value) is int, f"{name} must be an integer; found {brief(value)}")
    return int(value)


def _number(settings: Mapping[str, Any], name: str) -> float:
    value: Any = settings.get(name)
    require(value is not None, f"{name} is missing")
    require_number(name, value)
    return float(value)
