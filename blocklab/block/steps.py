"""The steps of the block: the one table of names, axes, formulas and the names other programs give them."""

from __future__ import annotations

from dataclasses import dataclass

AXES = {
    "B": "batch",
    "T": "query position",
    "S": "key position",
    "D": "model width",
    "H": "head",
    "Q": "query latent",
    "C": "key-value latent",
    "N": "nope (unrotated) width",
    "R": "rotary width",
    "V": "value width",
    "F": "MLP width",
}
"""Axis letter -> meaning."""


@dataclass(frozen=True)
class Step:
    """One named value of the block.

    shape        letters of AXES, one an axis; "N+R" is a concatenation
    formula      LaTeX
    note         what happens, in a few words
    source       where it comes from: equations of the DeepSeek-V3 report (arXiv 2412.19437), or a paper
    transformers, deepseek, llama_cpp  what other programs call it, after any layer prefix
    attention    "both", or the one form of attention in which the step exists
    """

    name: str
    shape: str
    formula: str
    note: str
    source: str
    transformers: tuple[str, ...] = ()
    deepseek: tuple[str, ...] = ()
    llama_cpp: tuple[str, ...] = ()
    attention: str = "both"

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of `shape`, one by one."""
        return tuple(self.shape.split())

    @property
    def aliases(self) -> tuple[str, ...]:
        """Every name that other programs give the step."""
        return self.transformers + self.deepseek + self.llama_cpp


_RMS = "Zhang & Sennrich, arXiv 1910.07467"
_MLA = "DeepSeek-V3 report, section 2.1.1"
_RESIDUAL = "He et al., arXiv 1512.03385"
_SWIGLU = "Shazeer, arXiv 2002.05202"
_ABSORB = "DeepSeek-V2 report, arXiv 2405.04434, section 2.1.2"
_SOFTMAX = "Vaswani et al., arXiv 1706.03762, eq. 1"

_TABLE = (
    Step(
        "resid_pre",
        "B T D",
        r"x",
        "residual stream enters",
        _RESIDUAL,
        transformers=("input",),
        deepseek=("input",),
    ),
    Step(
        "attn_norm",
        "B T D",
        r"h = \mathrm{RMSNorm}(x)",
        "scale each token to unit rms",
        _RMS,
        transformers=("input_layernorm",),
        deepseek=("attn_norm",),
        llama_cpp=("attn_norm-0",),
    ),
    Step(
        "q_latent",
        "B T Q",
        r"c^Q = W^{DQ} h",
        "compress the query",
        f"{_MLA}, eq. 6",
        transformers=("self_attn.q_a_proj",),
        deepseek=("attn.wq_a",),
    ),
    Step(
        "q_latent_norm",
        "B T Q",
        r"\hat c^Q = \mathrm{RMSNorm}(c^Q)",
        "norm of the query latent",
        _RMS,
        transformers=("self_attn.q_a_layernorm",),
        deepseek=("attn.q_norm",),
    ),
    Step(
        "q",
        "B T H N+R",
        r"[q^N_h; q^R_h] = W^{UQ} \hat c^Q",
        "queries of all heads",
        f"{_MLA}, eq. 7-8",
        transformers=(
            "self_attn.q_b_proj",
            "self_attn.q_proj",
        ),
        deepseek=(
            "attn.wq_b",
            "attn.wq",
        ),
        llama_cpp=("q-0",),
    ),
    Step(
        "q_nope",
        "B T H N",
        r"q^N_h = q_h[{:}N]",
        "the part that is not rotated",
        f"{_MLA}, eq. 7",
    ),
    Step(
        "q_rot",
        "B T H R",
        r"\tilde q^R_h = R_t\, q_h[N{:}]",
        "rotate by position",
        f"{_MLA}, eq. 8",
        deepseek=("attn.q_pe",),
    ),
    Step(
        "kv_down",
        "B T C+R",
        r"[c^{KV}; k^R] = W^{DKV} h",
        "compress keys and values",
        f"{_MLA}, eq. 1, 3",
        transformers=("self_attn.kv_a_proj_with_mqa",),
        deepseek=("attn.wkv_a",),
    ),
    Step(
        "kv_latent",
        "B T C",
        r"c^{KV}",
        "the latent part",
        f"{_MLA}, eq. 1",
        llama_cpp=("kv_cmpr-0",),
    ),
    Step(
        "kv_latent_norm",
        "B T C",
        r"\hat c^{KV} = \mathrm{RMSNorm}(c^{KV})",
        "norm of the latent: cached",
        _RMS,
        transformers=("self_attn.kv_a_layernorm",),
        deepseek=("attn.kv_norm",),
    ),
    Step(
        "k_rot",
        "B T R",
        r"\tilde k^R = R_t\, k^R",
        "one rotary key for all heads: cached",
        f"{_MLA}, eq. 3",
        deepseek=("attn.k_pe",),
        llama_cpp=("k_pe-0",),
    ),
    Step(
        "kv_up",
        "B S H N+V",
        r"[k^N_h; v_h] = W^{UKV} \hat c^{KV}",
        "keys and values of all heads",
        f"{_MLA}, eq. 2, 5",
        transformers=("self_attn.kv_b_proj",),
        deepseek=("attn.wkv_b",),
        attention="naive",
    ),
    Step(
        "k_nope",
        "B S H N",
        r"k^N_h",
        "keys that are not rotated",
        f"{_MLA}, eq. 2",
        attention="naive",
    ),
    Step(
        "v",
        "B S H V",
        r"v_h",
        "values",
        f"{_MLA}, eq. 5",
        attention="naive",
    ),
    Step(
        "q_absorbed",
        "B T H C",
        r"q^C_h = (W^{UK}_h)^\top q^N_h",
        "query moved into the latent space",
        _ABSORB,
        attention="absorb",
    ),
    Step(
        "attn_scores",
        "B H T S",
        r"s = \gamma\,(q^N k^N + \tilde q^R \tilde k^R)",
        "how much each query likes each key",
        f"{_MLA}, eq. 10",
    ),
    Step(
        "attn_masked",
        "B H T S",
        r"s + M",
        "hide what may not be seen",
        _SOFTMAX,
    ),
    Step(
        "pattern",
        "B H T S",
        r"p = \mathrm{softmax}_S(s + M)",
        "each row sums to one",
        _SOFTMAX,
        transformers=("self_attn.attn_weights",),
    ),
    Step(
        "z_latent",
        "B T H C",
        r"z^C_h = p_h\, \hat c^{KV}",
        "mix latents by the pattern",
        _ABSORB,
        attention="absorb",
    ),
    Step(
        "z",
        "B T H V",
        r"z_h = p_h v_h",
        "mix values by the pattern",
        f"{_MLA}, eq. 10",
        llama_cpp=("kqv_out-0",),
    ),
    Step(
        "attn_out",
        "B T D",
        r"W^O [z_1; \dots; z_H]",
        "write to the residual stream",
        f"{_MLA}, eq. 11",
        transformers=(
            "self_attn.o_proj",
            "self_attn",
        ),
        deepseek=(
            "attn.wo",
            "attn",
        ),
    ),
    Step(
        "resid_mid",
        "B T D",
        r"x' = x + W^O z",
        "residual after attention",
        _RESIDUAL,
        llama_cpp=("ffn_inp-0",),
    ),
    Step(
        "mlp_norm",
        "B T D",
        r"h' = \mathrm{RMSNorm}(x')",
        "scale each token to unit rms",
        _RMS,
        transformers=("post_attention_layernorm",),
        deepseek=("ffn_norm",),
        llama_cpp=("ffn_norm-0",),
    ),
    Step(
        "gate",
        "B T F",
        r"g = W^{gate} h'",
        "which features fire",
        _SWIGLU,
        transformers=("mlp.gate_proj",),
        deepseek=("ffn.w1",),
        llama_cpp=("ffn_gate-0",),
    ),
    Step(
        "up",
        "B T F",
        r"u = W^{up} h'",
        "what they carry",
        _SWIGLU,
        transformers=("mlp.up_proj",),
        deepseek=("ffn.w3",),
        llama_cpp=("ffn_up-0",),
    ),
    Step(
        "gate_act",
        "B T F",
        r"\mathrm{silu}(g) = g\,\sigma(g)",
        "smooth switch",
        _SWIGLU,
        transformers=("mlp.act_fn",),
    ),
    Step(
        "act",
        "B T F",
        r"\mathrm{silu}(g) \odot u",
        "gate times up",
        _SWIGLU,
    ),
    Step(
        "mlp_out",
        "B T D",
        r"W^{down} (\mathrm{silu}(g) \odot u)",
        "write to the residual stream",
        _SWIGLU,
        transformers=(
            "mlp.down_proj",
            "mlp",
        ),
        deepseek=(
            "ffn.w2",
            "ffn",
        ),
        llama_cpp=("ffn_out-0",),
    ),
    Step(
        "resid_post",
        "B T D",
        r"y = x' + W^{down}(\dots)",
        "residual stream leaves",
        _RESIDUAL,
        transformers=("output",),
        deepseek=("output",),
        llama_cpp=("l_out-0",),
    ),
)

STEPS: dict[str, Step] = {step.name: step for step in _TABLE}
"""Step name -> Step, in the order in which the block computes them."""


def step_of(name: str) -> Step:
    """Return the step of a traced value: its own, or for NAME.in.codes and NAME.in.scale the one of NAME."""
    return STEPS[name.partition(".in.")[0]]
