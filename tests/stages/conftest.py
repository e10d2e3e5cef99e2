"""What tests of stages share: bandwidth is measured over little memory, which is enough to compute a bound from."""

from __future__ import annotations

import pytest

from harness import bounds


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LARGEST_BYTES", 1 << 20)
