"""JSON that somebody else wrote, read strictly: a key given twice or half a character is damage, not a setting."""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blocklab.errors import InputError, shown

_MAX_BYTES = 100_000_000


def read_json(path: Path) -> Any:
    """Return what a JSON file holds.

    Errors: InputError naming the file, for one that cannot be read (a pipe or a device never is, as it may not end)
    and for what `parse_json` refuses.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path}: expected a file, found something else")
        if status.st_size > _MAX_BYTES:
            raise InputError(f"{path}: expected at most {_MAX_BYTES:,} bytes of JSON, found {status.st_size:,}")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    return parse_json(content, str(path))


def parse_json(content: bytes, where: str) -> Any:
    """Return what JSON text holds; `where` opens the message of an error.

    Errors: InputError for text that is not UTF-8 or not JSON, for an object with a key twice, and for lone
    surrogates, which are escapes of no character.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            raise InputError(f"{where}: duplicate key {shown(twice)}")
        if escaped:
            for name, value in pairs:
                _require_characters(name, where)
                if isinstance(value, str):
                    _require_characters(value, where)
        return found

    escaped = b"\\u" in content
    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=unique, parse_int=_integer)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: expected JSON: {' '.join(str(error).split())[:120]}") from None


def json_text(value: Any) -> str:
    """Return a value as indented JSON; NaN and infinities, which JSON does not have, become null."""
    return json.dumps(_finite(value), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def json_kind(value: object) -> str:
    """Return what a parsed JSON value is, in JSON's words."""
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _integer(digits: str) -> int | float:
    """Return an integer; -0 is a number that no integer is, as other readers of JSON have it."""
    return -0.0 if digits == "-0" else int(digits)


def _require_characters(text: str, where: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{where}: expected Unicode text, found a lone surrogate in {shown(text)}") from None
