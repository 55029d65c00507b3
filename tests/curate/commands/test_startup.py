"""What a command imports, in a process of its own: what nobody needs would be most of the time of a small run."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import curate
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
RUN_ALL = """
import sys
from curate.cli import main
for line in sys.argv[1:]:
    sys.argv[1:] = line.split("|")
    try:
        main()
    except SystemExit as stop:
        heavy = ("torch", "pandas", "sklearn", "openTSNE", "scipy")
        print("ran", sys.argv[1], stop.code, *(name for name in heavy if name in sys.modules))
"""
MODULES, FILES = 89, 47  # that a filter imports, and with a function that it calls; may only be lowered
ENTERED = """
import sys
depth, entered = 0, set()

def profile(frame, event, argument):
    global depth
    if frame.f_code.co_name == "<module>":
        depth += (event == "call") - (event == "return")
    elif event == "call" and not depth and frame.f_code.co_flags & 1:  # a function, after its module was imported
        entered.add(frame.f_globals.get("__name__") or "")

from curate.cli import main
sys.setprofile(profile)
try:
    main()
except SystemExit:
    sys.setprofile(None)
    for names in (sys.modules, entered):
        print("own", *sorted(name for name in names if name.split(".")[0] in ("curate", "scoring", "trainers")))
"""
FIRST_LINE = """
import sys
from importlib.abc import MetaPathFinder

class Marks(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torch._utils":  # Polars looks for torch without an import
            print("torch is imported", file=sys.stderr)
            if "clean" in sys.argv:
                sys.exit()

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


def test_filter_and_info_import_no_torch_scipy_pandas_or_other_commands(tmp_path):
    table = pa.table({"key": [f"k{i}" for i in range(70)], "unc_x": np.linspace(0, 1, 70)})
    with TableWriter(tmp_path / "s.parquet", table.schema, {"kind": "scores"}) as writer:
        writer.write(table)
    heavy = ("torch", "scipy", "pandas", "sklearn", "PIL", "asyncio", "curate.commands.train")
    done = run(
        RUN.format(heavy=heavy),
        "filter",
        tmp_path / "s.parquet",
        "--keep-top",
        "80%",
        "--column",
        "unc_x",
        "--where",
        "unc_x < 2",
        "-o",
        tmp_path / "kept.parquet",
    )
    assert done.stdout.splitlines()[-1] == "exit 0", done.stderr
    assert (tmp_path / "kept.parquet").exists()
    line = ("filter", tmp_path / "s.parquet", "--keep-top", "80%", "-o", tmp_path / "other.parquet")
    modules, files = (set(line.split()[1:]) for line in run(ENTERED, *line).stdout.splitlines() if line[:4] == "own ")
    assert {"curate.commands.filter", "curate.tables.writer"} < files < modules
    assert len(modules) <= MODULES
    assert len(files) <= FILES
    done = run(RUN.format(heavy=heavy), "info", tmp_path / "kept.parquet")
    assert done.stdout.splitlines()[-1] == "exit 0", done.stderr


def test_commands_on_the_numbers_of_a_small_table_import_no_torch_or_scipy(photos, tmp_path):
    generator = np.random.default_rng(0)
    signatures = generator.integers(-127, 128, (70, 255), dtype=np.int8)
    signatures[1] = signatures[0]
    table = pa.table(
        {
            "key": [f"k{i}" for i in range(70)],
            "sha256": [f"{i:064x}" for i in range(70)],
            "signature": pa.array([row.tobytes() for row in signatures], pa.binary(255)),
            "thumbnail": pa.array([bytes(4096)] * 70, pa.binary(4096)),
            "unc_x": generator.uniform(size=70),
            "status": ["ok"] * 70,
        }
    )
    scores, unique, rounds = tmp_path / "s.parquet", tmp_path / "unique.parquet", tmp_path / "rounds"
    vectors = pa.FixedSizeListArray.from_arrays(generator.normal(size=70 * 8).astype(np.float32), 8)
    embedded = table.append_column("embedding", vectors)
    with TableWriter(scores, table.schema, {"kind": "scores"}) as writer:
        writer.write(table)
    with TableWriter(tmp_path / "e.parquet", embedded.schema, {"kind": "scores"}) as writer:
        writer.write(embedded)
    curate.round_init(rounds, tmp_path / "e.parquet", batch=10)
    commands = (
        ("models",),
        ("models", "world"),
        ("round", "status", rounds),
        ("labels", scores),
        ("dedup", scores, "-o", unique, "-q"),
        ("merge", scores, unique, "--prefix", "-o", tmp_path / "m.parquet", "-q"),
        ("verify", unique),
        ("plot", scores, "histogram", "-o", tmp_path / "h.svg", "-q"),
        ("split", scores, "--train", "80%", "--test", "20%", "-o", tmp_path / "split.parquet", "-q"),
        ("compare", scores, unique, "-o", tmp_path / "c.json"),
        ("report", scores, unique, "-o", tmp_path / "r.html", "-q"),
        ("clean", photos, "-o", tmp_path / "cleaned", "--dry-run"),
    )
    done = run(RUN_ALL, *("|".join(map(str, words)) for words in commands))
    exits = [line for line in done.stdout.splitlines() if line.startswith("ran ")]
    refused = ("labels", "merge")  # the table has no column of labels, and was not written by `curate score`
    code = {words: int(words[0] in refused) for words in commands}
    assert exits == [f"ran {words[0]} {code[words]}" for words in commands], done.stdout + done.stderr
    assert pq.read_metadata(unique).num_rows == 69


def test_the_first_line_of_clean_is_printed_before_torch_is_imported(photos, tmp_path):
    done = run(FIRST_LINE + RUN.format(heavy=()), "clean", photos, "-o", tmp_path / "cleaned")
    lines = done.stderr.splitlines()
    assert "step 1" in lines[0]
    assert lines[-1] == "torch is imported"


def test_other_libraries_find_pandas():
    code = "from curate.cli import NoPandas\nimport sys\nsys.meta_path.insert(0, NoPandas())\n"
    code += "import importlib.util\nprint(importlib.util.find_spec('pandas') is not None)"
    plain = "import importlib.util\nprint(importlib.util.find_spec('pandas') is not None)"
    assert run(code).stdout == run(plain).stdout


@pytest.mark.parametrize(("given", "used"), [(None, "1"), ("3", "3")])
def test_numpy_has_one_thread_on_any_number_of_cores_unless_the_user_sets_more(monkeypatch, given, used):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
    threads = "print('threads', __import__('os').environ['OPENBLAS_NUM_THREADS'])"
    assert f"threads {used}\n" in run(RUN.format(heavy=()) + threads, "--version").stdout
