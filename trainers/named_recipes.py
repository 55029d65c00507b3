"""Named recipes: the settings of a method on a dataset in a paper or its authors' code."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scoring.errors import InputError
from scoring.lookup import closest

FOLDER = Path(__file__).parent / "recipes"
WORDS = ("source", "paper", "ours")
TABLES = ("set", "backbone_set")
FLAGS = ("stream",)
OPTIONS = ("backbone", "size", "epochs", "batch_size", "lr")  # the others are typed with --set


@dataclass(frozen=True)
class NamedRecipe:
    """One recipe of a method.

    Attributes:
        name: of the dataset.
        source: paper, section and table that state it.
        paper: result that the paper reports for it, or empty.
        ours: values that the source does not state, or where this package differs; or empty.
        options: of ``curate train`` by name, as typed.
        settings: of the method.
        backbone_set: options of the network.
    """

    name: str
    source: str
    paper: str
    ours: str
    options: dict[str, Any]
    settings: dict[str, Any]
    backbone_set: dict[str, Any]

    @property
    def command(self) -> str:
        """The options as typed on the command line."""
        typed = [
            f"--{name.replace('_', '-')} {value}" if name in OPTIONS else f"--set {name}={value}"
            for name, value in self.options.items()
            if name not in FLAGS
        ]
        typed += [f"--{'' if self.options[name] else 'no-'}{name}" for name in FLAGS if name in self.options]
        typed += [f"--backbone-set {name}={value}" for name, value in self.backbone_set.items()]
        typed += [f"--set {name}={value}" for name, value in self.settings.items()]
        return " ".join(typed)


def recipes_of(method: str) -> dict[str, NamedRecipe]:
    """Return the recipes of a method by name; may be empty."""
    file = FOLDER / f"{method}.toml"
    if not file.is_file():
        return {}
    return {name: _recipe(name, table) for name, table in tomllib.loads(file.read_text()).items()}


def named_recipe(method: str, name: str) -> NamedRecipe:
    """Return a recipe by name; raises InputError if the method has no recipe of that name."""
    known = recipes_of(method)
    if name not in known:
        listed = ", ".join(known) or "none"
        others = sorted(file.stem for file in FOLDER.glob("*.toml") if name in tomllib.loads(file.read_text()))
        advice = f"{name} is a recipe of {', '.join(others)}" if others else "choose another"
        raise InputError(f"{method} has no recipe {name!r}{closest(name, known)} (its recipes: {listed}); {advice}")
    return known[name]


def _recipe(name: str, table: dict[str, Any]) -> NamedRecipe:
    source, paper, ours = (str(table.get(word, "")) for word in WORDS)
    options = {option: value for option, value in table.items() if option not in (*WORDS, *TABLES)}
    return NamedRecipe(name, source, paper, ours, options, table.get("set", {}), table.get("backbone_set", {}))
