"""What a test finds in a bucket, and what a command says that wrote there."""

from commandline import run


def objects(s3, prefix="run/"):
    return {name.removeprefix(prefix): s3.get(name) for name in s3.names(prefix)}


def local(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def nothing_is_left(s3, tmp_path):
    assert [name for name in s3.names() if "/." in name] == []
    assert [path for path in (tmp_path / "tmp").rglob("*") if path.is_file()] == []
    assert s3.client.list_multipart_uploads(Bucket=s3.name).get("Uploads", []) == []
    assert not list(tmp_path.glob("s3*"))


def ended(*arguments, code=0):
    result = run(*arguments)
    assert result.exit_code == code, (result.stderr, result.exception)
    return " ".join((result.stderr if code else result.stdout).split())


def one_line(*arguments):
    """What a command says that refuses."""
    result = run(*arguments)
    assert result.exit_code == 1, (result.stderr, result.exception)
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr
