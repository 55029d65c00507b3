"""The model and code of a table's embeddings and signatures: values of different ones are not comparable."""

from dataclasses import fields
from typing import Any

from curate.manifest.contract import NotedOptions
from curate.manifest.store_path import AnyPath
from curate.tables.batches import named_errors, open_parquet
from curate.tables.table import Table, noted_in
from scoring.errors import InputError

UNKNOWN = "unknown"
REQUEST = "request"  # in the metadata of a table: the model as named, and how the source was read
READ_AGAIN = ("key", "path_column", "image_column", "follow_symlinks", "hidden", "root", "max_bytes")
WHITE = 65535  # of 16 bits: what tables were scored by that do not say


def model_of(table: Table) -> str:
    """Return the digest of the model of a table's embeddings, empty if unknown; ``column NAME`` for user embeddings.

    Raises InputError, with both models, if parts of the table differ.
    """
    if table.embedding_column is not None:
        return f"column {table.embedding_column}"
    seen: dict[str, tuple[str, AnyPath]] = {}
    for file in table.files:
        model = _part(noted_of(file), "model")
        seen.setdefault(str(model.get("digest", "")), (str(model.get("method", "a model without a name")), file))
    if len(seen) > 1:
        (a, (name_a, file_a)), (b, (name_b, file_b)) = list(seen.items())[:2]
        raise InputError(
            f"{table.path} holds embeddings of two models, which cannot be compared: {name_a} ({a[:12] or UNKNOWN}) "
            f"in {file_a.name} and {name_b} ({b[:12] or UNKNOWN}) in {file_b.name}; score all rows with one model"
        )
    return next(iter(seen), "")


def signature_of(table: Table) -> str:
    """Return the kind of a table's signatures, empty if unknown; InputError, with both kinds, if parts differ."""
    seen: dict[str, AnyPath] = {}
    for file in table.files:
        seen.setdefault(str(_part(noted_of(file), "settings").get("signature", "")), file)
    if len(seen) > 1:
        (a, file_a), (b, file_b) = list(seen.items())[:2]
        raise InputError(
            f"{table.path} holds two kinds of signatures, which cannot be compared: {a or UNKNOWN} in {file_a.name} "
            f"and {b or UNKNOWN} in {file_b.name}; score all rows with one version"
        )
    return next(iter(seen), "")


def white_of(table: Table) -> int:
    """Return the value of white for 16-bit images when the table was scored; needed to decode them equally again."""
    white = table.noted("settings").get("white")
    return white if type(white) is int and 0 < white <= WHITE else WHITE


def reading_of(table: Table) -> NotedOptions:
    """Return how the source of a table was read, as recorded in it; defaults without a record.

    Raises:
        InputError: for a note that cannot be used.
    """
    noted = table.noted(REQUEST)
    usual = {field.name: field.default for field in fields(NotedOptions)}
    reading = {name: noted[name] for name in READ_AGAIN if name in noted}
    for name, value in reading.items():
        expected = str if usual[name] is None else type(usual[name])
        if type(value) is not expected:
            raise InputError(
                f"expected {expected.__name__} as {name} in the request stored in {table.path}, got "
                f"{value!r}; score the images again"
            )
    return NotedOptions(**reading)


def same_model(first: Table, second: Table, *, instead: str = "leave embeddings out with --finder") -> None:
    """Raise InputError, with both models, for two tables whose embeddings differ in model, or only one is known.

    ``instead`` is an alternative, for the message.
    """
    a, b = model_of(first), model_of(second)
    if a != b:
        names = [
            f"{table.path} ({_name(table)}, {digest[:12] or UNKNOWN})" for table, digest in ((first, a), (second, b))
        ]
        raise InputError(
            f"expected embeddings of one model, got two: {names[0]} and {names[1]}; score both with one model, "
            f"or {instead}"
        )


def require_same_model(table: Table, other: Table, option: str, *, what: str = "embeddings") -> None:
    """Raise InputError, with both models, for two tables of different models; user embeddings are not compared.

    Args:
        table: one table.
        other: the other, from ``option``.
        option: for the message.
        what: compared data for the message, ``embeddings`` or ``scores``.
    """
    if what == "embeddings" and table.embedding_column is not None:
        return
    digest, another = digest_of_model(table), digest_of_model(other)
    if digest and another and digest != another:
        raise InputError(
            f"{option}: {other.path} was scored by another model ({another[:12]}, here {digest[:12]}), whose "
            f"{what} are not comparable; score both with one model"
        )


def digest_of_model(table: Table) -> str:
    """Return the digest of the model that scored a table; empty if unknown."""
    return str(table.noted("model").get("digest", ""))


def same_signature(first: Table, second: Table) -> None:
    """Raise InputError, with both kinds, for two tables whose signatures differ in kind, or only one is known."""
    a, b = signature_of(first), signature_of(second)
    if a != b:
        raise InputError(
            f"expected signatures of one kind, got two: {a or UNKNOWN} in {first.path} and {b or UNKNOWN} in "
            f"{second.path}; score both with one version, or leave signatures out with --finder"
        )


def noted_of(file: AnyPath) -> dict[str, Any]:
    """Return curate's metadata of a file of a table."""
    with named_errors(file), open_parquet(file) as parquet:
        return noted_in(file, parquet.metadata.metadata or {})


def _part(metadata: dict[str, Any], name: str) -> dict[str, Any]:
    part = metadata.get(name)
    return part if isinstance(part, dict) else {}


def _name(table: Table) -> str:
    model = table.noted("model")
    return str(model.get("method", "a model without a name")) if model else "no model named"
