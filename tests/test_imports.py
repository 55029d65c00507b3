"""Who may import whom, and what help must not load."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("scoring", "trainers", "curate")
MODULES = sorted(path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
SCRIPTS = sorted(
    path.relative_to(ROOT) for folder in ("benchmarks", "examples") for path in (ROOT / folder).glob("*.py")
)
HEAVY = {
    "torch",
    "torchvision",
    "timm",
    "polars",
    "pyarrow",
    "numpy",
    "PIL",
    "safetensors",
    "simplejpeg",
    "scipy",
    "matplotlib",
}
LEAVES = {
    Path("scoring/errors.py"),
    Path("scoring/lookup.py"),
    Path("scoring/column.py"),
    Path("scoring/scorers.py"),
    Path("scoring/relative/columns.py"),
    Path("curate/columns.py"),
    Path("curate/counted.py"),
    Path("curate/version.py"),
}
OF_STRANGERS = (Path("scoring/convert.py"), Path("scoring/packaged.py"))  # what reads PyTorch's files, as said there
MOST_ROOMS = 30  # folders directly in a package; may only be lowered
COMMAND_LINE = [
    path
    for path in MODULES
    if path.parts[:2] in (("curate", "commands"), ("curate", "options")) or path.name in ("cli.py", "options.py")
]  # and the options of commands, wherever they are declared
FLOORS = (  # of curate, from below: what is on one imports what is on it or below
    {"columns", "counted", "version", "options", "statistics"},
    {"manifest"},
    {"tables"},
    {"selectors", "probes"},
    {"policies", "retrieval", "engines", "sheets", "evaluation", "exporting", "description", "torch"},
    {"rounds", "fitting", "calibration", "pipeline", "reporting", "diagnosis", "lineage", "cleaning", "reviewing"},
    {"selftests"},
    {"training"},
    {"commands"},
    {"cli", "__init__", "pipelines"},
    {"__main__"},
)
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}


def is_for_types_only(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


@cache
def parsed(path):
    return ast.parse((ROOT / path).read_text())


@cache
def nodes(path):
    """All nodes of a file, with which each test would be busy for a second."""
    return list(ast.walk(parsed(path)))


@cache
def imports(path, *, at_import=False):
    """Every module that a file names in an import; with ``at_import`` only those that importing it loads."""
    names = set()
    waiting = list(parsed(path).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports by a relative name"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif at_import and (is_for_types_only(node) or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            continue
        waiting += ast.iter_child_nodes(node)
    return names


def packages(names):
    return {name.split(".")[0] for name in names}


@cache
def arrows():
    """Every import of a module of ours by another, inside functions and for types included, as dotted names."""
    modules = {".".join(path.with_suffix("").parts): path for path in MODULES}

    def module_of(name):
        starts = [name.rsplit(".", cut)[0] for cut in range(name.count(".") + 1)]
        return next((each for start in starts for each in (start, f"{start}.__init__") if each in modules), None)

    return {(module, module_of(name)) for module, path in modules.items() for name in imports(path)} - {
        (module, other) for module in modules for other in (module, None)
    }


def neighbours(pairs):
    """Package -> what lies directly in it -> what else there it imports, a package inside counting as one."""
    graphs = {}
    for importer, imported in pairs:
        first, other = importer.split("."), imported.split(".")
        shared = next(i for i, (a, b) in enumerate(zip(first, other, strict=False)) if a != b)
        graph = graphs.setdefault(".".join(first[:shared]), {})
        graph.setdefault(first[shared], set()).add(other[shared])
    return graphs


def circle(graph):
    """Names that import each other in a ring, or None."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def upward(pairs):
    """The imports inside curate that run to a higher floor."""
    inside = [
        (module, other) for module, other in pairs if module.startswith("curate.") and other.startswith("curate.")
    ]
    return {(module, other) for module, other in inside if FLOOR[module.split(".")[1]] < FLOOR[other.split(".")[1]]}


def every(paths):
    """Make one test of a check of a path: thousands of tests cost more than what they check. All failures are named."""

    def made(check):
        def test():
            wrong = {}
            for path in paths:
                try:
                    check(path)
                except AssertionError as error:
                    wrong[str(path)] = str(error)
            assert wrong == {}

        test.__name__ = check.__name__
        return test

    return made


def names_brought_by(package):
    """The modules that a package installs, or where it is not installed here, the one that we import it by."""
    try:
        installed = distribution(package)
    except PackageNotFoundError:
        return {package}
    declared = (installed.read_text("top_level.txt") or "").split()
    return declared or {path.parts[0].partition(".")[0] for path in installed.files or ()}


def test_whatever_is_imported_is_a_stated_dependency_or_an_extra():
    """What `pip install` does not bring would be missing where nobody develops."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [
        requirement
        for name, those in project["optional-dependencies"].items()
        if name != "dev"
        for requirement in those
    ]
    stated = {
        re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")
        for requirement in [*project["dependencies"], *extras]
    }
    brought = {name for each in stated for name in names_brought_by(each)}
    outside = {}
    for path in MODULES:
        for node in nodes(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            for top in {name.split(".")[0] for name in names} - sys.stdlib_module_names - set(PACKAGES) - brought:
                outside.setdefault(top, str(path))
    assert outside == {}


def test_the_import_reader_sees_functions_conditions_and_both_forms(tmp_path):
    source = (
        "import a.b, c\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import d\n"
        "try:\n    from e.f import g\nexcept ImportError:\n    pass\ndef h():\n    import i\nclass J:\n    import k\n"
    )
    (tmp_path / "m.py").write_text(source)
    everything = {"a.b", "c", "typing.TYPE_CHECKING", "d", "e.f.g", "i", "k"}
    assert imports(tmp_path / "m.py") == everything
    assert imports(tmp_path / "m.py", at_import=True) == everything - {"d", "i"}


def test_there_are_at_most_30_rooms():
    rooms = {path.parts[:2] for path in MODULES if len(path.parts) > 2}
    assert len(rooms) <= MOST_ROOMS


def test_the_packages_are_found_and_mirrored_by_folders_of_tests():
    assert {path.parts[0] for path in MODULES} == set(PACKAGES)
    assert len(MODULES) > 60
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*.py")}
    mirrors = {folder for folder in folders if folder.parts[:1] in {(name,) for name in PACKAGES}}
    assert mirrors <= {path.parent for path in MODULES}
    assert folders - mirrors == {Path(), *map(Path, ("contracts", "crash", "docs", "fuzz", "studies"))}


@every(MODULES)
def test_imports_run_from_curate_over_trainers_to_scoring_and_never_back(path):
    used = packages(imports(path))
    allowed = {"scoring": set(), "trainers": {"scoring"}, "curate": {"scoring"}}[path.parts[0]] | {path.parts[0]}
    if path.parts[:2] in (("curate", "commands"), ("curate", "training")):
        allowed |= {"trainers"}
    assert used & set(PACKAGES) <= allowed


def test_a_circle_is_found_between_packages_though_no_two_modules_make_one():
    pairs = [("p.a.x", "p.b.y"), ("p.b.z", "p.c"), ("p.c", "p.a.w"), ("p.a.x", "p.a.w")]
    graphs = neighbours(pairs)
    assert graphs == {"p": {"a": {"b"}, "b": {"c"}, "c": {"a"}}, "p.a": {"x": {"w"}}}
    assert set(circle(graphs["p"])) == {"a", "b", "c"}
    assert circle(graphs["p.a"]) is None


def test_an_import_from_a_higher_floor_is_found():
    pairs = [("curate.tables.table", "curate.policies.contract"), ("curate.cli", "curate.commands.score")]
    assert upward(pairs) == {pairs[0]}
    assert set(FLOOR) == {path.with_suffix("").parts[1] for path in MODULES if path.parts[0] == "curate"}


def test_inside_curate_imports_run_downward():
    assert upward(arrows()) == set()


def test_nowhere_do_imports_run_in_a_circle():
    graphs = neighbours(arrows())
    assert len(graphs) > 20
    assert {package: ring for package, graph in graphs.items() if (ring := circle(graph))} == {}


def test_only_one_file_imports_timm():
    assert [path for path in MODULES if "timm" in packages(imports(path))] == [Path("scoring/backbones.py")]


def test_only_one_file_imports_what_windows_lacks():
    lacking = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix"}
    assert {path for path in MODULES if packages(imports(path)) & lacking} == {Path("scoring/system.py")}


@every(sorted(LEAVES))
def test_leaves_import_the_standard_library_and_each_other(path):
    modules = {".".join(leaf.with_suffix("").parts) for leaf in LEAVES}
    for name in imports(path):
        assert name.split(".")[0] in sys.stdlib_module_names or any(name.startswith(f"{leaf}.") for leaf in modules)


@every(COMMAND_LINE)
def test_the_command_line_imports_what_is_heavy_only_inside_functions(path):
    used = imports(path, at_import=True)
    assert not packages(used) & HEAVY
    ours = {name for name in used if name.split(".")[0] in PACKAGES}
    tables = (
        "curate.engines.table.",
        "scoring.scorers.",
        "curate.exporting.table.",
        "curate.reporting.plots.table.",
        "curate.policies.filter.table.",
        "curate.selectors.table.",
        "trainers.methods.table.",
    )  # of names, which import on use
    light = ("curate.commands", "curate.options.", "curate.version.", "curate.counted.", "scoring.errors.", *tables)
    light = (*light, "scoring.lookup.")
    assert all(name.startswith(light) or ".options." in name for name in ours), ours


@every(SCRIPTS)
def test_what_a_benchmark_or_example_imports_from_the_packages_is_there(path):
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and packages([node.module]) & set(PACKAGES):
            exec(ast.unparse(node), {})


@every(MODULES)
def test_nothing_is_unpickled_evaluated_or_asserted_and_no_error_is_swallowed_blind(path):
    assert not packages(imports(path)) & {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve"}
    for node in nodes(path):
        assert not isinstance(node, ast.Assert), f"{path}:{node.lineno}"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{path}:{node.lineno} is a bare except"
            assert [type(line) for line in node.body] != [ast.Pass], f"{path}:{node.lineno} hides an error"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "torch.load" and path in OF_STRANGERS:
                options = {word.arg: ast.unparse(word.value) for word in node.keywords}
                assert options["weights_only"] == "True"
                continue
            unsafe = ("eval", "exec", "torch.load", "np.load", "numpy.load", "locals")  # of locals no type is checked
            assert called not in unsafe, f"{path}:{node.lineno}"


@every(MODULES)
def test_a_module_can_be_read_in_one_sitting(path):
    assert path.name not in ("utils.py", "helpers.py", "misc.py", "common.py")
    assert len((ROOT / path).read_text().splitlines()) <= 400


HELP = """
import sys, curate, curate.cli, typer
heavy = sys.argv[1].split()
print([name for name in heavy if name in sys.modules])
commands = typer.main.get_command(curate.cli.app).commands
nested = [[name, inner] for name, command in commands.items() for inner in getattr(command, "commands", [])]
for words in [[], *([name] for name in commands), *nested, ["models", "convert"]]:
    try:
        curate.cli.app([*words, "--help"])
    except SystemExit as stop:
        print("exit", stop.code)
print([name for name in heavy if name in sys.modules])
"""


def test_help_of_every_command_loads_nothing_heavy():
    command = [sys.executable, "-c", HELP, " ".join(HEAVY)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == lines[-1] == "[]"
    exits = [line for line in lines if line.startswith("exit ")]
    assert exits == ["exit 0"] * len(exits)
    assert len(exits) >= 20
    assert all(
        any(f"{name} [OPTIONS]" in line for line in lines) for name in ("select", "round init", "models convert")
    )


def test_a_filter_loads_no_torch():
    code = "import sys, curate.policies.filter.policy\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
