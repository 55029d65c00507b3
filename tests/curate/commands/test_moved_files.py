"""A folder that moved after it was scored: what shows nothing says so, and --source finds the files."""

import pytest
from commandline import run
from PIL import Image

import curate


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("moved")
    (folder / "old" / "cats").mkdir(parents=True)
    for number in range(3):
        Image.new("RGB", (40, 30), (70 * number, 90, 20)).save(folder / "old" / "cats" / f"{number}.png")
    curate.score(folder / "old", folder / "scores.parquet", fit=False)
    (folder / "old").rename(folder / "new")
    return folder


@pytest.mark.parametrize(
    ("command", "out", "exit_code", "spelling"),
    [
        ("sheet", "s.png", 1, "--root"),
        ("export --to imagefolder", "e", 1, "--root"),
        ("report", "r.html", 0, "--source"),
    ],
)
def test_what_cannot_be_shown_names_the_source(moved, tmp_path, command, out, exit_code, spelling):
    line = [*command.split(" ")[:1], moved / "scores.parquet", *command.split(" ")[1:], "-o"]
    lost = run(*line, tmp_path / out)
    assert (lost.exit_code, "--source" in lost.output) == (exit_code, True)
    result = run(*line, tmp_path / f"again-{out}", spelling, moved / "new")
    assert (result.exit_code, "--source" in result.output) == (0, False), result.output


def test_an_export_from_another_folder_holds_every_image(moved, tmp_path):
    curate.export(moved / "scores.parquet", tmp_path / "e", to="imagefolder", source=str(moved / "new"))
    assert len(list((tmp_path / "e").rglob("*.png"))) == 3
