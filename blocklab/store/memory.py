"""How much memory is free, and a clear refusal of what would not fit."""

from __future__ import annotations

from pathlib import Path

from blocklab.errors import InputError

_GIB = 1 << 30


def free_memory() -> int | None:
    """Return the bytes that this process can still take, or None where the system does not say.

    The least of what Linux calls available, what the control groups leave, and what `ulimit -v` leaves.
    """
    found = [n for n in (_available(), _left_in_groups(), _left_of_limit()) if n is not None]
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


def _left_in_groups(root: Path = Path("/sys/fs/cgroup"), told: Path = Path("/proc/self/cgroup")) -> int | None:
    """Return the least that this process's control group leaves, or any group around it; those of version 1, too."""
    folders = {(root, "memory.max", "memory.current")}
    try:
        lines = told.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if kinds else ("memory.max", "memory.current")
        top = root / "memory" if kinds else root
        inside = Path(path.lstrip("/"))
        folders |= {(top / group, *names) for group in (inside, *inside.parents)}
    left = [n for n in (_left_in_group(*each) for each in folders) if n is not None]
    return min(left) if left else None


def _left_in_group(group: Path, limit: str, used: str) -> int | None:
    """Return what one group leaves; pages of files that it would give back count as free."""
    try:
        left = int((group / limit).read_text(encoding="ascii")) - int((group / used).read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such group, or "max": no limit
        return None
    try:
        lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        lines = []
    pages = [int(line.split()[1]) for line in lines if line.startswith(("inactive_file ", "total_inactive_file "))]
    return max(0, left + max(pages, default=0))


def _left_of_limit() -> int | None:
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (ImportError, OSError):  # Windows, macOS
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else max(0, limit - pages * resource.getpagesize())
