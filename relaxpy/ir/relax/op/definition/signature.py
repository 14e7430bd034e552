"""Signatures of operators: from arguments to calls, and from calls to arguments of rules."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

from relaxpy.errors import MisuseError, StructInfoError, StructInfoTypeError, close_names, counted
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs, set_fields
from relaxpy.ir.op_record import CallArguments
from relaxpy.ir.relax.nodes import Call, Expr, ShapeExpr, StructInfo, TensorStructInfo
from relaxpy.ir.relax.op.definition.errors import wrong_kind
from relaxpy.ir.relax.op.definition.parameter import Parameter
from relaxpy.ir.relax.relations.context import Context
from relaxpy.support.dataclass import replace

_OF_PROGRAMS = "__struct_info__"
"""An attribute of the annotations of programs."""
_ENDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)


def _members(annotation: object) -> tuple[object, ...]:
    if get_origin(annotation) in (typing.Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


def _is_sinfo(member: object) -> bool:
    return isinstance(member, type) and issubclass(member, StructInfo)


class Signature:
    """The parameters of `function`, which is not inspected before one of them is needed.

    Where the function is a struct info rule, parameters annotated with struct info are operands,
    those annotated Call or Context receive the call and its context, and all others are attributes.
    """

    def __init__(self, function: Callable[..., Any], *, is_rule: bool) -> None:
        self.function = function
        self.is_rule = is_rule

    @late_property
    def _python(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @late_property
    def _hints(self) -> dict[str, Any]:
        try:
            hints = typing.get_type_hints(self.function)
        except NameError as error:
            raise MisuseError(
                f"the annotations of {self.function.__qualname__} have no value: {error}",
                hint="they are looked up in its module, not in an enclosing function",
            ) from None
        for name, hint in hints.items() if self.is_rule else ():
            if any(isinstance(m, StructInfo) or hasattr(m, _OF_PROGRAMS) for m in _members(hint)):
                raise MisuseError(
                    f"the rule {self.function.__qualname__} annotates {name} as a program does",
                    hint="a rule is annotated with classes, as in relax.TensorStructInfo",
                )
        return hints

    @late_property
    def injected(self) -> dict[str, type]:
        """Parameters of the rule that receive the call or the context."""
        if not self.is_rule:
            return {}
        return {name: hint for name, hint in self._hints.items() if hint in (Call, Context)}

    @late_property
    def public(self) -> inspect.Signature:
        """The parameters that users see."""
        parameters = self._python.parameters.items()
        return self._python.replace(parameters=[p for n, p in parameters if n not in self.injected])

    @late_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the operator in order."""
        out = []
        for name, parameter in self.public.parameters.items():
            if name == "span":
                continue
            members = _members(self._hints.get(name, object))
            kinds = typing.cast("tuple[type[StructInfo], ...]", tuple(filter(_is_sinfo, members)))
            variadic = parameter.kind is inspect.Parameter.VAR_POSITIONAL
            out.append(Parameter(name, kinds, members, variadic, parameter.default))
        return tuple(out)

    @late_property
    def operands(self) -> tuple[Parameter, ...]:
        """The parameters that are operands."""
        return tuple(p for p in self.parameters if p.is_operand)

    @late_property
    def attributes(self) -> dict[str, Parameter]:
        """The parameters that are attributes, by name."""
        return {p.name: p for p in self.parameters if not p.is_operand}

    @property
    def is_variadic(self) -> bool:
        """True if the last parameter takes any number of operands."""
        return bool(self.operands) and self.operands[-1].variadic

    @late_property
    def _counts(self) -> tuple[int, float]:
        """The minimum and the maximum number of operands."""
        most = math.inf if self.is_variadic else len(self.operands)
        return sum(p.required for p in self.operands), most

    @late_property
    def _leading(self) -> tuple[str, ...]:
        """The parameters that the rule takes by position: those before `*rest` or `/`."""
        kinds = {name: p.kind for name, p in self._python.parameters.items()}
        last = max((k for k, kind in enumerate(kinds.values()) if kind in _ENDS), default=-1)
        return tuple(n for n in list(kinds)[: last + 1] if kinds[n] is not _ENDS[0])

    @late_property
    def _by_position(self) -> tuple[Parameter, ...]:
        """The parameters that text passes by position: leading operands, all before `*rest`."""
        count = 0
        for k, parameter in enumerate(self.parameters):
            if parameter.variadic:
                return self.parameters[: k + 1]
            kind = self._python.parameters[parameter.name].kind
            by_name = kind is inspect.Parameter.KEYWORD_ONLY
            if count == k and parameter.is_operand and not by_name:
                count += 1
        return self.parameters[:count]

    @late_property
    def _only_operands(self) -> int:
        """The number of operands if text passes all of them, and nothing else, by position."""
        operands = self.operands
        return len(operands) if self._by_position == operands and not self.is_variadic else -1

    @late_property
    def _names(self) -> tuple[str, ...] | None:
        """The parameters in order, or None if some are positional-only or keyword-only."""
        parameters = self.public.parameters
        usual = all(p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in parameters.values())
        return tuple(parameters) if usual else None

    @late_property
    def _defaults(self) -> dict[str, object]:
        parameters = self.public.parameters.values()
        return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}

    def bound(self, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, Any]:
        """Bind arguments to the names of the parameters, with defaults for omitted ones.

        Errors:
            MisuseError (also TypeError): they do not fit the signature.
        """
        names = self._names
        if names is not None and len(args) <= len(names):
            remaining = names[len(args) :]
            if not kwargs or all(name in remaining for name in kwargs):
                bound = {**self._defaults, **dict(zip(names, args, strict=False)), **kwargs}
                if len(bound) == len(names):
                    return bound
        try:
            call = self.public.bind(*args, **kwargs)
        except TypeError as error:
            raise MisuseError(str(error)) from None
        call.apply_defaults()
        return call.arguments

    def divided(self, bound: Mapping[str, Any]) -> tuple[tuple[Expr, ...], Attrs]:
        """Divide bound arguments into operands and attributes.

        Errors:
            MisuseError (also TypeError): an argument is neither what its parameter takes, nor None
                for an optional operand.
        """
        operands: list[Expr] = []
        absent: list[Parameter] = []
        attributes: dict[str, object] = {}
        for parameter in self.parameters:
            value = bound[parameter.name]
            if not parameter.kinds:
                attributes[parameter.name] = self._attribute(parameter, value)
                continue
            if value is None:
                absent.append(parameter)
                continue
            values = value if parameter.variadic else (value,)
            if absent and values:
                operands += [p.placeholder() for p in absent]
                absent = []
            operands += [v if isinstance(v, Expr) else parameter.operand(v) for v in values]
        for parameter in absent:
            if parameter.required:
                parameter.placeholder()
        return tuple(operands), Attrs(attributes) if attributes else EMPTY_ATTRS

    def _attribute(self, parameter: Parameter, value: object) -> object:
        result = parameter.attribute(value)
        if self.is_rule and isinstance(result, Expr):
            raise MisuseError(
                f"{parameter.name} is an attribute, found the expression {result}",
                hint="operands are annotated with struct info in the rule, as in "
                f"{parameter.name}: relax.TensorStructInfo",
                about=value,
            )
        return result

    def present(self, call: Call) -> tuple[Expr | None, ...]:
        """The operands of a call by position, None for an optional one that is absent.

        Absent operands at the end are left out.
        """
        named = zip(call.args, self.operands, strict=False)
        operands = [
            None if parameter.is_absent(arg.struct_info) else arg for arg, parameter in named
        ]
        return (*operands, *call.args[len(operands) :])

    def rule_arguments(self, call: Call, ctx: Context) -> CallArguments:
        """The arguments of the rule: struct info, attributes, the call and the context.

        Errors:
            StructInfoError: the call has operands or attributes that the operator does not take.
        """
        operands = self.operands
        least, most = self._counts
        if not least <= len(call.args) <= most:
            expected = counted(len(operands), "operand")
            if self.is_variadic:
                expected = f"at least {counted(least, 'operand')}"
            raise StructInfoTypeError(f"takes {expected}, found {len(call.args)}")
        named = self._attribute_values(call)
        variadic: list[object] = []
        for i, arg in enumerate(call.args):
            parameter = operands[i] if i < len(operands) else operands[-1]
            sinfo = ctx.sinfo_of(arg)
            if parameter.is_absent(sinfo):
                continue
            if not isinstance(sinfo, parameter.kinds):
                raise wrong_kind(parameter, arg, sinfo)
            if isinstance(sinfo, TensorStructInfo) and not _has_declared_rank(sinfo):
                raise StructInfoError(
                    f"{parameter.name} has the shape {sinfo.shape} and ndim {sinfo.ndim}",
                    rule="WF-14d",
                    about=arg,
                )
            if parameter.variadic:
                variadic.append(sinfo)
            else:
                named[parameter.name] = sinfo
        for name, kind in self.injected.items():
            named[name] = call if kind is Call else ctx
        if self._leading:
            first = (named.pop(n) if n in named else self._defaults[n] for n in self._leading)
            variadic = [*first, *variadic]
        return variadic, named

    def _attribute_values(self, call: Call) -> dict[str, object]:
        """The attributes of a call, each of its type; omitted ones have their defaults."""
        attrs = call.attrs
        for name in attrs:
            if name not in self.attributes:
                raise StructInfoTypeError(
                    f"has no attribute {name!r}", hint=close_names(name, self.attributes)
                )
        named: dict[str, object] = {}
        for name, parameter in self.attributes.items():
            if name in attrs:
                named[name] = parameter.attribute(attrs[name])
            elif parameter.required:
                raise StructInfoTypeError(f"the attribute {name} is missing")
            else:
                named[name] = parameter.default
        return named

    def completed(self, call: Call) -> Call:
        """Complete the attributes of a call that may have been built by hand."""
        if not self.is_rule:
            return call
        values, attrs = self._attribute_values(call), call.attrs
        if len(values) == len(attrs) and all(values[name] is attrs[name] for name in attrs):
            return call
        completed = Attrs(values)
        if completed == attrs:
            return call
        result = replace(call, attrs=completed)
        set_fields(result, sinfo_is_derived=call.sinfo_is_derived)
        return result

    def call_arguments(self, call: Call) -> CallArguments:
        """The arguments that build a call again."""
        named: dict[str, object] = {
            name: value
            for name, value in call.attrs.items()
            if name not in self.attributes or self.attributes[name].default != value
        }
        if len(call.args) <= self._only_operands:
            return list(call.args), named
        first: list[object] = []
        remaining = list(call.args)
        for parameter in self._by_position:
            if parameter.is_operand:
                end = len(remaining) if parameter.variadic else 1
                first, remaining = first + remaining[:end], remaining[end:]
            else:
                first.append(named.pop(parameter.name, parameter.default))
        later = [p.name for p in self.operands if p not in self._by_position]
        if len(remaining) > len(later):  # the call has too many operands
            return list(call.args), named
        return first, dict(zip(later, remaining, strict=False)) | named


def _has_declared_rank(sinfo: TensorStructInfo) -> bool:
    return not isinstance(sinfo.shape, ShapeExpr) or len(sinfo.shape.values) == sinfo.ndim
