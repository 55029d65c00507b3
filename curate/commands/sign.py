"""``curate sign``: a signature next to a receipt, by a key of the user's own."""

import os
from pathlib import Path
from typing import Annotated

import typer

from curate.commands import options
from curate.commands.printing import emit, say
from scoring.errors import InputError


def run(
    receipt: Annotated[
        Path, typer.Argument(parser=options.given_output, help="NAME.receipt.json, or pipeline.receipt.json.")
    ],
    private_key: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Ed25519, as ssh-keygen writes it, or PEM.", show_default=False),
    ],
    password_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable with the password of the key.", show_default=False),
    ] = None,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Sign a receipt with your own key, in a file next to it.

    Example:

    \b
        curate sign kept.receipt.json --private-key anna
        curate verify kept.receipt.json --signed-by anna.pub

    `ssh-keygen -t ed25519 -f anna` makes the keys anna and anna.pub. The receipt holds the digests of all that was
    read and written, so its signature represents all of that.
    """
    from curate.lineage.sign import sign

    password = None
    if password_env is not None:
        password = os.environ.get(password_env)
        if password is None:
            raise InputError(f"expected the password in the environment variable {password_env}, which is not set")
    out = sign(receipt, private_key, password=password, overwrite=overwrite)
    if json_:
        emit({"signature": str(out)})
    if not quiet:
        say(f"signature: {out}")
