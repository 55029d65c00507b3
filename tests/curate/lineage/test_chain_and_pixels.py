"""A chain of receipts is verified as one, down to the bytes of the images."""

import json
import shutil

import pytest
from chained import N, chain, changed, dataset, resealed
from commandline import run

import curate
from scoring.errors import InputError


@pytest.fixture
def made(tmp_path):
    dataset(tmp_path)
    return tmp_path, *chain(tmp_path)


def test_a_chain_is_derived_again_from_the_last_subset_to_the_table_that_was_scored(made):
    folder, first, best = made
    proof = curate.verify(best.subset, chain=True, pixels="all")
    assert proof.identical
    assert [(step.policy, step.verification.n_rows) for step in proof.earlier] == [("dedup", N)]
    assert proof.origin["table"] == str(folder / "scores.parquet")
    assert (proof.origin["n_rows"], proof.origin["model"]) == (N, "m")
    assert (proof.pixels.n_compared, proof.pixels.identical) == (N, True)
    changed(first.decisions, "decision", 0, "failed")
    assert curate.verify(best.subset).identical  # of the last step alone nothing is known of it
    proof = curate.verify(best.subset, chain=True)
    assert not proof.identical
    assert proof.earlier[0].verification.different[0].key == "000.png"
    done = run("verify", best.subset, "--chain")
    assert done.exit_code == 1
    assert "unique.receipt.json: 000.png: now keep, then failed" in done.stdout
    assert json.loads(run("verify", best.subset, "--chain", "--json").stdout)["identical"] is False


def test_an_image_that_changed_or_is_gone_is_named(made):
    folder, _, best = made
    (folder / "photos/004.png").write_bytes(b"another")
    (folder / "photos/009.png").unlink()
    proof = curate.verify(best.receipt, pixels="all")
    assert (proof.n_different, proof.problems, proof.identical) == (0, 0, False)
    assert (proof.pixels.n_changed, proof.pixels.n_lost) == (1, 1)
    assert [key for key, _ in proof.pixels.named] == ["004.png", "009.png"]
    done = run("verify", best.receipt, "--pixels", "all")
    assert done.exit_code == 1
    assert "pixels: different: 1 changed, 1 cannot be read, of 40 images of 40 read again" in done.stdout


def test_a_sample_of_images_is_the_same_by_the_seed(made):
    folder, _, best = made
    for path in (folder / "photos").iterdir():
        path.write_bytes(b"x")

    def named(**how):
        return [key for key, _ in curate.verify(best.receipt, pixels=5, **how).pixels.named]

    assert named() == named()
    assert len(named()) == 5
    assert named() != named(seed=1)
    assert set(named()) <= set(dict(curate.verify(best.receipt, pixels="7").pixels.named))


def test_images_elsewhere_are_read_from_the_source(made):
    folder, _, best = made
    (folder / "photos").rename(folder / "moved")
    assert curate.verify(best.receipt, pixels="all").pixels.n_lost == N
    assert curate.verify(best.receipt, pixels="all", source=str(folder / "moved")).identical


def test_no_image_outside_of_a_root_is_read(made):
    folder, _, best = made
    changed(folder / "scores.parquet", "uri", 2, "/etc/hostname")
    resealed(best.receipt, lambda receipt: None)
    with pytest.raises(InputError, match=r"outside of --root .*/etc/hostname"):
        curate.verify(best.receipt, pixels="all", root=folder)
    changed(folder / "scores.parquet", "uri", 2, "https://example.org/x.png")
    with pytest.raises(InputError, match="outside of --root"):
        curate.verify(best.receipt, pixels="all", root=folder)


def test_a_receipt_that_is_its_own_input_ends(made):
    best = made[2]
    resealed(best.receipt, lambda receipt: receipt["input"].update(path=str(best.subset)))
    with pytest.raises(InputError, match="refers to itself"):
        curate.verify(best.receipt, chain=True)


@pytest.mark.parametrize("amount", ["none", "0", "-3", "1.5", ""])
def test_an_amount_of_images_that_makes_no_sense_is_one_line(made, amount):
    result = run("verify", made[2].receipt, "--pixels", amount)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "--pixels takes all" in result.stderr


def test_what_is_for_subsets_is_refused_of_others(made, monkeypatch):
    folder, *_ = made
    monkeypatch.chdir(folder)
    (folder / "curate.toml").write_text(
        '[best]\nrun = "filter"\ntable = "scores.parquet"\nkeep-top = "50%"\ncolumn="kappa_a"\n'
    )
    assert run("run", "curate.toml").exit_code == 0
    assert run("verify", "curated").exit_code == 0
    refused = run("verify", "curated", "--chain")
    assert (refused.exit_code, "no --chain" in refused.stderr) == (1, True)
    assert "with --pixels" in run("verify", "best.receipt.json", "--source", "x").stderr
    shutil.rmtree(folder / "curated")
