"""Looking at a trace: pictures, pages of text, and how one number came about.

`plot(trace, "attn_norm")` returns a matplotlib figure (a notebook shows it), `save` writes it; `explain` recomputes
one number; `step_page` describes one step in text.
"""

from blocklab.show.explanation import explain, explanation_text
from blocklab.show.page import step_page
from blocklab.show.plotting import KINDS, plot
from blocklab.show.style import save

__all__ = ["KINDS", "explain", "explanation_text", "plot", "save", "step_page"]
