"""Solutions of tutorial 1."""


def count_attention(config):
    D, H, Q, C = config.hidden_size, config.num_attention_heads, config.q_lora_rank, config.kv_lora_rank
    N, R, V = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
    if Q is None:
        queries = H * (N + R) * D
    else:
        queries = Q * D + Q + H * (N + R) * Q  # down, norm, up
    keys_and_values = (C + R) * D + C + H * (N + V) * C  # down, norm, up
    return queries + keys_and_values + D * H * V


def block_bytes(config):
    D, F, Q, C = config.hidden_size, config.intermediate_size, config.q_lora_rank, config.kv_lora_rank
    latent_gains = C + (0 if Q is None else Q)
    matrices = count_attention(config) - latent_gains + 3 * F * D
    return matrices + 2 * (latent_gains + 2 * D)


def crossover_tokens(config):
    latent_gains = config.q_lora_rank + config.kv_lora_rank
    matrices = count_attention(config) - latent_gains + 3 * config.intermediate_size * config.hidden_size
    width = config.qk_nope_head_dim + config.qk_rope_head_dim + config.v_head_dim
    return matrices / (config.num_attention_heads * width)
