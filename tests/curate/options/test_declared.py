"""A request declared once is a function and a command, and neither takes what it does not declare."""

import enum
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

import curate
from curate.commands.declared import command_of
from curate.commands.groups import plain_app
from curate.exporting.table import TOOLS
from curate.options.function import callable_of
from curate.options.option import Note, Option
from curate.options.texts import MEANS
from curate.options.values import part_of


@dataclass(frozen=True)
class BakeOptions:
    table: Annotated[str | Path, Option("What to bake.", path="table", argument=True)]
    _: KW_ONLY
    heat: Annotated[int, Option("Degrees; see --top-heat.", most=300)] = 180
    top_heat: Annotated[Sequence[int] | None, Option("Degrees from above (repeatable).")] = None
    on: Annotated[str | Sequence[str] | None, Option("Trays, such as top,low.", commas=True)] = None
    set: Annotated[Mapping[str, object] | None, Option("Set a dial.", example="fan=1")] = None
    report: Annotated[Callable[[int], None], Note("Called with minutes.")] = lambda minutes: None


def run_bake(request: BakeOptions) -> str:
    """Bake a table.

    Raises:
        InputError: never.
    """
    return repr((str(request.table), request.heat, request.top_heat, request.on, request.set))


bake = callable_of(BakeOptions, run_bake)


def baked(*words):
    app = plain_app()

    @app.command()
    @command_of(BakeOptions, wait="heat")
    def run(request: BakeOptions, wait: Annotated[bool, typer.Option("--wait", help="Wait.")] = False) -> None:
        """Bake."""
        typer.echo(f"{run_bake(request)} {wait}")

    return CliRunner().invoke(app, [*words])


def test_a_function_has_the_fields_as_keywords_with_types_defaults_and_texts():
    parameters = inspect.signature(bake).parameters
    assert {name: each.default for name, each in parameters.items() if name not in ("table", "report")} == {
        "heat": 180,
        "top_heat": None,
        "on": None,
        "set": None,
    }
    assert parameters["table"].annotation == str | Path
    assert bake.__name__ == "bake"
    lines = bake.__doc__.splitlines()
    assert "    heat: Degrees; see ``top_heat``." in lines
    assert lines.index("Args:") < lines.index("Raises:")
    assert bake("a", heat=20) == "('a', 20, None, None, None)"


def test_a_misspelt_keyword_is_an_error_with_the_nearest_name():
    with pytest.raises(TypeError, match="did you mean 'top_heat'"):
        bake("a", top_heet=[1])
    with pytest.raises(TypeError, match="argument 'tabel'; help"):  # table is given
        bake("a", tabel="b")
    with pytest.raises(TypeError, match="'heat', got '9'"):
        bake("a", heat="9")
    with pytest.raises(TypeError, match=r"bake\(\) missing .*'table'"):
        bake()
    for wrong, words in (
        ({"set": 1}, "a mapping for 'set'"),
        ({"set": {1: 2}}, "a text for a key of 'set'"),
        ({"report": 1}, "a function for 'report'"),
        ({"top_heat": "12"}, "a list for 'top_heat'"),
        ({"top_heat": {1: 2}}, "a list for 'top_heat'"),
        ({"top_heat": [1, "2"]}, "a whole number for each of 'top_heat'"),
    ):
        with pytest.raises(TypeError, match=f"expected {words}"):
            bake("a", **wrong)
    with pytest.raises(TypeError, match="'min', got Fraction"):
        curate.filter("a", min=Fraction(10**400))
    with pytest.raises(TypeError, match="'table', got None"):
        bake(None)
    with pytest.raises(TypeError, match=r"'table', got shape: .*\Z"):  # in one line
        bake(pl.DataFrame({"key": ["a"]}))


def test_numbers_of_numpy_generators_and_other_paths_become_plain_values_that_a_receipt_can_hold(tmp_path):
    class Place(os.PathLike):
        def __fspath__(self):
            return "a"

    class Tray(enum.StrEnum):
        TOP = "top"

    heats = (np.uint8(each) for each in (1, 2))
    done = bake(Place(), heat=np.int32(9), top_heat=heats, on={"low", Tray.TOP}, set={"fan": np.float64(0.5)})
    assert done == "('a', 9, [1, 2], ['low', 'top'], {'fan': 0.5})"
    assert bake("a", top_heat=np.arange(2)) == "('a', 180, [0, 1], None, None)"
    scores = tmp_path / "s.parquet"
    pl.DataFrame({"key": ["a", "b"], "unc_x": [0.1, 0.9]}).write_parquet(scores)
    rules = (each for each in [("max", np.float32(0.5)), ("column", np.str_("unc_x"))])
    assert curate.filter(scores, tmp_path / "k.parquet", rules=rules).kept == 1
    for wrong, words in (
        ("max", "a Rule or"),
        (("maxi", 1), "did you mean 'max'"),
        (("where", 3), "a text for 'where'"),
    ):
        with pytest.raises(TypeError, match=words):
            curate.filter(scores, rules=[wrong])


def test_a_command_has_the_fields_and_its_settings_as_they_are_declared():
    assert baked("a").output == "('a', 180, None, None, None) False\n"
    words = "a --heat 9 --top-heat 1 --top-heat 2 --on top,low --set fan=2 --wait"
    done = baked(*words.split())
    assert done.output == "('a', 9, [1, 2], 'top,low', {'fan': '2'}) True\n"
    text = baked("--help").output
    assert text.index("--heat") < text.index("--wait") < text.index("from above")
    assert "--report" not in text
    assert baked("a", "--heat", "301").exit_code == 2
    assert baked("a", "--report", "1").exit_code == 2
    assert "fan=1" in str(baked("a", "--set", "fan").exception)


def test_an_option_declared_twice_or_without_a_text_is_an_error_at_once():
    with pytest.raises(TypeError, match="heat"):

        @command_of(BakeOptions)
        def run(request: BakeOptions, heat: Annotated[int, typer.Option()] = 1) -> None: ...

    @dataclass(frozen=True)
    class Bare:
        dial: int = 1

    with pytest.raises(TypeError, match=r"Bare\.dial"):
        callable_of(Bare, run_bake)


def test_an_option_of_the_command_alone_is_declared_as_fields_are_and_any_option_can_be_moved():
    app = plain_app()

    @app.command()
    @command_of(BakeOptions, wait="heat", set="table")
    def run(request: BakeOptions, wait: Annotated[bool, Option("Until the oven is hot.")] = False) -> None: ...

    shown = CliRunner().invoke(app, ["--help"]).output
    places = [shown.index(f"  --{name} ") for name in ("set", "heat", "wait", "top-heat", "on")]
    assert places == sorted(places)
    assert "Until the oven is hot." in shown


@dataclass(frozen=True)
class Tray:
    heat: int
    size: int = 3
    rack: str = "low"


def test_a_part_of_options_has_given_values_then_theirs_then_defaults():
    assert part_of(Tray, BakeOptions("a", heat=20), rack="top") == Tray(20, 3, "top")
    assert part_of(Tray, BakeOptions("a", heat=20), heat=30) == Tray(30)
    with pytest.raises(TypeError, match="heat"):
        part_of(Tray, Note("no heat"))


def test_the_text_of_a_format_names_all():
    assert MEANS["--format"] == ", ".join(TOOLS)
