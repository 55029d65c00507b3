import json

import pytest
import torch
import two_ranks
from safetensors import safe_open

from scoring.errors import InputError
from trainers import ranks
from trainers.augment import Draw

FEW = ("simclr", "mcinfonce", "dino-teacher", "umm", "simsiam", "moco-groups", "accumulate", "damage")
OTHERS = tuple(name for name in two_ranks.cases() if name not in FEW)


def pair(folder, act, names):
    """Train cases in two processes and in this one."""
    one, two = folder / "one", folder / "two"
    one.mkdir()
    two.mkdir()
    lines, codes = two_ranks.start(act, two, names)
    for name in names:
        two_ranks.trained(name, one)
    return one, two, lines, codes


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """The cases that pass most between processes; then the second process brings other images."""
    return pair(tmp_path_factory.mktemp("few"), "other data", FEW)


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    return pair(tmp_path_factory.mktemp("others"), "end", OTHERS)


def read(path):
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name).double() for name in file.keys()}  # noqa: SIM118
        return json.loads(file.metadata()["done"]), tensors


def check_equal(one, two, name):
    """Compare loss, gradients (the momentum of SGD), weights, queues and centres of two states."""
    (done, ours), (other, theirs) = read(one / name), read(two / name)
    assert (done["step"], done["n"]) == (other["step"], other["n"])
    assert other["sums"] == pytest.approx(done["sums"], rel=1e-5, abs=1e-5)
    gradients = [key for key in ours if key.startswith("optimizer.")]
    largest = max(ours[key].abs().max() for key in gradients)
    assert largest > 0
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        scale = largest if key in gradients else 1.0
        assert torch.allclose(theirs[key], value, rtol=1e-5, atol=1e-5 * scale), key
    assert (two / f"{name}.0").read_text() == (two / f"{name}.1").read_text()  # to the bit


@pytest.mark.parametrize("name", FEW)
def test_two_processes_learn_what_one_does(few, name):
    check_equal(*few[:2], name)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_two_processes_learn_what_one_does_with_every_method(others, name):
    check_equal(*others[:2], name)


def test_processes_with_other_images_end_in_one_line_and_keep_the_state(few):
    one, two, lines, codes = few
    assert [line for line in lines if line] == [lines[1]]
    assert "images = 23" in lines[1]
    assert codes == [1, 0]
    check_equal(one, two, "simclr")


@pytest.mark.slow
@pytest.mark.parametrize(("act", "steps"), [("kill", 1), ("signal", 2)])
def test_a_stopped_process_ends_the_run_which_goes_on_as_if_it_had_not_been(tmp_path, act, steps):
    (tmp_path / "two").mkdir()
    (tmp_path / "one").mkdir()
    lines, codes = two_ranks.start(act, tmp_path / "two")
    assert (codes == [0, -9] and "repeat the command" in lines[0]) if act == "kill" else 143 in codes
    assert read(tmp_path / "two" / "moco")[0]["step"] == steps
    two_ranks.start("resume", tmp_path / "two", ["moco"])
    two_ranks.trained("moco", tmp_path / "one", epochs=2)
    check_equal(tmp_path / "one", tmp_path / "two", "moco")


def test_a_state_of_two_processes_goes_on_in_one(few, tmp_path):
    two_ranks.trained("simclr", tmp_path, epochs=2)
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "simclr").write_bytes((few[1] / "simclr").read_bytes())
    two_ranks.trained("simclr", tmp_path / "two", epochs=2)
    (tmp_path / "two" / "simclr.0").write_text("")
    (tmp_path / "two" / "simclr.1").write_text("")
    check_equal(tmp_path, tmp_path / "two", "simclr")


def test_a_part_of_a_batch_draws_what_it_would_in_the_whole():
    whole, part = Draw(6, torch.device("cpu"), 3), Draw(6, torch.device("cpu"), 3, slice(2, 4))
    for _ in range(2):
        assert torch.equal(whole.uniform()[2:4], part.uniform())
        assert torch.equal(whole.normal((6, 5))[2:4], part.normal((2, 5)))


def test_a_batch_that_processes_cannot_share_evenly_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(ranks, "_group", ranks.Group(size=5))
    with pytest.raises(InputError, match="--batch-size 10"):
        two_ranks.trained("simclr", tmp_path)


def test_batch_normalisation_over_processes_on_a_cpu_is_refused(monkeypatch):
    monkeypatch.setattr(ranks, "_group", ranks.Group(size=2))
    with pytest.raises(InputError, match="freeze-batchnorm"):
        ranks.synchronized(torch.nn.Sequential(torch.nn.BatchNorm2d(3)))
