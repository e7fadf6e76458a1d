"""Which steps a step is computed from."""

from __future__ import annotations

from collections.abc import Collection
from itertools import dropwhile

from blocklab.block.steps import STEPS, steps_of
from blocklab.check.case import Case


def inputs_of(name: str, case: Case) -> tuple[str, ...]:
    """Return the steps that a step is computed from; none for what is no step."""
    return steps_of(case.config, case.attention)[name].inputs if name in STEPS else ()


AFTER_ATTENTION = tuple(dropwhile(lambda step: step != "resid_mid", STEPS))
"""Steps that need nothing of attention but attn_out."""


MIXING = ("attn_scores", "attn_masked", "pattern", "z", "z_latent")
"""Steps in which tokens meet; all others take them one by one."""


def chain_to(name: str, recorded: Collection[str], case: Case) -> set[str]:
    """Return the steps between the last recorded ones and `name`, which is among them: what can be wrong there."""
    chain, waiting = set(), [name]
    while waiting:
        step = waiting.pop()
        if step in STEPS and step not in chain:
            chain.add(step)
            waiting += [source for source in inputs_of(step, case) if source not in recorded]
    return chain
