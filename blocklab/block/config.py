"""The sizes and rotary settings of a block, read from a published config.json or a preset."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from importlib import resources
from numbers import Integral
from pathlib import Path
from typing import Any

from blocklab.config_json import block_settings
from blocklab.errors import InputError, brief
from blocklab.json_file import read_json
from blocklab.values import LARGEST_SIZE, require, require_number, require_size

_LEAST_EPS = 2.0**-126

PRESETS = ("kimi-k2", "kimi-k2-0905", "deepseek-v3", "kimi-k2-small")


@dataclass(frozen=True)
class Yarn:
    """YaRN's stretch of the rotary frequencies (arXiv 2309.00071)."""

    factor: float
    original_max_position_embeddings: int
    beta_fast: float
    beta_slow: float
    mscale: float
    mscale_all_dim: float

    def __post_init__(self) -> None:
        for name in ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"):
            require_number(f"rope {name}", getattr(self, name))
        require(1 <= self.factor <= 1e6, f"rope factor must be at least 1, and at most 1e6; found {self.factor}")
        require_size("rope original_max_position_embeddings", self.original_max_position_embeddings)
        for name in ("mscale", "mscale_all_dim"):
            value = getattr(self, name)
            require(0 <= value <= 100, f"rope {name} must be from 0 to 100; found {value}")
        require(
            1e6 >= self.beta_fast >= self.beta_slow >= 1e-6,
            "rope beta_fast must be at least beta_slow, and both positive, from 1e-6 to 1e6;"
            f" found {self.beta_fast} and {self.beta_slow}",
        )


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
        fine = size is None or (pair and all(type(n) is int and 0 < n <= LARGEST_SIZE for n in size))
        require(fine, f"weight_block_size must be two positive integers; found {brief(size)}")
        first = self.first_k_dense_replace
        require(
            first is None or isinstance(first, Integral),
            f"first_k_dense_replace must be an integer; found {brief(first)}",
        )
        for name in ("rms_norm_eps", "rope_theta"):
            require_number(name, getattr(self, name))
            object.__setattr__(self, name, float(getattr(self, name)))
        yarn = self.yarn
        require(yarn is None or isinstance(yarn, Yarn), f"yarn must be a Yarn or None; found {brief(yarn)}")
        require(
            self.qk_rope_head_dim % 2 == 0,
            f"qk_rope_head_dim must be even, since rotation acts on pairs; found {self.qk_rope_head_dim}",
        )
        require(
            _LEAST_EPS <= self.rms_norm_eps <= 1,
            f"rms_norm_eps must be positive, a normal float32, and at most 1; found {self.rms_norm_eps}",
        )
        require(1 < self.rope_theta <= 1e30, f"rope_theta must be above 1, and at most 1e30; found {self.rope_theta}")

    def _take_size(self, name: str) -> None:
        """Check a size, and take numpy's integers as Python's, which never overflow."""
        require_size(name, getattr(self, name))
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
            read = block_settings(settings)
            return cls(**{**read, "yarn": read["yarn"] and Yarn(**read["yarn"])})
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
