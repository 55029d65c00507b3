"""Shared by all tests."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests are many small things; threads would only get in their way

SHARED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real images beside the checkout; tests that need it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"the real images are not at {SHARED}")
    return SHARED
