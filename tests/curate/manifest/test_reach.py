"""How far the URLs and paths inside a source may lead."""

import asyncio
import ipaddress
import socket
import threading
from http.server import BaseHTTPRequestHandler

import pytest
from buckets import Server
from reading import outcomes

from curate.manifest import remote
from curate.manifest.contract import ReadError, SourceOptions
from curate.manifest.memory import read_uri
from curate.manifest.reach import VARIABLE, Reach, is_public, reach_of
from curate.manifest.sources import open_manifest
from scoring.errors import InputError

pytest.importorskip("aiohttp", reason="the http extra is not installed")

PRIVATE = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.9.9.9",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.168.1.1",
    "198.18.0.1",
    "203.0.113.5",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd12:3456::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:a00:1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2001:db8::1",
    "2001:0:4136:e378:8000:63bf:80ff:fffe",
]
PUBLIC = ["8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_of_the_public_internet_is_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_public_internet_is_public(address):
    assert is_public(address)


def test_every_private_ipv4_address_is_private_inside_ipv6_too():
    for text in (each for each in PRIVATE if ":" not in each):
        number = int(ipaddress.IPv4Address(text))
        for prefix in (0xFFFF << 32, 0x64FF9B << 96, 0):
            assert not is_public(str(ipaddress.IPv6Address(prefix | number)))
        assert not is_public(str(ipaddress.IPv6Address((0x2002 << 112) | (number << 80))))


class Handler(BaseHTTPRequestHandler):
    requests: list[str] = []  # noqa: RUF012
    files: dict[str, bytes] = {}  # noqa: RUF012

    def do_GET(self):
        Handler.requests.append(self.path)
        data = Handler.files.get(self.path, b"secret")
        if self.path.startswith("/to?"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to?"))
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET

    def log_message(self, *_):
        return


@pytest.fixture
def port(monkeypatch):
    """A server on this machine, which nobody outside may be led to."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(remote, "PAUSE", 0.01)
    Handler.requests, Handler.files = [], {}
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


HOSTS = ["127.0.0.1", "localhost", "0x7f.1", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0"]


@pytest.mark.parametrize("host", HOSTS)
def test_a_url_of_a_list_into_a_private_network_is_refused_before_anything_is_sent(port, host, tmp_path):
    (tmp_path / "l.txt").write_text(f"http://{host}:{port}/a.jpg\n")
    manifest = open_manifest(tmp_path / "l.txt")
    (read,) = manifest.readers(0, 1)
    with pytest.raises(ReadError, match="CURATE_ALLOW_PRIV") as caught:
        read()
    assert (caught.value.status, Handler.requests) == ("refused", [])
    if "[" not in host:  # the server has no address of IPv6
        allowed = open_manifest(tmp_path / "l.txt", SourceOptions(allow_private_hosts=True))
        assert outcomes(allowed) == [b"secret"]


@pytest.mark.parametrize("host", ["2130706433", "0177.0.0.1", "127.1", "127.0.0.1%00", ""])
def test_a_host_that_is_no_address_in_its_usual_form_is_no_host(port, host):
    with pytest.raises(ReadError) as caught:
        read_uri(f"http://{host}:{port}/a.jpg")
    assert (caught.value.status, Handler.requests) == ("io_error", [])


def test_the_environment_allows_it_for_every_command(port, monkeypatch):
    with pytest.raises(ReadError):
        read_uri(f"http://127.0.0.1:{port}/a.jpg")
    monkeypatch.setenv(VARIABLE, "0")
    with pytest.raises(ReadError):
        read_uri(f"http://127.0.0.1:{port}/a.jpg")
    monkeypatch.setenv(VARIABLE, "1")
    assert read_uri(f"http://127.0.0.1:{port}/a.jpg") == b"secret"


def test_a_name_that_resolves_to_a_private_address_is_refused_when_it_is_connected_to(port, monkeypatch):
    answers = iter(["93.184.216.34", "127.0.0.1"])  # what a server of names may answer the first and the second time
    hosts = []

    async def resolve(self, host, port, **_):
        hosts.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    async def look(*_, **__):
        return [{"hostname": "rebind.example", "host": "127.0.0.1", "port": port, "family": 2, "proto": 6, "flags": 0}]

    import aiohttp.resolver

    monkeypatch.setattr(aiohttp.resolver.ThreadedResolver, "resolve", look)
    with pytest.raises(ReadError, match="private network") as caught:
        read_uri(f"http://rebind.example:{port}/a.jpg", 1000, Reach())
    assert (caught.value.status, Handler.requests) == ("refused", [])


def test_a_redirection_into_a_private_network_is_refused(port):
    """The server that the user typed redirects: to itself it may, to another port of the machine it may not."""
    other = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    typed = reach_of([f"http://127.0.0.1:{port}/l.txt"], None, private=False)
    assert read_uri(f"http://127.0.0.1:{port}/to?/a.jpg", 1000, typed) == b"secret"
    Handler.requests.clear()
    for target in (f"http://127.0.0.1:{other.server_port}/b.jpg", "http://169.254.169.254/latest/meta-data"):
        with pytest.raises(ReadError, match="private network") as caught:
            read_uri(f"http://127.0.0.1:{port}/to?{target}", 1000, typed)
        assert caught.value.status == "refused"
    with pytest.raises(ReadError) as caught:
        read_uri(f"http://127.0.0.1:{port}/to?file:///etc/hostname", 1000, typed)
    assert caught.value.status == "io_error"
    assert all(path.startswith("/to?") for path in Handler.requests)
    other.shutdown()
    other.server_close()


def test_a_typed_url_is_trusted_with_everything_next_to_it(port):
    Handler.files = {"/d/l.txt": f"a.jpg\nhttp://localhost:{port}/b.jpg\nhttp://127.0.0.1:9/c.jpg\n".encode()}
    manifest = open_manifest(f"http://127.0.0.1:{port}/d/l.txt")
    assert outcomes(manifest) == [b"secret", b"secret", "refused"]


def test_a_source_from_elsewhere_names_no_file_of_this_machine(port, tmp_path):
    (tmp_path / "in").mkdir()
    for place in ("in/a.jpg", "in/c.jpg", "b.jpg", "x.tar"):
        (tmp_path / place).write_bytes(b"local")
    lines = f"{tmp_path}/b.jpg\nfile://{tmp_path}/b.jpg\n{tmp_path}/x.tar::a.jpg\n/etc/hostname\n"
    Handler.files = {"/l.txt": lines.encode(), "/l.csv": b"path\n" + lines.encode()}
    for name in ("l.txt", "l.csv"):
        assert outcomes(open_manifest(f"http://127.0.0.1:{port}/{name}")) == ["refused"] * 4
    Handler.files["/r.txt"] = b"a.jpg\n../b.jpg\n" + f"{tmp_path}/in/c.jpg\n".encode()
    manifest = open_manifest(f"http://127.0.0.1:{port}/r.txt", SourceOptions(root=str(tmp_path / "in")))
    assert outcomes(manifest) == [b"local", "refused", b"local"]
    (tmp_path / "l.txt").write_text(lines)
    assert outcomes(open_manifest(tmp_path / "l.txt"))[:2] == [b"local", b"local"]


@pytest.mark.parametrize("url", ["ftp://10.0.0.1/a.jpg", "webhdfs://h:50070/a.jpg"])
def test_drivers_that_cannot_be_kept_from_an_address_need_the_users_word(url):
    assert "a private network" in Reach().bars(url)
    assert not Reach(private=True).bars(url)
    assert not reach_of([url], None, private=False).bars(url)
    assert not Reach().bars("s3://bucket/a.jpg")


def test_secrets_in_urls_are_in_no_message(port, tmp_path):
    secret = f"http://me:word@127.0.0.1:{port}/d/x.csv?signature=abc"
    Handler.files = {"/d/x.csv?signature=abc": b"path\n"}
    for url in (
        secret,
        secret.replace("x.csv", "x"),
        secret.replace("x.csv", "x.zip"),
        "http://me:word@127.0.0.1:9/a.csv?s=abc",
    ):
        with pytest.raises(InputError) as caught:
            open_manifest(url)
        assert "word" not in str(caught.value)
        assert "abc" not in str(caught.value)


def test_each_reach_gets_a_separate_session(port):
    wide, narrow = Reach(private=True), Reach()
    systems = [remote.system_of(f"http://127.0.0.1:{port}/", reach)[0] for reach in (wide, narrow, Reach(private=True))]
    assert systems[0] is systems[2] is not systems[1]
    assert asyncio.iscoroutinefunction(systems[0].set_session)
