"""Recipes: where a block rounds, how its dots accumulate, how its linears quantise their inputs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_type_hints

from blocklab.errors import InputError
from blocklab.numerics.formats import get_format
from blocklab.numerics.rounding import round_to
from blocklab.numerics.tensor_core import CORES, check_promote
from blocklab.xp import Array

STORAGE = ("float64", "float32", "bfloat16", "float16")
"""Formats that steps may be stored in."""


@dataclass(frozen=True)
class Recipe:
    """The arithmetic of one run; every field is a choice that some implementation makes.

    storage       format that every named step is rounded to when it is stored
    work          precision of what happens inside a step: norms, rotation, softmax, silu
    accumulate    dots: "float32" is BLAS (fast, order unspecified); "exact" is a float64 sum rounded once,
                  for FP8 operands per 128-group; "hopper" is the 14-bit register of the H100 for FP8
                  operands and "exact" for others
    norm          "once": RN(g x r); "twice": RN(g RN(x r)), r = rsqrt(mean(x^2) + eps)
    rotation      "once": one rounding after the rotation; "each": cos, sin, every product and the sum
    rotary_table  precision in which the angles are computed; published code uses float32
    fp8_linear    quantise the inputs of linears to FP8, and use FP8 weights as stored
    activation_format  of those inputs
    granularity   what shares one scale: a "group" of `group` channels of a token, a "token", or the whole "tensor",
                  whose result then depends on all tokens of a call
    amax_floor    least amax of a group (1e-4 DeepSeek, 1e-10 vLLM)
    quotient      "divide": x / s; "reciprocal": x (1 / s)
    scale         "float32", or "ue8m0" for powers of two (rounded up before they divide)
    scale_order   "separate": (dot s_a) s_b; "folded": dot (s_a s_b)
    promote       FP8 dots: products between two promotions to float32; None promotes at the end only
    latent_norm_eps  eps of the two latent norms; None takes the config's
    exceptions    step -> the format that it is stored in instead: {"attn_scores": "float32"}

    Source: DeepSeek-V3 report sections 3.3 and 3.5, its inference code, transformers' deepseek_v3.
    """

    name: str = dataclasses.field(compare=False)
    storage: Literal["float64", "float32", "bfloat16", "float16"] = "float32"
    work: Literal["float64", "float32"] = "float32"
    accumulate: Literal["exact", "float32", "hopper"] = "float32"
    norm: Literal["once", "twice"] = "once"
    rotation: Literal["once", "each"] = "once"
    rotary_table: Literal["float64", "float32"] = "float64"
    fp8_linear: bool = False
    activation_format: Literal["e4m3fn", "e5m2"] = "e4m3fn"
    granularity: Literal["group", "token", "tensor"] = "group"
    group: int = 128
    amax_floor: float = 1e-4
    quotient: Literal["divide", "reciprocal"] = "divide"
    scale: Literal["float32", "ue8m0"] = "float32"
    scale_order: Literal["separate", "folded"] = "separate"
    promote: int | None = 128
    latent_norm_eps: float | None = None
    exceptions: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for option, hint in get_type_hints(type(self)).items():
            choices = get_args(hint)
            if choices and isinstance(choices[0], str):
                self._require(option, getattr(self, option) in choices, f"one of {', '.join(choices)}")
        for option in ("group", "promote"):
            value = getattr(self, option)
            fine = (value is None and option == "promote") or (type(value) is int and value > 0)
            self._require(option, fine, "a positive integer")
        least = get_format(self.activation_format).max * 2.0**-126
        self._require_positive("amax_floor", least, f"at least {least:.3g}, so that its scale is a normal float32")
        if self.latent_norm_eps is not None:
            self._require_positive("latent_norm_eps", 2.0**-126, "a normal float32")
        narrow = [name for name in STORAGE if name != "float64" or self.storage == "float64"]
        formats = isinstance(self.exceptions, Mapping) and all(f in narrow for f in self.exceptions.values())
        self._require("exceptions", formats, f"steps with formats of {', '.join(narrow)}")
        self._require("fp8_linear", isinstance(self.fp8_linear, bool), "true or false")
        if self.accumulate in CORES:
            check_promote(f"recipe {self.name}", CORES[self.accumulate], self.promote)
            fine = self.granularity != "group" or (self.promote or math.inf) <= self.group
            self._require("promote", fine, f"at most group {self.group}: scales differ from group to group")

    def _require_positive(self, option: str, least: float, expected: str) -> None:
        value = getattr(self, option)
        fine = type(value) in (int, float) and least <= value < 1e30
        self._require(option, fine, f"a positive number below 1e30, {expected}")

    def _require(self, option: str, fine: bool, expected: str) -> None:
        if not fine:
            raise InputError(f"recipe {self.name}: {option} must be {expected}; found {getattr(self, option)!r}")

    def format_of(self, step: str) -> str:
        """Return the format that a step is stored in."""
        return self.exceptions.get(step, self.storage)

    def round(self, value: Array, step: str = "") -> Array:
        """Round a value once to the format of a step, and return the array that carries values between steps."""
        stored = self.format_of(step)
        return value if value.dtype == stored else round_to(value, stored).astype(self.carrier, copy=False)

    @property
    def carrier(self) -> str:
        """The dtype of arrays between steps: float64 for float64 storage, float32 otherwise."""
        return "float64" if self.storage == "float64" else "float32"

    def replace(self, **changes: Any) -> Recipe:
        """Return this recipe with some options changed, its name extended by the changes.

        A name that is no option is taken for a step, and its value for the step's format: attn_scores="float32".
        """
        options = {f.name for f in dataclasses.fields(self)}
        steps = {name: value for name, value in changes.items() if name not in options}
        for name, value in steps.items():
            if value not in STORAGE:
                names = ", ".join(sorted(options - {"name", "exceptions"}))
                raise InputError(
                    f"recipe {self.name} has no option {name}={value}; it has {names}, and each step of the block with"
                    f" one of {', '.join(STORAGE)}"
                )
        told = [part for part in self.name.split(",") if part.partition("=")[0] not in changes]
        label = ",".join([*told, *(f"{k}={v}" for k, v in changes.items() if k not in ("name", "exceptions"))])
        kept = {name: value for name, value in changes.items() if name in options}
        exceptions = {**changes.get("exceptions", self.exceptions), **steps}
        return dataclasses.replace(self, **{"name": label, **kept, "exceptions": exceptions})


_BFLOAT16 = Recipe("bfloat16", storage="bfloat16", norm="twice", rotation="each", rotary_table="float32")
_DEEPSEEK_BF16 = _BFLOAT16.replace(name="deepseek-bf16", norm="once", rotation="once")
_DEEPSEEK_FP8 = _DEEPSEEK_BF16.replace(name="deepseek-fp8", work="float64", accumulate="exact", fp8_linear=True)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("float64", storage="float64", work="float64", accumulate="exact"),
        Recipe("float32"),
        _BFLOAT16,
        _DEEPSEEK_BF16,
        _DEEPSEEK_FP8,
        _DEEPSEEK_FP8.replace(name="hopper-fp8", accumulate="hopper"),
    )
}
"""The recipes by name."""


def get_recipe(recipe: str | Recipe) -> Recipe:
    """Return a recipe by name, or as given; "NAME,option=value,..." changes options of a named one."""
    if isinstance(recipe, Recipe):
        return recipe
    if not isinstance(recipe, str):
        raise InputError(f"recipe: expected a Recipe or one of {', '.join(RECIPES)}; found {type(recipe).__name__}")
    name, *options = recipe.split(",")
    if name not in RECIPES:
        raise InputError(f"no recipe {name!r}; there are {', '.join(RECIPES)}")
    changes = {}
    for option in options:
        key, equals, text = option.partition("=")
        if not equals:
            raise InputError(f"recipe option {option!r}: expected option=value")
        if key in changes or key == "name":
            raise InputError(f"recipe option {option!r}: {'given twice' if key in changes else 'a name is no option'}")
        changes[key] = _parse(text)
    return RECIPES[name].replace(**changes) if changes else RECIPES[name]


def _parse(text: str) -> Any:
    if text in ("None", "none"):
        return None
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
