"""All pairs of the same arrays, by this project and by `imagededup`: seconds on one core, and their ratio."""

import os
import subprocess
import time
from pathlib import Path

import numpy as np

from scoring.search.cosine import CosineIndex
from scoring.search.hamming import HammingIndex

RADII = (10,)  # bits; what imagededup has by default
SPEED_COSINE = 0.95


def other_python(python: str, arrays: dict, folder: Path) -> dict[str, np.ndarray]:
    """Run the other package on arrays, and return the arrays that it wrote."""
    np.savez(folder / "given.npz", **arrays)
    script = Path(__file__).with_name("dedup_imagededup.py")
    command = [python, str(script), str(folder / "given.npz"), str(folder / "found.npz")]
    done = subprocess.run(
        command, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise SystemExit(f"{python} failed: {done.stderr.strip().splitlines()[-1]}")
    return dict(np.load(folder / "found.npz"))


def speed_arrays(n: int, width: int = 512) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors in clusters (N, D) float32 and hashes (N,) uint64; one in twenty is an edited copy of another."""
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((max(1, n // 100), width), np.float32)
    vectors = centres[generator.integers(0, len(centres), n)] + generator.standard_normal((n, width), np.float32)
    hashes = generator.integers(0, 2**64, n, dtype=np.uint64)
    copies = generator.permutation(n)[: n // 10].reshape(2, -1)
    vectors[copies[1]] = vectors[copies[0]] + 0.2 * generator.standard_normal((copies.shape[1], width), np.float32)
    flips = np.uint64(1) << generator.integers(0, 64, (3, copies.shape[1]), dtype=np.uint64)
    hashes[copies[1]] = hashes[copies[0]] ^ np.bitwise_or.reduce(flips)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), hashes


def speed(n: int, python: str, folder: Path) -> None:
    """Print how long each takes for all pairs of the same arrays, and the ratio."""
    vectors, hashes = speed_arrays(n)
    arrays = {"vectors": vectors, "hashes": hashes, "radii": np.array(RADII), "threshold": SPEED_COSINE}
    ours: dict[str, tuple[float, int]] = {}
    for radius in RADII:
        start = time.perf_counter()
        links = HammingIndex(hashes, radius).search(hashes)
        ours[f"hash {radius}"] = (time.perf_counter() - start, int((links.query != links.row).sum()))
    start = time.perf_counter()
    links = CosineIndex(vectors, SPEED_COSINE).search(vectors)
    ours["cnn"] = (time.perf_counter() - start, int((links.query != links.row).sum()))
    others = other_python(python, arrays, folder)
    print(f"\nall pairs of {n:,} rows on one core: seconds, links found (both directions)")
    for name, (seconds, n_pairs) in ours.items():
        what = f"{name} bits" if name.startswith("hash") else f"cosine {SPEED_COSINE}, {vectors.shape[1]} wide"
        other, other_pairs = others[name]
        print(
            f"{what:<28}curate {seconds:8.2f} s {n_pairs:>8,}   imagededup {other:8.2f} s {int(other_pairs):>8,}"
            f"   {other / seconds:7.1f} x"
        )
