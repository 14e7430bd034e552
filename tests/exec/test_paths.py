"""Files are written whole or not at all, and nothing else is left beside them."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from relaxpy.exec.store.container import write_whole

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from pathlib import Path
from relaxpy.exec.store.container import write_whole

def chunks():
    for _ in range(int(sys.argv[2])):
        yield bytes(100_000)
    print("begun", flush=True)
    sys.stdin.read()

write_whole(Path(sys.argv[1]), chunks())
"""


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="other systems name each file")
@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("count", [0, 3])
def test_a_process_that_is_killed_leaves_no_part_of_a_file(tmp_path, exists, count) -> None:
    path = tmp_path / "model.rxp"
    if exists:
        path.write_bytes(b"old")
    command = [sys.executable, "-c", PROGRAM, str(path), str(count)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGKILL)
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"] * exists


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "model.rxp"
    write_whole(path, [b"ab", b"c"])
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    path.chmod(mode)
    write_whole(path, [b"d"])
    assert path.read_bytes() == b"d"
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert [*tmp_path.iterdir()] == [path]
