import os
import subprocess
import sys
import time

import pytest

from scoring.atomic import AtomicFile

HOLDS = """
import sys, time
from scoring.atomic import AtomicFile
file = AtomicFile(sys.argv[1])
file.write(b"half")
file.flush()
print(file.temporary.name, flush=True)
time.sleep(60)
"""


def age(path):
    os.utime(path, (time.time() - 60, time.time() - 60))


@pytest.mark.parametrize("kill", [False, True])
def test_temporaries_of_the_dead_go_and_those_of_the_living_stay(tmp_path, kill):
    out = tmp_path / "table.parquet"
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(out)], stdout=subprocess.PIPE, text=True)
    try:
        held = tmp_path / process.stdout.readline().strip()
        if kill:
            process.kill()
            process.wait()
        age(held)
        with AtomicFile(out) as file:
            file.write(b"whole")
        assert out.read_bytes() == b"whole"
        assert held.exists() != kill
    finally:
        process.kill()
        process.communicate()


def test_a_young_temporary_is_left_alone_and_so_is_that_of_another_output(tmp_path):
    young = tmp_path / ".table.parquet.tmp.1.abcd"
    other = tmp_path / ".other.parquet.tmp.1.abcd"
    for path in (young, other):
        path.write_bytes(b"x")
    age(other)
    with AtomicFile(tmp_path / "table.parquet") as file:
        file.write(b"whole")
    assert young.exists()
    assert other.exists()
