"""The course of a run: what is written an epoch, and that nothing of it changes the run."""

import json
import shutil
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from curate.cli import app
from curate.reporting.plots.course import read_course
from curate.reporting.plots.plot import plot
from curate.training.course import Probe, RunCourse
from curate.training.train import train as curate_train
from scoring.cards import read_header
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.metrics.ranking import r_auroc
from trainers.config import TrainConfig
from trainers.data import TrainingSet
from trainers.loop import train
from trainers.methods.settings import Augmentation
from trainers.methods.table import METHODS
from trainers.monitor import Monitor
from trainers.state import kept_earlier

CPU = torch.device("cpu")
TIMES = {"steps_per_second"}


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 60, (24, 3, 16, 16), generator=generator, dtype=torch.uint8)
    labels = torch.arange(24) % 2
    pixels[labels == 0, :, :, :8] += 150
    return TrainingSet(pixels, labels, ["left", "none"], {})


def config(**changes):
    settings = METHODS["visimsiam"].Settings(latent_dim=8, hidden_dim=8, n_small=0)
    plain = TrainConfig(
        "visimsiam",
        "test_resnet",
        size=16,
        epochs=4,
        batch_size=8,
        lr=0.05,
        settings=settings,
        augmentation=Augmentation(scale=(0.5, 1.0)),
    )
    return replace(plain, **changes)


class Stop(Exception):
    pass


class Killed(RunCourse):
    """Dies after the row of an epoch, before the state of its last step is saved."""

    at = None

    def add(self, epoch):
        super().add(epoch)
        if epoch.number == self.at:
            raise Stop


def run(images, tmp_path, name, *, recipe=None, stop=None, probe=True, best=None):
    recipe = recipe or config()
    measured = Probe(images.pixels, images.labels, every=2) if probe else None
    course = Killed(tmp_path / f"{name}-course", {"lab": name}, probe=measured, best=best) if probe else None
    if course is not None:
        course.at = stop
    state = tmp_path / f"{name}.state"
    try:
        return train(recipe, images, state=state, device=CPU, monitor=Monitor(save_every=-1, course=course))
    except Stop:
        return None, {}


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(a, b):
    return all(torch.equal(value, b[name]) for name, value in a.items())


def rows(folder):
    return [{name: value for name, value in row.items() if name not in TIMES} for row in read_course(folder)]


def test_a_run_with_a_course_and_a_probe_is_the_run_without_and_goes_on_to_the_bit(images, tmp_path):
    plain, measures = run(images, tmp_path, "plain", probe=False)
    followed, again = run(images, tmp_path, "whole")
    assert same(weights(plain), weights(followed))
    assert measures == again
    complete = rows(tmp_path / "whole-course")
    assert [(row["epoch"], row["step"]) for row in complete] == [(1, 3), (2, 6), (3, 9), (4, 12)]
    assert [row["knn"] is None for row in complete] == [True, False, True, False]
    assert all(row["gradient_norm"] > 0 and row["lr"] == 0.05 for row in complete)
    assert run(images, tmp_path, "cut", stop=3) == (None, {})
    assert len(rows(tmp_path / "cut-course")) == 3  # the state is of the step before
    resumed, _ = run(images, tmp_path, "cut")
    assert same(weights(plain), weights(resumed))
    assert rows(tmp_path / "cut-course") == complete
    text = (tmp_path / "cut-course" / "course.csv").read_text()
    assert [line.split(",")[:2] for line in text.splitlines()[1:]] == [["1", "3"], ["2", "6"], ["3", "9"], ["4", "12"]]


def test_a_probe_measures_each_image_against_the_others(images):
    model, _ = train_once(images)
    probe = Probe(images.pixels, images.labels)
    measured = probe.measure(model)
    with torch.inference_mode():
        outputs = model(images.pixels)
    cosine = outputs.embedding @ outputs.embedding.T
    cosine.fill_diagonal_(-2)
    nearest = cosine.argmax(1)
    assert measured["recall_at_1"] == pytest.approx((images.labels[nearest] == images.labels).float().mean().item())
    votes = torch.zeros(24, 2)
    for row in range(24):
        for other in cosine[row].topk(20).indices.tolist():
            votes[row, images.labels[other]] += torch.exp(cosine[row, other] / 0.07)
    assert measured["knn"] == pytest.approx((votes.argmax(1) == images.labels).float().mean().item())
    certainty = outputs.columns["kappa_visimsiam"].numpy()
    if measured["recall_at_1"] < 1:
        assert measured["r_auroc"] == pytest.approx(r_auroc(certainty, outputs.embedding, images.labels))


def train_once(images):
    from trainers.build import build

    model, method = build(config(), 0)
    return model.eval(), method


def test_the_best_model_so_far_is_kept_by_its_measure(images, tmp_path, monkeypatch):
    values = iter([0.5, 0.7, 0.7, 0.6])
    monkeypatch.setattr(Probe, "measure", lambda self, model: {"knn": next(values)})
    monkeypatch.setattr(Probe, "is_due", lambda self, number, epochs: True)
    kept = []
    run(images, tmp_path, "best", best=("knn", lambda epoch, row: kept.append(row["epoch"])))
    assert kept == [1, 2]


def test_a_run_goes_on_with_more_epochs_as_if_they_had_been_requested_at_once(images, tmp_path):
    longer, _ = run(images, tmp_path, "longer", recipe=config(epochs=3))
    run(images, tmp_path, "extended", recipe=config(epochs=2))
    extended, _ = run(images, tmp_path, "extended", recipe=config(epochs=3))
    assert same(weights(longer), weights(extended))
    assert [row["epoch"] for row in rows(tmp_path / "extended-course")] == [1, 2, 3]
    with pytest.raises(InputError, match="--epochs 3"):
        run(images, tmp_path, "extended", recipe=config(epochs=2), probe=False)


def test_a_folder_of_another_run_and_one_that_is_no_course_are_refused(tmp_path):
    RunCourse(tmp_path / "c", {"lr": 1}).begin(0)
    with pytest.raises(InputError, match=r"another run.*--course"):
        RunCourse(tmp_path / "c", {"lr": 2})
    RunCourse(tmp_path / "c", {"lr": 1}, schedule={"epochs": 2}).begin(0)  # no epoch had ended
    rows_of_a_run = "epoch,step\n1,5\n"
    (tmp_path / "c" / "course.csv").write_text(rows_of_a_run)
    with pytest.raises(InputError, match=r"another run.*--course"):
        RunCourse(tmp_path / "c", {"lr": 1}, schedule={"epochs": 3}).begin(0)
    RunCourse(tmp_path / "c", {"lr": 1}, schedule={"epochs": 3}).begin(5)
    assert (tmp_path / "c" / "course.csv").read_text() == rows_of_a_run
    with pytest.raises(InputError, match=r"no course\.csv"):
        plot(tmp_path, "course")
    (tmp_path / "course.csv").write_text("a,b\n1,x\n")
    with pytest.raises(InputError, match="not the course"):
        plot(tmp_path, "course")


def options_of(tmp_path):
    for kind in ("cat", "dog"):
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for i in range(4):
            noise = np.random.default_rng(i).integers(0, 256, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(noise).save(tmp_path / "photos" / kind / f"{i}.png")
    return {
        "label_from_folder": True,
        "backbone": "test_resnet",
        "size": 16,
        "batch_size": 8,
        "device": "cpu",
        "set": {"latent_dim": 8, "n_small": 0},
        "course": tmp_path / "lab",
        "measure_on": tmp_path / "photos",
        "save_best": "knn",
    }


def test_a_run_that_was_killed_before_its_first_state_is_repeated_with_its_best_model(tmp_path, monkeypatch):
    options, out = {**options_of(tmp_path), "epochs": 2}, tmp_path / "m.safetensors"

    def add(self, epoch):
        before(self, epoch)
        raise Stop

    with monkeypatch.context() as killed:
        before = RunCourse.add
        killed.setattr(RunCourse, "add", add)
        with pytest.raises(Stop):
            curate_train("visimsiam", tmp_path / "photos", out=out, **options)
    assert (tmp_path / "m.best.safetensors").exists()
    curate_train("visimsiam", tmp_path / "photos", out=out, **options)
    out.rename(tmp_path / "other.safetensors")
    with pytest.raises(InputError, match=r"m\.best\.safetensors exists"):  # of a run that has ended
        curate_train("visimsiam", tmp_path / "photos", out=out, **options)


def test_images_to_measure_on_are_checked_before_others_are_decoded(tmp_path):
    options, said = options_of(tmp_path), []
    few = tmp_path / "few" / "cat"
    few.mkdir(parents=True)
    shutil.copy(tmp_path / "photos" / "cat" / "0.png", few)
    options |= {"measure_on": few.parent, "announce": said.append, "out": tmp_path / "m.safetensors"}
    with pytest.raises(InputError, match=r"3 labelled .*got 1"):
        curate_train("visimsiam", tmp_path / "photos", **options)
    (few / "1.png").write_bytes(b"no image")
    (few / "2.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"--measure-on.* 1 of 3"):
        curate_train("visimsiam", tmp_path / "photos", **options)
    assert not any("photos" in line for line in said)


def test_the_command_writes_a_course_that_plot_draws(tmp_path):
    options = {**options_of(tmp_path), "keep_state": True, "overwrite": True}
    for epochs in (1, 2):
        curate_train("visimsiam", tmp_path / "photos", out=tmp_path / "m.safetensors", epochs=epochs, **options)
    assert [row["epoch"] for row in read_course(tmp_path / "lab")] == [1, 2]
    earlier = read_header(tmp_path / "m.safetensors")["training"]["earlier"]
    assert earlier == [{"step": 1, "epochs": 1, "lr": 0.1}]  # whose schedule the first step followed
    best = read_header(tmp_path / "m.best.safetensors")["metrics"]
    assert best["knn"] == max(row["knn"] for row in read_course(tmp_path / "lab"))
    load_model(tmp_path / "m.best.safetensors")
    drawn = CliRunner().invoke(app, ["plot", str(tmp_path / "lab"), "course", "-o", str(tmp_path / "c.svg")])
    assert drawn.exit_code == 0, drawn.output
    assert "loss" in (tmp_path / "c.svg").read_text()
    assert plot(tmp_path / "lab", "course", column="lr").numbers.measures == {"lr": [0.1, 0.1]}
    shutil.rmtree(tmp_path / "photos" / "cat")
    for wrong, words in (
        ({"measure_on": None}, "give all three"),
        ({"save_best": "loss"}, "got .loss"),
        ({"every": 0}, "--every"),
        ({"course": None, "save_best": None}, "--course"),
    ):
        with pytest.raises(InputError, match=words):
            curate_train(
                "visimsiam",
                tmp_path / "photos",
                out=tmp_path / "n.safetensors",
                epochs=1,
                **{**options, "batch_size": 4, **wrong},
            )


def test_the_card_of_the_best_model_lists_earlier_schedules(tmp_path, monkeypatch):
    rising = count()
    monkeypatch.setattr(Probe, "measure", lambda self, model: {"knn": next(rising) / 10})
    options = {**options_of(tmp_path), "keep_state": True, "overwrite": True}
    for epochs in (1, 2):
        curate_train("visimsiam", tmp_path / "photos", out=tmp_path / "m.safetensors", epochs=epochs, **options)
    best = read_header(tmp_path / "m.best.safetensors")
    assert best["metrics"]["epoch"] == 2
    assert best["training"]["earlier"] == [{"step": 1, "epochs": 1, "lr": 0.1}]


def test_a_state_without_earlier_schedules_has_none(tmp_path):
    done = {"step": 1, "sums": {}, "n": 0}  # as before they were kept
    save_file({"module.weight": torch.zeros(1)}, tmp_path / "state", {"done": json.dumps(done)})
    assert kept_earlier(tmp_path / "state") == []
