"""What a terminal is shown, of a width or of none."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

SHOW = "from curate.commands.printing import say_table; say_table([('kept', 12), ('dropped', 3, 'embedding')], right=1)"


@pytest.mark.parametrize("columns", [0, 100])
def test_a_table_is_shown_whatever_width_the_terminal_says_it_has(columns):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 0, columns, 0, 0))
    settings = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    subprocess.run([sys.executable, "-c", SHOW], stderr=theirs, stdout=theirs, check=True, env=settings)
    os.close(theirs)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", os.read(ours, 10_000).decode())
    os.close(ours)
    assert [line.split() for line in shown.splitlines()] == [["kept", "12"], ["dropped", "3", "embedding"]]
