"""Creation of a folder of rounds: held-out rows and fixed settings."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import KEY, LABEL
from curate.manifest.keys import check_text, first_true
from curate.options.function import callable_of
from curate.options.values import part_of
from curate.policies.audit.results import parse_share
from curate.policies.select.request import SelectRequest
from curate.rounds.files.folder import HOLDOUT, Folder, open_folder
from curate.rounds.files.sealed import write_sealed
from curate.rounds.files.settings import CONFIG, SKIP, Guard, RoundSettings, class_names
from curate.rounds.measures.rules import refuse_unreachable
from curate.rounds.options import RoundInitOptions
from curate.rounds.state.standing import TableRows, read_table, refuse_another, signals_of
from curate.tables.amount import Amount
from curate.tables.classes import read_classes
from curate.tables.digests import plain
from curate.tables.known import read_known, refuse_unknown_keys
from curate.tables.spelling import spelled_as
from curate.tables.table import Table, open_table
from curate.tables.writer import write_table
from curate.version import __version__
from scoring.atomic import place_errors, require_folder
from scoring.errors import InputError
from scoring.file_digest import file_sha256
from scoring.lock import LOCK, HeldFolder
from scoring.temporaries import sweep, temporary_stem

NONE = ("0", "0.0", "0%")  # values of --holdout for no rows
SHARE, MOST = 0.1, 500  # default share and maximal number of held-out rows
HOLDOUT_SCHEMA = pa.schema([(KEY, pa.string()), ("label", pa.string())])


def run_round_init(options: RoundInitOptions) -> Folder:
    """Create a folder of rounds for a table; no batch is written yet.

    Raises:
        InputError: for an unusable table, option or folder, or if the folder belongs to another table.
    """
    path = Path(options.folder)
    classes = _classes(options)
    skip = tuple(label for label in (SKIP,) if label not in (classes or ())) if options.skip is None else options.skip
    guard = Guard(options.score, options.quality, options.gate or 0.0, options.discount, options.noise_guard)
    opened = open_table(options.table, require=[KEY])
    parameters = dict(options.set or {})
    _check_strategy(options.strategy, parameters, guard)
    if path.is_dir() and (path / CONFIG).is_file():
        _refuse_taken(path, options.table)
    scored = read_table(options.table, signals_of(guard, opened).columns)
    _check_keys(opened)
    settings = part_of(
        RoundSettings,
        options,
        table=str(Path(options.table).resolve()),
        digest=scored.rows.digest,
        model=scored.rows.model,
        n_rows=len(scored.rows),
        classes=classes,
        holdout=n_held_out(options.holdout, int(scored.usable.sum())),
        holdout_sha256="",
        skip=tuple(skip),
        parameters=parameters,
        guard=guard,
        confidence=parse_share(options.confidence, "--confidence"),
        stop=tuple(options.stop or ()),
    )
    refuse_unreachable(settings.rules, settings.holdout, settings.n_control, settings.confidence)
    held_out = held_out_rows(scored, settings)
    labels = _labels(scored, held_out, options.label, options.labelled, settings)
    _refuse_foreign(path)
    with HeldFolder(path):
        _refuse_foreign(path)  # another process may have created it meanwhile
        rows = pa.table([scored.keys(held_out), labels], schema=HOLDOUT_SCHEMA)
        write_table(path / HOLDOUT, rows, {"kind": "holdout"}, overwrite=True)
        values = {**settings.to_json(), "holdout_sha256": file_sha256(path / HOLDOUT), "curate": __version__}
        write_sealed(path / CONFIG, values)
    return open_folder(path)


round_init = callable_of(RoundInitOptions, run_round_init)


def _classes(options: RoundInitOptions) -> tuple[str, ...] | None:
    """Return the class names as typed, in one text or several; None if none were given."""
    if options.classes is None or not isinstance(options.classes, str | Path):
        return None if options.classes is None else read_classes(options.classes, options.label or LABEL)
    return class_names([str(options.classes)], options.label)


def _check_keys(table: Table) -> None:
    """Raise InputError for keys that cannot be sent to annotators."""
    for start, batch in table.numbered([KEY]):
        keys = plain(batch.column(KEY)).cast(pa.string())
        check_text(keys, start, KEY, str(table.path))
        bad = first_true(pc.or_(pc.equal(pc.binary_length(keys), 0), pc.match_substring(keys, "\0")))
        if bad is not None:
            raise InputError(
                f"expected keys that a spreadsheet can hold in {table.path}, got {keys[bad].as_py()!r} in row "
                f"{start + bad} (from 0); change the key, or remove the row"
            )


def _check_strategy(strategy: str, parameters: dict[str, Any], guard: Guard) -> None:
    """Raise InputError for a strategy or parameter that the first round would refuse."""
    selector = SelectRequest(strategy, settings=parameters, **guard.select_options).selector()
    for need, flag in (("uncertainty", "score"), ("quality", "quality")):
        if need in selector.needs and not getattr(guard, flag):
            raise InputError(f"the strategy {strategy} needs a column of numbers; choose it with --{flag}")
    if {"holdout_loss", "labels"} & set(selector.needs):
        settings = ", ".join(f"{name}={value}" for name, value in parameters.items())
        which = f"{strategy}{f' with {settings}' if settings else ''}"
        raise InputError(f"the strategy {which} is for tables whose labels are all known; use auto")


def _refuse_taken(path: Path, table: str | Path) -> None:
    sweep(path, temporary_stem(path / CONFIG))  # of an `init` that was killed at its very end
    settings = open_folder(path).settings
    scored = read_table(table, signals_of(settings.guard, open_table(table, require=[KEY])).columns)
    refuse_another(settings, path, scored)
    raise InputError(f"{path} holds rounds of {settings.table} already; continue with `curate round next {path}`")


def _refuse_foreign(path: Path) -> None:
    """Raise InputError for a folder with anything other than the leftovers of an interrupted ``init``."""
    if path.exists() and not path.is_dir():
        raise InputError(f"expected a new or empty folder, and {path} is a file; choose another name")
    require_folder(path)
    ours = (LOCK, HOLDOUT)
    with place_errors(path):
        foreign = [entry.name for entry in path.iterdir()] if path.is_dir() else []
    foreign = [name for name in foreign if name not in ours and not name.startswith((f".{HOLDOUT}.", f".{CONFIG}."))]
    if foreign:
        raise InputError(
            f"expected a new or empty folder, and {path} holds {sorted(foreign)[0]!r}; choose another name"
        )


def n_held_out(text: str | None, n: int) -> int:
    """Return how many of n rows to hold out: a count or a share; None for a tenth, at most 500."""
    if text is None:
        return min(MOST, int(SHARE * n))
    if text.strip() in NONE:
        return 0
    amount = Amount.parse(text, "--holdout")
    if amount.count is not None and amount.count >= n:
        raise InputError(f"--holdout must leave rows to choose from: expected fewer than {n:,}, got {amount.count:,}")
    return amount.of(n, up=False)


def other_holdout(text: str | None, taken: int, n: int) -> str | None:
    """Return a note if the number of held-out rows may have been meant differently; see ``Amount.other_reading``."""
    if text is None or text.strip() in NONE:
        return None
    return Amount.parse(text, "--holdout").other_reading("--holdout", taken, n)


def held_out_rows(scored: TableRows, settings: RoundSettings) -> NDArray[np.int64]:
    """Return the held-out rows, at random by the seed, independent of the order of the table."""
    generator = np.random.default_rng([settings.seed, 0])
    usable = np.flatnonzero(scored.usable)
    if len(usable) - settings.holdout < 1:
        raise InputError(
            f"expected rows with an image that was scored, got {len(usable):,} in {scored.table.path} of which "
            f"{settings.holdout:,} are held out; score more images, or hold out fewer"
        )
    return np.sort(generator.permutation(usable)[: settings.holdout])


def _labels(
    scored: TableRows, rows: NDArray[np.int64], label: str | None, labelled: str | Path | None, settings: RoundSettings
) -> list[str | None]:
    """Return the class of each held-out row; None if unknown."""
    if label is None and labelled is None:
        return [None] * len(rows)
    if not len(rows):
        option = "--label" if labelled is None else "--labelled"
        raise InputError(f"{option} gives classes of held-out rows, and --holdout 0 holds out none")
    if labelled is None:
        source = str(label)
        scored.table.require([source])
        column = plain(scored.take(rows, [source])[source].combine_chunks())
        labels = [value or None for value in column.cast(pa.string()).to_pylist()]
    else:
        source = str(labelled)
        known = spelled_as(read_known(labelled, label), scored.table)
        if known.labels is None:
            raise InputError(
                f"expected a column {label or LABEL!r} in {labelled}, got none; choose the column of classes "
                "with --label"
            )
        at = known.rows(scored.rows)
        refuse_unknown_keys(known, at, str(scored.table.path))
        of_row = dict(zip(at.tolist(), known.labels, strict=True))
        labels = [of_row.get(row) for row in rows.tolist()]
    unknown = sorted({label for label in labels if label and settings.classes and label not in settings.classes})
    if unknown:
        raise InputError(
            f"expected the classes {', '.join(settings.classes or ())} in {source}, got {unknown[0]!r}"
            f"{f' and {len(unknown) - 1} more' if len(unknown) > 1 else ''}; fix --classes or the labels"
        )
    return labels
