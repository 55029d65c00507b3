"""Completion in a real shell: what Tab offers."""

import os
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.policies.dedup.finders.table import FINDERS
from curate.selectors.table import SELECTORS

BASH = shutil.which("bash")
SCRIPT = """
source ./completion
COMP_WORDS=($LINE) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
[ "${LINE: -1}" != " " ] || { COMP_WORDS+=(""); COMP_CWORD=$((COMP_CWORD + 1)); }
_curate_completion curate
printf '%s\n' "${COMPREPLY[@]}"
"""
pytestmark = pytest.mark.skipif(BASH is None, reason="no bash on this machine")


def offered(line, folder):
    """What bash offers after a line, where Tab is pressed at its end."""
    environment = {**os.environ, "LINE": line, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run([BASH, "-c", SCRIPT], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return [word for word in done.stdout.split("\n") if word]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the command in it, whatever is installed, and a table of three columns."""
    folder = tmp_path_factory.mktemp("complete")
    (folder / "curate").write_text(f"#!{sys.executable}\nfrom curate.cli import main\n\nmain()\n")
    (folder / "curate").chmod(0o755)
    pq.write_table(pa.table({"key": ["a"], "unc_a": [0.1], "unc_b": [0.2]}), folder / "scores.parquet")
    environment = {**os.environ, "_CURATE_COMPLETE": "source_bash"}
    script = subprocess.run([folder / "curate"], env=environment, capture_output=True, check=True).stdout
    (folder / "completion").write_bytes(script)
    return folder


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("curate fi", ["fit", "filter"]),
        ("curate filter --keep", ["--keep-top"]),
        ("curate filter scores.parquet --column unc_", ["unc_a", "unc_b"]),
        ("curate filter scores.parquet --max 1 --column k", ["key"]),
        ("curate compare scores.parquet scores.parquet --column unc_b", ["unc_b"]),
        ("curate filter none.parquet --column unc_", []),
        ("curate select scores.parquet --strategy m", [name for name in SELECTORS if name.startswith("m")]),
        ("curate dedup --finder ", list(FINDERS)),
    ],
)
def test_tab_offers_commands_options_columns_and_names(folder, line, words):
    assert sorted(offered(line, folder)) == sorted(words)
