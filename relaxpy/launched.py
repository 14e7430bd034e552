"""Processes that a launcher of MPI started together: an error that ends one ends all."""

import os
import signal
import sys
import time
from collections.abc import Callable
from types import TracebackType

_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS")
"""Where launchers of MPI, and that of Slurm, say how many processes they started."""
GRACE = 1.0
"""The seconds that processes have for their last words before all are stopped."""


def is_one_of_several() -> bool:
    """Whether a launcher started other processes together with this one."""
    return any(os.environ.get(name, "1") != "1" for name in _SIZES)


class EndOfAll:
    """What an uncaught error does: it is printed, the other processes are told, and all end.

    A session in which a user types programs goes on, and so does a process that is alone.
    """

    def __init__(self, before: Callable[..., object]) -> None:
        self.tellers: list[Callable[[BaseException], object]] = []
        """What tells other processes about the error."""
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
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.raise_signal(signal.SIGTERM)
        elif not mpi.Is_finalized() and mpi.COMM_WORLD.size > 1:
            for tell in self.tellers:
                tell(error)
            time.sleep(GRACE)
            mpi.COMM_WORLD.Abort(1)


def end_all() -> EndOfAll:
    """Let an uncaught error of this process end all that were started with it."""
    hook = sys.excepthook
    if not isinstance(hook, EndOfAll):
        sys.excepthook = hook = EndOfAll(hook)
    return hook
