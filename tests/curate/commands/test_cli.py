"""The command line as a whole: help, speed, mistakes, exit codes."""

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from commandline import run
from typer.testing import CliRunner

from curate import __version__
from curate.cli import user_errors
from curate.commands.printing import single_line
from curate.tables.writer import TableWriter
from scoring.errors import InputError

ROOT = Path(__file__).parents[3]


def python(code, *args, **options):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], cwd=ROOT, capture_output=True, text=True, check=False, **options
    )


def test_no_arguments_show_help():
    assert "Usage:" in run().output


def test_the_version_is_one_line():
    result = run("--version")
    assert result.output == f"curate {__version__}\n"
    assert result.exit_code == 0


def test_help_takes_at_most_two_and_a_half_times_as_long_as_importing_typer():
    def seconds(code):
        """Return user and system time, which a busy machine changes little; their shares are sampled."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        python(code, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    full = "import sys; sys.argv = ['curate', '--help']; from curate.cli import main; main()"
    typer_alone, of_help = [], []
    while len(of_help) < 5 or (min(of_help) > 2.5 * min(typer_alone) and len(of_help) < 25):  # other work adds time
        typer_alone.append(seconds("import typer"))
        of_help.append(seconds(full))
    assert min(of_help) <= 2.5 * min(typer_alone)


@pytest.mark.parametrize(
    ("typed", "means"),
    [
        ("help", "--help"),
        ("help filter", "filter --help"),
        ("help round next", "round next --help"),
        ("help review plan", "review plan --help"),
        ("help train visimsiam", "train visimsiam --help"),
    ],
)
def test_help_and_a_command_is_the_help_of_the_command(typed, means):
    result, expected = run(*typed.split()), run(*means.split())
    assert result.exit_code == expected.exit_code == 0
    assert result.output == expected.output
    assert len(result.output) > 100


@pytest.mark.parametrize("typed", ["filtr", "help filtr"])
def test_an_unknown_command_gets_a_suggestion(typed):
    assert "Did you mean 'filter'" in run(*typed.split()).output


@pytest.mark.parametrize(
    ("line", "words", "help_of"),
    [
        (["filtr"], "filtr", ""),
        (["--foo"], "--foo", ""),
        (["--version=3"], "--version", ""),
        (["filter"], None, ""),  # the help
        (["filter", "a.parquet", "--keep-tp", "3"], "--keep-top", " filter"),
        (["filter", "a.parquet", "--min"], "--min", " filter"),
        (["round", "next", "rounds", "--bach", "3"], "--bach", " round next"),
        (["score", "photos"], "--out", " score"),
    ],
)
def test_a_line_that_cannot_be_read_is_one_line_and_exit_2(line, words, help_of):
    result = run(*line)
    assert result.exit_code == 2
    if words is None:
        assert "Usage:" in result.output
    else:
        assert result.stderr.startswith("error: ")
        assert words in result.stderr
        assert f"{help_of} --help" in result.stderr
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "words", "code"),
    [
        (InputError("expected a, got b; do c"), "error: expected a, got b; do c", 1),
        (KeyboardInterrupt(), "interrupted; repeat the command to resume", 130),
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), "error: No space left on device (/x/y)", 1),
        (PermissionError(errno.EACCES, "Permission denied", "/x/y"), "error: Permission denied (/x/y)", 1),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "", 1),
        (OSError(errno.EROFS, "Read-only file system", "/x/y"), "error: Read-only file system (/x/y)", 1),
    ],
)
def test_a_mistake_is_at_most_one_line_and_an_exit_code(error, words, code):
    def command():
        raise error

    small = typer.Typer()
    small.command()(user_errors(command))
    result = CliRunner().invoke(small, [])
    assert result.exit_code == code
    assert result.stderr.startswith(words)
    assert result.stderr.count("\n") == (1 if words else 0)
    assert result.stdout == ""


@pytest.mark.parametrize("error", [ValueError("a bug"), OSError(errno.EBADF, "Bad file descriptor")])
def test_a_bug_keeps_its_traceback(error):
    def command():
        raise error

    small = typer.Typer()
    small.command()(user_errors(command))
    assert CliRunner().invoke(small, []).exception is error


def test_control_characters_of_a_name_cannot_reach_the_terminal():
    assert single_line("a\nb\x1b[31m\r\u202ec") == "a\\nb\\x1b[31m\\r\\u202ec"
    assert single_line("Grüße 日本 \udcff") == "Grüße 日本 \\udcff"
    result = run("info", "no\x1b[31m\nfile.parquet")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr


def test_a_reader_that_goes_away_is_met_with_silence(tmp_path):
    code = "import sys; from curate.cli import main; main()"
    schema = pa.schema([(f"column_{i}", pa.int8()) for i in range(3000)])
    with TableWriter(tmp_path / "wide.parquet", schema, {"kind": "scores"}):
        pass
    process = subprocess.Popen(
        [sys.executable, "-c", code, "info", str(tmp_path / "wide.parquet"), "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() in (0, 1)  # 0 where the system took the whole text before it saw the end


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_with_its_exit_code_and_leaves_no_temporary_file(tmp_path, number, code):
    script = (
        "import sys, time, typer\n"
        "from curate import cli\n"
        "from scoring.atomic import AtomicFile\n"
        "def command():\n"
        "    with AtomicFile(sys.argv[1]) as file:\n"
        "        file.write(b'half')\n"
        "        print('ready', flush=True)\n"
        "        time.sleep(30)\n"
        "cli.command_line = lambda names: cli.user_errors(command)\n"
        "try:\n    cli.main()\n"
        "except typer.Exit as stop:\n    sys.exit(stop.exit_code)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "out")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_the_exit_ends_a_command_without_a_traceback(number):
    script = (
        "import atexit, os, sys\n"
        "from curate import cli\n"
        "atexit.register(os.kill, os.getpid(), int(sys.argv.pop(1)))\n"
        "cli.command_line = lambda names: lambda: None\n"
        "cli.main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(int(number)), "info"], cwd=ROOT, capture_output=True)
    assert (ended.returncode, ended.stderr) == (-number, b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_a_command_that_is_ending(number):
    script = (
        "import signal, sys, typer\n"
        "from curate import cli\n"
        "def command():\n"
        "    try:\n        signal.raise_signal(int(sys.argv.pop()))\n"
        "    finally:\n        print('ending', flush=True)\n        signal.raise_signal(number)\n"
        "number = int(sys.argv[-1])\n"
        "cli.command_line = lambda names: cli.user_errors(command)\n"
        "cli.main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(int(number))], cwd=ROOT, capture_output=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-number, b"ending\n", b"")
