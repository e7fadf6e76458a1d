"""The block as a diagram: where each step stands, and which steps lead to it."""

from __future__ import annotations

from typing import Any

from blocklab.block.config import BlockConfig
from blocklab.block.steps import STEPS, steps_of

Place = tuple[float, float, float]
"""Column of the middle, row, width in columns. Column 0 is the residual stream; parts stand under their whole."""

_TOP: dict[str, Place] = {
    "resid_pre": (0, 0, 1),
    "attn_norm": (3, 1, 1.3),
    "q_latent": (1.5, 2, 1.3),
    "kv_down": (4, 2, 3),
    "q_latent_norm": (1.5, 3, 1.3),
    "kv_latent": (4.5, 3, 2),
    "q": (1.5, 4, 2),
    "kv_latent_norm": (4.5, 4, 2),
    "q_nope": (1, 6, 1),
    "q_rot": (2, 6, 1),
    "k_rot": (3, 6, 1),
}
_NAIVE: dict[str, Place] = {"kv_up": (4.5, 5, 2), "k_nope": (4, 6, 1), "v": (5, 6, 1)}
_ABSORB: dict[str, Place] = {"q_nope": (1, 5, 1), "q_absorbed": (1, 6, 1)}
_SCORES: dict[str, Place] = {
    "attn_scores": (2.5, 7, 4),
    "attn_masked": (2.5, 8, 1.3),
    "pattern": (2.5, 9, 1.3),
}
_MIX: dict[str, Place] = {"z": (3.75, 10, 3.5)}
_MIX_LATENT: dict[str, Place] = {"z_latent": (3.75, 10, 3.5), "z": (3.75, 11, 1.3)}
_BOTTOM: dict[str, Place] = {
    "attn_out": (3.75, 11, 1.3),
    "resid_mid": (0, 12, 1),
    "mlp_norm": (3, 13, 1.3),
    "gate": (2, 14, 1.3),
    "up": (4, 14, 1.3),
    "gate_act": (2, 15, 1.3),
    "act": (3, 16, 3.3),
    "mlp_out": (3, 17, 1.3),
    "resid_post": (0, 18, 1),
}


def diagram(attention: str, config: BlockConfig | None) -> dict[str, Any]:
    """Return nodes {step, column, row, width}, edges {from, to, column} and the rows that each half spans.

    column  where an edge goes down; None leaves it to the drawing
    """
    absorb = attention == "absorb"
    places = _TOP | (_ABSORB if absorb else _NAIVE) | _SCORES | (_MIX_LATENT if absorb else _MIX)
    places |= {name: (x, y + absorb, width) for name, (x, y, width) in _BOTTOM.items()}
    if config is not None and config.q_lora_rank is None:
        del places["q_latent"], places["q_latent_norm"]
    steps = [name for name in STEPS if name in places]
    return {
        "nodes": [dict(zip(("step", "column", "row", "width"), (name, *places[name]), strict=True)) for name in steps],
        "edges": [
            {"from": source, "to": name, "column": 5 if (source, name) == ("kv_latent_norm", "z_latent") else None}
            for name in steps
            for source in steps_of(config, attention)[name].inputs
        ],
        "groups": [
            {"part": "attention", "rows": [2, 11 + absorb]},
            {"part": "mlp", "rows": [14 + absorb, 17 + absorb]},
        ],
    }
