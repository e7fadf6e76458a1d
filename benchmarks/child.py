"""The program of a process that is measured as a whole: `python -m benchmarks.child block|transformers ...`.

It prints one line of JSON: `seconds` of the block alone and `peak` bytes resident.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path


def main(kind: str, folder: str, precision: str, tokens: str) -> None:
    import numpy as np

    T = int(tokens)
    if kind == "block":
        from blocklab import causal_mask, dense_block, load_weights, rotary_table

        weights = load_weights(folder)
        width = weights.config.hidden_size
        R, M = rotary_table(weights.config, np.arange(T)), causal_mask(T)
        call = lambda: dense_block(x, R, M, weights, precision)  # noqa: E731
    else:
        from benchmarks.peers import dequantised_state, transformers_layer

        state = dequantised_state(Path(folder), precision)
        width = state["input_layernorm.weight"].shape[0]
    x = np.random.default_rng(0).standard_normal((1, T, width), np.float32)
    if kind != "block":
        call = transformers_layer(Path(folder), state, x, precision)
    start = time.perf_counter()
    y = call()
    seconds = time.perf_counter() - start
    assert tuple(y.shape) == (1, T, width)
    print(json.dumps({"seconds": seconds, "peak": peak_memory()}))


def peak_memory() -> int:
    """Return the most bytes that were resident. Linux lets getrusage count what the parent held when it forked."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else []:
        if line.startswith("VmHWM"):
            return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main(*sys.argv[1:])
