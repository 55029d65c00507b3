"""Packages that are installed next to curate, and Python with them."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def install(folder, name, entries, code, group="curate.rules"):
    """Put a package into a folder of packages, as pip does."""
    (folder / f"{name}-1.0.dist-info").mkdir(parents=True)
    (folder / f"{name}.py").write_text(code)
    (folder / f"{name}-1.0.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / f"{name}-1.0.dist-info" / "entry_points.txt").write_text(f"[{group}]\n{entries}\n")
    return folder


def python(*line, folder, packages="site"):
    """Run Python in a folder, with the packages in one of its folders."""
    paths = os.pathsep.join([str(ROOT), str(folder / packages)])
    env = os.environ | {"PYTHONPATH": paths}
    return subprocess.run([sys.executable, *map(str, line)], capture_output=True, text=True, cwd=folder, env=env)
