"""Implementations of operators on run-time values, including those registered by users."""

from __future__ import annotations

from collections.abc import Callable

from relaxpy.errors import RuntimeCheckError, Span
from relaxpy.exec.runtime.values import Value, from_packed
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import is_of_relaxpy
from relaxpy.ir.relax import nodes as rx
from relaxpy.support.dataclass import dataclass

_VALUES = (rx.TensorStructInfo, rx.ShapeStructInfo, rx.PrimStructInfo)


@dataclass(frozen=True, slots=True)
class UsersImplementation:
    """An implementation that a user registered; its result is converted to a value."""

    operator: str
    function: Callable[..., object]
    result: rx.StructInfo
    span: Span | None

    def __call__(self, *args: Value, **attrs: object) -> Value:
        """The result, as a value.

        Errors:
            RuntimeCheckError: it is None instead of a tensor, a shape or a scalar.
        """
        found = self.function(*args, **attrs)
        if found is None and isinstance(self.result, _VALUES):
            raise RuntimeCheckError(
                f"the implementation of {self.operator} returned None, expected {self.result}",
                span=self.span,
            )
        return from_packed(found, (self.result,))


def implementation(call: rx.Call) -> Callable[..., Value]:
    """The implementation of the operator of a call, which has one."""
    assert isinstance(call.op, Op)
    function = call.op.record.runtime
    assert function is not None
    if is_of_relaxpy(function):
        return function
    sinfo = call.struct_info or rx.ObjectStructInfo()
    return UsersImplementation(call.op.name, function, sinfo, call.span)
