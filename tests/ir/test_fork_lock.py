"""A forked child can use what a thread of its parent had locked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, threading
from relaxpy import tir as T
{lock}
locked, forked = threading.Event(), threading.Event()
def hold():
    with lock:
        locked.set()
        forked.wait()
thread = threading.Thread(target=hold)
thread.start()
locked.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    {use}
    os._exit(7)
forked.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
{use}
"""
USES = {
    "an expression": (
        "from relaxpy.ir.tir import prim_expr; lock = prim_expr._interned.lock",
        "assert T.Var('n', 'int64') + 3 is not None",
    ),
    "a lock": (
        "from relaxpy.ir.core.fork_lock import ForkLock; lock = kept = ForkLock()",
        "kept.__enter__()",
    ),
    "an import": (
        """
import sys
from contextlib import contextmanager
from relaxpy.ir.op import Op
def paused(frame, event, argument):
    if "wrap_param" in frame.f_locals:
        sys.settrace(None)
        locked.set()
        forked.wait()
    return paused
def entered(frame, event, argument):
    return paused if frame.f_globals["__name__"] == "relaxpy.ir.ops.elementwise" else None
@contextmanager
def importing():
    sys.settrace(entered)
    assert Op("relax.add").record.pure
    yield
lock = importing()""",
        "assert Op('relax.add').record.pure",
    ),
    "a late property": (
        """
from contextlib import contextmanager
from relaxpy.ir.core.fork_lock import late_property
class Computed:
    @late_property
    def value(self):
        if threading.current_thread() is not threading.main_thread():
            locked.set()
            forked.wait()
        return 1
@contextmanager
def computing():
    assert Computed().value == 1
    yield
lock = computing()""",
        "assert Computed().value == 1",
    ),
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("name", USES)
def test_a_child_waits_for_no_thread_of_its_parent(name: str) -> None:
    lock, use = USES[name]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM.format(lock=lock, use=use)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("7\n", "")
