"""The rows that go out."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from curate.columns import KEY, URI
from curate.manifest.keys import check_keys
from curate.manifest.local import local_path
from curate.manifest.schemes import scheme_of
from scoring.errors import InputError
from scoring.lookup import told

PREFIX = "curate_"  # what our columns are called among a tool's own
PREDICTED = "predicted"  # column: the class that the probe expects
PROBABILITY = "probability"  # column: how probable it holds it, in [0, 1]
Value = str | int | float | bool


@dataclass(frozen=True)
class Item:
    """One image of a batch.

    Attributes:
        key: as in the table, unchanged.
        uri: where its bytes are; None where the table holds them.
        values: further columns by name; no nulls, NaNs, infinities or nested values.
        label: the class that it is known to have; None where labels are what is asked for.
    """

    key: str
    uri: str | None
    values: dict[str, Value]
    label: str | None = None

    @property
    def predicted(self) -> str | None:
        """The class that the probe expects."""
        value = self.values.get(PREDICTED)
        return None if value is None or value == "" else str(value)

    @property
    def probability(self) -> float | None:
        """How probable the predicted class is, in [0, 1]."""
        value = self.values.get(PROBABILITY)
        return None if value is None else float(value)

    @property
    def prefixed(self) -> dict[str, Value]:
        """The key and every value under names that no tool uses: `curate_key`, `curate_rank`, and so on."""
        mine = {name.removeprefix(PREFIX): value for name, value in self.values.items()}
        return {f"{PREFIX}{KEY}": self.key, **{PREFIX + name: value for name, value in mine.items() if name != KEY}}

    def record(self, columns: tuple[str, ...]) -> dict[str, Value | None]:
        """Return `prefixed` with a null for every column that this item lacks, in one order for all items."""
        names = dict.fromkeys([f"{PREFIX}{KEY}", *(PREFIX + name.removeprefix(PREFIX) for name in columns)])
        return {**names, **self.prefixed}

    @property
    def path(self) -> bytes | None:
        """The local file, where the image is a whole one."""
        if self.uri is None or ".tar::" in self.uri:
            return None
        scheme = scheme_of(self.uri)
        if scheme == "file":
            return local_path(self.uri)
        return None if scheme else self.uri.encode()

    @property
    def url(self) -> str | None:
        """The URL that other programs can open, where the image is behind one."""
        if self.uri is None or ".tar::" in self.uri or self.path is not None:
            return None
        return self.uri

    @property
    def path_text(self) -> str | None:
        """The local file as text; bytes that are not UTF-8 are percent-encoded."""
        if self.path is None:
            return None
        try:
            return self.path.decode()
        except UnicodeDecodeError:
            return quote(self.path)


@dataclass(frozen=True)
class Batch:
    """Rows in the order in which they are to be labelled.

    Attributes:
        items: one an image, keys unique.
        columns: names of the values that any item has, in the order of the table.
        left_out: columns that no annotation tool takes (embeddings, bytes, nested values).
    """

    items: tuple[Item, ...]
    columns: tuple[str, ...]
    left_out: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)


def batch_of(table: pa.Table, *, label: str | None = None) -> Batch:
    """Return the rows of a table as a batch.

    Args:
        table: B rows with `key` and, where known, `uri`, `rank`, `round`, `gain`, `predicted`, `probability` (of the
            predicted class, in [0, 1]) and any scores. Ordered by `rank` where there is one, else as it comes.
        label: column of the classes that are known, text or numbers; None for none.

    Raises:
        InputError: without rows, without keys, with a key twice, or with a probability outside [0, 1].
    """
    if KEY not in table.column_names:
        raise InputError(f"expected a column 'key' in the batch, got {told(table.column_names, 'key')}; name one 'key'")
    if table.num_rows == 0:
        raise InputError("expected at least one row in the batch, got none; choose a larger budget")
    keys = table[KEY].cast(pa.string()).combine_chunks()
    check_keys(keys, 0, KEY, "the batch")
    names = [name for name in table.column_names if name not in (KEY, URI, label)]
    kept = [name for name in names if is_plain(table.schema.field(name).type)]
    texts = keys.to_pylist()
    uris = table[URI].to_pylist() if URI in table.column_names else [None] * len(texts)
    labels = [_class(value) for value in table[label].to_pylist()] if label is not None else [None] * len(texts)
    columns = {name: [_plain(value) for value in table[name].to_pylist()] for name in kept}
    items = [
        Item(key, uri, {name: value for name in kept if (value := columns[name][row]) is not None}, known)
        for row, (key, uri, known) in enumerate(zip(texts, uris, labels, strict=True))
    ]
    _check(items)
    if "rank" in kept and table["rank"].null_count == 0:
        items = [items[row] for row in np.argsort(table["rank"].to_numpy(), kind="stable")]
    return Batch(tuple(items), tuple(kept), tuple(name for name in names if name not in kept))


def is_plain(kind: pa.DataType) -> bool:
    """Return whether CSV and JSON can hold the values of a type: numbers and text."""
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return bool(numbers or pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind))


def _plain(value: object) -> Value | None:
    """Return a value that JSON and CSV hold, or None: NaN and infinity have no place in either."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int) else None


def _class(value: object) -> str | None:
    """Return a label as text; None where a row has none."""
    plain = _plain(value)
    return None if plain is None or plain == "" else str(plain)


def _check(items: list[Item]) -> None:
    seen: set[str] = set()
    for item in items:
        if item.key in seen:
            raise InputError(f"expected each key once in the batch, got {item.key!r} twice; take one out")
        seen.add(item.key)
        value = item.values.get(PROBABILITY)
        if value is not None and (isinstance(value, str) or not 0 <= value <= 1):
            raise InputError(f"expected probabilities in [0, 1], got {value!r} for {item.key!r}; mend the column")
