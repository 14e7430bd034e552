"""Just-in-time lowering of operators whose operands are unknown before run time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache, partial
from typing import Final, Literal, TypeAlias

import numpy as np

from relaxpy.errors import Diagnostic, RelaxpyError, RuntimeCheckError
from relaxpy.exec.machine.tuning import Kept
from relaxpy.exec.runtime.scalar import ScalarEvaluator, checked
from relaxpy.exec.runtime.values import (
    Category,
    ShapeTuple,
    Value,
    category_of,
    describe,
    on_views,
    prim_dtype,
)
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.fork_lock import ForkLock
from relaxpy.ir.core.traverse import leaves, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition.registry import infer_op_call, registered_ops
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.passes.legalize import LegalizeOps, is_known
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.known import without_tuples
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.support.dataclass import dataclass

Prims: TypeAlias = Literal["open", "symbolic", "literal"]


class OperatorCall:
    """The call of an operator, and its open operands, which are not literals."""

    __slots__ = ("call", "open_operands")

    def __init__(self, call: rx.Call) -> None:
        self.call = call
        self.open_operands = tuple(a for a in without_tuples(call.args) if not _is_literal(a))

    @property
    def key(self) -> object:
        """A key that is equal for calls that differ only in their open operands."""
        call = self.call
        return call.op, call.attrs, call.sinfo_args, tuple(map(_literal_key, call.args))

    @property
    def has_arrays(self) -> bool:
        """True if the key keeps constants alive that are more than scalars."""
        return any(
            isinstance(a, rx.Constant) and a.data.ndim for a in without_tuples(self.call.args)
        )

    def filled(self, operands: Iterable[rx.Expr]) -> rx.Call:
        """The call with the open operands replaced in order, without derived struct info.

        It has no span, as calls at several positions share its program.
        """
        rest = iter(operands)
        call = self.call
        args = tuple(_filled(arg, rest) for arg in call.args)
        return rx.Call(call.op, args, call.attrs, call.sinfo_args)


def _is_literal(expr: rx.Expr) -> bool:
    match expr:
        case rx.Constant() | rx.StringImm() | rx.DataTypeImm():
            return True
        case rx.PrimValue(value=value):
            return isinstance(value, tir.ConstExpr)
        case rx.ShapeExpr(values=values):
            return all(isinstance(v, tir.IntImm) for v in values)
        case _:
            return False


def _filled(arg: rx.Expr, rest: Iterator[rx.Expr]) -> rx.Expr:
    if isinstance(arg, rx.Tuple):
        return rx.Tuple(tuple(_filled(f, rest) for f in arg.fields))
    return arg if _is_literal(arg) else next(rest)


def _literal_key(arg: rx.Expr) -> object:
    match arg:
        case rx.Tuple(fields=fields):
            return tuple(map(_literal_key, fields))
        case rx.Constant(data=data) if not data.ndim:
            return data.dtype.name, data.tobytes()
        case rx.PrimValue() | rx.ShapeExpr() if _is_literal(arg):
            return arg.struct_info
        case rx.StringImm(value=text):
            return text
        case rx.DataTypeImm(value=dtype):
            return rx.DataTypeImm, dtype
        case _ if _is_literal(arg):
            return arg
        case _:
            return None


@cache
def _size(index: int) -> tir.Var:
    return tir.Var(f"size{index}", INT64)


@cache
def _scalar(index: int, dtype: DataType) -> tir.Var:
    return tir.Var(f"scalar{index}", dtype)


@dataclass(slots=True)
class Form:
    """Values as operands, and the parameters of a function that takes them.

    Dimensions are literals. If `symbolic`, equal dimensions become one variable, except for 0 and
    1, which broadcasting depends on. Scalars are left open, become variables, or are literals. One
    function serves all values with the same `key`.
    """

    symbolic: bool
    prims: Prims
    params: list[rx.Var] = field(default_factory=list)
    key: list[object] = field(default_factory=list)
    bound: dict[tir.Var, Value] = field(default_factory=dict)
    _sizes: dict[int, tir.Var] = field(default_factory=dict)

    def operand(self, value: Value) -> rx.Expr:
        """The operand for `value` in a call.

        Errors:
            RuntimeCheckError: it is a tensor with swapped bytes.
        """
        match category_of(value):
            case Category.TENSOR:
                if not value.dtype.isnative:
                    raise RuntimeCheckError(f"no operator takes {describe(value)}", rule="MC-3")
                shape, dtype = self._members(value.shape), DataType(value.dtype.name)
                return self._param(rx.TensorStructInfo(rx.ShapeExpr(shape), dtype), dtype, shape)
            case Category.SHAPE:
                shape = self._members(value)
                self._param(rx.ShapeStructInfo(shape), "shape", shape)
                return rx.ShapeExpr(shape)
            case Category.PRIM:
                return self._prim(value)
            case Category.TUPLE:
                self.key.append(len(value))
                return rx.Tuple(tuple(map(self.operand, value)))
            case category:
                return self._param(rx.ObjectStructInfo(), category)

    def _param(self, sinfo: rx.StructInfo, *key: object) -> rx.Var:
        self.key.append(key)
        self.params.append(rx.Var(f"x{len(self.params)}", sinfo))
        return self.params[-1]

    def _members(self, sizes: Sequence[int]) -> tuple[tir.PrimExpr, ...]:
        return tuple(map(self._member, sizes))

    def _member(self, size: int) -> tir.PrimExpr:
        if not self.symbolic or size in (0, 1):
            return tir.IntImm(INT64, size)
        var = self._sizes.setdefault(size, _size(len(self._sizes)))
        self.bound[var] = size
        return var

    def _prim(self, value: Value) -> rx.Expr:
        dtype = prim_dtype(value)
        if self.prims == "open":
            return self._param(rx.PrimStructInfo(dtype), dtype)
        if self.prims == "symbolic":
            var = _scalar(len(self.params), dtype)
            self.bound[var] = value
            return self._param(rx.PrimStructInfo(dtype, var), dtype, var)
        literal = ops.const(int(value) if dtype.is_int else float(value), dtype)
        self._param(rx.PrimStructInfo(dtype), dtype, literal)
        return rx.PrimValue(literal)


Build: TypeAlias = Callable[[IRModule], Callable[..., Value]]
"""Compiles a module of kernels and a function `main`, which it returns."""


_ndarray: Final = np.ndarray


def operator_name(call: rx.Call) -> str:
    """The name of the operator that is called."""
    assert isinstance(call.op, Op)
    return call.op.name


def is_dynamic(call: rx.Call) -> bool:
    """True if the call is lowered at run time: its operator has a legalisation only."""
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

    A change of an operator's record invalidates it. With `as_written`, no value is simplified.
    """

    def __init__(self, build: Build, *, as_written: bool = False) -> None:
        self._build = build
        self._as_written = as_written
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
            if len(self._cache) > Kept.PROGRAMS:
                self._cache.popitem(last=False)
            return result

    def _lower(self, call: rx.Call, form: Form) -> Program:
        builder = BlockBuilder()
        with builder.function("main", form.params):
            with builder.dataflow():
                result = builder.emit_output(call)
            builder.emit_func_output(result)
        legalize = LegalizeOps(as_written=self._as_written)
        module = legalize.transform(builder.finalize(), PassContext())
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
            return on_views(self._run_first, values)  # the choice takes long
        return run(*values)

    def _run_first(self, *values: Value) -> Value:
        return self._lower(values)(*values)

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
        if len(self._known) >= Kept.SHAPES:
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
    """True if a general result has the actual datatype and shape under the bindings."""
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
