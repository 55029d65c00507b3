"""Search for the files of a receipt: at their path, next to the receipt, or below given folders."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.manifest.store_path import AnyPath, StorePath, path_to_read, sha256_of
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
            return self._by_name(path.name)
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
        existing = [
            place for place in (*self._moved_with_receipt(path), path) if self._allowed(place) and place.exists()
        ]
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

    def _moved_with_receipt(self, path: AnyPath) -> Iterator[AnyPath]:
        """Yield the paths of a file that moved together with the receipt, in its folder or below it."""
        yield self.folder / path.name
        if isinstance(self.folder, Path) and isinstance(path, Path):
            for n_parts in range(2, min(len(path.parts), DEEPEST + 1)):
                yield self.folder.joinpath(*path.parts[-n_parts:])

    def refuse_outside(self, path: AnyPath) -> None:
        """Raise InputError for a file that a link leads out of the roots and of the folder of the receipt."""
        if not self._allowed(path):
            raise InputError(f"{path} leads to {path.resolve()}, outside of --root; it is not read")

    def _by_name(self, name: str) -> Path | None:
        named = [file for file in self._files() if file.name == name]
        if len(named) > 1:
            raise InputError(f"{named[0]} and {named[1]} have the name of the input; pass the right one as --table")
        return named[0] if named else None

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
