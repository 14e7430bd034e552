"""Operators whose operands are not known beforehand: lowered for the values that arrive."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Final, TypeAlias

import numpy as np

from relaxpy.errors import Diagnostic, RelaxpyError, RuntimeCheckError
from relaxpy.exec.runtime.operands import Form, OperatorCall, Prims, leaves
from relaxpy.exec.runtime.scalar import ScalarEvaluator, checked
from relaxpy.exec.runtime.values import Category, ShapeTuple, Value, category_of
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.op.registry import infer_op_call, registered_ops
from relaxpy.ir.relax.relations.context import Context
from relaxpy.ir.relax.transform.legalize import LegalizeOps, is_known
from relaxpy.ir.tir import expr as tir

Build: TypeAlias = Callable[[IRModule], Callable[..., Value]]
"""From a module of kernels and one function `main` to that function, for some target."""

MAX_PROGRAMS: Final = 256
"""How many lowered operators an executable keeps."""
MAX_SHAPES: Final = 4096
"""For how many combinations of shapes a call remembers which program runs."""

_ndarray: Final = np.ndarray


def operator_name(call: rx.Call) -> str:
    """The name of the operator that is called."""
    assert isinstance(call.op, Op)
    return call.op.name


def is_dynamic(call: rx.Call) -> bool:
    """Whether the call is left to be lowered at run time: its operator has a legalisation."""
    if not isinstance(call.op, Op):
        return False
    record = call.op.record
    return record.runtime is None and record.calls is None and record.legalize is not None


def dynamic_calls(module: IRModule) -> Iterator[tuple[str, rx.Call]]:
    """The calls that are lowered at run time, each with the name of the function it stands in."""
    for name, func in module.functions_by_name.items():
        if isinstance(func, rx.Function):
            for node in walk(func):
                if isinstance(node, rx.Call) and is_dynamic(node):
                    yield name, node


@dataclass(frozen=True, slots=True)
class Program:
    """A lowered call: takes the open operands, tuples spread out; `result` is what it gives."""

    run: Callable[..., Value]
    result: rx.StructInfo


class DynamicPrograms:
    """The programs made at run time for one executable, least recently wanted ones forgotten."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._made: OrderedDict[object, Program | Diagnostic] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._made)

    def find(self, site: OperatorCall, call: rx.Call, form: Form) -> Program | Diagnostic:
        """What runs `call`, which is `site` with the operands of `form`, or why nothing does."""
        key = site.key, tuple(form.key)
        with self._lock:
            found = self._made.get(key)
            if found is not None:
                self._made.move_to_end(key)
                return found
            try:
                made: Program | Diagnostic = self._lower(call, form)
            except RelaxpyError as error:
                made = error.diagnostic
            self._made[key] = made
            if len(self._made) > MAX_PROGRAMS:
                self._made.popitem(last=False)
            return made

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
    """One call of an operator, inferred and lowered for the values that arrive.

    Shapes are checked by the operator's rule when they arrive for the first time. The program that
    runs then serves all values of these ranks, datatypes and broadcast pattern; where the operator
    is undecided so, it is made for these very sizes and scalars.
    """

    __slots__ = ("_by_value", "_known", "_programs", "_site")

    def __init__(self, site: OperatorCall, programs: DynamicPrograms) -> None:
        self._site = site
        self._programs = programs
        self._known: dict[object, Callable[..., Value]] = {}
        self._by_value = False

    @property
    def name(self) -> str:
        """The name of the operator."""
        return operator_name(self._site.call)

    def __call__(self, *values: Value) -> Value:
        """The result, for the values of the open operands.

        Errors:
            RuntimeCheckError: the operator does not take them.
        """
        key = tuple([(v.dtype, v.shape) if type(v) is _ndarray else self._key(v) for v in values])
        run = self._known.get(key)
        if run is None:
            run = self._lower(values)
        return run(*values)

    def _key(self, value: Value) -> object:
        """What the choice of a program depends on."""
        match category_of(value):
            case Category.TENSOR:
                return value.dtype, value.shape
            case Category.SHAPE:
                return ShapeTuple, value
            case Category.PRIM:
                # The text tells apart 0.0 and -0.0, and is equal for NaNs.
                return type(value), repr(value) if self._by_value else ""
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
        """The most general program that is decided, and gives what the operator gives here."""
        found = self._inferred(values, "literal" if self._by_value else "open")
        failure: Diagnostic | None = None
        for symbolic, prims in self._generality(found):
            if prims != "open" and not self._by_value:
                self._by_value = True
                found = self._inferred(values, "literal")
            form = Form(symbolic, prims)
            call = self._site.filled([form.operand(v) for v in values])
            program = self._programs.find(self._site, call, form)
            if isinstance(program, Diagnostic):
                failure = program
            elif _agrees(program.result, found, form.bound):
                return program
        assert failure is not None
        raise RuntimeCheckError(failure)

    def _generality(self, found: rx.StructInfo) -> Iterator[tuple[bool, Prims]]:
        """Which forms to try, from general to special."""
        yield True, "open"
        if isinstance(found, rx.PrimStructInfo):
            yield True, "symbolic"
        yield True, "literal"
        yield False, "literal"

    def _inferred(self, values: tuple[Value, ...], prims: Prims) -> rx.StructInfo:
        form = Form(symbolic=False, prims=prims)
        call = self._site.filled([form.operand(v) for v in values])
        assert isinstance(call.op, Op)
        return infer_op_call(call.op, call, Context())

    def _refusal(self, found: Diagnostic, values: tuple[Value, ...]) -> RuntimeCheckError:
        form = Form(symbolic=False, prims="literal")
        notes: list[str] = []
        try:
            args = self._site.filled([form.operand(v) for v in values]).args
        except RuntimeCheckError:
            args = ()
        record = registered_ops().get(self.name)
        names = [p.name for p in record.parameters if p.is_operand] if record is not None else []
        for i, arg in enumerate(args):
            operand = names[i] if len(names) == len(args) else f"operand {i + 1}"
            notes.append(f"{operand} is {Context().info_of(arg)}")
        about = "" if found.message.startswith(self.name) else f"{self.name}: "
        return RuntimeCheckError(
            about + found.message,
            rule=found.rule,
            span=self._site.call.span,
            hint=found.hint,
            notes=notes,
        )


def _run_spread(run: Callable[..., Value], *values: Value) -> Value:
    return run(*leaves(values))


def _agrees(general: rx.StructInfo, found: rx.StructInfo, bound: Mapping[tir.Var, Value]) -> bool:
    """Whether a general result has, at these sizes, the datatype and shape found for them."""
    if not is_known(found):
        return True
    match general, found:
        case rx.TupleStructInfo(fields=some), rx.TupleStructInfo(fields=others):
            return len(some) == len(others) and all(
                _agrees(a, b, bound) for a, b in zip(some, others, strict=True)
            )
        case rx.TensorStructInfo(), rx.TensorStructInfo():
            return general.dtype == found.dtype and _sizes(general, bound) == _sizes(found, {})
        case _:
            return type(general) is type(found)


def _sizes(info: rx.TensorStructInfo, bound: Mapping[tir.Var, Value]) -> list[Value] | None:
    if not isinstance(info.shape, rx.ShapeExpr):
        return None
    evaluator = ScalarEvaluator(dict(bound), checked)
    return [evaluator.value(size) for size in info.shape.values]
