"""Converts errors of drivers to a status and one sentence, and whether a retry may help."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from curate.manifest.reach import PRIVATE
from scoring.errors import InputError

SLOW = "no answer within {:g} s"
LONGEST_PAUSE = 30.0  # maximum seconds that a server may request to wait
RENEW = "renew them and repeat the command, which resumes where it stopped"
# Error codes of S3-like stores that concern credentials, not the object.
_INVALID = {
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
}
# Error classes of botocore, google-auth and similar, by name, since they may not be installed.
_NO_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError"}
_EXPIRED = {
    "CredentialRetrievalError",
    "RefreshError",
    "SSOTokenLoadError",
    "TokenRetrievalError",
    "UnauthorizedSSOTokenError",
}
# Errors of huggingface_hub, subclasses first.
_OF_THE_HUB = {
    "GatedRepoError": "the repository is gated: request access on its page, and log in (hf auth login, or HF_TOKEN)",
    "RepositoryNotFoundError": (
        "there is no such repository, or it is a private one and no token with read access was given (hf auth login, "
        "or HF_TOKEN)"
    ),
    "RevisionNotFoundError": "the repository has no such revision",
}
_LASTING = {"InvalidURL", "TooManyRedirects", "ValueError"}  # by the names of their classes
_PASSING = {408, 425, 429, 500, 502, 503, 504, 507, 509, 520, 521, 522, 523, 524}
_PASSING_CODES = {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "OperationAborted"}


class CredentialsError(InputError):
    """The credentials of a store are missing or no longer valid: every further row would fail as well."""


class AnswerError(Exception):
    """An HTTP status of 400 or above; ``longest`` bounds the wait by the Retry-After header, in seconds."""

    def __init__(self, status: int, retry_after: str, longest: float = LONGEST_PAUSE) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status
        self.wait = _seconds(retry_after, longest)


@dataclass(frozen=True)
class Failure:
    """A failed request.

    Attributes:
        status: of the row: "missing", "denied", "refused" or "io_error".
        text: one sentence, without any URL.
        passes: whether a retry may help.
        wait: seconds that the server requests before a retry.
        taken: whether an object already exists at the target.
        beyond_end: whether the requested range starts after the end of the file.
    """

    status: str
    text: str
    passes: bool = False
    wait: float = 0.0
    beyond_end: bool = False
    taken: bool = False


def failure_of(error: BaseException) -> Failure:
    """Return the failure of a requested row from an error of a driver; an InputError is raised unchanged.

    Raises:
        CredentialsError: if it concerns the credentials.
    """
    causes = list(_causes(error))
    for each in causes:
        if isinstance(each, InputError):
            raise each
    if any(PRIVATE in str(each) for each in causes if isinstance(each, OSError)):
        return Failure("refused", next(str(each) for each in causes if PRIVATE in str(each)).split("] ")[-1])
    code, status = _answer(causes)
    _refuse_credentials(causes, code, status)
    names = _names(causes)
    is_answer = not names & {"ClientConnectionError", "ClientPayloadError", "TimeoutError"}  # of a server within reach
    absent = isinstance(error, FileNotFoundError | NotADirectoryError) and status is None and is_answer
    hub = next((text for name, text in _OF_THE_HUB.items() if name in names), "")
    if absent or status in (404, 410) or code in ("NoSuchKey", "NoSuchBucket"):
        return Failure("missing", hub or "the server has no such file")
    if status in (401, 403) or code == "AccessDenied" or isinstance(error, PermissionError):
        asks = ": it requires credentials" if status == 401 else ""
        return Failure("denied", hub or f"the server denies access{f' (HTTP status {status}{asks})' if status else ''}")
    message = f"fetching failed: {_reason(error, causes, code, status)}"
    if status == 412 or code == "ConditionalRequestConflict":
        return Failure("io_error", message, taken=True)
    if status == 416:
        return Failure("io_error", message, beyond_end=True)
    lasting = status is not None and 300 <= status < 600 and status not in _PASSING and code not in _PASSING_CODES
    lasting = lasting or bool(names & _LASTING and "TimeoutError" not in names)
    wait = max((_retry_after(each) for each in causes), default=0.0)
    return Failure("io_error", message, passes=not lasting, wait=wait)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        inner = getattr(error, "os_error", None)  # aiohttp's error of the operating system
        error = inner if isinstance(inner, OSError) else error.__cause__


def _retry_after(error: BaseException) -> float:
    """Return the seconds to wait according to the response, from our or aiohttp's error."""
    if isinstance(error, AnswerError):
        return error.wait
    headers: Any = getattr(error, "headers", None)
    return _seconds(str(headers.get("Retry-After", "")), LONGEST_PAUSE) if hasattr(headers, "get") else 0.0


def _seconds(header: str, longest: float) -> float:
    """Return the seconds in a `Retry-After` header; dates are ignored, since clocks may differ."""
    return min(float(header), longest) if header.isdecimal() else 0.0


def _names(causes: list[BaseException]) -> set[str]:
    """Return the class names of errors with their base classes: their packages may not be installed."""
    return {kind.__name__ for each in causes for kind in type(each).__mro__}


def _answer(causes: list[BaseException]) -> tuple[str, int | None]:
    """Return the error code and the HTTP status of a store's response, if known."""
    for each in causes:
        response = getattr(each, "response", None)  # of botocore
        if isinstance(response, dict):
            code = str(response.get("Error", {}).get("Code", ""))
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return code, int(code) if status is None and code.isdecimal() else status
    for each in causes:
        if type(each) is OSError and str(each).startswith("Forbidden: "):  # gcsfs's, without a number
            return "", 403
        status = _number(each, "status") or _number(getattr(each, "response", None), "status_code")  # httpx, requests
        if type(each).__name__ == "HttpError":  # gcsfs's; others use code 400 without a response
            status = _number(each, "code")
        if status is not None:
            return "", status
    return "", None


def _number(error: Any, name: str) -> int | None:
    value = getattr(error, name, None)
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return value if isinstance(value, int) and 300 <= value < 600 else None


def _refuse_credentials(causes: list[BaseException], code: str, status: int | None) -> None:
    names = _names(causes)
    if names & _NO_CREDENTIALS:
        raise CredentialsError(
            "there are no credentials for the store; set them as its own tools expect them (such as AWS_PROFILE), or "
            "FSSPEC_S3_ANON=true for a public bucket"
        )
    known = status == 401 and any("invalid credentials" in str(each).lower() for each in causes)  # of gcsfs and the hub
    if known or code in _INVALID or names & _EXPIRED:
        kind = code or next(iter(sorted(names & _EXPIRED)), "HTTP status 401")
        raise CredentialsError(f"the credentials for the store are no longer valid ({kind}); {RENEW}")


def _reason(error: BaseException, causes: list[BaseException], code: str, status: int | None) -> str:
    if status is not None:
        return f"HTTP status {status}" + (f" ({code})" if code and not code.isdecimal() else "")
    if any(isinstance(each, TimeoutError) for each in causes):
        return next((str(each) for each in causes if str(each).startswith(SLOW[:9])), "no answer in time")
    for each in causes:
        if isinstance(each, OSError) and each.errno in errno.errorcode and each.strerror:
            return f"{type(error).__name__}: {each.strerror}" if each is not error else each.strerror
    return type(error).__name__


class TakenError(InputError):
    """An object already exists at a path that must be free."""


@contextmanager
def store_errors(place: object, what: str) -> Iterator[None]:
    """Convert a driver's errors to one line; errors of missing and existing files pass unchanged.

    Raises:
        FileNotFoundError: unchanged.
        TakenError: if an object already exists.
        CredentialsError: if the credentials are missing or no longer valid.
        InputError: if the store refuses otherwise, or cannot be reached.
    """
    try:
        yield
    except (InputError, FileNotFoundError):
        raise
    except FileExistsError:
        raise TakenError(f"{place} exists already") from None
    except Exception as error:  # drivers of object stores share no base class for their errors
        try:
            failure = failure_of(error)
        except CredentialsError as problem:
            raise CredentialsError(f"cannot {what} {place}: {problem}") from None
        if failure.taken:
            raise TakenError(f"{place} exists already") from None
        reason = {"missing": "no such bucket or path exists"}.get(failure.status, failure.text)
        advice = (
            "check the permissions of the credentials" if failure.status == "denied" else "repeat the command to resume"
        )
        raise InputError(f"cannot {what} {place}: {reason}; {advice}") from None
