"""Verification of a folder of rounds: each round is computed again from earlier labels and compared with its files."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.columns import KEY
from curate.counted import counted
from curate.exporting.labels import shown
from curate.policies.arranged import unlike
from curate.rounds.exported import export_problems
from curate.rounds.files.folder import (
    BATCH,
    HOLDOUT,
    ROUNDS,
    STATE,
    Folder,
    Round,
    label_paths,
    numbered_folders,
    open_round,
    read_batch,
)
from curate.rounds.files.sealed import LabelFile, read_label_file, read_sealed
from curate.rounds.files.settings import CONFIG, KIND, RoundSettings
from curate.rounds.files.votes import RoundVotes
from curate.rounds.init import held_out_rows
from curate.rounds.recount import measure_problems
from curate.rounds.state.batch import Derived, derive
from curate.rounds.state.standing import LabelProgress, RoundRows, TableRows, held_out_keys, standing_of, table_of
from curate.version import __version__
from scoring.errors import InputError
from scoring.file_digest import file_sha256

N_SHOWN, N_NAMED = 3, 10  # maximal different rows shown on a line, and listed in JSON
PASSED_THROUGH = ("uri", "width", "height")  # table columns that do not affect the choice
PLACE = "rank"


@dataclass
class RoundCheck:
    """The result of verifying one round.

    Attributes:
        number: of the round.
        n_rows: rows of the recomputed batch; 0 if impossible.
        n_different: number of different rows of the batch.
        different: descriptions of the first of them.
        problems: other differences, or why the round cannot be recomputed.
    """

    number: int
    n_rows: int = 0
    n_different: int = 0
    different: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Whether the recomputed batch has no difference."""
        return not self.n_different and not self.problems


@dataclass
class RoundsCheck:
    """The result of verifying the rounds of a folder.

    Attributes:
        path: of the folder.
        rounds: one after another.
        problems: differences outside of the recomputed rounds.
    """

    path: Path
    rounds: list[RoundCheck] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Whether nothing differs."""
        return not self.problems and all(each.identical for each in self.rounds)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        rounds = [{"identical": each.identical, **asdict(each)} for each in self.rounds]
        return {"identical": self.identical, "path": str(self.path), "rounds": rounds, "problems": self.problems}


def verify_rounds(
    folder: str | Path,
    table: str | Path | None = None,
    *,
    only: int | None = None,
    report: Callable[[RoundCheck], None] | None = None,
) -> RoundsCheck:
    """Compute every round of a folder again from the labels before it, and compare batch and accuracy.

    A round depends on the table, the settings, the images sent out before, and the labels listed in its state, not on
    later labels. If the batch of a round was changed, later rounds use the recomputed one, so that an edit is reported
    in one round only.

    Args:
        folder: of `curate round init`; not locked.
        table: present path of the table, if it was moved.
        only: number of the only round to check.
        report: called with each result.

    Raises:
        InputError: if the folder is invalid, its settings were changed, or the table is missing or another one.
    """
    path = Path(folder)
    settings = RoundSettings.from_json(read_sealed(path / CONFIG, KIND))
    scored = table_of(settings, path, table)
    result = RoundsCheck(path)
    past = _Past(path, settings, scored)
    result.problems += past.check_holdout()
    names = numbered_folders(path)
    last = int(names[-1]) if names else 0
    if only is not None and only > last:
        raise InputError(f"expected a round from 1 to {last} of {path}, got {only}; choose one of them")
    number = 0
    while number < last:
        number += 1
        if f"{number:04}" not in names:
            next_number = min(int(name) for name in names if int(name) > number)
            check = past.lost(number, next_number - 1)
            number = next_number - 1
        else:
            check = past.check(number, derive_anyway=only in (None, number))
        if only in (None, check.number):
            result.rounds.append(check)
            if report is not None:
                report(check)
    if only is None:
        result.problems += past.leftover()
    return result


class _Past:
    """The labels known before each round, advancing from the first."""

    def __init__(self, path: Path, settings: RoundSettings, scored: TableRows) -> None:
        self.folder, self.scored = Folder(path, settings, ()), scored
        self.arms: dict[str, str] = {}  # every key sent out -> its arm
        self.labels: dict[str, LabelFile | str] = {}  # imports by name; an error text if unreadable
        self.before: str | None = file_sha256(path / CONFIG)  # digest of the last record; None if lost
        self.lacking: str | None = None  # why no further round can be recomputed
        self.named_imports: set[str] = set()  # imports listed in a round
        self.loose: list[str] = []  # problems outside of rounds
        self.rounds: list[Round] = []
        self.altered = False  # whether a round was changed

    def check_holdout(self) -> list[str]:
        """Return the differences in the held-out rows, without which no round can be recomputed."""
        path, settings = self.folder.path, self.folder.settings
        self.initial_labels: dict[str, str] = {}
        self.held_out: tuple[str, ...] = ()
        if file_sha256(path / HOLDOUT) != settings.holdout_sha256:
            self.lacking = f"{HOLDOUT} differs from what {CONFIG} records"
            return []
        self.held_out, self.initial_labels = held_out_keys(self.folder)
        drawn = self.scored.keys(held_out_rows(self.scored, settings))
        other = sorted(set(drawn) ^ set(self.held_out))
        if other:
            named = ", ".join(shown(key) for key in other[:N_SHOWN])
            return [f"held out only now or only then: {counted(len(other), 'image')} ({named})"]
        return []

    def lost(self, number: int, to: int) -> RoundCheck:
        """Return a result for missing rounds."""
        which = f"{ROUNDS}/{number:04}" + (f" to {to:04}" if to > number else "")
        self.lacking, self.before = self.lacking or f"{which} is missing", None
        return RoundCheck(number, problems=[f"{which} is missing; restore it from a backup"])

    def check(self, number: int, *, derive_anyway: bool) -> RoundCheck:
        """Recompute a round, compare it, and add it to the past.

        Args:
            number: of the next round.
            derive_anyway: recompute even if the batch is unchanged and no later round needs it.
        """
        check = RoundCheck(number)
        place = self.folder.of_round(number)
        try:
            round_: Round | None = open_round(place, number)
        except InputError as error:
            round_ = None
            check.problems.append(str(error))
        as_written = round_ is not None and self._check_files(round_, check)
        votes = self._votes(round_, check)
        standing = self._standing(votes, check)
        derived = self._derive(number, standing, check) if derive_anyway or not as_written else None
        batch = None
        try:
            batch = read_batch(place)
        except InputError as error:
            check.problems.append(str(error))
        if derived is not None and batch is not None:
            differing, problems = compare_batches(derived.batch, batch, as_written=as_written)
            check.problems += problems
            check.n_rows, check.n_different, check.different = len(batch), len(differing), differing[:N_NAMED]
            if differing and round_ is not None and round_.state.curate != __version__:
                check.problems.append(f"it was drawn by version {round_.state.curate}, and this is {__version__}")
        if round_ is not None and derived is not None and standing is not None:
            check.problems += measure_problems(self._before(), round_, standing, derived.probe)
        if round_ is not None and batch is not None:
            noted = read_sealed(place / STATE, "round").get("export")
            good = batch if derived is None or as_written else derived.batch
            if isinstance(noted, dict):
                check.problems += export_problems(place, noted, good, self.folder.settings)
        self._advance(number, place, round_, derived, batch if as_written else None)
        return check

    def _check_files(self, round_: Round, check: RoundCheck) -> bool:
        """Report changed files; return whether the batch is unchanged."""
        name = self.folder.name(round_.folder)
        if self.before is not None and round_.state.parent != self.before:
            check.problems.append(f"the files before {name}/{STATE} have changed")
        for finding in round_.changed():
            check.problems.append(f"{name}/{finding} differs from what {name}/{STATE} records")
        return BATCH in round_.state.files and BATCH not in round_.changed()

    def _votes(self, round_: Round | None, check: RoundCheck) -> RoundVotes | None:
        """Return the votes before a round; None, with a problem in ``check``, if unknown."""
        names = list(self.labels) if round_ is None else list(round_.state.labels)
        lacking = [] if self.lacking is None else [self.lacking]
        for name in names:
            file = self.labels.get(name)
            if not isinstance(file, LabelFile):
                lacking.append(file or f"{name} is missing")
                self.named_imports.add(name)
            elif round_ is not None and round_.state.labels[name] != file.content:
                check.problems.append(f"{name} differs from what {self.folder.name(round_.folder)}/{STATE} records")
                self.named_imports.add(name)
        for name in self.labels:
            if name not in names:
                check.problems.append(f"{name} did not exist when the round was drawn, and exists now")
                self.named_imports.add(name)
        if lacking:
            check.problems.append(f"cannot be selected again: {'; '.join(lacking)}")
            return None
        files = [file for name, file in self.labels.items() if name in names and isinstance(file, LabelFile)]
        return RoundVotes([file.votes for file in files])

    def _standing(self, votes: RoundVotes | None, check: RoundCheck) -> RoundRows | None:
        """Return the state before a round; None, with a problem in ``check``, if unknown."""
        if votes is None:
            return None
        progress = LabelProgress(votes, votes.consensus(), self.initial_labels, self.held_out, self.arms)
        try:
            return standing_of(self.folder, self.scored, progress)
        except InputError as error:
            check.problems.append(f"cannot be selected again: {error}")
            return None

    def _before(self) -> Folder | None:
        """Return the folder with the earlier rounds only; None if one of them was changed."""
        return None if self.altered else replace(self.folder, rounds=tuple(self.rounds))

    def _derive(self, number: int, standing: RoundRows | None, check: RoundCheck) -> Derived | None:
        if standing is None:
            return None
        try:
            return derive(standing, number)
        except InputError as error:
            check.problems.append(f"cannot be selected again: {error}")
            return None

    def _advance(self, number: int, place: Path, round_: Round | None, derived: Derived | None, batch: Any) -> None:
        """Add a round to the past: the rows sent out, and the returned labels."""
        if round_ is None or batch is None:
            self.altered = True
        else:
            self.rounds.append(round_)
        requested = batch if batch is not None else None if derived is None else derived.batch
        if requested is not None:
            self.arms = self.arms | dict(zip(requested["key"].to_pylist(), requested["arm"].to_pylist(), strict=True))
        elif self.lacking is None:
            self.lacking = f"what round {number} requested is no longer known"
        self.before = None if round_ is None else file_sha256(place / STATE)
        for path in label_paths(place):
            name = self.folder.name(path)
            try:
                file = read_label_file(path)
            except InputError as error:
                self.labels[name], self.before = str(error), None
                continue
            self.labels[name] = file
            if self.before is not None and file.parent != self.before:
                self.loose.append(f"the files before {name} have changed")
            self.before = file.content

    def leftover(self) -> list[str]:
        """Return the labels that no round used."""
        unread = [
            text for name, text in self.labels.items() if isinstance(text, str) and name not in self.named_imports
        ]
        return [*self.loose, *unread]


def compare_batches(now: pa.Table, then: pa.Table, *, as_written: bool) -> tuple[list[str], list[str]]:
    """Return descriptions of the rows and of the columns of a batch that differ from the recomputed one.

    Args:
        now: recomputed, each key once.
        then: on disk.
        as_written: whether the file is unchanged; then different paths or sizes of images come from a new table and are
            no differences.
    """
    if [(field.name, field.type) for field in now.schema] != [(field.name, field.type) for field in then.schema]:
        return [], ["the batch has other columns or types than the selection now has"]
    keys, noted = now[KEY].to_pylist(), then[KEY].to_pylist()
    place = {key: at for at, key in enumerate(keys)}
    rows = np.array([place.get(key, -1) for key in noted], np.int64)
    changes: dict[Any, list[str]] = {key: ["not chosen then"] for key in keys if key not in set(noted)}
    for at, row in enumerate(rows.tolist()):
        if row < 0:
            changes[noted[at]] = ["not chosen now"]
        elif row != at:
            changes[noted[at]] = [f"number {row + 1:,} now, number {at + 1:,} then"]
    for name in now.schema.names:
        if name in (KEY, PLACE) or (as_written and name in PASSED_THROUGH):
            continue
        for at in unlike(now[name], then[name], rows).tolist():
            changes.setdefault(noted[at], []).append(f"another {name}")
    problems = [f"{len(noted) - len(set(noted)):,} rows occur twice"] if len(set(noted)) < len(noted) else []
    return [f"{key}: {', '.join(texts)}" for key, texts in changes.items()], problems
