"""The table of converters: for each operator of ONNX, one for each version that differs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from inspect import Parameter, signature
from typing import Any, TypeAlias

from relaxpy.ir.relax.nodes import Expr
from relaxpy.plugins.importing.tensors import Contents
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.support.dataclass import dataclass

#: The value of a name of a graph: an expression, integers known at import, or None.
Value: TypeAlias = Expr | Contents | None
Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Converter:
    """A function from operands and attributes to the results, and the first opset it is for."""

    function: Function
    since: int
    #: The operands, and the attributes by name: a model needs those of few operators.
    parameters: Callable[[], tuple[Sequence[Parameter], Mapping[str, Parameter]]]
    #: Attributes that change nothing: hints for other engines.
    ignored: frozenset[str]
    #: Attributes that may only have one of these values.
    admitted: Mapping[str, Collection[Any]]
    #: True if operands may be tensors of strings.
    strings: bool

    @property
    def operands(self) -> Sequence[Parameter]:
        """The parameters of the function that are operands."""
        return self.parameters()[0]

    @property
    def attributes(self) -> Mapping[str, Parameter]:
        """The parameters of the function that are attributes, by name."""
        return self.parameters()[1]

    def require(self, attributes: Mapping[str, Any]) -> None:
        """Check attributes.

        Errors:
            UnsupportedError: one is missing, is not known, or has a value that is not imported.
        """
        for name, values in self.admitted.items():
            if name in attributes and attributes[name] not in values:
                raise UnsupportedError(
                    f"attribute {name!r} is {attributes[name]!r}, expected "
                    + " or ".join(map(repr, values))
                )
        known = {*self.attributes, *self.ignored, *self.admitted}
        unknown = [name for name in attributes if name not in known]
        if unknown:
            raise UnsupportedError(f"attribute {unknown[0]!r} is not known in opset {self.since}")
        missing = [
            name
            for name, parameter in self.attributes.items()
            if parameter.default is parameter.empty and name not in attributes
        ]
        if missing:
            raise UnsupportedError(f"attribute {missing[0]!r} is missing")

    def operands_of(self, values: Sequence[Value], tensor: Callable[[Value], Any]) -> list[Any]:
        """The positional arguments for the function.

        Errors:
            UnsupportedError: an operand is missing, or one too many.
        """
        result: list[Any] = []
        parameters = self.operands
        for k, value in enumerate(values):
            variadic = bool(parameters) and parameters[-1].kind is Parameter.VAR_POSITIONAL
            if k >= len(parameters) and not variadic:
                if value is None:
                    continue
                raise UnsupportedError(f"operand {k + 1} is one too many")
            parameter = parameters[min(k, len(parameters) - 1)]
            kind = str(parameter.annotation)
            may_lack = (kind.startswith("Value") and variadic) or kind.endswith("| None")
            if value is None and parameter.default is parameter.empty and not may_lack:
                raise UnsupportedError(f"operand {parameter.name} is missing")
            if value is None or kind.startswith("Value"):
                result.append(value)
            else:
                result.append(tensor(value))
        for parameter in parameters[len(result) :]:
            if parameter.kind is Parameter.VAR_POSITIONAL:
                break
            if parameter.default is parameter.empty:
                raise UnsupportedError(f"operand {parameter.name} is missing")
        return result


def _parameters_of(function: Function) -> tuple[Sequence[Parameter], Mapping[str, Parameter]]:
    parameters = list(signature(function).parameters.values())[1:]
    keyword, unpacked = Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD
    attributes = [p for p in parameters if p.kind is keyword]
    for record in (p for p in parameters if p.kind is unpacked):
        kind = record.annotation.removeprefix("Unpack[").removesuffix("]")
        names_of = function.__globals__[kind].__annotations__
        attributes += [Parameter(n, keyword, default=None) for n in names_of]
    operands = [p for p in parameters if p.kind not in (keyword, unpacked)]
    return operands, {p.name: p for p in attributes}


#: Domain and operator, then converters with the newest first.
CONVERTERS: dict[tuple[str, str], list[Converter]] = {}


def converter(
    *names: str,
    since: int = 1,
    domain: str = "",
    ignored: Sequence[str] = (),
    admitted: Mapping[str, Collection[Any]] | None = None,
    strings: bool = False,
) -> Callable[[Function], Function]:
    """Register a function as the converter of operators, from the opset `since` on.

    Its first parameter is the `Context`; then come operands, as expressions (parameters with the
    annotation `Value` take what is known instead); keyword parameters are attributes, with the
    defaults of ONNX, and so are the members of a `TypedDict` that is unpacked into them; those in
    `ignored` may be there, and those in `admitted` with one of these values. With `strings`, the
    operands that the schema says may be tensors of strings, which are their places in a vocabulary:
    the function compares or moves elements, or calls a packed function on strings.
    """

    def register(function: Function) -> Function:
        hints = frozenset({"consumed_inputs", *ignored})
        parameters = cache(partial(_parameters_of, function))
        entry = Converter(function, since, parameters, hints, admitted or {}, strings)
        for name in names:
            entries = CONVERTERS.setdefault((domain, name), [])
            entries.append(entry)
            entries.sort(key=lambda item: -item.since)
        return function

    return register


def find(domain: str, op: str, opset: int) -> Converter | None:
    """The newest converter that is not above the opset."""
    entries = CONVERTERS.get((domain, op), [])
    return next((entry for entry in entries if entry.since <= opset), None)
