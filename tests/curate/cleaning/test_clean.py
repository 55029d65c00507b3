"""A folder of real images is cleaned in one command, and every image is accounted for."""

import shutil
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run
from PIL import Image, ImageDraw
from planted_photos import UNREADABLE, clean, counts, findings, refused, states

import curate
from curate.cleaning.steps import command_of
from curate.pipeline import run as engine

pytestmark = pytest.mark.usefixtures("few_copies")
PHOTOS = Path(__file__).parents[3] / "examples" / "photos"


def snapshot(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_every_image_is_accounted_for_in_one_table(cleaned_once):
    work, result = cleaned_once
    rows = [line.split() for line in result.stdout.splitlines()[:6]]
    assert [row[:3] if row[0] in ("images", "to") else row[:2] for row in rows] == [
        ["images", "in", "21"],
        ["unreadable", "2"],
        ["unusable", "2"],
        ["copies", "5"],
        ["to", "review", str(len({line["key"] for line in findings(work / "out")}))],
        ["kept", "12"],
    ]
    assert result.stdout.splitlines()[-1].startswith("next: curate ")


def test_what_is_dropped_was_planted_and_the_photographs_are_kept(cleaned_once):
    kept = set(pl.read_parquet(cleaned_once[0] / "out/subset.parquet")["key"])
    assert kept == {path.name for path in PHOTOS.glob("*.jpg")}


def test_the_folder_holds_subset_report_review_steps_and_the_file_of_the_pipeline(cleaned_once):
    out = cleaned_once[0] / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        "curate.toml",
        "report.html",
        "review",
        "steps",
        *(f"subset.{name}" for name in ("decisions.parquet", "groups.parquet", "parquet", "receipt.json")),
    ]
    n = len({line["key"] for line in findings(out)})
    page = (out / "report.html").read_text()
    assert all(words in page for words in (f"among {n} kept row", '"title":"out"', '"model":"m.safetensors ('))
    assert run("verify", out / "subset.receipt.json", "--chain").exit_code == 0
    assert run("verify", out / "steps").exit_code == 0


def test_the_scores_explain_what_later_steps_dropped_and_the_folder_is_read_as_its_subset(cleaned_once, tmp_path):
    out = cleaned_once[0] / "out"
    decisions = pl.read_parquet(out / "subset.decisions.parquet")
    copy = decisions.filter(pl.col("decision") == "drop")["key"][0]
    (story,) = curate.explain(out / "steps/score.parquet", copy)
    assert [event.decision for event in story.events] == ["keep", "drop"]
    assert curate.explain(out, copy)[0].events[-1].decision == "drop"
    assert run("verify", out, "--chain").exit_code == 0
    assert run("export", out, "--to", "csv", "-o", tmp_path / "kept.csv").exit_code == 0
    assert set(pl.read_csv(tmp_path / "kept.csv")["key"]) == set(pl.read_parquet(out / "subset.parquet")["key"])
    for command in (["score", out, "-o", tmp_path / "s.parquet"], ["clean", out, "-o", tmp_path / "again"]):
        refused(run(*command), str(out / "subset.parquet"))
    photos = cleaned_once[0] / "photos"
    before = snapshot(photos)
    for place in (photos / "new", photos):
        refused(run("export", out / "subset.parquet", "--to", "folder", "-o", place, "--overwrite"), "outside", "-o")
    assert snapshot(photos) == before


def test_findings_are_of_kept_rows_with_a_sheet_of_each_kind(cleaned_once):
    out = cleaned_once[0] / "out"
    lines = findings(out)
    kinds = list(dict.fromkeys(line["kind"] for line in lines))
    assert {line["key"] for line in lines} <= set(pl.read_parquet(out / "subset.parquet")["key"])
    assert [line["kind"] for line in lines] == [kind for kind in kinds for line in lines if line["kind"] == kind]
    assert sorted(path.name for path in (out / "review").glob("*.png")) == [
        f"{number:02}-{kind}.png" for number, kind in enumerate(kinds, 1)
    ]


def test_a_second_run_with_nothing_new_changes_no_file_and_reports_it(workdir):
    before = snapshot(workdir)
    result = clean()
    assert result.exit_code == 0, result.output
    assert "up to date" in result.stdout
    assert "version" not in result.stderr
    assert {path: time for path, time in snapshot(workdir).items() if path.name != "lock"} == {
        path: time for path, time in before.items() if path.name != "lock"
    }


def test_a_folder_that_another_version_scored_is_named(workdir, monkeypatch):
    monkeypatch.setattr("scoring.images.signature.KIND", "of old")
    result = clean()
    assert "another signature" in result.stderr
    assert "--overwrite" in result.stderr


def test_a_state_or_scores_that_were_damaged_end_in_one_line_and_its_advice_works(workdir):
    state, scores = workdir / "out/steps/pipeline.state.json", workdir / "out/steps/score.parquet"
    state.write_text("garbage")
    refused(clean(), "delete", "--overwrite")
    state.unlink()
    assert counts(clean("--overwrite", "--json", "-q"))["kept"] == 12
    scores.write_bytes(scores.read_bytes()[:-100])
    refused(clean(), "delete")
    scores.unlink()
    assert counts(clean("--json", "-q"))["kept"] == 12


def test_the_file_of_the_pipeline_is_run_as_it_is_and_edited(workdir):
    file = workdir / "out/curate.toml"
    assert "up to date" in run("run", file).stdout
    file.write_text(
        file.read_text().replace('drop = "unusable"', 'drop = ["unusable", "dark", "grey"]\nforce = ["grey"]')
    )
    assert run("run", file).exit_code == 0
    refused(clean(), "edited", "--overwrite")
    assert len(pl.read_parquet("out/subset.parquet")) < 12
    assert counts(clean("--overwrite", "--json", "-q"))["kept"] == 12


def test_another_option_does_what_it_changes_alone(workdir):
    assert states(clean("--json", "-q", "--export", "csv")) == ["up to date"] * 4 + ["done"]
    assert len(pl.read_csv("out/export.csv")) == 12


def test_new_files_alone_are_scored_and_all_of_them_on_request(workdir):
    known = {row["key"]: row for row in pl.read_parquet("out/steps/score.parquet").to_dicts()}
    shutil.copy("photos/coins.jpg", "photos/new.jpg")
    for again in ([], ["--overwrite"]):
        summary = counts(clean(*again, "--json", "-q"))
        assert (summary["images"], summary["copies"], summary["kept"]) == (22, 6, 12)
        if not again:
            grown = {row["key"]: row for row in pl.read_parquet("out/steps/score.parquet").to_dicts()}
            assert grown.keys() - known.keys() == {"new.jpg"}
            assert all(grown[key]["embedding"] == known[key]["embedding"] for key in known)


def test_a_second_run_shows_what_is_new_gone_and_decided_otherwise(workdir):
    for name in ("coins", "astronaut"):
        Path(f"photos/{name}.jpg").unlink()
    shutil.copy("photos/brick.jpg", "photos/b.jpg")
    summary = counts(clean("--json", "-q"))
    account = [summary[name] for name in ("unreadable", "unusable", "copies", "kept")]
    assert (account, sum(account), summary["gone"]) == ([2, 2, 5, 11], summary["images"], 2)
    assert summary["images"] == counts(clean("--json", "--dry-run"))["images"] == len(list(Path("photos").iterdir()))
    assert "gone" not in summary["unreadable_by"]
    changes = {name: summary["changes"][name] for name in ("new", "new_kept", "gone", "dropped", "kept")}
    assert changes == {"new": 1, "new_kept": 1, "gone": 2, "dropped": {"bytes": 1}, "kept": 1}
    assert [key for key, _ in summary["changes"]["named"]] == ["brick.jpg"]
    compared = curate.diff("out/steps/outcomes.before.parquet", "out/steps/outcomes.parquet")
    assert (compared.only_first.rows, compared.only_second.named[0][0]) == (0, "b.jpg")
    expected = {"keep | failed, gone": 2, "keep | drop, bytes": 1, "drop | keep": 1}
    expected["drop | drop, bytes"] = 1  # brick_again.jpg is a copy of another image now
    assert expected.items() <= compared.decisions.why.items()
    assert not compared.identical
    assert counts(clean("--json", "-q"))["changes"] is None


def test_a_run_killed_between_two_steps_goes_on(workdir, monkeypatch):
    shutil.rmtree("out")
    done = []

    def kill(self, planned, original=engine._Run.do):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(planned.step.name)
        return original(self, planned)

    with monkeypatch.context() as patch:
        patch.setattr(engine._Run, "do", kill)
        assert clean("-q").exit_code == 130
    assert states(clean("--json", "-q")) == ["up to date", "up to date", "done", "done"]


def test_a_dry_run_writes_nothing(workdir):
    before = snapshot(workdir)
    summary = counts(clean("--dry-run", "--json", "--export", "csv"))
    assert (summary["kept"], summary["to_review"], summary["dry_run"]) == (12, None, True)
    assert snapshot(workdir) == before
    shutil.rmtree("out")
    summary = counts(clean("--dry-run", "--json"))
    assert (summary["images"], summary["kept"]) == (21, None)
    assert "?" in clean("--dry-run").stdout
    assert not Path("out").exists()


def test_a_dry_run_after_a_change_counts_nothing_that_only_scoring_can_find(workdir):
    Path("photos/text.jpg").unlink()
    dry = counts(clean("--dry-run", "--json"))
    assert ([step["state"] for step in dry["steps"]], dry["kept"]) == (["to do"] * 4, None)


def test_leaks_are_kept_and_come_first_in_the_review(workdir):
    Path("test").mkdir()
    for name in ("rocket", "flower"):
        shutil.copy(f"photos/{name}.jpg", f"test/{name}_test.jpg")
    summary = counts(clean("--against", "test", "--json", "-q"))
    assert (summary["kept"], summary["review_by"]["leak"]) == (12, 2)
    assert [line["key"] for line in findings(workdir / "out")[:2]] == ["flower.jpg", "rocket.jpg"]
    assert (workdir / "out/review/01-leak.png").is_file()
    scored = counts(clean("--against", "out/steps/against.parquet", "--json", "-q"))
    assert scored["review_by"]["leak"] == 2


def test_too_few_classes_leave_labels_out_and_are_refused_before_scoring_where_named(workdir):
    Path("few/one").mkdir(parents=True)
    for file in Path("photos").glob("co*.jpg"):
        shutil.copy(file, "few/one")
    Path("list.csv").write_text("file,kind\nphotos/coffee.jpg,one\n")
    result = run("clean", "few", "-o", "small", "--model", "m.safetensors", "--label-from-folder")
    assert (result.exit_code, "labels are not checked" in result.output) == (0, True), result.output
    assert not Path("small/steps/labels.parquet").exists()
    refused = run("clean", "list.csv", "-o", "listed", "--model", "m.safetensors", "--label", "kind")
    assert (refused.exit_code, "'kind'" in refused.output, Path("listed").exists()) == (1, True, False)


def test_one_class_that_copies_leave_ends_the_check_of_labels_alone(workdir):
    Path("two/one").mkdir(parents=True)
    Path("two/copies").mkdir()
    for file in Path("photos").glob("c[ao]*.jpg"):
        shutil.copy(file, "two/one")
    for number in range(3):
        shutil.copy("photos/retina.jpg", f"two/copies/{number}.jpg")
    line = ("clean", "two", "-o", "small", "--model", "m.safetensors", "--label-from-folder")
    result = run(*line)
    assert (result.exit_code, result.stderr.count("labels are not checked")) == (0, 1), result.output
    assert (Path("small/report.html").is_file(), Path("small/steps/labels.parquet").exists()) == (True, False)
    assert command_of(Path("small"))[-1] == "--label-from-folder"
    written = Path("small/curate.toml").stat().st_mtime_ns
    assert set(states(run(*line, "--json", "-q"))) == {"up to date"}
    assert (run(*line, "--dry-run", "-q").exit_code, Path("small/curate.toml").stat().st_mtime_ns) == (0, written)
    shutil.copy("photos/rocket.jpg", "two/copies")
    assert "labels" in [step["name"] for step in counts(run(*line, "--json", "-q"))["steps"]]


def test_wrong_labels_are_listed_where_there_are_classes(tmp_path, tiny_checkpoint, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, colour in (("red", (200, 30, 30)), ("blue", (30, 30, 200))):
        Path(f"photos/{name}").mkdir(parents=True)
        for number in range(12):
            image = Image.new("RGB", (64, 64), colour)
            draw = ImageDraw.Draw(image)
            for at in range(6):  # unlike shapes, so that none is a copy of another
                x, y = (number * 17 + at * 23) % 50, (number * 29 + at * 31) % 50
                draw.rectangle((x, y, x + 5 + number % 7, y + 9), fill=(20 * at, 255 - 30 * at, 10 * number))
            image.save(f"photos/{name}/{number}.png")
    Path("photos/plain").mkdir()
    Image.new("RGB", (64, 64), "grey").save("photos/plain/0.png")
    shutil.copy(tiny_checkpoint, "m.safetensors")
    summary = counts(clean("--label-from-folder", "--json", "-q"))
    assert summary["emptied"] == ["plain"]
    assert "of class plain" in clean("--label-from-folder").stdout
    assert [step["name"] for step in summary["steps"]] == ["score", "usable", "unique", "labels", "report"]
    assert summary["images"] == summary["unreadable"] + summary["unusable"] + summary["copies"] + summary["kept"] == 25
    shutil.rmtree("out")
    lines = [f"photos/{name}/{number}.png,{name}" for name in ("red", "blue") for number in range(12)]
    Path("list.csv").write_text("file,kind\n" + "\n".join(lines))
    made = run("clean", "list.csv", "-o", "out", "--label", "kind", "--model", "m.safetensors", "-q", "--json")
    assert "labels" in [step["name"] for step in counts(made)["steps"]]
    refused(run("clean", "list.csv", "-o", "new", "--label", "knd"), "'kind'")


def test_images_inside_a_table_are_cleaned_and_drawn(source, tiny_checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = sorted(source.glob("*.*"))
    pq.write_table(
        pa.table({"key": [file.name for file in files], "image": [file.read_bytes() for file in files]}), "i.parquet"
    )
    shutil.copy(tiny_checkpoint, "m.safetensors")
    made = run("clean", "i.parquet", "-o", "out", "--model", "m.safetensors", "-q", "--json", "--export", "imagefolder")
    assert counts(made)["kept"] == 12
    assert len(list(Path(counts(made)["export"]).rglob("*.jpg"))) == 12
    assert not findings(tmp_path / "out") or list(Path("out/review").glob("*.png"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["empty", "-o", "new"], ["empty"]),
        (["texts", "-o", "new"], ["texts"]),
        (["photos", "-o", "full"], ["inside", "empty folder"]),
        (["photos", "-o", "photos"], ["outside"]),
        (["photos", "-o", "photos/new"], ["outside"]),
        (["full/inside", "-o", "full"], ["full"]),
        (["out/steps/score.parquet", "-o", "new"], ["scored table", "curate issues"]),
        (["out/subset.parquet", "-o", "new"], ["scored table"]),
        (["photos", "-o", "m.safetensors"], ["folder"]),
        (["photos", "-o", "new", "--export", "imagefoldr"], ["imagefolder"]),
        (["photos", "-o", "new", "--against", "none"], ["none"]),
        (["photos", "-o", "new", "--label", "label"], ["--label"]),
        (["photos", "-o", "new", "--model", "wrld"], ["wrld"]),
        (["", "-o", "new"], ["empty text"]),
    ],
)
def test_what_cannot_be_is_one_line_and_nothing_is_lost(workdir, arguments, words):
    Path("empty").mkdir()
    Path("texts").mkdir()
    Path("texts/labels.txt").write_text("cat")
    Path("full/inside").mkdir(parents=True)
    Path("full/notes.txt").write_text("mine")
    before = snapshot(workdir)
    refused(run("clean", *arguments), *words)
    assert snapshot(workdir) == before
    assert not Path("new").exists()


def test_a_folder_that_cannot_be_written_to_is_one_line(workdir, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    refused(clean(), "permission")


def test_a_file_of_the_users_among_the_findings_is_never_lost(workdir):
    Path("out/review/mine.txt").write_text("seen")
    result = clean("--export", "csv", "-q")
    assert result.exit_code == 1
    assert "mine.txt" in result.stderr
    assert Path("out/review/mine.txt").read_text() == "seen"


def test_a_folder_is_cleaned_from_python(workdir):
    result = curate.clean("photos", "out", model="m.safetensors")
    assert not result.changed
    assert result.images == result.unreadable + result.unusable + result.copies + result.kept == 21
    assert result.unreadable_by == dict.fromkeys(UNREADABLE.values(), 1)
    assert "images in" in str(result)
    shutil.copy("photos/coins.jpg", "photos/new.jpg")
    grown = curate.clean("photos", "out", model="m.safetensors")
    assert (grown.images, grown.copies) == (22, result.copies + 1)
