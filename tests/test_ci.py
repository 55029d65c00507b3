"""What runs where nobody looks: the commands of the README, and the studies where their subject changed."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RULE = ROOT / ".ci" / "studies-due"
STUDIED = re.search(r"STUDIED=\((.*?)\)", RULE.read_text(), re.DOTALL)[1].split()
AUTHOR = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def test_ci_runs_the_commands_of_the_readme_and_no_other():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    said = re.findall(r"^    (make \w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert {"make test", "make demo"} == set(said) <= set(lines)
    assert lines[-1] == "if .ci/studies-due; then make studies; fi"
    assert "set -euo pipefail" in lines
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_what_the_studies_run_and_test_is_covered_by_the_rule():
    assert [path for path in STUDIED if not (ROOT / path).exists()] == []
    for path in (ROOT / "tests").rglob("test_*.py"):
        place = path.relative_to(ROOT)
        if re.search(r"^(@|pytestmark = )pytest\.mark\.study", path.read_text(), re.MULTILINE):
            assert any(place.is_relative_to(folder) for folder in STUDIED), place
        else:
            assert place.parts[1] != "studies", f"{place} is not marked"


@pytest.fixture
def clone(tmp_path):
    """A repository with the rule, and two commits: of everything, and of the document."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(RULE, tmp_path / ".ci")
    for file in ("benchmarks/cache.py", "curate/selectors/ranked.py", "docs/design.md", "Makefile"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("first")
    git(tmp_path, "init", "--quiet", "--initial-branch", "trunk")
    commit(tmp_path, "first")
    (tmp_path / "docs" / "design.md").write_text("second")
    commit(tmp_path, "second")
    return tmp_path


def git(folder, *words):
    environment = os.environ | AUTHOR | ALONE
    subprocess.run(["git", *words], cwd=folder, env=environment, check=True, capture_output=True)


def commit(folder, message):
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", message)


def due(folder, *base):
    done = subprocess.run([folder / ".ci" / "studies-due", *base], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1)
    assert done.stdout.startswith("studies: ")
    return done.returncode == 0


def test_studies_are_due_where_theirs_changed_since_the_base_or_where_the_branch_left_it(clone):
    assert not due(clone, "HEAD~1")
    (clone / "curate" / "selectors" / "ranked.py").write_text("third")
    assert due(clone, "HEAD~1")  # not committed yet
    commit(clone, "third")
    assert due(clone, "HEAD~1")
    git(clone, "checkout", "--quiet", "-b", "other", "HEAD~1")
    (clone / "docs" / "new.md").write_text("fourth")
    commit(clone, "fourth")
    assert not due(clone, "trunk")  # what changed there since is not ours


@pytest.mark.parametrize("file", ["benchmarks/new.py", "Makefile"])
def test_a_new_file_and_the_way_that_they_are_run_count(clone, file):
    (clone / file).write_text("third")
    commit(clone, "third")
    assert due(clone, "HEAD~1")


@pytest.mark.parametrize("base", [(), ("",), ("HEAD",), ("gone",), ("0" * 40,)])
def test_studies_are_due_where_the_base_is_unknown(clone, base):
    assert due(clone, *base)


def test_without_a_base_it_is_where_the_branch_left_origin(clone):
    git(clone, "update-ref", "refs/remotes/origin/main", "HEAD~1")
    assert not due(clone)
