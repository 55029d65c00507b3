"""A source that goes away while it is scored is told from images that are gone alone."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from runs import SMALL, PhotoServer

from curate.engines.gone import Watch, folder_of
from curate.engines.journal import WorkFolder, part_path
from curate.engines.score import score
from curate.engines.shard import Span
from curate.manifest import remote
from curate.manifest.contract import ReadError, SourceOptions
from curate.manifest.sources import open_manifest
from scoring.errors import InputError

N, SHARD = 8, 4


@pytest.fixture(autouse=True)
def tries_follow_at_once(monkeypatch):
    monkeypatch.setattr(remote, "PAUSE", 0.001)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "photos").mkdir()
    for number in range(N):
        Image.new("RGB", (4, 3), (20 * number, 90, 20)).save(tmp_path / "photos" / f"{number:02}.png")
    return tmp_path / "photos"


@pytest.fixture
def server(folder):
    server = PhotoServer(folder)
    server.start()
    yield server
    server.stop()


def part(manifest, span):
    """The rows of a part with the status that reading them now gives."""
    rows, statuses = manifest.rows(span.start, span.stop), []
    for read in manifest.readers(span.start, span.stop):
        try:
            read()
            statuses.append("ok")
        except ReadError as error:
            statuses.append(error.status)
    return rows.append_column("status", pa.array(statuses))


FIRST, SECOND = Span(0, 0, SHARD), Span(1, SHARD, N)


def test_a_folder_that_goes_away_is_refused_and_is_taken_once_it_is_back(folder):
    manifest = open_manifest(str(folder))
    watch = Watch(manifest)
    watch.check(FIRST, part(manifest, FIRST))
    folder.rename(folder.with_name("away"))
    with pytest.raises(InputError, match="source is gone"):
        watch.check(SECOND, part(manifest, SECOND))
    folder.with_name("away").rename(folder)
    watch.check(SECOND, part(manifest, SECOND))


def test_a_folder_that_goes_away_before_any_image_is_read_is_known_as_typed(folder):
    manifest = open_manifest([str(folder)])
    watch = Watch(manifest, folder_of((str(folder),)))
    folder.rename(folder.with_name("away"))
    assert folder_of([folder]) == folder
    assert [folder_of(each) for each in ([], [folder, "x"], "s3://a/b", "x/*.png", __file__)] == [None] * 5
    with pytest.raises(InputError, match="source is gone"):
        watch.check(FIRST, part(manifest, FIRST))


def test_a_folder_that_goes_away_inside_a_part_is_refused(folder):
    manifest = open_manifest(str(folder))
    table = part(manifest, FIRST)
    folder.rename(folder.with_name("away"))
    later = table.set_column(2, "status", pa.array(["ok", "ok", "missing", "missing"]))
    with pytest.raises(InputError, match="source is gone"):
        Watch(manifest).check(FIRST, later)


def test_a_process_that_read_nothing_yet_checks_the_parts_of_others(folder, tmp_path):
    manifest, parts = open_manifest(str(folder)), tmp_path / "run"
    parts.mkdir()
    other = part(manifest, FIRST)
    pq.write_table(other, part_path(parts, 0))
    folder.rename(folder.with_name("away"))
    gone = part(manifest, SECOND)
    assert gone["status"].to_pylist() == ["missing"] * SHARD
    Watch(manifest).check(SECOND, gone)  # as far as it can know
    with pytest.raises(InputError, match=r"0\d.png' was read before"):
        Watch(manifest).check(SECOND, gone, parts, SHARD)
    failed = other.set_column(2, "status", pa.array(["missing"] * SHARD))
    pq.write_table(failed, part_path(parts, 0))
    Watch(manifest).check(SECOND, gone, parts, SHARD)


def test_a_run_that_goes_on_without_its_server_is_refused(folder, tmp_path, tiny_checkpoint, server):
    many(folder)
    urls = server.listed(tmp_path / "urls.txt")

    def stop(progress):
        if progress.done > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scored(urls, tmp_path, tiny_checkpoint, stop)
    server.stop()
    with pytest.raises(InputError, match="source is gone"):
        scored(urls, tmp_path, tiny_checkpoint)


def test_images_that_are_gone_alone_are_rows(folder):
    manifest = open_manifest(str(folder))
    watch = Watch(manifest)
    watch.check(FIRST, part(manifest, FIRST))
    for path in sorted(folder.iterdir())[SHARD:]:
        path.unlink()
    second = part(manifest, SECOND)
    assert second["status"].to_pylist() == ["missing"] * SHARD
    watch.check(SECOND, second)


def test_a_server_that_stops_is_a_source_that_is_gone(folder, tmp_path, server):
    urls = server.listed(tmp_path / "urls.txt")
    manifest = open_manifest(str(urls), SourceOptions(allow_private_hosts=True))
    watch = Watch(manifest)
    watch.check(FIRST, part(manifest, FIRST))
    server.stop()
    gone = manifest.rows(SHARD, N).append_column("status", pa.array(["io_error"] * SHARD))
    with pytest.raises(InputError, match="source is gone"):
        watch.check(SECOND, gone)


def test_a_folder_that_was_scanned_and_is_empty_at_the_first_part_is_refused(folder):
    manifest = open_manifest(str(folder))
    folder.rename(folder.with_name("away"))
    folder.mkdir()  # what is left of a disk that was unmounted
    with pytest.raises(InputError, match="source is gone"):
        Watch(manifest, folder).check(FIRST, part(manifest, FIRST))


def scored(source, tmp_path, checkpoint, report=lambda progress: None):
    reading = {"allow_private_hosts": True, "report": report}
    return score(source, tmp_path / "s.parquet", model=checkpoint, fit=False, **SMALL, **reading)


def many(folder, n=240):
    """More images than are read ahead of the model."""
    for number in range(N, n):
        Image.new("RGB", (4, 3), (number % 256, number // 16, 20)).save(folder / f"{number:03}.png")
    return n


def test_a_run_whose_folder_is_renamed_stops_and_goes_on_once_it_is_back(folder, tmp_path, tiny_checkpoint):
    n, away = many(folder), folder.with_name("away")

    def report(progress):
        if progress.done and folder.exists():
            folder.rename(away)

    with pytest.raises(InputError, match="source is gone"):
        scored(str(folder), tmp_path, tiny_checkpoint, report)
    assert not (tmp_path / "s.parquet").exists()
    away.rename(folder)
    result = scored(str(folder), tmp_path, tiny_checkpoint)
    assert result.statuses == {"ok": n}
    assert result.resumed > 0


def test_a_run_whose_server_stops_ends_and_goes_on_once_it_is_back(folder, tmp_path, tiny_checkpoint, server):
    n = many(folder)
    urls = server.listed(tmp_path / "urls.txt")
    with pytest.raises(InputError, match="source is gone"):
        scored(urls, tmp_path, tiny_checkpoint, lambda progress: server.stop() if progress.done else None)
    server.start()
    result = scored(urls, tmp_path, tiny_checkpoint)
    assert result.statuses == {"ok": n}
    assert result.resumed > 0


def test_a_part_that_was_read_while_its_server_was_down_is_scored_again(
    folder, tmp_path, tiny_checkpoint, server, monkeypatch
):
    n = many(folder, 20)
    urls = server.listed(tmp_path / "urls.txt")
    server.stop()
    commit = WorkFolder.commit

    def once(self, part):
        commit(self, part)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "commit", once)
        with pytest.raises(KeyboardInterrupt):
            scored(urls, tmp_path, tiny_checkpoint)
    server.start()
    assert scored(urls, tmp_path, tiny_checkpoint).statuses == {"ok": n}


@pytest.mark.slow
def test_a_run_whose_store_stops_ends_and_goes_on_once_it_is_back(folder, tmp_path, tiny_checkpoint, s3):
    n = many(folder)
    for path in folder.iterdir():
        s3.put(f"photos/{path.name}", path.read_bytes())

    def report(progress):
        if progress.done:
            s3.faults.add(".png", "reset")

    with pytest.raises(InputError, match="source is gone"):
        scored(f"{s3}/photos/", tmp_path, tiny_checkpoint, report)
    s3.faults.clear()
    result = scored(f"{s3}/photos/", tmp_path, tiny_checkpoint)
    assert result.statuses == {"ok": n}
    assert result.resumed > 0
