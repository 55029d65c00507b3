"""What is fixed when a folder of rounds is made, as it is read back."""

import json
from dataclasses import fields
from types import NoneType, UnionType
from typing import get_args, get_origin, get_type_hints

import pytest

from curate.rounds.files.settings import Guard, RoundSettings
from scoring.errors import InputError

WHOLE = RoundSettings(
    table="/t.parquet",
    digest="d",
    model="m",
    n_rows=9,
    classes=("a", "b"),
    holdout=2,
    holdout_sha256="h",
    parameters={"neighbours": "6"},
    guard=Guard(quality="min:blur", gate=0.2, discount=True),
    budget=40,
)


def written(**changes):
    return {**json.loads(json.dumps(WHOLE.to_json())), **changes}


def test_settings_come_back_as_they_were_written():
    assert RoundSettings.from_json(written()) == WHOLE
    assert RoundSettings.from_json(written(classes=None, budget=None, control=0)).classes is None


@pytest.mark.parametrize("name", [each.name for each in fields(RoundSettings)])
def test_a_setting_of_another_type_is_one_line_that_names_it(name):
    hint = get_type_hints(RoundSettings)[name]
    fits = {str: "x", int: -1, bool: True, float: 1.5, dict: {}, tuple: [], NoneType: None, Guard: {}}
    kinds = {get_origin(kind) or kind for kind in (get_args(hint) if isinstance(hint, UnionType) else (hint,))}
    kinds |= {int} if float in kinds else {dict} if Guard in kinds else {Guard} if dict in kinds else set()
    others = [value for kind, value in fits.items() if kind not in kinds]
    assert len(others) >= 5
    for value in others:
        with pytest.raises(InputError, match=rf"{name} of round\.json, got"):
            RoundSettings.from_json(written(**{"rows_digest" if name == "digest" else name: value}))


def test_a_setting_that_is_missing_or_unknown_is_one_line():
    for name in ("classes", "seed", "rows_digest"):
        value = written()
        del value[name]
        with pytest.raises(InputError, match=name.removeprefix("rows_")):
            RoundSettings.from_json(value)
    with pytest.raises(InputError, match="did you mean 'seed'"):
        RoundSettings.from_json(written(sed=3))


def test_a_guard_and_names_of_another_type_are_one_line():
    for guard in ({"gate": "x"}, {"discount": 3}, {"score": []}, {"nothing": 1}):
        with pytest.raises(InputError, match="guard of round") as refused:
            RoundSettings.from_json(written(guard=guard))
        assert next(iter(guard)) in str(refused.value)
    for name in ("classes", "skip"):
        with pytest.raises(InputError, match=f"text as {name}.*got 1"):
            RoundSettings.from_json(written(**{name: ["a", 1]}))
