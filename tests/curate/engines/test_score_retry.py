"""A complete run that is repeated reads rows again whose failure may have passed."""

from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
from PIL import Image
from runs import SMALL, PhotoServer, run_again

from curate.engines.score import score
from curate.tables.table import open_table
from scoring.errors import InputError

N, LATE = 20, 13  # images, and the one that is absent at first: of the second of three shards


@pytest.fixture
def listed(tmp_path):
    """A list of images of a folder."""
    folder = tmp_path / "photos"
    folder.mkdir()
    generator = np.random.default_rng(3)
    for number in range(N):
        Image.fromarray(generator.integers(0, 256, (8, 8, 3), np.uint8)).resize((40, 30)).save(
            folder / f"{number:02}.png"
        )
    (tmp_path / "list.txt").write_text("".join(f"photos/{number:02}.png\n" for number in range(N)))
    return tmp_path / "list.txt"


@pytest.mark.parametrize("name", ["s.parquet", "s"])
def test_a_repeat_scores_a_row_whose_file_is_back_as_if_it_had_never_been_gone(listed, tiny_checkpoint, tmp_path, name):
    undisturbed, out, late = tmp_path / f"whole-{name}", tmp_path / name, listed.with_name("photos") / f"{LATE}.png"
    run_again(listed, undisturbed, tiny_checkpoint)
    late.rename(tmp_path / "away")
    assert run_again(listed, out, tiny_checkpoint).statuses == {"ok": N - 1, "missing": 1}
    assert run_again(listed, out, tiny_checkpoint).resumed == N  # still gone: nothing is written
    (tmp_path / "away").rename(late)
    result = run_again(listed, out, tiny_checkpoint)
    assert (result.statuses, result.resumed) == ({"ok": N}, 12)  # the other shards, of 8 and 4 rows
    assert open_table(out).read().equals(open_table(undisturbed).read())
    assert open_table(out).metadata == open_table(undisturbed).metadata
    assert not list(tmp_path.glob(".s*"))


def test_a_file_that_changed_is_another_input_even_where_another_is_back(listed, tiny_checkpoint, tmp_path):
    late = listed.with_name("photos") / f"{LATE}.png"
    late.rename(tmp_path / "away")
    run_again(listed, tmp_path / "s.parquet", tiny_checkpoint)
    (tmp_path / "away").rename(late)
    Image.new("RGB", (9, 9)).save(late.with_name("02.png"))
    with pytest.raises(InputError, match="another input"):
        run_again(listed, tmp_path / "s.parquet", tiny_checkpoint)


@contextmanager
def serving(folder):
    server = PhotoServer(folder)
    server.start()
    yield server.port
    server.stop()


def test_only_a_status_that_is_named_is_read_again_where_it_is_not_temporary(listed, tiny_checkpoint, tmp_path):
    folder, urls, out = listed.with_name("photos"), tmp_path / "urls.txt", tmp_path / "s.parquet"
    good = (folder / "03.png").read_bytes()
    (folder / "03.png").write_bytes(b"an error page")
    with serving(folder) as port:
        urls.write_text("".join(f"http://127.0.0.1:{port}/{number:02}.png\n" for number in range(N)))
        once = partial(score, urls, out, model=tiny_checkpoint, **SMALL | {"fit": False})
        assert once(allow_private_hosts=True).statuses == {"ok": N - 1, "not_an_image": 1}
        (folder / "03.png").write_bytes(good)
        assert once(allow_private_hosts=True).resumed == N
        assert once(allow_private_hosts=True, retry=["not_an_image"]).statuses == {"ok": N}
    with pytest.raises(InputError, match="status"):
        once(retry=["ok"])
