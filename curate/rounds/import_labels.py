"""Import of labels: read, checked, and written next to the round without replacing earlier imports."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from curate.exporting.batches import read_labels
from curate.exporting.labels import CANCELLED, MISSING, N_EXAMPLES, Labels, Problem, shown
from curate.options.function import callable_of
from curate.rounds.files.folder import Folder, held, label_paths
from curate.rounds.files.sealed import LabelFile, write_labels
from curate.rounds.files.votes import TIED, News, RoundVotes, Vote, agree
from curate.rounds.options import RoundImportOptions
from scoring.errors import InputError
from scoring.file_digest import file_sha256


@dataclass(frozen=True)
class ImportResult:
    """The result of an import.

    Attributes:
        written: the new file of labels; None if nothing was new.
        labels: usable labels in the file.
        skipped: number of skipped keys.
        news: keys by kind of change.
        problems: ignored labels, and other findings.
        missing: keys of the last round without a label.
        round: the last round.
        rest_skipped: number of its unlabelled images that count as skipped; None if not requested.
        earlier: the file of labels of an earlier import of the same file: only images sent out since then count; None
            without one.
    """

    written: Path | None
    labels: int
    skipped: int
    news: News
    problems: tuple[Problem, ...]
    missing: int
    round: int
    rest_skipped: int | None = None
    earlier: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        return {
            "written": None if self.written is None else str(self.written),
            "labels": self.labels,
            "skipped": self.skipped,
            **{name: len(getattr(self.news, name)) for name in ("new", "changed", "repeated")},
            "problems": [asdict(problem) for problem in self.problems],
            "missing": self.missing,
            "round": self.round,
            "rest_skipped": self.rest_skipped,
            "earlier": self.earlier,
        }


def run_round_import(options: RoundImportOptions) -> ImportResult:
    """Read the labels of annotators, check them, and store them with the round.

    A label replaces an earlier one of the same annotator and key; the file of the earlier import is kept. Labels for
    images of earlier rounds are accepted too.

    Raises:
        InputError: if there is no batch yet, the file has no usable label, or the folder was changed or is locked.
    """
    annotator, skip_rest = options.annotator, options.skip_rest
    with held(options.folder) as opened:
        if not opened.rounds:
            raise InputError(f"{opened.path} has no batch yet; create one with `curate round next {opened.path}`")
        path = Path(options.file)
        if path.exists() and not path.is_file() and not path.is_dir():
            raise InputError(
                f"expected a file or a folder of labels, and {path} is a device or a pipe; save it as a file"
            )
        digest = file_sha256(path)
        kind = options.format or opened.settings.format
        imports = ((each.number, file) for each in reversed(opened.rounds) for file in reversed(each.labels))
        same_source = (digest, annotator)  # the last import of the same bytes, and the last round at that time
        same = (
            each for each in imports if (each[1].source.get("sha256"), each[1].source.get("annotator")) == same_source
        )
        earlier = next(same, None) if digest else None
        if earlier is not None and not skip_rest and earlier[0] == opened.rounds[-1].number:
            return _nothing_new(opened, earlier[1])
        labels = read_labels(path, kind, keys=opened.uris, classes=opened.settings.names, name=options.name)
        votes = _votes(opened, labels, annotator)
        if earlier is not None:
            round_of = opened.requested  # one file may hold the labels of all rounds: those sent out since count
            votes = [vote for vote in votes if round_of[vote.key] > earlier[0]]
            if not votes and not skip_rest:
                return _nothing_new(opened, earlier[1])
        rest: list[str] = []
        if skip_rest:
            come = {vote.key for vote in votes}
            held_votes = opened.votes
            rest = [key for key in opened.rounds[-1].keys if key not in held_votes and key not in come]
            votes += [Vote(key, None, annotator) for key in rest]
        source: dict[str, Any] = {"name": path.name, "sha256": digest, "format": kind, "annotator": annotator}
        source["problems"] = [str(problem) for problem in labels.problems]
        result = _add(opened, votes, source, labels)
        before = None if earlier is None else opened.name(earlier[1].path)
        return replace(result, rest_skipped=len(rest) if skip_rest else None, earlier=before)


round_import = callable_of(RoundImportOptions, run_round_import)


def _nothing_new(folder: Folder, earlier: LabelFile) -> ImportResult:
    votes = earlier.votes
    held_votes = folder.votes
    missing = sum(key not in held_votes for key in folder.rounds[-1].keys)
    skipped = sum(vote.label is None for vote in votes)
    news = News(repeated=[vote.key for vote in votes])
    last, name = folder.rounds[-1].number, folder.name(earlier.path)
    return ImportResult(None, len(votes) - skipped, skipped, news, (), missing, last, earlier=name)


def _votes(folder: Folder, labels: Labels, annotator: str | None) -> list[Vote]:
    skip = set(folder.settings.skip)
    votes = [
        Vote(row.key, None if row.label in skip else row.label, row.annotator or annotator, row.labelled_at)
        for row in labels.rows
    ]
    labelled = {vote.key for vote in votes}
    skipped = [row.key for row in labels.ignored if row.reason == CANCELLED and row.key is not None]
    return votes + [Vote(key, None, annotator) for key in dict.fromkeys(skipped) if key not in labelled]


def _add(folder: Folder, votes: list[Vote], source: dict[str, Any], labels: Labels) -> ImportResult:
    held_votes, last = folder.votes, folder.rounds[-1]
    news = held_votes.add(votes)
    written = None
    if news.new or news.changed:
        number = len(label_paths(last.folder)) + 1
        path = last.folder / f"labels-{number:04}.parquet"
        written = write_labels(path, votes, source, folder.head).path
    missing = [key for key in last.keys if key not in held_votes]
    skipped = sum(vote.label is None for vote in votes)
    return ImportResult(
        written,
        len(votes) - skipped,
        skipped,
        news,
        _problems(held_votes, labels, missing, [vote.key for vote in votes]),
        len(missing),
        last.number,
    )


def _problems(votes: RoundVotes, labels: Labels, missing: list[str], came: list[str]) -> tuple[Problem, ...]:
    """Return the reader's problems; missing labels count for the last round only, ties over all imports."""
    problems = [problem for problem in labels.problems if problem.kind != MISSING]
    tied = [key for key in dict.fromkeys(came) if agree(votes.labels_of(key)).state == TIED]
    if tied:
        problems.append(_problem("votes are tied, and the image does not count", tied))
    if missing:
        problems.append(replace(_problem(MISSING, missing), kind="without a label"))
    return tuple(problems)


def _problem(kind: str, keys: list[str]) -> Problem:
    return Problem(kind, len(keys), tuple(shown(key) for key in keys[:N_EXAMPLES]), set_aside=False)
