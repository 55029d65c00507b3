"""Images that are read while the run goes on: their order, which of them are decoded, and what stands in for others."""

import time
from functools import partial
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from scoring.errors import InputError
from scoring.images import Preprocessing
from trainers import ranks
from trainers.data import BLOCK, WINDOW, batches, windows
from trainers.stream import CropGroup, CroppedBatches, ImageStream

N, SIZE = 20, 4


def shade(number):
    with BytesIO() as file:
        Image.new("RGB", (8, 6), (12 * number, 5, 7)).save(file, "png")
        return file.getvalue()


class Files:
    """Twenty images of one shade each, and which of them were read."""

    def __init__(self, **broken):
        self.data = {number: shade(number) for number in range(N)} | {int(k[1:]): v for k, v in broken.items()}
        self.read, self.let_go = [], False

    def readers(self, rows_of_windows):
        """Readers of a server: they fail once whoever reads has let go of those that come after them."""
        try:
            for rows in rows_of_windows:
                yield from (partial(self._get, int(row)) for row in rows)
            yield lambda: b""  # nobody asks for this one
        except GeneratorExit:
            self.let_go = True
            raise

    def _get(self, row):
        time.sleep(0.002)
        assert not self.let_go
        self.read.append(row)
        return self.data[row]

    def stream(self, **named):
        return ImageStream(N, self.readers, Preprocessing(size=SIZE, resize=SIZE), workers=2, **named)


def cropped(images, epochs=2):
    groups = [CropGroup(2, 4, (0.5, 1.0)), CropGroup(1, 2, (0.2, 0.5))]
    return CroppedBatches(images, groups, plain=True, seed=3, batch_size=6, per_epoch=3, epochs=epochs, pinned=False)


def taken(images, numbers):
    all_of_them = cropped(images)
    try:
        return [all_of_them.take(number) for number in numbers]
    finally:
        all_of_them.close()


def test_an_epoch_has_every_row_once_in_windows_of_whole_blocks():
    n = BLOCK * WINDOW * 2 + 7
    found = list(windows(n, epoch=2, seed=1))
    assert len(found) == 3
    assert max(map(len, found)) == BLOCK * WINDOW
    assert torch.equal(torch.cat(found).sort().values, torch.arange(n))
    for rows in found:
        assert set((rows // BLOCK).unique(return_counts=True)[1].tolist()) <= {BLOCK, 7}
    blocks = found[0] // BLOCK
    assert blocks.diff().count_nonzero() > 0.9 * len(blocks)  # neighbours are apart
    assert torch.equal(torch.cat(found), torch.cat(list(windows(n, epoch=2, seed=1))))
    for other in (windows(n, epoch=3, seed=1), windows(n, epoch=2, seed=2)):
        assert not torch.equal(found[0], next(other))


def test_batches_hold_the_crops_of_their_rows_in_the_order_of_the_run():
    found = taken(Files().stream(), range(6))
    wanted = [rows for epoch in range(2) for rows in batches(N, 6, epoch=epoch, seed=3, stream=True)]
    assert [batch.rows.tolist() for batch in found] == [rows.tolist() for rows in wanted]
    for batch in found:
        assert [group.shape for group in batch.groups] == [(1, 6, 3, 4, 4), (2, 6, 3, 4, 4), (1, 6, 3, 2, 2)]
        for group in batch.groups:
            assert torch.equal(group[:, :, 0].amax((0, 2, 3)), (12 * batch.rows).to(torch.uint8))


def test_a_run_that_goes_on_reads_nothing_of_what_it_has_done():
    whole, files = taken(Files().stream(), range(6)), Files()
    rest = taken(files.stream(), [4, 5])
    for one, other in zip(whole[4:], rest, strict=True):
        assert torch.equal(one.rows, other.rows)
        assert all(map(torch.equal, one.groups, other.groups))
    assert sorted(files.read) == sorted(torch.cat([batch.rows for batch in whole[4:]]).tolist())


def test_processes_read_their_parts_of_every_batch_and_no_more(monkeypatch):
    whole, parts = taken(Files().stream(), range(2, 6)), []
    for rank in range(3):
        monkeypatch.setattr(ranks, "_group", ranks.Group(rank, 3))
        files = Files()
        parts.append(taken(files.stream(), range(2, 6)))
        assert sorted(files.read) == sorted(torch.cat([batch.rows for batch in parts[-1]]).tolist())
    for batch, *some in zip(whole, *parts, strict=True):
        assert torch.equal(batch.rows, torch.cat([part.rows for part in some]))
        for group, *pieces in zip(batch.groups, *(part.groups for part in some), strict=True):
            assert torch.equal(group, torch.cat(pieces, 1))


def test_the_next_image_of_the_batch_replaces_a_broken_one():
    clean = taken(Files().stream(), [0])[0]
    rows = clean.rows.tolist()
    broken = {f"i{rows[at]}": b"no image" for at in (1, 2, 5)}
    seen = []
    stream = Files(**broken).stream(check=lambda rows, statuses: seen.append((list(rows), list(statuses))))
    batch = taken(stream, [0])[0]
    from_place = [0, 3, 3, 3, 4, 0]
    assert batch.rows.tolist() == [rows[at] for at in from_place]
    assert all(torch.equal(one, other[:, from_place]) for one, other in zip(batch.groups, clean.groups, strict=True))
    assert batch.failures == {rows[at]: "not_an_image" for at in (1, 2, 5)}
    assert seen == [(rows, ["ok", "not_an_image", "not_an_image", "ok", "ok", "not_an_image"])]


def test_a_batch_without_any_image_and_a_bug_in_a_reader_end_the_run():
    nothing = Files(**{f"i{number}": b"" for number in range(N)})
    with pytest.raises(InputError, match="none of the 6"):
        taken(nothing.stream(), [0])

    def failing(rows_of_windows):
        next(iter(rows_of_windows))
        yield partial(bytes, b"")
        raise InputError("no more credentials")

    with pytest.raises(InputError, match="credentials"):
        taken(ImageStream(N, failing, Preprocessing(size=SIZE, resize=SIZE)), [0])
    with pytest.raises(KeyError):
        taken(ImageStream(N, lambda w: (lambda: {}[1] for rows in w for _ in rows), Preprocessing(4, 4)), [0])
    assert np.all([batch.rows.numel() == 6 for batch in taken(Files().stream(), [5])])
