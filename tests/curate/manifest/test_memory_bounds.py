"""What a process holds of encoded images: one budget for all that are read, requested ahead and decoded."""

import gzip
import os
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from buckets import Server
from reading import read_all
from test_http_faults import Handler, answer

from curate.manifest import remote, schemes
from curate.manifest.ahead import ReadAhead, ahead
from curate.manifest.contract import MAX_FILE_BYTES, ReadError, RemoteReader, SourceOptions
from curate.manifest.memory import read_uri
from curate.manifest.places import find_place
from curate.manifest.reach import VARIABLE, Reach
from curate.manifest.sources import open_manifest
from scoring.errors import InputError
from scoring.images import budget
from scoring.images.budget import BODIES, ByteBudget, NeedsMemory


def in_time(condition):
    """Whether something comes true within five seconds."""
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


def test_images_wait_until_their_bytes_are_free_and_come_in_order():
    bodies, order, go = ByteBudget(limit=100), [], threading.Event()

    def first():
        with bodies.image():
            bodies.take(80)
            go.wait(10)

    def other(name, n_bytes):
        with bodies.image():
            bodies.take(n_bytes)
            order.append((name, bodies.held))

    with ThreadPoolExecutor(3) as pool:
        pool.submit(first)
        assert in_time(lambda: bodies.held == 80)
        pool.submit(other, "large", 90)
        assert in_time(lambda: len(bodies._waiting) == 1)
        small = pool.submit(other, "small", 10)  # would fit, but is behind the large one
        time.sleep(0.05)
        assert not small.done()
        go.set()
    assert [name for name, _ in order] == ["large", "small"]
    assert bodies.held == 0


def test_one_that_is_larger_than_the_budget_passes_alone():
    bodies = ByteBudget(limit=100)
    most, held = [], []

    def work(n_bytes):
        with bodies.image():
            bodies.take(n_bytes)
            held.append(n_bytes)
            most.append(sum(held))
            time.sleep(0.002)
            held.remove(n_bytes)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, [40, 500, 30, 30, 500, 20, 90, 100] * 5))
    assert max(most) == 500
    assert sorted(set(most))[-1] == 500
    assert all(n <= 100 or n == 500 for n in most)
    assert bodies.held == 0


def test_what_an_image_holds_is_replaced_and_given_back_after_an_error():
    bodies = ByteBudget(limit=100)

    @bodies.image()
    def fails():
        bodies.take(70)
        bodies.take(30)
        assert bodies.held == 30
        assert bodies.holder().may_take(100)
        with bodies.image():  # a block inside a block is the same image
            bodies.take(50)
        assert bodies.held == 50
        raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert bodies.held == 0
    bodies.take(10**12)  # outside of any block nothing is counted
    assert bodies.held == 0


def test_nothing_is_taken_without_waiting_while_another_waits():
    bodies, go = ByteBudget(limit=100), threading.Event()

    def waits():
        with bodies.image():
            bodies.take(60)

    with bodies.image(), ThreadPoolExecutor(1) as pool:
        bodies.take(60)
        pool.submit(waits)
        assert in_time(lambda: bodies._waiting)
        assert not bodies.holder().may_take(70)
        assert bodies.holder().may_take(50)  # fewer than before
        bodies.take(0)
        go.set()
    assert bodies.held == 0


@pytest.fixture
def small(monkeypatch):
    """A budget of 1 MB for the process, and what it held at most."""
    most = [0]
    bodies = BODIES
    monkeypatch.setattr(bodies, "limit", 1 << 20)
    replace = bodies.replace

    def watched(before, n_bytes, *, wait):
        is_held = replace(before, n_bytes, wait=wait)
        most[0] = max(most[0], bodies.held)
        return is_held

    monkeypatch.setattr(bodies, "replace", watched)
    return most


def held_images(readers, workers=4):
    """Read with threads as `curate score` does; what each gives, or the status of its failure."""

    @BODIES.image()
    def work(read):
        try:
            return read()
        except ReadError as error:
            return error.status

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, readers))


def test_local_files_share_the_budget(tmp_path, small):
    sizes = [700_000, 100, 900_000, 5_000_000, 300_000, 300_000, 2_000_000] * 3
    for number, size in enumerate(sizes):
        (tmp_path / f"{number:02}.jpg").write_bytes(bytes([number]) * size)
    got = held_images(open_manifest(tmp_path).readers(0, len(sizes)))
    assert got == [bytes([number]) * size for number, size in enumerate(sizes)]
    assert 1_000_000 < small[0] <= 5_000_000
    assert BODIES.held == 0


def test_a_file_above_the_bound_is_a_row_that_says_what_to_do(tmp_path):
    with (tmp_path / "a.tif").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(ReadError, match=r"268,435,457 bytes.*268,435,456.*max_bytes") as caught:
        next(open_manifest(tmp_path).readers(0, 1))()
    assert caught.value.status == "too_large"
    assert len(next(open_manifest(tmp_path, SourceOptions(max_bytes=1 << 30)).readers(0, 1))()) == MAX_FILE_BYTES + 1


def test_a_table_that_is_too_large_gets_no_advice_about_images(tmp_path):
    (tmp_path / "l.txt").write_bytes(bytes(2000))
    with pytest.raises(InputError, match="of 1,000 bytes; split"):
        find_place(tmp_path / "l.txt").read_all(1000, "split it")


def packed(data):
    """A body that a server compresses although it was asked not to."""
    body = gzip.compress(data)
    return answer(200, {"Content-Encoding": "gzip", "Content-Length": str(len(body))}, [body])


def zeros(n_bytes):
    """So many zeros as gzip, which are never here as such."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([packer.compress(bytes(1 << 20)) for _ in range(n_bytes >> 20)]) + packer.flush()


@pytest.fixture
def served(monkeypatch):
    """A server: its URL, its files, answers of their own by path, and the headers of the requests."""
    monkeypatch.setattr(remote, "PAUSE", 0.01)
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setattr(schemes, "_SHARED", {})

    class Served(Handler):
        files: dict[str, bytes] = {}  # noqa: RUF012
        answers: dict[str, object] = {}  # noqa: RUF012
        requests: list[dict[str, str]] = []  # noqa: RUF012

        def do_GET(self):
            self.requests.append(dict(self.headers))
            try:
                if self.path in self.answers:
                    self.answers[self.path](self)
                else:
                    super().do_GET()
            except ConnectionError:  # the other end has heard enough
                self.close_connection = True

        do_HEAD = do_GET

    Served.files, Served.answers, Served.requests = {}, {}, []
    server = Server(("127.0.0.1", 0), Served)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    Served.url = f"http://127.0.0.1:{server.server_port}"
    yield Served
    server.shutdown()
    server.server_close()


def listed(served, tmp_path, names, **options):
    (tmp_path / "l.txt").write_text("".join(f"{served.url}/{name}\n" for name in names))
    return open_manifest(tmp_path / "l.txt", SourceOptions(**options))


def test_bytes_are_requested_as_they_are_and_compressed_ones_are_read_all_the_same(served):
    served.files["/a.jpg"] = b"an image"
    served.answers["/b.jpg"] = packed(b"another image")
    assert read_uri(f"{served.url}/a.jpg") == b"an image"
    assert read_uri(f"{served.url}/b.jpg") == b"another image"
    assert {headers["Accept-Encoding"] for headers in served.requests} == {"identity"}


def test_a_compressed_body_is_bounded_by_what_it_unpacks_to(served, tmp_path, small):
    body = zeros(64 << 20)
    assert len(body) < 100_000
    for name in "abc":
        served.answers[f"/{name}.jpg"] = answer(
            200, {"Content-Encoding": "gzip", "Content-Length": str(len(body))}, [body]
        )
    manifest = listed(served, tmp_path, ["a.jpg", "b.jpg", "c.jpg"], max_bytes=20 << 20)
    assert held_images(ahead(manifest.readers(0, 3), 3)) == ["too_large"] * 3
    assert small[0] <= 20 << 20  # one alone
    assert BODIES.held == 0


def test_a_stated_size_above_the_bound_is_refused_before_any_of_it_comes(served, tmp_path):
    pieces = [b"x"] * 200
    served.answers["/a.jpg"] = answer(200, {"Content-Length": str(10**9)}, pieces, pause=0.1)
    (status,) = held_images(listed(served, tmp_path, ["a.jpg"]).readers(0, 1))
    assert status == "too_large"
    assert len(served.requests) == 1


def test_bodies_of_unknown_and_of_known_size_come_whole_within_the_budget(served, tmp_path, small):
    chunked = {f"c{n}.jpg": bytes([n]) * size for n, size in enumerate([10, 2_000_000, 9_000_000, 700_000, 1_500_000])}
    known = {f"k{n}.jpg": bytes([n]) * size for n, size in enumerate([10, 2_000_000, 9_000_000, 700_000, 1_500_000])}
    for name, data in chunked.items():
        pieces = [b"%x\r\n%s\r\n" % (len(part), part) for part in (data[:5], data[5:]) if part]
        served.answers[f"/{name}"] = answer(200, {"Transfer-Encoding": "chunked"}, [*pieces, b"0\r\n\r\n"])
    for name, data in known.items():
        served.files[f"/{name}"] = data
    every = {**chunked, **known}
    manifest = listed(served, tmp_path, every, max_bytes=12 << 20)
    assert held_images(ahead(manifest.readers(0, 10), 8)) == list(every.values())
    assert small[0] <= 12 << 20
    assert BODIES.held == 0


def test_what_is_requested_ahead_is_bounded_by_what_comes(served, tmp_path):
    for number in range(30):
        served.files[f"/{number:02}.jpg"] = bytes([number]) * 100_000
    manifest = listed(served, tmp_path, [f"{number:02}.jpg" for number in range(30)])
    most = 0
    with ReadAhead(8, held_bytes=350_000) as reading:
        waiting = list(reading.readers(manifest.readers(0, 30)))
        in_time(lambda: len(served.requests) >= 8)
        time.sleep(0.1)
        most = max(most, reading._held)
        assert read_all(waiting) == [bytes([number]) * 100_000 for number in range(30)]
        assert reading._held == 0
    assert 200_000 <= most <= 350_000


def test_ahead_of_its_turn_nothing_waits(served):
    def read(bound):
        BODIES.take(5000)
        return bytes(5000)

    reader = RemoteReader(read, 10_000)
    with ReadAhead(2, held_bytes=1000) as reading:
        (later,) = reading.readers([reader])
        assert later() == bytes(5000)  # read when its turn came
    share = type("Share", (), {"may_take": lambda self, n: False, "take": _refuse})()
    with BODIES.held_by(share), pytest.raises(NeedsMemory):
        BODIES.take(10)


def _refuse(_, n_bytes):
    raise NeedsMemory(n_bytes)


def test_first_pieces_of_stores_wait_for_one_another(monkeypatch):
    now, most = [], []

    def get_range(uri, start, stop, reach):
        now.append(stop - start)
        most.append(sum(now))
        time.sleep(0.01)
        return bytes(now.pop())[:10]

    monkeypatch.setattr(remote, "get_range", get_range)
    monkeypatch.setattr(remote, "UNDER_WAY", ByteBudget(2 * remote.PIECE))
    with ThreadPoolExecutor(8) as pool:
        assert {len(data) for data in pool.map(lambda n: remote.get(f"s3://b/{n}", 1 << 30, Reach()), range(8))} == {10}
    assert max(most) <= 2 * remote.PIECE


def test_a_part_of_a_file_is_bounded_whatever_the_server_answers(served):
    uri = f"{served.url}/s.tar"
    served.answers["/s.tar"] = packed(bytes(50_000_000))
    with pytest.raises(ReadError, match="does not serve parts"):
        remote.get_range(uri, 0, 1000, Reach())
    body = bytes(5_000_000)
    served.answers["/s.tar"] = answer(200, {"Content-Length": str(len(body))}, [body])
    for start in (0, 1000):
        with pytest.raises(ReadError, match="does not serve parts"):
            remote.get_range(uri, start, start + 1000, Reach())
    served.answers["/s.tar"] = answer(200, {"Content-Length": "3"}, [b"abc"])
    assert remote.get_range(uri, 0, 1000, Reach()) == b"abc"  # a whole file that is shorter
    with pytest.raises(ReadError, match="does not serve parts"):
        remote.get_range(uri, 1, 1000, Reach())


def test_the_budget_of_a_process_holds_one_image():
    assert budget.ENCODED == MAX_FILE_BYTES


PEAK = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor
from curate.manifest.contract import ReadError
from curate.manifest.sources import open_manifest
from curate.manifest.ahead import ahead
from scoring.images.budget import BODIES

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

@BODIES.image()
def status(read):
    try:
        return len(read())
    except ReadError as error:
        return error.status

manifest = open_manifest(sys.argv[1])
before = peak()
with ThreadPoolExecutor(4) as pool:
    print(*pool.map(status, ahead(manifest.readers(0, manifest.n_rows), manifest.connections)))
print(peak() - before)
"""


def peak_of(source):
    done = subprocess.run([sys.executable, "-c", PEAK, str(source)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    statuses, above = done.stdout.splitlines()
    return statuses.split(), int(above)


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="the peak is in KiB on Linux alone")  # noqa: PTH112
@pytest.mark.slow
def test_bodies_of_a_gibibyte_take_no_more_memory_than_one_budget(served, tmp_path):
    body = zeros(1 << 30)
    names = [f"{name}.jpg" for name in "abc"]
    for name in names:
        served.answers[f"/{name}"] = answer(200, {"Content-Encoding": "gzip", "Content-Length": str(len(body))}, [body])
    listed(served, tmp_path, names)
    statuses, above = peak_of(tmp_path / "l.txt")
    assert statuses == ["too_large"] * 3
    assert above < budget.ENCODED + (200 << 20)


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="the peak is in KiB on Linux alone")  # noqa: PTH112
@pytest.mark.slow
def test_large_local_files_take_no_more_memory_than_one_budget(tmp_path):
    for number, size in enumerate([1_900_000_000] * 2 + [250_000_000] * 4):
        with (tmp_path / f"{number}.jpg").open("wb") as file:
            file.truncate(size)
    statuses, above = peak_of(tmp_path)
    assert statuses == ["too_large"] * 2 + ["250000000"] * 4
    assert above < budget.ENCODED + (100 << 20)
