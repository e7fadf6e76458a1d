"""Write the questions of the conformance kit, or score an implementation's answers to them."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from blocklab.conformance.kit import ABOUT, check_answers, write_questions
from blocklab.conformance.score import Score, verdict_of
from blocklab.json_file import json_text
from blocklab.tables import format_table


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `write FILE` and `check FILE`."""
    actions = parser.add_subparsers(metavar="write|check", dest="action", required=True)
    write = actions.add_parser("write", help="write inputs, and what to compute from them, as safetensors")
    write.add_argument("file", metavar="FILE")
    check = actions.add_parser("check", help="score the arrays that an implementation computed")
    check.add_argument("file", metavar="FILE", help="safetensors or npz")
    check.add_argument("--json", action="store_true", help="machine output")


def run(options: argparse.Namespace) -> int:
    """Write, or check and print the scores; 1 when a part failed."""
    if options.action == "write":
        print(f"{options.file}: {write_questions(options.file)} parts. {ABOUT}")
        return 0
    scores, unknown = check_answers(options.file)
    verdict = verdict_of(scores)
    if options.json:
        print(json_text({"verdict": verdict, "parts": [asdict(s) for s in scores], "unknown": unknown}))
    else:
        print(_as_text(scores, unknown))
    return 0 if verdict == "pass" else 1


def _as_text(scores: list[Score], unknown: list[str]) -> str:
    rows = [
        (s.part, s.verdict, "" if s.verdict == "not answered" else f"{s.right:,} of {s.cases:,}", _short(s))
        for s in scores
    ]
    lines = [format_table(("part", "verdict", "right", ""), rows, "<<><")]
    for s in scores:
        if s.verdict in ("fail", "differs"):
            lines += ["", *_details(s)]
    lines += ["", *(f"{name}: answers no part of the kit" for name in unknown), _summary(scores)]
    return "\n".join(lines)


def _short(score: Score) -> str:
    if score.problem:
        return score.problem
    return "; ".join(e.deviation for e in score.explanations) or ("not explained" if score.unexplained else "")


def _details(score: Score) -> list[str]:
    lines = [f"{score.part}: {score.problem or f'{score.cases - score.right:,} of {score.cases:,} values differ'}"]
    if score.first_wrong is not None:
        first = dict(score.first_wrong)
        where = ", ".join(map(str, first.pop("index")))
        label = f" ({first.pop('label')})" if "label" in first else ""
        lines.append(f"  first at [{where}]{label}: " + ", ".join(f"{key} {value}" for key, value in first.items()))
    for e in score.explanations:
        lines.append(f"  {e.deviation} explains {e.explains:,}: {e.sentence}")
    if score.unexplained and not score.problem:
        lines.append(f"  {score.unexplained:,} are explained by no deviation in the catalogue")
    return lines


def _summary(scores: list[Score]) -> str:
    counts = {v: sum(s.verdict == v for s in scores) for v in ("pass", "fail", "differs", "not answered")}
    words = {"pass": "passed", "fail": "failed", "differs": "differ (informational)", "not answered": "not answered"}
    return f"{len(scores)} parts: " + ", ".join(f"{n} {words[v]}" for v, n in counts.items())
