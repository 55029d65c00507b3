"""The chain of receipts: each refers to its input table, next to which is the receipt of the previous step.

Inputs are searched at their path, next to the receipt, or below given folders.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.columns import KEY
from curate.manifest.store_path import AnyPath, StorePath, path_to_read, sha256_of, subset_at
from curate.policies.contract import name_of
from curate.policies.receipts import (
    APPLIED_KIND,
    KIND,
    PIPELINE_RECEIPT,
    is_applied,
    read_json,
    read_pipeline_receipt,
    read_step,
    receipt_beside,
    step_beside,
)
from curate.tables.table import Table, open_table
from scoring.errors import InputError
from scoring.file_digest import file_sha256

DEEPEST = 4  # maximal depth below the folder of a receipt, such as steps/usable.parquet
MOST_FILES = 1_000_000  # maximal number of searched files


@dataclass(frozen=True)
class Searched:
    """Folders to search for files.

    Attributes:
        folder: of the receipt.
        roots: further folders; if there are any, nothing outside of them and ``folder`` is read.
    """

    folder: AnyPath
    roots: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        for root in self.roots:
            if not root.is_dir():
                raise InputError(f"expected a folder to search for --root, got {root}; check the name")

    def find(self, path: AnyPath, digests: Sequence[str | None] = (), names: Sequence[str] = ()) -> AnyPath | None:
        """Return the present path of a file or folder; None if it is not found.

        Searched in this order: the folder of the receipt with the same relative path, the original path, files of the
        same name below the roots, and all other files there. If the file is both near the receipt, as in a copied
        folder, and at its original path, the digest decides; if neither matches, the file near the receipt is used, and
        without a digest the original path. Below the roots only files with the digest match, if there is one.

        Args:
            path: the original path.
            digests: SHA-256 of its bytes, or of the files of a folder in their order.
            names: of these files.

        Raises:
            InputError: if several files have the name and there is no digest, or for too many files.
        """
        if places := self.places(path):
            known = digests if None not in digests else ()
            by_digest = (place for place in places if _has_digests(place, known, names))
            usual = path if path in places and not known else places[0]
            return usual if len(places) == 1 else next(by_digest, usual)
        if not self.roots:
            return None
        first = digests[0] if digests else None
        sought = names[0] if names else path.name
        if first is None:
            same_name = [file for file in self._files() if file.name == path.name]
            if len(same_name) > 1:
                raise InputError(
                    f"{same_name[0]} and {same_name[1]} have the name of the input; pass the right one as --table"
                )
            return same_name[0] if same_name else None
        for file in sorted(self._files(), key=lambda file: file.name != sought):
            if file.suffix != Path(sought).suffix or file_sha256(file) != first:
                continue
            if len(digests) < 2:
                return (
                    file.parent
                    if names and path.name not in (sought, file.name) and sought.startswith("part-")
                    else file
                )
            if all(file_sha256(file.with_name(name)) == digest for name, digest in zip(names, digests, strict=True)):
                return file.parent
        return None

    def places(self, path: AnyPath) -> list[AnyPath]:
        """Return paths with the name of a file: in or below the folder of the receipt, and the original path."""
        near = [self.folder / path.name]  # moved together with the receipt
        if isinstance(self.folder, Path) and isinstance(path, Path):
            depths = range(2, min(len(path.parts), DEEPEST + 1))
            near += [self.folder.joinpath(*path.parts[-n_parts:]) for n_parts in depths]
        existing = [place for place in (*near, path) if self._allowed(place) and place.exists()]
        return list({place.resolve(): place for place in existing}.values())

    def is_copied(self, receipt: AnyPath, near: AnyPath, path: AnyPath) -> bool:
        """Return whether a receipt and a file near it also exist at the original path: their folder was copied."""
        if not (isinstance(near, Path) and isinstance(path, Path) and isinstance(self.folder, Path)):
            return False
        folder, near = self.folder.resolve(), near.parent.resolve() / near.name
        if not near.is_relative_to(folder):
            return False
        original = path.parents[len(near.relative_to(folder).parts) - 1] / receipt.name
        return self._allowed(original) and original.is_file() and sha256_of(original) == sha256_of(receipt)

    def source_of(self, noted: Mapping[str, Any]) -> AnyPath | None:
        """Return the path of a receipt's input; None if it is not found."""
        about = noted["input"]
        return self.find(path_to_read(str(about["path"])), about.get("sha256", ()), about.get("files", ()))

    def refuse_outside(self, path: AnyPath) -> None:
        """Raise InputError for a file that a link leads out of the roots and of the folder of the receipt."""
        if not self._allowed(path):
            raise InputError(f"{path} leads to {path.resolve()}, outside of --root; it is not read")

    def _allowed(self, place: AnyPath) -> bool:
        """Return whether a path may be read: any without roots, else in them or next to the receipt, links resolved."""
        if not self.roots:
            return True
        if isinstance(place, StorePath):
            return place.parent == self.folder
        folders = (*self.roots, *([self.folder] if isinstance(self.folder, Path) else []))
        real = place.resolve()
        return any(real.is_relative_to(root.resolve()) for root in folders)

    def _files(self) -> Iterator[Path]:
        """Yield the regular files below the roots; links are skipped, because they may lead outside."""
        n = 0
        for root in self.roots:
            for folder, _, names in os.walk(root):
                for name in sorted(names):
                    n += 1
                    if n > MOST_FILES:
                        raise InputError(
                            f"{root} holds more than {MOST_FILES:,} files; choose a smaller folder for --root"
                        )
                    path = Path(folder, name)
                    if not path.is_symlink() and path.is_file():
                        yield path


def _has_digests(place: AnyPath, digests: Sequence[str | None], names: Sequence[str]) -> bool:
    """Return whether a file, or the files of a folder, have the given SHA-256."""
    files = [place / name for name in names] if place.is_dir() else [place]
    if not digests or len(files) != len(digests) or not all(file.is_file() for file in files):
        return False
    return all(sha256_of(file) == digest for file, digest in zip(files, digests, strict=True))


MOST = 50  # maximal number of receipts in a chain
RECEIPT = ".receipt.json"


@dataclass(frozen=True)
class Link:
    """A receipt of a chain.

    Attributes:
        path: of the receipt.
        noted: its content.
        source: present path of its input table; None if missing.
    """

    path: AnyPath
    noted: Mapping[str, Any]
    source: AnyPath | None

    @property
    def is_calibration(self) -> bool:
        """Whether it is the receipt of an applied calibration, which decides no rows."""
        return is_applied(self.noted)

    @property
    def policy(self) -> str:
        """The name of the policy; ``calibrate`` if probabilities were added to a table."""
        return "calibrate" if self.is_calibration else name_of(self.noted["policy"])

    @property
    def written(self) -> str:
        """The name of the table that it wrote: of a policy its subset."""
        return "table" if self.is_calibration else "subset"

    @property
    def input(self) -> AnyPath:
        """The table that it was made from; InputError if that is gone."""
        if self.source is None:
            raise InputError(f"the input {self.noted['input']['path']} of {self.path} no longer exists; see --root")
        return self.source

    def open(self, name: str) -> Table:
        """Return a table that it wrote; InputError if that is gone."""
        path = self.output(name)
        if path is None or not path.is_file():
            raise InputError(f"{path or name} of {self.path} no longer exists; run that step again")
        return open_table(path, require=[KEY])

    def output(self, name: str) -> AnyPath | None:
        """The path of a written file; None if it wrote none of that name."""
        entry = self.noted["outputs"].get(name)
        return self.path.with_name(entry["file"]) if entry else None


def receipt_of(path: AnyPath) -> AnyPath:
    """Return the receipt at a path: a receipt, or next to a subset (also of ``curate clean``) or decisions.

    Raises:
        InputError: for a table without a receipt.
    """
    path = subset_at(path)
    if path.suffix != ".parquet" or not path.is_file():
        return path
    beside = receipt_beside(path)
    if not beside.is_file():
        raise InputError(f"{path} has no receipt next to it: expected {beside.name}; pass a subset or its receipt")
    return beside


def links(receipt: AnyPath, searched: Searched, table: AnyPath | None = None) -> Iterator[Link]:
    """Yield a receipt, then the receipt of its input, and so on to a table without receipt.

    Args:
        receipt: the last one.
        searched: folders of inputs; the folders of the receipts are searched too.
        table: the input of the last receipt, if it was moved.

    Raises:
        InputError: for a malformed receipt, or a chain of more than ``MOST`` or with a cycle.
    """
    seen: set[AnyPath] = set()
    waiting: AnyPath | None = receipt
    while waiting is not None:
        if waiting.resolve() in seen or len(seen) == MOST:
            raise InputError(f"{waiting} refers to itself, or follows more than {MOST} steps; restore it from a backup")
        seen.add(waiting.resolve())
        noted = read_step(waiting)
        source = table if table is not None else Searched(waiting.parent, searched.roots).source_of(noted)
        yield Link(waiting, noted, source)
        waiting, table = step_beside(source), None


def links_after(table: AnyPath, searched: Searched) -> list[Link]:
    """Return the steps applied to a table, and their successors, each after the step whose output it read.

    Their receipts are in the table's folder, or where a pipeline that wrote the folder put them, such as ``curate
    clean``.

    Args:
        table: the scored table.
        searched: folders of inputs.

    Raises:
        InputError: for a malformed receipt, or more than ``MOST``.
    """
    folder = table.parent
    if isinstance(folder, Path):
        receipts: list[AnyPath] = [*sorted(folder.glob("*" + RECEIPT))]
        pipeline = folder / PIPELINE_RECEIPT
        steps = read_pipeline_receipt(pipeline) if pipeline.is_file() else []
        listed = (folder / name for _, outputs in steps for name in outputs if name.endswith(RECEIPT))
        receipts += [path for path in listed if path.resolve().parent != folder.resolve() and path.is_file()]
    else:
        receipts = [folder / file.name for file in folder.files() if file.name.endswith(RECEIPT)]
    if len(receipts) > MOST:
        raise InputError(f"{folder} holds {len(receipts):,} receipts, more than {MOST}; pass a subset instead")
    waiting = [Link(path, noted, searched.source_of(noted)) for path in receipts for noted in _noted(path)]
    made, after = {table.resolve()}, []
    while ready := [step for step in waiting if step.source is not None and step.source.resolve() in made]:
        after += ready
        waiting = [step for step in waiting if step not in ready]
        written = (step.output(step.written) for step in ready)
        made |= {path.resolve() for path in written if path is not None}
    return after


def _noted(path: AnyPath) -> Iterator[dict[str, Any]]:
    """Yield the receipt of a step; nothing for a pipeline or a round, whose steps have separate receipts."""
    _, receipt = read_json(path, "a receipt that curate wrote")
    if isinstance(receipt, dict) and receipt.get("kind") in (KIND, APPLIED_KIND):
        yield read_step(path)
