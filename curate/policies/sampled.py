"""What reviewers said of a drawn sample: a file of verdicts next to the file that names what was drawn."""

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from curate.manifest.store_path import AnyPath
from curate.policies.verdicts import DECISIONS, SUFFIX, Line, read_verdicts
from scoring.errors import InputError
from scoring.file_digest import file_sha256

ENDING = ".csv"  # of the file that names what was drawn
Judged = dict[tuple[str, str], dict[str, Line]]


def verdicts_beside(sample: AnyPath) -> AnyPath:
    """Return where the verdicts on a sample are: ``NAME.verdicts.jsonl`` next to ``NAME.csv``."""
    return sample.with_name(f"{sample.name.removesuffix(ENDING)}{SUFFIX}")


def verdicts_on(sample: Path) -> Judged:
    """Return, of each image that was judged and the one it was compared with, the last verdict of each reviewer.

    Args:
        sample: NAME.csv; without verdicts next to it nothing was judged.

    Raises:
        InputError: for a file that is no file of verdicts.
    """
    path = verdicts_beside(sample)
    verdicts: Judged = {}
    if not isinstance(path, Path) or not path.is_file():
        return verdicts
    for line in read_verdicts(path).live():
        if line.verdict in DECISIONS:
            for key, other in zip(line.keys, line.beside or [""] * len(line.keys), strict=True):
                verdicts.setdefault((key, other), {})[line.reviewer] = line
    return verdicts


def judged_sha256(sample: Path) -> str:
    """Return the digest of a sample and the verdicts on it; of any other file its digest."""
    verdicts = verdicts_beside(sample)
    digest = file_sha256(sample)
    if sample.suffix != ENDING or not isinstance(verdicts, Path) or not verdicts.is_file():
        return digest
    return sha256(f"{digest} {file_sha256(verdicts)}".encode()).hexdigest()


def refuse_judged(samples: Iterable[AnyPath], option: str) -> None:
    """Refuse to replace a sample on which there are verdicts.

    Args:
        samples: that would be written.
        option: that draws them.

    Raises:
        InputError: naming the verdicts.
    """
    for sample in samples:
        path = verdicts_beside(sample)
        if path.is_file():
            raise InputError(
                f"{path} holds verdicts on a sample that {option} would replace; move both, or choose another name"
            )
