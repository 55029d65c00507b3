import numpy as np
import pyarrow as pa
import pytest
from drawn_pairs import pairs_of


@pytest.fixture(scope="module")
def many():
    generator = np.random.default_rng(0)
    cosine = np.concatenate([1 - 0.1 * generator.random(3000) ** 2, 0.9 - 0.05 * generator.random(500)])
    bits = generator.choice([0, 1, 2, 3, 4], 400)
    return pa.concat_tables([pairs_of(cosine.astype(np.float32)), pairs_of(bits.astype(np.float32), "hash")])
