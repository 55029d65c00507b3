"""Room for arrays that may be larger than the memory."""

import errno

import numpy as np
import pytest
import torch

from scoring import arrays
from scoring.arrays import zeros_or_memmap
from scoring.errors import InputError
from scoring.tasks import IN_PROCESS


def test_space_beyond_the_memory_is_a_file_without_a_name(monkeypatch, tmp_path):
    monkeypatch.setattr(arrays.tempfile, "tempdir", str(tmp_path))
    assert type(zeros_or_memmap((10, 4), np.dtype(np.int8))) is np.ndarray
    monkeypatch.setattr(arrays, "IN_MEMORY", 39)
    large = zeros_or_memmap((10, 4), np.dtype(np.int8))
    large[:] = 3
    assert isinstance(large, np.memmap)
    assert large.sum() == 120
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_is_reported_before_anything_is_written(monkeypatch):
    def full(_handle, _start, _size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(arrays, "IN_MEMORY", 7)
    monkeypatch.setattr(arrays.os, "posix_fallocate", full)
    with pytest.raises(InputError, match=r"No space left .*TMPDIR"):
        zeros_or_memmap((2, 1), np.dtype(np.float32))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32, torch.int64])
def test_room_for_tensors_beyond_the_memory_holds_what_one_in_memory_holds(monkeypatch, tmp_path, kind):
    monkeypatch.setattr(arrays.tempfile, "tempdir", str(tmp_path))
    numbers = torch.arange(12).reshape(3, 4)
    inside = IN_PROCESS.room((3, 4), kind).value
    monkeypatch.setattr(arrays, "IN_MEMORY", 7)
    outside = IN_PROCESS.room((3, 4), kind).value
    for tensor in (inside, outside):
        tensor[:] = numbers.to(kind)
    assert outside.dtype == inside.dtype == kind
    assert torch.equal(outside, inside)
    assert list(tmp_path.iterdir()) == []
