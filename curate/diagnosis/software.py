"""The installation: Python, required and optional packages, environment variables."""

import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping

from curate.diagnosis.contract import NOTE, PROBLEM, MachineFact
from curate.version import __version__

DISTRIBUTION = "kappa-curate"
EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")
NAME = re.compile(r"[\w.-]+")
FOR_DEVELOPERS = "dev"
# Settings that change speed or what is found; their values are plain numbers and switches, never secrets.
SHOWN = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOMP_SPINCOUNT", "POLARS_MAX_THREADS"),
    *("CUDA_VISIBLE_DEVICES", "PYTORCH_ALLOC_CONF", "HF_HUB_OFFLINE"),
)
PLAIN = re.compile(r"[\w.,:+-]{1,80}")


def packages() -> Iterator[MachineFact]:
    """Yield the versions of Python and required packages; a missing or old one is a problem."""
    yield MachineFact("software", "curate", __version__)
    yield MachineFact("software", "python", f"{platform.python_version()} ({platform.system()} {platform.machine()})")
    for requirement in _requirements().get("", []):
        name, state, value = _installed(requirement)
        advice = f"pip install '{requirement}'" if state == PROBLEM else ""
        yield MachineFact("software", name, value, state, advice)


def extras() -> Iterator[MachineFact]:
    """Yield, for every extra, whether its packages are installed; a missing one is no problem."""
    for extra, requirements in sorted(_requirements().items()):
        if not extra or extra == FOR_DEVELOPERS:
            continue
        looked = [_installed(requirement) for requirement in requirements]
        value = ", ".join(f"{name} {version}" for name, _, version in looked)
        lacks = any(state == PROBLEM for _, state, _ in looked)
        yield MachineFact("extras", extra, value, advice=f"pip install '{DISTRIBUTION}[{extra}]'" if lacks else "")


def environment(variables: Mapping[str, str] = os.environ) -> Iterator[MachineFact]:
    """Yield the relevant environment variables from a fixed list; others are never shown."""
    for name in SHOWN:
        if name in variables:
            value = variables[name]
            yield MachineFact("environment", name, value if PLAIN.fullmatch(value) else "set, to no plain value")
    proxies = sorted(name.upper() for name in variables if name.lower() in ("http_proxy", "https_proxy", "no_proxy"))
    if proxies:
        yield MachineFact("environment", "proxy", f"{', '.join(dict.fromkeys(proxies))} set")
    encoding = (sys.stdout.encoding or "").lower()
    if encoding.replace("-", "") != "utf8":
        advice = "set PYTHONUTF8=1, or characters outside of it are shown as ?"
        yield MachineFact("environment", "terminal", f"writes {encoding or 'no known encoding'}", NOTE, advice)


def _requirements() -> dict[str, list[str]]:
    """Return the requirements of curate by extra; empty text for required ones."""
    grouped: dict[str, list[str]] = {"": []}
    for line in importlib.metadata.requires(DISTRIBUTION) or []:
        requirement, _, marker = line.partition(";")
        extra = EXTRA.search(marker)
        grouped.setdefault(extra[1] if extra else "", []).append(requirement.strip().replace(" ", ""))
    return grouped


def _installed(requirement: str) -> tuple[str, str, str]:
    """Return the name of a requirement, its state, and its version or what is missing."""
    match = NAME.match(requirement)
    name = match[0] if match else requirement
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return name, PROBLEM, "not installed"
    floor = re.search(r">=([\d.]+)", requirement)
    if floor and _numbers(version) < _numbers(floor[1]):
        return name, PROBLEM, f"{version}, older than {floor[1]}"
    return name, "ok", version


def _numbers(version: str) -> list[int]:
    """Return the leading numbers of a version, to compare it with a minimum."""
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3]]
