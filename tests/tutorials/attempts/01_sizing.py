"""Wrong attempts at tutorial 1: (exercise, attempt, words of its hint)."""


def widths(c):
    return c.hidden_size, c.num_attention_heads, c.q_lora_rank, c.kv_lora_rank


def heads(c):
    return c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim


def count(c, latent_norms=True, down=None, up=None, out=None):
    D, H, Q, C = widths(c)
    N, R, V = heads(c)
    queries = H * (N + R) * D if Q is None else Q * D + H * (N + R) * Q
    gains = (C + (Q or 0)) if latent_norms else 0
    return queries + (down or C + R) * D + (up or H * (N + V)) * C + D * (out or H * V) + gains


def without_latent_norms(c):
    return count(c, latent_norms=False)


def with_block_norms(c):
    return count(c) + c.hidden_size + c.hidden_size


def without_rotary_key(c):
    return count(c, down=c.kv_lora_rank)


def rotary_key_for_each_head(c):
    return count(c, down=c.kv_lora_rank + c.num_attention_heads * c.qk_rope_head_dim)


def rotary_part_from_the_latent(c):
    return count(c, up=c.num_attention_heads * sum(heads(c)))


def output_of_nope_width(c):
    return count(c, out=c.num_attention_heads * c.qk_nope_head_dim)


def always_a_query_latent(c):
    return c.q_lora_rank * c.hidden_size


def two_mistakes(c):
    return count(c, latent_norms=False, down=c.kv_lora_rank)


def matrices(c):
    return count(c, latent_norms=False) + 3 * c.hidden_size * c.intermediate_size


def latent_gains(c):
    return c.kv_lora_rank + (c.q_lora_rank or 0)


def every_number_one_byte(c):
    return matrices(c) + latent_gains(c) + 2 * c.hidden_size


def matrices_only(c):
    return matrices(c)


def every_number_two_bytes(c):
    return 2 * every_number_one_byte(c)


def latent_gains_one_byte(c):
    return matrices(c) + latent_gains(c) + 2 * 2 * c.hidden_size


def no_latent_gains(c):
    return matrices(c) + 4 * c.hidden_size


def right_bytes(c):
    return matrices(c) + 2 * (latent_gains(c) + 2 * c.hidden_size)


def with_scales(c):
    D, H, Q, C = widths(c)
    N, R, V = heads(c)
    F = c.intermediate_size
    shapes = [(H * (N + R), Q or D), (C + R, D), (H * (N + V), C), (D, H * V), (F, D), (F, D), (D, F)]
    if Q:
        shapes.append((Q, D))
    return right_bytes(c) + 4 * sum(-(-m // 128) * -(-n // 128) for m, n in shapes)


def in_mib(c):
    return right_bytes(c) / 1024**2


def no_values(c):
    N, R, _ = heads(c)
    return matrices(c) / (c.num_attention_heads * (N + R))


def no_rotary(c):
    N, _, V = heads(c)
    return matrices(c) / (c.num_attention_heads * (N + V))


def rotary_once(c):
    N, R, V = heads(c)
    return matrices(c) / (c.num_attention_heads * (N + V) + R)


def one_head(c):
    return matrices(c) / sum(heads(c))


def gains_too(c):
    return every_number_one_byte(c) / (c.num_attention_heads * sum(heads(c)))


def bytes_over_multiplications(c):
    size = every_number_one_byte(c) + latent_gains(c) + 2 * c.hidden_size
    return size / (c.num_attention_heads * sum(heads(c)))


def rounded_down(c):
    return matrices(c) // (c.num_attention_heads * sum(heads(c)))


def upside_down(c):
    return c.num_attention_heads * sum(heads(c)) / matrices(c)


def of_the_whole_block(c):
    return count(c) + 3 * c.hidden_size * c.intermediate_size


def rotary_query_shared(c):
    D, H, Q, C = widths(c)
    N, R, V = heads(c)
    queries = (H * N + R) * D if Q is None else Q * D + Q + (H * N + R) * Q
    return queries + (C + R) * D + C + H * (N + V) * C + D * H * V


def no_output_matrix(c):
    return count(c) - c.hidden_size * c.num_attention_heads * c.v_head_dim


def norm_of_a_latent_that_is_none(c):
    return count(c) + (c.hidden_size if c.q_lora_rank is None else 0)


def right_bytes_and_a_half(c):
    return matrices(c) + 2 * latent_gains(c)


def scale_for_each_row(c):
    return right_bytes(c) + 4 * c.num_attention_heads * sum(heads(c))


def parameters_without_mlp(c):
    return count(c, latent_norms=False) + 2 * (latent_gains(c) + 2 * c.hidden_size)


def mlp_only(c):
    return 3 * c.hidden_size * c.intermediate_size / (c.num_attention_heads * sum(heads(c)))


def absorbed_form(c):
    return matrices(c) / (c.num_attention_heads * (2 * c.kv_lora_rank + c.qk_rope_head_dim))


def exact_right_count(c):
    return float(count(c))


def right_crossover(c):
    return matrices(c) / c.num_attention_heads / sum(heads(c))


WRONG = [
    ("1.1", without_latent_norms, "the two latent norms"),
    ("1.1", with_block_norms, "belong to the block"),
    ("1.1", without_rotary_key, "also makes the rotary key"),
    ("1.1", rotary_key_for_each_head, "one for all heads"),
    ("1.1", rotary_part_from_the_latent, "does not come from the latent"),
    ("1.1", output_of_nope_width, "of width V"),
    ("1.1", always_a_query_latent, "`q_lora_rank` being None"),
    ("1.1", two_mistakes, "1,900,544  1,942,144"),
    ("1.2", every_number_one_byte, "bfloat16: two bytes each"),
    ("1.2", matrices_only, "are parameters too"),
    ("1.2", every_number_two_bytes, "one byte a number"),
    ("1.2", latent_gains_one_byte, "stored like the others"),
    ("1.2", no_latent_gains, "inside attention have gains too"),
    ("1.2", with_scales, "leave out the scales"),
    ("1.2", in_mib, "not MiB"),
    ("1.3", no_values, "collects the values"),
    ("1.3", no_rotary, "N + R multiplications"),
    ("1.3", rotary_once, "every head multiplies"),
    ("1.3", one_head, "multiply by their number"),
    ("1.3", gains_too, "leave them out"),
    ("1.3", bytes_over_multiplications, "these are bytes"),
    ("1.3", rounded_down, "without rounding down"),
    ("1.3", upside_down, "upside down"),
    ("1.1", of_the_whole_block, "the smallest case that fails"),
    ("1.1", rotary_query_shared, "the smallest case that fails"),
    ("1.1", no_output_matrix, "the smallest case that fails"),
    ("1.1", norm_of_a_latent_that_is_none, "q_lora_rank=None"),
    ("1.2", right_bytes_and_a_half, "the smallest case that fails"),
    ("1.2", scale_for_each_row, "the smallest case that fails"),
    ("1.2", parameters_without_mlp, "the smallest case that fails"),
    ("1.3", mlp_only, "the smallest case that fails"),
    ("1.3", absorbed_form, "keeps latents"),
]

RIGHT = [
    ("1.1", count),
    ("1.1", exact_right_count),
    ("1.2", right_bytes),
    ("1.3", right_crossover),
]
