"""The receipt of a policy: inputs, request and outputs, with which ``curate verify`` repeats the decision.

It ends with its seal, a digest of its canonical text, which detects every change.
"""

import hashlib
import json
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.manifest.store_path import AnyPath, StorePath, path_to_read
from curate.tables.digests import HASH
from curate.tables.table import Table
from curate.version import __version__
from scoring.atomic import AtomicFile
from scoring.errors import InputError
from scoring.file_digest import file_sha256

if TYPE_CHECKING:
    from curate.policies.decided import Decided, Result

KIND = "receipt"
APPLIED_KIND = "calibration receipt"
ROUND_KIND = "round receipt"
ROUNDS = "round.json"  # in a folder of rounds
PIPELINE_KIND = "pipeline receipt"
PIPELINE_RECEIPT = "pipeline.receipt.json"
OF_COMMANDS = {PIPELINE_KIND: "curate run", APPLIED_KIND: "curate calibrate --apply"}
PACKAGES = ("numpy", "pyarrow")
DIGEST_OF = (
    "two sums modulo 2^64 of 64-bit hashes of every row's key, status and the columns that the policy reads; "
    "independent of row order"
)


LOST = (
    ("dropped_by", "drop"),
    ("undecided_by", "undecided"),
    ("failed_by", "failed"),
)  # in a receipt, and in decisions
COUNTED = ("n_rows", "kept", "dropped", "undecided", "failed")
REST = {"drop": "not chosen", "undecided": "undecided", "failed": "failed"}  # reasons of rows without a recorded reason

Written = tuple[AtomicFile, int | None]  # a sealed file, and its rows; None for one that is no table
FileState = tuple[str, int, int]  # name, size and time of change


def state_of(table: Table) -> list[FileState]:
    """Return name, size and modification time of the table's files, to detect changes while it is processed."""
    with suppress(FileNotFoundError):  # a removed file is a change
        return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in table.files]
    return []


def digests_of(table: Table) -> list[str | None]:
    """Return the SHA-256 of the bytes of each file; None for files in a store, which would be fetched again."""
    return [None if isinstance(file, StorePath) else file_sha256(file) for file in table.files]


def receipt_json(
    decided: "Decided[Result]", facts: Mapping[str, Any], outputs: Mapping[str, "Written"], read: Mapping[str, str]
) -> bytes:
    """Return the receipt as JSON text; equal inputs give equal receipts (there is no date in it).

    Args:
        decided: the policy, its input and the decisions.
        facts: further facts of the policy.
        outputs: sealed files by name, with their numbers of rows.
        read: path -> SHA-256 of every other input file.
    """
    table, counts = decided.table, decided.counts()
    receipt = {
        "kind": KIND,
        "format": FORMAT,
        "curate": __version__,
        "input": {
            "path": str(table.path.resolve()),
            "files": [file.name for file in table.files],
            "sha256": digests_of(table),
            "n_rows": counts["n_rows"],
            "digest": decided.digest,
            "digest_of": DIGEST_OF,
            **({} if table.embedding_column is None else {"embedding": table.embedding_column}),
        },
        "model": table.metadata.get("model"),
        "policy": decided.policy,
        "hash": HASH,
        "counts": counts,
        **facts,
        "read": dict(read),
        "outputs": {
            name: {"file": file.path.name, "sha256": file.sha256, **({} if n_rows is None else {"n_rows": n_rows})}
            for name, (file, n_rows) in outputs.items()
        },
        "environment": environment(),
    }
    return sealed(receipt)


def environment() -> dict[str, Any]:
    """Return the versions of Python, the platform and the packages that determine the output."""
    packages: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "byte_order": sys.byteorder,
        "packages": packages,
    }


def read_receipt(path: str | AnyPath) -> dict[str, Any]:
    """Read a receipt and check its structure; InputError if it is missing, too large, not JSON or not a receipt."""
    receipt = read_step(path)
    if is_applied(receipt):
        raise InputError(
            f"{path} is the receipt of a calibration, which decides no rows; expected the receipt of a policy"
        )
    return receipt


def check_hash(path: AnyPath, receipt: Mapping[str, Any]) -> None:
    """Raise InputError for a receipt of a version with another hash function, which changes ties and digests."""
    noted = receipt.get("hash")
    if noted != HASH:
        raise InputError(
            f"{path} is of curate {receipt.get('curate')}, which hashed by {noted or 'BLAKE2b'}, and this version "
            f"({__version__}) by {HASH}: digests or winners of ties differ; run the command of the receipt again"
        )


def is_applied(receipt: Mapping[str, Any]) -> bool:
    """Return whether a receipt belongs to an applied calibration, which adds columns and decides no rows."""
    return bool(receipt["kind"] == APPLIED_KIND)


def read_step(path: str | AnyPath) -> dict[str, Any]:
    """Read and check the receipt of a policy, or of an applied calibration; InputError as ``read_receipt``."""
    path = path_to_read(path)
    if not path.is_file():
        if isinstance(path, Path) and (path / ROUNDS).is_file():
            raise InputError(f"{path} is a folder of rounds; derive its batches again with curate verify")
        raise InputError(f"expected a receipt (NAME.receipt.json) or a folder of rounds, got {path}; check the name")
    beside = receipt_beside(path)
    if path.suffix == ".parquet" and beside.is_file():
        raise InputError(f"expected a receipt, got the table {path}; the receipt next to it is {beside}")
    data, receipt = read_json(path, "a receipt that curate wrote")
    if isinstance(receipt, dict) and receipt.get("kind") == ROUND_KIND:
        raise InputError(
            f"{path} is the receipt of a round, not of a subset, and a round needs the files around it; pass "
            "the folder of the rounds"
        )
    if not isinstance(receipt, dict) or receipt.get("kind") not in (KIND, APPLIED_KIND):
        raise InputError(f"{path} is not a receipt; expected a NAME.receipt.json that curate wrote")
    check_seal(path, data, receipt)
    if is_applied(receipt):
        _check_applied(path, receipt)
    else:
        _check_shape(path, receipt)
    return receipt


def step_beside(table: AnyPath | None) -> AnyPath | None:
    """Return the receipt of the policy or calibration that wrote a table; None if absent."""
    if table is None or table.suffix != ".parquet" or not table.is_file():
        return None
    beside = receipt_beside(table)
    return beside if beside.is_file() else None


def _check_applied(path: AnyPath, receipt: dict[str, Any]) -> None:
    try:
        source, output = receipt["input"], receipt["outputs"]["table"]
        texts = [source["path"], source["digest"], output["file"], output["sha256"]]
        is_complete = all(isinstance(text, str) for text in texts) and type(receipt["counts"]["n_rows"]) is int
        is_complete = is_complete and source.get("sha256") is not None and _are_digests(source)
    except (KeyError, TypeError, AttributeError):
        is_complete = False
    if not is_complete or Path(output["file"]).name != output["file"]:
        raise InputError(f"{path} is incomplete: expected input, counts and table; restore the receipt from a backup")


def _check_shape(path: AnyPath, receipt: dict[str, Any]) -> None:
    source, outputs = receipt.get("input"), receipt.get("outputs")
    is_complete = (
        isinstance(source, dict)
        and all(isinstance(source.get(name), str) for name in ("path", "digest"))
        and isinstance(source.get("embedding"), str | None)
        and _are_digests(source)
        and isinstance(receipt.get("read", {}), dict)
        and all(isinstance(text, str) for text in receipt.get("read", {}).values())
        and isinstance(receipt.get("policy"), list)
        and _are_counts(receipt.get("counts"), *COUNTED)
        and all(_are_counts(receipt.get(group, {})) for group, _ in LOST)
        and isinstance(outputs, dict)
        and {"subset", "decisions"} <= set(outputs)
        and all(
            isinstance(output, dict) and all(isinstance(output.get(k), str) for k in ("file", "sha256"))
            for output in outputs.values()
        )
    )
    if not is_complete:
        raise InputError(f"{path} is incomplete: expected input, policy and outputs; restore the receipt from a backup")
    for output in outputs.values() if isinstance(outputs, dict) else ():
        if Path(output["file"]).name != output["file"] or output["file"] in ("", ".", ".."):
            raise InputError(f"{path} refers to a file outside its folder ({output['file']}), which is not used")


def _are_digests(source: Mapping[str, Any]) -> bool:
    """Return whether all files of an input have a digest, or none has, as in format 1."""
    names, digests = source.get("files"), source.get("sha256")
    if digests is None:
        return True
    if not isinstance(names, list) or not isinstance(digests, list) or not len(names) == len(digests) > 0:
        return False
    named = all(isinstance(name, str) and Path(name).name == name for name in names)
    return named and all(isinstance(digest, str | None) for digest in digests)


def _are_counts(value: Any, *names: str) -> bool:
    """Return whether a value is an object of integers that includes these names."""
    return isinstance(value, dict) and set(names) <= set(value) and all(type(n) is int for n in value.values())


def receipt_beside(path: str | AnyPath) -> AnyPath:
    """Return the path of the receipt of a subset or its decisions."""
    path = path_to_read(path)
    return path.with_name(path.name.removesuffix(".parquet").removesuffix(".decisions") + ".receipt.json")


def lost_rows(receipt: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Yield decision, reason and count of rows that were not kept; with ``kept`` they add up to the input rows."""
    counts = receipt["counts"]
    for group, decision in LOST:
        named = {str(why): int(n) for why, n in receipt.get(group, {}).items() if n}
        yield from ((decision, why, n) for why, n in named.items())
        rest = int(counts["dropped" if decision == "drop" else decision]) - sum(named.values())
        if rest > 0:
            yield decision, REST[decision], rest


def read_pipeline_receipt(path: Path) -> list[tuple[str, dict[str, str]]]:
    """Return the steps of a pipeline with the digests of their files; InputError for a modified receipt."""
    return [(str(step["step"]), dict(step["outputs"])) for step in pipeline_steps(path)]


def pipeline_steps(path: Path) -> list[dict[str, Any]]:
    """Return the steps in the receipt of a pipeline; InputError for a modified receipt."""
    if not path.is_file():
        raise InputError(f"expected the receipt of a pipeline, got {path}; check the name")
    data, receipt = read_json(path, "the receipt of a pipeline, as curate wrote it")
    if isinstance(receipt, dict) and receipt.get("kind") == PIPELINE_KIND:
        check_seal(path, data, receipt)
    try:
        if receipt["kind"] != PIPELINE_KIND:
            raise ValueError
        steps = [dict(step) for step in receipt["steps"] if str(step["step"])]
        names = [file for step in steps for file in dict(step["outputs"])]
        if any(Path(name).is_absolute() for name in names):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(
            f"{path} is not the receipt of a pipeline as curate wrote it; restore it from a backup"
        ) from None
    return steps


FORMAT = 2
DIGEST = "digest"
MAX_BYTES = 16 << 20


def sealed(receipt: Mapping[str, Any]) -> bytes:
    """Return a receipt as written: canonical JSON, ending with the SHA-256 of the preceding text."""
    rest = {name: value for name, value in receipt.items() if name != DIGEST}
    return _text({**rest, DIGEST: hashlib.sha256(_text(rest)).hexdigest()})


def _text(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def read_json(path: AnyPath, what: str) -> tuple[bytes, Any]:
    """Return the bytes and the JSON value of a receipt; InputError if it is too large, unreadable or not JSON.

    ``what`` is the expected kind of receipt for messages: ``a receipt that curate wrote``.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(f"{path} is too large for a receipt ({size:,} bytes, at most {MAX_BYTES:,})")
        data = path.read(MAX_BYTES) or b"" if isinstance(path, StorePath) else path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check who owns it") from None
    try:
        return data, json.loads(data)
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON; expected {what}") from None


def check_seal(path: AnyPath, data: bytes, receipt: Mapping[str, Any]) -> None:
    """Raise InputError for a receipt of another version, or one that was changed.

    Args:
        path: of the receipt, for messages.
        data: its bytes.
        receipt: its JSON value.
    """
    number = receipt.get("format")
    if type(number) is int and number > FORMAT:
        raise InputError(
            f"{path} has format {number}, of a later version ({receipt.get('curate')}); this one reads up to {FORMAT}: "
            "upgrade curate"
        )
    if type(number) is int and 0 < number < FORMAT:
        raise InputError(
            f"{path} has format {number}, of an earlier version ({receipt.get('curate')}); this one reads {FORMAT}: "
            f"run the command that wrote it again ({_command_in(receipt)})"
        )
    if number != FORMAT or data != sealed(receipt):
        raise InputError(
            f"{path} was changed since it was written: its own digest is another; restore it from a backup"
        )


def _command_in(receipt: Mapping[str, Any]) -> str:
    """Return the command that wrote a receipt, or the names of its rules."""
    if receipt.get("kind") in OF_COMMANDS:
        return OF_COMMANDS[receipt["kind"]]
    policy = receipt.get("policy")
    rules = [str(rule.get("rule")) for rule in policy if isinstance(rule, Mapping)] if isinstance(policy, list) else []
    return ", ".join(rules) or "see its policy"
