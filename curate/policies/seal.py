"""The seal of a receipt: a digest of its canonical text, which detects every change."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from curate.manifest.store_path import AnyPath, StorePath
from scoring.errors import InputError

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
    """Raise InputError for a receipt that was changed, or written by a later version.

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
    if number != FORMAT or data != sealed(receipt):
        raise InputError(
            f"{path} was changed since it was written: its own digest is another; restore it from a backup"
        )
