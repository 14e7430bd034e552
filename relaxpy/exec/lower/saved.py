"""Saves the Python functions of a lowered module with the objects that they use, and loads them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from types import BuiltinFunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from relaxpy.errors import SPAN_OF_LINE, MisuseError, Span
from relaxpy.exec.kernel.checked_call import CheckedKernel, Exclusion
from relaxpy.exec.kernel.signature import KernelSignature
from relaxpy.exec.lower.checks import CompiledScalar
from relaxpy.exec.lower.scope import CheckedFunction
from relaxpy.exec.lower.text import MODULES
from relaxpy.exec.runtime.checks import (
    CapturedVars,
    CompiledCast,
    CompiledResult,
    CompiledSignature,
    Signature,
)
from relaxpy.exec.runtime.dynamic import DynamicOperator, OperatorCall
from relaxpy.exec.runtime.support import CompiledClosure, CompiledPackedCall, run_kernel
from relaxpy.exec.runtime.values import Closure, PrimFuncValue, Value
from relaxpy.ir.core.fork_lock import Late
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition.registry import registered_ops
from relaxpy.ir.serialize import Array, load_table, save_table
from relaxpy.support.dataclass import dataclass
from relaxpy.support.pysource import load, render, set_span, span_of

if TYPE_CHECKING:
    from relaxpy.exec.lower.python_module import LoweredModule
    from relaxpy.exec.lowered import Lowered

_RECORDS: Final[Mapping[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        *(Signature, CapturedVars, CompiledSignature, CompiledCast, CompiledResult),
        *(CompiledClosure, CompiledScalar, KernelSignature, Exclusion),
    )
}
"""The classes of objects that are saved as their fields."""


def saved_functions(
    lowered: LoweredModule, number: Callable[[Array], int], locate: Callable[[Span], int | None]
) -> dict[str, object]:
    """The JSON form of the functions of a module that run in Python, and of function values.

    It refers to arrays and to positions by number.

    Errors:
        MisuseError: they use an object without a JSON form.
    """
    source, namespace, values = lowered.python_part
    lowering = lowered.lowering
    saver = _Saver(lowering.late_literals, number, locate)
    for symbol, function in lowering.module_functions.items():
        if not isinstance(function, PrimFuncValue):
            raise MisuseError(f"{symbol} is a Python function of the module")
    span_of_line = namespace.get(SPAN_OF_LINE, lambda line: None)
    lines = map(span_of_line, range(1, source.count("\n") + 1))
    content = (
        source,
        tuple(None if span is None else locate(span) for span in lines),
        tuple((name, saver.saved(value)) for name, value in lowering.namespace.items()),
        tuple(
            (
                *(name, python_name, lowering.value_names.get(name)),
                *(_symbol(lowered, name, value), isinstance(value, Closure)),
                *(value.struct_info, value.name),
            )
            for name, (python_name, value) in values.items()
        ),
    )
    return save_table(content, number, locate)


def _symbol(lowered: LoweredModule, name: str, value: object) -> str | None:
    symbol = lowered.program.functions_by_name[name].attrs.get("global_symbol")
    return None if symbol is None or isinstance(value, Closure) else str(symbol)


def _in_text_order(lowered: Callable[[], Lowered], name: str, namespace: dict[str, Any]) -> Any:
    return lowered().in_text_order(name, namespace)


def load_functions(
    saved: object,
    arrays: Sequence[Array],
    located: Callable[[int], Span | None],
    native: Mapping[str, Callable[..., Value]],
    changed: Mapping[str, object],
    lowered: Callable[[], Lowered],
) -> dict[str, Callable[..., Value]]:
    """The functions of `saved_functions` by name, which call the `native` ones by Python name.

    Those functions of `rx` that native code has `changed` replace the others.

    Errors:
        MisuseError (also ValueError): the form is not one of functions.
    """
    source, lines, shared, values = load_table(saved, arrays, located)
    symbols: dict[str, Value] = {}
    loader = _Loader(arrays, located, symbols, lowered)
    names = {name: loader.loaded(value) for name, value in shared}
    namespace = load(
        source,
        "module",
        {**MODULES, **names, **native},
        lambda line: loader.span(lines[line - 1]) if 0 < line <= len(lines) else None,
    )
    namespace["rx"] = SimpleNamespace(**vars(MODULES["rx"]) | changed)
    functions: dict[str, Callable[..., Value]] = {}
    for name, python_name, value_name, symbol, is_closure, sinfo, title in values:
        run = namespace[python_name]
        value: Closure | PrimFuncValue
        if is_closure:
            value = Closure(run, sinfo, title)
        else:
            is_native = isinstance(run, BuiltinFunctionType)
            value = PrimFuncValue(run if is_native else partial(run_kernel, run), sinfo, title)
        if symbol is not None:
            symbols[symbol] = value
        if value_name is not None:
            namespace[value_name] = value
        functions[name] = run if is_closure else value
    return functions


@dataclass(frozen=True, slots=True, eq=False)
class _Saver:
    """Writes objects as values that `save_table` takes; a tuple begins with the kind of object."""

    literals: Mapping[int, Array]
    number: Callable[[Array], int]
    locate: Callable[[Span], int | None]

    def saved(self, value: object) -> object:
        """The form of an object.

        Errors:
            MisuseError: it has none.
        """
        match value:
            case None | bool() | int() | float() | str() | np.generic() | Node() | Attrs():
                return value
            case Span():
                return "span", self.locate(value)
            case np.ndarray():
                return "array", self.number(value)
            case Late() if id(value) in self.literals:
                return "late", self.number(self.literals[id(value)])
            case CompiledPackedCall(symbol, sinfos, attrs, _, span):
                return "packed", symbol, *map(self.saved, (sinfos, attrs, span))
            case CheckedFunction(params, checks, names):
                text = render(ast.Module([*checks], []))
                return "arguments", text, *map(self.saved, (params, names, span_of(checks[0])))
            case CheckedKernel(signature, exclusions, _, calls_users):
                parts = self.saved(signature), self.saved(exclusions)
                return "kernel", *parts, calls_users
            case DynamicOperator():
                return "operator", value.call
            case Mapping():
                return "table", *((self.saved(k), self.saved(v)) for k, v in value.items())
            case _ if type(value) is tuple:
                return "tuple", *map(self.saved, value)
            case _ if _RECORDS.get(type(value).__name__) is type(value):
                members = (getattr(value, f.name) for f in fields(value))  # type: ignore[arg-type]
                return type(value).__name__, *map(self.saved, members)
            case _:
                return "implementation", _operator_of(value)


def _operator_of(function: object) -> str:
    """The operator that a function implements.

    Errors:
        MisuseError: there is none.
    """
    for name in registered_ops():
        if Op.get(name).record.runtime is function:
            return name
    raise MisuseError(f"it uses a Python object of type {type(function).__name__}")


@dataclass(frozen=True, slots=True, eq=False)
class _Loader:
    """Reads what _Saver has written."""

    arrays: Sequence[Array]
    located: Callable[[int], Span | None]
    symbols: Mapping[str, Value]
    lowered: Callable[[], Lowered]

    def span(self, number: int | None) -> Span | None:
        """The position of a number."""
        return None if number is None else self.located(number)

    def loaded(self, value: Any) -> Any:
        """The object of a form."""
        if type(value) is not tuple:
            return value
        kind, *members = value
        match kind:
            case "span":
                return self.span(*members)
            case "array":
                return np.asarray(self.arrays[members[0]])
            case "late":
                return Late(partial(self.arrays.__getitem__, members[0]))
            case "packed":
                symbol, *others = members
                sinfos, attrs, span = map(self.loaded, others)
                return CompiledPackedCall(symbol, sinfos, attrs, self.symbols, span)
            case "arguments":
                text, *others = members
                params, names, span = map(self.loaded, others)
                checks = ast.parse(text).body
                set_span(checks, span)
                return CheckedFunction(params, tuple(checks), names)
            case "kernel":
                signature, exclusions = map(self.loaded, members[:2])
                in_order = partial(_in_text_order, self.lowered, signature.name)
                return CheckedKernel(signature, exclusions, in_order, members[2])
            case "operator":
                return DynamicOperator(OperatorCall(members[0]), self.lowered().programs)
            case "implementation":
                return Op.get(members[0]).record.runtime
            case "table":
                return {self.loaded(k): self.loaded(v) for k, v in members}
            case "tuple":
                return tuple(map(self.loaded, members))
            case _:
                return _RECORDS[kind](*map(self.loaded, members))
