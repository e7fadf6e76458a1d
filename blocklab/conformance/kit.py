"""The conformance kit: questions that any implementation can answer, and the scores of its answers.

`write_questions` writes inputs and, as metadata, what to compute from them; `check_answers` reads the arrays that
somebody computed, compares each with what is right, and tries known deviations on what is wrong.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from pathlib import Path

import numpy as np

from blocklab.conformance.activations import activation_parts
from blocklab.conformance.attention import attention_parts
from blocklab.conformance.dots import dot_parts
from blocklab.conformance.formats import format_parts
from blocklab.conformance.norms import norm_parts
from blocklab.conformance.part import Part
from blocklab.conformance.rotary import rotary_parts
from blocklab.conformance.rounding import rounding_parts
from blocklab.conformance.score import Score, score
from blocklab.conformance.weights import weight_parts
from blocklab.errors import InputError, listed, shown
from blocklab.store.trace_file import load_tensors
from blocklab.store.writing import source, write_safetensors

ABOUT = (
    "Compute each part from its inputs, which are arrays of this file, and write the results as arrays under the"
    " names given, as safetensors or npz; leave out what you cannot compute. Codes are uint8. Then run:"
    " blocklab conformance check FILE"
)

_STORED = {"float32": "F32", "float64": "F64", "uint8": "U8", "int64": "I64", "bool": "BOOL"}


@cache
def all_parts() -> tuple[Part, ...]:
    """Return every part of the kit; nothing is random and nothing is read."""
    with np.errstate(all="ignore"):
        makers = [format_parts, rounding_parts, activation_parts, weight_parts]
        makers += [dot_parts, rotary_parts, attention_parts, norm_parts]
        return tuple(part for make in makers for part in make())


def kit_id() -> str:
    """Return what names this version of the questions: a hash of inputs and texts."""
    state = hashlib.sha256()
    for part in all_parts():
        state.update(json.dumps(part.describe()).encode())
        for array in part.inputs.values():
            state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()[:16]


def write_questions(path: str | Path) -> int:
    """Write the inputs of all parts as safetensors, with what to compute in the metadata; return the number of parts.

    Raises InputError where the file cannot be written.
    """
    arrays = {name: array for part in all_parts() for name, array in part.inputs.items()}
    tensors = {name: source(_STORED[array.dtype.name], array) for name, array in arrays.items()}
    parts = json.dumps([part.describe() for part in all_parts()])
    write_safetensors(path, tensors, {"about": ABOUT, "kit": kit_id(), "parts": parts})
    return len(all_parts())


def check_answers(path: str | Path) -> tuple[list[Score], list[str]]:
    """Score the answers in a safetensors or npz file: the score of every part, and names that answer nothing.

    Right answers are computed here, from inputs made anew: nothing in the file is trusted.
    Raises InputError for a file that cannot be read, one that answers nothing, and answers to another kit.
    """
    file = load_tensors(path)
    kit = file.metadata.get("kit", kit_id())
    if kit != kit_id():
        raise InputError(f"{path}: answers to kit {kit}; expected {kit_id()}. Write the questions again")
    parts = {part.name: part for part in all_parts()}
    if not any(name in parts for name in file.arrays):
        some = listed(file.arrays)
        raise InputError(f"{path}: expected answers such as {next(iter(parts))}; found {some}")
    questions = {name for part in all_parts() for name in part.inputs}
    unknown = [_suggest(name, parts) for name in file.arrays if name not in parts and name not in questions]
    scores = [
        score(part, file.arrays[name])
        if name in file.arrays
        else Score(name, "not answered", 0, part.answer.value.size)
        for name, part in parts.items()
    ]
    return scores, unknown


def _suggest(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f"{shown(name)} (did you mean {close[0]}?)" if close else shown(name)
