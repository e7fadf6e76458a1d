"""How much memory is free, and a clear refusal of what would not fit."""

from __future__ import annotations

from pathlib import Path

from blocklab.errors import InputError

_GIB = 1 << 30


def free_memory() -> int | None:
    """Return the bytes that this process can still take, or None where the system does not say.

    The least of what Linux calls available, what the control group leaves, and what `ulimit -v` leaves.
    """
    found = [n for n in (_available(), _left_in_group(), _left_of_limit()) if n is not None]
    return min(found) if found else None


def require_memory(need: int, what: str, advice: str) -> None:
    """Refuse what needs more memory than is free.

    Errors: InputError with the need, what is free and what to change.
    """
    free = free_memory()
    if free is not None and need > free:
        raise InputError(
            f"{what} would need about {min(need, 1 << 80) / _GIB:.1f} GiB of memory, and {free / _GIB:.1f} GiB are"
            f" free: {advice}"
        )


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return kilobytes[0] * 1024 if kilobytes else None


def _left_in_group(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        return max(0, limit - int((group / "memory.current").read_text(encoding="ascii")))
    except (OSError, ValueError):  # no such group, or "max": no limit
        return None


def _left_of_limit() -> int | None:
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (ImportError, OSError):  # Windows, macOS
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else max(0, limit - pages * resource.getpagesize())
