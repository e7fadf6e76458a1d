"""Answer the conformance kit with torch, as code that uses torch would; blocklab is not imported.

blocklab conformance write questions.safetensors
python docs/conformance_examples/torch_answers.py questions.safetensors answers.safetensors
blocklab conformance check answers.safetensors
"""

import math
import sys

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file

DTYPES = {
    "e4m3fn": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2fnuz": torch.float8_e5m2fnuz,
    "e8m0": torch.float8_e8m0fnu,
}


def codes(x, name="e4m3fn"):
    return x.to(DTYPES[name]).view(torch.uint8)


def spread(scale, rows, columns, shape):
    """Repeat scales for every element of a matrix whose last blocks may be short."""
    return scale.repeat_interleave(rows, 0).repeat_interleave(columns, 1)[: shape[0], : shape[1]]


def block_scale(x, rows, columns):
    padded = F.pad(x.abs(), (0, -x.shape[1] % columns, 0, -x.shape[0] % rows))
    amax = padded.view(padded.shape[0] // rows, rows, -1, columns).amax((1, 3))
    return amax.clamp(min=1e-4) / 448


def formats(q):
    a = {}
    for name, dtype in DTYPES.items():
        a[f"decode.{name}"] = q[f"decode.{name}.codes"].view(dtype).float()
    for name in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz"):
        a[f"encode.{name}.codes"] = codes(q[f"encode.{name}.x"], name)
    for name in ("e4m3fn", "e5m2"):
        a[f"encode.{name}.saturating.codes"] = codes(q[f"encode.{name}.saturating.x"], name)
    a["encode.e4m3fn.float64.codes"] = codes(q["encode.e4m3fn.float64.x"])
    for name in ("round.bfloat16", "round.bfloat16.float64"):
        a[name] = q[f"{name}.x"].bfloat16()
    return a


def scaling(q):
    a = {}
    for kind, x, rows in (("groups", q["quantize.groups.x"], 1), ("blocks", q["quantize.blocks.w"], 128)):
        scale = a[f"quantize.{kind}.scale"] = block_scale(x, rows, 128)
        a[f"quantize.{kind}.codes"] = codes(x / spread(scale, rows, 128, x.shape))
    x = q["quantize.ue8m0.x"]
    scale = a["quantize.ue8m0.scale"] = torch.exp2(torch.ceil(torch.log2(block_scale(x, 1, 128))))
    a["quantize.ue8m0.codes"] = codes(x / scale)
    values = q["dequantize.blocks.codes"].view(torch.float8_e4m3fn).float()
    a["dequantize.blocks"] = values * spread(q["dequantize.blocks.scale"], 128, 128, values.shape)

    left = q["fp8_matmul.a"].view(torch.float8_e4m3fn).float()
    right = q["fp8_matmul.w"].view(torch.float8_e4m3fn).float()
    left = left * spread(q["fp8_matmul.a_scale"], 1, 128, left.shape)
    right = right * spread(q["fp8_matmul.w_scale"], 128, 128, right.shape)
    a["fp8_matmul.exact"] = left @ right.T
    a["tensor_core.hopper"] = (
        q["tensor_core.a"].view(torch.float8_e4m3fn).float() * q["tensor_core.b"].view(torch.float8_e4m3fn).float()
    ).sum(-1)
    return a


def rotary_table(positions, theta, factor, fast, slow):
    """Return cos and sin as published code computes them: everything in float32."""
    wavelengths = theta ** (torch.arange(0, 64, 2, dtype=torch.float32) / 64)
    pair = [64 * math.log(4096 / (turns * 2 * math.pi)) / (2 * math.log(theta)) for turns in (fast, slow)]
    low, high = max(math.floor(pair[0]), 0), min(math.ceil(pair[1]), 63)
    ramp = ((torch.arange(32, dtype=torch.float32) - low) / ((high - low) or 0.001)).clamp(0, 1)
    frequencies = (1 / (factor * wavelengths)) * ramp + (1 / wavelengths) * (1 - ramp)
    angles = positions.float()[:, None] * frequencies
    return torch.stack([angles.cos(), angles.sin()], -1)


def block(q):
    a = {}
    a["rotary_table.kimi-k2"] = rotary_table(q["rotary_table.kimi-k2.positions"], 50000.0, 32, 1, 1)
    a["rotary_table.deepseek-v3"] = rotary_table(q["rotary_table.deepseek-v3.positions"], 10000.0, 40, 32, 1)
    pairs = torch.view_as_complex(q["rotate.x"].view(64, 32, 2))
    a["rotate"] = torch.view_as_real(pairs * torch.complex(q["rotate.cos"], q["rotate.sin"])).flatten(-2)
    mscale = 0.1 * torch.log(q["softmax_scale.factor"]) + 1
    a["softmax_scale"] = 192**-0.5 * mscale * mscale
    a["kv_b.k_nope"] = q["kv_b.row"].view(3, 4 + 2)[:, :4]
    T, S = int(q["causal_mask.T"]), int(q["causal_mask.S"])
    a["causal_mask"] = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    hidden = q["softmax.boolean.scores"].masked_fill(~q["softmax.boolean.mask"], -torch.inf)
    a["softmax.boolean"] = hidden.softmax(-1)
    a["softmax.additive"] = (q["softmax.additive.scores"] + q["softmax.additive.mask"]).softmax(-1)
    a["silu"] = F.silu(q["silu.x"])
    x, gain = q["rms_norm.x"], q["rms_norm.gain"]
    normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    a["rms_norm.once"] = (gain * normed).bfloat16()
    a["rms_norm.twice"] = (gain * normed.bfloat16().float()).bfloat16()
    return a


def main(questions, answers):
    with safe_open(questions, "pt") as file:
        q = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    a = formats(q) | scaling(q) | block(q)
    save_file({name: value.contiguous() for name, value in a.items()}, answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
