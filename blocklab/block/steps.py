"""The steps of the block: the one table of what each is called, computed from, and called by others."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, cast

from blocklab.block.config import BlockConfig

AXES = {
    **{"B": "batch", "T": "query position", "S": "key position", "D": "model width", "H": "head"},
    **{"Q": "query latent", "C": "key-value latent", "N": "nope (unrotated) width", "R": "rotary width"},
    **{"V": "value width", "F": "MLP width"},
}
"""Axis letter -> meaning."""

SETTINGS = {
    **{"D": "hidden_size", "H": "num_attention_heads", "Q": "q_lora_rank", "C": "kv_lora_rank"},
    **{"N": "qk_nope_head_dim", "R": "qk_rope_head_dim", "V": "v_head_dim", "F": "intermediate_size"},
}
"""Axis letter -> the setting of config.json that gives its size; batch and positions have none."""

Kind = Literal[
    "input", "norm", "linear", "first part", "last part", "rotation", "scores", "mask", "softmax", "mix", "silu",
    "product", "sum", "absorb", "unabsorb",
]  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One named value of the block.

    shape      letters of AXES, one an axis; "N+R" is a concatenation
    kind       what is done to `inputs`, the steps it is computed from; a part is cut from the last axis of its input
    weight     the parameter it uses, by its name relative to the layer
    symbol     what the paper calls it, and `formula` how it is computed, both LaTeX
    note       what happens, in a few words
    source     where it comes from: equations of the DeepSeek-V3 report (arXiv 2412.19437), or a paper
    transformers, deepseek, llama_cpp  what other programs call it, after any layer prefix
    """

    name: str
    shape: str
    kind: Kind
    inputs: tuple[str, ...]
    weight: str | None
    symbol: str
    formula: str
    note: str
    source: str
    transformers: tuple[str, ...]
    deepseek: tuple[str, ...]
    llama_cpp: tuple[str, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of `shape`, one by one."""
        return tuple(self.shape.split())

    @property
    def eps(self) -> Literal["rms_norm_eps", "latent_norm_eps"] | None:
        """The setting that a norm takes its eps from."""
        if self.kind != "norm":
            return None
        return "latent_norm_eps" if self.axes[-1] in "QC" else "rms_norm_eps"

    @property
    def attention(self) -> Literal["both", "naive", "absorb"]:
        """The form of attention in which the step exists."""
        if self.name in ("q_absorbed", "z_latent"):
            return "absorb"
        return "naive" if self.name in ("kv_up", "k_nope", "v") else "both"

    @property
    def rounds(self) -> bool:
        """Whether its values are computed, and not only taken from another step or hidden."""
        return self.kind not in ("first part", "last part", "mask")


# Columns are parted by two spaces or more. Scores and z are those of naive attention; `_ABSORBED` has the others.
_WIRING = """
resid_pre       B T D      input       -                             -
attn_norm       B T D      norm        resid_pre                     input_layernorm.weight
q_latent        B T Q      linear      attn_norm                     self_attn.q_a_proj.weight
q_latent_norm   B T Q      norm        q_latent                      self_attn.q_a_layernorm.weight
q               B T H N+R  linear      q_latent_norm                 self_attn.q_b_proj.weight
q_nope          B T H N    first part  q                             -
q_rot           B T H R    rotation    q                             -
kv_down         B T C+R    linear      attn_norm                     self_attn.kv_a_proj_with_mqa.weight
kv_latent       B T C      first part  kv_down                       -
kv_latent_norm  B T C      norm        kv_latent                     self_attn.kv_a_layernorm.weight
k_rot           B T R      rotation    kv_down                       -
kv_up           B S H N+V  linear      kv_latent_norm                self_attn.kv_b_proj.weight
k_nope          B S H N    first part  kv_up                         -
v               B S H V    last part   kv_up                         -
q_absorbed      B T H C    absorb      q_nope                        self_attn.kv_b_proj.weight
attn_scores     B H T S    scores      q_nope, k_nope, q_rot, k_rot  -
attn_masked     B H T S    mask        attn_scores                   -
pattern         B H T S    softmax     attn_masked                   -
z_latent        B T H C    mix         pattern, kv_latent_norm       -
z               B T H V    mix         pattern, v                    -
attn_out        B T D      linear      z                             self_attn.o_proj.weight
resid_mid       B T D      sum         resid_pre, attn_out           -
mlp_norm        B T D      norm        resid_mid                     post_attention_layernorm.weight
gate            B T F      linear      mlp_norm                      mlp.gate_proj.weight
up              B T F      linear      mlp_norm                      mlp.up_proj.weight
gate_act        B T F      silu        gate                          -
act             B T F      product     gate_act, up                  -
mlp_out         B T D      linear      act                           mlp.down_proj.weight
resid_post      B T D      sum         resid_mid, mlp_out            -
"""
"""Name, shape, kind, inputs, weight."""

_FORMULAS = r"""
resid_pre       x                         x                                              residual
attn_norm       h                         h = \mathrm{RMSNorm}(x)                        rms
q_latent        c^Q                       c^Q = W^{DQ} h                                 eq. 6
q_latent_norm   \hat c^Q                  \hat c^Q = \mathrm{RMSNorm}(c^Q)               rms
q               q                         [q^N_h; q^R_h] = W^{UQ} \hat c^Q               eq. 7-8
q_nope          q^N                       q^N_h = q_h[{:}N]                              eq. 7
q_rot           \tilde q^R                \tilde q^R_h = R_t\, q_h[N{:}]                 eq. 8
kv_down         [c^{KV}; k^R]             [c^{KV}; k^R] = W^{DKV} h                      eq. 1, 3
kv_latent       c^{KV}                    c^{KV}                                         eq. 1
kv_latent_norm  \hat c^{KV}               \hat c^{KV} = \mathrm{RMSNorm}(c^{KV})         rms
k_rot           \tilde k^R                \tilde k^R = R_t\, k^R                         eq. 3
kv_up           [k^N; v]                  [k^N_h; v_h] = W^{UKV} \hat c^{KV}             eq. 2, 5
k_nope          k^N                       k^N_h                                          eq. 2
v               v                         v_h                                            eq. 5
q_absorbed      q^C                       q^C_h = (W^{UK}_h)^\top q^N_h                  absorb
attn_scores     s                         s = \gamma\,(q^N k^N + \tilde q^R \tilde k^R)  eq. 10
attn_masked     s + M                     s + M                                          softmax
pattern         p                         p = \mathrm{softmax}_S(s + M)                  softmax
z_latent        z^C                       z^C_h = p_h\, \hat c^{KV}                      absorb
z               z                         z_h = p_h v_h                                  eq. 10
attn_out        W^O z                     W^O [z_1; \dots; z_H]                          eq. 11
resid_mid       x'                        x' = x + W^O z                                 residual
mlp_norm        h'                        h' = \mathrm{RMSNorm}(x')                      rms
gate            g                         g = W^{gate} h'                                swiglu
up              u                         u = W^{up} h'                                  swiglu
gate_act        \mathrm{silu}(g)          \mathrm{silu}(g) = g\,\sigma(g)                swiglu
act             \mathrm{silu}(g) \odot u  \mathrm{silu}(g) \odot u                       swiglu
mlp_out         m                         W^{down} (\mathrm{silu}(g) \odot u)            swiglu
resid_post      y                         y = x' + W^{down}(\dots)                       residual
"""
"""Name, symbol, formula, source: an equation of section 2.1.1 of the DeepSeek-V3 report, or a key of `_PAPERS`."""

_NAMES = """
resid_pre       residual stream enters                input                                input              -
attn_norm       scale each token to unit rms          input_layernorm                      attn_norm          attn_norm
q_latent        compress the query                    self_attn.q_a_proj                   attn.wq_a          -
q_latent_norm   norm of the query latent              self_attn.q_a_layernorm              attn.q_norm        -
q               queries of all heads                  self_attn.q_b_proj,self_attn.q_proj  attn.wq_b,attn.wq  q
q_nope          the part that is not rotated          -                                    -                  -
q_rot           rotate by position                    -                                    attn.q_pe          -
kv_down         compress keys and values              self_attn.kv_a_proj_with_mqa         attn.wkv_a         -
kv_latent       the latent part                       -                                    -                  kv_cmpr
kv_latent_norm  norm of the latent: cached            self_attn.kv_a_layernorm             attn.kv_norm       -
k_rot           one rotary key for all heads: cached  -                                    attn.k_pe          k_pe
kv_up           keys and values of all heads          self_attn.kv_b_proj                  attn.wkv_b         -
k_nope          keys that are not rotated             -                                    -                  -
v               values                                -                                    -                  -
q_absorbed      query moved into the latent space     -                                    -                  -
attn_scores     how much each query likes each key    -                                    -                  -
attn_masked     hide what may not be seen             -                                    -                  -
pattern         each row sums to one                  self_attn.attn_weights               -                  -
z_latent        mix latents by the pattern            -                                    -                  -
z               mix values by the pattern             -                                    -                  kqv_out
attn_out        write to the residual stream          self_attn.o_proj,self_attn           attn.wo,attn       -
resid_mid       residual after attention              -                                    -                  ffn_inp
mlp_norm        scale each token to unit rms          post_attention_layernorm             ffn_norm           ffn_norm
gate            which features fire                   mlp.gate_proj                        ffn.w1             ffn_gate
up              what they carry                       mlp.up_proj                          ffn.w3             ffn_up
gate_act        smooth switch                         mlp.act_fn                           -                  -
act             gate times up                         -                                    -                  -
mlp_out         write to the residual stream          mlp.down_proj,mlp                    ffn.w2,ffn         ffn_out
resid_post      residual stream leaves                output                               output             l_out
"""
"""Name, what happens, and the names that transformers, DeepSeek and llama.cpp give it."""

_PAPERS = {
    "rms": "Zhang & Sennrich, arXiv 1910.07467",
    "residual": "He et al., arXiv 1512.03385",
    "swiglu": "Shazeer, arXiv 2002.05202",
    "absorb": "DeepSeek-V2 report, arXiv 2405.04434, section 2.1.2",
    "softmax": "Vaswani et al., arXiv 1706.03762, eq. 1",
}


def _read(table: str) -> dict[str, list[str]]:
    """Return the first column of a table -> the others; a dash is nothing."""
    rows = (re.split(r"\s{2,}", line.strip()) for line in table.strip().splitlines())
    return {name: ["" if cell == "-" else cell for cell in cells] for name, *cells in rows}


def _several(cell: str) -> tuple[str, ...]:
    return tuple(re.split(", ?", cell)) if cell else ()


def _joined() -> Iterator[Step]:
    formulas, names = _read(_FORMULAS), _read(_NAMES)
    for name, (shape, kind, inputs, weight) in _read(_WIRING).items():
        symbol, formula, source = formulas[name]
        note, *others = names[name]
        transformers, deepseek, llama_cpp = map(_several, others)
        yield Step(
            *(name, shape, cast(Kind, kind), _several(inputs), weight or None, symbol, formula, note),
            _PAPERS.get(source, f"DeepSeek-V3 report, section 2.1.1, {source}"),
            *(transformers, deepseek, llama_cpp),
        )


STEPS: dict[str, Step] = {step.name: step for step in _joined()}
"""Step name -> Step, in the order in which the block computes them; scores and z as in naive attention."""

LINEARS = tuple(step.name for step in STEPS.values() if step.kind == "linear")
"""Steps that multiply by a matrix of the checkpoint, and quantise their input where a recipe says so."""

QUANTISED = tuple(f"{step}.in.{part}" for step in LINEARS for part in ("codes", "scale"))
"""Names of the quantised inputs of linears in an FP8 recipe."""

_ABSORBED = {
    "attn_scores": replace(STEPS["attn_scores"], inputs=("q_absorbed", "kv_latent_norm", "q_rot", "k_rot")),
    "z": replace(STEPS["z"], kind="unabsorb", inputs=("z_latent",), weight="self_attn.kv_b_proj.weight"),
}

_UNCOMPRESSED = {"q": replace(STEPS["q"], inputs=("attn_norm",), weight="self_attn.q_proj.weight")}


def steps_of(config: BlockConfig | None = None, attention: str = "naive") -> Mapping[str, Step]:
    """Return the table as it is for a config and a form of attention; without a config, queries are compressed."""
    return _table_of(config is None or config.q_lora_rank is not None, attention == "absorb")


@cache
def _table_of(compressed: bool, absorbed: bool) -> Mapping[str, Step]:
    return STEPS | (_ABSORBED if absorbed else {}) | ({} if compressed else _UNCOMPRESSED)


def step_of(name: str) -> Step:
    """Return the step of a traced value: its own, or for NAME.in.codes and NAME.in.scale the one of NAME."""
    return STEPS[name.partition(".in.")[0]]


def multiplied_by(weight: str) -> tuple[str, ...]:
    """Return the steps that multiply by a matrix of the checkpoint, in every form of attention; none for a gain."""
    steps = (*STEPS.values(), *_ABSORBED.values(), *_UNCOMPRESSED.values())
    return tuple(s.name for s in steps if s.weight == weight and s.kind in ("linear", "absorb", "unabsorb"))


def attention_of(steps: Container[str]) -> str:
    """Return which form of attention these steps come from."""
    return "absorb" if "q_absorbed" in steps or "z_latent" in steps else "naive"


def width(axis: str, config: BlockConfig) -> int:
    """Return the size of an axis that the config gives, of "N+R" the sum; 0 for an absent query latent."""
    return sum(getattr(config, SETTINGS[letter]) or 0 for letter in axis.split("+"))
