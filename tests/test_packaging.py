"""What is shipped: the archive, the wheel made from it, and the wheel where only its dependencies are installed."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import curate

ROOT = Path(__file__).parents[1]
PACKAGES = ("curate", "scoring", "trainers")
SITE = Path(sysconfig.get_path("purelib"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SHIPPED = sorted((ROOT / "scoring" / "checkpoints").glob("*.safetensors"))
PAGE = ROOT / "curate" / "sheets" / "app"  # HTML, CSS and JavaScript, next to the module that puts them together
MOST_LINES = 99_300  # of all modules: the count rounded up to a hundred; may only be lowered
PARTS = [path for path in PAGE.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}]


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_modules_have_no_more_lines_than_before():
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert sum(len(path.read_text().splitlines()) for path in modules) <= MOST_LINES


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Archive and wheel, the wheel built from the archive, out of a copy of the tree as it is."""
    tree = tmp_path_factory.mktemp("tree") / "curate"
    shutil.copytree(
        ROOT,
        tree,
        ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "demo", "benchmarks"),
    )
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tree / "dist", tree)
    (archive,), (wheel,) = (tree / "dist").glob("*.tar.gz"), (tree / "dist").glob("*.whl")
    return archive, wheel


@pytest.fixture(scope="module")
def wheel_names(built):
    with zipfile.ZipFile(built[1]) as wheel:
        return set(wheel.namelist())


def needed(name, extra, seen):
    """Names of a distribution and all that it needs here, as installed."""
    from packaging.requirements import Requirement

    for text in importlib.metadata.requires(name) or []:
        requirement = Requirement(text)
        key = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if key in seen or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        seen.add(key)
        for inner in ("", *requirement.extras):
            needed(key, inner, seen)
    return seen


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A fresh environment with the wheel, which sees the stated dependencies of it and nothing else."""
    from packaging.requirements import Requirement

    folder = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", built[1])
    stated = {re.sub(r"[-_.]+", "-", Requirement(text).name).lower() for text in PROJECT["dependencies"]}
    names = set(stated)
    for name in stated:
        needed(name, "", names)
    links = folder / "dependencies"
    links.mkdir()
    for name in names:
        for file in importlib.metadata.files(name) or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (links / top).exists():
                (links / top).symlink_to(SITE / top)
    target = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
    (Path(target) / "dependencies.pth").write_text(f"{links}\n")
    return folder / "venv" / "bin", names


@pytest.mark.slow
def test_the_version_is_defined_in_one_place(built):
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    with zipfile.ZipFile(built[1]) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(wheel.read(name).decode())
    assert metadata["Version"] == curate.__version__
    assert metadata["Name"] == "kappa-curate"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata.get_payload().startswith("# curate")


@pytest.mark.slow
def test_the_wheel_holds_every_module_the_licence_and_type_marks_and_nothing_else(wheel_names):
    sources = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")} | {
        f"{package}/py.typed" for package in PACKAGES
    }
    rest = {name for name in wheel_names - sources if ".dist-info/" not in name}
    assert sources <= wheel_names
    recipes = list((ROOT / "trainers" / "recipes").glob("*.toml"))
    assert recipes
    assert rest == {str(path.relative_to(ROOT)) for path in [*SHIPPED, *PARTS, *recipes]}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel_names)


@pytest.mark.slow
def test_the_models_that_ship_are_in_the_wheel_and_small(wheel_names):
    if not SHIPPED:
        pytest.skip("no checkpoint is in scoring/checkpoints yet")
    assert "scoring/checkpoints/trio.safetensors" in wheel_names
    assert all(path.stat().st_size <= 25_000_000 for path in SHIPPED)


@pytest.mark.slow
def test_the_archive_holds_what_the_wheel_is_built_from_and_no_cache(built):
    with tarfile.open(built[0]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "README.md", "LICENSE", "curate/cli.py", "scoring/model.py", "trainers/loop.py"} <= names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".parquet")]


@pytest.mark.slow
def test_the_wheel_runs_where_only_its_stated_dependencies_are(installed, tmp_path, tiny_checkpoint):
    programs, names = installed
    assert "torch" in names
    assert not names & {"pytest", "scikit-learn", "duckdb", "hypothesis", "ruff", "mypy", "pillow-heif"}
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    how = {"cwd": tmp_path, "env": environment}
    python = programs / "python"
    where = run(python, "-c", "import curate, scoring, trainers; print(curate.__file__, scoring.__file__)", **how)
    assert all(path.startswith(str(programs.parent)) for path in where.stdout.split())
    absent = "import importlib.util as u; print([n for n in ('pytest', 'duckdb', 'sklearn') if u.find_spec(n)])"
    assert run(python, "-c", absent, **how).stdout == "[]\n"
    assert "Usage: curate" in run(programs / "curate", "--help", **how).stdout
    assert run(programs / "curate", "--version", **how).stdout == f"curate {curate.__version__}\n"
    photos = ROOT / "examples" / "photos"
    model = [] if SHIPPED else ["--model", tiny_checkpoint]
    scored = run(programs / "curate", "score", photos, "-o", "s.parquet", "--device", "cpu", "--json", *model, **how)
    assert json.loads(scored.stdout)["statuses"] == {"ok": 12}
    kept = run(programs / "curate", "filter", "s.parquet", "--keep-top", "50%", "-o", "k.parquet", "--json", **how)
    assert json.loads(kept.stdout)["kept"] == 6
    assert run(programs / "curate", "train", "--help", **how).returncode == 0
    exact = "from scoring.metrics.proportions import clopper_pearson as f; print(round(f(10, 10).low, 3))"
    assert run(python, "-c", exact, **how).stdout == "0.692\n"


@pytest.mark.parametrize(("name", "since"), [("bitwise_count", "2.0"), ("vecdot", "2.0"), ("matvec", "2.2")])
def test_the_oldest_numpy_allowed_has_what_is_called(name, since):
    from packaging.requirements import Requirement

    callers = [
        path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if f"np.{name}" in path.read_text()
    ]
    (numpy,) = [requirement for requirement in map(Requirement, PROJECT["dependencies"]) if requirement.name == "numpy"]
    older = {"2.0": "1.26.4", "2.2": "2.1.3"}[since]
    assert not callers or older not in numpy.specifier, f"{callers[0]} needs numpy {since}"


def test_the_makefile_says_which_python_it_needs(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.9.2\nexit 1\n')
    old.chmod(0o755)
    for python, got in ((old, "got Python 3.9.2"), (tmp_path / "none", "found none")):
        done = subprocess.run(
            ["make", "demo", f"PYTHON={python}"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1
        assert "Python 3.11" in errors[0]
        assert got in errors[0]
        assert not (tmp_path / ".venv").exists()


def test_an_installation_that_was_cut_off_is_picked_up_again_and_a_whole_one_is_not_repeated(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").write_text("cut off")  # no program at all
    log, broken = tmp_path / "log", tmp_path / "broken"
    stub = f'#!/bin/sh\necho "$@" >> {log}\ncase "$*" in *install*) test ! -e {broken};; esac\n'
    (tmp_path / "stub").write_text(stub)
    (tmp_path / "stub").chmod(0o755)
    fake = tmp_path / "python3"
    fake.write_text(
        f'#!/bin/sh\nif [ "$2" = venv ]; then echo "$@" >> {log}; install -m 755 {tmp_path}/stub .venv/bin/python; fi\n'
    )
    fake.chmod(0o755)

    def make():
        log.write_text("")
        make = ["make", ".venv/.installed", f"PYTHON={fake}"]
        code = subprocess.run(make, cwd=tmp_path, capture_output=True, text=True, check=False).returncode
        return code, [" ".join(line.split()[1:3]) for line in log.read_text().splitlines()]

    broken.touch()
    assert make() == (2, ["venv --clear", "pip install"])
    assert not (tmp_path / ".venv" / ".installed").exists()
    broken.unlink()
    assert make() == (0, ["pip --version", "pip install"])
    assert make() == (0, [])
    later = (tmp_path / ".venv" / ".installed").stat().st_mtime + 5
    os.utime(tmp_path / "pyproject.toml", (later, later))
    assert make() == (0, ["pip --version", "pip install"])
