"""What each finder finds, requested in every way, against all pairs."""

import numpy as np
import pyarrow as pa
import pytest
from made import cosines, jittered, plain_rows, random_signatures

from curate.policies.dedup.finders.links import Links, best_of, first_of
from curate.policies.dedup.finders.passing import OfColour
from curate.policies.dedup.finders.searches import NearHash, NearVector, SameText
from curate.policies.dedup.finders.table import FINDERS, threshold_of
from scoring.errors import InputError
from scoring.images.signature import ORIENTATIONS, perceptual_hash, reorient, views

N, M = 70, 50


def texts(generator, n):
    values = [None if generator.random() < 0.1 else f"t{generator.integers(0, 20)}" for _ in range(n)]
    return pa.chunked_array([values[:30], values[30:]], pa.large_string())


def same_text(generator):
    rows, foreign = plain_rows(n=N), plain_rows(n=M)
    for each in (rows, foreign):
        each.texts["sha256"] = texts(generator, len(each))
    mine, others = rows.texts["sha256"].to_pylist(), foreign.texts["sha256"].to_pylist()
    measured = [np.array([[float(a is not None and a == b) for b in mine] for a in side]) for side in (mine, others)]
    return SameText(rows.texts["sha256"]), foreign, measured, [m == 1 for m in measured]


def near_hash(generator):
    base = generator.integers(0, 2**63, 15).astype(np.uint64)
    codes = [
        base[generator.integers(0, 15, n)] ^ (np.uint64(1) << generator.integers(0, 64, n).astype(np.uint64))
        for n in (N, M)
    ]
    rows, others = (plain_rows(phash=code, has_phash=generator.random(len(code)) < 0.9) for code in codes)
    rows.ok[:3] = others.ok[:3] = False
    usable = [each.has_phash & each.ok for each in (rows, others)]
    bits = [
        np.array([[(a ^ b).bit_count() for b in codes[0].tolist()] for a in side.tolist()], float) for side in codes
    ]
    return (
        NearHash(rows, 2),
        others,
        bits,
        [(b <= 2) & usable[0] & t[:, None] for b, t in zip(bits, usable, strict=True)],
    )


def seen(looks, mine, others):
    """The largest cosine of each pair over the views of the row that is queried."""
    both = [cosines(np.concatenate([look.apply(others), mine]))[: len(others), len(others) :] for look in looks]
    return np.max(both, axis=0)


def near_signature(generator):
    looks = views(mirrored=True, rotated=True)
    base = np.rint(random_signatures(generator, 10) / (1 + np.arange(255) % 16)).astype(np.int8)
    mine, others = (jittered(generator, base[generator.integers(0, 10, n)], n, 0.5) for n in (N, M))
    mine[:25] = looks[6].apply(mine[:25])
    others[:20] = looks[1].apply(others[:20])
    mine[40] = others[41] = 0
    foreign = plain_rows(n=M, signature=others)
    measured = [seen(looks, mine, side) for side in (mine, others)]
    return NearVector(mine, 0.93, "signature", looks), foreign, measured, [m >= 0.93 for m in measured]


def of_colour(generator):
    """Images of ten shapes in five colours, of which one is grey; some mirrored, with their colours."""
    looks, mirrored = views(mirrored=True), ORIENTATIONS["mirrored"]
    shapes = np.rint(random_signatures(generator, 10) / (1 + np.arange(255) % 16)).astype(np.int8)
    colours = generator.integers(-60, 60, (5, 4, 4, 2)).astype(np.int8)
    colours[0] = 1
    sides = []
    for n in (N, M):
        signature = jittered(generator, shapes[generator.integers(0, 10, n)], n, 0.3)
        colour = colours[generator.integers(0, 5, n)] + generator.integers(-1, 2, (n, 4, 4, 2)).astype(np.int8)
        signature[:20], colour[:20] = reorient(signature[:20], mirrored), colour[:20, :, ::-1]
        sides.append((signature, colour.astype(float)))
    (mine, of_mine), _ = sides
    measured, linked = [], []
    for signature, colour in sides:
        by_view = np.stack([seen([look], mine, signature) for look in looks])
        apart = np.stack(
            [np.hypot(*np.moveaxis(each[:, None] - of_mine, -1, 0)) for each in (colour, colour[:, :, ::-1])]
        )
        agrees = np.take_along_axis(apart.max((-2, -1)) <= 20, by_view.argmax(0)[None], 0)[0]
        copies = np.hypot(of_mine[..., 0], of_mine[..., 1]).max((1, 2)) < 4
        measured.append(by_view.max(0))
        linked.append((by_view.max(0) >= 0.93) & (agrees | copies))
        assert 10 < (linked[-1] & ~agrees).sum() < 0.8 * (by_view.max(0) >= 0.93).sum()
    (_, _), (others, of_others) = sides
    foreign = plain_rows(n=M, signature=others, chroma=of_others.astype(np.int8).reshape(M, 32))
    rows = plain_rows(signature=mine, chroma=of_mine.astype(np.int8).reshape(N, 32))
    search = OfColour(NearVector(mine, 0.93, "signature", looks), rows, looks)
    return search, foreign, measured, linked


def near_embedding(generator):
    base = generator.normal(size=(12, 16))
    mine, others = ((base[np.arange(n) % 12] + generator.normal(0, 0.2, (n, 16))).astype(np.float16) for n in (N, M))
    mine[0] = others[3] = 0
    cosine = [cosines(np.concatenate([side, mine]))[: len(side), len(side) :] for side in (mine, others)]
    foreign = plain_rows(n=M, embedding=others)
    return NearVector(mine, 0.95, "embedding"), foreign, cosine, [c >= 0.95 for c in cosine]


KINDS = [same_text, near_hash, near_signature, of_colour, near_embedding]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def case(request):
    search, others, measured, linked = request.param(np.random.default_rng(3))
    linked = [linked[0] & ~np.eye(N, dtype=bool), linked[1]]
    assert linked[0].sum() > 20
    assert linked[1].sum() > 20
    return search, others, measured, linked


def as_pairs(links):
    pairs = list(zip(links.query.tolist(), links.row.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    return set(pairs)


def test_every_pair_of_some_rows_among_others_is_found_and_no_other(case):
    search, _, measured, (linked, _) = case
    generator = np.random.default_rng(0)
    rows, among = generator.permutation(N)[:40], generator.random(N) < 0.7
    links = search.links(rows, among)
    assert as_pairs(links) == {(q, r) for q in rows.tolist() for r in range(N) if linked[q, r] and among[r]}
    assert links.similarity.tolist() == pytest.approx(measured[0][links.query, links.row].tolist(), abs=2e-6)


def test_the_first_match_of_a_row_is_the_first_query(case):
    search, _, measured, (linked, _) = case
    generator = np.random.default_rng(0)
    shuffled = generator.permutation(N)
    asking, among = shuffled[:40], np.zeros(N, bool)
    among[shuffled[40:]] = True
    links = search.first(asking, among)
    expected = {}
    for row in np.flatnonzero(among).tolist():
        hits = [q for q in asking.tolist() if linked[q, row]]
        if hits:
            expected[row] = hits[0]
    assert dict(zip(links.row.tolist(), links.query.tolist(), strict=True)) == expected
    assert len(links) == len(expected) > 3
    assert links.similarity.tolist() == pytest.approx(measured[0][links.query, links.row].tolist(), abs=2e-6)


def test_rows_that_search_themselves_get_an_earlier_match_where_there_is_one(case):
    search, _, _, (linked, _) = case
    order = np.random.default_rng(1).permutation(N)
    place = np.argsort(order)
    links = search.first(order, np.ones(N, bool))
    before = links.take(place[links.query] < place[links.row])
    expected = {}
    for at, row in enumerate(order.tolist()):
        hits = [q for q in order[:at].tolist() if linked[q, row]]
        if hits:
            expected[row] = hits[0]
    assert dict(zip(before.row.tolist(), before.query.tolist(), strict=True)) == expected


def test_rows_of_another_table_find_every_pair(case):
    search, others, measured, (_, linked) = case
    generator = np.random.default_rng(0)
    among, some = generator.random(N) < 0.7, generator.permutation(M)[:30]
    links = search.foreign(others, among, some)
    assert as_pairs(links) == {(q, r) for q in some.tolist() for r in range(N) if linked[q, r] and among[r]}
    assert links.similarity.tolist() == pytest.approx(measured[1][links.query, links.row].tolist(), abs=2e-6)
    everything = search.foreign(others, np.ones(N, bool))
    assert as_pairs(everything) == {(q, r) for q, r in np.argwhere(linked).tolist()}


def test_pairs_are_measured_whether_or_not_they_reach_the_threshold(case):
    search, _, measured, (linked, _) = case
    generator = np.random.default_rng(0)
    linked_rows = np.flatnonzero(linked.any(0))
    query, row = generator.choice(linked_rows, 60), generator.choice(linked_rows, 60)
    query, row = query[query != row], row[query != row]
    links = search.measure(query, row)
    assert links.similarity.tolist() == pytest.approx(measured[0][query, row].tolist(), abs=2e-6)


def test_asking_about_nothing_finds_nothing(case):
    search, others, _, _ = case
    nothing, nobody = np.zeros(0, np.int64), np.zeros(N, bool)
    for links in (
        search.links(nothing, ~nobody),
        search.links(np.arange(N), nobody),
        search.first(nothing, ~nobody),
        search.first(np.arange(N), nobody),
        search.foreign(others, nobody),
        search.foreign(others, ~nobody, nothing),
    ):
        assert len(links) == 0


def test_images_of_one_colour_are_not_the_same_by_their_hash():
    white, grey = (perceptual_hash(np.full((32, 32, 3), level, np.uint8)) for level in (255, 40))
    assert white == grey
    codes = np.array([white, grey, 5, 5], np.uint64)
    rows = plain_rows(phash=codes, has_phash=np.ones(4, bool))
    search = NearHash(rows, 2)
    assert as_pairs(search.links(np.arange(4), np.ones(4, bool))) == {(2, 3), (3, 2)}
    assert as_pairs(search.foreign(rows, np.ones(4, bool))) == {(2, 3), (3, 2), (2, 2), (3, 3)}
    assert search.notes == ("2 rows of one flat colour: not compared by hash",)


def links(*pairs):
    columns = list(zip(*pairs, strict=True))
    kinds = (np.int64, np.int64, np.float32, np.int8)
    return Links(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))


def test_the_best_view_of_a_pair_counts_and_the_first_query_of_a_row():
    first, second = links((0, 1, 0.5, 0), (3, 1, 0.9, 0)), links((0, 1, 0.7, 1), (2, 4, 0.6, 1))
    best = best_of([first, second])
    kept = [best.query.tolist(), best.row.tolist(), best.view.tolist()]
    assert kept == [[0, 2, 3], [1, 4, 1], [1, 1, 0]]
    leading = first_of([first, second])
    assert [leading.row.tolist(), leading.query.tolist(), leading.view.tolist()] == [[1, 4], [0, 2], [1, 1]]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("hash", 21, "0 and 20, got 21"),
        ("hash", 2.5, "0 and 20, got 2.5"),
        ("hash", -1, "got -1"),
        ("signature", 1.01, "got 1.01"),
        ("embedding", float("nan"), "got nan"),
        ("embedding", 0.4999, "got 0.4999"),
        ("bytes", 1.0, "bytes takes no threshold"),
        ("signature", "a", "a number, got 'a'"),
        ("hashh", None, "did you mean 'hash'"),
    ],
)
def test_a_threshold_out_of_range_names_the_range(name, value, words):
    with pytest.raises(InputError) as caught:
        threshold_of(name, value)
    assert words in str(caught.value)


def test_a_threshold_at_either_end_of_its_range_is_taken():
    for name, finder in FINDERS.items():
        if finder.threshold is not None:
            for end in (finder.lowest, finder.highest):
                assert threshold_of(name, end) == end
        assert threshold_of(name, None) == (1.0 if finder.threshold is None else finder.threshold)


def test_room_is_0_at_the_threshold_and_1_where_equal():
    for name, equal in (("hash", 0.0), ("signature", 1.0)):
        finder = FINDERS[name]
        room = finder.margin(np.array([finder.threshold, equal]), finder.threshold)
        assert room.tolist() == pytest.approx([0, 1])
        assert finder.holds(np.array([finder.threshold, equal], np.float32), finder.threshold).all()
