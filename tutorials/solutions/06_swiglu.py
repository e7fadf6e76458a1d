"""Solutions of tutorial 6."""

import numpy as np


def safe_silu(g):
    decay = np.exp(-np.abs(g))  # at most 1
    return np.where(g >= 0, g, g * decay) / (1 + decay)


def fused_mlp(h, W_gate_up, W_down):
    F = W_down.shape[1]
    gate, up = h @ W_gate_up[:F].T, h @ W_gate_up[F:].T
    return (safe_silu(gate) * up) @ W_down.T


def top_neurons(act, W_down, k):
    lengths = np.abs(act) * np.linalg.norm(W_down, axis=0)
    return np.argsort(-lengths)[:k]
