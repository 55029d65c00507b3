"""Verify a subset: derive it again from its receipt; on request also earlier receipts and pixels."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.calibration.verify import verify_calibration
from curate.columns import KEY, URI
from curate.lineage.options import VerifyOptions
from curate.manifest.schemes import scheme_of
from curate.manifest.store_path import path_to_read
from curate.options.function import callable_of
from curate.options.values import several
from curate.policies import verify as one
from curate.policies.chain import Link, Searched, links, receipt_of
from curate.policies.differences import Verification
from curate.policies.findings import OTHER_CHANCES, Finding, VerificationResult
from curate.tables.images import CHANGED, SHA256, Images, drawn_rows, require_images
from curate.tables.table import Table, open_table
from scoring.errors import InputError

ALL = "all"
N_NAMED = 10
BLOCK = 16_384  # rows at a time


@dataclass
class PixelCheck(VerificationResult):
    """The result of reading images again.

    Attributes:
        table: that has the digests.
        n_rows: rows with a digest.
        n_compared: images that were read.
        n_changed: images with other bytes.
        n_lost: images that cannot be read.
        named: key and problem of the first changed or lost images.
    """

    table: str
    n_rows: int = 0
    n_compared: int = 0
    n_changed: int = 0
    n_lost: int = 0
    named: list[tuple[str, str]] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Whether every image that was read has the same bytes as when it was scored."""
        return not self.n_changed and not self.n_lost


def amount(text: str | int) -> int | None:
    """Return a requested number of rows, None for all; InputError unless it is ``all`` or an integer >= 1."""
    if text == ALL:
        return None
    try:
        n = int(text)
    except ValueError:
        n = 0
    if n < 1:
        raise InputError(
            f"--pixels takes all, or a number of rows of at least 1, got {text!r}; for example --pixels 1000"
        )
    return n


def check_pixels(
    table: Table, n: int | None, *, seed: int, source: str | None = None, roots: Sequence[Path] = ()
) -> PixelCheck:
    """Read all or some images of a table, and compare their SHA-256 with the recorded ones.

    Args:
        table: with ``key`` and ``sha256``.
        n: number of rows drawn by a hash of their keys; None for all.
        seed: of the draw.
        source: location of the images, if the table has no file paths.
        roots: if any, no image outside of these folders is read.

    Raises:
        InputError: for a table without digests or images, or an image outside of the roots.
    """
    table.require([SHA256])
    require_images(table, source)
    parts = [np.zeros(0, np.int64)]
    for start, batch in table.numbered([SHA256]):
        parts.append(start + np.flatnonzero(batch.column(0).is_valid().to_numpy(zero_copy_only=False)))
    known = np.concatenate(parts)  # rows with a digest
    rows = known if n is None else np.sort(drawn_rows(table, n, seed=seed))
    check = PixelCheck(str(table.path), len(known), len(rows))
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        if roots and source is None:
            _refuse_outside(table, block, roots)
        for image in Images.of(table, block, source=source, partial=True).read(block.tolist()):
            if not image.problem:
                continue
            changed = image.problem.startswith(CHANGED)
            check.n_changed, check.n_lost = check.n_changed + changed, check.n_lost + (not changed)
            if len(check.named) < N_NAMED:
                check.named.append((image.key, image.problem))
    return check


def _refuse_outside(table: Table, rows: NDArray[np.int64], roots: Sequence[Path]) -> None:
    real = [root.resolve() for root in roots]
    for uri in table.take(rows, [URI]).column(0).to_pylist() if URI in table.schema.names else ():
        if uri is None:
            continue
        path = Path(uri.partition(".tar::")[0] + ".tar" if ".tar::" in uri else uri)
        if scheme_of(uri) is not None or not any(path.resolve().is_relative_to(root) for root in real):
            raise InputError(
                f"{table.path} holds a path outside of --root ({uri}), which is not read; if the images "
                "moved, pass their folder as --source"
            )


@dataclass
class VerifiedStep:
    """A receipt of a chain, and the result of deriving its output again."""

    policy: str
    receipt: str
    verification: Verification


@dataclass
class Proof(Verification):
    """The result of deriving a subset again, with the steps before it.

    Attributes:
        receipt: its path.
        earlier: earlier steps, latest first; empty unless the chain was requested.
        origin: facts of the first step's input: kind, rows, model, source; empty unless the chain was requested.
        pixels: images compared with their digests; None unless requested.
    """

    receipt: str = ""
    earlier: list[VerifiedStep] = field(default_factory=list)
    origin: dict[str, Any] = field(default_factory=dict)
    pixels: PixelCheck | None = None

    @property
    def identical(self) -> bool:
        """Whether every step and all pixels are reproduced exactly."""
        steps = all(step.verification.identical for step in self.earlier)
        return super().identical and steps and (self.pixels is None or self.pixels.identical)


def run_verify(options: VerifyOptions) -> Proof:
    """Apply the receipt's policy to its input again and compare with the files next to the receipt.

    The order of rows in the input does not matter.

    Returns:
        Whether the outputs are identical, and the differences.

    Raises:
        InputError: if a receipt, an input or an output is missing or cannot be read.
    """
    roots = several(options.root)
    if options.source is not None and options.pixels is None:
        raise InputError("--source is only used with --pixels; add --pixels all, or leave it out")
    n = amount(options.pixels) if options.pixels is not None else None
    path = receipt_of(path_to_read(options.receipt))
    proof = Proof(**vars(one.verify(path, options.table, roots=roots)), receipt=str(path))
    if not options.chain and options.pixels is None:
        return proof
    searched = Searched(path.parent, tuple(map(Path, roots)))
    steps = list(links(path, searched, None if options.table is None else path_to_read(options.table)))
    if options.chain:
        proof.earlier = [_verify_step(step, roots) for step in steps[1:]]
    scored = open_table(steps[-1].input, require=[KEY])
    proof.origin = _origin(scored)
    if options.pixels is not None:
        held = tuple(Path(each) for each in roots)
        proof.pixels = check_pixels(scored, n, seed=options.seed, source=options.source, roots=held)
    return proof


verify = callable_of(VerifyOptions, run_verify)


def _verify_step(step: Link, roots: Sequence[str | Path]) -> VerifiedStep:
    if not step.is_calibration:
        return VerifiedStep(step.policy, str(step.path), one.verify(step.path, roots=roots))
    applied = verify_calibration(step.path, str(step.input))
    verification = Verification(applied.rows, input=str(step.input))
    for words in applied.problems:
        verification.problem(Finding(OTHER_CHANCES, words))
    return VerifiedStep(step.policy, str(step.path), verification)


def _origin(table: Table) -> dict[str, Any]:
    """Return how a table was made that no policy wrote, from its own metadata."""
    about = table.metadata
    model = table.noted("model")
    facts = {
        "table": str(table.path),
        "kind": about.get("kind", "table"),
        "n_rows": table.n_rows,
        "model": model.get("method"),
        "model_digest": model.get("digest"),
        "source": about.get("source"),
        "curate": about.get("curate"),
    }
    return {name: value for name, value in facts.items() if value is not None}
