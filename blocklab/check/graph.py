"""Which steps a step is computed from."""

from __future__ import annotations

from collections.abc import Collection

from blocklab.block.steps import STEPS
from blocklab.check.run import Run


def inputs_of(name: str, run: Run) -> tuple[str, ...]:
    """Return the steps that a step is computed from."""
    absorb = run.attention == "absorb"
    sources = {
        "attn_norm": ("resid_pre",),
        "q_latent": ("attn_norm",),
        "q_latent_norm": ("q_latent",),
        "q": ("attn_norm",) if run.config.q_lora_rank is None else ("q_latent_norm",),
        "q_nope": ("q",),
        "q_rot": ("q",),
        "kv_down": ("attn_norm",),
        "kv_latent": ("kv_down",),
        "kv_latent_norm": ("kv_latent",),
        "k_rot": ("kv_down",),
        "kv_up": ("kv_latent_norm",),
        "k_nope": ("kv_up",),
        "v": ("kv_up",),
        "q_absorbed": ("q_nope",),
        "attn_scores": ("q_absorbed", "kv_latent_norm", "q_rot", "k_rot")
        if absorb
        else ("q_nope", "k_nope", "q_rot", "k_rot"),
        "attn_masked": ("attn_scores",),
        "pattern": ("attn_masked",),
        "z_latent": ("pattern", "kv_latent_norm"),
        "z": ("z_latent",) if absorb else ("pattern", "v"),
        "attn_out": ("z",),
        "resid_mid": ("resid_pre", "attn_out"),
        "mlp_norm": ("resid_mid",),
        "gate": ("mlp_norm",),
        "up": ("mlp_norm",),
        "gate_act": ("gate",),
        "act": ("gate_act", "up"),
        "mlp_out": ("act",),
        "resid_post": ("resid_mid", "mlp_out"),
    }
    return sources.get(name, ())


AFTER_ATTENTION = ("resid_mid", "mlp_norm", "gate", "up", "gate_act", "act", "mlp_out", "resid_post")
"""Steps that need nothing of attention but attn_out."""


MIXING = ("attn_scores", "attn_masked", "pattern", "z", "z_latent")
"""Steps in which tokens meet; all others take them one by one."""


def chain_to(name: str, recorded: Collection[str], run: Run) -> set[str]:
    """Return the steps between the last recorded ones and `name`, which is among them: what can be wrong there."""
    chain, waiting = set(), [name]
    while waiting:
        step = waiting.pop()
        if step in STEPS and step not in chain:
            chain.add(step)
            waiting += [source for source in inputs_of(step, run) if source not in recorded]
    return chain
