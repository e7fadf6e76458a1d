"""Wrong attempts at tutorial 3: (exercise, attempt, words of its hint)."""

import numpy as np


def gib(numbers, tokens, layers, size=2):
    return layers * tokens * numbers * size / 1024**3


def kept(c):
    return c.kv_lora_rank + c.qk_rope_head_dim


def all_heads(c, tokens, layers):
    keys = c.qk_nope_head_dim + c.qk_rope_head_dim
    return gib(c.num_attention_heads * (keys + c.v_head_dim), tokens, layers)


def latent_only(c, tokens, layers):
    return gib(c.kv_lora_rank, tokens, layers)


def rotary_for_each_head(c, tokens, layers):
    return gib(c.kv_lora_rank + c.num_attention_heads * c.qk_rope_head_dim, tokens, layers)


def two_latents(c, tokens, layers):
    return gib(c.kv_lora_rank * 2 + c.qk_rope_head_dim, tokens, layers)


def float32(c, tokens, layers):
    return gib(kept(c), tokens, layers, 4)


def one_byte(c, tokens, layers):
    return gib(kept(c), tokens, layers, 1)


def bits(c, tokens, layers):
    return gib(kept(c), tokens, layers, 16)


def gigabytes(c, tokens, layers):
    return kept(c) * tokens * layers * 2 / 10**9


def in_bytes(c, tokens, layers):
    return kept(c) * tokens * layers * 2


def one_layer(c, tokens, layers):
    return gib(kept(c), tokens, 1)


def value_first(kv_up, H, N, V):
    kv_up = kv_up.reshape(len(kv_up), H, V + N)
    return kv_up[:, :, V:], kv_up[:, :, :V]


def keys_of_all_heads_first(kv_up, H, N, V):
    k, v = np.split(kv_up, [H * N], axis=1)
    return k.reshape(len(k), H, N), v.reshape(len(v), H, V)


def heads_fast(kv_up, H, N, V):
    kv_up = kv_up.reshape(len(kv_up), N + V, H).transpose(0, 2, 1)
    return kv_up[..., :N], kv_up[..., N:]


def values_returned_first(kv_up, H, N, V):
    kv_up = kv_up.reshape(len(kv_up), H, N + V)
    return kv_up[..., N:], kv_up[..., :N]


def heads_in_front(kv_up, H, N, V):
    kv_up = kv_up.reshape(len(kv_up), H, N + V).transpose(1, 0, 2)
    return kv_up[..., :N], kv_up[..., N:]


def one_array(kv_up, H, N, V):
    return kv_up.reshape(len(kv_up), H, N + V)


def never_reshaped(kv_up, H, N, V):
    k, v = kv_up
    return k, v


def absorbed(q_nope, c_hat, W_UK):
    return np.stack([q_nope[:, h] @ W_UK[h] @ c_hat.T for h in range(len(W_UK))])  # [H, T, S]


def turned(q_rot, k_rot):
    return np.stack([q_rot[:, h] @ k_rot.T for h in range(q_rot.shape[1])])  # [H, T, S]


def scores(q_nope, q_rot, c_hat, k_rot, W_UK, width=None):
    width = width or q_nope.shape[2] + q_rot.shape[2]
    return (absorbed(q_nope, c_hat, W_UK) + turned(q_rot, k_rot)) / np.sqrt(width)


def scale_of_the_latent(q_nope, q_rot, c_hat, k_rot, W_UK):
    return scores(q_nope, q_rot, c_hat, k_rot, W_UK, width=c_hat.shape[1] + k_rot.shape[1])


def scale_of_nope(q_nope, q_rot, c_hat, k_rot, W_UK):
    return scores(q_nope, q_rot, c_hat, k_rot, W_UK, width=q_nope.shape[2])


def no_scale(q_nope, q_rot, c_hat, k_rot, W_UK):
    return scores(q_nope, q_rot, c_hat, k_rot, W_UK, width=1)


def scale_without_root(q_nope, q_rot, c_hat, k_rot, W_UK):
    return scores(q_nope, q_rot, c_hat, k_rot, W_UK, width=(q_nope.shape[2] + q_rot.shape[2]) ** 2)


def no_rotary(q_nope, q_rot, c_hat, k_rot, W_UK):
    return absorbed(q_nope, c_hat, W_UK) / np.sqrt(q_nope.shape[2] + q_rot.shape[2])


def rotary_not_scaled(q_nope, q_rot, c_hat, k_rot, W_UK):
    return no_rotary(q_nope, q_rot, c_hat, k_rot, W_UK) + turned(q_rot, k_rot)


def rotary_only(q_nope, q_rot, c_hat, k_rot, W_UK):
    return turned(q_rot, k_rot) / np.sqrt(q_nope.shape[2] + q_rot.shape[2])


def queries_first(*arguments):
    return scores(*arguments).transpose(1, 0, 2)


def keys_first(*arguments):
    return scores(*arguments).transpose(0, 2, 1)


def summed_matrix(q_nope, q_rot, c_hat, k_rot, W_UK):
    q = np.einsum("thn,inc->thc", q_nope, W_UK)  # i is summed over
    total = np.einsum("thc,sc->hts", q, c_hat) + turned(q_rot, k_rot)
    return total / np.sqrt(q_nope.shape[2] + q_rot.shape[2])


def matmul_of_everything(q_nope, q_rot, c_hat, k_rot, W_UK):
    return q_nope @ W_UK @ c_hat.T


def three_heads_in_front(kv_up, H, N, V):
    kv_up = kv_up.reshape(H, -1, N + V).transpose(1, 0, 2)
    return kv_up[..., :N], kv_up[..., N:]


def equal_halves(kv_up, H, N, V):
    return tuple(np.split(kv_up.reshape(len(kv_up), H, N + V), [(N + V) // 2], axis=-1))


def every_second_number(kv_up, H, N, V):
    kv_up = kv_up.reshape(len(kv_up), H, N + V)
    return kv_up[..., ::2], kv_up[..., 1::2]


def key_of_every_token(q_nope, q_rot, c_hat, k_rot, W_UK):
    k_nope = np.einsum("sc,hnc->hsn", c_hat, W_UK)
    total = q_nope.transpose(1, 0, 2) @ k_nope.transpose(0, 2, 1) + turned(q_rot, k_rot)
    return total / np.sqrt(q_nope.shape[2] + q_rot.shape[2])


def keys_one_at_a_time(q_nope, q_rot, c_hat, k_rot, W_UK):
    out = np.empty((len(W_UK), len(q_nope), len(c_hat)))
    for h in range(len(W_UK)):
        for s in range(len(c_hat)):
            key = W_UK[h] @ c_hat[s]
            out[h, :, s] = q_nope[:, h] @ key + q_rot[:, h] @ k_rot[s]
    return out * (q_nope.shape[2] + q_rot.shape[2]) ** -0.5


def keys_made_finite(*arguments):
    return np.nan_to_num(key_of_every_token(*arguments))


def rotary_for_one_head(q_nope, q_rot, c_hat, k_rot, W_UK):
    total = absorbed(q_nope, c_hat, W_UK)
    total[0] += turned(q_rot, k_rot)[0]
    return total / np.sqrt(q_nope.shape[2] + q_rot.shape[2])


def gib_by_shift(c, tokens, layers):
    return (kept(c) * tokens * layers << 1) / (1 << 30)


def split_by_hand(kv_up, H, N, V):
    keys = np.stack([kv_up[:, h * (N + V) : h * (N + V) + N] for h in range(H)], axis=1)
    values = np.stack([kv_up[:, h * (N + V) + N : (h + 1) * (N + V)] for h in range(H)], axis=1)
    return [keys, values]


def head_by_head(q_nope, q_rot, c_hat, k_rot, W_UK):
    out = np.zeros((len(W_UK), len(q_nope), len(c_hat)))
    for h in range(len(W_UK)):
        out[h] += (q_nope[:, h] @ W_UK[h]) @ c_hat.T
        out[h] += q_rot[:, h] @ k_rot.T
    return out / np.sqrt(q_nope.shape[2] + q_rot.shape[2])


def one_long_dot(q_nope, q_rot, c_hat, k_rot, W_UK):
    q = np.concatenate([np.einsum("thn,hnc->thc", q_nope, W_UK), q_rot], axis=-1)
    k = np.concatenate([c_hat, k_rot], axis=-1)
    return np.einsum("thx,sx->hts", q, k) / np.sqrt(q_nope.shape[2] + q_rot.shape[2])


WRONG = [
    ("3.1", all_heads, "the latent and the rotary key only"),
    ("3.1", latent_only, "rotary key is kept too"),
    ("3.1", rotary_for_each_head, "one for all heads"),
    ("3.1", two_latents, "it is kept once"),
    ("3.1", float32, "bfloat16 has two bytes"),
    ("3.1", one_byte, "half as much"),
    ("3.1", bits, "16 bits are two bytes"),
    ("3.1", gigabytes, "are a GB"),
    ("3.1", in_bytes, "divide by 2**30"),
    ("3.1", one_layer, "multiply by the layers"),
    ("3.2", value_first, "the key comes first"),
    ("3.2", keys_of_all_heads_first, "head after head"),
    ("3.2", heads_fast, "slow axis"),
    ("3.2", values_returned_first, "return the keys first"),
    ("3.2", heads_in_front, "positions first"),
    ("3.2", one_array, "expected (float64 [1, 2, 2], float64 [1, 2, 1]); found float64 [1, 2, 3]"),
    ("3.2", never_reshaped, "Reshape to [T, H, N + V] first"),
    ("3.3", scale_of_the_latent, "the same numbers as in the plain form"),
    ("3.3", scale_of_nope, "counts the rotary part too"),
    ("3.3", no_scale, "multiply by the scale"),
    ("3.3", scale_without_root, "the scale is a root"),
    ("3.3", no_rotary, "add the rotary part"),
    ("3.3", rotary_not_scaled, "multiplies the rotary part as well"),
    ("3.3", rotary_only, "only the rotary part"),
    ("3.3", queries_first, "heads first"),
    ("3.3", keys_first, "queries before keys"),
    ("3.3", summed_matrix, "its own W_UK"),
    ("3.3", matmul_of_everything, "is a start"),
    ("3.2", three_heads_in_front, "the smallest case that fails"),
    ("3.2", equal_halves, "expected shape"),
    ("3.2", every_second_number, "the smallest case that fails"),
    ("3.3", key_of_every_token, "these are the keys"),
    ("3.3", keys_one_at_a_time, "these are the keys"),
    ("3.3", keys_made_finite, "np.nan_to_num does not bring them back"),
    ("3.3", rotary_for_one_head, "the smallest case that fails"),
]

RIGHT = [
    ("3.1", gib_by_shift),
    ("3.2", split_by_hand),
    ("3.3", scores),
    ("3.3", head_by_head),
    ("3.3", one_long_dot),
]
