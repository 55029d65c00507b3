"""The path of an output in an object store: the methods of a path, and the few calls that writing needs.

A store has no folders, no rename and no append. Data are written atomically, by one PUT or the last request of a
multipart upload; what may be written only once is created on condition that it does not exist.
"""

import hashlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from curate.manifest.contract import ReadError
from curate.manifest.failures import TakenError, failure_of, store_errors
from curate.manifest.hub import folder_of, is_hub
from curate.manifest.places import Place, find_place
from curate.manifest.reach import Reach
from curate.manifest.remote import StoredFile, get, info_of, size_of, version_in
from curate.manifest.schemes import HUB_KINDS, file_system, scheme_of, shown
from scoring.errors import InputError
from scoring.file_digest import file_sha256

WRITABLE = ("s3", "s3a", "gs", "gcs", "memory")  # stores whose drivers support conditional writes
CLEANED, CLEANING = "subset.parquet", "curate.toml"  # subset and steps in a folder of ``curate clean``
READABLE = (*WRITABLE, "hf")  # schemes from which tables are read
_USUAL = {"s3a": "s3", "gcs": "gs"}
UNFINISHED = "_unfinished"  # object in a folder of parts during the upload
_PIECE = 8 << 20
SMALL = 1 << 20  # maximum bytes of a small object


@dataclass(frozen=True)
class Stored:
    """Size in bytes and time of change in nanoseconds, by the names of `os.stat_result`."""

    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True)
class StorePath:
    """A path in a store, with the method names of `pathlib.Path`; ``url`` has no trailing slash."""

    url: str

    def __str__(self) -> str:
        return shown(self.url)

    @property
    def name(self) -> str:
        """The name after the last slash."""
        return self.url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The suffix of the name, with its dot."""
        return Path(self.name).suffix

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return Path(self.name).stem

    @property
    def parent(self) -> "StorePath":
        """The path of the folder."""
        return StorePath(self.url.rpartition("/")[0])

    def with_name(self, name: str) -> "StorePath":
        """Return the path with another name."""
        return StorePath(f"{self.url.rpartition('/')[0]}/{name}")

    def with_suffix(self, suffix: str) -> "StorePath":
        """Return the path with another suffix."""
        return self.with_name(self.stem + suffix)

    def __truediv__(self, name: str) -> "StorePath":
        return StorePath(f"{self.url}/{name}")

    def resolve(self) -> "StorePath":
        """Return the path with its scheme's usual name, so that equal paths are equal; stores have no links."""
        scheme, _, rest = self.url.partition("://")
        return StorePath(f"{_USUAL.get(scheme.lower(), scheme.lower())}://{rest}")

    def stat(self) -> "Stored":
        """Return the size and the time of change of the object; FileNotFoundError if absent."""
        state, modified = self.state(), self.modified()
        if state is None or modified is None:
            raise FileNotFoundError(str(self))
        return Stored(state[0], int(modified.timestamp() * 1e9))

    def is_file(self) -> bool:
        """Return whether there is an object of this name."""
        return self.state() is not None

    def is_dir(self) -> bool:
        """Return whether there are objects below this name, at any depth."""
        return bool(self.names())

    def exists(self) -> bool:
        """Return whether there is an object, or a completed folder."""
        names = self.names()
        return self.is_file() if not names else UNFINISHED not in names

    def state(self) -> tuple[int, str] | None:
        """Return the size in bytes and the version of the object, or None if absent."""
        system, path = _system(self.url)
        with store_errors(self, "reach"):
            try:
                facts = info_of(system, path) if is_hub(system) else system.info(path)
            except FileNotFoundError:
                return None
        return (size_of(facts), version_in(facts)) if facts.get("type") != "directory" else None

    def modified(self) -> datetime | None:
        """Return when the object was written, by the store's clock; None if absent."""
        system, path = _system(self.url)
        with store_errors(self, "reach"):
            try:
                past_cache = {"refresh": True} if is_hub(system) else {}
                written_at: datetime = system.modified(path, **past_cache)
            except FileNotFoundError:
                return None
        return written_at if written_at.tzinfo is not None else written_at.replace(tzinfo=UTC)

    def files(self) -> list[StoredFile]:
        """Return the objects directly below, by name."""
        return [file for file, is_file in self._listed() if is_file]

    def names(self) -> list[str]:
        """Return the names directly below, of objects and of prefixes."""
        return [file.name for file, _ in self._listed()]

    def _listed(self) -> list[tuple[StoredFile, bool]]:
        """Return the names directly below, and whether each is an object."""
        system, path = _system(self.url)
        prefix = path.strip("/") + "/"
        with store_errors(self, "list"):
            try:
                listed = (
                    folder_of(system, path)
                    if is_hub(system)
                    else system.ls(path + "/" * self._has_buckets, detail=True)
                )
            except (FileNotFoundError, NotADirectoryError) as error:
                self._require_bucket(system, path, error)
                return []
        files = []
        for facts in listed:
            name = facts["name"].strip("/").removeprefix(prefix)
            if facts["name"].strip("/").startswith(prefix) and name:
                files.append((StoredFile(name, size_of(facts), version_in(facts)), facts["type"] == "file"))
        return sorted(files, key=lambda file: file[0].name)

    @property
    def _has_buckets(self) -> bool:
        return scheme_of(self.url) not in ("memory", "hf")

    def _require_bucket(self, system: Any, path: str, error: OSError) -> None:
        """Raise InputError if the bucket or repository of an absent object is missing."""
        if is_hub(system) and error.__cause__ is not None:
            raise InputError(f"cannot open {self}: {failure_of(error).text}") from None
        bucket = path.strip("/").partition("/")[0]
        if self._has_buckets and not _has_bucket(system, bucket):
            raise InputError(f"cannot open {self}: there is no bucket {bucket!r}; check the name, or create it")

    def place(self) -> Place:
        """Return a handle for reading the object in parts.

        Raises:
            MissingPlaceError, InputError: as `find_place`.
        """
        return find_place(self.url)

    def open(self) -> BinaryIO:
        """Open the object for reading; the caller closes."""
        return self.place().open()

    def read(self, max_bytes: int = SMALL) -> bytes | None:
        """Return the bytes of an object, None if absent; InputError if too large, or if the store refuses."""
        try:
            return get(self.url, max_bytes, Reach())
        except ReadError as error:
            if error.status == "missing":
                return None
            raise InputError(f"cannot read {self}: {error}") from None

    def create(self, data: bytes) -> bool:
        """Create an object if none exists; return whether this call created it."""
        system, path = _system(self.url)
        try:
            with store_errors(self, "write"):
                system.pipe_file(path, data, mode="create")
        except TakenError:
            return self.read() == data  # a try of ours whose answer was lost
        return True

    def put(self, data: bytes) -> None:
        """Put an object, replacing an existing one."""
        system, path = _system(self.url)
        with store_errors(self, "write"):
            system.pipe_file(path, data)

    def upload(self, local: Path, *, overwrite: bool) -> tuple[int, str]:
        """Upload a file atomically; return its size in bytes and its version in the store.

        Raises:
            TakenError: if an object exists and ``overwrite`` is not set.
            InputError: if the store refuses.
        """
        system, path = _system(self.url)
        try:
            with store_errors(self, "write"):
                system.put_file(str(local), path, mode="overwrite" if overwrite else "create")
        except TakenError:
            if sha256_of(self) != file_sha256(local):  # else a try of ours whose answer was lost
                raise TakenError(
                    f"{self} appeared while it was being written; check who wrote it, and choose another name, or "
                    "replace it with --overwrite"
                ) from None
        state, size = self.state(), local.stat().st_size
        if state is None or state[0] != size:
            raise InputError(f"cannot write {self}: {size:,} bytes were sent, but the store does not have them; repeat")
        return state

    def copy_to(self, other: "StorePath") -> None:
        """Copy the object inside the store, replacing an existing one."""
        system, path = _system(self.url)
        with store_errors(other, "write"):
            system.cp_file(path, _system(other.url)[1])

    def remove(self, names: list[str]) -> None:
        """Remove objects directly below; missing ones are not an error."""
        system, path = _system(self.url)
        for name in names:
            with store_errors(self / name, "remove"):
                try:
                    system.rm_file(f"{path}/{name}")
                except FileNotFoundError:
                    continue

    def abort_uploads(self) -> int:
        """Abort unfinished multipart uploads of this object and below it; return their number.

        Only for S3: in other stores they end without this.
        """
        if scheme_of(self.url) not in ("s3", "s3a"):
            return 0
        system, path = _system(self.url)
        bucket, _, key = path.partition("/")
        with store_errors(self, "list unfinished uploads of"):
            uploads = system.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key).get("Uploads", [])
            ours = [each for each in uploads if each["Key"] == key or each["Key"].startswith(key + "/")]
            for each in ours:
                system.call_s3("abort_multipart_upload", Bucket=bucket, Key=each["Key"], UploadId=each["UploadId"])
        return len(ours)


AnyPath = Path | StorePath


def path_or_store(text: "str | Path | StorePath") -> "Path | StorePath":
    """Return an output path as typed: a URL of a store, or a local path.

    Raises:
        InputError: for a URL, or a path in a store, that cannot be written to.
        MissingExtraError: if the driver of a store is not installed.
    """
    if isinstance(text, Path):
        return text
    url = text.url if isinstance(text, StorePath) else text
    how = "upload it (hf upload)" if scheme_of(url) == "hf" else "copy it"
    return _place(url, WRITABLE, f"write to a local folder and {how}")


def is_cleaned(path: "Path | StorePath") -> bool:
    """Return whether a path is a local folder that ``curate clean`` wrote; False also for a name that is too long."""
    names = (CLEANED, CLEANING)
    return isinstance(path, Path) and all(os.path.isfile(path / name) for name in names)  # noqa: PTH113


def subset_at(path: "Path | StorePath") -> "Path | StorePath":
    """Return the subset in a local folder of ``curate clean``; another path as it is."""
    return path / CLEANED if is_cleaned(path) else path


def path_to_read(text: "str | Path | StorePath") -> "Path | StorePath":
    """Return an input path as typed: as `path_or_store`, and a URL of the hub of Hugging Face too.

    Raises:
        InputError: for a URL from which a table cannot be read.
        MissingExtraError: if the driver of a store is not installed.
    """
    return text if isinstance(text, StorePath | Path) else _place(text, READABLE, "download it first")


def _place(text: str, schemes: tuple[str, ...], advice: str) -> Path | StorePath:
    scheme = scheme_of(text)
    if scheme is None:
        return Path(text)
    if scheme not in schemes:
        known = ", ".join(f"{name}://" for name in schemes if name != "memory")
        raise InputError(f"expected a path, or a URL of {known}, got {shown(text)!r}; {advice}")
    text = f"{scheme}{text[len(scheme) :]}"
    rest = text.partition("://")[2].partition("/")
    if "@" in rest[0] and scheme not in ("hf", "memory"):
        raise InputError(
            f"expected a bucket, with no user or password before it, got {shown(text)!r} with one; credentials are the "
            "driver's own, such as AWS_ACCESS_KEY_ID or a profile"
        )
    if scheme not in ("hf", "memory") and rest[2].startswith("/"):
        raise InputError(f"expected a name below a bucket without an empty part, got {text!r}; remove one slash")
    place = StorePath(text.rstrip("/"))
    parts = _system(place.url)[1].strip("/").split("/")
    if scheme == "hf" and len(parts) < (4 if parts[0] in HUB_KINDS else 3):
        raise InputError(f"expected a name in a repository, such as hf://datasets/OWNER/NAME/t.parquet, got {text!r}")
    if not parts[0] or (len(parts) < 2 and scheme != "memory"):
        raise InputError(f"expected a name below a bucket, such as {scheme}://bucket/scores.parquet, got {text!r}")
    return place


def path_on_disk(text: "str | Path | StorePath", what: str) -> Path:
    """Return a local path; InputError for a URL, in which ``what`` names it."""
    if isinstance(text, StorePath) or scheme_of(str(text)) is not None:
        raise InputError(f"expected a local path for {what}, got {shown(str(text))}; write it here and copy it there")
    return Path(text)


def sha256_of(path: AnyPath) -> str:
    """Return the hex SHA-256 of a file's bytes, local or in a store; empty without a file."""
    if isinstance(path, Path):
        return file_sha256(path)
    if not path.is_file():
        return ""
    digest = hashlib.sha256()
    with path.open() as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _system(url: str) -> tuple[Any, str]:
    return file_system(url, listing=True)


def _has_bucket(system: Any, bucket: str) -> bool:
    """Return whether a bucket exists; in Google's store, listing may be allowed when getting the bucket is not."""
    if "gs" not in system.protocol:
        return bool(system.exists(bucket))
    try:
        system.call("GET", "b/{}/o", bucket, maxResults=1, json_out=True)
    except FileNotFoundError:
        return False
    return True
