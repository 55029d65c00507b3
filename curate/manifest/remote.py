"""One request to a store or server, bounded in time and size, with retries and named failures."""

import io
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from curate.manifest.contract import ReadError, too_large
from curate.manifest.failures import SLOW, AnswerError, failure_of
from curate.manifest.hub import facts_of, is_hub, read_range
from curate.manifest.reach import Client, Reach
from curate.manifest.schemes import file_system, scheme_of
from scoring.images.budget import BODIES, UNCOUNTED, ByteBudget, Holder, NeedsMemory

T = TypeVar("T")

TRIES = 4
PAUSE = 0.5  # seconds before the first retry; doubled each time, minus a random part of up to half
TIME_LIMIT = 60.0  # seconds for a request
SLOWEST = 1 << 20  # bytes per second beyond the first piece
PIECE = 4 << 20  # bytes requested while the size is unknown
UNDER_WAY = ByteBudget(128 * PIECE)  # maximum bytes of concurrent first pieces
_STEPS = (1 << 20, PIECE)  # steps of reserved bytes for a body of unknown size


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a store: name below the listed folder, size in bytes, and a version that changes with it."""

    name: str
    size: int
    version: str


def ask(request: Callable[[], T]) -> T:
    """Return the result of a request, with retries after temporary failures.

    Raises:
        ReadError: "missing", "denied", "refused" or "io_error"; without the URL, which may be signed.
        CredentialsError: if the credentials are missing or no longer valid, so that every other row would fail too.
    """
    for number in range(1, TRIES + 1):
        try:
            return request()
        except (ReadError, NeedsMemory):
            raise
        except Exception as error:  # drivers of object stores share no base class for their errors
            failure = failure_of(error)
            if number == TRIES or not failure.passes:
                raise ReadError(failure.status, failure.text) from None
        time.sleep(max(PAUSE * 2 ** (number - 1) * random.uniform(0.5, 1.0), failure.wait))
    raise ValueError("the loop above always returns or raises")


def get(uri: str, max_bytes: int, reach: Reach) -> bytes:
    """Return the bytes behind a URL by one request, of at most `PIECE` bytes unless the server is HTTP.

    Raises:
        ReadError: as `ask`; "too_large" above ``max_bytes``.
        CredentialsError, InputError, MissingExtraError: as `ask` and `file_system`.
    """
    if scheme_of(uri) in ("http", "https"):
        system, _ = system_of(uri, reach)
        return _body(system, _Request(uri, max_bytes))
    n_first = min(PIECE, max_bytes + 1)
    with UNDER_WAY.image():  # waits only for requests, which have time limits
        UNDER_WAY.take(n_first)
        first = get_range(uri, 0, n_first, reach)
    if len(first) > max_bytes:
        raise too_large(None, max_bytes)
    BODIES.take(len(first))
    if len(first) < PIECE:
        return first
    size = stat(uri, reach)[0]
    if size > max_bytes:
        raise too_large(size, max_bytes)
    BODIES.take(max(size, len(first)))
    data = first + get_range(uri, PIECE, size, reach) if size > PIECE else first
    if len(data) != size:
        raise ReadError("io_error", f"short read: {len(data):,} of {size:,} bytes")
    return data


def get_range(uri: str, start: int, stop: int, reach: Reach) -> bytes:
    """Return the bytes [start, stop) behind a URL, fewer if it ends before; raises as `get`."""
    system, path = system_of(uri, reach)
    is_http = scheme_of(uri) in ("http", "https")

    def request() -> bytes:
        try:
            if is_http:
                return _sync(system, lambda: _stream(system, _Request(uri, stop - start, start), UNCOUNTED, 0))
            if is_hub(system):
                return read_range(system, path, start, stop, _seconds(stop - start))
            if hasattr(system, "_cat_file") and getattr(system, "async_impl", False):
                part = partial(system._cat_file, path, start=start, end=stop)
                return bytes(_sync(system, lambda: _limited(part(), stop - start)))
            return bytes(system.cat_file(path, start=start, end=stop))
        except Exception as error:
            if failure_of(error).beyond_end:  # response for the first byte of an empty file
                return b""
            raise

    data = ask(request)
    if len(data) > stop - start:
        raise no_part()
    return data


def stat(uri: str, reach: Reach) -> tuple[int, str]:
    """Return the size in bytes (-1 if unknown), and a version that changes with the content. Raises: as `get`."""
    system, path = system_of(uri, reach)
    facts = ask(lambda: info_of(system, path))
    return size_of(facts), version_in(facts)


def size_of(facts: dict[str, Any]) -> int:
    """Return the size that a driver reports for a file, -1 if unknown."""
    size = facts.get("size")
    return -1 if size is None else int(size)


def version_in(facts: dict[str, Any]) -> str:
    """Return the part of a driver's report on a file that changes with its content."""
    tags = "generation blob_id xet_hash ETag etag md5Hash mtime LastModified last_modified updated created"
    return next((str(facts[tag]) for tag in tags.split() if facts.get(tag)), "")


def info_of(system: Any, path: str) -> dict[str, Any]:
    """Return a driver's report on a file."""
    if is_hub(system):
        return facts_of(system, path)
    if not getattr(system, "async_impl", False):
        return dict(system.info(path))
    return dict(_sync(system, lambda: _limited(system._info(path), 0)))


def system_of(uri: str, reach: Reach) -> tuple[Any, str]:
    """Return the file system of a URL and the path inside it; for HTTP, restricted to the reach."""
    if scheme_of(uri) in ("http", "https"):
        return file_system(uri, get_client=Client(reach))
    return file_system(uri)


def no_part() -> ReadError:
    """Return the failure of a range request that was answered with something else."""
    return ReadError("io_error", "the server does not serve parts of files; download it first")


def _sync(system: Any, make: Callable[[], Awaitable[T]]) -> T:
    from fsspec.asyn import sync

    result: T = sync(system.loop, make)
    return result


def _seconds(n_bytes: int) -> float:
    """Return the time limit of a request for this many bytes, in seconds."""
    return TIME_LIMIT + max(0, n_bytes - PIECE) / SLOWEST


async def _limited(request: Awaitable[T], n_bytes: int) -> T:
    import asyncio  # imported here: it loads fifty modules that local files do not need

    try:
        async with asyncio.timeout(_seconds(n_bytes)):
            return await request
    except TimeoutError as error:
        raise TimeoutError(SLOW.format(TIME_LIMIT)) from error


@dataclass(frozen=True)
class _Request:
    """An HTTP request: for a whole file up to a bound, or for a number of bytes from ``start`` on."""

    url: str
    max_bytes: int
    start: int | None = None

    def check(self, n_bytes: int, *, is_size: bool) -> None:
        """Raise ReadError if a response is larger; ``is_size``: by its stated size, else by received bytes."""
        if n_bytes > self.max_bytes:
            raise too_large(n_bytes if is_size else None, self.max_bytes) if self.start is None else no_part()


def _body(system: Any, request: _Request) -> bytes:
    """Return the content of an HTTP URL; if memory is short, waits for it and requests again."""
    holder, held = BODIES.holder(), 0
    while True:
        try:
            data = ask(partial(_sync, system, partial(_stream, system, request, holder, held)))
        except NeedsMemory as need:
            held = need.n_bytes
            holder.take(held)
        else:
            holder.take(len(data))
            return data


async def _stream(system: Any, request: _Request, holder: Holder, held: int) -> bytes:
    """Return the body of a response; ``held`` bytes of it are already reserved at the holder."""
    import asyncio

    session = await system.set_session()
    with io.BytesIO() as body:  # closed explicitly: an exception keeps local objects alive
        try:
            async with asyncio.timeout(TIME_LIMIT) as limit:
                async with session.get(system.encode_url(request.url), **_options(system, request)) as answer:
                    await _fill(body, answer, request, holder, held, limit)
        except TimeoutError as error:
            raise TimeoutError(SLOW.format(TIME_LIMIT)) from error
        return body.getvalue()


async def _fill(body: io.BytesIO, answer: Any, request: _Request, holder: Holder, held: int, limit: Any) -> None:
    """Write the pieces of a response, within its bound, to a file in memory.

    Raises:
        NeedsMemory: before a piece that the holder cannot reserve now.
    """
    import asyncio

    now = asyncio.get_running_loop().time
    began, size = now(), _stated_size(answer, request.start)
    request.check(size or 0, is_size=True)
    async for piece in answer.content.iter_chunked(1 << 20):
        have = body.tell() + len(piece)
        request.check(have, is_size=False)
        if have > held:
            held = size or min(request.max_bytes, next((step for step in _STEPS if have <= step), request.max_bytes))
            if not holder.may_take(held):
                raise NeedsMemory(held)
        body.write(piece)
        limit.reschedule(began + _seconds(have))


def _options(system: Any, request: _Request) -> dict[str, Any]:
    """Return the options of a request, without compression, since compressed bytes could expand without bound."""
    headers = {**system.kwargs.get("headers", {}), "Accept-Encoding": "identity"}
    if request.start is not None:
        headers["Range"] = f"bytes={request.start}-{request.start + request.max_bytes - 1}"
    return {**system.kwargs, "headers": headers}


def _stated_size(answer: Any, start: int | None) -> int | None:
    """Return the stated size of a response; None if missing, or if the content is compressed.

    Raises:
        AnswerError: for an error status.
        ReadError: if it is not the requested range.
    """
    if answer.status >= 400:
        raise AnswerError(answer.status, answer.headers.get("Retry-After", ""))
    is_packed = answer.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity")
    if start is not None and (is_packed or (start > 0 and answer.status != 206)):
        raise no_part()
    size: int | None = answer.content_length
    return None if is_packed else size
