"""Finds the first operator that makes NaN, infinities, or many subnormal numbers.

A program is compiled once more for it, with one kernel for each operator, not fused, and
runs with an instrument. Programs from files only have their kernels after fusion.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, Final, Literal, TypeAlias
from weakref import WeakKeyDictionary

import ml_dtypes
import numpy as np
from typing_extensions import override

from relaxpy.errors import Diagnostic, RelaxpyError, RuntimeCheckError, Span
from relaxpy.exec.api.assembled import instrumented
from relaxpy.exec.api.compile import compile
from relaxpy.exec.api.executable import CHECKS_VALUES, EntryPoint, Program
from relaxpy.exec.inspect.profile import copied, may_write_arrays, operators_of
from relaxpy.exec.runtime.instrument import VMInstrumentReturnKind
from relaxpy.exec.runtime.values import Value
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rewrite, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import is_kernel_call
from relaxpy.ir.tir.expr import FloatImm
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.transform import get_pipeline
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.frames import is_user_frame
from relaxpy.support.scopes import setting
from relaxpy.support.screen import ShownAsTable, Table

Problem: TypeAlias = Literal["NaN", "infinity", "subnormal numbers"]
MANY: Final = 1 / 8
"""The share of subnormal elements from which on they are a problem."""


@dataclass(frozen=True, slots=True)
class ValueStatistics:
    """The elements of a float array; `least`, `greatest` and `mean` are of the finite ones."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    least: float
    greatest: float
    mean: float
    nans: int
    infinities: int
    subnormals: int

    @staticmethod
    def of(name: str, array: np.ndarray[Any, Any]) -> ValueStatistics:
        """The statistics of an array of floats."""
        values = array.astype("float64") if array.dtype.itemsize < 4 else array
        finite = values[np.isfinite(values)]
        least, greatest, mean = (
            (
                float(finite.min()),
                float(finite.max()),
                float((finite / finite.size).sum(dtype="float64")),
            )
            if finite.size
            else (np.nan,) * 3
        )
        nans = int(np.isnan(values).sum())
        infinities = values.size - finite.size - nans
        numbers = least, greatest, mean, nans, infinities, _subnormals(array)
        return ValueStatistics(name, str(array.dtype), array.shape, *numbers)

    def has(self, problem: str) -> bool:
        """True if the array has this problem."""
        if problem == "subnormal numbers":
            return self.subnormals > MANY * int(np.prod(self.shape))
        return (self.nans if problem == "NaN" else self.infinities) > 0


@dataclass(frozen=True, slots=True, repr=False)
class ValueCheck(ShownAsTable):
    """The first problem of a call, and the values around it. It is true if there is none.

    Fields:
        problem: "NaN", "infinity", "subnormal numbers", or empty.
        operator: what makes it; empty if an argument of the call has it.
        source: the line of the program that calls the operator, as file:line, if known.
        operands, results: the statistics of the float tensors among them.
    """

    problem: Problem | Literal[""] = ""
    operator: str = ""
    source: str = ""
    operands: tuple[ValueStatistics, ...] = ()
    results: tuple[ValueStatistics, ...] = ()
    span: Span | None = None

    def __bool__(self) -> bool:
        return not self.problem

    @property
    def message(self) -> str:
        """The problem in a sentence."""
        if self:
            return "all values are finite"
        if not self.operator:
            return f"{self.results[0].name} has {self.problem}"
        passed = [value.name for value in self.operands if value.has(self.problem)]
        if passed:
            return f"{self.operator} gets {self.problem} from {passed[0]}"
        return f"{self.operator} makes {self.problem}"

    @property
    @override
    def _table(self) -> Table:
        rows = [("operand", value) for value in self.operands]
        rows += [("result" if self.operator else "argument", value) for value in self.results]
        return Table(_HEADER, tuple((kind, *_cells(value)) for kind, value in rows), 4)

    @override
    def __str__(self) -> str:
        place = f"{self.source}: " if self.source else ""
        return f"{place}{self.message}" + (f"\n{self._table}" if self.results else "")

    def raise_problem(self) -> None:
        """Errors: RuntimeCheckError if there is a problem, at the line of the operator."""
        if not self:
            notes = tuple(str(self._table).splitlines())
            raise RuntimeCheckError([Diagnostic(self.message, span=self.span, notes=notes)])


_HEADER: Final = (
    *("", "name", "datatype", "shape"),
    *("least", "greatest", "mean", "NaN", "infinite", "subnormal"),
)


def _cells(value: ValueStatistics) -> tuple[str, ...]:
    numbers = (f"{x:.3g}" for x in (value.least, value.greatest, value.mean))
    counts = map(str, (value.nans, value.infinities, value.subnormals))
    return value.name, value.dtype, str(value.shape), *numbers, *counts


@cache
def _least_normal(dtype: np.dtype[Any]) -> float | None:
    """The least positive normal number of a datatype of floats; None for other datatypes."""
    try:
        return float(ml_dtypes.finfo(dtype).smallest_normal)  # type: ignore[no-untyped-call]
    except ValueError:
        return None


def _subnormals(array: np.ndarray[Any, Any]) -> int:
    magnitude = np.abs(array)
    return int(((magnitude > 0) & (magnitude < _least_normal(array.dtype))).sum())


def _floats(value: object) -> Iterator[np.ndarray[Any, Any]]:
    """The arrays of floats in a value."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _floats(item)
    elif isinstance(value, np.ndarray) and _least_normal(value.dtype) is not None:
        yield value


def _problem(array: np.ndarray[Any, Any]) -> Problem | None:
    """The worst problem of an array."""
    wide = array.astype("float32") if array.dtype.itemsize < 4 else array
    with np.errstate(over="ignore", invalid="ignore"):
        is_finite = np.isfinite(wide.sum(dtype="float64"))
    if not is_finite:  # which is quicker than to look at each element
        if np.isnan(array).any():
            return "NaN"
        if np.isinf(array).any():
            return "infinity"
    return "subnormal numbers" if _subnormals(array) > MANY * array.size else None


class _FoundError(Exception):
    """Ends a run whose first problem was found."""

    def __init__(self, check: ValueCheck) -> None:
        super().__init__(check)
        self.check = check


@dataclass(frozen=True, slots=True)
class _Site:
    """A call of a kernel: its name as written, its operands, and whether it may make infinities.

    A literal infinity, as of a mask, is meant to be in a result.
    """

    operator: str
    call: rx.Call
    has_infinity: bool

    @property
    def operands(self) -> tuple[rx.Expr, ...]:
        """The operands, in normal form."""
        operands = self.call.args[1]
        return operands.fields if isinstance(operands, rx.Tuple) else ()


def _with_sites(module: IRModule) -> tuple[IRModule, Mapping[str, _Site]]:
    """A module in which each call has a kernel of its own, and the calls by their kernels."""
    functions, sites = dict(module.functions_by_name), dict[str, _Site]()

    def renamed(node: Node) -> Node | None:
        if not is_kernel_call(node):
            return None
        kernel = node.args[0]
        assert isinstance(kernel, rx.GlobalVar)
        name = f"{kernel.name_hint}.{len(sites)}"
        func = module.functions_by_name[kernel.name_hint]
        functions[name] = func.without_attr("global_symbol")
        has_infinity = any(isinstance(n, FloatImm) and not np.isfinite(n.value) for n in walk(func))
        sites[name] = _Site(kernel.name_hint, node, has_infinity)
        return replace(node, args=(rx.GlobalVar(name), *node.args[1:]))

    for name, func in module.functions_by_name.items():
        if isinstance(func, rx.Function):
            functions[name] = rewrite(func, renamed)  # type: ignore[assignment]
    return IRModule(functions, module.attrs, module.global_infos), sites


class _Watch:
    """An instrument that looks at the results of each call."""

    def __init__(self, module: IRModule, sites: Mapping[str, _Site]) -> None:
        self.sites = sites
        self.functions = module.functions_by_name
        self._per_thread = threading.local()
        """Its attribute `operands` has those of the calls that a thread has begun."""

    @contextmanager
    def run(self) -> Iterator[None]:
        """A run in this thread, in which another one may be in progress."""
        outer = getattr(self._per_thread, "operands", None)
        self._per_thread.operands = []
        try:
            yield
        finally:
            self._per_thread.operands = outer

    def __call__(
        self, function: Value, name: str, before: bool, result: Value, *args: Value
    ) -> object:
        """Look at a call before and after it ran."""
        site = self.sites.get(name)
        is_kernel = isinstance(self.functions.get(name), PrimFunc)
        count = len(site.operands) if site is not None else 0 if is_kernel else len(args)
        operands, outputs = args[:count], args[count:]
        if site is not None and rx.is_call_of(site.call, "relax.call_tir_inplace"):
            outputs = args
        if before:
            keeps = outputs is args
            self._per_thread.operands.append(
                [np.array(a) if keeps else a for a in _floats(operands)]
            )
            return VMInstrumentReturnKind.NO_OP
        seen = self._per_thread.operands.pop()
        for array in (*_floats(outputs if is_kernel else ()), *_floats(result)):
            problem = _problem(array)
            if problem is None:
                continue
            may_pass = problem != "NaN" and any(_problem(operand) == problem for operand in seen)
            if not may_pass and not (problem == "infinity" and site and site.has_infinity):
                raise _FoundError(_found(problem, name, site, seen, array))
        return None


def _name(operand: rx.Expr) -> str:
    return operand.name_hint if isinstance(operand, rx.Var) else "a constant"


def _is_float(operand: rx.Expr) -> bool:
    sinfo = operand.struct_info
    return isinstance(sinfo, rx.TensorStructInfo) and bool(sinfo.dtype) and sinfo.dtype.is_float


def _found(
    problem: Problem,
    name: str,
    site: _Site | None,
    operands: Sequence[np.ndarray[Any, Any]],
    result: np.ndarray[Any, Any],
) -> ValueCheck:
    """The check of a call whose result has a problem."""
    names: Sequence[str] = [f"operand {number}" for number in range(len(operands))]
    span = None
    if site is not None:
        # Legalised operators have these names.
        name, span = operators_of(site.operator).removeprefix("tir_"), site.call.span
        written = [_name(operand) for operand in site.operands if _is_float(operand)]
        names = written if len(written) == len(operands) else names
    return ValueCheck(
        problem,
        name,
        f"{span.file}:{span.line}" if span is not None else "",
        tuple(map(ValueStatistics.of, names, operands)),
        (ValueStatistics.of("the result", result),),
        span,
    )


_watched: Final[WeakKeyDictionary[Program, tuple[_Watch, Mapping[str, EntryPoint]]]] = (
    WeakKeyDictionary()
)


def _watched_functions(program: Program) -> tuple[_Watch, Mapping[str, EntryPoint]]:
    """The functions of a program, compiled once more, and what watches their values."""
    if program not in _watched:
        written = program.written() if isinstance(program.pipeline, str) else None
        module = program.module if written is None else get_pipeline("legalize")(written)
        module, sites = _with_sites(module)
        watch = _Watch(module, sites)
        watched = compile(module, program.target, relax_pipeline=None)
        _watched[program] = watch, instrumented(watched, watch)
    return _watched[program]


def checked(entry: EntryPoint, args: Sequence[object]) -> ValueCheck:
    """The first problem of a call of a function, whose arguments stay unchanged.

    Errors:
        RuntimeCheckError (also FunctionSignatureError): the arguments do not fit, or a check of the
            program failed.
    """
    program, name = entry.program, entry.signature.name
    values = entry.check(tuple(args))
    for param, value in zip(entry.signature.params, values, strict=True):
        for array in _floats(value):
            if _problem(array) == "NaN":
                statistics = ValueStatistics.of(f"argument {param.name_hint}", array)
                return ValueCheck("NaN", results=(statistics,), span=param.span)
    copies = copied(values, arrays=may_write_arrays(program.module, name))
    watch, functions = _watched_functions(program)
    try:
        with watch.run():
            functions[name](*(values if copies is None else copies))
    except _FoundError as found:
        return found.check
    return ValueCheck()


class CheckingEntryPoint(EntryPoint):
    """A function whose calls are checked before they run."""

    __slots__ = ()

    @override
    def __call__(self, /, *args: object, **kwargs: object) -> Value:
        """Check the values of a call, and call the function."""
        __tracebackhide__ = True
        values = self.positional_args(args, kwargs) if kwargs else args
        try:
            checked(self, values).raise_problem()
        except RelaxpyError as error:
            if is_user_frame(sys._getframe().f_back):
                error.hide_internal_frames()
            raise
        return EntryPoint.__call__(self, *values)


def checking(entry: EntryPoint) -> EntryPoint:
    """The function with checked calls."""
    return CheckingEntryPoint(entry.signature, entry._run, entry.program)


def check_values() -> AbstractContextManager[None]:
    """Check all calls of executables in a `with` statement, as `Executable.check_values` does.

    A call with a problem raises an error at the line of the operator that makes it. Each call runs
    twice, once to be checked, and is slower for that. Functions that were taken from an executable
    before are not checked.

    Errors:
        RuntimeCheckError: an operator makes NaN, infinities or many subnormal numbers.
    """
    return setting(CHECKS_VALUES, True)
