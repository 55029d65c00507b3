"""What a terminal is shown, of a width or of none."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.commands.printing import show_table

SHOW = "from curate.commands.printing import say_table; say_table([('kept', 12), ('dropped', 3, 'embedding')], right=1)"


@pytest.mark.parametrize("columns", [0, 100])
def test_a_table_is_shown_whatever_width_the_terminal_says_it_has(columns):
    ours, far_end = pty.openpty()
    fcntl.ioctl(far_end, termios.TIOCSWINSZ, struct.pack("HHHH", 0, columns, 0, 0))
    settings = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    subprocess.run([sys.executable, "-c", SHOW], stderr=far_end, stdout=far_end, check=True, env=settings)
    os.close(far_end)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", os.read(ours, 10_000).decode())
    os.close(ours)
    assert [line.split() for line in shown.splitlines()] == [["kept", "12"], ["dropped", "3", "embedding"]]


@pytest.mark.parametrize("columns", [32, 40, 48, 60])
def test_no_word_of_a_table_is_broken_on_a_narrow_terminal(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [("unlike-the-rest", 1234, "10.0%", "0.5", "1", ""), ("grey", 6, "1%", "0.04", "grey among colours", "off")]
    show_table(rows, header=("kind", "rows", "share", "begins at", "median", ""), right=1)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= columns
    assert set(shown.split()) == set(
        " ".join(["1,234 kind rows share begins at median", *map(str, sum(rows, ()))]).split()
    ) - {"1234"}


@pytest.mark.parametrize(
    ("within", "lines"), [("", ["next: curate issues s.parquet"]), ("sys.stdout = sys.stderr", [])]
)
def test_what_comes_next_is_shown_on_a_terminal_but_not_of_a_step(within, lines):
    ours, far_end = pty.openpty()
    code = f"import sys\n{within}\nfrom curate.commands.printing import say_next; say_next('curate issues s.parquet')"
    subprocess.run([sys.executable, "-c", code], stderr=far_end, check=True)
    os.write(far_end, b"end\n")
    shown = ""
    while not shown.endswith("end\r\n"):
        shown += os.read(ours, 10_000).decode()
    os.close(far_end)
    os.close(ours)
    assert shown.splitlines() == [*lines, "end"]


@pytest.mark.parametrize(
    ("settings", "output", "code", "shown"),
    [
        ({"PYTHONIOENCODING": "ascii"}, "", 0, "cat\\xe4.jpg"),
        ({}, ">&-", 0, ""),
        ({"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}, "", 1, "PYTHONUTF8=1"),
    ],
)
def test_an_output_that_cannot_show_a_name_or_is_closed_ends_no_command(settings, output, code, shown, tmp_path):
    pq.write_table(pa.table({"key": ["catä.jpg"]}), tmp_path / "s.parquet")
    line = f"{sys.executable} -m curate explain {tmp_path}/s.parquet catä.jpg {output}"
    done = subprocess.run(line, shell=True, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert (done.returncode, shown in done.stdout + done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
