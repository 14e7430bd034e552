"""Operators that a test registers are forgotten after it."""

from collections.abc import Iterator
from contextlib import contextmanager

from relaxpy.ir.op import UNREGISTERED
from relaxpy.ir.ops.definition import registry
from relaxpy.ir.ops.definition.registry import registered_ops


@contextmanager
def forgotten_operators() -> Iterator[None]:
    before = set(registered_ops())
    try:
        yield
    finally:
        for name in set(registered_ops()) - before:
            registry._table.pop(name).op.enter(UNREGISTERED)
