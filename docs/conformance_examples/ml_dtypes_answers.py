"""Answer the parts of the conformance kit that ml_dtypes and numpy can compute; blocklab is not imported.

blocklab conformance write questions.safetensors
python docs/conformance_examples/ml_dtypes_answers.py questions.safetensors answers.safetensors
blocklab conformance check answers.safetensors
"""

import sys

import ml_dtypes
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

DTYPES = {
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e8m0": ml_dtypes.float8_e8m0fnu,
}


def codes(x, name="e4m3fn"):
    return x.astype(DTYPES[name]).view(np.uint8)


def spread(scale, rows, columns, shape):
    """Repeat scales for every element of a matrix whose last blocks may be short."""
    return np.repeat(np.repeat(scale, rows, 0), columns, 1)[: shape[0], : shape[1]]


def block_scale(x, rows, columns):
    padded = np.pad(np.abs(x), [(0, -x.shape[0] % rows), (0, -x.shape[1] % columns)])
    amax = padded.reshape(padded.shape[0] // rows, rows, -1, columns).max((1, 3))
    return np.maximum(amax, np.float32(1e-4)) / np.float32(448)


@np.errstate(all="ignore")
def answer(q):
    a = {}
    for name, dtype in DTYPES.items():
        a[f"decode.{name}"] = q[f"decode.{name}.codes"].view(dtype).astype(np.float32)
    for name in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz"):
        a[f"encode.{name}.codes"] = codes(q[f"encode.{name}.x"], name)
    for name in ("e4m3fn", "e5m2"):
        a[f"encode.{name}.saturating.codes"] = codes(q[f"encode.{name}.saturating.x"], name)
    a["encode.e4m3fn.float64.codes"] = codes(q["encode.e4m3fn.float64.x"])
    for name in ("round.bfloat16", "round.bfloat16.float64"):
        a[name] = q[f"{name}.x"].astype(ml_dtypes.bfloat16).astype(np.float32)

    x, w = q["quantize.groups.x"], q["quantize.blocks.w"]
    a["quantize.groups.scale"] = block_scale(x, 1, 128)
    a["quantize.groups.codes"] = codes(x / spread(a["quantize.groups.scale"], 1, 128, x.shape))
    a["quantize.blocks.scale"] = block_scale(w, 128, 128)
    a["quantize.blocks.codes"] = codes(w / spread(a["quantize.blocks.scale"], 128, 128, w.shape))
    values = q["dequantize.blocks.codes"].view(DTYPES["e4m3fn"]).astype(np.float32)
    a["dequantize.blocks"] = values * spread(q["dequantize.blocks.scale"], 128, 128, values.shape)

    for form in ("once", "twice"):
        x, gain = q["rms_norm.x"], q["rms_norm.gain"]
        y = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + np.float32(1e-6))
        if form == "twice":
            y = y.astype(ml_dtypes.bfloat16).astype(np.float32)
        a[f"rms_norm.{form}"] = (gain * y).astype(ml_dtypes.bfloat16).astype(np.float32)
    return a


def main(questions, answers):
    with safe_open(questions, "numpy") as file:
        q = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file({name: np.ascontiguousarray(value) for name, value in answer(q).items()}, answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
