"""A source of images -> what a training run or a cache reads."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from scoring.errors import InputError

if TYPE_CHECKING:
    from curate.manifest import Manifest
    from scoring.images import Preprocessing
    from trainers.data import TrainingSet


def open_source(data: Sequence[str], limit: int | None, label_from_folder: bool) -> "Manifest":
    """Return the manifest of one source, or of several together."""
    from curate.manifest import SourceOptions, open_manifest

    options = SourceOptions(limit=limit, label_from_folder=label_from_folder)
    return open_manifest(data[0] if len(data) == 1 else list(data), options)


def labels_of(manifest: "Manifest", label: str, method: str) -> list[Any]:
    """Return the class of each image.

    Raises:
        InputError: if there is no such column, or nothing in it.
    """
    if label not in manifest.schema.names:
        columns = ", ".join(manifest.schema.names)
        raise InputError(
            f"{method} needs labels, and there is no column {label!r} (columns: {columns}); "
            "name one with --label, or use --label-from-folder"
        )
    labels = manifest.rows(0, manifest.n_rows).column(label).to_pylist()
    if all(value is None for value in labels):
        raise InputError(
            f"{method} needs labels, and none of {len(labels):,} images has one in {label!r}; "
            "expected a sub-folder for each class, or another column (--label)"
        )
    return labels


def losses_of(manifest: "Manifest", column: str) -> list[float | None]:
    """Return the loss that the user computed for each image.

    Raises:
        InputError: if there is no such column, or it does not hold numbers.
    """
    import pyarrow as pa

    if column not in manifest.schema.names:
        raise InputError(
            f"there is no column {column!r} to take losses from (columns: {', '.join(manifest.schema.names)}); "
            "name one with --loss-column"
        )
    kind = manifest.schema.field(column).type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise InputError(f"expected numbers in the column of losses {column!r}, got {kind}; name another")
    return manifest.rows(0, manifest.n_rows).column(column).to_pylist()


def load_images(
    manifest: "Manifest",
    preprocessing: "Preprocessing",
    labels: list[Any] | None,
    losses: list[float | None] | None,
    line: Callable[[str], None],
) -> "TrainingSet":
    """Return the images of a manifest, decoded and in memory, and say what was left out."""
    from trainers.data import load_training_set

    images = load_training_set(
        manifest.readers(0, manifest.n_rows), labels, n=manifest.n_rows, preprocessing=preprocessing, losses=losses
    )
    say_failures(images.failures, line)
    return images


def say_failures(failures: dict[str, int], line: Callable[[str], None]) -> None:
    """Say how many images could not be read, and why."""
    from curate.manifest.names import some

    if failures:
        kinds = ", ".join(f"{n:,} {status}" for status, n in sorted(failures.items()))
        line(f"left out {some(sum(failures.values()), 'image')} that cannot be read: {kinds}")
