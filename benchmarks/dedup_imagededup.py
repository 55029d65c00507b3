"""What `imagededup` finds, in the Python that has it; `dedup_quality.py` starts this, and needs no package.

    PYTHON dedup_imagededup.py IN.npz OUT.npz

IN holds `folder` (images named by their row), `embedding` (N, D) and `rows` (N,) for quality, or `vectors` (N, D) and
`hashes` (N,) for speed. Its pHash encodes the images itself, as it is; its CNN search gets the embeddings.
"""

import sys
import time

import numpy as np
import torch
from imagededup.methods import CNN, PHash
from imagededup.utils.models import CustomModel

FARTHEST = 16  # bits
LEAST = 0.8  # cosine


def pairs_of(found: dict[str, list]) -> np.ndarray:
    """Return (P, 3): row, row, what it reports for the two."""
    listed = [(int(a), int(b), float(value)) for a, others in found.items() for b, value in others]
    return np.array(listed).reshape(-1, 3)


def main() -> None:
    """Find duplicates, and time it."""
    torch.set_num_threads(1)
    given = np.load(sys.argv[1])
    nothing = torch.nn.Identity()  # the embeddings are given; without a model of ours it would fetch its own
    cnn = CNN(verbose=False, model_config=CustomModel(model=nothing, transform=nothing, name="none"))
    out: dict[str, np.ndarray | float] = {}
    if "folder" in given:
        hasher = PHash(verbose=False)
        start = time.perf_counter()
        codes = {name.split(".")[0]: code for name, code in hasher.encode_images(str(given["folder"])).items() if code}
        out["phash_encode_s"] = time.perf_counter() - start
        found = hasher.find_duplicates(encoding_map=codes, max_distance_threshold=FARTHEST, scores=True)
        out["phash"] = pairs_of(found)
        rows = dict(zip((str(row) for row in given["rows"]), given["embedding"], strict=True))
        found = cnn.find_duplicates(encoding_map=rows, min_similarity_threshold=LEAST, scores=True, num_sim_workers=0)
        out["cnn"] = pairs_of(found)
    else:
        codes = {str(row): f"{code:016x}" for row, code in enumerate(given["hashes"])}
        for radius in given["radii"]:
            start = time.perf_counter()
            found = PHash(verbose=False).find_duplicates(
                encoding_map=codes, max_distance_threshold=int(radius), num_dist_workers=0
            )
            out[f"hash {radius}"] = np.array([time.perf_counter() - start, sum(map(len, found.values()))])
            print(f"imagededup: hash {radius}", out[f"hash {radius}"], file=sys.stderr, flush=True)
        rows = {str(row): vector for row, vector in enumerate(given["vectors"])}
        start = time.perf_counter()
        found = cnn.find_duplicates(
            encoding_map=rows, min_similarity_threshold=float(given["threshold"]), num_sim_workers=0
        )
        out["cnn"] = np.array([time.perf_counter() - start, sum(map(len, found.values()))])
    np.savez(sys.argv[2], **out)


if __name__ == "__main__":
    main()
