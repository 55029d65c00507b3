"""The functions of ``curate``: found, typed, and with the options of the commands."""

import inspect
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rounds_table
import typer
from PIL import Image

import curate
from curate.cli import app
from curate.tables.classes import lists_of
from curate.tables.table import open_table


def commands():
    """Function -> the command of the command line that it represents: all that there are."""
    by_name = {}
    for name, command in typer.main.get_command(app).commands.items():
        inner = getattr(command, "commands", None)
        if inner:
            by_name |= {f"{name}_{each}": command for each, command in inner.items()}
        else:
            by_name[name] = command
    for name, word, rest in (
        ("review", "plan", ["s.parquet", "--max-bad-rate", "2%"]),
        ("review", "verdicts", ["a.audit.csv"]),
        ("models", "convert", ["a", "-o", "b"]),
    ):
        by_name[f"{name}_{word}"] = by_name[name].make_context(name, [word, *rest]).command
    return by_name


COMMANDS = commands()
FUNCTIONS = tuple(COMMANDS)
ONLY_TYPED = {
    "devices",
    "json",
    "quiet",
    "no_open",
    "sheet",
    "plot",
    "help",
    "threshold",
    "fail_on_leaks",
    "password_env",
    "install_completion",
    "show_completion",
}  # threshold: a value of ``finder`` in Python; devices: a script of several processes is started by torchrun
ONLY_CALLED = {
    "rules",
    "ways",
    "report",
    "compared",
    "picked",
    "announce",
    "password",
}  # the last four are given progress
OF_PYTHON = {  # tuned by nobody else
    "selftest": {"repeats"},
    "calibrate": {"repeats"},
    "compare": {"clusters", "top"},
    "score": {"max_bytes", "allow_private_hosts", "explicit"},
}
OF_THE_PICTURE = {"source", "other_source"}
OF_THE_REPORT = {  # these write nothing in Python
    "evaluate": {"out", "overwrite"},
    "issues": OF_THE_PICTURE,
    "compare": {"out", "overwrite", *OF_THE_PICTURE},
    "round_status": {"fail_unless_stop", "all"},
    "selftest": {"out", "overwrite"},
    "retrieve": OF_THE_PICTURE,
    "train": {"engine"},  # as devices
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_there_documented_and_typed(name):
    function = getattr(curate, name)
    assert function.__name__ == function.__qualname__ == name
    assert "Raises:" in function.__doc__
    assert name in dir(curate)
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(each.annotation is not inspect.Parameter.empty for each in signature.parameters.values())


@pytest.mark.slow
def test_modules_that_are_imported_do_not_take_the_place_of_functions():
    code = (
        "import pkgutil, importlib, curate, curate.policies\n"
        "for module in (*pkgutil.iter_modules(curate.__path__), *pkgutil.iter_modules(curate.policies.__path__)):\n"
        "    room = 'curate.policies.' if module.module_finder.path.endswith('policies') else 'curate.'\n"
        "    if module.name != '__main__':\n        importlib.import_module(room + module.name)\n"
        "import curate.policies.dedup, curate.evaluation\n"
        f"print([name for name in {FUNCTIONS} if not callable(getattr(curate, name))])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_star_import_brings_everything_but_filter_which_python_has_itself():
    names: dict = {}
    exec("from curate import *", names)
    assert {*FUNCTIONS, "InputError", "__version__"} - {"filter"} == set(names) - {"__builtins__"}


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="deduplicate"):
        _ = curate.deduplicate


def test_a_mistake_of_the_users_can_be_caught_by_its_name(tmp_path):
    with pytest.raises(curate.InputError, match=r"none\.parquet"):
        curate.filter(tmp_path / "none.parquet", keep_top=1, dry_run=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_misspelt_keyword_is_a_type_error_that_names_the_function(name):
    with pytest.raises(TypeError, match=rf"{name}\(\) .*'labeld'"):
        getattr(curate, name)(*["scores.parquet"] * (1 + (name in ("compare", "plot", "retrieve"))), labeld="x")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_misspelt_keyword_is_answered_with_the_nearest_one(name):
    for keyword in inspect.signature(getattr(curate, name)).parameters:
        for misspelt in (keyword.upper(), f"{keyword}{keyword[-1]}"):
            with pytest.raises(TypeError, match=rf"{name}\(\).*'{misspelt}'; did you mean '{keyword}'"):
                getattr(curate, name)(**{misspelt: 1})
    with pytest.raises(TypeError, match=rf"'zzzz'; help\(curate\.{name}\)"):
        getattr(curate, name)(zzzz=1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_options_have_the_same_names_and_defaults_in_both(name):
    typed = {
        (each.opts or [each.name])[0].lstrip("-").replace("-", "_"): each.default for each in COMMANDS[name].params
    }
    called = inspect.signature(getattr(curate, name)).parameters
    assert set(typed) - ONLY_TYPED - OF_THE_REPORT.get(name, set()) == set(called) - ONLY_CALLED - OF_PYTHON.get(
        name, set()
    )
    for option in set(typed) & set(called) - {"table", "other", "receipt", "budget", "kind", "queries"}:
        default = called[option].default
        assert (None if default is inspect.Parameter.empty else default) == typed[option], option


def test_score_has_the_defaults_of_the_parts_that_read_and_score():
    from dataclasses import fields

    from curate.engines.contract import Cluster
    from curate.engines.settings import ScoreSettings
    from curate.manifest.contract import SourceOptions

    called = inspect.signature(curate.score).parameters
    parts = {field.name: field.default for each in (SourceOptions, ScoreSettings, Cluster) for field in fields(each)}
    inside = {"reserved", "scorers", "address"}  # made of others, or the caller's
    assert {name: called[name].default for name in parts if name not in inside} == {
        name: default for name, default in parts.items() if name not in inside
    }


def test_a_pipeline_is_run_from_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = {"key": ["a", "b", "c"], "status": ["ok"] * 3, "kappa_x": [1.0, 2.0, 3.0]}
    pq.write_table(pa.table(rows), "scores.parquet")
    (tmp_path / "curate.toml").write_text('[filter]\ntable = "scores.parquet"\nwhere = "kappa_x > 1"\n')
    result = curate.run("curate.toml")
    assert [(step.name, step.state) for step in result.steps] == [("filter", "done")]
    assert pq.read_table("curated/filter.parquet")["key"].to_pylist() == ["b", "c"]
    assert curate.run("curate.toml").steps[0].state == "up to date"


def test_a_model_is_trained_from_a_cache_and_converted_into_words_from_python(tmp_path, tiny_checkpoint, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 255, (32, 32, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    (tmp_path / "t.csv").write_text("file_name,label\n" + "".join(f"{n}.png,{'ab'[n % 2]}\n" for n in range(6)))
    said = []
    made = curate.cache("t.csv", "features", model=str(tiny_checkpoint), epochs=2, batch_size=4, announce=said.append)
    assert (made.epochs, made.images, made.failures) == (2, 6, {})
    assert said
    assert curate.info("features").kind == "cache"
    trained = curate.train(
        "losspred", cached="features", backbone=str(tiny_checkpoint), out="m.safetensors", epochs=2, set={"folds": 2}
    )
    assert (trained.images, trained.method) == (6, "losspred")
    assert curate.models("m.safetensors")["digest"] == trained.model
    for sources in ({}, {"data": "t.csv", "cached": "features"}):
        with pytest.raises(curate.InputError, match="one of them"):
            curate.train("losspred", out="n.safetensors", **sources)


def test_rounds_are_held_from_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    truth = rounds_table.table(tmp_path / "t.parquet", 60)
    rounds_table.images(tmp_path, 60)
    curate.round_init("rounds", "t.parquet", ["ant", "bee", "cow"], batch=10, holdout="10")
    made = curate.round_next("rounds")
    back = rounds_table.answer(made, truth, tmp_path / "back.csv")
    assert curate.round_import("rounds", back).labels == 20  # ten of the batch, ten held out
    assert curate.round_labels("rounds", "labels.parquet")["labelled"] == 20
    assert lists_of(open_table("labels.parquet")) == {"label": ("ant", "bee", "cow")}
    assert curate.round_status("rounds").rounds == 1
    assert curate.info("rounds").facts["classes"] == "ant, bee, cow"
