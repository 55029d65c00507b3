"""What `curate doctor` finds, on this machine and on those that are made up."""

import errno
import getpass
import io
import json
import os
import socket
import tomllib
from pathlib import Path

import numpy as np
import pytest
from commandline import run
from PIL import Image

from curate.diagnosis import machine, software, speed
from curate.diagnosis.contract import NOTE, PROBLEM, MachineFact
from curate.diagnosis.run import examine
from scoring.images.sniff import DECODED

SECRET = "hunter2"


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    return list(examine(tmp_path_factory.mktemp("out"), seconds=0))


def by_name(findings):
    return {(finding.section, finding.name): finding for finding in findings}


def test_this_installation_has_no_problem_and_every_format_decodes(findings):
    assert [finding for finding in findings if finding.state == PROBLEM] == []
    assert {finding.name for finding in findings if finding.section == "decoders"} == set(DECODED)
    assert {finding.name for finding in findings if finding.section == "models"} == {"trio", "world"}


def test_every_extra_of_the_package_is_listed_and_names_its_pip_line_where_it_lacks(findings):
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    extras = tomllib.loads(text)["project"]["optional-dependencies"].keys() - {"dev"}
    extras_of = {finding.name: finding for finding in findings if finding.section == "extras"}
    assert extras_of.keys() == extras
    for name, finding in extras_of.items():
        assert finding.advice == (f"pip install 'kappa-curate[{name}]'" if "not installed" in finding.value else "")


def test_no_user_name_or_secret_is_shown(monkeypatch, tmp_path):
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:{SECRET}@proxy.example:80")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("OMP_NUM_THREADS", f"2 # {SECRET}")
    text = json.dumps([vars(finding) for finding in examine(tmp_path, seconds=0)])
    assert SECRET not in text
    assert "HTTPS_PROXY set" in text
    for private in {socket.gethostname(), str(Path.home()), str(tmp_path), getpass.getuser()} - {"root", "localhost"}:
        assert private not in text


def test_a_package_that_lacks_or_is_too_old_is_a_problem_with_its_pip_line(monkeypatch):
    def version(name):
        if name == "polars":
            return "1.9.0"
        if name == "pillow":
            raise software.importlib.metadata.PackageNotFoundError(name)
        return "9999.0"

    monkeypatch.setattr(software.importlib.metadata, "version", version)
    packages = {finding.name: finding for finding in software.packages()}
    assert {name for name, finding in packages.items() if finding.state == PROBLEM} == {"polars", "pillow"}
    assert packages["polars"].value == "1.9.0, older than 1.30"
    assert packages["pillow"].advice.startswith("pip install 'pillow>=")


@pytest.mark.parametrize(("text", "cores"), [("150000 100000\n", 1.5), ("max 100000\n", None), ("nonsense", None)])
def test_the_quota_of_a_container_is_read(tmp_path, text, cores):
    (tmp_path / "cpu.max").write_text(text)
    assert machine.cpu_quota(tmp_path) == cores
    assert machine.cpu_quota(tmp_path / "none") is None


def test_the_memory_of_a_container_bounds_that_of_the_machine(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 16000000 kB\nMemAvailable:    5000000 kB\n")
    (tmp_path / "memory.max").write_text("3000000000")
    (tmp_path / "memory.current").write_text("1000000000")
    assert machine.memory_bytes(tmp_path, tmp_path / "meminfo") == (3_000_000_000, 2_000_000_000)
    (tmp_path / "memory.max").write_text("max")
    total, free = machine.memory_bytes(tmp_path, tmp_path / "meminfo")
    assert (total, free) == (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), 5_120_000_000)


def test_a_folder_that_cannot_be_written_to_is_a_problem(monkeypatch, tmp_path):
    def refused(folder):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(machine, "flushed_speed", refused)
    last = list(machine.disks(tmp_path))[-1]
    assert last.state == PROBLEM
    assert "Read-only" in last.value


def test_a_card_that_torch_cannot_use_is_a_problem(monkeypatch, tmp_path):
    driver = tmp_path / "version"
    driver.touch()
    monkeypatch.setattr(machine, "NVIDIA", driver)
    monkeypatch.setattr(machine.torch.cuda, "is_available", lambda: False)
    assert list(machine.cards())[-1].state == PROBLEM


def test_a_decoder_that_gives_another_image_or_none_is_found(monkeypatch):
    other = io.BytesIO()
    Image.fromarray(255 - software.ramp()).save(other, format="png")
    monkeypatch.setattr(software, "encoded", lambda picture, name: other.getvalue())
    assert "another image" in software.fault_of("png")
    monkeypatch.setattr(software, "encoded", lambda picture, name: other.getvalue()[:60])
    assert "truncated" in software.fault_of("png")


def test_what_is_expected_of_the_whole_follows_from_its_parts():
    rates = {"--precision fp32": 50.0, "--precision bf16": 100.0}
    on_cpu = speed.together(300.0, rates, "--precision bf16", on_gpu=False)
    assert "about 75 images/s" in on_cpu.value
    on_gpu = speed.together(300.0, {"--precision bf16": 3000.0}, "--precision bf16", on_gpu=True)
    assert "about 300 images/s" in on_gpu.value
    assert "decoding is the limit" in on_gpu.value
    slow = speed.together(300.0, rates, "--precision fp32", on_gpu=False)
    assert (slow.state, slow.advice) == (NOTE, "--precision bf16: 2.0 x the model")


def test_the_images_of_the_speed_test_are_the_same_each_time_and_as_large_as_photographs():
    pictures = speed.photographs(3)
    assert pictures == speed.photographs(3)
    assert len(set(pictures)) == 3
    assert 50_000 < np.mean([len(data) for data in pictures]) < 120_000
    assert Image.open(io.BytesIO(pictures[0])).size == (500, 375)


@pytest.mark.slow
def test_the_speed_test_measures_what_it_says(monkeypatch):
    monkeypatch.setattr(speed, "find_spec", lambda name: None)  # a process in which OpenVINO ran dies when it forks
    findings = list(speed.speed(0.01))
    assert {finding.name for finding in findings} == {"decoding", "model world", "curate score"}
    assert all(finding.section == "speed" for finding in findings)


def test_the_command_prints_text_and_json():
    done = run("doctor", "--seconds", "0")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == "software"
    assert done.stdout.splitlines()[-1].startswith("everything works")
    record = json.loads(run("doctor", "--seconds", "0", "--json").stdout)
    assert {"section": "software", "name": "curate", "state": "ok", "advice": ""}.items() <= record[0].items()


def test_a_problem_is_named_at_the_end_and_is_the_exit_code(monkeypatch):
    broken = MachineFact("models", "world", "not usable: gone", PROBLEM, "pip install it")
    monkeypatch.setattr(software, "models", lambda: iter([broken]))
    done = run("doctor", "--seconds", "0")
    assert done.exit_code == 3
    assert done.stdout.splitlines()[-1] == "1 problem: world"
    assert "X world: not usable: gone\n    pip install it" in done.stdout
