"""Rounding, encoding and decoding, each in one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np

from benchmarks.measure import Row, medians
from benchmarks.peers import TORCH
from benchmarks.setting import Setting
from blocklab.numerics import decode, encode, quantize, round_to

Calls = dict[str, Callable[[], object]]


def conversions(setting: Setting) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    """Yield each conversion beside ml_dtypes and torch, in nanoseconds per value."""
    count = 1 << 18 if setting.quick else 16 << 20
    x = np.random.default_rng(0).standard_normal(count, np.float32) * np.float32(100)
    codes = encode(x)
    fp8, low, high = ml_dtypes.float8_e4m3fn, np.float32(-448), np.float32(448)
    torch = _torch_casts(x, codes) if TORCH else {}
    groups = x.reshape(-1, 4096)
    cases: list[tuple[str, Callable[[], object], Calls]] = [
        (
            "round e4m3fn",
            lambda: round_to(x, "e4m3fn"),
            {"ml_dtypes, clip and astype": lambda: np.clip(x, low, high).astype(fp8).astype(np.float32)},
        ),
        (
            "round bfloat16",
            lambda: round_to(x, "bfloat16"),
            {"ml_dtypes, astype": lambda: x.astype(ml_dtypes.bfloat16).astype(np.float32)},
        ),
        (
            "encode e4m3fn",
            lambda: encode(x),
            {"ml_dtypes, clip and astype": lambda: np.clip(x, low, high).astype(fp8)},
        ),
        ("decode e4m3fn", lambda: decode(codes), {"ml_dtypes, astype": lambda: codes.view(fp8).astype(np.float32)}),
        ("quantize 1 x 128", lambda: quantize(groups), {}),
    ]
    for name, ours, theirs in cases:
        peers = theirs | ({"torch": torch[name]} if name in torch else {})
        yield name.replace(" ", "-"), lambda name=name, ours=ours, peers=peers: _rows(name, ours, peers, count)


def _rows(name: str, ours: Callable[[], object], peers: Calls, count: int) -> list[Row]:
    if TORCH:
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
    seconds = medians([ours, *peers.values()])
    if TORCH:
        torch.set_num_threads(threads)
    nanoseconds = [1e9 * s / count for s in seconds]
    return [
        Row(f"{name}, per value", nanoseconds[0], peer, other, "ns", 1.0 if peer.startswith("torch") else None)
        for peer, other in zip(peers, nanoseconds[1:], strict=True)
    ]


def _torch_casts(x: np.ndarray, codes: np.ndarray) -> Calls:
    import torch

    values, fp8 = torch.from_numpy(x), torch.from_numpy(codes).view(torch.float8_e4m3fn)
    groups = values.view(-1, 128)

    def quantized() -> object:
        scale = groups.abs().amax(1, keepdim=True).clamp(min=1e-4) / 448
        return (groups / scale).to(torch.float8_e4m3fn)

    return {
        "round e4m3fn": lambda: values.clamp(-448, 448).to(torch.float8_e4m3fn).float(),
        "round bfloat16": lambda: values.bfloat16().float(),
        "encode e4m3fn": lambda: values.clamp(-448, 448).to(torch.float8_e4m3fn),
        "decode e4m3fn": lambda: fp8.float(),
        "quantize 1 x 128": quantized,
    }
