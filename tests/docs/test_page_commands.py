"""Every command line of README, get-started and how-to pages runs as it stands, in page order, on real images."""

import importlib.util
import os
import re
import shutil
import threading
import urllib.request
from contextlib import closing
from pathlib import Path

import page_folders
import pytest

ROOT = Path(__file__).parents[2]
LEFT_OUT = {  # what a line holds -> why no test runs it
    r"^(pip|pipx|uv) ": "installs from the network",
    r"^make ": "CI runs it itself",
    r"hf://": "reads the hub of Hugging Face",
    r"ray:auto": "needs a Ray cluster",
    r"--devices 4": "needs four GPUs",
    r"--install-completion": "changes the shell of whoever runs it",
    r"label_one_more_round": "is a program of the reader's",
    r"tamper\.py": "takes minutes, and has tests",
}
EXIT_CODES = {  # what a line holds -> what it exits with here, as its page or docs/errors.md states
    "curate diff ": (1,),
    "curate selftest ": (0, 1),  # crops of twelve photographs are more alike than a dataset is
    "--fail-unless-stop": (3,),
}
OTHER_OUTPUT = {  # page -> why what it shows cannot come out here
    "docs/interchange": "its own test compares it",
    "docs/audit": "shows what too few verdicts on another table are answered",
    "docs/grow": "shows images that came and went since",
}
# Lines of blocks that are no output: other programs, Python, and files of a folder.
NO_OUTPUT = re.compile(r"(pip|pipx|uv|make|python|import|print|found|#)\b|#|rounds/|\S+\.(json|parquet) ")
SHORT = {"curate train ": " --epochs 1 --batch-size 4"}  # begin of a line -> what the test adds, or it takes hours


def script(path):
    """A script of this repository as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


walk, site = script("examples/walkthroughs.py"), script("docs/build_site.py")
PAGES = ["README", *(f"docs/{page}" for part in ("Get started", "How to") for page in site.PAGES[part])]
LINES = {page: page_folders.typed_lines((ROOT / f"{page}.md").read_text()) for page in PAGES}


def is_left_out(line):
    return any(re.search(part, line) for part in LEFT_OUT)


def test_few_lines_are_left_out():
    lines = [line for page in PAGES for _, line in LINES[page]]
    left_out = [line for line in lines if is_left_out(line)]
    assert len(left_out) == 22
    assert all(any(re.search(part, line) for line in left_out) for part in LEFT_OUT)
    assert len(lines) > 200


def test_lines_of_blocks_are_found_and_notes_are_no_part_of_them():
    text = "`curate a`\n\n    curate b -o c  # note\n    rows 3\n\n```console\n$ curate d\ncurate e\n```\n"
    text += "\n```python\ncurate f\n```\n"
    assert [line for _, line in page_folders.typed_lines(text)] == ["curate b -o c", "curate d", "curate e"]


def test_the_words_of_shown_output_are_found_and_code_is_none():
    text = "A\n\n    curate a\n\nprints\n\n    kept   12 of 70\n    next: curl\n\n"
    text += "```text\nrows 3\n```\n\n    import curate\n"
    assert shown_words(text) == {"kept", "next", "rows"}


def test_what_a_page_makes_is_not_there_before():
    lines = ["curate a x.parquet -o y.parquet", "curate b y.parquet -o x.parquet", "curate round init rounds y.parquet"]
    assert page_folders.made_first(lines) == {"y.parquet", "rounds"}


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    """All that pages begin with, and a bucket with images on a server of this machine."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    import boto3

    from curate.engines import junk

    folder = tmp_path_factory.mktemp("stock")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(junk, "COPIES", 120)  # or corrupting images is most of the time
        page_folders.make_stock(folder, lambda line: run(line, folder, codes=(0,)))
    server = moto.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    named = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**named, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
            patch.setenv(name, value)
        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        page_folders.fill_bucket(folder, lambda key, data: client.put_object(Bucket="bucket", Key=key, Body=data))
        yield folder
    server.stop()


def run(line, folder, codes, place=""):
    """Run a line, and fail where it exits with another code than these."""
    printed = walk.run(line, folder)
    code = re.search(r"\(exit code (\d+)\)\n\Z", printed)
    expected = (int(code[1]) if code else 0) in codes and "Traceback" not in printed
    assert expected, f"{place}: {line}\n{printed}"
    return printed


def shown_words(text):
    """The words that begin the lines of output which a page shows, up to their first number; images are others here."""
    blocks = re.findall(r"^```(?:console|text)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    blocks += re.findall(r"(?<=\n\n)((?:    .*\n)+)", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))
    lines = [line.strip() for block in blocks if "curate " not in block for line in block.splitlines()]
    return {re.split(r"[\d:\[]|  ", line)[0].strip() for line in lines if not NO_OUTPUT.match(line)} - {""}


def review_at_once(server, browser):
    """Look at the page of a review, and keep every group that it shows: what a reviewer does in minutes."""
    with closing(server):
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            with urllib.request.urlopen(server.url) as answer:
                assert answer.status == 200
            review = server.site.review
            while groups := [group for group in review.state()["queue"] if group["kind"] != "copies"]:
                review.act(review.state()["seq"], "keep", groups[0]["id"])
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if not all(is_left_out(line) for _, line in LINES[page])])
def test_every_command_line_runs(page, stock, tmp_path, monkeypatch):
    from curate.commands import review
    from curate.engines import junk

    monkeypatch.setattr(review, "_serve", review_at_once)
    monkeypatch.setattr(junk, "COPIES", 120)  # or corrupting images is most of the time
    monkeypatch.setenv("CURATE_CACHE", os.environ.get("CURATE_CACHE", str(Path.home() / ".cache" / "curate")))
    monkeypatch.setenv("HOME", str(tmp_path))
    todo = [(number, line) for number, line in LINES[page] if not is_left_out(line)]
    page_folders.begin(stock, tmp_path, Path(page).stem, [line for _, line in todo])
    printed = ""
    for number, line in todo:
        program = line.split()[0]
        if program != "curate" and shutil.which(program) is None:
            pytest.skip(f"{page}.md:{number}: there is no {program} on this machine")
        more = next((added for begin, added in SHORT.items() if line.startswith(begin)), "")
        codes = next((codes for part, codes in EXIT_CODES.items() if part in line), (0,))
        printed += run(line + more, tmp_path, codes, f"{page}.md:{number}")
    if page not in OTHER_OUTPUT:
        lines = [line.strip() for line in printed.splitlines()]
        words = shown_words((ROOT / f"{page}.md").read_text())
        assert {each for each in words if not any(line.startswith(each) for line in lines)} == set(), f"{page}.md"
