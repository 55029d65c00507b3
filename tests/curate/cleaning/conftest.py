"""A folder of photographs that is cleaned once for each file of tests."""

import shutil
from pathlib import Path

import pytest
from commandline import run
from PIL import Image
from planted_photos import COPIES, SMALLER

PHOTOS = Path(__file__).parents[3] / "examples" / "photos"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Twelve photographs, three exact and two smaller copies, two images of one colour, two that cannot be read."""
    folder = tmp_path_factory.mktemp("source") / "photos"
    folder.mkdir()
    for path in sorted(PHOTOS.glob("*.jpg")):
        with Image.open(path) as photo:
            photo.thumbnail((160, 160))
            photo.save(folder / path.name, quality=90)
    for name in COPIES:
        shutil.copy(folder / f"{name}.jpg", folder / f"{name}_again.jpg")
    for name in SMALLER:
        with Image.open(folder / f"{name}.jpg") as photo:
            photo.resize((photo.width // 2, photo.height // 2)).save(folder / f"{name}_small.jpg", quality=80)
    for number, colour in enumerate(("grey", "navy")):
        Image.new("RGB", (120, 90), colour).save(folder / f"blank{number}.png")
    (folder / "short.jpg").write_bytes((folder / "retina.jpg").read_bytes()[:1500])
    (folder / "text.jpg").write_text("no image")
    return folder


@pytest.fixture(scope="module")
def cleaned_once(source, tiny_checkpoint, tmp_path_factory):
    """A work folder with photos, a model and what cleaning made of them."""
    work = tmp_path_factory.mktemp("cleaned") / "work"
    shutil.copytree(source, work / "photos")
    shutil.copy(tiny_checkpoint, work / "m.safetensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)
        result = run("clean", "photos", "-o", "out", "--model", "m.safetensors")
    assert result.exit_code == 0, result.output
    shutil.copytree(work, work.with_name("before"))
    return work, result


@pytest.fixture
def workdir(cleaned_once, monkeypatch):
    """That work folder in its place; what a test changes in it is taken back, so that tests run in any order."""
    work = cleaned_once[0]
    monkeypatch.chdir(work)
    yield work
    shutil.rmtree(work)
    shutil.copytree(work.with_name("before"), work)
