from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_checkpoints import PREFIX, SETTINGS, tensors

from blocklab.store.synth_checkpoint import write_checkpoint
from blocklab.store.writing import Source


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Write a checkpoint and return its folder; `change` may edit the tensors first."""

    def write(
        dtype: str = "fp8",
        shards: int = 1,
        prefix: str = PREFIX,
        change: Callable[[dict[str, Source]], object] | None = None,
        **settings: Any,
    ) -> Path:
        content = tensors(dtype, prefix)
        if change is not None:
            change(content)
        folder = tmp_path / "checkpoint"
        write_checkpoint(folder, SETTINGS | settings, content, shards)
        return folder

    return write
