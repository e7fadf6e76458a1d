"""Formulas of the step table as plain text, for terminals."""

from __future__ import annotations

import re

_SYMBOLS = {
    r"\gamma": "γ",
    r"\sigma": "σ",
    r"\odot": "⊙",
    r"\top": "T",
    r"\dots": "…",
    r"\,": " ",
    r"\;": " ",
    "{:}": ":",
}

_ACCENTS = {r"\hat": "\N{COMBINING CIRCUMFLEX ACCENT}", r"\tilde": "\N{COMBINING TILDE}"}


def plain_formula(latex: str) -> str:
    r"""Return a formula such as \hat c^{KV} = \mathrm{RMSNorm}(c^{KV}) as ĉ^KV = RMSNorm(c^KV).

    Only what the step table uses is known; anything else stays as it is.
    """
    text = latex
    for accent, combining in _ACCENTS.items():
        text = re.sub(re.escape(accent) + r"\s*(\w)", rf"\1{combining}", text)
    for symbol, plain in _SYMBOLS.items():
        text = text.replace(symbol, plain)
    text = re.sub(r"\\mathrm\{(\w+)\}", r"\1", text)
    text = re.sub(r"([\^_])\{(\w+)\}", r"\1\2", text)
    return re.sub(r" {2,}", " ", text)
