"""The sizes and rotary settings of a block, read from a published config.json or a preset."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib import resources
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from blocklab.errors import InputError, brief, listed, shown
from blocklab.json_file import json_kind, read_json

_MOST = 2**31 - 1
_LEAST_EPS = 2.0**-126

PRESETS = ("kimi-k2", "kimi-k2-0905", "deepseek-v3", "kimi-k2-small")


@dataclass(frozen=True)
class Yarn:
    """YaRN's stretch of the rotary frequencies (arXiv 2309.00071)."""

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 1.0
    mscale_all_dim: float = 0.0

    def __post_init__(self) -> None:
        for name in ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"):
            _require_number(f"rope {name}", getattr(self, name))
        _require(1 <= self.factor <= 1e6, f"rope factor must be at least 1, and at most 1e6; found {self.factor}")
        _require_size("rope original_max_position_embeddings", self.original_max_position_embeddings)
        for name in ("mscale", "mscale_all_dim"):
            value = getattr(self, name)
            _require(0 <= value <= 100, f"rope {name} must be from 0 to 100; found {value}")
        _require(
            1e6 >= self.beta_fast >= self.beta_slow >= 1e-6,
            "rope beta_fast must be at least beta_slow, and both positive, from 1e-6 to 1e6;"
            f" found {self.beta_fast} and {self.beta_slow}",
        )


_ORIGINAL = "original_max_position_embeddings"
_ROPE = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "attention_factor", "truncate"} | {
    f.name for f in fields(Yarn)
}


@dataclass(frozen=True)
class BlockConfig:
    """The sizes of one dense block under the names of the published config.json.

    q_lora_rank None means that queries are not compressed: one `q_proj` (DeepSeek-V2-Lite, Moonlight).
    yarn None means plain rotary embedding.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    rms_norm_eps: float
    rope_theta: float
    yarn: Yarn | None
    max_position_embeddings: int = 131072
    vocab_size: int | None = None
    num_hidden_layers: int = 1
    first_k_dense_replace: int | None = None
    moe_layer_freq: int = 1
    weight_block_size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for name in (
            *("hidden_size", "intermediate_size", "num_attention_heads", "kv_lora_rank", "qk_nope_head_dim"),
            *("qk_rope_head_dim", "v_head_dim", "max_position_embeddings", "num_hidden_layers", "moe_layer_freq"),
        ):
            self._take_size(name)
        for name in ("q_lora_rank", "vocab_size"):
            if getattr(self, name) is not None:
                self._take_size(name)
        size = self.weight_block_size
        pair = isinstance(size, tuple) and len(size) == 2
        fine = size is None or (pair and all(type(n) is int and 0 < n <= _MOST for n in size))
        _require(fine, f"weight_block_size must be two positive integers; found {brief(size)}")
        first = self.first_k_dense_replace
        _require(
            first is None or isinstance(first, Integral),
            f"first_k_dense_replace must be an integer; found {brief(first)}",
        )
        for name in ("rms_norm_eps", "rope_theta"):
            _require_number(name, getattr(self, name))
            object.__setattr__(self, name, float(getattr(self, name)))
        yarn = self.yarn
        _require(yarn is None or isinstance(yarn, Yarn), f"yarn must be a Yarn or None; found {brief(yarn)}")
        _require(
            self.qk_rope_head_dim % 2 == 0,
            f"qk_rope_head_dim must be even, since rotation acts on pairs; found {self.qk_rope_head_dim}",
        )
        _require(
            _LEAST_EPS <= self.rms_norm_eps <= 1,
            f"rms_norm_eps must be positive, a normal float32, and at most 1; found {self.rms_norm_eps}",
        )
        _require(1 < self.rope_theta <= 1e30, f"rope_theta must be above 1, and at most 1e30; found {self.rope_theta}")

    def _take_size(self, name: str) -> None:
        """Check a size, and take numpy's integers as Python's, which never overflow."""
        _require_size(name, getattr(self, name))
        object.__setattr__(self, name, int(getattr(self, name)))

    @property
    def qk_head_dim(self) -> int:
        """Width of one head's query and key: nope plus rotary."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def softmax_scale(self) -> float:
        """The factor on q.k: (nope + rotary)^-1/2, times mscale_all_dim's mscale squared under YaRN."""
        scale = self.qk_head_dim**-0.5
        if self.yarn is not None and self.yarn.mscale_all_dim:
            scale *= yarn_mscale(self.yarn.factor, self.yarn.mscale_all_dim) ** 2
        return scale

    def is_dense(self, layer: int) -> bool:
        """Whether `layer` has a dense MLP (True) or a mixture of experts (False)."""
        if self.first_k_dense_replace is None:
            return True
        return layer < self.first_k_dense_replace or layer % self.moe_layer_freq != 0

    @classmethod
    def preset(cls, name: str) -> BlockConfig:
        """Return a built-in configuration: kimi-k2, kimi-k2-0905, deepseek-v3 or kimi-k2-small."""
        return cls.from_dict(preset_dict(name), source=f"preset {name}")

    @classmethod
    def from_json(cls, path: str | Path) -> BlockConfig:
        """Read a published config.json (or the one in a folder); settings under `text_config` are found too.

        Raises InputError, naming the file and the setting, for a missing or impossible one.
        """
        path = Path(path)
        if path.is_dir():
            path = path / "config.json"
        return cls.from_dict(read_json(path), source=str(path))

    @classmethod
    def from_dict(cls, settings: Any, source: str = "config") -> BlockConfig:
        """Build from the parsed object of a config.json; `source` opens the message of an error."""
        try:
            if isinstance(settings, Mapping) and "text_config" in settings:
                settings = _text_settings(settings)
            _require(isinstance(settings, Mapping), f"expected a JSON object, found {json_kind(settings)}")
            return _parse(settings)
        except InputError as error:
            raise InputError(f"{source}: {error}") from None


def preset_dict(name: str) -> dict[str, Any]:
    """Return a preset as the settings of its config.json."""
    if name not in PRESETS:
        raise InputError(f"no preset {name!r}; there are {', '.join(PRESETS)}")
    text = (resources.files("blocklab.block") / "presets" / f"{name}.json").read_text(encoding="utf-8")
    settings: dict[str, Any] = json.loads(text)
    return settings


def yarn_mscale(factor: float, mscale: float) -> float:
    """Attention temperature of YaRN: 0.1 mscale ln(factor) + 1, and 1 where nothing is stretched."""
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _parse(settings: Mapping[str, Any]) -> BlockConfig:
    for name, only in (
        ("hidden_act", "silu"),
        ("attention_bias", False),
        ("mlp_bias", False),
        ("rope_interleave", True),
    ):
        found = settings.get(name, only)
        _require(found == only, f"{name} must be {json.dumps(only)} for this block; found {brief(found)}")
    heads = _integer(settings, "num_attention_heads")
    kv_heads = settings.get("num_key_value_heads", heads)
    _require(
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
    return BlockConfig(
        hidden_size=_integer(settings, "hidden_size"),
        intermediate_size=_integer(settings, "intermediate_size"),
        num_attention_heads=heads,
        q_lora_rank=None if settings.get("q_lora_rank", 0) is None else _integer(settings, "q_lora_rank"),
        kv_lora_rank=_integer(settings, "kv_lora_rank"),
        qk_nope_head_dim=_integer(settings, "qk_nope_head_dim"),
        qk_rope_head_dim=_integer(settings, "qk_rope_head_dim"),
        v_head_dim=_integer(settings, "v_head_dim"),
        rms_norm_eps=_number(settings, "rms_norm_eps"),
        rope_theta=rope_theta,
        yarn=yarn,
        first_k_dense_replace=_integer(settings, "first_k_dense_replace", 0) if experts else None,
        weight_block_size=_parse_block_size(settings.get("quantization_config")),
        **optional,
    )


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


def _parse_rope(settings: Mapping[str, Any]) -> tuple[float, Yarn | None]:
    """Read both spellings: `rope_scaling` beside a top-level rope_theta, and `rope_parameters` with both.

    What is said twice must be the same.
    """
    found: dict[str, Yarn | None] = {}
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
    _require(theta is not None, "rope_theta is missing")
    (first, yarn), *others = found.items() or [("", None)]
    for label, other in others:
        _require(yarn == other, f"{first} and {label} contradict each other: found {_about(yarn)} and {_about(other)}")
    original = settings.get(_ORIGINAL)
    if yarn is not None and original is not None:
        _agree(_ORIGINAL, original, f"{first}.{_ORIGINAL}", yarn.original_max_position_embeddings)
    return theta[1] if theta else math.nan, yarn


def _rope_settings(settings: Mapping[str, Any], name: str) -> tuple[str, Mapping[str, Any]]:
    """Return what names rotary settings in a message, and those settings; they may be told by kind of layer."""
    rope = settings.get(name)
    rope = {} if rope is None else rope
    _require(isinstance(rope, Mapping), f"rope settings must be an object or null; found {json_kind(rope)}")
    if any(isinstance(value, Mapping) for value in rope.values()):
        fine = len(rope) == 1
        _require(fine, f"{name} must be of one kind of layer, or of all; found {listed(rope)}")
        ((kind, rope),) = rope.items()
        name = f"{name}.{shown(kind)}"
    unknown = [key for key, value in rope.items() if key not in _ROPE and value is not None]
    _require(not unknown, f"{name} has settings that mean nothing here: {listed(unknown)}")
    return name, rope


def _parse_yarn(rope: Mapping[str, Any]) -> Yarn | None:
    kinds = [rope[name] for name in ("rope_type", "type") if rope.get(name) is not None]
    kind = kinds[0] if kinds else "default"
    _require(len(kinds) < 2 or kinds[0] == kinds[1], f"rope_type and type contradict each other: found {brief(kinds)}")
    stretched = [f.name for f in fields(Yarn) if rope.get(f.name) is not None]
    _require(bool(kinds) or "factor" not in rope, "rope settings with a factor must say their type: yarn")
    if kind == "default":
        _require(not stretched, f"rope type default has no {listed(stretched)}: yarn has")
        return None
    _require(kind == "yarn", f"rope type must be yarn, default or absent; found {brief(kind)}")
    for name, only in (("attention_factor", None), ("truncate", True)):
        found = rope.get(name, only)
        _require(found == only, f"rope {name} must be absent for this block; found {brief(found)}")
    numbers = {name: _number(rope, name) for name in stretched if name not in ("factor", _ORIGINAL)}
    return Yarn(_number(rope, "factor"), _integer(rope, _ORIGINAL), **numbers)


def _require_whole_rotation(where: str, rope: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Refuse a partial_rotary_factor by which another number of a head's channels rotates than qk_rope_head_dim."""
    if rope.get("partial_rotary_factor") is None:
        return
    share, width = _number(rope, "partial_rotary_factor"), _integer(settings, "qk_rope_head_dim")
    heads = [width] if settings.get("head_dim") is None else [width, _integer(settings, "head_dim")]
    _require(
        any(int(share * head) == width for head in heads if 0 < head <= _MOST and 0 < share <= 1),
        f"{where}partial_rotary_factor must be 1, since all of qk_rope_head_dim {width} rotates; found {share}",
    )


def _agree(name: str, value: Any, other: str, said: Any) -> None:
    """Refuse two settings of one meaning that differ; null says nothing."""
    same = value is None or value == said
    _require(same, f"{name} and {other} contradict each other: found {brief(value)} and {brief(said)}")


def _about(yarn: Yarn | None) -> str:
    return "default" if yarn is None else f"yarn ({', '.join(f'{k} {v:g}' for k, v in asdict(yarn).items())})"


def _parse_block_size(quantization: Any) -> tuple[int, int] | None:
    if quantization is None:
        return None
    _require(isinstance(quantization, Mapping), f"quantization_config must be an object; found {brief(quantization)}")
    size = quantization.get("weight_block_size")
    if size is None:
        return None
    for name, only in (("quant_method", "fp8"), ("fmt", "e4m3")):
        found = quantization.get(name, only)
        _require(found == only, f"quantization_config {name} must be {only} for blocks of FP8; found {brief(found)}")
    _require(isinstance(size, list), f"weight_block_size must be two positive integers; found {brief(size)}")
    return tuple(size)  # checked by BlockConfig


def _integer(settings: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = settings.get(name, default)
    _require(value is not None, f"{name} is missing")
    _require(type(value) is int, f"{name} must be an integer; found {brief(value)}")
    return int(value)


def _number(settings: Mapping[str, Any], name: str) -> float:
    value: Any = settings.get(name)
    _require(value is not None, f"{name} is missing")
    _require_number(name, value)
    return float(value)


def _require_number(name: str, value: Any) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    value = value.item() if isinstance(value, np.number) else value
    fine = number and abs(value) <= sys.float_info.max  # no NaN, nor an integer that no float can hold
    _require(fine, f"{name} must be a finite number; found {brief(value)}")


def _require_size(name: str, value: Any) -> None:
    fine = isinstance(value, Integral) and not isinstance(value, bool)
    _require(fine, f"{name} must be an integer; found {brief(value)}")
    _require(value > 0, f"{name} must be positive; found {brief(value)}")
    _require(value <= _MOST, f"{name} must be at most {_MOST}; found {brief(value)}")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(message)
