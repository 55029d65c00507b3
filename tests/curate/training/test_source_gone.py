"""Training and caches refuse a source that goes away while it is read, and leave out images that are gone alone."""

import pytest
from PIL import Image

import curate
from curate.engines import gone
from curate.engines.gone import WatchedReaders
from curate.manifest.ahead import ahead
from curate.manifest.contract import ReadError, SourceOptions
from curate.manifest.sources import open_manifest
from scoring.errors import InputError

N = 40


@pytest.fixture
def folder(tmp_path):
    for number in range(N):
        place = tmp_path / "photos" / ("cat" if number % 2 else "dog")
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), (6 * number, 90, 20)).save(place / f"{number:02}.png")
    return tmp_path / "photos"


@pytest.fixture
def vanishing(folder, monkeypatch):
    """The folder gets another name once half of its images were handed out."""

    def handed_out(readers, connections):
        for number, read in enumerate(ahead(readers, connections)):
            if number == N // 2:
                folder.rename(folder.with_name("away"))
            yield read

    monkeypatch.setattr(gone, "ahead", handed_out)
    return folder


def test_images_read_before_separate_a_lost_source_from_lost_images(folder):
    watched = WatchedReaders(open_manifest(str(folder), SourceOptions()))
    readers = list(watched.readers())
    readers[0]()
    removed = sorted(folder.rglob("*.png"))[1]
    removed.rename(folder.parent / "kept.png")
    with pytest.raises(ReadError):
        readers[1]()
    assert watched.statuses[:2] == ["ok", "missing"]
    watched.check()
    folder.rename(folder.with_name("away"))
    with pytest.raises(InputError, match="source is gone"):
        watched.check()


def test_training_ends_where_its_images_vanish(vanishing, tmp_path):
    with pytest.raises(InputError, match="source is gone"):
        curate.train("simclr", vanishing, out=tmp_path / "m.safetensors", backbone="test_resnet", epochs=1, size=32)
    assert not (tmp_path / "m.safetensors").exists()


def test_a_cache_ends_where_its_images_vanish_and_is_made_once_they_are_back(
    vanishing, tmp_path, monkeypatch, tiny_checkpoint
):
    made = {"model": tiny_checkpoint, "epochs": 1, "device": "cpu", "batch_size": 8}
    with pytest.raises(InputError, match="source is gone"):
        curate.cache(vanishing, tmp_path / "cache", **made)
    monkeypatch.setattr(gone, "ahead", ahead)
    vanishing.with_name("away").rename(vanishing)
    done = curate.cache(vanishing, tmp_path / "cache", **made)
    assert (done.images, done.failures) == (N, {})
