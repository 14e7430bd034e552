"""The signatures of operators, their parameters, and errors that name the operand."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args, get_origin

import numpy as np

from relaxpy.errors import (
    Diagnostic,
    MisuseError,
    RelaxpyError,
    Span,
    StructInfoError,
    StructInfoTypeError,
    close_names,
    counted,
    unexpected,
)
from relaxpy.ir.core.device import Device, device, split_device
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs, set_fields
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.op_record import CallArguments
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import Call, Expr, ShapeExpr, StructInfo, TensorStructInfo
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo, Placement
from relaxpy.ir.relax.relations.derivation import Context, written_at
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass, replace

_KIND_NAMES = {
    rx.TensorStructInfo: "a tensor",
    rx.ShapeStructInfo: "a shape",
    rx.PrimStructInfo: "a scalar",
    rx.TupleStructInfo: "a tuple",
    DTensorStructInfo: "a tensor over several devices",
    rx.ObjectStructInfo: "an object",
}
_FROM_TEXT: Mapping[object, Callable[[str], object]] = {
    Device: device,
    VDevice: lambda text: VDevice(*split_device(text)),
    Placement: Placement.from_text,
}
"""The conversion of a string to an attribute of these types."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operator: an operand of certain kinds, or an attribute."""

    name: str
    kinds: tuple[type[rx.StructInfo], ...]
    choices: tuple[object, ...]
    variadic: bool
    default: object

    @property
    def is_operand(self) -> bool:
        """True if the parameter takes an expression."""
        return bool(self.kinds)

    @property
    def required(self) -> bool:
        """True if a call must pass it."""
        return self.default is inspect.Parameter.empty and not self.variadic

    @property
    def annotation(self) -> str:
        """The annotation of an operand in the signature of calls."""
        forms = {
            rx.TupleStructInfo: "Sequence[Expr]",
            rx.ShapeStructInfo: "Sequence[PrimExpr | int]",
        }
        taken = ["Expr", *(form for kind, form in forms.items() if kind in self.kinds)]
        return " | ".join([*taken, "None"] if self.default is None else taken)

    def expected(self) -> str:
        """The description of the accepted operands in messages."""
        return " or ".join(_KIND_NAMES.get(kind, kind.__name__) for kind in self.kinds)

    def operand(self, value: object) -> rx.Expr:
        """Convert `value` to an expression of a kind that this parameter takes, if possible."""
        if isinstance(value, rx.Expr):
            return value
        if rx.ShapeStructInfo in self.kinds and isinstance(value, (list, tuple)):
            return rx.ShapeExpr(tuple(value))
        scalar = isinstance(value, (bool, int, float, np.number, np.bool_))
        if isinstance(value, np.ndarray) or (scalar and self.kinds == (rx.TensorStructInfo,)):
            return rx.const(value)
        return rx.convert_to_expr(value)

    def placeholder(self) -> rx.Expr:
        """Unit, which keeps the position of this operand in a call that omits it.

        Errors:
            MisuseError (also TypeError): the operand is required, or unit is a value of it.
        """
        if self.required:
            raise MisuseError(f"{self.name} is {self.expected()}, found None")
        if self._takes_unit:
            raise MisuseError(
                f"{self.name} cannot be omitted before a later operand: it takes tuples, "
                "so an empty tuple in its position would be its value"
            )
        return rx.Tuple(())

    def is_absent(self, sinfo: rx.StructInfo | None) -> bool:
        """True if a value of this struct info keeps the position of an omitted operand."""
        if not isinstance(sinfo, rx.TupleStructInfo) or sinfo.fields:
            return False
        return not (self.required or self.variadic or self._takes_unit)

    @property
    def _takes_unit(self) -> bool:
        return any(issubclass(rx.TupleStructInfo, kind) for kind in self.kinds)

    def attribute(self, value: object) -> object:
        """`value` converted to the attribute's type.

        Errors:
            MisuseError (also TypeError): it has another type.
        """
        if type(value) in self.choices:
            return None if _is_open(value) and type(None) in self.choices else value
        number = number_literal(value)
        for choice in self.choices:
            if choice is DataType and isinstance(value, (str, type, np.dtype)):
                dtype = _datatype(value)
                return None if _is_open(dtype) and type(None) in self.choices else dtype
            if isinstance(value, str) and choice in _FROM_TEXT:
                return _FROM_TEXT[choice](value)
            if choice is int and (integer := integer_literal(_plain(value))) is not None:
                return integer
            if choice is bool and _is_truth_value(number):
                return bool(number)
            if choice is float and isinstance(number, (int, float, np.integer, np.floating)):
                return float(number)
            if get_origin(choice) is tuple:
                members = _as_members(value, get_args(choice)[0])
                if members is not None:
                    return members
                continue
            if choice not in (int, float, DataType) and _is_instance(value, choice):
                return value
        names = list(map(_name_of, self.choices))
        names = [n for n in names if f"{n}{_OR_MORE}" not in names]
        raise unexpected(value, f"{self.name} is {' or '.join(names)}")


def _is_open(value: object) -> bool:
    """True if a datatype is unknown, which as an optional attribute means that it is missing."""
    return isinstance(value, DataType) and value.is_void


def _plain(value: object) -> object:
    """The scalar that a prim value is, also as a variable whose value is known; else `value`."""
    if isinstance(value, rx.PrimValue):
        return value.value
    sinfo = value.struct_info if isinstance(value, rx.Var) else None
    return (
        sinfo.value if isinstance(sinfo, rx.PrimStructInfo) and sinfo.value is not None else value
    )


def number_literal(value: object) -> object:
    """The number that a literal is, as `R.prim_value(1)` and `T.float32(0.5)`; else `value`."""
    literal = _plain(value)
    return literal.value if isinstance(literal, (tir.IntImm, tir.FloatImm)) else value


def _is_truth_value(number: object) -> bool:
    """True if a number is a Boolean, or the integer 0 or 1, which stands for one."""
    return isinstance(number, (bool, np.bool_, int, np.integer)) and number in (0, 1)


def integer_literal(value: object) -> int | None:
    """The integer that a number or a literal expression is; None for anything else."""
    if isinstance(value, tir.PrimExpr):
        return value.value if isinstance(value, tir.IntImm) and not value.dtype.is_bool else None
    is_int = isinstance(value, (int, np.integer)) and type(value) is not bool
    return int(value) if is_int else None  # type: ignore[call-overload]


def _is_instance(value: object, choice: object) -> bool:
    origin = get_origin(choice)
    if origin is typing.Literal:
        return value in get_args(choice)
    kind = origin or choice
    if kind in (list, Sequence):
        return isinstance(value, (list, tuple))
    return not isinstance(kind, type) or isinstance(value, kind)


def _datatype(value: str | type | np.dtype[np.generic]) -> DataType:
    try:
        return DataType(value)
    except MisuseError as error:
        error.about = value
        raise


_OR_MORE = " or a list of them"


def _name_of(choice: object) -> str:
    """The name of an attribute type in messages."""
    if choice is type(None):
        return "None"
    if get_origin(choice) is tuple:
        return f"{_name_of(get_args(choice)[0])}{_OR_MORE}"
    if get_origin(choice) is typing.Literal:
        return " or ".join(map(repr, get_args(choice)))
    return str(getattr(choice, "__name__", choice))


def _as_members(value: object, member: object) -> tuple[object, ...] | None:
    """The members of a list, or a single value, if all are of type `member`."""
    if type(value) is tuple and all(type(v) is member for v in value):
        return value
    values = value if isinstance(value, (list, tuple)) else (value,)
    if member is float:
        values = [number_literal(v) for v in values]
    if member is int:
        values = [v if (number := integer_literal(v)) is None else number for v in values]
    if any(isinstance(v, bool) or not _is_instance(v, member) for v in values):
        return None
    return tuple(values)


class Named:
    """Prefixes the messages of errors raised inside with the operator's name.

    With a call and a context, an error about struct info becomes an error about its operand.
    """

    __slots__ = ("call", "ctx", "name")

    def __init__(self, name: str, call: rx.Call | None = None, ctx: Context | None = None) -> None:
        self.name = name
        self.call = call
        self.ctx = ctx

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, RelaxpyError):
            return
        about = error.about
        if isinstance(about, rx.StructInfo) and self.call is not None and self.ctx is not None:
            about = _operand_of(about, self.call, self.ctx)
        span = written_at(about) if isinstance(about, rx.Expr) else None
        error.diagnostics = tuple(_with_name(d, self.name, span) for d in error.diagnostics)
        error.about = about


def _operand_of(sinfo: rx.StructInfo, call: rx.Call, ctx: Context) -> object:
    """The operand, or field of a tuple operand, with this struct info object; else `sinfo`."""
    fields = [f for a in call.args if isinstance(a, rx.Tuple) for f in a.fields]
    for operand in (*call.args, *fields):
        if ctx.sinfo_of(operand) is sinfo:
            return operand
    for operand in call.args:
        operand_sinfo = ctx.sinfo_of(operand)
        if isinstance(operand_sinfo, rx.TupleStructInfo) and any(
            f is sinfo for f in operand_sinfo.fields
        ):
            return operand
    return sinfo


def _with_name(diagnostic: Diagnostic, name: str, span: Span | None) -> Diagnostic:
    message, rule, span = diagnostic.message, diagnostic.rule or "DER-36", diagnostic.span or span
    message = message if message.startswith(name) else f"{name}: {message}"
    return replace(diagnostic, message=message, rule=rule, span=span)


def wrong_kind(parameter: Parameter, arg: rx.Expr, sinfo: rx.StructInfo) -> StructInfoTypeError:
    """The error of an operand that is not of the kinds that its parameter takes."""
    literal = isinstance(arg, (rx.StringImm, rx.DataTypeImm))
    vague = isinstance(sinfo, rx.ObjectStructInfo) and not literal
    hint = "declare its struct info with R.match_cast first" if vague else None
    if hint and isinstance(arg, rx.Var):
        example = f'{arg.name_hint}: R.Tensor(("n", 4), "float32")'
        hint = f"annotate the parameter, as in {example}; for another variable, {hint}"
    if isinstance(sinfo, rx.FuncStructInfo):
        hint = "call the function"
    numbers = _as_numbers(arg) if rx.TensorStructInfo in parameter.kinds else None
    if numbers is not None:
        hint = f"for a tensor of these numbers write R.const({numbers}, dtype)"
    if isinstance(sinfo, DTensorStructInfo):
        hint = "call a kernel for tensors on several devices: R.dist.call_tir(..., out_sinfo)"
    return StructInfoTypeError(
        f"{parameter.name} is {parameter.expected()}, found {arg if literal else sinfo}",
        rule="SI-15" if vague else "DER-36",
        span=written_at(arg),
        hint=hint,
        about=arg,
    )


def _as_numbers(arg: rx.Expr) -> str | None:
    """The list of Python that became the tuple `arg`, where its fields are literals or lists."""
    fields = arg.fields if isinstance(arg, rx.Tuple) else ()
    literals = [
        str(f.value.value)
        if isinstance(f, rx.PrimValue) and isinstance(f.value, tir.ConstExpr)
        else _as_numbers(f)
        for f in fields
    ]
    known = [literal for literal in literals if literal is not None]
    return f"[{', '.join(known)}]" if fields and len(known) == len(fields) else None


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
    def of_calls(self) -> inspect.Signature:
        """The parameters with what a caller passes: expressions where the rule has struct info."""

        def named(annotation: Any) -> Any:
            return annotation.replace("rx.", "") if isinstance(annotation, str) else annotation

        operands = {p.name: p.annotation for p in self.operands} if self.is_rule else {}
        shown = [
            p.replace(annotation=operands.get(name, named(p.annotation)))
            for name, p in self.public.parameters.items()
        ]
        result = "Expr" if self.is_rule else named(self.public.return_annotation)
        return inspect.Signature(shown, return_annotation=result)

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
                try:
                    attributes[parameter.name] = self._attribute(parameter, value)
                except MisuseError as error:
                    self._hint_of_list(error, operands, value)
                    raise
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

    def _hint_of_list(self, error: MisuseError, operands: list[Expr], value: object) -> None:
        """Add the hint that tensors passed one by one are one list, if they are."""
        if len(operands) != 1 or self.operands[0].kinds != (rx.TupleStructInfo,):
            return
        names = [v.name_hint for v in (operands[0], value) if isinstance(v, rx.Var)]
        if len(names) == 2 and not isinstance(operands[0].struct_info, rx.TupleStructInfo):
            hint = f"{self.operands[0].name} is one list, as in [{', '.join(names)}]"
            error.diagnostics = tuple(replace(d, hint=hint) for d in error.diagnostics)

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
            if name not in self.attributes
            or self.attributes[name].default != value
            or repr(value) == "-0.0"  # equals 0.0, and is another number
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
