"""The table of converters: for each operator of PyTorch, or one of its overloads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.support.dataclass import dataclass

#: The value of a node of a graph: a tensor, a number, several of them, or None.
Value: TypeAlias = (
    Expr | PrimExpr | int | float | bool | Sequence[Any] | Mapping[str, Any] | str | None
)
Function: TypeAlias = Callable[..., Any]
_T = TypeVar("_T")

#: Arguments that decide where and how elements are stored and computed, which values do not show.
_WITHOUT_EFFECT = frozenset(
    {
        *("layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "implicit"),
        *("cudnn_enable", "cudnn_enabled", "requires_grad"),
    }
)


@dataclass(frozen=True, eq=False)
class Converter:
    """A function from the context and the arguments of an operator to its results."""

    function: Function
    #: How many positional arguments the function takes.
    positional: int
    keywords: frozenset[str]
    #: True if it takes all positional arguments and reads the rest from the known result.
    takes_all: bool
    #: True if it computes 16-bit floats in float32 and rounds results once.
    is_wide: bool

    def arguments(
        self, schema: Any, args: Sequence[Value], kwargs: Mapping[str, Value]
    ) -> tuple[list[Value], dict[str, Value]]:
        """The positional and the keyword arguments for the function, with the schema's defaults.

        Errors:
            UnsupportedError: an argument has a value that the function has no parameter for.
        """
        positional: list[Value] = []
        named: dict[str, Value] = {}
        for k, declared in enumerate(schema.arguments):
            default = declared.default_value if declared.has_default_value() else None
            value = args[k] if k < len(args) else kwargs.get(declared.name, default)
            if str(declared.type) == "Tensor" and isinstance(value, (str, Sequence, type(None))):
                raise UnsupportedError(f"its argument {declared.name} is {value}, not a tensor")
            if declared.name in self.keywords:
                named[declared.name] = value
            elif not declared.kwarg_only and (self.takes_all or len(positional) < self.positional):
                positional.append(value)
            elif self.takes_all:
                continue
            elif value is not None and value != default and declared.name not in _WITHOUT_EFFECT:
                raise UnsupportedError(f"its argument {declared.name} is {value}")
        return positional, named


#: Converters by `namespace.operator.overload` or, for all overloads, `namespace.operator`.
CONVERTERS: dict[str, Converter] = {}
#: The converters of operators that have complex operands or results, by the same keys.
COMPLEX: dict[str, Converter] = {}


def converter(
    *names: str,
    namespace: str = "aten",
    table: dict[str, Converter] = CONVERTERS,
    wide: bool = False,
) -> Callable[[Function], Function]:
    """Register a function as the converter of operators: `add`, or one overload: `add.Tensor`.

    Its first parameter is the `Context`; positional ones take the arguments in the order of the
    operator's schema, keyword ones by their names. An argument without a parameter has to be at its
    default, unless the function takes `*args`.

    With `wide`, it gets tensors of 16-bit floats as float32, and its result is rounded to the
    result's datatype: that of an operator that PyTorch computes by one kernel, and which here is
    several operators, each of which would round.
    """

    def register(function: Function) -> Function:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        kinds = [parameter.kind for parameter in parameters]
        keyword, variadic = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL
        entry = Converter(
            function,
            len(kinds) - kinds.count(keyword),
            frozenset(p.name for p in parameters if p.kind is keyword),
            variadic in kinds,
            wide,
        )
        for name in names:
            key = f"{namespace}.{name}"
            assert key not in table, key
            table[key] = entry
        return function

    return register


def find(target: Any) -> Converter | None:
    """The converter of an overload of an operator (`torch.ops.aten.add.Tensor`), or None."""
    return found(target, CONVERTERS)


def is_converted(target: Any) -> bool:
    """True if there is a converter, of complex numbers or others."""
    return find(target) is not None or found(target, COMPLEX) is not None


def found(target: Any, table: Mapping[str, _T]) -> _T | None:
    """The entry of a table for an overload, or else for its operator; None if it has neither."""
    packet, _, overload = target.name().replace("::", ".").partition(".")[2].partition(".")
    key = f"{target.namespace}.{packet}"
    return table.get(f"{key}.{overload or 'default'}", table.get(key))
