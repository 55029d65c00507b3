"""Keys spelled differently in a file and a table: in another Unicode form, or with a folder."""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import KEY, URI
from curate.counted import counted
from curate.manifest.text import unguarded
from curate.tables.arrays import texts
from curate.tables.digests import key_array
from curate.tables.known import Known, distinct
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.lookup import closest

MOST_FOLDERS = 16  # that a path may have before the key
MOST_COMPARED, MOST_NEAR = 100, 20  # characters of a mistyped key; keys that its suggestion is chosen from


@dataclass
class _Candidates:
    """Rows of the table that a key could mean, by their keys.

    Attributes:
        same: equal names in another form.
        in_folder: keys without the typed folders, where the row's uri has these folders.
        elsewhere: keys without the typed folders, where the uri differs.
    """

    same: list[str] = field(default_factory=list)
    in_folder: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    @property
    def sure(self) -> str | None:
        """The only matching row, or None."""
        rows = self.same or self.in_folder
        return rows[0] if len(rows) == 1 else None


def refuse_unmatched(known: Known, option: str, table: Table) -> None:
    """Raise InputError, with a key of both and a remedy, for a file of keys that has none in common with the table."""
    if not known.keys or known.n_in_table:
        return
    example = known.keys[0].decode("utf-8", "replace")
    example_in_table = next((texts(batch.column(0))[0].as_py() for batch in table.batches([KEY], rows=1)), None)
    raise InputError(
        f"--{option}: expected keys of {table.path} in {known.path}, got {counted(len(known.keys), 'key')} "
        f"that are not there, such as {example!r}{f' ({known.hint})' if known.hint else ''}; write them as "
        "the table does, as in "
        f"{example_in_table!r}, or add --allow-unmatched"
    )


def spelled_as(known: Known, table: Table) -> Known:
    """Return keys of a file as spelled in a table, if unambiguous.

    A missing key is compared again ignoring the Unicode form (NFC or NFD), `./` at the start, backslashes for slashes,
    and the mark of a spreadsheet before a formula. A path with folders before the key matches if the row's uri ends
    with the path. Keys without a unique match stay unchanged. If the table has all keys, only its key column is read.

    Args:
        known: keys, M.
        table: with text or integer keys.

    Returns:
        The same keys in the table's spelling, with ``note`` on changed keys and ``hint`` on possible meanings.

    Raises:
        InputError: if two spellings of a key have different labels.
    """
    is_in_table = _in_table(known, table)
    forms = _forms(known, np.flatnonzero(~is_in_table).tolist())
    if not forms:
        return replace(known, n_in_table=int(is_in_table.sum()))
    candidates = _matches(forms, table)
    changed = {at: rows.sure for at, rows in candidates.items() if rows.sure is not None}
    keys = [changed.get(at) for at in range(len(known.keys))]
    encoded = [old if new is None else new.encode() for old, new in zip(known.keys, keys, strict=True)]
    return replace(
        distinct(known.path, encoded, known.labels),
        digest=known.digest,
        n_in_table=int(is_in_table.sum()) + len(changed),
        note="; ".join(filter(None, (known.note, _note(known, changed, str(table.path))))),
        hint=_hint(known, {at: rows for at, rows in candidates.items() if rows.sure is None}),
    )


def key_meant(text: str, table: Table) -> str:
    """Return the table's key that a typed key unambiguously matches, as in ``spelled_as``; else the text itself."""
    known = distinct("what was typed", [text.encode("utf-8", "surrogateescape")])
    if _in_table(known, table).all():
        return text
    return next((rows.sure for rows in _matches(_forms(known, [0]), table).values() if rows.sure is not None), text)


def nearest_key(typed: str, table: Table) -> str:
    """Return ``"; did you mean 'x'?"`` with the key most similar to a mistyped one, else an example of a key.

    Similar keys share a long start and end. Keys are read once, in batches.
    """
    lower = typed.lower()[:MOST_COMPARED]
    key = pl.col(KEY).str.to_lowercase()
    cuts = range(len(lower) + 1)
    starts, ends = [key.str.starts_with(lower[:at]) for at in cuts], [key.str.ends_with(lower[at:]) for at in cuts]
    shared = pl.sum_horizontal(*starts, *ends)
    longer = (key.str.len_chars().cast(pl.Int64) - len(lower)).abs()
    near = pl.DataFrame(schema={KEY: pl.String})
    for batch in table.batches([KEY]):
        rows = pl.concat([near, pl.DataFrame({KEY: pl.Series(texts(batch.column(0)))})])
        near = rows.sort(shared, longer, descending=[True, False], maintain_order=True).head(MOST_NEAR)
    return closest(typed, near[KEY]) or "".join(f"; its keys look like {key!r}" for key in near[KEY].head(1))


def normal(texts: pa.Array) -> pa.Array:
    r"""Return keys and paths in the form for comparing them.

    >>> normal(pa.array([".\\cats\\1.jpg", "././e\u0301.jpg"])).to_pylist() == ["cats/1.jpg", "\u00e9.jpg"]
    True
    """
    slashes = pc.replace_substring(pc.utf8_normalize(texts, form="NFC"), "\\", "/")
    return pc.replace_substring_regex(slashes, r"^(\./)+", "")


def _forms(known: Known, lost: Sequence[int]) -> dict[int, str]:
    """Return the normal form of keys of a file, by position, without keys that are not UTF-8."""
    decoded: dict[int, str] = {}
    for at in lost:
        with suppress(UnicodeDecodeError):
            decoded[at] = unguarded(known.keys[at].decode())
    return dict(zip(decoded, normal(pa.array(decoded.values(), pa.large_string())).to_pylist(), strict=True))


def _in_table(known: Known, table: Table) -> NDArray[np.bool_]:
    """Return a mask of the keys that the table has in the same spelling, shape (M,)."""
    key_set = pa.array(known.keys, pa.large_binary())
    is_in_table = np.zeros(len(key_set), bool)
    for batch in table.batches([KEY]):
        keys = key_array(batch.column(0), table.path)
        is_in_table[pc.index_in(keys, value_set=key_set).drop_null().to_numpy(zero_copy_only=False)] = True
    return is_in_table


def _matches(forms: Mapping[int, str], table: Table) -> dict[int, _Candidates]:
    """Return the rows of the table that may match each form."""
    ends = [(at, left_out, part) for at, form in forms.items() for left_out, part in enumerate(_ends(form))]
    sought = pl.DataFrame(ends, {"at": pl.Int64, "left_out": pl.Int64, "form": pl.String}, orient="row")
    candidates = {at: _Candidates() for at in forms}
    for keys, uris in _columns(table):
        rows = pl.DataFrame({"form": pl.Series(normal(keys)), "key": pl.Series(keys), "uri": pl.Series(normal(uris))})
        for key, uri, at, left_out in (
            rows.join(sought, on="form", maintain_order="left_right").drop("form").iter_rows()
        ):
            if not left_out:
                candidates[at].same.append(key)
            elif f"/{uri or ''}".endswith(f"/{forms[at].lstrip('/')}"):
                candidates[at].in_folder.append(key)
            else:
                candidates[at].elsewhere.append(key)
    return candidates


def _ends(path: str) -> Iterator[str]:
    """Yield a path, and the path without its first folders."""
    yield path
    for _ in range(MOST_FOLDERS):
        _, slash, path = path.partition("/")
        if not slash or not path:
            return
        yield path


def _columns(table: Table) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield keys and uris (null if the table has none) as text."""
    has_uri = URI in table.schema.names
    for batch in table.batches([KEY, URI] if has_uri else [KEY]):
        keys = texts(batch.column(0))
        yield keys, texts(batch.column(1)) if has_uri else pa.nulls(len(keys), pa.large_string())


def _note(known: Known, changed: Mapping[int, str], table: str) -> str:
    if not changed:
        return ""
    at, new = next(iter(changed.items()))
    return (
        f"{len(changed):,} of {counted(len(known.keys), 'key')} of {known.path} are spelled differently in "
        f"{table}, such as {_shown(known.keys[at].decode(), new)}: matched anyway"
    )


def _hint(known: Known, doubtful: Mapping[int, _Candidates]) -> str:
    for at, rows in doubtful.items():
        several = rows.same or rows.in_folder
        key = known.keys[at].decode()
        if several:
            return f"{key!a} could be {several[0]!a} or {several[1]!a}"
        if rows.elsewhere:
            return f"without its folders {key!r} would be {rows.elsewhere[0]!r}"
    return ""


def _shown(old: str, new: str) -> str:
    """Return a key and its other spelling for display, with visible differences."""
    alike = unicodedata.normalize("NFC", old) == unicodedata.normalize("NFC", new)
    return f"{old!a} ({new!a} there)" if alike else f"{old!r} ({new!r} there)"
