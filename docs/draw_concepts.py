"""The images of docs/concepts.md: contact sheets of the demonstration, and draws of von Mises-Fisher distributions.

python docs/draw_concepts.py   needs `make demo`, whose table it draws; writes docs/images/concept-*
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "demo" / "scores.parquet"
OUT = ROOT / "docs" / "images"
SHEETS = {"junk": "p_junk", "ambiguous": "unc_ambiguous", "kappa": "kappa_mcinfonce"}
KAPPAS = (2, 20, 200)


def draw_sheets() -> None:
    """Draw the six highest and lowest images of each column, and the groups unlike the rest."""
    from PIL import Image

    import curate

    made = OUT / "sheet.png"
    for name, column in SHEETS.items():
        curate.sheet(TABLE, made, column=column, top=6, bottom=6, columns=6, overwrite=True)
        Image.open(made).save(OUT / f"concept-{name}.webp", quality=80)
    made.unlink()
    line = ["issues", str(TABLE), "--only", "unlike-the-rest", "--sheet", str(made), "--quiet"]
    subprocess.run([sys.executable, "-m", "curate", *line], check=True)  # noqa: S603 (our own words)
    Image.open(made).save(OUT / "concept-unlike.webp", quality=80)
    made.unlink()


def draw_spheres() -> None:
    """Draw 150 points from distributions of three concentrations on a circle, around one direction."""
    import matplotlib.pyplot as plt
    import torch

    from scoring.distributions.vmf_sampler import sample

    generator = torch.Generator().manual_seed(0)
    plt.rcParams["svg.hashsalt"] = "curate"
    figure, axes = plt.subplots(1, len(KAPPAS), figsize=(7.2, 2.6))
    for axis, kappa in zip(axes, KAPPAS, strict=True):
        points = sample(torch.tensor([0.0, 1.0]), torch.tensor(float(kappa)), 150, generator)  # (150, 2)
        axis.add_patch(plt.Circle((0, 0), 1, fill=False, color="#999999"))
        axis.scatter(points[:, 0], points[:, 1], s=12, color="#0072b2", alpha=0.5)
        axis.annotate("", (0, 1), (0, 0), arrowprops={"arrowstyle": "->", "color": "#d55e00"})
        axis.set(title=f"kappa {kappa}", xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
        axis.axis("off")
    figure.savefig(OUT / "concept-vmf.svg", metadata={"Date": None}, bbox_inches="tight")


if __name__ == "__main__":
    draw_sheets()
    draw_spheres()
