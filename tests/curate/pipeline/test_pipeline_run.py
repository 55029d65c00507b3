"""A pipeline does what its commands do by hand, once, and says so in one receipt."""

import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from choosing import table
from commandline import run

import curate.manifest.file_set
from curate.policies.receipts import sealed

pytestmark = pytest.mark.usefixtures("few_copies")
STEPS = """
[once]
run = "dedup"
table = "s.parquet"
finder = "bytes"

[best]
run = "filter"
column = "unc_losspred"
keep-top = "{share}"

[few]
run = "select"
budget = 5
strategy = "random"

[list]
run = "export"
to = "csv"
"""


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "s.parquet", sha256=[f"{i // 2:064x}" for i in range(60)])
    return write(tmp_path)


def write(folder, share="50%"):
    (folder / "curate.toml").write_text(STEPS.format(share=share))
    return folder


def states(result):
    assert result.exit_code == 0, result.stderr
    return [line.split()[-1] for line in result.stdout.splitlines() if line[:1].isalpha() and ":" not in line][1:]


def test_every_step_writes_what_its_command_writes_by_hand(workdir):
    assert states(run("run", "curate.toml")) == ["done"] * 4
    for line in (
        "dedup s.parquet --finder bytes -o once.parquet",
        "filter once.parquet --column unc_losspred --keep-top 50% -o best.parquet",
        "select best.parquet -b 5 --strategy random -o few.parquet",
        "export few.parquet --to csv -o list.csv",
    ):
        assert run(*line.split()).exit_code == 0
    for name in ("once", "best", "few"):
        assert pq.read_table(f"curated/{name}.parquet").equals(pq.read_table(f"{name}.parquet"))
    assert (workdir / "curated/list.csv").read_bytes() == (workdir / "list.csv").read_bytes()


def test_the_funnel_adds_up_from_step_to_step(workdir):
    result = json.loads(run("run", "curate.toml", "--json", "-q").stdout)
    stages = [step["stage"] for step in result["steps"]]
    assert [(stage["rows_in"], stage["rows_out"]) for stage in stages] == [(60, 30), (30, 15), (15, 5), (5, 5)]
    assert all(stage["rows_in"] - stage["rows_out"] == sum(stage["lost"].values()) for stage in stages)
    assert stages[0]["lost"] == {"bytes": 30}


def test_what_is_up_to_date_is_not_done_again(workdir):
    run("run", "curate.toml")
    before = {
        path: path.stat().st_mtime_ns
        for path in (workdir / "curated").glob("*.*")
        if not path.name.startswith("pipeline")
    }
    assert states(run("run", "curate.toml")) == ["date"] * 4
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_step_of_other_rules_of_its_command_is_done_again_and_what_follows(workdir):
    run("run", "curate.toml")
    state = workdir / "curated" / "pipeline.state.json"
    content = json.loads(state.read_text())
    assert content["steps"]["once"]["curate"] != curate.__version__
    assert content["steps"]["best"]["curate"] == curate.__version__
    content["steps"]["once"]["curate"] = curate.__version__  # as written before the rules of dedup were counted
    state.write_text(json.dumps(content))
    assert states(run("run", "curate.toml"))[:2] == ["done"] * 2
    assert states(run("run", "curate.toml")) == ["date"] * 4


def test_another_option_does_its_step_again_and_what_follows(workdir):
    run("run", "curate.toml")
    write(workdir, "20%")
    assert states(run("run", "curate.toml")) == ["date", "done", "done", "done"]
    assert pq.read_metadata("curated/best.parquet").num_rows == 6


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda: os.utime("s.parquet", ns=(1, 1)), ["done", "done", "done", "done"]),
        (lambda: Path("curated/best.decisions.parquet").unlink(), ["date", "done", "done", "done"]),
        (lambda: os.utime("curated/list.csv", ns=(1, 1)), ["date", "date", "date", "done"]),
        (lambda: Path("unrelated").touch(), ["date"] * 4),
    ],
)
def test_a_file_that_changed_does_its_step_again(workdir, change, expected):
    run("run", "curate.toml")
    change()
    assert states(run("run", "curate.toml")) == expected


def test_a_step_can_be_done_again_and_the_run_can_end_early(workdir):
    assert states(run("run", "curate.toml", "--until", "best")) == ["done", "done"]
    assert not (workdir / "curated/few.parquet").exists()
    assert states(run("run", "curate.toml", "--again", "best")) == ["date", "done", "done", "done"]
    wrong = run("run", "curate.toml", "--again", "bset")
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (1, 1)
    assert "did you mean 'best'" in wrong.stderr


def test_a_dry_run_counts_what_a_run_would_do_and_writes_nothing(workdir):
    dry = json.loads(run("run", "curate.toml", "--dry-run", "--json").stdout)
    assert sorted(path.name for path in workdir.iterdir()) == ["curate.toml", "s.parquet"]
    real = json.loads(run("run", "curate.toml", "--json", "-q").stdout)
    for a, b in zip(dry["steps"][:3], real["steps"][:3], strict=True):
        assert (a["stage"], a["state"], b["state"]) == (b["stage"], "to do", "done")
    before = {path: path.stat().st_mtime_ns for path in workdir.rglob("*")}
    write(workdir, "20%")
    again = json.loads(run("run", "curate.toml", "--dry-run", "--json").stdout)
    assert [step["state"] for step in again["steps"]] == ["up to date", "to do", "to do", "to do"]
    assert again["steps"][1]["stage"]["rows_out"] == 6
    changed = {path for path in workdir.rglob("*") if before.get(path) != path.stat().st_mtime_ns}
    assert changed <= {workdir / "curate.toml", workdir / "curated"}


def test_a_run_killed_while_a_step_gets_its_names_goes_on_and_ends_the_same(workdir, monkeypatch):
    def cut(files):
        files[0].publish()
        raise KeyboardInterrupt

    run("run", "curate.toml", "--until", "once")
    with monkeypatch.context() as patch:
        patch.setattr(curate.manifest.file_set, "commit_together", cut)
        killed = run("run", "curate.toml")
    assert killed.exit_code == 130
    assert killed.stderr.endswith("interrupted; repeat the command to resume\n")
    assert (workdir / "curated/best.parquet").exists()
    assert not (workdir / "curated/best.receipt.json").exists()
    assert states(run("run", "curate.toml")) == ["date", "done", "done", "done"]
    receipt = (workdir / "curated/pipeline.receipt.json").read_bytes()
    shutil.rmtree("curated")
    run("run", "curate.toml")
    assert (workdir / "curated/pipeline.receipt.json").read_bytes() == receipt


def test_a_step_that_fails_stops_the_run_with_its_code_and_what_was_done_stays(workdir):
    (workdir / "curate.toml").write_text(
        STEPS.format(share="50%") + '\n[last]\nrun = "filter"\nwhere = "nonsense > 1"\n'
    )
    result = run("run", "curate.toml")
    assert result.exit_code == 1
    assert "nonsense" in result.stderr
    assert result.stderr.endswith(
        "stopped at step last; fix it and repeat the command, or repeat that step with --again last\n"
    )
    assert not (workdir / "curated/pipeline.receipt.json").exists()
    write(workdir)
    assert states(run("run", "curate.toml")) == ["date"] * 4


def test_a_file_that_the_pipeline_did_not_write_is_not_replaced_unless_requested(workdir):
    (workdir / "curated").mkdir()
    (workdir / "curated/once.parquet").write_text("mine")
    assert run("run", "curate.toml").exit_code == 1
    assert (workdir / "curated/once.parquet").read_text() == "mine"


def test_the_receipt_verifies_in_place_and_after_a_move(workdir):
    run("run", "curate.toml")
    assert run("verify", "curated/pipeline.receipt.json").exit_code == 0
    shutil.move("curated", "moved")
    shutil.copy("s.parquet", "moved")
    result = run("verify", "moved")
    assert result.exit_code == 0, result.stdout
    assert "once: identical, 60 rows decided again" in result.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [("list.csv", "list: different"), ("best.parquet", "best: different"), ("few.decisions.parquet", "few: different")],
)
def test_verify_finds_a_file_that_changed(workdir, name, said):
    run("run", "curate.toml")
    with Path(f"curated/{name}").open("ab") as file:
        file.write(b"x")
    result = run("verify", "curated")
    assert result.exit_code == 1
    assert said in result.stdout
    assert result.stdout.count("different") == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "receipt"}', '{"kind": "pipeline receipt", "steps": [1]}'])
def test_a_receipt_or_state_that_is_not_as_it_was_written_is_one_line(workdir, text):
    run("run", "curate.toml")
    for name, words in (("receipt", ("verify", "curated")), ("state", ("run", "curate.toml"))):
        (workdir / f"curated/pipeline.{name}.json").write_text(text)
        result = run(*words)
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


def test_verify_reads_nothing_outside_of_the_receipts_folder(workdir):
    run("run", "curate.toml")
    path = workdir / "curated/pipeline.receipt.json"
    receipt = json.loads(path.read_text())
    receipt["steps"][0]["outputs"] = {"../s.parquet": "0" * 64}
    path.write_bytes(sealed(receipt))
    assert "once: identical; 1 file elsewhere not checked" in run("verify", "curated").stdout
    receipt["steps"][0]["outputs"] = {"/etc/passwd": "0" * 64}
    path.write_bytes(sealed(receipt))
    assert run("verify", "curated").exit_code == 1


@pytest.mark.parametrize(("to", "name"), [("jsonl", "list.jsonl"), ("coco", "list.json")])
def test_an_export_in_any_format_is_up_to_date_until_its_rows_change(workdir, to, name):
    def write_steps(share):
        (workdir / "curate.toml").write_text(STEPS.format(share=share).replace('"csv"', f'"{to}"'))

    write_steps("50%")
    assert states(run("run", "curate.toml")) == ["done"] * 4
    assert (workdir / "curated" / name).exists()
    assert states(run("run", "curate.toml")) == ["date"] * 4
    write_steps("40%")
    assert states(run("run", "curate.toml")) == ["date", *["done"] * 3]
    assert run("verify", "curated").exit_code == 0
    assert not list((workdir / "curated").glob("*.part"))


def test_images_are_scored_once_and_paths_are_from_the_folder_of_the_file(
    folder, tiny_checkpoint, tmp_path, monkeypatch
):
    shutil.copytree(folder, tmp_path / "work/photos")
    shutil.copy(tiny_checkpoint, tmp_path / "work/m.safetensors")
    (tmp_path / "work/curate.toml").write_text(
        '[score]\nsource = "photos"\nmodel = "m.safetensors"\ndevice = "cpu"\nfit = false\nno-quality = true\n'
        '[dedup]\nfinder = "bytes"\n[dataset]\nrun = "export"\nto = "imagefolder"\n'
    )
    monkeypatch.chdir(tmp_path)
    assert states(run("run", "work/curate.toml", "--dry-run")) == ["do"] * 3
    assert states(run("run", "work/curate.toml")) == ["done"] * 3
    assert len(list((tmp_path / "work/curated/dataset").rglob("*.png"))) == 27
    assert states(run("run", "work/curate.toml")) == ["date"] * 3
    (tmp_path / "work/photos/new.png").write_bytes((folder / "01.png").read_bytes())
    refused = run("run", "work/curate.toml")
    assert refused.exit_code == 1
    assert "--again score" in refused.stderr
    assert states(run("run", "work/curate.toml", "--again", "score")) == ["done"] * 3
    assert pq.read_metadata("work/curated/score.parquet").num_rows == 31
    assert run("verify", "work/curated").exit_code == 0


def test_labels_balance_and_split_are_steps_and_two_draws_are_independent(workdir):
    table(workdir / "s.parquet", n=400)
    (workdir / "curate.toml").write_text(
        '[labels]\ntable = "s.parquet"\nlabel = "label"\ndrop_suspected = true\n[balance]\nrows = 150\n'
        '[split]\ntrain = "50%"\ntest = "50%"\nduplicates = false\n'
    )
    result = run("run", "curate.toml", "--json")
    assert result.exit_code == 0, result.stderr
    stages = [step["stage"] for step in json.loads(result.stdout)["steps"]]
    assert all(stage["rows_in"] - sum(stage["lost"].values()) == stage["rows_out"] for stage in stages)
    assert (stages[1]["rows_out"], stages[2]["rows_out"]) == (150, 150)
    sides = pq.read_table("curated/split.parquet").column("split").to_pylist()
    assert 75 - 30 < sides.count("test") < 75 + 30  # 4.9 standard deviations of 150 throws of a coin
    assert run("verify", "curated").exit_code == 0


def test_two_runs_at_once_are_refused_by_the_lock(workdir):
    from scoring.lock import HeldFolder

    with HeldFolder(workdir / "curated"):
        result = run("run", "curate.toml")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "is being written by" in result.stderr
