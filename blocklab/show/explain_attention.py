"""How one score, one share of the attention, or one mixed value came about."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocklab.block.config import BlockConfig, yarn_mscale
from blocklab.block.masks import causal_mask, fit_mask
from blocklab.errors import InputError
from blocklab.show.about import labels_of
from blocklab.show.explain_linear import explain_dot, plain_dot, rounding_lines, stored_row, sum_bound
from blocklab.show.working import Context, Line, Working


def softmax_scale_lines(config: BlockConfig) -> list[Line]:
    """Return where the softmax scale comes from: (N + R)^-1/2, times mscale squared under YaRN."""
    width = config.qk_head_dim
    plain = width**-0.5
    lines = [
        Line(
            "query_width",
            width,
            f"{config.qk_nope_head_dim} nope + {config.qk_rope_head_dim} rotary: what q.k sums over",
        ),
        Line("inverse_root", plain, f"{width}^-1/2: a sum of {width} products is {width}^1/2 times as wide as one"),
    ]
    if config.yarn is not None and config.yarn.mscale_all_dim:
        factor, all_dim = config.yarn.factor, config.yarn.mscale_all_dim
        mscale = yarn_mscale(factor, all_dim)
        note = f"0.1 x {all_dim:g} x ln {factor:g} + 1: YaRN sharpens attention over a context {factor:g} times longer"
        lines += [Line("mscale", mscale, note), Line("mscale_squared", mscale**2, "once for q and once for k")]
    return [*lines, Line("scale", config.softmax_scale, "their product")]


def explain_scores(context: Context, index: tuple[int, ...]) -> Working:
    """Explain RN(RN(q . k) scale): the dot over both parts of query and key, and the softmax scale."""
    recipe, config = context.recipe, context.config
    b, h, t, s = index
    if context.attention == "absorb":
        names = (f"q_absorbed[{b}, {t}, {h}, :]", f"kv_latent_norm[{b}, {s}, :]")
        first = (context.value("q_absorbed")[b, t, h], _key(context, "kv_latent_norm", b, s))
    else:
        names = (f"q_nope[{b}, {t}, {h}, :]", f"k_nope[{b}, {s}, {h}, :]")
        first = (context.value("q_nope")[b, t, h], _key(context, "k_nope", b, s)[h])
    second = (context.value("q_rot")[b, t, h], _key(context, "k_rot", b, s))
    parts = [plain_dot(*pair, recipe) for pair in (first, second)]
    if context.attention == "absorb":
        parts = [context.stored(part) for part in parts]
    total = parts[0] + parts[1]
    scale = float(np.dtype(recipe.carrier).type(config.softmax_scale))

    def finish(dot: float) -> float:
        number = np.dtype(recipe.carrier).type
        return context.stored(number(context.stored(dot)) * number(scale))

    lines = [
        Line("dot_nope", parts[0], f"{names[0]} . {names[1]}"),
        Line("dot_rotary", parts[1], f"q_rot[{b}, {t}, {h}, :] . k_rot[{b}, {s}, :]"),
        Line("dot", total, "their sum"),
        Line("stored_dot", context.stored(total), f"rounded to {context.storage}"),
        *softmax_scale_lines(config),
        Line("scaled", context.stored(total) * scale, "stored dot times scale"),
        Line("stored", finish(total), f"rounded to {context.storage}"),
    ]
    terms = np.concatenate([x.astype(np.float64) * y for x, y in (first, second)])
    inputs = [*names, f"q_rot[{b}, {t}, {h}, :]", f"k_rot[{b}, {s}, :]"]
    return Working(inputs, lines, total, finish, bound=sum_bound(terms, recipe))


def explain_mask(context: Context, index: tuple[int, ...]) -> Working:
    """Explain the masked score: as it was where the query may look, -inf where a boolean mask hides the key."""
    b, h, t, s = index
    score = float(context.value("attn_scores")[index])
    sizes = context.value("attn_scores").shape
    given = context.trace.given.get("attention_mask")
    mask = fit_mask(causal_mask(sizes[2], sizes[3]) if given is None else np.asarray(given), *sizes)
    M = np.broadcast_to(mask, sizes)[index]
    if mask.dtype.kind == "b":
        total = score if M else -np.inf
        line = Line("may_look", bool(M), "the mask: a query sees itself and what came before")
    else:
        total = float(np.dtype(context.recipe.carrier).type(score) + np.dtype(context.recipe.carrier).type(M))
        line = Line("mask", float(M), "added to the score")
    where = "causal" if given is None else "attention_mask of the trace"
    lines = [Line("score", score, f"query {t}, key {s}, head {h}"), line, Line("stored", total, "")]
    return Working([f"attn_scores[{b}, {h}, {t}, {s}]", f"mask: {where}"], lines, total, context.stored)


def explain_softmax(context: Context, index: tuple[int, ...]) -> Working:
    """Explain one share: exp(s - max) over the sum of the whole row."""
    b, h, t, s = index
    recipe = context.recipe
    row = context.value("attn_masked")[b, h, t].astype(recipe.work)
    top = row.max() if row.max() > -np.inf else row.dtype.type(0)
    with np.errstate(under="ignore"):
        weights = np.exp(row - top)
        shares = weights / (weights.sum() or row.dtype.type(1))
    lines = [
        Line("score", float(row[s]), f"of key {s}, masked"),
        Line("max", float(top), f"of the row: key {int(row.argmax())}"),
        Line("exp", float(weights[s]), "exp(score - max)"),
        Line("sum", float(weights.sum()), f"of the {int(np.isfinite(row).sum())} keys that are not hidden"),
        Line("share", float(shares[s]), "exp over sum"),
        Line("stored", context.stored(shares[s]), f"rounded to {context.storage}"),
    ]
    labels = labels_of(context.trace, len(row))
    rows = [
        {"key": k, "label": labels[k] if labels else "", "score": float(row[k]), "exp": float(weights[k])}
        | {"share": float(shares[k])}
        for k in np.flatnonzero(row > -np.inf).tolist()
    ]
    total = float(shares[s])
    name = f"attn_masked[{b}, {h}, {t}, :]"
    return Working([name], lines, total, context.stored, {f"the keys that query {t} of head {h} may look at": rows})


def explain_mix(context: Context, index: tuple[int, ...]) -> Working:
    """Explain a mixed value: the sum over keys of share times value (or latent)."""
    b, t, h, channel = index
    shares = context.value("pattern")[b, h, t]
    if context.step == "z":
        values, name = context.value("v")[b, :, h, channel], f"v[{b}, :, {h}, {channel}]"
    else:
        values, name = context.value("kv_latent_norm")[b, :, channel], f"kv_latent_norm[{b}, :, {channel}]"
    if len(values) != len(shares):
        raise InputError(f"explain {context.step}: {len(shares)} keys, and traced values of {len(values)} of them")
    total = plain_dot(shares, values, context.recipe)
    labels = labels_of(context.trace, len(shares))
    rows: list[dict[str, Any]] = [
        {"key": k, "label": labels[k] if labels else "", "share": float(shares[k]), "value": float(values[k])}
        | {"product": float(shares[k]) * float(values[k])}
        for k in np.flatnonzero(shares).tolist()
    ]
    lines = [Line("mix", total, "sum over keys of share x value"), *rounding_lines(total, context)]
    bound = sum_bound(shares.astype(np.float64) * values, context.recipe)
    inputs = [f"pattern[{b}, {h}, {t}, :]", name]
    return Working(inputs, lines, total, context.stored, {"keys with a share": rows}, bound)


def explain_absorbed(context: Context, index: tuple[int, ...]) -> Working:
    """Explain a query moved into the latent space: W_UK^T q_nope, a column of the head's rows of W_UKV."""
    b, t, h, channel = index
    start = h * (context.config.qk_nope_head_dim + context.config.v_head_dim)
    weight = context.weight("self_attn.kv_b_proj.weight")
    column = [stored_row(weight, start + n, context.recipe)[channel] for n in range(context.config.qk_nope_head_dim)]
    inputs = [f"q_nope[{b}, {t}, {h}, :]", f"column {channel}, rows from {start} on, of self_attn.kv_b_proj.weight"]
    return explain_dot(context.value("q_nope")[b, t, h], np.array(column), context, inputs)


def explain_unabsorbed(context: Context, index: tuple[int, ...]) -> Working:
    """Explain a value from mixed latents: W_UV z_latent, one row of W_UKV."""
    b, t, h, channel = index
    width = context.config.qk_nope_head_dim + context.config.v_head_dim
    row = h * width + context.config.qk_nope_head_dim + channel
    weight = stored_row(context.weight("self_attn.kv_b_proj.weight"), row, context.recipe)
    inputs = [f"z_latent[{b}, {t}, {h}, :]", f"row {row} of self_attn.kv_b_proj.weight"]
    return explain_dot(context.value("z_latent")[b, t, h], weight, context, inputs)


def _key(context: Context, name: str, b: int, s: int) -> np.ndarray:
    keys = context.value(name)
    if s >= keys.shape[1]:
        raise InputError(f"explain {context.step}: key {s} came from a cache; the trace has {name} of {keys.shape[1]}")
    return np.asarray(keys[b, s])
