"""What a mistake consists of: variations of a run, and helpers to make them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeAlias

from blocklab.block.config import BlockConfig
from blocklab.block.steps import multiplied_by
from blocklab.block.weights import BlockWeights
from blocklab.check.case import Case
from blocklab.numerics.weight import Weight

EVERY_LINEAR = ("q_latent", "q", "kv_down", "kv_up", "q_absorbed", "z", "attn_out", "gate", "up", "mlp_out")
"""Steps that multiply by a weight; in absorbed attention the up-projection acts at q_absorbed and z."""


class Variation(NamedTuple):
    """One form of a mistake, in words, and the run that makes it.

    acts  steps that this form computes differently, where they are fewer than the mistake's
    form  what is done to one or to every weight: at one of them the same is computed
    """

    detail: str
    case: Case
    acts: tuple[str, ...] = ()
    form: str = ""


Vary: TypeAlias = Callable[[Case], Iterator[Variation]]


@dataclass(frozen=True)
class Mistake:
    """Something that somebody has really shipped.

    what   what the implementation does, in one sentence
    where  where it shows first
    acts   the steps that it computes differently
    vary   yields its forms for a correct run, the usual one first; none where it cannot show
    by_token  whether what it does to a token at these steps depends on that token alone
    """

    id: str
    what: str
    where: str
    acts: tuple[str, ...]
    vary: Vary
    by_token: bool = True

    def inject(self, case: Case) -> Case | None:
        """Return the run with the usual form of this mistake, or None where the run cannot have it."""
        first = next(self.vary(case), None)
        return None if first is None else first.case


@dataclass(frozen=True)
class _OtherScale(BlockConfig):
    """A config whose softmax scale is given, not derived."""

    scale: float = 1.0

    @property
    def softmax_scale(self) -> float:
        """The factor on q.k."""
        return self.scale


def with_softmax_scale(case: Case, scale: float) -> Case:
    """Return the run with another softmax scale; the rotary table stays as it is."""
    settings = {f.name: getattr(case.config, f.name) for f in fields(BlockConfig)}
    return case.change(weights=replace(case.weights, config=_OtherScale(**settings, scale=scale)))


def with_weights(case: Case, **changed: Weight) -> Case:
    """Return the run with some weights replaced; names as in the checkpoint, with `__` for dots."""
    named = case.weights.named() | {name.replace("__", "."): weight for name, weight in changed.items()}
    return case.change(weights=BlockWeights.from_mapping(case.config, named))


def each_weight(case: Case, change: Callable[[Weight], Weight | None], detail: str) -> Iterator[Variation]:
    """Yield the run with one linear weight changed, for each, then with all; those that change to None are left.

    change  may return the weight itself where nothing changes, which counts as None
    """
    changed = {}
    for name, weight in case.weights.named().items():
        if multiplied_by(name) and (other := change(weight)) is not None and other is not weight:
            changed[name] = other
    if len(changed) > 1:
        everywhere = {name.replace(".", "__"): weight for name, weight in changed.items()}
        yield Variation(f"{detail}, in every weight", with_weights(case, **everywhere), form=detail)
    for name, weight in changed.items():
        yield Variation(
            f"{detail}, in {name.removesuffix('.weight')}",
            with_weights(case, **{name.replace(".", "__"): weight}),
            multiplied_by(name),
            detail,
        )


def with_yarn(case: Case, **settings: Any) -> Case | None:
    """Return the run with the rotary table of other YaRN settings, or None where there is no YaRN."""
    if case.config.yarn is None:
        return None
    return case.with_table(replace(case.config, yarn=replace(case.config.yarn, **settings)))
