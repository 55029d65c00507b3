"""Merging score tables of one model with one fit; or updating the paths of moved images in a table."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from curate.columns import EMBEDDING, KEY, STATUS, URI, describe_all
from curate.counted import counted
from curate.engines.adding.settings import model_as_scored
from curate.engines.settings import MADE, difference, settings_of_version
from curate.fitting.options import FitOptions, MergeOptions
from curate.manifest.classes import CLASSES
from curate.manifest.contract import SourceOptions
from curate.manifest.layout import conformed
from curate.manifest.sources import open_manifest
from curate.manifest.store_path import path_on_disk
from curate.options.function import callable_of
from curate.tables.digests import is_text
from curate.tables.images import SHA256
from curate.tables.provenance import REQUEST
from curate.tables.table import Table, open_table
from curate.tables.writer import TableWriter
from scoring.atomic import refuse_existing
from scoring.atomic_folder import held_folder
from scoring.errors import InputError
from scoring.relative.columns import CLASS, FEW_ROWS, FITTED
from scoring.relative.columns import COLUMNS as RELATIVE
from scoring.scorers import TABLE, columns_of, scorers_named

# Settings that may differ between tables: without effect on scores, or on their last digits only.
NO_MATTER = frozenset(
    {"input", "shard-size", "batch-size", "decode-timeout", "max-pixels", "allow-truncated", "fit", "scorers"}
)
LAST_DIGITS = frozenset({"device", "precision", "backend", "curate", "torch", "pillow", "torchvision", "openvino"})
LAST_DIGITS |= {"compiler", "cuda", "gpu", "decoder"}
OK = "ok"


@dataclass(frozen=True)
class MergeResult:
    """The table written, and its rows.

    Attributes:
        path: of the table.
        rows: number of its rows.
        tables: number of rows from each input, by path.
        moved: number of rows with a new ``uri``.
        fitted: whether relative scores were fitted to all rows.
        notes: for the user.
    """

    path: Path
    rows: int
    tables: dict[str, int]
    moved: int
    fitted: bool
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "table": str(self.path),
            "rows": self.rows,
            "tables": self.tables,
            "moved": self.moved,
            "fitted": self.fitted,
            "notes": list(self.notes),
        }


def run_merge(options: MergeOptions) -> MergeResult:
    """Merge scored tables of one model with one fit; or write a table again with new image paths.

    Raises:
        InputError: for tables of different models or settings, keys that two tables have, a column of two types, or an
            image that is not below ``root``; nothing is written then.
    """
    place = path_on_disk(options.out, "-o")
    opened = [open_table(path, require=[KEY]) for path in options.tables]
    _refuse_places(opened, place, options.root)
    notes = _refuse_different(opened)
    keys = _keys(opened, prefix=options.prefix)
    uris, moved = (None, 0) if options.root is None else _moved_paths(opened[0], keys[0], options.root)
    dropped = _fitted_columns(opened) if len(opened) > 1 else []
    schema = _schema(opened, keys[0].dtype, dropped)
    metadata = _metadata(opened, schema)
    notes += _copy_notes(opened)
    options.report(f"{counted(len(opened), 'table')}, {sum(map(len, keys)):,} rows")
    refits = len(opened) > 1 and any(_has_fit(table) for table in opened) and EMBEDDING in schema.names
    if refits:
        from curate.fitting.fit import fit_table  # these import torch
        from curate.tables.dataset import read_dataset

        refuse_existing(place, overwrite=options.overwrite)
        with held_folder(place.absolute()) as folder:
            draft = folder / place.name
            _write(draft, _rows(opened, keys, uris, schema), schema, metadata, overwrite=False)
            merged = open_table(draft)
            n_images = len(read_dataset(merged))
            refits = n_images >= FEW_ROWS
            if refits:
                named = partial(_report_final_path, options.report, str(draft), str(place))
                model = _model_of(opened[0])
                request = FitOptions(draft, apply=place, model=model, overwrite=options.overwrite, report=named)
                notes += fit_table(merged, request, recorded=place).notes
            else:
                notes.append(f"no unc_fitted: {counted(n_images, 'different image')}, fewer than {FEW_ROWS}")
    if not refits:
        _write(place, _rows(opened, keys, uris, schema), schema, metadata, overwrite=options.overwrite)
    counts = {str(table.path): table.n_rows for table in opened}
    return MergeResult(place, sum(map(len, keys)), counts, moved, refits, tuple(notes))


merge = callable_of(MergeOptions, run_merge)


def _has_fit(table: Table) -> bool:
    return FITTED in table.schema.names or table.metadata["settings"].get("fit") is True


def _model_of(table: Table) -> str | Path | None:
    """Return the model that scored a table, for corrupted copies; None if it is not found, which the fit reports."""
    try:
        return model_as_scored(table, None)
    except InputError:
        return None


def _report_final_path(report: Callable[[str], None], draft: str, place: str, text: str) -> None:
    """Report a line with the final path instead of the temporary one."""
    report(text.replace(draft, place))


def _refuse_places(tables: Sequence[Table], out: Path, root: str | None) -> None:
    if out.suffix != ".parquet":
        raise InputError(f"expected -o NAME.parquet, got {out}")
    if len(tables) < 2 and root is None:
        raise InputError("expected two or more tables, got one; or the folder where its images are now, as --root")
    if len(tables) > 1 and root is not None:
        raise InputError(f"--root is for one table whose images moved, got {len(tables)} tables; pass one at a time")
    paths = [table.path.resolve() for table in tables]
    if len({*paths}) < len(paths):
        raise InputError("a table is given twice; pass each once")
    if out.resolve() in {file.resolve() for table in tables for file in (table.path, *table.files)}:
        raise InputError(f"{out} is one of the tables, which are never overwritten; choose another name")


def _refuse_different(tables: Sequence[Table]) -> list[str]:
    """Refuse tables whose scores are not comparable; return a note if last digits may differ."""
    settings = []
    for table in tables:
        of = table.metadata.get("settings")
        if not isinstance(of, Mapping):
            raise InputError(f"expected tables that curate score wrote, got {table.path}; score its images")
        settings.append(of)
    first, notes = settings[0], []
    for table, of in zip(tables[1:], settings[1:], strict=True):
        passed = NO_MATTER | LAST_DIGITS
        decisive = [{name: value for name, value in each.items() if name not in passed} for each in (first, of)]
        if differing := difference(*decisive):
            name, a, b = differing
            again = "one again with the settings of the other"
            if name in MADE:
                older = tables[0] if first.get(name) != settings_of_version()[name] else table
                again = f"{older.path} again with this version"
            raise InputError(
                f"{tables[0].path} and {table.path} were scored with different settings: {name} is {a} and {b}; "
                f"score the images of {again}"
            )
        if differing := difference(*({name: each.get(name) for name in LAST_DIGITS} for each in (first, of))):
            name, a, b = differing
            notes.append(f"last digits may differ: {name} was {a} and {b}")
    return notes


def _keys(tables: Sequence[Table], *, prefix: bool) -> list[pl.Series]:
    """Return the keys of each table in the merged one; refuse duplicates."""
    of_tables = [pl.Series(KEY, table.read([KEY]).column(0)) for table in tables]
    if prefix:
        names = [table.path.stem if table.path.suffix else table.path.name for table in tables]
        if len({*names}) < len(names):
            raise InputError(f"--prefix needs tables of different names, got {', '.join(names)}; rename one")
        pairs = zip(names, of_tables, strict=True)
        of_tables = [(pl.Series([f"{name}/"]) + keys.cast(pl.String)).rename(KEY) for name, keys in pairs]
    if len({str(keys.dtype) for keys in of_tables}) > 1:
        kinds = ", ".join(f"{keys.dtype} in {table.path}" for keys, table in zip(of_tables, tables, strict=True))
        raise InputError(f"expected keys of one type, got {kinds}; --prefix converts them to text")
    all_keys = pl.concat(of_tables)
    twice = all_keys.filter(all_keys.is_duplicated())
    if len(twice):
        key = twice[0]
        raise InputError(
            f"{counted(twice.n_unique(), 'key occurs', 'keys occur')} in more than one row, the first is {key!r}; "
            "--prefix puts the name of its table before each key, or remove copies with curate filter --without-keys"
        )
    return of_tables


def _moved_paths(table: Table, keys: pl.Series, root: str) -> tuple[pl.Series, int]:
    """Return the path of each image below a folder, and the number of rows with a new path."""
    manifest = open_manifest(root, SourceOptions())
    if not is_text(table.schema.field(KEY).type) or URI not in manifest.schema.names:
        raise InputError(f"expected keys that are paths below {root}, got {keys.dtype}; score the images again")
    manifest_rows = pl.DataFrame(manifest.rows(0, manifest.n_rows).select([KEY, URI]))
    names = [name for name in (STATUS, URI) if name in table.schema.names]
    rows = pl.DataFrame(table.read(names)) if names else pl.DataFrame({STATUS: [OK] * len(keys)})
    was = rows[URI] if URI in names else pl.Series(URI, [None] * len(keys), pl.String)
    now = pl.DataFrame({KEY: keys}).join(manifest_rows, on=KEY, how="left", maintain_order="left")[URI]
    is_ok = rows[STATUS] == OK if STATUS in names else pl.Series([True] * len(keys))
    lost = keys.filter(now.is_null() & is_ok)
    if len(lost):
        raise InputError(
            f"{root} has no image with the key {lost[0]!r} ({len(lost):,} of {len(keys):,} are missing); pass "
            "the folder that contains these paths"
        )
    uris = now.fill_null(was)
    return uris, int((uris.ne_missing(was)).sum())


def _fitted_columns(tables: Sequence[Table]) -> list[str]:
    """Return the columns that compare an image with the others of its table."""
    named = {scorer for table in tables for scorer in table.metadata["settings"].get("scorers", ())}
    of_table = {name: kind for name, kind in scorers_named(sorted(named)).items() if kind.needs == TABLE}
    names = dict.fromkeys(name for table in tables for name in table.schema.names)
    return [name for name in names if name in {*RELATIVE, CLASS, *columns_of(of_table)}]


def _schema(tables: Sequence[Table], key: pl.DataType, dropped: Sequence[str]) -> pa.Schema:
    """Return the columns of all tables, the first table's first; refuse a column of two types."""
    fields: dict[str, pa.Field] = {}
    for table in tables:
        for field in table.stored.schema:
            if field.name in dropped:
                continue
            before = fields.get(field.name)
            if field.name == KEY and key == pl.String and not is_text(field.type):
                field = pa.field(KEY, pa.string())
            kind = field.type if before is None or pa.types.is_null(before.type) else before.type
            if kind != field.type and not pa.types.is_null(field.type):
                raise InputError(
                    f"column {field.name!r} is {before.type if before else kind} in one table and {field.type} in "
                    f"{table.path}; cast one, or leave it out"
                )
            fields[field.name] = pa.field(field.name, kind, _may_be_null(field.name, tables))
    return pa.schema(list(fields.values()))


def _may_be_null(name: str, tables: Sequence[Table]) -> bool:
    """Return whether a column of the merged table may have nulls: unless all tables have it without nulls."""
    schemas = [table.stored.schema for table in tables]
    return any(name not in schema.names or schema.field(name).nullable for schema in schemas)


def _metadata(tables: Sequence[Table], schema: pa.Schema) -> dict[str, Any]:
    """Return the metadata of the merged table: the first table's, all sources, and all classes."""
    first = tables[0].metadata
    if len(tables) == 1:
        return first
    inputs = [str(table.metadata["settings"].get("input")) for table in tables]
    noted = [item for table in tables for item in table.noted("columns").items()]
    described = {name: about for name, about in noted if name in schema.names}
    differs = [] if all(table.metadata.get(REQUEST) == first.get(REQUEST) for table in tables) else [REQUEST]
    metadata = {name: value for name, value in first.items() if name not in ("fit", "additions", *differs)}
    settings = {name: value for name, value in first["settings"].items() if name != "scorers"}
    return metadata | {
        "settings": {
            **settings,
            "fit": any(map(_has_fit, tables)),
            "input": hashlib.sha256("\n".join(inputs).encode()).hexdigest(),
        },
        "source": "; ".join(dict.fromkeys(str(table.metadata.get("source")) for table in tables)),
        "merged": [
            {"table": table.path.name, "rows": table.n_rows, "input": of}
            for table, of in zip(tables, inputs, strict=True)
        ],
        "columns": {**describe_all(schema.names), **described},
        CLASSES: _classes(tables, schema),
    }


def _classes(tables: Sequence[Table], schema: pa.Schema) -> dict[str, list[str]]:
    """Return the classes of each column, later ones appended; refuse numbers that mean different classes."""
    classes: dict[str, list[str]] = {}
    for table in tables:
        lists = table.metadata.get(CLASSES)
        for name, names in (lists if isinstance(lists, Mapping) else {}).items():
            before = classes.get(name, list(names))
            shorter = min(len(before), len(names))
            if name in schema.names and not is_text(schema.field(name).type) and before[:shorter] != names[:shorter]:
                raise InputError(
                    f"the numbers in {name!r} mean other classes in {table.path} than in {tables[0].path}; write the "
                    "names of the classes into both tables"
                )
            classes[name] = [*before, *(new for new in names if new not in set(before))]
    return classes


def _copy_notes(tables: Sequence[Table]) -> list[str]:
    """Return a note if tables hold images of the same bytes."""
    if len(tables) < 2 or any(SHA256 not in table.schema.names for table in tables):
        return []
    parts = (
        pl.DataFrame(table.read([SHA256])).with_columns(table=pl.lit(number)) for number, table in enumerate(tables)
    )
    groups = pl.concat(parts).drop_nulls(SHA256).group_by(SHA256).agg(pl.col("table").n_unique())
    n = int((groups["table"] > 1).sum())
    return (
        [f"{counted(n, 'image occurs', 'images occur')} in more than one table with the same bytes: see curate dedup"]
        if n
        else []
    )


def _rows(
    tables: Sequence[Table], keys: Sequence[pl.Series], uris: pl.Series | None, schema: pa.Schema
) -> Iterator[pa.Table]:
    """Yield the rows of the tables in turn, with the columns of all."""
    for table, table_keys in zip(tables, keys, strict=True):
        names = [name for name in schema.names if name in table.stored.schema.names]
        for start, batch in table.stored.numbered(names):
            block, columns = slice(start, start + batch.num_rows), {}
            for field in schema:
                if field.name == KEY:
                    columns[KEY] = table_keys[block].to_arrow()
                elif field.name == URI and uris is not None:
                    columns[URI] = uris[block].to_arrow()
                elif field.name in names:
                    columns[field.name] = batch.column(field.name)
                else:
                    columns[field.name] = pa.nulls(batch.num_rows, field.type)
            yield conformed(pa.table(columns), schema)


def _write(
    path: Path, rows: Iterator[pa.Table], schema: pa.Schema, metadata: dict[str, Any], *, overwrite: bool
) -> None:
    with TableWriter(path, schema, metadata, overwrite=overwrite) as writer:
        for part in rows:
            writer.write(part)
