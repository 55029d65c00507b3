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


def pairs_of(matches: dict[str, list]) -> np.ndarray:
    """Return (P, 3): row, row, what it reports for the two."""
    listed = [(int(a), int(b), float(value)) for a, others in matches.items() for b, value in others]
    return np.array(listed).reshape(-1, 3)


def main() -> None:
    """Find duplicates, and time it."""
    torch.set_num_threads(1)
    arrays = np.load(sys.argv[1])
    nothing = torch.nn.Identity()  # the embeddings are given; without a model of ours it would fetch its own
    cnn = CNN(verbose=False, model_config=CustomModel(model=nothing, transform=nothing, name="none"))
    out: dict[str, np.ndarray | float] = {}
    if "folder" in arrays:
        hasher = PHash(verbose=False)
        start = time.perf_counter()
        codes = {name.split(".")[0]: code for name, code in hasher.encode_images(str(arrays["folder"])).items() if code}
        out["phash_encode_s"] = time.perf_counter() - start
        matches = hasher.find_duplicates(encoding_map=codes, max_distance_threshold=FARTHEST, scores=True)
        out["phash"] = pairs_of(matches)
        rows = dict(zip((str(row) for row in arrays["rows"]), arrays["embedding"], strict=True))
        matches = cnn.find_duplicates(encoding_map=rows, min_similarity_threshold=LEAST, scores=True, num_sim_workers=0)
        out["cnn"] = pairs_of(matches)
    else:
        codes = {str(row): f"{code:016x}" for row, code in enumerate(arrays["hashes"])}
        for radius in arrays["radii"]:
            start = time.perf_counter()
            matches = PHash(verbose=False).find_duplicates(
                encoding_map=codes, max_distance_threshold=int(radius), num_dist_workers=0
            )
            out[f"hash {radius}"] = np.array([time.perf_counter() - start, sum(map(len, matches.values()))])
            print(f"imagededup: hash {radius}", out[f"hash {radius}"], file=sys.stderr, flush=True)
        rows = {str(row): vector for row, vector in enumerate(arrays["vectors"])}
        start = time.perf_counter()
        matches = cnn.find_duplicates(
            encoding_map=rows, min_similarity_threshold=float(arrays["threshold"]), num_sim_workers=0
        )
        out["cnn"] = np.array([time.perf_counter() - start, sum(map(len, matches.values()))])
    np.savez(sys.argv[2], **out)


if __name__ == "__main__":
    main()
