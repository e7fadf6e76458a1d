"""Solutions of tutorial 3."""

import numpy as np


def cache_gib(config, tokens, layers):
    numbers = config.kv_lora_rank + config.qk_rope_head_dim  # one latent and one rotary key for all heads
    return numbers * 2 * tokens * layers / 2**30


def split_keys_and_values(kv_up, H, N, V):
    heads = kv_up.reshape(kv_up.shape[0], H, N + V)
    return heads[:, :, :N], heads[:, :, N:]


def absorbed_scores(q_nope, q_rot, c_hat, k_rot, W_UK):
    q_absorbed = np.einsum("thn,hnc->thc", q_nope, W_UK)
    by_content = np.einsum("thc,sc->hts", q_absorbed, c_hat)
    by_position = np.einsum("thr,sr->hts", q_rot, k_rot)
    return (q_nope.shape[-1] + q_rot.shape[-1]) ** -0.5 * (by_content + by_position)
