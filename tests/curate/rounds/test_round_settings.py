"""What is fixed when a folder of rounds is made, as it is read back."""

import json
import re

import pytest

from curate.rounds.files.settings import GUARD, WRITTEN, Settings
from scoring.errors import InputError

WHOLE = Settings(
    table="/t.parquet",
    digest="d",
    model="m",
    n_rows=9,
    classes=("a", "b"),
    holdout=2,
    holdout_sha256="h",
    parameters={"neighbours": "6"},
    guard={"quality": "min:blur", "gate": 0.2, "discount": True},
    budget=40,
)


def written(**changes):
    return {**json.loads(json.dumps(WHOLE.to_json())), **changes}


def test_settings_come_back_as_they_were_written():
    assert Settings.from_json(written()) == WHOLE
    assert Settings.from_json(written(classes=None, budget=None, control=0)).classes is None


@pytest.mark.parametrize("name", WRITTEN)
def test_a_setting_of_another_type_is_one_line_that_names_it(name):
    allowed = WRITTEN[name]
    others = [value for value in (None, -1, 1.5, True, "x", [], {}) if type(value) not in allowed]
    assert len(others) >= 5
    for value in others:
        with pytest.raises(InputError, match=re.escape(f"curate round writes ({name}); take a copy")):
            Settings.from_json(written(**{"rows_digest" if name == "digest" else name: value}))


def test_a_guard_and_names_of_another_type_are_one_line():
    for guard in ({"gate": "x"}, {"discount": 3}, {"score": []}, {"nothing": 1}):
        assert set(guard) <= {*GUARD, "nothing"}
        with pytest.raises(InputError, match=f"another type than curate round writes .{next(iter(guard))}.; take"):
            Settings.from_json(written(guard=guard))
    for name in ("classes", "skip"):
        with pytest.raises(InputError, match=f"expected names of text as {name} of round.json, got another type"):
            Settings.from_json(written(**{name: ["a", 1]}))
