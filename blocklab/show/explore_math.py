"""The formulas of the step table, LaTeX, as MathML that a browser shows without any library."""

from __future__ import annotations

import re
from typing import Any

_SYMBOLS = {
    r"\gamma": ("mi", "γ"),
    r"\sigma": ("mi", "σ"),
    r"\top": ("mo", "⊤"),
    r"\odot": ("mo", "⊙"),
    r"\dots": ("mo", "…"),
    r"\cdot": ("mo", "·"),
    r"\times": ("mo", "×"),
}
_ACCENTS = {r"\hat": "^", r"\tilde": "~"}
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\,|[0-9]+|\S")

Node = list[Any]
"""[tag, text or list of Nodes, attributes]: what the page's script makes an element of."""


def mathml(formula: str) -> Node:
    """Return a formula as a tree of MathML elements.

    Knows what the step table uses: letters, numbers, scripts, primes, groups, \\mathrm, \\hat, \\tilde, a few
    symbols. Raises ValueError for anything else, so that a new formula is never shown half.
    """
    tokens = _TOKEN.findall(formula)
    row = _row(tokens)
    if tokens:
        raise ValueError(f"formula {formula!r}: a closing brace without an opening one")
    return row


def _row(tokens: list[str]) -> Node:
    """Take tokens up to a closing brace or the end."""
    nodes = []
    while tokens and tokens[0] != "}":
        nodes.append(_scripted(tokens))
    return _joined(nodes)


def _scripted(tokens: list[str]) -> Node:
    """Take one atom and the scripts and primes behind it."""
    base = _atom(tokens)
    below: list[Node] = []
    above: list[Node] = []
    while tokens and tokens[0] in ("^", "_", "'"):
        mark = tokens.pop(0)
        if mark == "'":
            above.append(["mo", "′", {}])
        else:
            (above if mark == "^" else below).append(_script(tokens))
    if below and above:
        return ["msubsup", [base, _joined(below), _joined(above)], {}]
    if below:
        return ["msub", [base, _joined(below)], {}]
    return ["msup", [base, _joined(above)], {}] if above else base


def _script(tokens: list[str]) -> Node:
    """Take a script: a run of letters in braces is one upright name, as in W^{DQ}."""
    if tokens and tokens[0] == "{" and "}" in tokens:
        inside = tokens[1 : tokens.index("}")]
        if len(inside) > 1 and all(len(t) == 1 and t.isalpha() for t in inside):
            del tokens[: len(inside) + 2]
            return ["mi", "".join(inside), {}]
    return _atom(tokens)


def _atom(tokens: list[str]) -> Node:
    """Take one symbol, group or accented symbol."""
    if not tokens:
        raise ValueError("formula: something is missing at its end")
    token = tokens.pop(0)
    if token == "{":
        row = _row(tokens)
        if not tokens:
            raise ValueError("formula: a brace is not closed")
        tokens.pop(0)
        return row
    if token == r"\mathrm":
        return _upright(tokens)
    if token in _ACCENTS:
        return ["mover", [_atom(tokens), ["mo", _ACCENTS[token], {"stretchy": "false"}]], {"accent": "true"}]
    if token == r"\,":
        return ["mspace", "", {"width": "0.17em"}]
    if token in _SYMBOLS:
        tag, text = _SYMBOLS[token]
        return [tag, text, {}]
    if token.startswith("\\"):
        raise ValueError(f"formula: unknown command {token}")
    if token.isdigit():
        return ["mn", token, {}]
    if token.isalpha():
        return ["mi", token, {}]
    return ["mo", token, {"stretchy": "false"}]


def _upright(tokens: list[str]) -> Node:
    """Take the braces of \\mathrm: one name in upright letters."""
    end = tokens.index("}") if "}" in tokens else -1
    if not tokens or tokens[0] != "{" or end < 0:
        raise ValueError(r"formula: \mathrm needs a name in braces")
    name = "".join(tokens[1:end])
    del tokens[: end + 1]
    return ["mi", name, {"mathvariant": "normal"}]


def _joined(nodes: list[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else ["mrow", nodes, {}]
