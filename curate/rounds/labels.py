"""The consensus of annotators as a table for training."""

from pathlib import Path

from curate.columns import LABEL, describe_all
from curate.options.function import callable_of
from curate.rounds.files.folder import open_folder
from curate.rounds.files.votes import LABELLED, SKIPPED, TIED, label_table
from curate.rounds.options import RoundLabelsOptions
from curate.tables.classes import CLASSES
from curate.tables.writer import write_table
from scoring.errors import InputError

MEANINGS = {
    "label": "the class most annotators chose; null if they are tied or skipped the image",
    "state": "labelled, tied or skipped",
    "n_labels": "labels that count, one per annotator",
    "entropy": "of the shares of the classes, in nats; 0 where all agree",
    "round": "in which it was requested",
    "arm": "why it was requested: strategy, control (at random) or holdout",
}


def votes_in(folder: str | Path) -> list[tuple[str, str, str]]:
    """Return key, annotator and class of every imported vote in a folder of rounds; InputError if it was changed."""
    opened = open_folder(folder)
    opened.check()
    return opened.votes.for_classes()


def run_round_labels(options: RoundLabelsOptions) -> dict[str, int]:
    """Write label, state, number of labels, entropy, round and arm for every returned key.

    Returns:
        rows by state.

    Raises:
        InputError: if the folder was changed, there are no labels yet, or the output cannot be written.
    """
    path = Path(options.out)
    if path.suffix != ".parquet":
        raise InputError(f"the labels are a Parquet file: expected a name like labels.parquet, got {path}")
    opened = open_folder(options.folder)
    opened.check()
    table = label_table(opened.votes, opened.requested, opened.arms)
    if not table.num_rows:
        raise InputError(f"{opened.path} has no labels yet; import some with `curate round import {opened.path}`")
    columns = describe_all(table.schema.names, MEANINGS)
    metadata = {"kind": "consensus", "rounds": len(opened.rounds), "head": opened.head, "columns": columns}
    if opened.settings.classes is not None:
        metadata[CLASSES] = {LABEL: list(opened.settings.classes)}
    write_table(path, table, metadata, overwrite=options.overwrite)
    states = table["state"].to_pylist()
    return {state: states.count(state) for state in (LABELLED, TIED, SKIPPED)}


round_labels = callable_of(RoundLabelsOptions, run_round_labels)
