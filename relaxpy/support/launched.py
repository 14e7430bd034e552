"""Processes that a launcher of MPI started together: an error that ends one ends all.

As a program, this file ends the process that has started it if that waits for one that has ended.
It imports nothing of the package, so that it starts quickly.
"""

import atexit
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS")
"""Where launchers of MPI, and that of Slurm, say how many processes they started."""
_RANKS = {
    "PMI_RANK": ("PMI_SIZE", "MPI_LOCALNRANKS"),
    "OMPI_COMM_WORLD_RANK": ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
}
"""Where they say which process this is, how many there are, and how many on this machine."""
_WORKER = "RELAXPY_WORKER"
"""Where a worker says which process it is: those that it starts inherit what the launcher said."""
_ENDS = "relaxpy ends"
"""The name of a process that ends, and may still wait for others."""
_INTERVAL = 0.2
"""The seconds between looks at the other processes."""
GRACE = 1.0
"""The seconds that processes have for their last words before all are stopped."""


def size_variable() -> str | None:
    """The environment variable in which a launcher says that it started several processes."""
    sizes = ((name, os.environ.get(name, "")) for name in _SIZES)
    return next((name for name, size in sizes if size.isdecimal() and int(size) > 1), None)


def is_helper() -> bool:
    """True if another Python process, which may be a worker, started this one."""
    this = str(os.getpid())
    spawned = sys.modules.get("multiprocessing.process")
    is_spawned = spawned is not None and spawned.parent_process() is not None
    return is_spawned or os.environ.get(_WORKER, this) != this


def is_one_of_several() -> bool:
    """True if a launcher started other processes together with this one."""
    return size_variable() is not None and not is_helper()


class EndOfAll:
    """On an uncaught error: print it, tell the other processes, and end all of them.

    Interactive sessions and lone processes go on.
    """

    def __init__(self, before: Callable[..., object]) -> None:
        self.tellers: list[Callable[[BaseException], object]] = []
        """Functions that tell other processes about the error."""
        self._before = before
        self._process = os.getpid()

    def __call__(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        """Print an uncaught error, and end all."""
        self._before(kind, error, traceback)
        sys.stdout.flush()
        sys.stderr.flush()
        if hasattr(sys, "ps1") or self._process != os.getpid():
            return
        mpi = sys.modules.get("mpi4py.MPI")
        if mpi is None or not mpi.Is_initialized():
            if is_one_of_several():  # the others wait for this one; a signal ends them
                print(f"{_this()} has failed: all end", file=sys.stderr, flush=True)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.raise_signal(signal.SIGTERM)
        elif not mpi.Is_finalized() and mpi.COMM_WORLD.size > 1:
            for tell in self.tellers:
                tell(error)
            time.sleep(GRACE)
            _remove_shared_memory()
            mpi.COMM_WORLD.Abort(1)


def _remove_shared_memory() -> None:
    """Remove the names of memory that MPICH shares, which it leaves behind when it aborts."""
    with suppress(OSError):
        lines = Path("/proc/self/maps").read_text().splitlines()
        for name in {line.split()[-1] for line in lines if "/dev/shm/mpich_" in line}:
            os.unlink(name)


def end_all() -> EndOfAll:
    """Let an uncaught error of this process end all that were started with it."""
    hook = sys.excepthook
    if not isinstance(hook, EndOfAll):
        sys.excepthook = hook = EndOfAll(hook)
    return hook


def ended_processes() -> frozenset[int]:
    """The numbers of the processes that the launcher started on this machine and that have ended.

    It is empty where that is not known: on systems without /proc, and with launchers that do not
    number their processes. On several machines, those are missing that ended without a word.
    """
    rank = next((name for name in _RANKS if name in os.environ), None)
    if rank is None or not Path("/proc/self/stat").exists():
        return frozenset()
    size, here = (os.environ.get(name) for name in _RANKS[rank])
    try:
        launcher = _parent(os.getpid())
        while rank in _environment(launcher):
            launcher = _parent(launcher)
        found = {_environment(pid).get(rank): _ends(pid) for pid in _children(launcher)}
    except OSError:
        return frozenset()
    ended = {int(number) for number, ends in found.items() if number is not None and ends}
    if size is not None and size == here:
        ended |= {number for number in range(int(size)) if str(number) not in found}
    return frozenset(ended)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _environment(pid: int) -> dict[str, str]:
    """The variables with which a process started; none if it has ended or is another user's."""
    try:
        text = Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def _ends(pid: int) -> bool:
    """True if a process, or one that it started, has said that it ends."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == _ENDS or any(
            map(_ends, _children(pid))
        )
    except OSError:
        return False


def tell_that_it_ends() -> None:
    """Let the other processes on this machine know when this one ends, if it is one of several.

    Those that it starts from here on are not workers.
    """
    process = os.getpid()
    os.environ[_WORKER] = str(process)

    def tell() -> None:
        if os.getpid() == process:
            with suppress(OSError):
                Path("/proc/self/comm").write_text(_ENDS)

    atexit.register(tell)


@contextmanager
def ended_with_others() -> Iterator[None]:
    """End this process while it waits for one that has ended, in code that cannot look itself."""
    if not is_one_of_several() or not Path("/proc/self/stat").exists():
        yield
        return
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
    import subprocess  # slow, and only for programs that a launcher started

    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        yield
        process.terminate()


def _watch(waiting: int) -> None:
    """End a process as soon as another one has ended, until the end of the standard input."""
    before: frozenset[int] = frozenset()
    while not select.select([sys.stdin], [], [], _INTERVAL)[0]:
        ended = ended_processes()
        if ended & before:
            print(f"{_this()} waits for MPI to start: {ended_text(ended)}", file=sys.stderr)
            with suppress(ProcessLookupError):
                os.kill(waiting, signal.SIGTERM)
                time.sleep(GRACE)
                os.kill(waiting, signal.SIGKILL)
            return
        before = ended


def _this() -> str:
    """The name of this process."""
    return f"worker {next((os.environ[name] for name in _RANKS if name in os.environ), '')}".strip()


def ended_text(ended: frozenset[int]) -> str:
    """The text of an error about processes that have ended."""
    numbers = ", ".join(map(str, sorted(ended)))
    return f"workers {numbers} have ended" if len(ended) > 1 else f"worker {numbers} has ended"


if __name__ == "__main__":
    _watch(int(sys.argv[1]))
