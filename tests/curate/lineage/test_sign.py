"""Receipts signed with the user's own keys, as `ssh-keygen` and `openssl` make them."""

import json
import subprocess
import sys

import pytest
from chained import chain, dataset, resealed
from commandline import run

import curate
from curate.lineage.sign import check_signature, fingerprint, sign
from scoring.errors import InputError

pytest.importorskip("cryptography", reason="the sign extra is not installed")

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

FORMS = {
    "openssh": (PrivateFormat.OpenSSH, Encoding.OpenSSH, PublicFormat.OpenSSH),
    "pem": (PrivateFormat.PKCS8, Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
}


def key_pair(folder, name, form="openssh", key=None, password=None):
    """Write a key and its public half, in the form of either tool."""
    key = key or ed25519.Ed25519PrivateKey.generate()
    private, encoding, public = FORMS[form]
    how = NoEncryption() if password is None else BestAvailableEncryption(password)
    (folder / name).write_bytes(key.private_bytes(Encoding.PEM, private, how))
    (folder / f"{name}.pub").write_bytes(key.public_key().public_bytes(encoding, public))
    return folder / name, folder / f"{name}.pub"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signed")
    dataset(folder)
    return folder, chain(folder)[1].receipt


@pytest.fixture
def receipt(made):
    before = made[1].read_bytes()
    yield made[1]
    made[1].write_bytes(before)
    made[1].with_name(made[1].name + ".sig").unlink(missing_ok=True)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_signed_with_a_key_is_found_signed_by_its_public_half(receipt, tmp_path, form):
    private, public = key_pair(tmp_path, "anna", form)
    before = receipt.read_bytes()
    out = sign(receipt, private)
    assert out.name == receipt.name + ".sig"
    assert receipt.read_bytes() == before
    proof = curate.verify(receipt, signed_by=public)
    assert proof.identical
    assert proof.signed_by.startswith("SHA256:")
    assert run("verify", receipt, "--signed-by", public).stdout.startswith(f"signed by {proof.signed_by}\n")
    with pytest.raises(InputError, match="exists already"):
        sign(receipt, private)


def test_the_fingerprint_is_that_of_ssh_keygen(tmp_path):
    _, public = key_pair(tmp_path, "anna")
    try:
        told = subprocess.run(["ssh-keygen", "-l", "-f", public], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("ssh-keygen is not installed")
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    raw = load_ssh_public_key(public.read_bytes()).public_bytes_raw()
    assert fingerprint(raw) == told.split()[1]


def test_every_way_to_be_wrong_is_one_line(receipt, tmp_path):
    private, public = key_pair(tmp_path, "anna")
    _, other = key_pair(tmp_path, "eve")
    curve, curve_public = key_pair(tmp_path, "curve", key=ec.generate_private_key(ec.SECP256R1()))
    locked, _ = key_pair(tmp_path, "locked", "pem", password=b"secret")
    (tmp_path / "text").write_text("no key at all")
    for key, said in (
        (curve, "expected an Ed25519 key"),
        (public, "got a public one"),
        (locked, "has a password"),
        (tmp_path / "text", "is not a private key that can be read"),
        (tmp_path / "none", "which is no file"),
        (tmp_path, "which is no file"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            sign(receipt, key)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="does not open with that password"):
        sign(receipt, locked, password="wrong")
    with pytest.raises(InputError, match=r"is not signed: expected best\.receipt\.json\.sig next to it"):
        check_signature(receipt, public)
    sign(receipt, private)
    for key, said in (
        (other, "is signed by another key"),
        (private, "got a private one"),
        (curve_public, "expected an Ed25519 key"),
        (tmp_path / "text", "is not a public key that can be read"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            curate.verify(receipt, signed_by=key)
        assert "\n" not in str(caught.value)


def test_a_receipt_that_was_forged_and_sealed_again_is_not_the_one_that_was_signed(receipt, tmp_path):
    private, public = key_pair(tmp_path, "anna")
    out = sign(receipt, private)
    signature = json.loads(out.read_text())
    resealed(receipt, lambda r: r["policy"][0].update(amount="60%"))
    with pytest.raises(InputError, match="one of both was changed"):
        check_signature(receipt, public)
    import hashlib

    signature["sha256"] = hashlib.sha256(receipt.read_bytes()).hexdigest()
    out.write_text(json.dumps(signature, indent=2) + "\n")
    with pytest.raises(InputError, match="does not sign best"):
        check_signature(receipt, public)


def test_a_signature_is_of_the_receipt_beside_it_and_every_byte_of_it_counts(receipt, tmp_path):
    private, public = key_pair(tmp_path, "anna")
    out = sign(receipt, private)
    whole = out.read_bytes()
    for at in range(len(whole)):
        out.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(InputError):
            check_signature(receipt, public)


def test_a_changed_receipt_is_not_signed(receipt, tmp_path):
    private, _ = key_pair(tmp_path, "anna")
    receipt.write_bytes(receipt.read_bytes().replace(b'"kept"', b'"kepd"'))
    with pytest.raises(InputError, match="was changed since it was written"):
        sign(receipt, private)


def test_the_command_takes_the_password_from_the_environment(receipt, tmp_path, monkeypatch):
    locked, public = key_pair(tmp_path, "locked", "pem", password=b"secret")
    missing = run("sign", receipt, "--private-key", locked, "--password-env", "CURATE_TEST_PW")
    assert "which is not set" in missing.stderr
    monkeypatch.setenv("CURATE_TEST_PW", "secret")
    done = run("sign", receipt, "--private-key", locked, "--password-env", "CURATE_TEST_PW", "--json")
    assert json.loads(done.stdout) == {"signature": f"{receipt}.sig"}
    assert check_signature(receipt, public)


def test_without_the_package_one_line_names_the_extra(receipt, tmp_path):
    private, public = key_pair(tmp_path, "anna")
    for words in (["sign", receipt, "--private-key", private], ["verify", receipt, "--signed-by", public]):
        code = "import sys; sys.modules['cryptography'] = None\nimport curate.cli; curate.cli.app(sys.argv[1:])"
        done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "pip install 'kappa-curate[sign]'" in done.stderr
