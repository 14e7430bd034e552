"""Emits items of a loop nest in the order of the text, one element at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from relaxpy.exec.kernel.nest.nodes import (
    Alloc,
    Bind,
    Branch,
    Check,
    Invoke,
    Item,
    Jump,
    Loop,
    Return,
    Store,
    WhileLoop,
)
from relaxpy.exec.native.frame import RefusedError
from relaxpy.exec.native.llvm import Value
from relaxpy.ir.tir.expr import PrimExpr

if TYPE_CHECKING:
    from relaxpy.exec.native.loops import Loops


class Items:
    """Emits items with `loops` and their values."""

    def __init__(self, loops: Loops) -> None:
        self.loops, self.frame, self.function = loops, loops.frame, loops.function

    def items(self, items: Sequence[Item]) -> None:
        """Emit items one after the other.

        Errors:
            RefusedError: one of them has no native form.
        """
        for item in items:
            self._item(item)

    def _item(self, item: Item) -> None:
        match item:
            case Loop(axis=axis, body=body):
                self.loops.loop(axis, lambda: self.items(body))
            case Branch(condition=condition, body=body, orelse=orelse):
                test = self.frame.value(condition)
                self.function.branch(
                    test, lambda: self._skippable(body), lambda: self._skippable(orelse)
                )
                self.frame.forget()
            case WhileLoop(condition=condition, body=body):
                self._while(condition, body)
            case Store():
                self.store(item)
            case Bind(var=var, value=value):
                bound = self.frame.value(value)
                self.frame.pin([bound])
                self.frame.bind(var, bound)
            case Check():
                raise RefusedError("an assertion")
            case Return():
                raise RefusedError("a result that is returned")
            case Invoke():
                raise RefusedError("a call of a function")
            case Alloc(buffer=buffer):
                raise RefusedError(f"the shape of {buffer.name} is known only while it runs")
            case Jump(kind=kind):
                raise RefusedError(f"a {kind} statement")
            case _:
                assert_never(item)

    def _skippable(self, items: Sequence[Item]) -> None:
        with self.frame.conditionally():
            self.items(items)

    def _while(self, condition: PrimExpr, body: Sequence[Item]) -> None:
        frame = self.frame

        def holds() -> Value:
            with frame.level():
                return frame.value(condition)

        def inside() -> Sequence[Value]:
            with frame.level():
                self.items(body)
            return ()

        self.function.while_loop((), holds, inside)
        frame.forget()

    def store(self, store: Store) -> None:
        """One store; nothing if an index is outside."""
        frame, dtype = self.frame, store.buffer.dtype
        value = frame.narrowed(frame.value(store.value), dtype)
        inside = frame.unproved(store.buffer, store.indices)
        if inside is None:
            frame.store(store.buffer, store.indices, value)
            return

        def perform() -> None:
            with frame.conditionally():
                frame.store(store.buffer, store.indices, value)

        self.function.branch(inside, perform)
