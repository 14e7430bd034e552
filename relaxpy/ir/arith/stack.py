"""Stack space: a query has the same result at any depth of the stack and in any thread."""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable, Container, Iterator
from typing import TypeVar

from relaxpy.ir.core.fork_lock import ForkLock
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.entry import nested_too_deeply

T = TypeVar("T")

BAND = 16
"""Expressions nested deeper than this are visited innermost first, this many levels at a time."""
_FRAMES = 1000
"""The limit of frames that Python has by default, which the work on one band stays below."""


class _Working(threading.local):
    """The band of heights in which this thread works on a query; None outside of queries."""

    band: int | None = None


WORKING = _Working()
_changing_limit = ForkLock()


def with_stack_space(work: Callable[[], T]) -> T:
    """Call `work`, in a new thread where the caller's stack is too small."""
    if WORKING.band is not None:
        return work()
    WORKING.band = 0
    try:
        return work()
    except RecursionError:
        pass  # at the outermost query, so that the work can start again in a thread
    finally:
        WORKING.band = None
    return _in_thread(work)


def _in_thread(work: Callable[[], T]) -> T:
    result: list[T] = []
    errors: list[BaseException] = []
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        WORKING.band = 0
        try:
            result.append(_with_frames(work))
        except RecursionError:
            errors.append(nested_too_deeply())
        except BaseException as error:  # raised again in the calling thread
            errors.append(error)
        finally:
            done.release()

    try:
        _thread.start_new_thread(run, ())  # threading.Thread needs frames that may not be left
    except RuntimeError:  # the system starts no threads, or no more
        raise nested_too_deeply() from None
    done.acquire()
    if errors:
        raise errors[0]
    return result[0]


def _with_frames(work: Callable[[], T]) -> T:
    """Call `work` where Python allows at least its default number of frames."""
    limit = sys.getrecursionlimit()
    if limit >= _FRAMES:
        return work()
    with _changing_limit:
        sys.setrecursionlimit(_FRAMES)
        try:
            return work()
        finally:
            sys.setrecursionlimit(limit)


def from_below(expr: PrimExpr, done: Container[PrimExpr]) -> Iterator[PrimExpr]:
    """The subexpressions of `expr` at which a path down enters another band, lowest first.

    Subexpressions in `done` are not entered. A caller that visits them in this order and stores
    its results never recurses deeper than one band.
    """
    visited: set[PrimExpr] = {expr}
    finished: set[PrimExpr] = set()
    marked: set[PrimExpr] = set()
    stack = [(expr, iter(_operands(expr)))]
    while stack:
        node, operands = stack[-1]
        for operand in operands:
            if not operand.height or operand in done:
                continue
            if operand.height // BAND < node.height // BAND and operand not in marked:
                marked.add(operand)
                if operand in finished:
                    yield operand
            if operand not in visited:
                visited.add(operand)
                stack.append((operand, iter(_operands(operand))))
                break
        else:
            stack.pop()
            finished.add(node)
            if node in marked:
                yield node


def _operands(expr: PrimExpr) -> list[PrimExpr]:
    return [c for c in children(expr) if isinstance(c, PrimExpr)] if expr.height else []


def is_nested(node: Node) -> bool:
    """True if a node is nested deeper than one band."""
    return isinstance(node, PrimExpr) and node.height >= BAND
