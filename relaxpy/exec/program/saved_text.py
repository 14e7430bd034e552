"""Saves the text of a compiled program with the objects that it uses, and loads it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from relaxpy.errors import MisuseError, Span
from relaxpy.exec.numpy.checked_call import CheckedKernel, Exclusion
from relaxpy.exec.program.lower.checks import CompiledScalar
from relaxpy.exec.program.lower.scope import CheckedFunction, LateLiteral
from relaxpy.exec.program.lower.text import FunctionValue, Text
from relaxpy.exec.runtime.checks import (
    CapturedVars,
    CompiledCast,
    CompiledResult,
    CompiledSignature,
    Signature,
)
from relaxpy.exec.runtime.dynamic import DynamicOperator, OperatorCall
from relaxpy.exec.runtime.signature import KernelSignature
from relaxpy.exec.runtime.support import CompiledClosure, CompiledPackedCall
from relaxpy.exec.runtime.values import PrimFuncValue, Value
from relaxpy.ir.core.fork_lock import Late
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition.registry import registered_ops
from relaxpy.ir.serialize import Array, load_table, save_table
from relaxpy.support.dataclass import dataclass
from relaxpy.support.pysource import render, set_span, span_of

if TYPE_CHECKING:
    from relaxpy.exec.api.lowered import Lowered

_RECORDS: Final[Mapping[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        *(Signature, CapturedVars, CompiledSignature, CompiledCast, CompiledResult),
        *(CompiledClosure, CompiledScalar, KernelSignature, Exclusion),
    )
}
"""The classes of objects that are saved as their fields."""


def saved_text(
    text: Text, number: Callable[[Array], int], locate: Callable[[Span], int | None]
) -> dict[str, object]:
    """The JSON form of a text, which refers to arrays and to positions by number.

    Errors:
        MisuseError: it uses an object without a JSON form.
    """
    saver = _Saver(number, locate)
    for symbol, function in text.symbols.items():
        if not isinstance(function, PrimFuncValue):
            raise MisuseError(f"{symbol} is a Python function of the module")
    lines = map(text.span_of_line, range(1, text.source.count("\n") + 1))
    content = (
        text.source,
        tuple(None if span is None else locate(span) for span in lines),
        tuple((name, saver.saved(value)) for name, value in text.objects.items()),
        tuple(tuple(getattr(v, f.name) for f in fields(v)) for v in text.values),
        tuple(text.kernels),
    )
    return save_table(content, number, locate)


def text_of_saved(
    saved: object,
    arrays: Sequence[Array],
    located: Callable[[int], Span | None],
    lowered: Callable[[], Lowered],
) -> Text:
    """The text of a `saved_text`.

    Errors:
        MisuseError (also ValueError): the form is not one of a text.
    """
    source, lines, objects, values, kernels = load_table(saved, arrays, located)
    symbols: dict[str, Value] = {}
    loader = _Loader(arrays, located, symbols, lowered)
    return Text(
        source,
        lambda line: loader.span(lines[line - 1]) if 0 < line <= len(lines) else None,
        {name: loader.loaded(value) for name, value in objects},
        [FunctionValue(*value) for value in values],
        kernels,
        symbols,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Saver:
    """Writes objects as values that `save_table` takes; a tuple begins with the kind of object."""

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
            case LateLiteral():
                return "late", self.number(value.literal.memory(aligned=False))
            case CompiledPackedCall(symbol, sinfos, attrs, _, span, is_called):
                return "packed", symbol, is_called, *map(self.saved, (sinfos, attrs, span))
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
    """The operator that a function implements."""
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
                symbol, is_called, *others = members
                sinfos, attrs, span = map(self.loaded, others)
                return CompiledPackedCall(symbol, sinfos, attrs, self.symbols, span, is_called)
            case "arguments":
                text, *others = members
                params, names, span = map(self.loaded, others)
                checks = ast.parse(text).body
                set_span(checks, span)
                return CheckedFunction(params, tuple(checks), names)
            case "kernel":
                signature, exclusions = map(self.loaded, members[:2])
                in_order = partial(self._in_text_order, signature.name)
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

    def _in_text_order(self, kernel: str, namespace: dict[str, Any]) -> Any:
        return self.lowered().in_text_order(kernel, namespace)
