"""What a command imports, in a process of its own: what nobody needs would be most of the time of a small run."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from curate.tables.writer import TableWriter

ROOT = Path(__file__).resolve().parents[3]
RUN = """
import sys
from curate.cli import main
try:
    main()
except SystemExit as stop:
    sys.stdout.flush()
    print("exit", stop.code, *(name for name in {heavy} if name in sys.modules))
"""
FIRST_LINE = """
import sys
from importlib.abc import MetaPathFinder

class Marks(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("torch is imported", file=sys.stderr)

sys.meta_path.insert(0, Marks())
"""


def run(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for i in range(3):
        Image.fromarray(generator.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    return folder


def test_scoring_with_a_shipped_model_lists_the_source_imports_torch_and_no_timm_compiler_or_pandas(photos, tmp_path):
    heavy = ("timm", "torchvision", "torch._dynamo", "pandas", "torch")
    done = run(FIRST_LINE + RUN.format(heavy=heavy), "score", photos, "-o", tmp_path / "s.parquet")
    assert done.stdout.splitlines()[-1] == "exit 0 torch", done.stderr
    lines = done.stderr.splitlines()
    assert "3 files" in lines[0]
    assert "torch is imported" in lines[1:]


def test_filter_and_info_import_no_torch_scipy_or_pandas(tmp_path):
    table = pa.table({"key": [f"k{i}" for i in range(70)], "unc_x": np.linspace(0, 1, 70)})
    with TableWriter(tmp_path / "s.parquet", table.schema, {"kind": "scores"}) as writer:
        writer.write(table)
    heavy = ("torch", "scipy", "pandas", "sklearn", "PIL", "asyncio")
    done = run(
        RUN.format(heavy=heavy), "filter", tmp_path / "s.parquet", "--keep-top", "80%", "--column", "unc_x",
        "-o", tmp_path / "kept.parquet",
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "exit 0", done.stderr
    assert (tmp_path / "kept.parquet").exists()
    done = run(RUN.format(heavy=heavy), "info", tmp_path / "kept.parquet")
    assert done.stdout.splitlines()[-1] == "exit 0", done.stderr


def test_other_libraries_find_pandas():
    code = "from curate.cli import NoPandas\nimport sys\nsys.meta_path.insert(0, NoPandas())\n"
    code += "import importlib.util\nprint(importlib.util.find_spec('pandas') is not None)"
    plain = "import importlib.util\nprint(importlib.util.find_spec('pandas') is not None)"
    assert run(code).stdout == run(plain).stdout
