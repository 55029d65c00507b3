"""Build sets of images that look unlike photographs from Debian packages: drawings, sprites, sheet music, textures.

    python benchmarks/domains.py OUT [--set NAME] [--images 1000] [--packages FOLDER]

Downloads each package by `apt-get download` and unpacks it by `dpkg -x`: nothing is installed. Writes OUT/NAME.parquet
with `image` and `label`, the folder of the image in its package; a file that another one equals, and one that cannot be
decoded, is left out. Measure a set by `python benchmarks/harm.py --data NAME=OUT/NAME.parquet --only planted`.
"""

import argparse
import hashlib
import re
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scoring.images import DecodeError, decode_rgb

WESNOTH = "wesnoth-1.16-data"
SETS: dict[str, tuple[tuple[str, ...], str]] = {  # name -> packages, pattern of the paths in them
    "charts": (tuple(f"python-{name}-doc" for name in ("sklearn", "statsmodels", "pandas", "astropy")), "_images/"),
    "figures": (("stellarium-data",), "skycultures/"),
    "flags": (("kgeography-data",), "flags/"),
    "graphs": (("libpcl-doc",), ""),
    "icons128": (("oxygen-icon-theme",), "128x128/"),
    "icons16": (("oxygen-icon-theme",), "16x16/"),
    "maps": (("kgeography-data",), "share/kgeography/[^/]*$"),
    "music": (("lilypond-doc",), "lily-[0-9a-f]+"),
    "nebulae": (("stellarium-data",), "nebulae/|textures/"),
    "portraits": ((WESNOTH,), "images/portraits/"),
    "rasters": (("grass-doc",), ""),
    "screens": (("gimp-help-en",), ""),
    "shapes": (("dia-shapes",), ""),
    "stamps": (("tuxpaint-stamps-default",), ""),
    "terrain": ((WESNOTH,), "core/images/terrain/"),
    "textures": (("flightgear-data-models",), ""),
    "tutorials": (("opencv-doc",), ""),
    "units": ((WESNOTH,), "core/images/units/"),
}
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")


def unpacked(package: str, folder: Path) -> Path:
    """Return the folder with the files of a Debian package, downloaded if it does not exist."""
    files = folder / package
    if not files.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (archive,) = folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg", "-x", archive.name, package], cwd=folder, check=True)
        archive.unlink()
    return files


def images(name: str, folder: Path, most: int) -> pa.Table:
    """Return a random sample of the distinct images of a set, ordered by path."""
    packages, pattern = SETS[name]
    paths = dict[str, Path]()
    for path in (path for package in packages for path in sorted(unpacked(package, folder).rglob("*.*"))):
        named = path.suffix.lower() in SUFFIXES and re.search(pattern, path.relative_to(folder).as_posix())
        if named and path.is_file() and not path.is_symlink():
            paths.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), path)
    chosen = list[Path]()
    for number in np.random.default_rng(0).permutation(len(paths)):
        path = list(paths.values())[number]
        try:
            decode_rgb(path.read_bytes())
        except DecodeError:
            continue
        chosen.append(path)
        if len(chosen) == most:
            break
    chosen.sort()
    label = np.unique([path.parent.as_posix() for path in chosen], return_inverse=True)[1]
    return pa.table({"label": label, "image": [path.read_bytes() for path in chosen]})


def main() -> None:
    """Write the sets and print their numbers of images."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--set", action="append", choices=SETS, dest="sets")
    parser.add_argument("--images", type=int, default=1000, help="most images of a set")
    parser.add_argument("--packages", type=Path, default=Path("build/packages"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.sets or SETS:
        table = images(name, options.packages, options.images)
        pq.write_table(table, options.out / f"{name}.parquet", row_group_size=1000)
        print(f"{name}: {table.num_rows:,} images", flush=True)


if __name__ == "__main__":
    main()
