"""Signatures of receipts: Ed25519, by a key of the user's own, in a file next to the receipt."""

import base64
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.manifest.file_set import file_set
from curate.manifest.store_path import AnyPath, path_or_store
from curate.policies.receipts import PIPELINE_KIND, read_pipeline_receipt, read_step
from curate.policies.seal import read_json
from scoring.atomic import AtomicFile
from scoring.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KIND = "signature"
SUFFIX = ".sig"
DOMAIN = b"curate receipt signature 1\n"  # so that no signature made for another purpose is one of a receipt
MOST_BYTES = 1 << 20  # of a key or a signature
KEYGEN = "make one with: ssh-keygen -t ed25519 -f KEY"


def signature_beside(receipt: AnyPath) -> AnyPath:
    """Return where the signature of a receipt lies."""
    return receipt.with_name(receipt.name + SUFFIX)


def sign(
    receipt: str | AnyPath, private_key: str | Path, *, password: str | None = None, overwrite: bool = False
) -> AnyPath:
    """Sign a receipt with a private key; the signature is next to it, and the receipt is not touched.

    What is signed is the receipt's bytes. As these hold the digests of all that was read and written, a signature
    represents the subset too, once ``curate verify`` says that it is the one of the receipt.

    Args:
        receipt: of a policy, here or in a store, or of a pipeline.
        private_key: Ed25519, in OpenSSH or PEM form, as ``ssh-keygen -t ed25519`` makes it. It is read, never kept.
        password: of the key, if it has one.
        overwrite: replace a signature that is there.

    Returns:
        The signature's path, ``NAME.receipt.json.sig``.

    Raises:
        InputError: for a receipt that was changed, a key that is not among Ed25519, or a missing or wrong password.
        MissingExtraError: without the ``sign`` extra.
    """
    receipt = path_or_store(receipt)
    out = signature_beside(receipt)
    data = _receipt_bytes(receipt)
    private = _private(Path(private_key), password)
    with file_set([out], overwrite=overwrite) as files:
        file = AtomicFile(files.draft(out), overwrite=overwrite)
        try:
            file.write(_text(_signature(receipt, data, private)))
            files.commit([file])
        finally:
            file.discard()
    return out


def _signature(receipt: AnyPath, data: bytes, private: "Ed25519PrivateKey") -> dict[str, Any]:
    signature = private.sign(DOMAIN + data)
    return {
        "kind": KIND,
        "algorithm": "Ed25519",
        "receipt": receipt.name,
        "sha256": hashlib.sha256(data).hexdigest(),
        "public_key": _raw(private.public_key()).hex(),
        "signature": base64.b64encode(signature).decode(),
    }


def check_signature(receipt: AnyPath, public_key: Path) -> str:
    """Return the fingerprint of a public key that signed a receipt, as ``ssh-keygen -l`` prints it.

    Args:
        receipt: with its signature next to it.
        public_key: Ed25519, in OpenSSH (``ssh-ed25519 AAAA...``) or PEM form.

    Raises:
        InputError: if there is no signature, it is of another key or of other bytes, or the key cannot be read.
        MissingExtraError: without the ``sign`` extra.
    """
    public = _public(public_key)
    from cryptography.exceptions import InvalidSignature

    path = signature_beside(receipt)
    if not path.is_file():
        raise InputError(f"{receipt} is not signed: expected {path.name} next to it; sign it with curate sign")
    noted = _read_signature(path)
    raw = _raw(public)
    if noted["public_key"] != raw.hex():
        other = fingerprint(bytes.fromhex(noted["public_key"]))
        raise InputError(f"{receipt} is signed by another key ({other}), not by {public_key} ({fingerprint(raw)})")
    try:
        public.verify(base64.b64decode(noted["signature"], validate=True), DOMAIN + _bytes(receipt))
    except InvalidSignature:
        raise InputError(f"{path} does not sign {receipt.name}: it was changed, or forged; sign again") from None
    return fingerprint(raw)


def fingerprint(raw: bytes) -> str:
    """Return the fingerprint of a public key of 32 bytes, as ``ssh-keygen -l`` prints it."""
    kind = b"ssh-ed25519"
    blob = len(kind).to_bytes(4, "big") + kind + len(raw).to_bytes(4, "big") + raw
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _receipt_bytes(receipt: AnyPath) -> bytes:
    """The bytes of a receipt that is what was written."""
    if not receipt.is_file():
        raise InputError(f"expected a receipt (NAME.receipt.json), got {receipt}; check the name")
    data, value = read_json(receipt, "a receipt that curate wrote")
    if isinstance(value, dict) and value.get("kind") == PIPELINE_KIND and isinstance(receipt, Path):
        read_pipeline_receipt(receipt)
    else:
        read_step(receipt)
    return data


def _bytes(path: AnyPath) -> bytes:
    return read_json(path, "a receipt that curate wrote")[0]


def _text(noted: dict[str, Any]) -> bytes:
    return (json.dumps(noted, indent=2) + "\n").encode()


def _read_signature(path: AnyPath) -> dict[str, str]:
    """Read a signature; every byte of it must be as it was written."""
    data = _file(path, "a signature")
    try:
        noted = json.loads(data)
        names = ("kind", "algorithm", "receipt", "sha256", "public_key", "signature")
        whole = (
            tuple(noted) == names
            and noted["kind"] == KIND
            and noted["algorithm"] == "Ed25519"
            and noted["receipt"] + SUFFIX == path.name
            and len(bytes.fromhex(noted["public_key"])) == 32
            and len(base64.b64decode(noted["signature"], validate=True)) == 64
            and noted["sha256"] == hashlib.sha256(_bytes(path.with_name(noted["receipt"]))).hexdigest()
            and _text(noted) == data
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        whole, noted = False, {}
    if not whole:
        raise InputError(
            f"{path} is not a signature of the receipt next to it: one of both was changed; sign again with curate sign"
        )
    return dict(noted)


def _file(path: AnyPath, what: str) -> bytes:
    if not path.is_file():
        raise InputError(f"expected {what} at {path}, which is no file; check the name")
    try:
        with path.open("rb") if isinstance(path, Path) else path.open() as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check who owns it") from None
    if len(data) > MOST_BYTES:
        raise InputError(f"expected {what} at {path}, got more than {MOST_BYTES >> 20} MiB; check the name")
    return data


def _private(path: Path, password: str | None) -> "Ed25519PrivateKey":
    """Read a private key, OpenSSH or PEM."""
    serialization, ed25519 = _library()
    data = _file(path, "a private key")
    secret = None if password is None else password.encode()
    if data.startswith((b"ssh-", b"-----BEGIN PUBLIC KEY")):
        raise InputError(f"expected a private key at {path}, got a public one; give the file without .pub")
    load = serialization.load_ssh_private_key if b"OPENSSH" in data[:64] else serialization.load_pem_private_key
    try:
        key = load(data, secret)
    except TypeError:
        raise InputError(_password_words(path, password)) from None
    except Exception as error:  # what a key can be wrong by is of many classes
        if "bcrypt" in str(error):
            raise MissingExtraError(f"the password of {path}", "sign") from None
        if _wants_password(error, password):
            raise InputError(_password_words(path, password)) from None
        raise InputError(f"{path} is not a private key that can be read; {KEYGEN}") from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise InputError(f"expected an Ed25519 key at {path}, got {type(key).__name__}; {KEYGEN}")
    return key


def _wants_password(error: Exception, password: str | None) -> bool:
    words = str(error).lower()
    return "password" in words or "decrypt" in words or (password is not None and "checksum" in words)


def _password_words(path: Path, password: str | None) -> str:
    if password is None:
        return f"{path} has a password; name the variable that holds it with --password-env, or sign with another key"
    return f"{path} does not open with that password; check the variable that --password-env names"


def _public(path: Path) -> "Ed25519PublicKey":
    """Read a public key, OpenSSH or PEM."""
    serialization, ed25519 = _library()
    data = _file(path, "a public key")
    if b"PRIVATE KEY" in data[:64]:
        raise InputError(f"expected a public key at {path}, got a private one; give the .pub file")
    try:
        pem = data.startswith(b"-----")
        key = serialization.load_pem_public_key(data) if pem else serialization.load_ssh_public_key(data)
    except Exception:
        raise InputError(f"{path} is not a public key that can be read; give the .pub file of ssh-keygen") from None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise InputError(f"expected an Ed25519 key at {path}, got {type(key).__name__}; {KEYGEN}")
    return key


def _raw(public: "Ed25519PublicKey") -> bytes:
    return public.public_bytes_raw()


def _library() -> tuple[Any, Any]:
    """Import what reads keys."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingExtraError("signatures need the package cryptography", "sign") from None
    return serialization, ed25519
