"""The document of a report: every number in it, counted again by other means from the same files."""

import base64
import io
import json
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from five_policies import FAILED, N, made
from PIL import Image
from scipy.stats import spearmanr

from curate.reporting import galleries
from curate.reporting.columns import read_dataset
from curate.reporting.document import gather
from curate.reporting.options import ReportOptions
from curate.tables.rows import read_rows
from curate.tables.table import open_table


@pytest.fixture(scope="module")
def whole(five_policies):
    return made(five_policies, "issues.parquet", "labels.decisions.parquet", "picked.receipt.json")


@pytest.fixture(scope="module")
def frame(five_policies):
    return pl.read_parquet(five_policies / "scores.parquet")


def rows_of(document, gallery):
    shown = next(each for each in document["galleries"] if each["id"] == gallery)
    items = (
        shown["items"] if shown["kind"] == "flat" else [item for group in shown["groups"] for item in group["items"]]
    )
    return [document["rows"]["row"][item] for item in items]


def images_of(frame):
    """Rows in their order, of equal images the first."""
    return frame.unique("sha256", keep="first", maintain_order=True)["index"].to_list()


def test_it_is_strict_json_without_a_number_that_does_not_exist(whole):
    json.dumps(whole, allow_nan=False)
    assert whole["version"] == 1
    assert whole["n_rows"] == N
    assert whole["sampled"] is None


def test_the_overview_counts_every_row(whole, frame):
    for name in ("status", "format"):
        expected = {row[0]: row[1] for row in frame.group_by(name).len().iter_rows()}
        assert dict(map(tuple, whole["overview"][name])) == expected
    classes = whole["overview"]["classes"]
    assert dict(map(tuple, classes["shown"])) == dict(frame.group_by("label").len().iter_rows())
    assert (classes["n_classes"], classes["others"]) == (5, 0)
    width = whole["overview"]["sizes"]["width"]
    assert width["counts"] == [80] * 5
    assert width["edges"][0] == 99.5


def test_histograms_hold_every_value_once(whole, frame):
    assert {each["column"] for each in whole["distributions"]} >= {"unc_losspred", "kappa_mcinfonce", "aesthetic"}
    for each in whole["distributions"]:
        values = frame[each["column"]].drop_nulls().to_numpy().astype(float)
        edges, counts = each["hist"]["edges"], each["hist"]["counts"]
        slow = [sum(1 for v in values if a <= v and (v < b or (b == edges[-1] and v == b))) for a, b in pairwise(edges)]
        assert counts == slow, each["column"]
        assert sum(counts) == len(values)


def test_quantiles_of_a_class_equal_polars(whole, frame):
    for column in ("unc_losspred", "kappa_mcinfonce"):
        spread = next(each for each in whole["distributions"] if each["column"] == column)
        for of_class in spread["by_class"]:
            values = frame.filter(pl.col("label") == of_class["name"])[column].cast(pl.Float64).drop_nulls()
            assert of_class["n"] == len(values)
            expected = [values.quantile(q, interpolation="linear") for q in (0.05, 0.25, 0.5, 0.75, 0.95)]
            assert of_class["q"] == pytest.approx(expected, rel=1e-12)


def test_the_policies_are_in_the_order_applied_and_those_between_are_found(whole):
    assert [each["step"] for each in whole["funnel"]] == ["issues", "labels", "filter", "dedup", "select"]


def test_the_sums_of_the_funnel_match_the_decisions(whole, five_policies):
    for each in whole["funnel"]:
        decisions = pl.read_parquet(five_policies / each["file"].replace(".parquet", ".decisions.parquet"))
        counts = dict(decisions.group_by("decision").len().iter_rows())
        assert each["rows_in"] == len(decisions) == each["kept"] + sum(reason["n"] for reason in each["out"])
        assert each["kept"] == counts["keep"]
        for word in ("drop", "undecided", "failed"):
            assert sum(reason["n"] for reason in each["out"] if reason["decision"] == word) == counts.get(word, 0)
    after = {each["step"]: each["kept"] for each in whole["funnel"]}
    into = {each["step"]: each["rows_in"] for each in whole["funnel"]}
    assert (into["dedup"], into["select"]) == (after["filter"], after["dedup"])


def decisions_of(five_policies, *names):
    expected = {}
    for name in names:
        for row in pl.read_parquet(five_policies / f"{name}.decisions.parquet").iter_rows(named=True):
            if row["decision"] == "drop" or expected.get(row["key"], ("", ""))[0] != "drop":
                expected[row["key"]] = (row["decision"], row["reason"])
    return expected


def test_every_row_has_the_decision_of_what_dropped_it_else_of_the_last_that_saw_it(whole, five_policies):
    expected = decisions_of(five_policies, "issues", "labels", "kept", "alone", "picked")
    rows = whole["rows"]
    assert dict(zip(rows["key"], zip(rows["decision"], rows["reason"], strict=True), strict=True)) == expected


@pytest.mark.parametrize(
    "names", [("kept", "labels", "issues"), ("issues", "kept", "labels"), ("labels", "issues", "kept")]
)
def test_a_row_that_one_of_several_policies_on_one_table_drops_is_dropped_in_whatever_order(five_policies, names):
    report = made(five_policies, *(f"{name}.parquet" for name in names))
    rows = report["rows"]
    assert dict(zip(rows["key"], zip(rows["decision"], rows["reason"], strict=True), strict=True)) == decisions_of(
        five_policies, *names
    )
    dropped = {
        key
        for name in names
        for key, decision in pl.read_parquet(five_policies / f"{name}.decisions.parquet")["key", "decision"].iter_rows()
        if decision == "drop"
    }
    assert {key for key, decision in zip(rows["key"], rows["decision"], strict=True) if decision == "drop"} == dropped
    assert report["overview"]["kept"] == rows["decision"].count("keep")
    gallery = next(each for each in report["galleries"] if each["id"] == "dropped")
    assert sum(int(group["words"].rsplit(": ")[-1].split()[0]) for group in gallery["groups"]) == len(dropped)


def test_the_rows_match_the_table_under_unique_names(whole, frame):
    rows = whole["rows"]
    assert rows["n"] == N
    assert rows["row"] == list(range(N))
    for name in ("key", "status", "label", "unc_losspred", "width", "aesthetic"):
        values = frame[name].to_list()
        assert rows[name] == (pytest.approx(values) if name in ("unc_losspred", "aesthetic") else values)
    assert rows["path"] == frame["uri"].to_list()
    assert rows["u:n"] == frame["n"].to_list()
    shown = {each["name"]: each for each in whole["columns"]}
    assert shown["u:n"] | {"words": ""} == {
        "name": "u:n",
        "label": "n",
        "kind": "text",
        "direction": 0,
        "words": "",
        "integer": False,
    }
    assert (shown["label"]["kind"], shown["width"]["kind"], shown["width"]["integer"]) == ("class", "number", True)
    assert (shown["unc_losspred"]["direction"], shown["kappa_mcinfonce"]["direction"]) == (-1, 1)
    assert "embedding" not in shown
    assert set(rows) == {"n", "row", "key", "path", "status", "decision", "reason", *shown}


def test_the_ends_of_the_score_equal_a_sort(whole, frame):
    order = frame.with_row_index().drop_nulls("unc_losspred").sort("unc_losspred")
    assert rows_of(whole, "most-certain") == images_of(order)[:48]
    assert rows_of(whole, "least-certain") == images_of(order.reverse())[:48]
    first = next(each for each in whole["galleries"] if each["id"] == "by-class")["groups"][:2]
    name = first[0]["words"].partition(":")[0]
    of_class = order.filter(pl.col("label") == name)
    assert [whole["rows"]["row"][item] for item in first[0]["items"]] == images_of(of_class)[:6]
    assert [whole["rows"]["row"][item] for item in first[1]["items"]] == images_of(of_class.reverse())[:6]


def test_equal_images_are_shown_once_and_others_come_instead():
    from curate.reporting.galleries import Gallery, Group, without_copies

    class Bytes:
        """A table of 12 rows, of which the first 6 are of equal bytes and one has none."""

        schema = pa.schema([("sha256", pa.string())])

        def take(self, rows, names):
            digests = ["same"] * 6 + [None, "a", "b", "c", "d", "e"]
            return pa.table({"sha256": [digests[row] for row in rows]})

    flat = Gallery("flat", "", "", rows=[5, 0, 3, 8, 6, 1, 7, 9], most=4)
    grouped = Gallery("grouped", "", "", groups=[Group("g", [0, 1, 10]), Group("h", [2])], most=2)
    all_shown = Gallery("all", "", "", rows=[0, 1, 2])
    galleries = without_copies(Bytes(), [flat, grouped, all_shown])
    assert galleries[0].rows == [5, 8, 6, 7]
    assert [group.rows for group in galleries[1].groups] == [[0, 10], [2]]
    assert galleries[2].rows == [0, 1, 2]


def test_high_values_come_first_where_that_is_requested(five_policies, frame):
    report = made(five_policies, column="max:aesthetic")
    assert report["default_score"] == "aesthetic"
    ok = frame.with_row_index().filter(pl.col("status") == "ok").sort("aesthetic", descending=True)
    assert rows_of(report, "most-certain") == ok["index"].to_list()[:48]


def test_the_cut_is_the_last_value_that_stayed_and_both_sides_are_nearest_to_it(whole, five_policies, frame):
    kept = pl.read_parquet(five_policies / "kept.parquet")
    cut = next(each for each in whole["distributions"] if each["column"] == "unc_losspred")["cuts"]
    assert [(each["value"], each["words"]) for each in cut] == [
        (pytest.approx(kept["unc_losspred"].max()), "--drop-bottom 25% of filter")
    ]
    just_kept, just_dropped = next(each for each in whole["galleries"] if each["id"] == "cut")["groups"]
    score = frame["unc_losspred"].to_list()
    stays = set(kept["key"])
    ordered = sorted((v, i) for i, v in enumerate(score) if v is not None)
    by_score = frame.with_row_index()[[i for _, i in ordered]]
    kept_rows = images_of(by_score.filter(pl.col("key").is_in(stays)).reverse())[:24]
    dropped_rows = images_of(by_score.filter(~pl.col("key").is_in(stays)))[:24]
    assert [whole["rows"]["row"][item] for item in just_kept["items"]] == kept_rows
    assert [whole["rows"]["row"][item] for item in just_dropped["items"]] == dropped_rows


def test_duplicates_are_shown_with_the_row_that_was_kept(whole, five_policies):
    groups = next(each for each in whole["galleries"] if each["id"] == "duplicates")["groups"]
    decisions = pl.read_parquet(five_policies / "alone.decisions.parquet").filter(pl.col("group").is_not_null())
    keys = whole["rows"]["key"]
    assert len(groups) == decisions["group"].n_unique() == 1
    assert {keys[item] for item in groups[0]["items"]} == set(decisions["key"])
    assert keys[groups[0]["kept"]] == decisions["kept_key"].drop_nulls()[0]


def test_dropped_rows_are_listed_by_reason_and_failed_ones_by_status(whole, frame):
    groups = next(each for each in whole["galleries"] if each["id"] == "dropped")["groups"]
    rows = whole["rows"]
    assert any(group["words"].startswith("filter, --drop-bottom 25%: ") for group in groups)
    assert any(group["words"].startswith("dedup, bytes") for group in groups)
    assert any(group["words"].startswith("select") for group in groups)
    assert all(rows["decision"][item] == "drop" for group in groups for item in group["items"])
    assert sorted(rows_of(whole, "failed")) == FAILED


def test_suspected_labels_and_issues_are_those_that_the_policies_found(whole, five_policies):
    labels = pl.read_parquet(five_policies / "labels.decisions.parquet").filter(pl.col("margin") < 0).sort("score")
    assert set(rows_of(whole, "labels")) <= {int(key[4:7]) for key in labels["key"]}
    assert {11, 91, 171, 251, 331} - set(FAILED) <= set(rows_of(whole, "labels"))
    assert rows_of(whole, "labels")[0] == int(labels["key"][0][4:7])
    assert sorted(rows_of(whole, "issues")) == [row for row in range(12) if row not in FAILED]


def test_kinds_of_issues_are_read_together_as_far_as_there_is_room(frame, tmp_path, monkeypatch):
    values = pl.Series(np.linspace(0, 1, N), dtype=pl.Float32)
    frame.with_columns(quality_sharpness=values, quality_contrast=values).write_parquet(tmp_path / "more.parquet")
    dataset, read = read_dataset(open_table(tmp_path / "more.parquet"), None), []
    monkeypatch.setattr(galleries, "read_rows", lambda *given: read.append(given[1].exact) or read_rows(*given))
    together = list(galleries.issues_in(dataset, []))
    assert len(read) == 1
    monkeypatch.setattr("curate.reporting.numbers.MEMORY", 1)
    apart = list(galleries.issues_in(dataset, []))
    assert len(read) == 1 + len(apart) > 2
    assert [each[0] for each in apart] == [each[0] for each in together]
    for one, other in zip(apart, together, strict=True):
        assert np.array_equal(one[3], other[3])


def test_ranks_are_spearmans_by_scipy(whole, frame):
    names, rho = whole["ranks"]["columns"], whole["ranks"]["rho"]
    assert set(names) == {"unc_losspred", "kappa_mcinfonce"}
    known = frame.drop_nulls("unc_losspred")
    expected = spearmanr(known["unc_losspred"], known["kappa_mcinfonce"]).statistic
    assert rho[0][1] == rho[1][0] == pytest.approx(expected, abs=1e-12)
    assert whole["ranks"]["n"] == N


def test_a_sample_is_the_same_whatever_the_order_of_the_rows_and_holds_the_galleries(five_policies, tmp_path):
    request = ReportOptions("s", points=0, column="unc_losspred", sample=50)
    table = open_table(five_policies / "scores.parquet")
    facts = gather(table, request)
    turned = pl.read_parquet(five_policies / "scores.parquet").reverse()
    turned.write_parquet(tmp_path / "turned.parquet")
    again = gather(open_table(tmp_path / "turned.parquet"), request)
    keys = pl.read_parquet(five_policies / "scores.parquet")["key"]
    assert [keys[row] for row in facts.drawn.tolist()] == [turned["key"][row] for row in again.drawn.tolist()]
    assert len(facts.drawn) == 50
    assert set(facts.in_galleries()) <= set(facts.listed().tolist())
    report = gather(table, request).full_document(thumbs=0)
    assert report["sampled"]["n"] == 50
    assert report["rows"]["n"] == len(facts.listed()) < N
    assert (
        report["about"]["digest"] == gather(open_table(tmp_path / "turned.parquet"), request).counted["about"]["digest"]
    )


def test_another_seed_draws_other_rows(five_policies):
    table = open_table(five_policies / "scores.parquet")
    first, second = (
        gather(table, ReportOptions("s", points=0, column="unc_losspred", sample=50), seed=s).drawn for s in (0, 1)
    )
    assert set(first.tolist()) != set(second.tolist())


def test_thumbnails_are_the_images_small_and_those_that_are_gone_are_counted(five_policies, tmp_path):
    table = pl.read_parquet(five_policies / "scores.parquet").head(30)
    gone = table.with_columns(
        uri=pl.when(pl.int_range(pl.len()) < 4).then(pl.lit(str(tmp_path / "none.png"))).otherwise("uri"),
        status=pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("gone")).otherwise("status"),
    )
    gone.write_parquet(tmp_path / "scores.parquet")
    (tmp_path / "text.png").write_text("no image")
    report = gather(open_table(tmp_path / "scores.parquet"), ReportOptions("s", points=0)).full_document(thumbs=100)
    thumbs = report["thumbs"]
    assert thumbs["missing"] == 3  # the first row was gone when it was scored
    assert "3 images" in thumbs["words"]
    assert [place >= 0 for place in thumbs["of"]] == [row >= 4 for row in report["rows"]["row"]]
    picture = Image.open(io.BytesIO(base64.b64decode(thumbs["data"][thumbs["of"][9]])))
    assert picture.size[0] <= thumbs["side"] == 128
    assert picture.format == "WEBP"
    assert np.abs(np.asarray(picture.convert("RGB"), int).mean((0, 1)) - (report["rows"]["row"][9], 100, 200)).max() < 5


def test_thumbnails_are_bounded_and_galleries_come_first(five_policies):
    report = made(five_policies, thumbs=9)
    shown = [row for row, place in enumerate(report["thumbs"]["of"]) if place >= 0]
    assert len(shown) == len(report["thumbs"]["data"]) == 9
    in_galleries = {
        item
        for each in report["galleries"]
        for items in [each.get("items", []), *(group["items"] for group in each.get("groups", []))]
        for item in items
    }
    assert set(shown) <= in_galleries


def test_a_table_without_paths_has_placeholders_and_says_what_to_name(five_policies, tmp_path):
    pl.read_parquet(five_policies / "scores.parquet").drop("uri").write_parquet(tmp_path / "scores.parquet")
    report = gather(open_table(tmp_path / "scores.parquet"), ReportOptions("s", points=0)).full_document(thumbs=10)
    assert report["thumbs"]["data"] == []
    assert "--source" in report["thumbs"]["words"]
    assert "path" not in report["rows"]


def test_without_the_library_the_map_is_left_out_with_the_line_that_installs_it(five_policies, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openTSNE", None)
    report = made(five_policies, points=50)
    assert report["map"] is None
    assert any("pip install 'kappa-curate[map]'" in note for note in report["overview"]["notes"])


def test_the_map_places_rows_near_their_kind_and_repeats_its_places(five_policies):
    pytest.importorskip("openTSNE")
    report = made(five_policies, points=60)
    places = report["map"]
    x, y, uncertainty = (np.frombuffer(base64.b64decode(places[name]), "<f4") for name in ("x", "y", "uncertainty"))
    again = made(five_policies, points=60)["map"]
    assert (places["x"], places["y"]) == (again["x"], again["y"])
    rows = report["rows"]
    assert len(places["row"]) == len(x) == len(uncertainty) >= 57
    assert all(rows["status"][item] == "ok" for item in places["row"])
    score = np.array([rows["unc_losspred"][item] for item in places["row"]])
    order = np.argsort(score)
    assert np.allclose(uncertainty[order], np.arange(len(order)) / (len(order) - 1), atol=1e-6)
    xy = np.stack([x, y], 1)
    cluster = np.array([rows["row"][item] % 5 for item in places["row"]])
    nearest = [np.argsort(((xy - point) ** 2).sum(1))[1] for point in xy]
    assert (cluster[nearest] == cluster).mean() > 0.8
