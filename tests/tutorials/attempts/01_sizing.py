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


WRONG = [
    ("1.1", without_latent_norms, "the two latent norms"),
    ("1.1", with_block_norms, "belong to the block"),
    ("1.1", without_rotary_key, "also makes the rotary key"),
    ("1.1", rotary_key_for_each_head, "one for all heads"),
    ("1.1", rotary_part_from_the_latent, "does not come from the latent"),
    ("1.1", output_of_nope_width, "of width V"),
    ("1.1", always_a_query_latent, "`q_lora_rank` being None"),
    ("1.1", two_mistakes, "expected 1,942,144, found 1,900,544"),
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
]
