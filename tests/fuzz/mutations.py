"""Odd values, and edits of bytes and of JSON that turn a valid file into a case."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st


class Raw(str):
    """Text that goes into JSON as it is: what `json.dumps` would not write."""


INTEGERS = (0, 1, -1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**40, 2**63 - 1, 2**63, 2**64, 10**30, 10**400)
FLOATS = (0.0, -0.0, 0.5, 1.0, -1.0, 1e-320, 1e-30, 1e30, 1e308, -1e308)
LITERALS = tuple(map(Raw, ("NaN", "Infinity", "-Infinity", "1e999", "1" * 5000, "-0", "1E400", "01", "'x'", "")))
TEXTS = ("", "x", "a\nb", "\x00", "\x1b[31m", "é", "\u2028", "\ud800", "\udc80x", "x" * 5000, "../x", "F32", "BF16")
NESTED = (
    [], {}, [[]], [0], [1, 1], [1.0, 2], [16, 16], [2**40] * 3, [0, 2**39, 2**39], [1] * 40, {"": 0},
    {"type": "yarn"}, Raw("[" * 100_000), Raw('{"a":' * 100_000), Raw("[" * 900 + "]" * 900),
)  # fmt: skip

odd_json = st.one_of(
    st.sampled_from((None, True, False, *INTEGERS, *FLOATS, *LITERALS, *TEXTS, *NESTED)),
    st.integers(-300, 300),
    st.floats(),
    st.text(
        'ab01.-/{}[]"\\ \n\x00\x85é漢\u202e\ud800\U0001f600', max_size=12
    ),  # all of Unicode takes seconds to set up
)
"""A value that some setting or header entry does not expect."""


class Edit(NamedTuple):
    """One change of a JSON document; `place` counts its values, or its keys."""

    what: str
    place: int
    value: Any


edits = st.lists(
    st.builds(
        Edit, st.sampled_from(("replace", "delete", "rename", "repeat", "insert")), st.integers(0, 200), odd_json
    ),
    min_size=1,
    max_size=3,
)


def edited(document: Any, changes: Sequence[Edit]) -> Any:
    """Return a deep copy of a JSON document with the changes made."""
    document = json.loads(json.dumps(document))
    for change in changes:
        change = change._replace(value=copy.deepcopy(change.value))
        slots = list(_slots(document))
        if not slots:
            return document
        holder, key = slots[change.place % len(slots)]
        if change.what == "replace":
            holder[key] = change.value
        elif change.what == "delete":
            del holder[key]
        elif isinstance(holder, list):
            holder.insert(key, change.value)
        elif change.what == "insert":
            holder[str(change.value)[:50]] = holder[key]
        else:
            name = Raw(key) if change.what == "repeat" else str(change.value)[:50]
            kept = list(holder.items())
            holder.clear()
            holder.update((Renamed(name) if k == key and change.what == "rename" else k, v) for k, v in kept)
            if change.what == "repeat":
                holder[Renamed(key)] = change.value
    return document


class Renamed(str):
    """A key that is equal to no other, so that an object may have one key twice."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def as_json(value: Any) -> str:
    """Write a document with its raw texts and its repeated keys."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(str(key))}:{as_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_json, value)) + "]"
    return json.dumps(value)


class Damage(NamedTuple):
    """One change of bytes at `at` (of a thousand parts of the file, or a position)."""

    what: str
    at: int
    size: int
    data: bytes


damages = st.lists(
    st.builds(
        Damage,
        st.sampled_from(("flip", "cut", "insert", "delete", "repeat", "overwrite", "length")),
        st.one_of(st.integers(0, 64), st.integers(0, 10_000)),
        st.one_of(st.integers(0, 16), st.integers(0, 4096)),
        st.one_of(st.binary(max_size=8), st.sampled_from((b"NaN", b"{", b'"', b"[[[", b"\\ud800", b"\xff" * 8))),
    ),
    min_size=1,
    max_size=4,
)


def damaged(content: bytes, changes: Sequence[Damage]) -> bytes:
    """Return the bytes with the changes made."""
    for what, place, size, data in changes:
        at = place % (len(content) + 1)
        if what == "flip" and content:
            at %= len(content)
            content = content[:at] + bytes([content[at] ^ (1 << size % 8)]) + content[at + 1 :]
        elif what == "cut":
            content = content[:at]
        elif what == "insert":
            content = content[:at] + data + content[at:]
        elif what == "delete":
            content = content[:at] + content[at + size :]
        elif what == "repeat":
            content = content[:at] + content[at : at + size] + content[at:]
        elif what == "overwrite":
            content = content[:at] + data + content[at + len(data) :]
        elif what == "length":
            content = (size if place % 2 else 2**64 - 1 - size).to_bytes(8, "little") + content[8:]
    return content


def _slots(document: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (holder, key) of every value inside."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in list(items):
        yield document, key
        yield from _slots(value)
