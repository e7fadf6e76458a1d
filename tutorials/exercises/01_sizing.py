"""Exercises of tutorial 1: counting parameters, bytes and multiplications."""

import math
from dataclasses import replace

from checks import Exercise, Turn

from blocklab import BlockConfig
from blocklab.block.weights import weight_shapes
from blocklab.store.accounting import components, totals

SMALL = BlockConfig.preset("kimi-k2-small")
LITE = replace(SMALL, q_lora_rank=None)
CONFIGS = [(SMALL,), (LITE,), (BlockConfig.preset("kimi-k2"),)]


def attention_parameters(config, latent_norms=True, **other_rows):
    """Count attention; other_rows gives matrices another number of rows, or of columns for o_proj."""
    total = 0
    for name, shape in weight_shapes(config).items():
        part, _, leaf = name.removesuffix(".weight").partition(".")
        if part != "self_attn" or (len(shape) == 1 and not latent_norms):
            continue
        if leaf == "o_proj" and leaf in other_rows:
            shape = (shape[0], other_rows[leaf])
        total += math.prod((other_rows.get(leaf, shape[0]), *shape[1:]) if leaf != "o_proj" else shape)
    return total


def parameters(config):
    return totals(components(config))


def bytes_of(config, gain, latent_gain, scale=0):
    total = 0
    for name, shape in weight_shapes(config).items():
        if len(shape) == 1:
            total += shape[0] * (latent_gain if name.startswith("self_attn") else gain)
        else:
            total += math.prod(shape) + scale * math.ceil(shape[0] / 128) * math.ceil(shape[1] / 128)
    return total


def matrix_parameters(config):
    return bytes_of(config, 0, 0)


def per_key(config):
    return config.num_attention_heads * (config.qk_head_dim + config.v_head_dim)


EXERCISES = [
    Exercise(
        "1.1",
        "count_attention",
        right=lambda c: parameters(c)["attention"]["parameters"],
        cases=CONFIGS,
        turns=(
            Turn(
                lambda c: attention_parameters(c, latent_norms=False),
                "the two latent norms (query norm and key-value norm) count as attention. How many gains do they have?",
            ),
            Turn(
                lambda c: attention_parameters(c) + 2 * c.hidden_size,
                "the norms before attention and before the MLP belong to the block, not to attention.",
            ),
            Turn(
                lambda c: attention_parameters(c, kv_a_proj_with_mqa=c.kv_lora_rank),
                "W_DKV has more rows than the latent: it also makes the rotary key.",
            ),
            Turn(
                lambda c: attention_parameters(
                    c, kv_a_proj_with_mqa=c.kv_lora_rank + c.num_attention_heads * c.qk_rope_head_dim
                ),
                "the rotary key is one for all heads: W_DKV has C + R rows, whatever the number of heads.",
            ),
            Turn(
                lambda c: attention_parameters(
                    c, kv_b_proj=c.num_attention_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim + c.v_head_dim)
                ),
                "W_UKV makes N + V numbers a head: the rotary part of the key does not come from the latent.",
            ),
            Turn(
                lambda c: attention_parameters(c, o_proj=c.num_attention_heads * c.qk_nope_head_dim),
                "W_O reads the heads' values, of width V. N and V are equal in Kimi K2, and here they are not.",
            ),
        ),
        well_done="The same function counts DeepSeek-V3 (128 heads) and DeepSeek-V2-Lite.",
        hint="Take the table of shapes at the head of this tutorial and write each shape of attention as a "
        "product of the config's fields: seven terms with a query latent, five without.",
        on_error="Did you think of `q_lora_rank` being None?",
    ),
    Exercise(
        "1.2",
        "block_bytes",
        right=lambda c: parameters(c)["total"]["bytes"],
        cases=CONFIGS,
        turns=(
            Turn(lambda c: bytes_of(c, 1, 1), "gains of norms are bfloat16: two bytes each."),
            Turn(lambda c: bytes_of(c, 0, 0), "the gains of the four norms are parameters too, two bytes each."),
            Turn(
                lambda c: 2 * parameters(c)["total"]["parameters"],
                "matrices are FP8: one byte a number. Only gains take two.",
            ),
            Turn(
                lambda c: bytes_of(c, 2, 1),
                "the latent norms are stored like the others: their gains take two bytes as well.",
            ),
            Turn(lambda c: bytes_of(c, 2, 0), "the latent norms inside attention have gains too."),
            Turn(
                lambda c: bytes_of(c, 2, 2, scale=4),
                "leave out the scales: they say how to read parameters, and are none themselves.",
            ),
            Turn(lambda c: parameters(c)["total"]["bytes"] / 2**20, "return bytes, not MiB."),
        ),
        well_done="For Kimi K2 these are 497,516,544 bytes: 474.5 MiB.",
        hint="Count matrices and gains apart: the bytes are those of the matrices plus twice the gains. Two "
        "norms have D gains each, and the latent norms have Q (if there is one) and C.",
        on_error="Did you think of `q_lora_rank` being None?",
    ),
    Exercise(
        "1.3",
        "crossover_tokens",
        right=lambda c: matrix_parameters(c) / per_key(c),
        cases=[CONFIGS[0], CONFIGS[2]],
        turns=(
            Turn(
                lambda c: matrix_parameters(c) / (c.num_attention_heads * c.qk_head_dim),
                "after the scores, every head also collects the values of the tokens: V more multiplications.",
            ),
            Turn(
                lambda c: matrix_parameters(c) / (c.num_attention_heads * (c.qk_nope_head_dim + c.v_head_dim)),
                "a score has two parts, one without position and one with: N + R multiplications.",
            ),
            Turn(
                lambda c: (
                    matrix_parameters(c)
                    / (c.num_attention_heads * (c.qk_nope_head_dim + c.v_head_dim) + c.qk_rope_head_dim)
                ),
                "heads share the rotary key, but each has its own rotary query: every head multiplies the R numbers.",
            ),
            Turn(
                lambda c: matrix_parameters(c) / (c.num_attention_heads * (2 * c.kv_lora_rank + c.qk_rope_head_dim)),
                "this is the crossover of a program that keeps latents (tutorial 3). Here keys and values are kept.",
            ),
            Turn(
                lambda c: matrix_parameters(c) / (c.qk_head_dim + c.v_head_dim),
                "all heads read from every token: multiply by their number.",
            ),
            Turn(
                lambda c: parameters(c)["total"]["parameters"] / per_key(c),
                "gains of norms are parameters, but not of matrices: leave them out.",
            ),
            Turn(
                lambda c: parameters(c)["total"]["bytes"] / per_key(c),
                "these are bytes, norms and all: count one multiplication for each parameter of a matrix.",
            ),
            Turn(lambda c: matrix_parameters(c) // per_key(c), "return a float, without rounding down."),
            Turn(lambda c: per_key(c) / matrix_parameters(c), "turn the fraction upside down."),
        ),
        well_done="The small block gets there after a few hundred tokens: fewer heads, but also much smaller matrices.",
        hint="The parameters of the matrices are those of 1.1 without the gains, plus 3 D F. Divide by what "
        "one earlier token costs: H (N + R + V).",
    ),
]
