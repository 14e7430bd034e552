"""Just-in-time lowering of operators whose operands are unknown before run time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from relaxpy.errors import Diagnostic, RelaxpyError, RuntimeCheckError
from relaxpy.exec.runtime.dynamic import Form, OperatorCall, Prims, leaves
from relaxpy.exec.runtime.scalar import ScalarEvaluator, checked
from relaxpy.exec.runtime.values import Category, ShapeTuple, Value, category_of
from relaxpy.ir.core.fork_lock import ForkLock
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.op.definition.registry import infer_op_call, registered_ops
from relaxpy.ir.relax.relations.context import Context
from relaxpy.ir.relax.transform.legalize import LegalizeOps, is_known
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass

Build: TypeAlias = Callable[[IRModule], Callable[..., Value]]
"""Compiles a module of kernels and a function `main`, which it returns."""

MAX_PROGRAMS: Final = 256
"""The capacity of a cache of lowered operators."""
MAX_SHAPES: Final = 4096
"""The number of combinations of shapes for which a call caches its program."""

_ndarray: Final = np.ndarray


def operator_name(call: rx.Call) -> str:
    """The name of the operator that is called."""
    assert isinstance(call.op, Op)
    return call.op.name


def is_dynamic(call: rx.Call) -> bool:
    """Return whether the call is lowered at run time: its operator has a legalisation only."""
    if not isinstance(call.op, Op):
        return False
    record = call.op.record
    return record.runtime is None and record.calls is None and record.legalize is not None


def dynamic_calls(module: IRModule) -> Iterator[tuple[str, rx.Call]]:
    """The calls that are lowered at run time, each with the name of its function."""
    for name, func in module.functions_by_name.items():
        if isinstance(func, rx.Function):
            for node in walk(func):
                if isinstance(node, rx.Call) and is_dynamic(node):
                    yield name, node


@dataclass(frozen=True, slots=True)
class Program:
    """A lowered call with the struct info of its result.

    `run` takes the open operands; the fields of tuples are separate arguments.
    """

    run: Callable[..., Value]
    result: rx.StructInfo


class DynamicPrograms:
    """An LRU cache of programs that are compiled at run time, for some executables.

    A change of an operator's record invalidates it.
    """

    def __init__(self, build: Build) -> None:
        self._build = build
        self._cache: OrderedDict[object, Program | Diagnostic] = OrderedDict()
        self._lock = ForkLock()

    def __len__(self) -> int:
        return len(self._cache)

    def find(self, template: OperatorCall, call: rx.Call, form: Form) -> Program | Diagnostic:
        """The program, or the error, for `call`: `template` with the operands of `form`."""
        key = Op.changes, template.key, tuple(form.key)
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
            try:
                result: Program | Diagnostic = self._lower(call, form)
            except RelaxpyError as error:
                result = error.diagnostic
            self._cache[key] = result
            if len(self._cache) > MAX_PROGRAMS:
                self._cache.popitem(last=False)
            return result

    def _lower(self, call: rx.Call, form: Form) -> Program:
        builder = BlockBuilder()
        with builder.function("main", form.params):
            with builder.dataflow():
                result = builder.emit_output(call)
            builder.emit_func_output(result)
        module = LegalizeOps().transform(builder.finalize(), PassContext())
        main = module["main"]
        for node in walk(main):
            if isinstance(node, rx.Call) and is_dynamic(node):
                raise RuntimeCheckError(f"{operator_name(node)} has no kernel for these operands")
        assert isinstance(main.struct_info, rx.FuncStructInfo)
        return Program(self._build(module), main.struct_info.ret)


class DynamicOperator:
    """One call of an operator, inferred and lowered at run time for its values.

    The operator's rule checks each new combination of shapes. A program is used for all values with
    the same ranks, datatypes and broadcast pattern. If these do not determine the program, it is
    specialised to dimensions and scalars.
    """

    __slots__ = ("_known", "_programs", "_scalars_matter", "_template")

    def __init__(self, template: OperatorCall, programs: DynamicPrograms) -> None:
        self._template = template
        self._programs = programs
        self._known: dict[object, Callable[..., Value]] = {}
        self._scalars_matter = False

    @property
    def name(self) -> str:
        """The name of the operator."""
        return operator_name(self.call)

    @property
    def call(self) -> rx.Call:
        """The call in the program."""
        return self._template.call

    def __call__(self, *values: Value) -> Value:
        """The result, for the values of the open operands.

        Errors:
            RuntimeCheckError: the operator does not accept them.
        """
        key = tuple([(v.dtype, v.shape) if type(v) is _ndarray else self._key(v) for v in values])
        run = self._known.get(key)
        if run is None:
            run = self._lower(values)
        return run(*values)

    def _key(self, value: Value) -> object:
        """The part of a value that the choice of a program depends on."""
        match category_of(value):
            case Category.TENSOR:
                return value.dtype, value.shape
            case Category.SHAPE:
                return ShapeTuple, value
            case Category.PRIM:
                # The text distinguishes 0.0 from -0.0, and is equal for NaNs.
                return type(value), repr(value) if self._scalars_matter else ""
            case Category.TUPLE:
                return tuple(map(self._key, value))
            case category:
                return category

    def _lower(self, values: tuple[Value, ...]) -> Callable[..., Value]:
        try:
            run = self._program(values).run
        except RelaxpyError as error:
            raise self._refusal(error.diagnostic, values) from None
        if any(type(v) is tuple for v in values):
            run = partial(_run_spread, run)
        if len(self._known) >= MAX_SHAPES:
            self._known.clear()
        self._known[tuple(map(self._key, values))] = run
        return run

    def _program(self, values: tuple[Value, ...]) -> Program:
        """The most general program whose result matches that of the operator here."""
        actual = self._inferred(values, "literal" if self._scalars_matter else "open")
        failure: Diagnostic | None = None
        for symbolic, prims in self._generality(actual):
            if prims != "open" and not self._scalars_matter:
                self._scalars_matter = True
                actual = self._inferred(values, "literal")
            form = Form(symbolic, prims)
            call = self._template.filled([form.operand(v) for v in values])
            program = self._programs.find(self._template, call, form)
            if isinstance(program, Diagnostic):
                failure = program
            elif _agrees(program.result, actual, form.bound):
                return program
        assert failure is not None
        raise RuntimeCheckError(failure)

    def _generality(self, actual: rx.StructInfo) -> Iterator[tuple[bool, Prims]]:
        """The forms to try, from general to specific."""
        yield True, "open"
        if isinstance(actual, rx.PrimStructInfo):
            yield True, "symbolic"
        yield True, "literal"
        yield False, "literal"

    def _inferred(self, values: tuple[Value, ...], prims: Prims) -> rx.StructInfo:
        form = Form(symbolic=False, prims=prims)
        call = self._template.filled([form.operand(v) for v in values])
        assert isinstance(call.op, Op)
        return infer_op_call(call.op, call, Context())

    def _refusal(self, diagnostic: Diagnostic, values: tuple[Value, ...]) -> RuntimeCheckError:
        form = Form(symbolic=False, prims="literal")
        notes: list[str] = []
        try:
            args = self._template.filled([form.operand(v) for v in values]).args
        except RuntimeCheckError:
            args = ()
        record = registered_ops().get(self.name)
        names = [p.name for p in record.parameters if p.is_operand] if record is not None else []
        for i, arg in enumerate(args):
            operand = names[i] if len(names) == len(args) else f"operand {i + 1}"
            notes.append(f"{operand} is {Context().sinfo_of(arg)}")
        prefix = "" if diagnostic.message.startswith(self.name) else f"{self.name}: "
        return RuntimeCheckError(
            prefix + diagnostic.message,
            rule=diagnostic.rule,
            span=self._template.call.span,
            hint=diagnostic.hint,
            notes=notes,
        )


def _run_spread(run: Callable[..., Value], *values: Value) -> Value:
    return run(*leaves(values))


def _agrees(general: rx.StructInfo, actual: rx.StructInfo, bound: Mapping[tir.Var, Value]) -> bool:
    """Return whether a general result has the actual datatype and shape under the bindings."""
    if not is_known(actual):
        return True
    match general, actual:
        case rx.TupleStructInfo(fields=left), rx.TupleStructInfo(fields=right):
            return len(left) == len(right) and all(
                _agrees(a, b, bound) for a, b in zip(left, right, strict=True)
            )
        case rx.TensorStructInfo(), rx.TensorStructInfo():
            return general.dtype == actual.dtype and _sizes(general, bound) == _sizes(actual, {})
        case _:
            return type(general) is type(actual)


def _sizes(sinfo: rx.TensorStructInfo, bound: Mapping[tir.Var, Value]) -> list[Value] | None:
    if not isinstance(sinfo.shape, rx.ShapeExpr):
        return None
    evaluator = ScalarEvaluator(dict(bound), checked)
    return [evaluator.value(size) for size in sinfo.shape.values]
