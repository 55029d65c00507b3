"""From a source of images to the data of a training run or a cache."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from curate.columns import FOLDER, KEY
from curate.counted import counted
from curate.options.values import part_of
from scoring.errors import InputError
from scoring.lookup import name_list, require_known

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from curate.manifest.contract import Manifest
    from curate.training.recipe import TrainRequest
    from scoring.images import Preprocessing
    from scoring.marks import Marks
    from trainers.cache import CachedFeatures
    from trainers.config import TrainConfig
    from trainers.data import TrainingSet
    from trainers.stream import ImageStream
    from trainers.views import Data

MOST_INTEGER = 2.0**53  # largest integer up to which float64 is exact


Losses = Sequence[float | None] | None  # of each image


def open_source(data: Sequence[str], options: object) -> "Manifest":
    """Return the manifest of one source, or of several together, read as the options of the command say."""
    from curate.manifest.contract import SourceOptions
    from curate.manifest.sources import open_manifest

    return open_manifest(data[0] if len(data) == 1 else list(data), part_of(SourceOptions, options))


def white_of(manifest: "Manifest", white: int | None, line: Callable[[str], None]) -> int:
    """Return the white level of a source's 16-bit images: as given, or detected and reported."""
    from curate.engines.white import find_white

    if white is not None:
        return white
    sampled = find_white(manifest)
    for text in sampled.words():
        line(text)
    return sampled.white


def label_column(manifest: "Manifest", label: str, method: str) -> "pa.Array":
    """Return the class of each image, shape (N,), as text or integers; InputError if there is no usable column."""
    if not names_classes(manifest, label):
        columns = name_list(manifest.schema.names, label)
        raise InputError(
            f"{method} needs labels, and there is no column {label!r} (columns: {columns}); choose one with "
            "--label, or use --label-from-folder"
        )
    from trainers.data import is_missing

    labels = class_column(manifest, label)
    if all(map(is_missing, labels.unique().to_pylist())):
        raise InputError(
            f"{method} needs labels, and none of {len(labels):,} images has one in {label!r}; "
            "expected a sub-folder for each class, or another column (--label)"
        )
    return labels


def names_classes(manifest: "Manifest", label: str) -> bool:
    """Return whether a source has this class column, or folder names as classes."""
    return label in manifest.schema.names or label == FOLDER


def class_column(manifest: "Manifest", label: str) -> "pa.Array":
    """Return classes from a column or folders as text or integers, shape (N,), for training and caches.

    Booleans become the texts "true" and "false". Integers stored as floats, as in a column with missing values, become
    integers, and NaN becomes null. Raises InputError for other types.
    """
    import pyarrow as pa

    from curate.tables.digests import is_text, plain
    from curate.tables.moved import folders_of

    rows = manifest.rows(0, manifest.n_rows)
    if label not in manifest.schema.names:
        return folders_of(rows.column(KEY).combine_chunks())
    column = plain(rows.column(label).combine_chunks())
    kind = column.type
    if pa.types.is_integer(kind):
        return column
    if is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        return _class_numbers(column, label)
    raise InputError(
        f"expected one class an image in {label!r}, got {kind}; choose a column of text, integers or booleans "
        "with --label"
    )


def _class_numbers(column: "pa.Array", label: str) -> "pa.Array":
    """Return floats as integers, null for NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = column.cast(pa.float64())
    values = pc.if_else(pc.is_nan(values), pa.scalar(None, pa.float64()), values)
    is_class = pc.and_(pc.equal(values, pc.trunc(values)), pc.less_equal(pc.abs(values), MOST_INTEGER))
    wrong = values.filter(pc.invert(is_class))
    if len(wrong):
        raise InputError(
            f"expected classes in {label!r}, got numbers with fractions ({len(wrong):,} of {len(values):,}, such as "
            f"{wrong[0].as_py():g}); choose the column of classes with --label"
        )
    return values.cast(pa.int64())


def losses_of(manifest: "Manifest", column: str, *, option: str) -> list[float | None]:
    """Return the user's precomputed loss of each image; InputError, naming ``option``, if the column has no numbers."""
    import pyarrow as pa

    require_known(column, manifest.schema.names, f"{option}: {manifest.description} has no column", "columns")
    kind = manifest.schema.field(column).type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise InputError(f"expected numbers in the column of losses {column!r}, got {kind}; choose another")
    return list(manifest.rows(0, manifest.n_rows).column(column).to_pylist())


def fitted(
    config: "TrainConfig", n: int, request: "TrainRequest", line: Callable[[str], None] = lambda text: None
) -> "TrainConfig":
    """Return a recipe whose default batch, queue and the like suit n images; report the changes.

    Args:
        config: the recipe.
        n: number of images, at least 2.
        request: its batch size and settings are not changed.
        line: called with each change.
    """
    from trainers.methods.table import METHODS

    if request.batch_size is None and n < config.batch_size:
        line(f"{n:,} images are fewer than a batch of {config.batch_size:,}: each step uses them all (--batch-size)")
        config = replace(config, batch_size=n)
    settings, suits = config.settings, METHODS[config.method].fitted(config.settings, config.batch_size, n)
    lowered = {
        name: value
        for name, value in vars(suits).items()
        if value != getattr(settings, name) and name not in request.set
    }
    for name, value in lowered.items():
        line(
            f"{name}={value} instead of {getattr(settings, name)}, for {n:,} images in batches of "
            f"{config.batch_size:,} (--set {name})"
        )
    return replace(config, settings=replace(settings, **lowered)) if lowered else config


@dataclass(frozen=True)
class Inputs:
    """The data of a training run.

    Attributes:
        data: images in memory, a stream of images, or a cache of features.
        description: one line for display.
        digest: changes when the input does.
    """

    data: "Data"
    description: str
    digest: str


def _in_memory(
    manifest: "Manifest", root: "Path | None", labels: "pa.Array | None", losses: Losses, **reading: Any
) -> "TrainingSet":
    """Return all images that can be decoded, in memory.

    ``root`` is the folder if it is the only source; ``reading`` are preprocessing, marks and white.
    """
    from curate.engines.gone import WatchedReaders
    from trainers.data import load_training_set

    watched = WatchedReaders(manifest, root)
    texts = None if labels is None else labels.to_pylist()
    images = load_training_set(watched.readers(), texts, n=manifest.n_rows, losses=losses, **reading)
    watched.check()
    return images


def _streamed(
    manifest: "Manifest", root: "Path | None", labels: "pa.Array | None", losses: Losses, **reading: Any
) -> "ImageStream":
    """Return the images as a stream that reads them again in each epoch; arguments as of ``_in_memory``."""
    from curate.engines.gone import Watch, WatchedBatches
    from curate.training.stream import stream_readers
    from trainers.data import loss_tensor, number_labels
    from trainers.stream import ImageStream

    if manifest.n_rows < 2:
        raise InputError("training needs at least 2 images, got 1; pass more")
    numbers, classes = (None, []) if labels is None else number_labels(labels)
    return ImageStream(
        manifest.n_rows,
        partial(stream_readers, manifest),
        labels=numbers,
        classes=classes,
        losses=None if losses is None else loss_tensor(losses),
        check=WatchedBatches(Watch(manifest, root)).check,
        **reading,
    )


def image_inputs(
    config: "TrainConfig",
    request: "TrainRequest",
    preprocessing: "Preprocessing",
    line: Callable[[str], None],
    marks: "Marks | None" = None,
    *,
    room: int | None = None,
) -> Inputs:
    """Return the images of a source, in memory or as a stream.

    With marks, images of a group that killed a process are decoded in separate processes.

    Args:
        config: the recipe.
        request: the options of the command; ``stream`` None keeps images in memory if they fit.
        preprocessing: of the model.
        line: called with notes for the user.
        marks: of images being decoded.
        room: bytes of device memory, if separate.

    Raises:
        InputError: for too few images (checked before decoding), missing labels or losses, or a source that disappears.
    """
    from curate.engines.gone import folder_of
    from trainers import ranks
    from trainers.data import lack_of_memory, require_batch, shared
    from trainers.methods.table import METHODS

    kind, settings = METHODS[config.method], config.settings
    manifest = open_source(request.data, request)
    line(manifest.description)
    labels = label_column(manifest, request.label, config.method) if kind.reads_labels(settings) else None
    column = kind.reads_losses(settings)
    losses = None if column is None else losses_of(manifest, column, option="--set loss_column")
    if manifest.n_rows >= 2:  # fewer cannot be trained on, which is refused below
        likely = fitted(config, manifest.n_rows, request)
        require_batch(manifest.n_rows, likely.batch_size)
        kind.check_amount(likely.settings, likely.batch_size, manifest.n_rows)
    n, size = manifest.n_rows, preprocessing.size
    lack = "" if request.stream is not None else ranks.first("memory", lambda: lack_of_memory(n, size, room) or "")
    if lack:
        line(f"{lack}: views are cut from whole images, which are read again in each epoch (--stream)")
    white = white_of(manifest, request.white, line)
    images = manifest, folder_of(request.data), labels, losses
    reading: dict[str, Any] = {"preprocessing": preprocessing, "marks": marks, "white": white}
    if request.stream or lack:
        return Inputs(_streamed(*images, **reading), manifest.description, manifest.digest)

    def load() -> "TrainingSet":
        loaded = _in_memory(*images, **reading)
        report_failures(loaded.failures, line)
        return loaded

    return Inputs(shared(load), manifest.description, manifest.digest)


def cached_inputs(config: "TrainConfig", cache: "CachedFeatures", line: Callable[[str], None]) -> Inputs:
    """Return a cache as training data, and report its facts; InputError if labels or losses are missing."""
    from trainers.methods.table import METHODS

    kind, columns = METHODS[config.method], cache.about["columns"]
    if kind.reads_labels(config.settings) and cache.labels is None:
        why = f"some of {columns['label']!r} are missing" if columns.get("label") else "it was made without"
        raise InputError(
            f"{config.method} needs labels, and {cache.folder} has none for all images ({why}); make a cache of "
            "labelled images: curate cache ... --label COLUMN"
        )
    column = kind.reads_losses(config.settings)
    if column is not None and columns.get("loss") != column:
        raise InputError(
            f"{cache.folder} holds losses from {columns.get('loss') or 'no column'}, not from {column!r}; make a cache "
            f"with curate cache ... --loss-column {column}"
        )
    size = f"{cache.epoch_bytes / 1e9:.2g} GB of memory each"
    epochs = counted(cache.about["epochs"], "epoch")
    line(f"{cache.folder}: {counted(cache.n, 'image')}, {epochs} of features {cache.width} wide, {size}")
    return Inputs(cache, cache.about["data"], cache.digest)


def report_failures(failures: dict[str, int], line: Callable[[str], None], after: str = "") -> None:
    """Report how many images could not be read, and why."""
    if failures:
        kinds = ", ".join(f"{n:,} {status}" for status, n in sorted(failures.items()))
        line(f"left out {counted(sum(failures.values()), 'image')} that cannot be read: {kinds}{after}")
