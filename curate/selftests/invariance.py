"""Changes that must not affect a score: batch size, order, other images, device, engine, precision."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from curate.columns import KEY, URI
from curate.engines.score import score
from curate.manifest.contract import Manifest, ReadError, SourceOptions
from curate.manifest.sources import open_manifest
from curate.selftests.contract import BROKEN, HOLDS, SAME, UNTRIED, Check
from curate.tables.digests import key_array, plain, tie_breaks
from curate.tables.images import Images, drawn_rows, readers_in_order
from curate.tables.table import Table, open_table
from scoring.errors import InputError
from scoring.images import DecodeError, decode_rgb
from scoring.metrics.ranking import spearman
from scoring.metrics.resampling import Interval
from scoring.relative.columns import LOCAL
from scoring.relative.columns import PER_IMAGE as OF_DATASET

FEWEST = 20  # minimal number of images
COMPANY = 1_000  # further images of a source
IMAGE = "image"
STEP = 65_536  # rows of a source looked at together
MOST = 200  # images that are scored again in every way
EXACT, CLOSE, NEAR = 0.0, 1e-4, 1e-3
RANK = 0.99  # rank correlation that half precision and another backend must reach
DATASET_RANK = 0.9  # the same for scores relative to the dataset
Scored = Mapping[str, Mapping[str, float]]  # column -> key -> value


@dataclass(frozen=True)
class ImageSample:
    """N images with their bytes, stored in a table.

    Attributes:
        path: of a Parquet file with ``key``, ``image`` and the user's columns, one row group per image.
        keys: of the rows, text.
        unread: number of drawn images that could not be read or decoded.
        white: white level of 16-bit images; None to determine it.
    """

    path: Path
    keys: list[str]
    unread: int
    white: int | None = None

    def data(self) -> Iterator[bytes]:
        """Yield the bytes of each image."""
        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(batch_size=1, columns=[IMAGE]):
                yield batch.column(0)[0].as_py()

    def first(self, n: int) -> pa.Table:
        """Return the first n rows, or all if there are fewer."""
        with pq.ParquetFile(self.path) as file:
            return file.read_row_groups(range(min(n, file.num_row_groups)))

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments for ``score`` to read the sample."""
        return {"key": KEY, "image_column": IMAGE, "white": self.white}


def of_table(table: Table, n: int, folder: Path, *, seed: int, source: str | None) -> ImageSample:
    """Draw up to n images of a scored table, at most half of them; InputError if fewer than 20 can be read."""
    rows = drawn_rows(table, 2 * n, seed=seed)
    rows = np.sort(rows[: min(n, -(-len(rows) // 2))])
    images = Images.of(table, rows, source=source, partial=True)
    if len(rows) and not images.named:
        raise InputError(f"{table.path} holds no path to any image; pass what was scored as --source")
    with _Writer(folder / "sample.parquet") as writer:
        for image in images.read(rows.tolist()):
            writer.add(image.key, image.data, problem=f"{image.key}: {image.problem}")
    return _enough(writer.sample(), f"{table.path}{writer.problem}")


def of_source(
    source: Any, n: int, folder: Path, *, seed: int, options: SourceOptions, announce: Callable[[str], None]
) -> tuple[ImageSample, ImageSample]:
    """Draw up to n images of a source, at most half of them, and up to 1,000 others.

    The drawn keys do not depend on the order of the source.

    Returns:
        The images to test, and all drawn images including these.

    Raises:
        InputError: if the source cannot be opened, or fewer than 20 of the images to test can be read.
    """
    manifest = open_manifest(source, options)
    announce(manifest.description)
    drawn = _drawn(manifest, n + COMPANY, seed)
    tested = set(drawn[: min(n, -(-len(drawn) // 2))].tolist())
    places = np.sort(drawn)
    with _Writer(folder / "sample.parquet") as few, _Writer(folder / "company.parquet") as all_of_them:
        for place, read in zip(places.tolist(), readers_in_order(manifest, places), strict=True):
            row, data, problem = manifest.rows(place, place + 1), None, ""
            try:
                data = read()
            except ReadError as error:
                problem = str(error)
            key = str(row.column(KEY)[0].as_py())
            if place in tested:
                few.add(key, data, user_columns=row, problem=problem)
            all_of_them.add(key, data, user_columns=row, problem=problem)
    return _enough(few.sample(), f"{manifest.description}{few.problem}"), all_of_them.sample()


def _drawn(manifest: Manifest, n: int, seed: int) -> NDArray[np.int64]:
    """Return up to n rows with the lowest key hashes, lowest first."""
    best, rows = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    for start in range(0, manifest.n_rows, STEP):
        keys = manifest.rows(start, min(start + STEP, manifest.n_rows)).column(KEY).combine_chunks()
        best = np.concatenate([best, tie_breaks(key_array(plain(keys)), seed=seed)])
        rows = np.concatenate([rows, start + np.arange(len(keys))])
        least = np.argsort(best, kind="stable")[:n]
        best, rows = best[least], rows[least]
    return rows


class _Writer:
    """Writes images one by one; images that do not decode are counted and skipped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""  # of the first that cannot be read
        self._keys: list[str] = []
        self._unread = 0
        self._file: pq.ParquetWriter | None = None

    def add(self, key: str, data: bytes | None, *, user_columns: pa.Table | None = None, problem: str = "") -> None:
        """Add an image with one row of the user's columns, or count one that cannot be read."""
        if data is None or not _decodes(data):
            self._unread += 1
            self.problem = self.problem or (f"; {problem}" if data is None else "")
            return
        present = user_columns if user_columns is not None else pa.table({})
        columns = {name: present.column(name) for name in present.column_names if name not in (KEY, URI, IMAGE)}
        line = pa.table({KEY: [key], **columns, IMAGE: pa.array([data], pa.large_binary())})
        if self._file is None:
            self._file = pq.ParquetWriter(self.path, line.schema, compression="none")
        self._file.write_table(line.cast(self._file.schema))
        self._keys.append(key)

    def sample(self) -> ImageSample:
        """Return the sample as written."""
        return ImageSample(self.path, self._keys, self._unread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _enough(sample: ImageSample, name: str) -> ImageSample:
    if len(sample.keys) < FEWEST:
        raise InputError(
            f"expected at least {FEWEST} readable images to test, and as many others, got {len(sample.keys)} "
            f"of {name}; use more images, or pass their folder as the source"
        )
    return sample


def _decodes(data: bytes) -> bool:
    try:
        decode_rgb(data)
    except DecodeError:
        return False
    return True


@dataclass(frozen=True)
class Way:
    """Another way to score the same images.

    Attributes:
        what: its name.
        settings: keywords of ``score`` in addition to the reference's.
        tolerance: the largest allowed difference, relative to the value or the column's standard deviation, whichever
            is larger; None to compare ranks.
        rows: "shuffled", or "half" of the images; empty for all in order.
        needs: required package or device; empty for none.
    """

    what: str
    settings: Mapping[str, Any]
    tolerance: float | None = CLOSE
    rows: str = ""
    needs: str = ""


WAYS: tuple[Way, ...] = (  # to add one, add a line
    Way("the same again", {"workers": 1}, EXACT),
    Way("one at a time", {"batch_size": 1}),
    Way("batches of 7", {"batch_size": 7}),
    Way("parts of 9 rows", {"shard_size": 9}),
    Way("another order", {}, rows="shuffled"),
    Way("half the company", {}, rows="half"),
    Way("the engine ray", {"engine": "ray"}, EXACT, needs="ray"),
    Way("a GPU", {"device": "cuda"}, NEAR, needs="cuda"),
    Way("half precision", {"precision": "bf16"}, None),
    Way("the backend openvino", {"backend": "openvino"}, None, needs="openvino"),
)


def unchanged(
    sample: ImageSample,
    folder: Path,
    model: str | Path,
    *,
    columns: Sequence[str] | None = None,
    fit: bool,
    ways: Sequence[Way] = WAYS,
    announce: Callable[[str], None] = lambda text: None,
) -> list[Check]:
    """Score images in every way and compare with single precision on a CPU; one check per way and column.

    Args:
        sample: of which the first 200 are used.
        folder: for temporary tables.
        model: a shipped model or a checkpoint.
        columns: to compare; None for every score.
        fit: whether to compare scores fitted to the dataset too: by ranks, except for ways that must give the same
            bits; and not for ways with another dataset.
        ways: to score in.
        announce: called with each way.
    """
    work = _Work(sample, folder, str(model), fit)
    reference = work.scored(Way("reference", {"workers": 2}))
    names = [name for name in reference if columns is None or name in columns]
    checks = []
    for way in ways:
        missing = _missing(way)
        if missing:
            checks.append(Check(SAME, way.what, "", UNTRIED, missing))
            continue
        announce(f"scoring {len(work.keys):,} images again: {way.what}")
        try:
            scored = work.scored(way)
        except InputError as error:  # such as a Ray that cannot start here, or a network that OpenVINO does not take
            checks.append(Check(SAME, way.what, "", UNTRIED, str(error)))
            continue
        checks += _compared(way, reference, scored, names)
    return checks


def _missing(way: Way) -> str:
    """Return why a way is unavailable here; empty if it is available."""
    if way.needs == "cuda":
        return "" if torch.cuda.is_available() else "there is no GPU"
    return f"{way.needs} is not installed" if way.needs and find_spec(way.needs) is None else ""


class _Work:
    """Scoring of the same images in several ways."""

    def __init__(self, sample: ImageSample, folder: Path, model: str, fit: bool) -> None:
        self.sample, self.folder, self.model = sample, folder, model
        self.keys = sample.keys[:MOST]
        self.images = sample.first(MOST)
        self.fit = fit and len(self.keys) >= FEWEST
        self.tried = 0

    def scored(self, way: Way) -> Scored:
        """Return the scores of one way: column -> key -> value."""
        self.tried += 1
        source, out = self.folder / f"way{self.tried}.parquet", self.folder / f"way{self.tried}.scores.parquet"
        rows = np.arange(len(self.keys))
        if way.rows == "shuffled":
            rows = np.random.default_rng(1).permutation(rows)
        if way.rows == "half":
            rows = rows[::2]
        pq.write_table(self.images.take(rows), source, row_group_size=64)
        settings = {"device": "cpu", "precision": "fp32", "fit": self.fit and way.rows != "half", **way.settings}
        if "backend" in settings:  # a separate process: forking after OpenVINO crashes
            _by_command(source, out, self.model, settings)
        else:
            score(source, out, model=self.model, **self.sample.keywords(), quality=False, **settings)
        return _columns_of(out)


def _by_command(source: Path, out: Path, model: str, settings: Mapping[str, Any]) -> None:
    """Score in a separate process."""
    line = [sys.executable, "-m", "curate", "score", str(source), "-o", str(out), "--model", model]
    line += ["--key", KEY, "--image-column", IMAGE, "--no-quality", "--quiet"]
    line += [] if settings["fit"] else ["--no-fit"]
    for name in ("device", "precision", "backend"):
        line += [f"--{name}", str(settings[name])]
    done = subprocess.run(line, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode:
        message = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
        raise InputError(f"--backend {settings['backend']} cannot score here: {message}")


def _columns_of(path: Path) -> Scored:
    table = open_table(path)
    names = [name for name in table.schema.names if name.startswith(("kappa_", "unc_"))]
    rows = table.read([KEY, *names]).to_pydict()
    return {name: dict(zip(rows[KEY], rows[name], strict=True)) for name in names}


def _compared(way: Way, reference: Scored, scored: Scored, names: Sequence[str]) -> Iterator[Check]:
    for name in names:
        if name not in scored:
            yield Check(SAME, way.what, name, UNTRIED, "the dataset is another one")
            continue
        if name == LOCAL and way.tolerance is None:  # rounding changes the order of similar images
            yield Check(SAME, way.what, name, UNTRIED, "an order of dropping, which rounding changes")
            continue
        keys = list(scored[name])
        before, after = (_values(scores[name], keys) for scores in (reference, scored))
        by_rank = way.tolerance is None or (name in OF_DATASET and way.tolerance > 0)
        yield _ranks(way, name, before, after) if by_rank else _differences(way, name, before, after)


def _values(column: Mapping[str, float], keys: Sequence[str]) -> NDArray[np.float64]:
    return np.array([np.nan if column[key] is None else column[key] for key in keys], np.float64)


def _differences(way: Way, name: str, before: NDArray[np.float64], after: NDArray[np.float64]) -> Check:
    """Return the check of the largest difference of values."""
    if (np.isnan(before) != np.isnan(after)).any():
        return Check(SAME, way.what, name, BROKEN, "a score is present in only one of the runs", images=len(before))
    known = ~np.isnan(before)
    unit = np.maximum(np.abs(before[known]), before[known].std() if known.any() else 0.0)
    gap = np.abs(after[known] - before[known])
    most = float(np.divide(gap, unit, out=np.where(gap > 0, np.inf, 0.0), where=unit > 0).max(initial=0.0))
    tolerance = way.tolerance or 0.0
    state = HOLDS if most <= tolerance else BROKEN
    difference = "equal bits" if most == 0 else f"differs by up to {most:.2g} of its size (at most {tolerance:g})"
    return Check(SAME, way.what, name, state, difference, Interval(most, np.nan, np.nan), int(known.sum()))


def _ranks(way: Way, name: str, before: NDArray[np.float64], after: NDArray[np.float64]) -> Check:
    """Return the check of the rank correlation of values."""
    known = ~(np.isnan(before) | np.isnan(after))
    rank = spearman(before[known], after[known])
    least = DATASET_RANK if name in OF_DATASET else RANK
    state = HOLDS if known.all() and rank >= least else BROKEN
    correlation = f"rank correlation {rank:.4f} (at least {least:g})"
    return Check(SAME, way.what, name, state, correlation, Interval(rank, np.nan, np.nan), int(known.sum()))
