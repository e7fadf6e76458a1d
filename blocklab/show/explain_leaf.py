"""How one number of a norm, a rotation, an activation, a product or a sum came about."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocklab.block.rotary import inverse_frequencies, rotary_table
from blocklab.block.run import Run
from blocklab.errors import InputError
from blocklab.numerics import round_to
from blocklab.show.about import positions_of
from blocklab.show.working import Context, Line, Working


def explain_norm(context: Context, source: str, weight_name: str, index: tuple[int, ...]) -> Working:
    """Explain RN(g x r), or RN(g RN(x r)): the mean square of the row, its inverse root, the gain."""
    recipe, d = context.recipe, index[-1]
    x = context.value(source)[index[:-1]].astype(recipe.work)
    eps = Run(context.config, recipe).eps(context.step)
    mean_square = float(np.mean(np.square(x), dtype="float64"))
    root = (1 / np.sqrt(np.float64(mean_square) + eps)).astype(recipe.work)
    gain = context.weight(weight_name).values().astype(recipe.work)[d]
    normed = x[d] * root
    lines = [
        Line("x", float(x[d]), f"{source}[{_place(index)}]"),
        Line("mean_square", mean_square, f"of the {x.shape[-1]} channels, summed in float64"),
        Line("eps", eps, "added to it"),
        Line("inverse_root", float(root), "1 / sqrt(mean square + eps)"),
        Line("normed", float(normed), "x times inverse root"),
    ]
    if recipe.norm == "twice":
        normed = round_to(np.asarray([normed]), context.storage)[0]
        lines.append(Line("first_rounding", float(normed), f"to {context.storage}, before the gain"))
    total = gain * normed
    lines += [
        Line("gain", float(gain), f"{weight_name}[{d}]"),
        Line("product", float(total), "gain times normed"),
        Line("stored", context.stored(total), f"rounded to {context.storage}"),
    ]
    return _working(context, [f"{source}[{_place((*index[:-1], ':'))}]", f"{weight_name}[{d}]"], lines, total)


def explain_rotation(context: Context, source: str, index: tuple[int, ...]) -> Working:
    """Explain one half of a rotated pair: a cos - b sin, or a sin + b cos."""
    recipe = context.recipe
    b, t, r = index[0], index[1], index[-1]
    whole = context.value(source)
    first = whole.shape[-1] - context.trace[context.step].shape[-1]
    pair = r // 2
    left, right = (whole[(*index[:-1], first + 2 * pair + half)].astype(recipe.work) for half in (0, 1))
    cos, sin = (part.astype(recipe.work) for part in _turn(context, b, t, pair))
    each = context.storage if recipe.rotation == "each" else recipe.work
    cos, sin = _round(cos, each), _round(sin, each)
    if r % 2 == 0:
        products = {"a cos": _round(left * cos, each), "b sin": _round(right * sin, each)}
        total, formula = products["a cos"] - products["b sin"], "a cos - b sin"
    else:
        products = {"a sin": _round(left * sin, each), "b cos": _round(right * cos, each)}
        total, formula = products["a sin"] + products["b cos"], "a sin + b cos"
    rounded = "" if each == recipe.work else f", rounded to {each}"
    lines = [
        Line("pair", pair, f"channels {2 * pair} and {2 * pair + 1} of the rotary part"),
        Line("a", float(left), f"{source}[{_place((*index[:-1], first + 2 * pair))}]"),
        Line("b", float(right), f"{source}[{_place((*index[:-1], first + 2 * pair + 1))}]"),
        *_angle_lines(context, b, t, pair),
        Line("cos", float(cos), f"of the angle{rounded}"),
        Line("sin", float(sin), f"of the angle{rounded}"),
        *(Line(key.replace(" ", "_"), float(value), f"{key}{rounded}") for key, value in products.items()),
        Line("rotated", float(total), formula),
        Line("stored", context.stored(total), f"rounded to {context.storage}"),
    ]
    return _working(context, [f"{source}[{_place((*index[:-1], first + 2 * pair))} and the next]"], lines, total)


def explain_part(context: Context, source: str, index: tuple[int, ...], kind: str) -> Working:
    """Explain a value that is cut out of another step: the same number at another place."""
    whole = context.value(source)
    width = context.trace[context.step].shape[-1]
    offset = whole.shape[-1] - width if kind == "last part" else 0
    place = (*index[:-1], offset + index[-1])
    value = whole[place]
    return _working(context, [f"{source}[{_place(place)}]"], [Line("same", float(value), "cut out, unchanged")], value)


def explain_silu(context: Context, index: tuple[int, ...]) -> Working:
    """Explain x / (1 + exp(-x)), computed from exp(-|x|)."""
    recipe = context.recipe
    x = context.value("gate")[index].astype(recipe.work)
    with np.errstate(under="ignore"):
        decay = np.exp(-np.abs(x))
        total = (x if x >= 0 else x * decay) / (1 + decay)
    lines = [
        Line("gate", float(x), f"gate[{_place(index)}]"),
        Line("exp", float(decay), "exp(-|gate|)"),
        Line("sigmoid", float((1 if x >= 0 else decay) / (1 + decay)), "1 / (1 + exp(-gate))"),
        Line("product", float(total), "gate times sigmoid"),
        Line("stored", context.stored(total), f"rounded to {context.storage}"),
    ]
    return _working(context, [f"gate[{_place(index)}]"], lines, total)


def explain_pair(context: Context, sources: tuple[str, ...], index: tuple[int, ...], kind: str) -> Working:
    """Explain a sum or a product of two steps, element by element."""
    a, b = (context.value(name)[index] for name in sources)
    total = a + b if kind == "sum" else a * b
    lines = [
        *(Line(name, float(x), f"{name}[{_place(index)}]") for name, x in zip(sources, (a, b), strict=True)),
        Line(kind, float(total), f"in {total.dtype}"),
        Line("stored", context.stored(total), f"rounded to {context.storage}"),
    ]
    return _working(context, [f"{name}[{_place(index)}]" for name in sources], lines, total)


def explain_input(context: Context, index: tuple[int, ...]) -> Working:
    """Explain the input: it is given, and rounded to the storage format."""
    x = context.value("resid_pre")[index]
    note = context.trace.metadata.get("source", "given to the block")
    return _working(context, [note], [Line("given", float(x), f"stored as {context.storage}")], x)


def _turn(context: Context, b: int, t: int, pair: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cos and sin of one position and pair: as the trace was given them, or from the table's rule."""
    given = context.trace.given
    if "rotary.cos" in given and "rotary.sin" in given:
        cos, sin = (np.asarray(given[name]) for name in ("rotary.cos", "rotary.sin"))
        place = (t, pair) if cos.ndim == 2 else (b if cos.shape[0] > 1 else 0, t, pair)
        return cos[place], sin[place]
    table = rotary_table(context.config, np.array([_position(context, b, t)]), context.recipe.rotary_table)
    return table.real[0, pair], table.imag[0, pair]


def _position(context: Context, b: int, t: int) -> int:
    positions = positions_of(context.trace)
    if positions is None:
        raise InputError(f"explain {context.step}: the trace has no rotary table and no positions")
    return int(positions[t] if positions.ndim == 1 else positions[b if positions.shape[0] > 1 else 0, t])


def _angle_lines(context: Context, b: int, t: int, pair: int) -> list[Line]:
    if positions_of(context.trace) is None:
        return []
    position = _position(context, b, t)
    omega = float(inverse_frequencies(context.config, context.recipe.rotary_table)[pair])
    return [
        Line("position", position, f"of token {t}"),
        Line("frequency", omega, f"of pair {pair}, in radians a position"),
        Line("angle", position * omega, "position times frequency, in radians"),
    ]


def _working(context: Context, inputs: list[str], lines: list[Line], total: Any) -> Working:
    def finish(value: float) -> float:
        return context.stored(np.asarray(value, np.asarray(total).dtype))

    return Working(inputs, lines, float(total), finish)


def _round(x: Any, format: str) -> Any:
    return round_to(np.atleast_1d(x), format)[0]


def _place(index: tuple[Any, ...]) -> str:
    return ", ".join(map(str, index))
