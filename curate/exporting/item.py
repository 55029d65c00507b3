"""One exported image."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote

from curate.columns import KEY
from curate.manifest.local import local_path
from curate.manifest.schemes import scheme_of

PREFIX = "curate_"  # prefix of our columns in a tool
PREDICTED = "predicted"  # column: class predicted by the probe
PROBABILITY = "probability"  # column: probability of that class, in [0, 1]
Value = str | int | float | bool


@dataclass(frozen=True)
class Item:
    """One exported image.

    Attributes:
        key: as in the table.
        uri: path or URL of its bytes; None if the table contains them.
        values: further columns by name; no nulls, NaNs, infinities or nested values.
        label: its known class; None if labels are to be collected.
    """

    key: str
    uri: str | None
    values: dict[str, Value]
    label: str | None = None

    @property
    def predicted(self) -> str | None:
        """Class predicted by the probe."""
        value = self.values.get(PREDICTED)
        return None if value is None or value == "" else str(value)

    @property
    def probability(self) -> float | None:
        """The probability of the predicted class, in [0, 1]."""
        value = self.values.get(PROBABILITY)
        return None if value is None else float(value)

    @property
    def prefixed(self) -> dict[str, Value]:
        """The key and all values under unique names: `curate_key`, `curate_rank`, and so on."""
        mine = {name.removeprefix(PREFIX): value for name, value in self.values.items()}
        return {f"{PREFIX}{KEY}": self.key, **{PREFIX + name: value for name, value in mine.items() if name != KEY}}

    def record(self, columns: tuple[str, ...]) -> dict[str, Value | None]:
        """Return `prefixed` with null for missing columns, in the same order for all items."""
        names = dict.fromkeys([f"{PREFIX}{KEY}", *(PREFIX + name.removeprefix(PREFIX) for name in columns)])
        return {**names, **self.prefixed}

    def updated(self, facts: Mapping[str, Value]) -> "Item":
        """Return the item with new facts of its image, in columns that it has."""
        return replace(self, values={**self.values, **{k: v for k, v in facts.items() if k in self.values}})

    @property
    def path(self) -> bytes | None:
        """Path, if the image is a whole local file."""
        if self.uri is None or ".tar::" in self.uri:
            return None
        scheme = scheme_of(self.uri)
        if scheme == "file":
            return local_path(self.uri)
        return None if scheme else self.uri.encode()

    @property
    def url(self) -> str | None:
        """URL that other programs can open, if any."""
        if self.uri is None or ".tar::" in self.uri or self.path is not None:
            return None
        return self.uri

    @property
    def path_text(self) -> str | None:
        """Path as text; bytes that are not UTF-8 are percent-encoded."""
        if self.path is None:
            return None
        try:
            return self.path.decode()
        except UnicodeDecodeError:
            return quote(self.path)
