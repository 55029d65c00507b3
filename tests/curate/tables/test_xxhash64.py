"""xxHash64 in NumPy against its published values, the reference and itself."""

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.tables.digests import key_array, key_bytes, tie_breaks
from curate.tables.xxhash64 import BLOCK, xxh64

# Of the specification's test vectors: bytes 0 to N - 1 of its generator, by seed.
PRIME32, PRIME64 = 2654435761, 11400714785074694797
PUBLISHED = [
    (0, 0, 0xEF46DB3751D8E999),
    (0, PRIME32, 0xAC75FDA2929B17EF),
    (1, 0, 0xE934A84ADB052768),
    (1, PRIME32, 0x5014607643A9B4C3),
    (4, 0, 0x9136A0DCA57457EE),
    (14, 0, 0x8282DCC4994E35C8),
    (14, PRIME32, 0xC3BD6BF63DEB6DF0),
    (222, 0, 0xB641AE8CB691C174),
    (222, PRIME32, 0x20CB8AB7AE10C14A),
]
TEXTS = st.lists(st.binary(max_size=200), max_size=40)


def generated(n):
    """The specification's input of n bytes."""
    state, data = PRIME32, bytearray()
    for _ in range(n):
        data.append(state >> 56)
        state = state * PRIME64 % 2**64
    return bytes(data)


@pytest.mark.parametrize(("n", "seed", "expected"), PUBLISHED)
def test_published_values(n, seed, expected):
    assert xxh64(pa.array([generated(n)], pa.large_binary()), seed).tolist() == [expected]


@settings(deadline=None)
@given(TEXTS, st.integers(-(2**63), 2**64 - 1), st.integers(0, 40))
def test_drawn_texts_have_the_hash_of_the_reference(texts, seed, first):
    hashes = xxh64(pa.array(texts, pa.large_binary()).slice(first), seed)
    assert hashes.tolist() == [xxhash.xxh64_intdigest(text, seed % 2**64) for text in texts[first:]]


@pytest.mark.parametrize("n_lengths", [3, 70])  # whose texts are hashed apart, or together
def test_more_texts_than_a_block_have_it_too(n_lengths):
    texts = [b"x" * (i % n_lengths * 5) + b"%d" % i for i in range(BLOCK + 3)]
    assert xxh64(pa.array(texts, pa.large_binary())).tolist() == [xxhash.xxh64_intdigest(text) for text in texts]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_keys_have_the_same_hash_in_whatever_layout(kind):
    texts = ["a.jpg", "ä/b.jpg", "", "c" * 40]
    hashes = tie_breaks(key_array(pa.array(texts).cast(kind)))
    assert hashes.dtype == np.uint64
    assert hashes.tolist() == tie_breaks([text.encode() for text in texts]).tolist()
    assert key_bytes(pa.array([7, -3])) == [b"7", b"-3"]


def test_texts_of_one_length_have_it_too():
    for length in range(70):
        texts = [bytes((7 * i + j) % 256 for j in range(length)) for i in range(5)]
        hashes = xxh64(pa.array([b"", *texts], pa.large_binary()).slice(1), 3)
        assert hashes.tolist() == [xxhash.xxh64_intdigest(text, 3) for text in texts], length
