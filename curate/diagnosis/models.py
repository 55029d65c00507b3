"""Whether the shipped models can be loaded."""

from collections.abc import Iterator

from curate.diagnosis.contract import PROBLEM, MachineFact
from scoring.checkpoint import parts_of, read_header, shipped_models
from scoring.errors import InputError
from scoring.model_names import DEFAULT


def models() -> Iterator[MachineFact]:
    """Yield every shipped model; one with changed weights is a problem."""
    for name, path in shipped_models().items():
        try:
            packages = [part.packaged for part in parts_of(read_header(path)) if part.packaged is not None]
            for packaged in packages:
                packaged.read()
        except InputError as error:
            yield MachineFact("models", name, f"not usable: {error}", PROBLEM)
            continue
        where = f"its backbone in the package {packages[0].package}" if packages else "whole in this package"
        yield MachineFact("models", name, f"{where}{', the default' * (name == DEFAULT)}")
