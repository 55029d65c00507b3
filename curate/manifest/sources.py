# Paths are bytes where names need not be UTF-8, and pathlib holds text.
# ruff: noqa: PTH100, PTH109, PTH112, PTH119, PTH207
"""From a source as typed to its manifest."""

import glob
import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from urllib.parse import unquote

from curate.counted import repeated
from curate.manifest.contract import Manifest, ReadError, SourceOptions
from curate.manifest.folder import SHARD_SUFFIXES, open_folder
from curate.manifest.layout import PATH_NAMES
from curate.manifest.listing import Line, open_list, parse_list
from curate.manifest.names import IMAGE_SUFFIXES, begins_like_an_image, count_suffixes, is_image_name, key_of, suffix_of
from curate.manifest.places import Place, find_place
from curate.manifest.reach import Reach, reach_of
from curate.manifest.remote import get_range
from curate.manifest.schemes import scheme_of, shown
from curate.manifest.store import images_of, list_files, open_listing
from curate.manifest.store_path import CLEANED, is_cleaned
from curate.manifest.text_tables import MAX_TABLE_BYTES, open_text_table, read_csv, read_jsonl
from scoring.errors import InputError
from scoring.images.sniff import HEAD

KINDS = {
    "txt": "list",
    "lst": "list",
    "csv": "csv",
    "tsv": "csv",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "json": "jsonl",
    "parquet": "parquet",
    "pq": "parquet",
    "tar": "tar",
}
_PACKED = {"gz", "tgz", "bz2", "xz", "zst", "zip", "7z"}
MAX_EXPANSION = 100_000
_NAMES_ONLY = {*PATH_NAMES, "key", "__key__"}
_BRACES = re.compile(r"\{([^{}]*)\}")


def open_manifest(source: str | Path | Sequence[str | Path], options: SourceOptions | None = None) -> Manifest:
    """Open a source of images: determine its kind and check its keys.

    Args:
        source: a folder; a list (.txt), CSV, JSON lines, Parquet or .tar file; an image; a URL of one of these (also of
            a folder, if the store can list); a pattern (`*.parquet`, `shards-{000..012}.tar`); or several in a
            sequence: files of one kind, or folders and images.
        options: how to read it.

    Returns:
        The manifest, with at least one row.

    Raises:
        InputError: if it is missing, of unknown kind, contains no image, or has invalid keys or columns.
        MissingExtraError: if a URL's scheme needs a package that is not installed.
    """
    options = options or SourceOptions()
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not sources:
        raise InputError("expected at least one folder, file or URL, got none; pass a source")
    typed = [os.fspath(item) for item in sources]
    reach = reach_of(typed, options.root, private=options.allow_private_hosts)
    if len(typed) == 1:
        return _open_source(typed[0], options, reach)
    paths = [path for item in typed for path in _expand(item)]
    return _open_files(paths, options, reach)


def _open_source(source: str, options: SourceOptions, reach: Reach) -> Manifest:
    if scheme_of(source) not in (None, "file") and not _BRACES.search(source) and not _is_pattern(source):
        return _open_url(source, options, reach)
    if scheme_of(source) == "file":
        source = unquote(source.split("://", 1)[1], errors="surrogateescape")
    if os.path.isdir(source):
        return _open_folders([source], options, reach)
    return _open_files(_expand(source), options, reach)


def _open_folders(places: list[str], options: SourceOptions, reach: Reach) -> Manifest:
    """Open local folders and images, or the shards in the folders."""
    for place in filter(is_cleaned, map(Path, places)):
        raise InputError(f"expected images, and {place} is a folder of curate clean; pass its table: {place / CLEANED}")
    opened = open_folder(places, options)
    if isinstance(opened, list):
        return _open_files(opened, options, reach, places[0] if len(places) == 1 else None)
    return opened


def _expand(source: str) -> list[str]:
    """Return the paths that match a pattern; an existing path matches itself."""
    if os.path.lexists(source):
        return [source]
    paths: list[str] = []
    for text in expand_braces(source):
        if scheme_of(text):
            paths += _matching(text) if _is_pattern(text) else [text]
        elif glob.has_magic(text) and not os.path.lexists(text):
            paths += sorted(glob.glob(text, recursive=True), key=os.fsencode)
        else:
            paths.append(text)
    if not paths:
        raise InputError(f"expected files that match {source!r}, got none; check the pattern")
    return paths


def _is_pattern(url: str) -> bool:
    """Return whether a URL is a pattern for a store; `?` and `[` are ordinary characters there."""
    return "*" in url and scheme_of(url) not in (None, "file", "http", "https")


def _matching(url: str) -> list[str]:
    """Return the URLs of the files of a store that match a pattern, sorted by name."""
    base = url[: url.index("*")].rpartition("/")[0]
    pattern = url[len(base) + 1 :]
    regex = re.escape(pattern).replace(r"\*\*/", "(?:[^/]+/)*").replace(r"\*", "[^/]*")
    return [f"{base}/{file.name}" for file in list_files(base) if re.fullmatch(regex, file.name, re.DOTALL)]


def expand_braces(text: str) -> list[str]:
    """Return the expansions of `{a,b}` and `{000..012}`, as in a shell.

    Raises:
        InputError: if that is more than `MAX_EXPANSION` names.

    >>> expand_braces("s-{08..10}.{tar,txt}")
    ['s-08.tar', 's-08.txt', 's-09.tar', 's-09.txt', 's-10.tar', 's-10.txt']
    """
    parts: list[Sequence[str]] = []
    end, total = 0, 1
    for match in _BRACES.finditer(text):
        choices = _choices(match[1])
        if choices is None:
            continue
        total *= len(choices)
        if total > MAX_EXPANSION:
            raise InputError(f"expected a pattern of at most {MAX_EXPANSION:,} names, got more from {text!r}")
        parts += [[text[end : match.start()]], choices]
        end = match.end()
    return ["".join(words) for words in product(*parts, [text[end:]])]


def _choices(inside: str) -> list[str] | None:
    """Return the alternatives in one pair of braces, or None if it is not an expansion."""
    span = re.fullmatch(r"(\d{1,18})\.\.(\d{1,18})", inside)
    if span is None:
        return inside.split(",") if "," in inside else None
    low, high = int(span[1]), int(span[2])
    width = max(len(span[1]), len(span[2])) if "0" in (span[1][0], span[2][0]) else 0
    if abs(high - low) >= MAX_EXPANSION:
        raise InputError(f"expected a range of at most {MAX_EXPANSION:,} numbers, got {{{inside}}}")
    step = 1 if high >= low else -1
    return [f"{number:0{width}d}" for number in range(low, high + step, step)]


def _open_files(paths: list[str], options: SourceOptions, reach: Reach, folder: str | None = None) -> Manifest:
    """Open one or several files or URLs of one kind; names of files found in ``folder`` are relative to it."""
    kinds = {"folder" if os.path.isdir(path) else kind_of(path, reach) for path in paths}
    if kinds <= {"folder", "image"} and (kinds != {"image"} or _leads_out(paths, options)):
        return _open_folders(paths, options, reach)
    if len(kinds) > 1:
        raise InputError(
            f"expected files of one kind, got {' and '.join(sorted(kinds))} ({shown(paths[0])!r}, ...); score "
            "each kind on its own"
        )
    kind = kinds.pop()
    if kind == "image":
        lines = [Line(number, os.fsencode(path)) for number, path in enumerate(paths, start=1)]
        what = os.path.basename(shown(paths[0])) if len(paths) == 1 else "of paths"
        return open_list(lines, options, root=_root(options, os.getcwd()), where=what, identity="", reach=reach)
    places = [find_place(path, name, reach) for path, name in zip(paths, _names(paths, folder), strict=True)]
    return _open_places(places, kind, options, reach, folder)


def _leads_out(paths: list[str], options: SourceOptions) -> bool:
    """Return whether a relative path leads out of its folder, so that it cannot be a key."""
    return options.root is None and any(Path(os.path.normpath(path)).parts[:1] == (os.pardir,) for path in paths)


def _open_places(places: list[Place], kind: str, options: SourceOptions, reach: Reach, folder: str | None) -> Manifest:
    first = places[0]
    if options.label_from_folder and kind != "list":
        raise InputError(
            f"expected a folder of images or a list for labels from sub-folders, got {first.name} ({kind}); "
            "such a source has its own columns"
        )
    root = _root(options, folder or first.uri.split("?")[0].rpartition("/")[0] or "/")
    if kind == "tar":
        from curate.manifest.tar import open_tars

        return open_tars(places, options)
    if kind == "parquet":
        from curate.manifest.parquet import ParquetManifest

        return ParquetManifest(places, options, root, reach)
    if len(places) > 1:
        raise InputError(f"expected one {kind} file, got {len(places)}; merge them into one")
    data = first.read_all(MAX_TABLE_BYTES, "write it as Parquet, which is read in parts")
    identity = hashlib.sha256(data).hexdigest()
    if kind == "list":
        lines = parse_list(data, first.name)
        return open_list(lines, options, root=root, where=first.name, identity=identity, reach=reach)
    if kind == "csv":
        named = {name for name in (options.key, options.path_column) if name}
        expects = {*(name.lower() for name in named), *(_NAMES_ONLY if options.noted or not named else ())}
        table = read_csv(data, first.name, expects=expects, names_only=named | _NAMES_ONLY)
    else:
        table = read_jsonl(data, first.name)
    return open_text_table(table, options, root=root, name=first.name, identity=identity, reach=reach)


def kind_of(path: str, reach: Reach = Reach()) -> str:  # noqa: B008 (it is frozen)
    """Return "list", "csv", "jsonl", "parquet", "tar" or "image", by the name, else by the first bytes.

    Raises:
        InputError: for anything else; lists the supported kinds.
    """
    suffix = suffix_of((path.split("?")[0] if scheme_of(path) else path).rpartition("/")[2])
    if suffix in KINDS:
        return KINDS[suffix]
    if suffix in IMAGE_SUFFIXES:
        return "image"
    if suffix in _PACKED:
        raise InputError(
            f"expected a file that can be read at any position, got the compressed {shown(path)!r}; "
            "decompress it and pass what was inside (.tar, .csv, ...)"
        )
    if scheme_of(path) in (None, "file"):
        head = _head(find_place(path))
        if head.startswith(b"PAR1"):
            return "parquet"
        if begins_like_an_image(head):
            return "image"
    elif not suffix and scheme_of(path) not in ("http", "https") and _begins_like_an_image(path, reach):
        return "image"
    raise InputError(
        f"expected a folder, an image, or a file that ends in {', '.join('.' + known for known in KINDS)}; got "
        f"{shown(path)!r}; rename it or pass its folder"
    )


def _head(place: Place) -> bytes:
    """Return the first bytes of a local file; raises InputError if it cannot be read."""
    try:
        return place.read(0, min(HEAD, place.size), HEAD)
    except ReadError as error:
        raise InputError(f"cannot read {place.name}: {error}; check its permissions") from None


def _begins_like_an_image(url: str, reach: Reach) -> bool:
    """Return whether an object without a known suffix is an image; InputError if the store refuses."""
    try:
        return begins_like_an_image(get_range(url, 0, HEAD, reach))
    except ReadError as error:
        if error.status == "missing":
            return False
        raise InputError(f"cannot read {shown(url)!r}: {error}; check the URL and the credentials") from None


def _names(paths: list[str], folder: str | None) -> list[str | None]:
    """Return the name of each file: relative to its folder, or its path as far as needed to be unique."""
    if folder is not None:
        return [key_of(os.path.relpath(os.fsencode(path), os.fsencode(folder))) for path in paths]
    lasts = [path.rstrip("/").rpartition("/")[2] for path in paths]
    if len(set(lasts)) == len(lasts):
        return [None] * len(paths)
    if twice := repeated(paths):
        raise InputError(f"expected each file once, got {shown(twice[0])!r} again; pass it once")
    shared = os.path.commonpath([path if scheme_of(path) else os.path.abspath(path) for path in paths])
    return [(path if scheme_of(path) else os.path.abspath(path))[len(shared) :].lstrip("/") for path in paths]


def _root(options: SourceOptions, default: str) -> str:
    """Return the base of relative paths: an absolute path or a URL, as text."""
    root_text = options.root or default
    if scheme_of(root_text):
        return root_text
    root = os.path.abspath(root_text)
    if options.root is not None and not os.path.isdir(root):
        if options.noted:
            return os.path.abspath(default) if scheme_of(default) is None else default
        raise InputError(f"expected a folder for --root, got {root_text!r}; check the path")
    return root


def _open_url(url: str, options: SourceOptions, reach: Reach) -> Manifest:
    """Open a URL: a file by its suffix, otherwise a folder if the store can list one."""
    last = shown(url).rstrip("/").rpartition("/")[2]
    if suffix_of(last) in KINDS or is_image_name(last) or suffix_of(last) in _PACKED:
        return _open_files([url], options, reach)
    if scheme_of(url) in ("http", "https"):
        raise InputError(
            f"expected a URL of a file ({', '.join('.' + kind for kind in KINDS)} or an image), got {shown(url)!r}: "
            "HTTP cannot list folders; pass a list of URLs (.txt)"
        )
    files = list_files(url, hidden=options.hidden)
    images, unread = images_of(url, files, options, reach)
    if images:
        return open_listing(url, images, options, reach, unread=unread)
    in_bucket = "/" in url.partition("://")[2].strip("/")  # an empty bucket has no objects
    if not files and in_bucket and _begins_like_an_image(url, reach):
        return _open_files([url], options, reach)
    base = url.rstrip("/")
    for suffix in SHARD_SUFFIXES:
        shards = [file for file in files if suffix_of(file.name) == suffix]
        if shards:
            places = [Place(f"{base}/{file.name}", file.name, file.size, file.version, reach) for file in shards]
            return _open_places(places, suffix, options, reach, base)
    kinds = count_suffixes(Counter(suffix_of(file.name) for file in files))
    raise InputError(
        f"expected images, .parquet or .tar files in {shown(url)!r}, got {kinds or 'no files'}; check the URL"
    )
