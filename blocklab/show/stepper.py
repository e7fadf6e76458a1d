"""Walking through a trace in the terminal, one step at a time."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

from blocklab.show.page import step_page
from blocklab.store.trace import Trace

PROMPT = "[Enter] next  [b] back  [name] jump  [l] list  [q] quit > "


def print_all(
    trace: Trace, names: Sequence[str], width: int, query: int | None, write: Callable[[str], object]
) -> None:
    """Write the pages of the named steps one after the other, for pipes and files."""
    for name in names:
        write(step_page(trace, name, width, query))


def walk(
    trace: Trace,
    names: Sequence[str],
    width: int,
    query: int | None,
    write: Callable[[str], object],
    ask: Callable[[str], str],
) -> None:
    """Show one page, ask what next, and go there; ends on q, at the end of the input, and after the last step.

    ask  returns what the person typed; raises EOFError at the end of the input
    """
    place = 0
    write(step_page(trace, names[place], width, query))
    while True:
        try:
            answer = ask(PROMPT).strip()
        except EOFError:
            return
        if answer in ("q", "quit"):
            return
        if answer == "l":
            write("  ".join(names) + "\n(/q jumps to the step q, 5 to the fifth step)")
            continue
        goal = destination(answer, place, names)
        if isinstance(goal, str):
            write(goal)
            continue
        if goal == len(names):
            return
        place = goal
        write(step_page(trace, names[place], width, query))


def destination(answer: str, place: int, names: Sequence[str]) -> int | str:
    """Return the index that an answer leads to (len(names): past the end), or a line that says what is wrong."""
    if answer in ("", "n"):
        return place + 1
    if answer == "b":
        return max(place - 1, 0)
    answer = answer.removeprefix("/")
    if answer.isdecimal() and 1 <= int(answer) <= len(names):
        return int(answer) - 1
    if answer in names:
        return names.index(answer)
    beginnings = [name for name in names if name.startswith(answer)]
    if len(beginnings) == 1:
        return names.index(beginnings[0])
    close = beginnings or difflib.get_close_matches(answer, names, n=3)
    return f"no step {answer!r}" + (f"; do you mean {', '.join(close)}?" if close else "; l lists them")
