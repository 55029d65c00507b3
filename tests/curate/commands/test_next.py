"""Every command ends on a terminal with one line that names the next command, and that command runs as printed."""

import os
import pty
import re
import shlex
import shutil
import sys
import threading
import webbrowser
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from PIL import Image
from sample_verdicts import judge

from curate import cli
from curate.commands import rounds
from curate.commands.printing import unused
from curate.reporting.served.server import Server
from curate.selftests.result import SelfTest
from curate.tables.table import embedding_field

MODEL = "--model m.safetensors --device cpu"
CLEAN = "clean photos -o cleaned --model m.safetensors"
KEPT = "filter scores.parquet --keep-top 75% --column kappa_visimsiam -o kept.parquet"
ROUNDS = ("round init rounds scores.parquet --classes cat,dog --batch 4 --holdout 4", "round next rounds")
ANSWERED = (*ROUNDS, "round import rounds answers.csv")
CACHED = "cache photos --label-from-folder -o features --model m.safetensors --epochs 2 --device cpu --precision fp32"
DEDUP = "dedup scores.parquet -o unique.parquet"
ONE_ROW = "filter scores.parquet --keep-top 1 --column kappa_visimsiam -o two.parquet"
PIPELINE = '[filter]\ntable = "scores.parquet"\nkeep-top = "50%"\ncolumn = "kappa_visimsiam"\n'
PLAN = "review plan scores.parquet --column kappa_visimsiam --max-bad-rate 20% --images 20 -o kept.audit.csv"
JUDGE = "all images of kept.audit.csv are good"
# Command -> lines to run before, and the line that ends with the next command; a name with a remark is another case.
LINES: dict[str, tuple[str, ...]] = {
    "clean": (CLEAN,),
    "clean: dry run": (f"{CLEAN} --dry-run",),
    "score": (f"score photos -o again.parquet --no-fit {MODEL}",),
    "issues": ("issues scores.parquet",),
    "issues: written": ("issues scores.parquet --drop dark -o clean.parquet",),
    "issues: none unusable": ("issues chance.parquet",),
    "dedup": ("dedup scores.parquet -o unique.parquet",),
    "dedup: dry run": ("dedup scores.parquet --dry-run",),
    "dedup: dry run, name in use": (DEDUP, f"{DEDUP} --dry-run"),
    "dedup: copies to review": ("dedup near.parquet -o unique.parquet",),
    "dedup: pairs": ("dedup near.parquet --audit 5 -o unique.parquet",),
    "dedup: leaks": (KEPT, "dedup scores.parquet --against kept.parquet --fail-on-leaks -o unique.parquet"),
    "dedup: leaks, dry run": (KEPT, "dedup scores.parquet --against kept.parquet --fail-on-leaks --dry-run"),
    "labels": ("labels scores.parquet --label label",),
    "labels: review": ("labels scores.parquet --label label --review 10 -o checked.parquet",),
    "review": ("review scores.parquet",),
    "review plan": ("review plan scores.parquet --column kappa_visimsiam --max-bad-rate 20%",),
    "review plan: written": (PLAN,),
    "review verdicts": (PLAN, JUDGE, "review verdicts kept.audit.csv"),
    "split": ("split scores.parquet --train 50% --test 50% -o split.parquet",),
    "report": ("report scores.parquet --points 0 -o report.html",),
    "export": ("export scores.parquet --to csv -o training.csv",),
    "export: subset": (KEPT, "export kept.parquet --to csv -o training.csv"),
    "filter": (KEPT,),
    "filter: dashes": ("filter --dry-run --keep-top 75% --column kappa_visimsiam -- ./-t.parquet",),
    "filter: output with a dash": ("filter scores.parquet --keep-top 9 --column kappa_visimsiam -o ./-k.parquet",),
    "filter: no row": ("filter scores.parquet --where 'width < 0' -o kept.parquet",),
    "select": ("select scores.parquet --budget 5 -o batch.parquet",),
    "balance": ("balance scores.parquet --per label -o balanced.parquet",),
    "fit": ("fit scores.parquet --apply fitted.parquet -o f.safetensors --model m.safetensors",),
    "fit: model": ("fit scores.parquet -o f.safetensors --model m.safetensors",),
    "calibrate": ("calibrate scores.parquet --column kappa_visimsiam --bad 'label == \"cat\"'",),
    "calibrate: written": ("calibrate scores.parquet --column kappa_visimsiam --bad 'label == \"cat\"' -o c.json",),
    "calibrate: no information": (
        "calibrate chance.parquet --column kappa_x --bad 'label == \"cat\"' --apply calibrated.parquet",
    ),
    "round init": ROUNDS[:1],
    "round next": ROUNDS,
    "round import": ANSWERED,
    "round status": (*ANSWERED, "round status rounds"),
    "round status: no label": (*ROUNDS, "round status rounds"),
    "round labels": (*ANSWERED, "round labels rounds -o known.parquet"),
    "round plot": (*ANSWERED, "round plot rounds -o curve.svg"),
    "round simulate": ("round simulate scores.parquet --label label --budget 4,8 --seeds 1 -o replay.json",),
    "info": ("info scores.parquet",),
    "info: subset": (KEPT, "info kept.parquet"),
    "info: decisions": (DEDUP, "info unique.decisions.parquet"),
    "info: groups": (DEDUP, "info unique.groups.parquet"),
    "info: model": ("info m.safetensors",),
    "sheet": ("sheet scores.parquet --top 2 --bottom 2 -o sheet.png",),
    "retrieve": ("retrieve scores.parquet photos/cat/0.png --top 2 --model m.safetensors",),
    "retrieve: table": ("retrieve scores.parquet scores.parquet --top 2",),
    "plot": ("plot scores.parquet histogram -o histogram.svg",),
    "merge": (KEPT, "merge scores.parquet kept.parquet --prefix -o merged.parquet"),
    "evaluate": ("evaluate scores.parquet --label label --repeats 20",),
    "evaluate: no score predicts": ("evaluate chance.parquet --label label --repeats 20",),
    "evaluate: another table of a row": (ONE_ROW, "evaluate scores.parquet --against two.parquet --repeats 20"),
    "compare": (KEPT, "compare scores.parquet kept.parquet --repeats 19"),
    "selftest": (f"selftest scores.parquet --images 20 --column kappa_visimsiam --change darkness {MODEL}",),
    "doctor": ("doctor --seconds 0",),
    "run": ("run curate.toml",),
    "run: dry run": ("run curate.toml --dry-run",),
    "verify": (KEPT, "verify kept.receipt.json"),
    "explain": (KEPT, "explain kept.parquet cat/0.png"),
    "diff": (KEPT, "diff scores.parquet kept.parquet"),
    "train": (
        "train supervised photos --label-from-folder -o t.safetensors --backbone test_resnet --size 32 --epochs 1 "
        "--batch-size 8 --device cpu --precision fp32",
    ),
    "cache": (CACHED,),
    "models": ("models",),
    "models: card": ("models m.safetensors",),
    "models convert": ("models convert w.safetensors --backbone test_resnet -o own.safetensors",),
}
ENDS = {
    "dedup: leaks": 3,
    "dedup: leaks, dry run": 3,
    "diff": 1,
    "selftest": 1,
    "doctor": 3,
}  # other exit codes that a command may have
SHORT = {"doctor": " --seconds 0", "train": " --epochs 1"}  # what the test adds to a next command, which takes long
GROUP = typer.main.get_command(cli.app)


def names():
    """All commands, with the subcommands of some."""
    for name in GROUP.commands:
        if name != "round":
            yield name
        yield from (f"{name} {each}" for each in getattr(cli.module_of(name), "SUBCOMMANDS", ()))
    yield from (f"round {each}" for each in rounds.COMMANDS)


def typed(line, monkeypatch):
    """Run a line on a terminal; return its exit code, and the lines that the terminal shows at the end."""
    ours, far_end = pty.openpty()
    parts = []

    def read():
        while not b"".join(parts[-2:]).endswith(b"\0"):
            parts.append(os.read(ours, 10_000))

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(far_end, "w") as errors, os.fdopen(os.dup(far_end), "w") as results, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", results)
        patch.setattr(sys, "stderr", errors)
        patch.setattr(sys, "argv", ["curate", *shlex.split(line)])
        try:
            GROUP(sys.argv[1:], prog_name="curate")
        except SystemExit as stop:
            code = stop.code
        finally:
            results.flush()
            errors.write("\0")
            errors.flush()
            reader.join()
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(parts).decode().rstrip("\0"))
    return code, [line.rstrip("\r").split("\r")[-1].rstrip() for line in text.splitlines()]


def write_tables(folder):
    """Near copies of an image without thumbnails, which cannot be confirmed; and rows whose score is random."""
    table = pq.read_table(folder / "scores.parquet").drop_columns("thumbnail")
    near = [table.slice(0, 1).to_pylist()[0] | {"key": f"near{n}.png", "sha256": f"{n:064d}"} for n in range(9)]
    pq.write_table(pa.concat_tables([table, pa.Table.from_pylist(near, table.schema)]), folder / "near.parquet")
    shutil.copy(folder / "scores.parquet", folder / "-t.parquet")
    generator, n = np.random.default_rng(0), 80
    vectors = pa.array(generator.normal(size=4 * n).astype(np.float32))
    rows = {
        "key": [str(row) for row in range(n)],
        "label": ["cat", "dog"] * (n // 2),
        "embedding": pa.FixedSizeListArray.from_arrays(vectors, type=embedding_field(4, "float32").type),
        "kappa_x": generator.normal(size=n),
        "quality_brightness": [0.5] * n,
    }
    pq.write_table(pa.table(rows), folder / "chance.parquet")


@pytest.fixture(scope="module")
def stock(tmp_path_factory, tiny_checkpoint, few_copies):
    """Images of two classes, their table, a model, weights, labels and a pipeline."""
    from safetensors.numpy import load_file, save_file

    from curate.engines.score import score

    folder = tmp_path_factory.mktemp("next") / "stock"
    generator = np.random.default_rng(0)
    for number in range(50):
        path = folder / "photos" / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        small = generator.integers(0, 256, (5, 5, 3), dtype=np.uint8)
        Image.fromarray(small).resize((40 + number // 2, 48)).save(path)
    shutil.copy(tiny_checkpoint, folder / "m.safetensors")
    weights = {
        name.removeprefix("trunk.").removeprefix("backbone."): value
        for name, value in load_file(tiny_checkpoint).items()
        if "head" not in name
    }
    save_file(weights, folder / "w.safetensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        score("photos", "scores.parquet", model="m.safetensors", device="cpu", label_from_folder=True)
    write_tables(folder)
    pl.read_parquet(folder / "scores.parquet").select("key", "label").write_csv(folder / "answers.csv")
    (folder / "curate.toml").write_text(PIPELINE)
    return folder


@pytest.fixture
def work(stock, tmp_path, monkeypatch):
    """A copy of the stock as the current folder; no browser, no server that waits, no checks that take a minute."""

    def interrupted(*args, **named):
        raise KeyboardInterrupt

    shutil.copytree(stock, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(webbrowser, "open", lambda url: None)
    monkeypatch.setattr(Server, "serve_forever", interrupted)
    monkeypatch.setattr(
        "curate.selftests.run.run_selftest", lambda request: SelfTest("photos", "m", 20, 0, [], [], [], {})
    )


def test_every_command_has_a_line_here():
    assert {name.partition(":")[0] for name in LINES} == set(names())


@pytest.mark.parametrize("name", LINES)
def test_a_command_ends_with_one_next_command_which_runs_as_printed(name, work, monkeypatch):
    *before, line = LINES[name]
    for each in before:
        if each == JUDGE:
            keys = pl.read_csv("kept.audit.csv")["key"]
            shutil.copy("scores.parquet", "t.parquet")  # the table that the verdicts name
            judge(Path("kept.audit.csv"), [("keep", key, "", "") for key in keys], question="image")
        else:
            assert typed(each, monkeypatch)[0] == 0, each
    code, shown = typed(line, monkeypatch)
    assert code in (0, ENDS.get(name, 0)), shown
    found = [text for text in shown if text.startswith("next: ")]
    assert found == shown[-1:], shown
    assert found, shown
    command = found[0].removeprefix("next: ")
    if command.endswith("export.csv"):  # as an annotator fills it in
        export = Path(shlex.split(command)[-1])
        pl.read_csv(export).with_columns(pl.lit("cat").alias("label")).write_csv(export)
    first = shlex.split(command)[1]
    code, shown = typed(command.removeprefix("curate ") + SHORT.get(first, ""), monkeypatch)
    assert code in (0, ENDS.get(first, 0)), (command, shown)


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("filter 'my scores.parquet' --keep-top 75% --column unc_x -o kept.parquet --json", False),
        ("filter 'my scores.parquet' --keep-top 75% --column unc_x -o kept.parquet --quiet", False),
        ("info 'my scores.parquet' --json", False),
        ("run steps.toml", True),
        ("filter 'my scores.parquet' --keep-top 75% --column unc_x --dry-run", True),
    ],
)
def test_no_next_command_is_shown_with_json_quiet_or_for_a_step(line, written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = {"key": ["a", "b", "c", "d"], "status": ["ok"] * 4, "unc_x": [1.0, 2.0, 3.0, 4.0]}
    pl.DataFrame(rows).write_parquet("my scores.parquet")
    Path("steps.toml").write_text('[filter]\ntable = "my scores.parquet"\nmax = 2.0\ncolumn = "unc_x"\n')
    code, shown = typed(line, monkeypatch)
    assert code == 0, shown
    assert [text.split()[:2] for text in shown if "next:" in text] == ([["next:", "curate"]] if written else [])
    if "--dry-run" in line:  # the line as typed, without --dry-run, and with the output that it lacks
        assert shlex.split(shown[-1])[1:] == ["curate", *shlex.split(line)[:-1], "-o", "kept.parquet"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dedup: dry run, name in use", ["dedup", "scores.parquet", "-o", "unique-2.parquet"]),
        ("dedup: copies to review", ["review", "near.parquet", "unique.parquet"]),
        ("dedup: pairs", ["review", "near.parquet", "unique.audit.csv"]),
        ("dedup: leaks", ["review", "scores.parquet", "unique.parquet"]),
        ("dedup: leaks, dry run", ["dedup", "scores.parquet", "--against", "kept.parquet", "-o", "unique.parquet"]),
        ("evaluate: another table of a row", ["report", "scores.parquet", "-o", "report.html"]),
        ("evaluate: no score predicts", ["fit", "chance.parquet", "--label", "label", "--apply", "fitted.parquet"]),
        ("calibrate: no information", ["report", "calibrated.parquet", "-o", "report.html"]),
        ("info: groups", ["verify", "unique.receipt.json"]),
        ("issues: none unusable", ["report", "chance.parquet", "-o", "report.html"]),
    ],
)
def test_the_next_command_depends_on_the_result(name, words, work, monkeypatch):
    *before, line = LINES[name]
    for each in before:
        typed(each, monkeypatch)
    assert shlex.split(typed(line, monkeypatch)[1][-1])[2:] == words


def test_a_next_command_writes_to_a_name_that_is_free(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("kept.audit.csv", "kept.audit-2.csv", "training"):
        Path(name).touch()
    assert unused("kept.audit.csv") == "kept-2.audit.csv"
    assert (unused("training"), unused("kept.parquet")) == ("training-2", "kept.parquet")
