"""Calls of packed functions that have plans (`sessions.py`) as steps of a native function."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import isfinite
from typing import Final

from relaxpy.exec.machine.fast_paths import PACKED_CALLS
from relaxpy.exec.native.calls.interpreter import (
    DATA,
    FIELDS,
    LENGTH,
    TYPE,
    call_python,
    data_of,
    declare_python,
    field_of,
    python,
)
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import BOOL, I8, I32, I64, POINTER, VOID, Function, Value
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.exec.program.graph.parameters import Parameters
from relaxpy.exec.program.graph.program import PackedStep, Passed, Tensor, Value as Given
from relaxpy.exec.program.graph.sessions import (
    ARGUMENTS,
    ROWS,
    STEPS,
    TENSORS,
    VALID,
    Forms,
    Numbers,
    Session,
)
from relaxpy.exec.runtime.registry import is_planned
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.python_function import python_function_of
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.ops import const

RUN: Final = "relaxpy_run_packed"
"""The function of a module that runs a call of a session."""


class Sessions:
    """The sessions of a function: the calls of each packed function on each object."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._found: dict[tuple[int, str, Forms], tuple[Tensor, list[Numbers]]] = {}

    def found(self) -> list[Session]:
        """The sessions, in the order of their parameters."""
        return [
            Session(self._parameters.position(number), symbol, forms, tuple(calls))
            for (number, symbol, forms), (_, calls) in self._found.items()
        ]

    def step(
        self,
        func: rx.ExternFunc,
        item: Given,
        numbers: Sequence[rx.PrimValue],
        inputs: Sequence[Given],
        outputs: Sequence[Tensor],
    ) -> PackedStep:
        """The step of a call.

        Errors:
            RefusedError: the function has no plans, or does not take such arguments.
        """
        symbol = func.global_symbol
        is_known = python_function_of(func) is None and is_planned(symbol)
        if not PACKED_CALLS or not is_known:
            raise RefusedError(f"it calls {symbol}")
        if not isinstance(item, Passed):
            raise RefusedError("the object of a packed function is not a parameter")
        given = [tensor for tensor in inputs if isinstance(tensor, Tensor)]
        if len(given) < len(inputs):
            raise RefusedError("a packed function takes an argument that is not a tensor")
        tensors = [*given, *outputs]
        forms = tuple(map(_after_rows, tensors))
        if any(prove_equal(t.shape[0], tensors[0].shape[0]) is not True for t in tensors):
            raise RefusedError("tensors of a packed function have different numbers of rows")
        key = item.index, symbol, forms
        if key not in self._found:
            count = const(TENSORS + len(tensors), "int64")
            words = self._parameters.add(rx.TensorStructInfo(rx.ShapeExpr((count,)), INT64))
            assert isinstance(words, Tensor)
            self._found[key] = words, []
        session, calls = self._found[key]
        calls.append(tuple(map(_number, numbers)))
        return PackedStep(symbol, session, len(calls) - 1, given, outputs)


def _number(number: rx.PrimValue) -> int | float:
    match number.value:
        case tir.IntImm(value=value, dtype=dtype) if dtype != "bool":
            return value
        case tir.FloatImm(value=v, dtype=d) if isfinite(found := float(d.numpy().type(v))):
            return found
        case _:
            raise RefusedError("a number of a packed function is not known")


def _after_rows(tensor: Tensor) -> tuple[str, tuple[int, ...]]:
    """The datatype, and the shape without the number of rows."""
    sizes = [size.value for size in tensor.shape[1:] if isinstance(size, tir.IntImm)]
    if not tensor.shape or len(sizes) < len(tensor.shape) - 1:
        raise RefusedError("a size of a tensor of a packed function is not known")
    return str(tensor.sinfo.dtype), tuple(sizes)


def emit_run(module: Module) -> None:
    """Write the function that runs a call of a session, unless the module has it.

    It takes the words of the session, the number of the call, the number of rows, the addresses and
    the bytes of its tensors, and the numbers of inputs and of all. It returns 0 unless the plan is
    outdated or for other tensors, or Python raised an exception. Other threads of Python may run
    before and while it does, but not between the check of the plan and the first function.
    """
    if RUN in module.functions:
        return
    declare_python(module)
    module.declare("llvm.memcpy.p0.p0.i64", VOID, ["ptr", "ptr", "i64", "i1 immarg"])
    params = [(POINTER, "session"), (I64, "number"), (I64, "rows"), (POINTER, "tensors")]
    params += [(POINTER, "sizes"), (I64, "inputs"), (I64, "count")]
    f = module.function(RUN, params, I32, optimised=False)
    session, number, rows, tensors, sizes, inputs, count = f.params
    state = call_python(f, "PyGILState_Ensure", I32)
    valid = f.load(I64, data_of(f, _word(f, session, VALID)))
    is_valid = f.compare("ne", valid, 0)
    has_rows = f.compare("eq", rows, f.load(I64, f.element(session, ROWS, I64)))

    def copy(n: Value, *, is_input: bool) -> None:
        given = _word(f, tensors, n)
        own = data_of(f, _word(f, session, n + TENSORS))
        ends = (own, given) if is_input else (given, own)
        operands = *ends, f.load(I64, f.element(sizes, n, I64)), f.const(BOOL, 0)
        f.put(f"call void @llvm.memcpy.p0.p0.i64({', '.join(map(str, operands))})")

    def run() -> list[Value]:
        f.loop(0, inputs, 1, [], partial(copy, is_input=True))
        status = _run_steps(f, _word(f, session, STEPS), number)
        write = lambda: f.loop(inputs, count, 1, [], partial(copy, is_input=False))  # noqa: E731
        f.branch(f.compare("eq", status, 0), write)
        return [status]

    fits = f.arithmetic("and", is_valid, has_rows)
    [status] = f.branch(fits, run, lambda: [f.const(I32, 1)])
    call_python(f, "PyGILState_Release", VOID, state)
    f.ret(status)


def _run_steps(f: Function, steps: Value, number: Value) -> Value:
    """The status after the steps of a call."""
    length = field_of(f, steps, LENGTH, I64)
    null, taken = Value(f, POINTER, "null"), f.alloca(POINTER, ARGUMENTS)

    def of_call(item: Value) -> Value:
        """The object itself, or that of this call in a list, or a part that is moved for it."""
        kind = field_of(f, item, TYPE, POINTER)

        def member() -> list[Value]:
            return [call_python(f, "PyList_GetItem", POINTER, item, number)]

        def moved() -> list[Value]:
            first, own, offsets = (_field(f, item, f.index(k)) for k in range(3))
            offset = f.load(I64, f.element(data_of(f, offsets), number, I64))
            f.store(f.element(data_of(f, first), offset, I8), f.element(own, DATA, I8), 8)
            return [own]

        def other() -> list[Value]:
            is_part = f.compare("eq", kind, python(f, "part"))
            return f.branch(is_part, moved, lambda: [item])

        return f.branch(f.compare("eq", kind, python(f, "list")), member, other)[0]

    def goes_on(n: Value, status: Value) -> Value:
        return f.arithmetic("and", f.compare("slt", n, length), f.compare("eq", status, 0))

    def step(n: Value, _: Value) -> list[Value]:
        function, arguments = (_field(f, _field(f, steps, n), f.index(k)) for k in range(2))
        count = field_of(f, arguments, LENGTH, I64)
        run = partial(call, of_call(function), arguments, count)
        return [
            n + 1,
            *f.branch(f.compare("ule", count, ARGUMENTS), run, lambda: [f.const(I32, 1)]),
        ]

    def call(function: Value, arguments: Value, count: Value) -> list[Value]:
        def take(n: Value) -> None:
            f.store(of_call(_field(f, arguments, n)), f.element(taken, n, POINTER), 8)

        f.loop(0, count, 1, [], take)
        result = call_python(f, "PyObject_Vectorcall", POINTER, function, taken, count, null)
        has_failed = f.compare("eq", result, null)
        f.branch(f.compare("ne", result, null), partial(_release, f, result))
        return [f.cast("zext", has_failed, "i32")]

    _, status = f.while_loop([f.const(I64, 0), f.const(I32, 0)], goes_on, step)
    return status


def _release(f: Function, item: Value) -> None:
    call_python(f, "Py_DecRef", VOID, item)


def _field(f: Function, item: Value, number: Value) -> Value:
    """A field of a tuple."""
    return _word(f, f.element(item, FIELDS, I8), number)


def _word(f: Function, words: Value, number: Value | int) -> Value:
    """A word that is an address."""
    return f.load(POINTER, f.element(words, number, POINTER), 8)
