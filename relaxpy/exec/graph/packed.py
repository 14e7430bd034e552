"""Reads calls of packed functions, those with programs, as steps of a native function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from relaxpy.exec.fast_paths import PACKED_CALLS
from relaxpy.exec.graph.parameters import Parameters
from relaxpy.exec.graph.program import PackedStep, Passed, Tensor, Value
from relaxpy.exec.graph.records import SESSION
from relaxpy.exec.graph.sessions import PackedCall, Session
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.exec.runtime.registry import with_programs
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.python_function import python_function_of
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.ops import const

_WORDS: Final = rx.TensorStructInfo(rx.ShapeExpr((const(len(SESSION), "int64"),)), INT64)
"""The words of a session."""


class Sessions:
    """The sessions of a function: the calls of each packed function on each object."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._words: dict[tuple[int, str], Tensor] = {}
        self._calls: dict[tuple[int, str], list[PackedCall]] = {}

    def found(self) -> list[Session]:
        """The sessions, in the order of their parameters."""
        return [
            Session(self._parameters.position(number), symbol, tuple(calls))
            for (number, symbol), calls in self._calls.items()
        ]

    def step(
        self,
        func: rx.ExternFunc,
        item: Value,
        numbers: Sequence[rx.PrimValue],
        inputs: Sequence[Value],
        outputs: Sequence[Tensor],
    ) -> PackedStep:
        """The step of a call.

        Errors:
            RefusedError: the function has no programs, or does not take such arguments.
        """
        symbol = func.global_symbol
        is_known = python_function_of(func) is None and with_programs(symbol) is not None
        if not PACKED_CALLS or not is_known:
            raise RefusedError(f"it calls {symbol}")
        if not isinstance(item, Passed):
            raise RefusedError("the object of a packed function is not a parameter")
        given = [tensor for tensor in inputs if isinstance(tensor, Tensor)]
        if len(given) < len(inputs):
            raise RefusedError("a packed function takes an argument that is not a tensor")
        tensors = [*given, *outputs]
        call = PackedCall(tuple(map(_number, numbers)), tuple(map(_after_rows, tensors)))
        if any(prove_equal(t.shape[0], tensors[0].shape[0]) is not True for t in tensors):
            raise RefusedError("tensors of a packed function have different numbers of rows")
        key = item.index, symbol
        if key not in self._words:
            words = self._parameters.add(_WORDS)
            assert isinstance(words, Tensor)
            self._words[key] = words
        calls = self._calls.setdefault(key, [])
        calls.append(call)
        return PackedStep(self._words[key], len(calls) - 1, given, outputs)


def _number(number: rx.PrimValue) -> int | float:
    match number.value:
        case tir.IntImm(value=value):
            return value
        case tir.FloatImm(value=value, dtype=dtype):
            return float(dtype.numpy().type(value))
        case _:
            raise RefusedError("a number of a packed function is not known")


def _after_rows(tensor: Tensor) -> tuple[str, tuple[int, ...]]:
    """The datatype, and the shape without the number of rows."""
    sizes = [size.value for size in tensor.shape[1:] if isinstance(size, tir.IntImm)]
    if not tensor.shape or len(sizes) < len(tensor.shape) - 1:
        raise RefusedError("a size of a tensor of a packed function is not known")
    return str(tensor.sinfo.dtype), tuple(sizes)
