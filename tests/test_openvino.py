"""What runs OpenVINO, in its own process: one in which it ran dies when it forks, as other tests do."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = ("tests/scoring/test_backends.py", "tests/curate/engines/test_score_backends.py")


@pytest.mark.skipif(find_spec("openvino") is None, reason="openvino is not installed")
@pytest.mark.slow
@pytest.mark.parametrize("marked", ["slow", "not slow"])
def test_openvino_in_a_separate_process(marked):
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--numprocesses", "0", "-m", marked, *FILES]
    done = subprocess.run(
        line, cwd=ROOT, env={**ours, "CURATE_TEST_OPENVINO": "1"}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " skipped" not in done.stdout.splitlines()[-1] or "bfloat16" in done.stdout
