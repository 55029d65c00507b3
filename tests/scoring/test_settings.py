"""NAME=VALUE as typed, and a dataclass made from it."""

from dataclasses import dataclass

import pytest

from scoring.errors import InputError
from scoring.settings import parse_settings, require_between, with_settings


@dataclass(frozen=True)
class Recipe:
    steps: int = 10
    rate: float = 0.1
    nesterov: bool = False
    start: str = "small"
    limit: int | None = None


def test_a_number_out_of_range_is_refused_with_bounds_unit_and_hint():
    require_between("--width", 60, 60, 400, unit="mm")
    with pytest.raises(InputError, match=r"^--width .*400 mm, got 5; .*89"):
        require_between("--width", 5, 60, 400, "89 is usual", unit="mm")


def test_a_value_may_hold_what_separates_and_spaces_around_do_not_count():
    assert parse_settings(["start=a=b", " rate = 1 ", "limit="]) == {"start": "a=b", "rate": "1", "limit": ""}
    assert parse_settings([]) == {}


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["rate"], r"rate=0\.2, got 'rate'"),
        (["=3"], "NAME=VALUE"),
        (["  =3"], "NAME=VALUE"),
        (["rate=1", "rate =2"], "--set rate was given"),
    ],
)
def test_what_is_no_setting_is_one_line(texts, words):
    with pytest.raises(InputError, match=words):
        parse_settings(texts, example="rate=0.2")


def test_text_becomes_the_type_of_its_field_and_other_fields_keep_their_defaults():
    typed = {"steps": "20", "rate": "1e-3", "nesterov": "TRUE", "start": "7", "limit": "none"}
    assert with_settings(Recipe, typed, name="sgd", what="method") == Recipe(20, 0.001, True, "7", None)
    assert with_settings(Recipe, {"limit": "5"}, name="sgd", what="method") == Recipe(limit=5)
    assert with_settings(Recipe, name="sgd", what="method") == Recipe()


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"step": 1}, r"did you mean 'steps'\? \(its parameters: steps, rate"),
        ({"steps": "1.5"}, "got '1.5'"),
        ({"rate": "nan"}, "got 'nan'"),
        ({"nesterov": "1"}, "got '1'"),
        ({"limit": "all"}, "got 'all'"),
        ({"start": None}, "got None"),
    ],
)
def test_a_value_of_another_type_says_what_it_takes(typed, words):
    with pytest.raises(InputError, match=words):
        with_settings(Recipe, typed, name="sgd", what="method")
