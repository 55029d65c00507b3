"""What a driver says where a store is written to -> one line for the user."""

from collections.abc import Iterator
from contextlib import contextmanager

from curate.manifest.failures import CredentialsError, failure_of
from scoring.errors import InputError


class TakenError(InputError):
    """Something is there where nothing was to be."""


@contextmanager
def store_errors(place: object, what: str) -> Iterator[None]:
    """Turn what a driver says of a place into one line; a missing file, and what is there already, pass as they are.

    Raises:
        FileNotFoundError: as it is.
        TakenError: where something is there.
        CredentialsError: if the credentials are missing or no longer valid.
        InputError: for any other refusal, and where the store cannot be reached.
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
        reason = {"missing": "there is no such bucket or place"}.get(failure.status, failure.text)
        advice = "check what the credentials may do" if failure.status == "denied" else "repeat the command to go on"
        raise InputError(f"cannot {what} {place}: {reason}; {advice}") from None
