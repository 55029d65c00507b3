"""Who may import whom, and what help must not load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("scoring", "trainers", "curate")
MODULES = sorted(path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
HEAVY = {"torch", "torchvision", "timm", "polars", "pyarrow", "numpy", "PIL", "safetensors", "simplejpeg", "scipy"}
LEAVES = {
    Path("scoring/errors.py"),
    Path("scoring/lookup.py"),
    Path("curate/columns.py"),
    Path("curate/counted.py"),
    Path("curate/version.py"),
}
COMMAND_LINE = [path for path in MODULES if path.parts[:2] == ("curate", "commands") or path.name == "cli.py"]


def is_for_types_only(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports(path, *, at_import=False):
    """Every module that a file names in an import; with ``at_import`` only those that importing it loads."""
    found = set()
    waiting = list(ast.parse((ROOT / path).read_text()).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports by a relative name"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif at_import and (is_for_types_only(node) or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            continue
        waiting += ast.iter_child_nodes(node)
    return found


def packages(names):
    return {name.split(".")[0] for name in names}


def test_the_import_reader_sees_functions_conditions_and_both_forms(tmp_path):
    source = (
        "import a.b, c\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import d\n"
        "try:\n    from e.f import g\nexcept ImportError:\n    pass\ndef h():\n    import i\nclass J:\n    import k\n"
    )
    (tmp_path / "m.py").write_text(source)
    everything = {"a.b", "c", "typing.TYPE_CHECKING", "d", "e.f.g", "i", "k"}
    assert imports(tmp_path / "m.py") == everything
    assert imports(tmp_path / "m.py", at_import=True) == everything - {"d", "i"}


def test_there_are_modules_to_look_at():
    assert {path.parts[0] for path in MODULES} == set(PACKAGES)
    assert len(MODULES) > 60


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_run_from_curate_over_trainers_to_scoring_and_never_back(path):
    used = packages(imports(path))
    allowed = {"scoring": set(), "trainers": {"scoring"}, "curate": {"scoring"}}[path.parts[0]] | {path.parts[0]}
    if path.parts[:2] in (("curate", "commands"), ("curate", "training")):
        allowed |= {"trainers"}
    assert used & set(PACKAGES) <= allowed


def test_only_one_file_imports_timm():
    assert [path for path in MODULES if "timm" in packages(imports(path))] == [Path("scoring/backbones.py")]


@pytest.mark.parametrize("path", sorted(LEAVES), ids=str)
def test_leaves_import_the_standard_library_and_each_other(path):
    modules = {".".join(leaf.with_suffix("").parts) for leaf in LEAVES}
    for name in imports(path):
        assert name.split(".")[0] in sys.stdlib_module_names or any(name.startswith(f"{leaf}.") for leaf in modules)


@pytest.mark.parametrize("path", COMMAND_LINE, ids=str)
def test_the_command_line_imports_what_is_heavy_only_inside_functions(path):
    used = imports(path, at_import=True)
    assert not packages(used) & HEAVY
    ours = {name for name in used if name.split(".")[0] in PACKAGES}
    light = ("curate.commands", "curate.version.", "curate.counted.", "scoring.errors.")
    assert all(name.startswith(light) for name in ours), ours


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_nothing_is_unpickled_evaluated_or_asserted_and_no_error_is_swallowed_blind(path):
    tree = ast.parse((ROOT / path).read_text())
    assert not packages(imports(path)) & {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve"}
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Assert), f"{path}:{node.lineno}"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{path}:{node.lineno} is a bare except"
            assert [type(line) for line in node.body] != [ast.Pass], f"{path}:{node.lineno} hides an error"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "torch.load" and path == Path("scoring/convert.py"):  # of strangers' files, as said there
                options = {word.arg: ast.unparse(word.value) for word in node.keywords}
                assert options["weights_only"] == "True"
                continue
            assert called not in ("eval", "exec", "torch.load", "np.load", "numpy.load"), f"{path}:{node.lineno}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_can_be_read_in_one_sitting(path):
    assert path.name not in ("utils.py", "helpers.py", "misc.py", "common.py")
    assert len((ROOT / path).read_text().splitlines()) <= 400


def test_help_of_every_command_loads_nothing_heavy():
    code = (
        "import sys, curate, curate.cli\n"
        f"heavy = {sorted(HEAVY)}\n"
        "print([name for name in heavy if name in sys.modules])\n"
        "names = [command.name for command in curate.cli.app.registered_commands]\n"
        "for name in [None, *names]:\n"
        "    try:\n        curate.cli.app(['--help'] if name is None else [name, '--help'])\n"
        "    except SystemExit as stop:\n        print('exit', stop.code)\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == lines[-1] == "[]"
    exits = [line for line in lines if line.startswith("exit ")]
    assert exits == ["exit 0"] * (1 + lines.count("  Example:"))
    assert len(exits) >= 8
