"""What all tests share: the rule about the shared corpus."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked ``shared`` skip by name where the corpus is absent, unless it is required (as in CI)."""
    if SHARED.is_dir() or os.environ.get("MASKTAX_REQUIRE_SHARED"):
        return
    skip = pytest.mark.skip(reason="needs the shared corpus beside the checkout (../shared)")
    for item in items:
        if "shared" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared corpus's folder."""
    assert SHARED.is_dir(), f"{SHARED} is required here (MASKTAX_REQUIRE_SHARED) and absent"
    return SHARED


# Machines that run tests are shared and slow at times: a property is about values, never about how long one took.
# In CI the same examples are tried every time, so that a failure is the change's; elsewhere new ones are looked for.
settings.register_profile("shared-machine", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("shared-machine")
