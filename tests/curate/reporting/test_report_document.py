"""The document of a report: every number in it, counted again by other means from the same files."""

import base64
import hashlib
import io
import json
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from choosing import columns_of, write
from PIL import Image
from scipy.stats import spearmanr
from typer.testing import CliRunner

import curate
from curate.cli import app
from curate.policies.seal import sealed
from curate.reporting.document import FactsRequest, gather, listed
from curate.tables.table import open_table
from scoring.errors import InputError

N = 400
FAILED = [7, 91, 200]


def png(row):
    row = row if row % 40 else 0  # of 40 rows one has the bytes of the first
    buffer = io.BytesIO()
    Image.new("RGB", (40 + row % 7, 30), (row % 256, 100, 200)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of 400 rows, three of them failed, and five policies over it, one after or next to another."""
    folder = tmp_path_factory.mktemp("report")
    ok = [row not in FAILED for row in range(N)]
    columns = columns_of(N, seed=3)
    score = [value if is_ok else None for value, is_ok in zip(columns["unc_losspred"].tolist(), ok, strict=True)]
    for row in range(N):
        (folder / f"{row}.png").write_bytes(png(row))
    sha = [hashlib.sha256(png(row)).hexdigest() if ok[row] else None for row in range(N)]
    columns |= {
        "status": ["ok" if is_ok else ("truncated", "not_an_image")[row % 2] for row, is_ok in enumerate(ok)],
        "unc_losspred": score,
        "uri": [str(folder / f"{row}.png") for row in range(N)],
        "sha256": sha,
        "format": ["jpeg" if row % 3 else "png" for row in range(N)],
        "width": [100 + row % 5 for row in range(N)],
        "n": [f"text {row}" for row in range(N)],
        "quality_highlight": [None if not is_ok else 0.1 if row < 12 else 0.9 for row, is_ok in enumerate(ok)],
        "label": [f"class {(row + (row % 80 == 11)) % 5}" for row in range(N)],
        "photographer": None,
    }
    write(folder / "scores.parquet", {name: values for name, values in columns.items() if values is not None})
    table = folder / "scores.parquet"
    curate.filter(table, folder / "kept.parquet", drop_bottom="25%", column="unc_losspred", allow_uneven=True)
    curate.dedup(folder / "kept.parquet", folder / "alone.parquet", finder=["bytes"])
    curate.select(folder / "alone.parquet", folder / "picked.parquet", budget=20, strategy="random")
    curate.labels(table, folder / "labels.parquet", "label", drop_suspected=True)
    curate.issues(table, folder / "issues.parquet")
    return folder


def made(folder, *results, thumbs=0, **options):
    options = {"points": 0, "column": "unc_losspred", **options}
    results = [folder / name for name in results]
    return listed(
        gather(open_table(folder / "scores.parquet"), FactsRequest(results=results, **options)), thumbs=thumbs
    )


@pytest.fixture(scope="module")
def whole(folder):
    return made(folder, "issues.parquet", "labels.decisions.parquet", "picked.receipt.json")


@pytest.fixture(scope="module")
def frame(folder):
    return pl.read_parquet(folder / "scores.parquet")


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


def test_quantiles_of_a_class_are_those_of_polars(whole, frame):
    for column in ("unc_losspred", "kappa_mcinfonce"):
        spread = next(each for each in whole["distributions"] if each["column"] == column)
        for of_class in spread["by_class"]:
            values = frame.filter(pl.col("label") == of_class["name"])[column].cast(pl.Float64).drop_nulls()
            assert of_class["n"] == len(values)
            expected = [values.quantile(q, interpolation="linear") for q in (0.05, 0.25, 0.5, 0.75, 0.95)]
            assert of_class["q"] == pytest.approx(expected, rel=1e-12)


def test_the_policies_stand_in_the_order_applied_and_those_between_are_found(whole):
    assert [each["step"] for each in whole["funnel"]] == ["issues", "labels", "filter", "dedup", "select"]


def test_the_sums_of_the_funnel_are_those_of_the_decisions(whole, folder):
    for each in whole["funnel"]:
        decisions = pl.read_parquet(folder / each["file"].replace(".parquet", ".decisions.parquet"))
        counts = dict(decisions.group_by("decision").len().iter_rows())
        assert each["rows_in"] == len(decisions) == each["kept"] + sum(reason["n"] for reason in each["out"])
        assert each["kept"] == counts["keep"]
        for word in ("drop", "undecided", "failed"):
            assert sum(reason["n"] for reason in each["out"] if reason["decision"] == word) == counts.get(word, 0)
    after = {each["step"]: each["kept"] for each in whole["funnel"]}
    into = {each["step"]: each["rows_in"] for each in whole["funnel"]}
    assert (into["dedup"], into["select"]) == (after["filter"], after["dedup"])


def decisions_of(folder, *names):
    expected = {}
    for name in names:
        for row in pl.read_parquet(folder / f"{name}.decisions.parquet").iter_rows(named=True):
            if row["decision"] == "drop" or expected.get(row["key"], ("", ""))[0] != "drop":
                expected[row["key"]] = (row["decision"], row["reason"])
    return expected


def test_every_row_has_the_decision_of_what_dropped_it_else_of_the_last_that_saw_it(whole, folder):
    expected = decisions_of(folder, "issues", "labels", "kept", "alone", "picked")
    rows = whole["rows"]
    assert dict(zip(rows["key"], zip(rows["decision"], rows["reason"], strict=True), strict=True)) == expected


@pytest.mark.parametrize(
    "names", [("kept", "labels", "issues"), ("issues", "kept", "labels"), ("labels", "issues", "kept")]
)
def test_a_row_that_one_of_several_policies_on_one_table_drops_is_dropped_in_whatever_order(folder, names):
    report = made(folder, *(f"{name}.parquet" for name in names))
    rows = report["rows"]
    assert dict(zip(rows["key"], zip(rows["decision"], rows["reason"], strict=True), strict=True)) == decisions_of(
        folder, *names
    )
    dropped = {
        key
        for name in names
        for key, decision in pl.read_parquet(folder / f"{name}.decisions.parquet")["key", "decision"].iter_rows()
        if decision == "drop"
    }
    assert {key for key, decision in zip(rows["key"], rows["decision"], strict=True) if decision == "drop"} == dropped
    assert report["overview"]["kept"] == rows["decision"].count("keep")
    gallery = next(each for each in report["galleries"] if each["id"] == "dropped")
    assert sum(int(group["words"].rsplit(": ")[-1].split()[0]) for group in gallery["groups"]) == len(dropped)


def test_the_rows_are_those_of_the_table_under_names_that_do_not_clash(whole, frame):
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
        "name": "u:n", "label": "n", "kind": "text", "direction": 0, "words": "", "integer": False
    }  # fmt: skip
    assert (shown["label"]["kind"], shown["width"]["kind"], shown["width"]["integer"]) == ("class", "number", True)
    assert (shown["unc_losspred"]["direction"], shown["kappa_mcinfonce"]["direction"]) == (-1, 1)
    assert "embedding" not in shown
    assert set(rows) == {"n", "row", "key", "path", "status", "decision", "reason", *shown}


def test_the_ends_of_the_score_are_those_of_a_sort(whole, frame):
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


def test_high_values_come_first_where_that_is_asked_for(folder, frame):
    report = made(folder, column="max:aesthetic")
    assert report["default_score"] == "aesthetic"
    ok = frame.with_row_index().filter(pl.col("status") == "ok").sort("aesthetic", descending=True)
    assert rows_of(report, "most-certain") == ok["index"].to_list()[:48]


def test_the_cut_is_the_last_value_that_stayed_and_both_sides_are_nearest_to_it(whole, folder, frame):
    kept = pl.read_parquet(folder / "kept.parquet")
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


def test_duplicates_stand_with_the_row_that_was_kept(whole, folder):
    groups = next(each for each in whole["galleries"] if each["id"] == "duplicates")["groups"]
    decisions = pl.read_parquet(folder / "alone.decisions.parquet").filter(pl.col("group").is_not_null())
    keys = whole["rows"]["key"]
    assert len(groups) == decisions["group"].n_unique() == 1
    assert {keys[item] for item in groups[0]["items"]} == set(decisions["key"])
    assert keys[groups[0]["kept"]] == decisions["kept_key"][0]


def test_dropped_rows_stand_by_their_reason_and_failed_ones_by_their_status(whole, frame):
    groups = next(each for each in whole["galleries"] if each["id"] == "dropped")["groups"]
    rows = whole["rows"]
    assert any(group["words"].startswith("filter, --drop-bottom 25%: ") for group in groups)
    assert any(group["words"].startswith("dedup, bytes") for group in groups)
    assert any(group["words"].startswith("select") for group in groups)
    assert all(rows["decision"][item] == "drop" for group in groups for item in group["items"])
    assert sorted(rows_of(whole, "failed")) == FAILED


def test_suspected_labels_and_issues_are_those_that_the_policies_found(whole, folder):
    labels = pl.read_parquet(folder / "labels.decisions.parquet").filter(pl.col("margin") < 0).sort("score")
    assert set(rows_of(whole, "labels")) <= {int(key[4:7]) for key in labels["key"]}
    assert {11, 91, 171, 251, 331} - set(FAILED) <= set(rows_of(whole, "labels"))
    assert rows_of(whole, "labels")[0] == int(labels["key"][0][4:7])
    assert sorted(rows_of(whole, "issues")) == [row for row in range(12) if row not in FAILED]


def test_ranks_are_spearmans_by_scipy(whole, frame):
    names, rho = whole["ranks"]["columns"], whole["ranks"]["rho"]
    assert set(names) == {"unc_losspred", "kappa_mcinfonce"}
    known = frame.drop_nulls("unc_losspred")
    expected = spearmanr(known["unc_losspred"], known["kappa_mcinfonce"]).statistic
    assert rho[0][1] == rho[1][0] == pytest.approx(expected, abs=1e-12)
    assert whole["ranks"]["n"] == N


def test_a_sample_is_the_same_whatever_the_order_of_the_rows_and_holds_the_galleries(folder, tmp_path):
    request = FactsRequest(points=0, column="unc_losspred", sample=50)
    table = open_table(folder / "scores.parquet")
    facts = gather(table, request)
    turned = pl.read_parquet(folder / "scores.parquet").reverse()
    turned.write_parquet(tmp_path / "turned.parquet")
    again = gather(open_table(tmp_path / "turned.parquet"), request)
    keys = pl.read_parquet(folder / "scores.parquet")["key"]
    assert [keys[row] for row in facts.drawn.tolist()] == [turned["key"][row] for row in again.drawn.tolist()]
    assert len(facts.drawn) == 50
    assert set(facts.in_galleries()) <= set(facts.listed().tolist())
    report = listed(gather(table, request), thumbs=0)
    assert report["sampled"]["n"] == 50
    assert report["rows"]["n"] == len(facts.listed()) < N
    assert (
        report["about"]["digest"] == gather(open_table(tmp_path / "turned.parquet"), request).counted["about"]["digest"]
    )


def test_another_seed_draws_other_rows(folder):
    table = open_table(folder / "scores.parquet")
    first, second = (
        gather(table, FactsRequest(points=0, column="unc_losspred", sample=50, seed=s)).drawn for s in (0, 1)
    )
    assert set(first.tolist()) != set(second.tolist())


def test_thumbnails_are_the_images_small_and_those_that_are_gone_are_counted(folder, tmp_path):
    table = pl.read_parquet(folder / "scores.parquet").head(30)
    gone = table.with_columns(
        uri=pl.when(pl.int_range(pl.len()) < 4).then(pl.lit(str(tmp_path / "none.png"))).otherwise("uri")
    )
    gone.write_parquet(tmp_path / "scores.parquet")
    (tmp_path / "text.png").write_text("no image")
    report = listed(gather(open_table(tmp_path / "scores.parquet"), FactsRequest(points=0)), thumbs=100)
    thumbs = report["thumbs"]
    assert thumbs["missing"] == 4
    assert "4 images could not be shown" in thumbs["words"]
    assert [place >= 0 for place in thumbs["of"]] == [row >= 4 for row in report["rows"]["row"]]
    picture = Image.open(io.BytesIO(base64.b64decode(thumbs["data"][thumbs["of"][9]])))
    assert picture.size[0] <= thumbs["side"] == 128
    assert picture.format == "WEBP"
    assert np.abs(np.asarray(picture.convert("RGB"), int).mean((0, 1)) - (report["rows"]["row"][9], 100, 200)).max() < 5


def test_no_more_thumbnails_than_asked_for_and_galleries_come_first(folder):
    report = made(folder, thumbs=9)
    shown = [row for row, place in enumerate(report["thumbs"]["of"]) if place >= 0]
    assert len(shown) == len(report["thumbs"]["data"]) == 9
    in_galleries = {
        item
        for each in report["galleries"]
        for items in [each.get("items", []), *(group["items"] for group in each.get("groups", []))]
        for item in items
    }
    assert set(shown) <= in_galleries


def test_a_table_without_paths_has_placeholders_and_says_what_to_name(folder, tmp_path):
    pl.read_parquet(folder / "scores.parquet").drop("uri").write_parquet(tmp_path / "scores.parquet")
    report = listed(gather(open_table(tmp_path / "scores.parquet"), FactsRequest(points=0)), thumbs=10)
    assert report["thumbs"]["data"] == []
    assert "--source" in report["thumbs"]["words"]
    assert "path" not in report["rows"]


def test_decisions_of_another_table_are_refused_in_one_line(folder, tmp_path):
    write(tmp_path / "scores.parquet", columns_of(30, key=[f"other/{i}.png" for i in range(30)]))
    curate.filter(tmp_path / "scores.parquet", tmp_path / "other.parquet", keep_top=5, column="unc_losspred")
    with pytest.raises(
        InputError, match=r"other\.decisions\.parquet does not belong to .*scores\.parquet: 30 of its 30"
    ):
        gather(open_table(folder / "scores.parquet"), FactsRequest(results=[tmp_path / "other.parquet"], points=0))


def test_decisions_that_contradict_their_receipt_are_refused(folder, tmp_path):
    for name in ("scores.parquet", "kept.decisions.parquet", "kept.receipt.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    decisions = pl.read_parquet(tmp_path / "kept.decisions.parquet")
    decisions.with_columns(decision=pl.lit("keep")).write_parquet(tmp_path / "kept.decisions.parquet")
    with pytest.raises(InputError, match="not of one run"):
        gather(
            open_table(tmp_path / "scores.parquet"), FactsRequest(results=[tmp_path / "kept.receipt.json"], points=0)
        )


def test_files_that_are_no_result_are_refused_with_what_to_give(folder, tmp_path):
    for name, words in (
        (folder / "scores.parquet", "has no receipt next to it"),
        (folder / "none.parquet", "does not exist"),
        (tmp_path, "got the folder"),
    ):
        with pytest.raises(InputError, match=words):
            gather(open_table(folder / "scores.parquet"), FactsRequest(results=[name], points=0))


def test_results_that_were_moved_with_their_table_are_found_beside_one_another(folder, tmp_path):
    for file in folder.glob("*.parquet"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    for file in folder.glob("*.json"):
        text = file.read_text().replace(str(folder), "/where/it/was")
        (tmp_path / file.name).write_bytes(sealed(json.loads(text)))
    moved = FactsRequest(results=[tmp_path / "picked.parquet"], points=0)
    assert [each["step"] for each in gather(open_table(tmp_path / "scores.parquet"), moved).counted["funnel"]] == [
        "filter", "dedup", "select"
    ]  # fmt: skip


def test_a_policy_whose_decisions_are_gone_is_in_the_funnel_alone(folder, tmp_path):
    for name in ("scores.parquet", "kept.receipt.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    request = FactsRequest(results=[tmp_path / "kept.receipt.json"], points=0, column="unc_losspred")
    facts = gather(open_table(tmp_path / "scores.parquet"), request)
    assert facts.counted["funnel"][0]["kept"] > 0
    assert any("decisions are gone" in note for note in facts.counted["overview"]["notes"])


def test_without_the_library_the_map_is_left_out_with_the_line_that_installs_it(folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openTSNE", None)
    report = made(folder, points=50)
    assert report["map"] is None
    assert any("pip install 'kappa-curate[map]'" in note for note in report["overview"]["notes"])


def test_the_map_places_rows_with_an_embedding_near_those_of_their_kind_and_again_in_the_same_places(folder):
    pytest.importorskip("openTSNE")
    report = made(folder, points=60)
    places = report["map"]
    x, y, uncertainty = (np.frombuffer(base64.b64decode(places[name]), "<f4") for name in ("x", "y", "uncertainty"))
    again = made(folder, points=60)["map"]
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


def test_the_folder_of_a_pipeline_stands_for_all_its_policies(folder, tmp_path):
    (tmp_path / "curate.toml").write_text(
        f"""
[filter]
table = {json.dumps(str(folder / "scores.parquet"))}
column = "unc_losspred"
keep-top = 100

[select]
budget = 10
strategy = "random"
"""
    )
    ran = CliRunner().invoke(app, ["run", str(tmp_path / "curate.toml"), "--quiet"])
    assert ran.exit_code == 0, ran.output
    receipt = next(tmp_path.rglob("pipeline.receipt.json"))
    for path in (receipt, receipt.parent):
        facts = gather(open_table(folder / "scores.parquet"), FactsRequest(results=[path], points=0))
        assert [(each["step"], each["kept"]) for each in facts.counted["funnel"]] == [("filter", 100), ("select", 10)]


def test_a_policy_of_a_thousand_reasons_names_the_most_and_sums_the_rest(folder, tmp_path):
    for name in ("scores.parquet", "kept.receipt.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    receipt = json.loads((tmp_path / "kept.receipt.json").read_text())
    receipt["counts"] = {"n_rows": 4000, "kept": 1000, "dropped": 1500, "undecided": 1500, "failed": 0}
    receipt["dropped_by"] = {f"why {'x' * 500} {i}": 1 for i in range(1500)}
    receipt["failed_by"] = {}
    receipt["undecided_by"] = {f"what {i}": 1 for i in range(1400)}
    (tmp_path / "kept.receipt.json").write_bytes(sealed(receipt))
    request = FactsRequest(results=[tmp_path / "kept.receipt.json"], points=0)
    (step,) = gather(open_table(tmp_path / "scores.parquet"), request).counted["funnel"]
    assert step["rows_in"] == step["kept"] + sum(each["n"] for each in step["out"]) == 4000
    assert len(step["out"]) <= 52
    assert max(len(each["reason"]) for each in step["out"]) <= 200


def test_from_python_one_result_needs_no_list(folder):
    table, kept = folder / "scores.parquet", folder / "kept.parquet"
    single, listed = (curate.report(table, results, points=0, thumbs=0).document for results in (str(kept), [kept]))
    assert [step["step"] for step in single["funnel"]] == ["filter"]
    assert single["funnel"] == listed["funnel"]
