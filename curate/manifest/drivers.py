"""Settings of two fsspec drivers, made before they are used: gcsfs and the Hugging Face hub."""

from types import MethodType
from typing import Any

from scoring.errors import InputError

CONNECT = 15.0  # seconds
HUB_KINDS = ("datasets", "spaces", "models", "buckets")
SILENCE = 60.0  # seconds without a byte after which a request is given up


def google_driver() -> Any:
    """Return the class of the driver that speaks the JSON API.

    The one that gcsfs gives by default asks over gRPC, before each request, of what kind the bucket is. Where that is
    not answered (an emulator, a proxy, a missing permission) it waits a minute each time and falls back to this one.
    """
    from gcsfs.core import GCSFileSystem

    return GCSFileSystem


def google_options() -> dict[str, Any]:
    """Return the options of the driver: by default it would wait forever for a silent server."""
    from aiohttp import ClientTimeout

    return {"requests_timeout": ClientTimeout(total=None, sock_connect=CONNECT, sock_read=SILENCE)}


def try_once(system: Any) -> None:
    """Disable a file system's own retries (six, half a minute in all), because its caller retries."""
    plain = getattr(type(system)._request, "__wrapped__", None)
    if plain is not None:
        system._request = MethodType(plain, system)


async def widen(system: Any, connections: int) -> None:
    """Make the client with enough connections for the requests; one with a certificate is left unchanged."""
    from aiohttp import TCPConnector

    certified = getattr(system, "_use_client_cert", False)
    if "connector" not in system.session_kwargs and not certified:
        system.session_kwargs = {**system.session_kwargs, "connector": TCPConnector(limit=connections)}
    await system._set_session()


def names_repository(url: str) -> bool:
    """Return whether a URL of the hub is within a repository."""
    parts = url.partition("://")[2].strip("/").split("/")
    return len(parts) >= (3 if parts[0] in HUB_KINDS else 2)


def check_hub() -> None:
    """Check that huggingface_hub can bound its requests.

    Raises:
        InputError: if it is too old.
    """
    import huggingface_hub

    if not hasattr(huggingface_hub.get_session(), "stream"):
        raise InputError(
            f"opening hf:// URLs needs huggingface_hub 1.0 or later, got {huggingface_hub.__version__}; "
            "run: pip install -U huggingface_hub"
        )
