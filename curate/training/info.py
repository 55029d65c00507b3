"""`curate.info`: facts on any file or folder that curate reads or writes."""

from pathlib import Path

from curate.description import Description, describe_file
from curate.manifest.store_path import path_to_read
from curate.options.function import callable_of
from curate.training.options import InfoOptions
from scoring.errors import InputError


def run_info(options: InfoOptions) -> Description:
    """Return the facts on a file: rows, columns, classes, model, settings, counts.

    Raises:
        InputError: for other or damaged files.
    """
    place = path_to_read(options.file)
    if isinstance(place, Path) and place.is_dir():  # in a store there are tables and receipts alone
        if (place / "cache.json").is_file():
            return _cache(place)
        from curate.rounds.files.folder import rounds_at

        if (rounds := rounds_at(place)) is not None:
            return _rounds(place, *rounds)
    return describe_file(place)


info = callable_of(InfoOptions, run_info)


def _cache(folder: Path) -> Description:
    """Return the record of a cache of features."""
    from trainers.cache import read_about

    facts = {"use it": f"curate train METHOD --cached {folder}", **(read_about(folder) or {})}
    return Description(str(folder), "cache", facts)


def _rounds(path: Path, folder: Path, number: int | None) -> Description:
    """Return the facts on a folder of rounds, without its table; InputError for a path of a single round."""
    from curate.rounds.files.folder import BATCH, open_folder

    if number is not None:
        raise InputError(
            f"{path} is round {number} of {folder}; show all of them with `curate info {folder}`, its batch with "
            f"`curate info {path / BATCH}`"
        )
    opened = open_folder(folder)
    fixed = opened.settings
    facts = {
        "table": fixed.table,
        "rows": fixed.n_rows,
        "rounds": len(opened.rounds),
        "images requested": len(opened.requested),
        "images labelled": len(opened.votes.consensus()),
        "batch": fixed.batch,
        "held out": fixed.holdout,
        "strategy": fixed.strategy,
        "classes": ", ".join(fixed.classes or ()) or "any name",
        "how good it is": f"curate round status {folder}",
        "digest": fixed.digest,
    }
    return Description(str(folder), "rounds", facts)
