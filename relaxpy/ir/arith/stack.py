"""Room on the stack: what is asked anywhere, at any depth, and in any thread has one answer."""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable, Container, Iterator
from typing import TypeVar

from relaxpy.entry import nested_too_deeply
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children
from relaxpy.ir.tir.expr import PrimExpr

T = TypeVar("T")

BAND = 16
"""Expressions nested deeper than this are gone through from below, so many levels at a time."""
_FRAMES = 1000
"""What Python allows by default, and the work on one band needs no more than."""


class _Working(threading.local):
    """In which band of heights this thread is at work on a question; None if it is on none."""

    band: int | None = None


WORKING = _Working()
_changing_limit = threading.Lock()


def with_room(work: Callable[[], T]) -> T:
    """What `work` gives, in a thread of its own where the caller's stack is too small for it."""
    if WORKING.band is not None:
        return work()
    WORKING.band = 0
    try:
        return work()
    except RecursionError:
        pass  # only here, outside of everything, is there room to begin anew
    finally:
        WORKING.band = None
    return _in_thread(work)


def _in_thread(work: Callable[[], T]) -> T:
    found: list[T] = []
    errors: list[BaseException] = []
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        WORKING.band = 0
        try:
            found.append(_with_frames(work))
        except RecursionError:
            errors.append(nested_too_deeply())
        except BaseException as error:  # it goes on in the thread that asked
            errors.append(error)
        finally:
            done.release()

    _thread.start_new_thread(run, ())  # threading.Thread asks for frames that may not be there
    done.acquire()
    if errors:
        raise errors[0]
    return found[0]


def _with_frames(work: Callable[[], T]) -> T:
    """What `work` gives where Python allows at least its default number of frames."""
    limit = sys.getrecursionlimit()
    if limit >= _FRAMES:
        return work()
    with _changing_limit:
        sys.setrecursionlimit(_FRAMES)
        try:
            return work()
        finally:
            sys.setrecursionlimit(limit)


def from_below(expr: PrimExpr, known: Container[PrimExpr]) -> Iterator[PrimExpr]:
    """The parts of `expr` where a path down comes to another band, lowest first.

    What is `known` is not entered. Who goes through them in this order, and remembers what it
    finds, never has to go deeper than one band.
    """
    seen: set[PrimExpr] = {expr}
    finished: set[PrimExpr] = set()
    marked: set[PrimExpr] = set()
    stack = [(expr, iter(_parts(expr)))]
    while stack:
        node, below = stack[-1]
        for part in below:
            if not part.height or part in known:
                continue
            if part.height // BAND < node.height // BAND and part not in marked:
                marked.add(part)
                if part in finished:
                    yield part
            if part not in seen:
                seen.add(part)
                stack.append((part, iter(_parts(part))))
                break
        else:
            stack.pop()
            finished.add(node)
            if node in marked:
                yield node


def _parts(expr: PrimExpr) -> list[PrimExpr]:
    return [part for part in children(expr) if isinstance(part, PrimExpr)] if expr.height else []


def is_nested(node: Node) -> bool:
    """Whether a node is nested deeper than one band."""
    return isinstance(node, PrimExpr) and node.height >= BAND
