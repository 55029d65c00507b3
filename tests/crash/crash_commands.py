"""Every command that writes, as it is driven here: what is before it, and what is typed."""

from dataclasses import dataclass

MODEL = "../model.safetensors"
SCORE = f"score photos --model {MODEL} --device cpu --batch-size 8 --shard-size 16"
PIPELINE = f"""
[score]
source = "photos"
model = "{MODEL}"
label-from-folder = true
device = "cpu"
shard-size = 16
[unique]
run = "dedup"
[best]
run = "filter"
keep-top = "80%"
[dataset]
run = "export"
to = "imagefolder"
"""


@dataclass(frozen=True)
class Command:
    """A command line, run in a folder that holds photos, labels.csv and scores.parquet.

    Attributes:
        line: what is typed after `curate`.
        after: names of commands that are run before it.
        torch: whether it runs a network, and so takes longer.
        goes_on: whether what is typed again replaces or continues what is there, and is never refused.
        ends: its exit code, undisturbed.
    """

    line: str
    after: tuple[str, ...] = ()
    torch: bool = False
    goes_on: bool = False
    ends: int = 0

    @property
    def draws(self) -> bool:
        """Whether it draws an image after its results have their names, so that a repeat may need ``--overwrite``."""
        return " --sheet " in self.line or " --plot " in self.line


def _export(to: str, out: str, more: str = "") -> Command:
    return Command(f"export scores.parquet --to {to} -o {out} {more}", goes_on=False)


COMMANDS: dict[str, Command] = {
    "score": Command(f"{SCORE} --label-from-folder -o table.parquet", torch=True, goes_on=True),
    "score to a folder": Command(f"{SCORE} --no-fit -o table", torch=True, goes_on=True),
    "score over another": Command(
        f"{SCORE} --overwrite -o table.parquet", ("score of some",), torch=True, goes_on=True
    ),
    "score over a folder": Command(
        f"{SCORE} --no-fit --overwrite -o table", ("score of some to a folder",), torch=True, goes_on=True
    ),
    "score add": Command(
        f"{SCORE} --label-from-folder --add -o table.parquet", ("score of some",), torch=True, goes_on=True
    ),
    "score add and refit": Command(
        f"{SCORE} --label-from-folder --add --refit -o table.parquet", ("score of some",), torch=True, goes_on=True
    ),
    "score add to a folder": Command(
        f"{SCORE} --no-fit --add -o table", ("score of some to a folder",), torch=True, goes_on=True
    ),
    "fit": Command(f"fit scores.parquet -o fitted.safetensors --apply fitted.parquet --model {MODEL}"),
    "filter": Command("filter scores.parquet --keep-top 75% -o kept.parquet"),
    "filter over another": Command(
        "filter scores.parquet --keep-top 50% --overwrite -o kept.parquet", ("filter",), goes_on=True
    ),
    "issues": Command("issues scores.parquet --set low-contrast=0.15 --sheet issues.png -o clean.parquet"),
    "dedup": Command(
        "dedup scores.parquet --finder embedding --threshold 0.99 --audit 4 --sheet pairs.png -o unique.parquet"
    ),
    "dedup against": Command("dedup scores.parquet --against kept.parquet -o added.parquet", ("filter",)),
    "labels": Command("labels scores.parquet --label label --relabel checked --review 10 -o checked.parquet"),
    "review plan": Command(
        "review plan scores.parquet --column unc_fitted --max-bad-rate 20% --images 8 -o kept.audit.csv"
    ),
    "calibrate": Command(
        "calibrate scores.parquet --column unc_fitted --bad 'label == \"cat\"' -o cats.json "
        "--apply cats.parquet --plot cats.svg"
    ),
    "select": Command("select scores.parquet --budget 9 -o batch.parquet"),
    "balance": Command("balance scores.parquet --per label -o balanced.parquet"),
    "split": Command("split scores.parquet --train 80% --test 20% --per label -o split.parquet"),
    "round init": Command("round init rounds scores.parquet --classes cat,dog --batch 8"),
    "round next": Command("round next rounds", ("round init",)),
    "round import": Command("round import rounds labels.csv", ("round init", "round next")),
    "round next again": Command("round next rounds", ("round init", "round next", "round import")),
    "round labels": Command("round labels rounds -o known.parquet", ("round init", "round next", "round import")),
    "round plot": Command("round plot rounds -o curve.png", ("round init", "round next", "round import")),
    "round simulate": Command(
        "round simulate scores.parquet --label label --budget 6,12 --seeds 2 --strategy margin -o replay.json"
    ),
    "run": Command("run curate.toml", torch=True, goes_on=True),
    "merge": Command("merge scores.parquet table.parquet --prefix -o merged.parquet", ("score of some",)),
    "clean": Command(
        f"clean photos --model {MODEL} --label-from-folder --export csv -o cleaned", torch=True, goes_on=True
    ),
    "sheet": Command("sheet scores.parquet --top 4 --bottom 4 -o sheet.png"),
    "retrieve": Command("retrieve scores.parquet scores.parquet --top 2 --sheet found.png -o answers.csv"),
    "report": Command("report scores.parquet --points 0 -o report.html"),
    "report with findings": Command("report scores.parquet --points 0 --findings review -o report.html"),
    "plot": Command("plot scores.parquet histogram -o histogram.svg"),
    "evaluate": Command("evaluate scores.parquet --label label --column unc_fitted -o worth.json"),
    "compare": Command("compare scores.parquet kept.parquet --repeats 19 --sheet compared.png", ("filter",)),
    "selftest": Command(
        f"selftest scores.parquet --model {MODEL} --images 20 --column kappa_visimsiam --change darkness --device cpu "
        "--plot selftest.svg -o selftest.json",
        torch=True,
    ),
    "diff": Command("diff scores.parquet kept.parquet -o rows.parquet", ("filter",), ends=1),
    "export folder": _export("folder", "files", "--per label"),
    "export links": _export("folder", "files", "--per label --link hard"),
    "export webdataset": _export("webdataset", "shards", "--shard 20"),
    "export parquet": _export("parquet", "dataset", "--shard 20"),
    "export imagefolder": _export("imagefolder", "images"),
    "export yolo": _export("yolo", "yolo"),
    "export coco": _export("coco", "subset.json"),
    "export csv": _export("csv", "subset.csv"),
    "export jsonl": _export("jsonl", "subset.jsonl"),
    "export over another": Command(
        "export scores.parquet --to imagefolder --overwrite -o files", ("export folder",), goes_on=True
    ),
    "train": Command(
        "train supervised photos --label-from-folder -o mine.safetensors --backbone test_resnet --size 32 --epochs 2 "
        "--batch-size 16 --device cpu --precision fp32",
        torch=True,
    ),
    "train from a cache": Command(
        f"train losspred --cached features -o head.safetensors --backbone {MODEL} --epochs 2 --set folds=2 "
        "--device cpu",
        ("cache",),
        torch=True,
    ),
    "cache": Command(
        f"cache photos --label-from-folder -o features --model {MODEL} --epochs 3 --device cpu --precision fp32",
        torch=True,
        goes_on=True,
    ),
    "models convert": Command("models convert ../weights.safetensors --backbone test_resnet -o own.safetensors"),
    # what only is before others
    "score of some": Command(f"{SCORE} --limit 20 -o table.parquet"),
    "score of some to a folder": Command(f"{SCORE} --no-fit --limit 20 -o table"),
}
DRIVEN = [name for name in COMMANDS if not name.startswith("score of some")]
