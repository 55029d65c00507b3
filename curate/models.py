"""Which model made a table's embeddings: numbers of two models cannot be compared."""

import json
from pathlib import Path

import pyarrow.parquet as pq

from curate.table import METADATA_KEY, Table
from scoring.errors import InputError


def model_of(table: Table) -> str:
    """Return the digest of the model that made a table's embeddings, or an empty text where the table does not say.

    Raises:
        InputError: if parts of the table come from two models; the text names both.
    """
    seen: dict[str, tuple[str, Path]] = {}
    for file in table.files:
        text = (pq.read_metadata(file).metadata or {}).get(METADATA_KEY, b"{}")
        found = json.loads(text)
        model = found.get("model") if isinstance(found, dict) else None
        model = model if isinstance(model, dict) else {}
        seen.setdefault(str(model.get("digest", "")), (str(model.get("method", "a model without a name")), file))
    if len(seen) > 1:
        (a, (name_a, file_a)), (b, (name_b, file_b)) = list(seen.items())[:2]
        raise InputError(
            f"{table.path} holds embeddings of two models, which cannot be compared: {name_a} ({a[:12] or 'unknown'}) "
            f"in {file_a.name} and {name_b} ({b[:12] or 'unknown'}) in {file_b.name}; score all rows with one model"
        )
    return next(iter(seen), "")


def same_model(first: Table, second: Table) -> None:
    """Refuse two tables whose embeddings are of different models.

    Raises:
        InputError: naming both; also where one table says which model and the other does not.
    """
    a, b = model_of(first), model_of(second)
    if a != b:
        names = [
            f"{table.path} ({_name(table)}, {digest[:12] or 'unknown'})" for table, digest in ((first, a), (second, b))
        ]
        raise InputError(
            f"expected embeddings of one model, got two: {names[0]} and {names[1]}; score both with one model, "
            "or leave embeddings out with --finder"
        )


def _name(table: Table) -> str:
    model = table.metadata.get("model")
    return str(model.get("method", "a model without a name")) if isinstance(model, dict) else "no model named"
