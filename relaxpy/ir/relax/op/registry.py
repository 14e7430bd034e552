"""The registry of operators: one record each, which namespaces, printer and checks read."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, update_wrapper
from typing import Any, TypeAlias, get_args, get_origin

from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import (
    Diagnostic,
    MisuseError,
    RelaxpyError,
    Span,
    StructInfoError,
    StructInfoTypeError,
    close_names,
    counted,
)
from relaxpy.ir.node import EMPTY_ATTRS, Attrs
from relaxpy.ir.op import Op
from relaxpy.ir.relax.base import set_fields
from relaxpy.ir.relax.context import Context, written_at
from relaxpy.ir.relax.distributed import DTensorStructInfo
from relaxpy.ir.relax.evaluation import evaluated
from relaxpy.ir.relax.nodes import (
    BaseFunc,
    Call,
    Expr,
    ExternFunc,
    ObjectStructInfo,
    PrimValue,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
)
from relaxpy.ir.relax.op.parameter import Parameter
from relaxpy.ir.tir import expr as tir

InferRule: TypeAlias = Callable[[Call, Context], StructInfo]
Operand: TypeAlias = Expr | tir.PrimExpr | bool | int | float | str
Written: TypeAlias = tuple[list[object], dict[str, object]]
Adapt: TypeAlias = Callable[[dict[str, Any]], None]
_NO_CONTEXT = Context()


def _members(annotation: object) -> tuple[object, ...]:
    if get_origin(annotation) in (typing.Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


def _is_info(member: object) -> bool:
    return isinstance(member, type) and issubclass(member, StructInfo)


class OpDef:
    """An operator: its name, how it is called, what it gives, and what else is registered for it.

    The decorated function is either the rule itself, from the infos of operands and the values of
    attributes to the info of the result (its signature is then the operator's), or, beside a rule
    `infer(call, ctx)`, the function that builds the call.
    """

    __name__: str

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        infer: InferRule | None,
        unmake: Callable[[Call], Written] | None,
        *,
        calls_operand: bool,
        literal: bool = False,
        adapt: Adapt | None = None,
    ) -> None:
        self.name = name
        self.op = Op(name)
        self.calls_operand = calls_operand
        self.literal = literal
        self._function = function
        self._infer = infer
        self._unmake = unmake
        self._adapt = adapt
        update_wrapper(self, function)

    @override
    def __repr__(self) -> str:
        return f"<operator {self.name}>"

    @property
    def __signature__(self) -> inspect.Signature:
        """The operator's parameters, as `help` and editors show them."""
        return self._signature

    @property
    def pure(self) -> bool:
        """PU-14: whether calling it has no effect but its result."""
        return self.op.get_attr("FPurity") is True

    @property
    def legalize(self) -> Callable[..., Any] | None:
        """How the operator becomes a PrimFunc, if that is registered (column FLegalize)."""
        return typing.cast("Callable[..., Any] | None", self.op.get_attr("FLegalize"))

    @property
    def gradient(self) -> Callable[..., Any] | None:
        """How gradients pass through the operator, if registered (column FPrimalGradient)."""
        return typing.cast("Callable[..., Any] | None", self.op.get_attr("FPrimalGradient"))

    @property
    def needs_context(self) -> bool:
        """Whether what a call gives depends on more than its operands and attributes."""
        return self._infer is not None or bool(self._injected)

    @cached_property
    def _hints(self) -> dict[str, object]:
        return typing.get_type_hints(self._function)

    @cached_property
    def _injected(self) -> dict[str, type]:
        """Parameters of the rule that receive the call or the context."""
        if self._infer is not None:
            return {}
        found = {name: hint for name, hint in self._hints.items() if hint in (Call, Context)}
        return typing.cast("dict[str, type]", found)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """What the operator takes, in the order of its signature."""
        out = []
        for name, found in inspect.signature(self._function).parameters.items():
            if name in self._injected or name == "span":
                continue
            members = _members(self._hints.get(name, object))
            kinds = tuple(m for m in members if _is_info(m))
            out.append(
                Parameter(
                    name,
                    typing.cast("tuple[type[StructInfo], ...]", kinds),
                    members,
                    found.kind is inspect.Parameter.VAR_POSITIONAL,
                    found.default,
                )
            )
        return tuple(out)

    @cached_property
    def _operands(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.is_operand)

    @cached_property
    def _attributes(self) -> dict[str, Parameter]:
        return {p.name: p for p in self.parameters if not p.is_operand}

    @cached_property
    def _leading(self) -> tuple[str, ...]:
        """The parameters that the rule takes by position: those before `*rest` or `/`."""
        kinds = {n: p.kind for n, p in inspect.signature(self._function).parameters.items()}
        ends = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)
        last = max((k for k, kind in enumerate(kinds.values()) if kind in ends), default=-1)
        return tuple(n for n in list(kinds)[: last + 1] if kinds[n] is not ends[0])

    @cached_property
    def _by_position(self) -> tuple[Parameter, ...]:
        """The parameters that text passes by position: leading operands, all before `*rest`."""
        kinds = inspect.signature(self._function).parameters
        count = 0
        for k, parameter in enumerate(self.parameters):
            if parameter.variadic:
                return self.parameters[: k + 1]
            by_name = kinds[parameter.name].kind is inspect.Parameter.KEYWORD_ONLY
            if count == k and parameter.is_operand and not by_name:
                count += 1
        return self.parameters[:count]

    @cached_property
    def _signature(self) -> inspect.Signature:
        found = inspect.signature(self._function)
        kept = [p for name, p in found.parameters.items() if name not in self._injected]
        return found.replace(parameters=kept)

    @cached_property
    def _names(self) -> tuple[str, ...] | None:
        """The parameters by position, or None where some can be given only so, or only by name."""
        found = self._signature.parameters
        usual = all(p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in found.values())
        return tuple(found) if usual else None

    @cached_property
    def _defaults(self) -> dict[str, object]:
        found = self._signature.parameters.values()
        return {p.name: p.default for p in found if p.default is not inspect.Parameter.empty}

    @user_facing
    def __call__(self, *args: object, **kwargs: object) -> Call:
        """A call of the operator; see `make`."""
        return evaluated(self.make(*args, **kwargs))  # type: ignore[arg-type]

    def make(self, *args: object, span: Span | None = None, **kwargs: object) -> Call:
        """A call of the operator, with its info where those of the operands are known.

        Errors:
            MisuseError (also TypeError): the arguments do not fit the operator's signature.
            StructInfoError: the operator does not take such operands.
        """
        if self._infer is not None:
            with _Named(self.name):
                call = typing.cast("Call", self._bind(args, kwargs))
            call = call if span is None else replace(call, span=span)
            bound: dict[str, Any] = {}
        else:
            call, bound = self._call(args, kwargs, span)
        operands = call.args[1:] if self.calls_operand else call.args
        if any(arg.struct_info is None for arg in operands):
            return call
        callee = call.args[0] if self.calls_operand else None
        if isinstance(callee, BaseFunc) and not isinstance(callee, ExternFunc):
            return call  # the module that the function is to enter knows it by a GlobalVar
        try:
            info = self.infer(call, _NO_CONTEXT)
        except RelaxpyError as error:
            error.about = self._given(call, bound).get(id(error.about), error.about)
            raise
        made = Call(
            call.op, call.args, call.attrs, call.sinfo_args, struct_info=info, span=call.span
        )
        set_fields(made, info_is_derived=True)
        return made

    def _bind(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        try:
            return self._function(*args, **kwargs)
        except TypeError as error:
            if isinstance(error, RelaxpyError):
                raise
            self._check_binds(args, kwargs)
            raise

    def _check_binds(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise MisuseError(str(error)) from None

    def _call(
        self, args: tuple[object, ...], kwargs: dict[str, object], span: Span | None
    ) -> tuple[Call, dict[str, Any]]:
        """The call, and the arguments by name that it was made of."""
        with _Named(self.name):
            bound = self._bound(args, kwargs)
            if self._adapt is not None:
                self._adapt(bound)
            operands: list[Expr] = []
            absent: list[Parameter] = []
            attributes: dict[str, object] = {}
            for parameter in self.parameters:
                value = bound[parameter.name]
                if not parameter.is_operand:
                    attributes[parameter.name] = parameter.attribute(value)
                    continue
                if value is None:
                    absent.append(parameter)
                    continue
                values = value if parameter.variadic else (value,)
                if absent and values:
                    operands += [p.placeholder() for p in absent]
                    absent = []
                operands += map(parameter.operand, values)
            for parameter in absent:
                if parameter.required:
                    parameter.placeholder()
        attrs = Attrs(attributes) if attributes else EMPTY_ATTRS
        return Call(self.op, tuple(operands), attrs, span=span), bound

    def _bound(self, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, Any]:
        """The arguments by the names of the parameters, with the defaults of those left out.

        Errors:
            MisuseError (also TypeError): they do not fit the signature.
        """
        names = self._names
        if names is not None and len(args) <= len(names):
            rest = names[len(args) :]
            if all(name in rest for name in kwargs):
                bound = {**self._defaults, **dict(zip(names, args, strict=False)), **kwargs}
                if len(bound) == len(names):
                    return bound
        try:
            found = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise MisuseError(str(error)) from None
        found.apply_defaults()
        return found.arguments

    def _given(self, call: Call, bound: Mapping[str, Any]) -> dict[int, object]:
        """By the identity of each value in a call what was handed in for it."""
        if not bound:
            return {}
        given = {id(call.attrs[name]): bound[name] for name in self._attributes}
        if not (self._operands and self._operands[-1].variadic):
            named = zip(call.args, self._operands, strict=False)
            given |= {id(a): bound[p.name] for a, p in named}
        return given

    def infer(self, call: Call, ctx: Context) -> StructInfo:
        """DER-35: the info of a call, its operands having theirs; `ctx` may be a BlockBuilder's.

        Errors:
            StructInfoError: the rule refuses it (DER-36); the operand at fault is `about`.
            MisuseError: `ctx` is neither a context nor a BlockBuilder.
        """
        if not isinstance(ctx, Context):
            ctx = _context_of(ctx)
        if self._infer is not None:
            with _Named(self.name, call):
                return self._infer(call, ctx)
        with _Named(self.name, call, ctx):
            arguments = self._arguments(call, ctx)
            info = self._function(*arguments[0], **arguments[1])
        return typing.cast("StructInfo", info)

    def operands(self, call: Call) -> tuple[Expr | None, ...]:
        """The operands of a call by position, None for an optional one that is absent.

        Absent operands at the end are left out.
        """
        named = zip(call.args, self._operands, strict=False)
        found = [None if parameter.is_absent(arg.struct_info) else arg for arg, parameter in named]
        return (*found, *call.args[len(found) :])

    def _arguments(self, call: Call, ctx: Context) -> Written:
        """The positional and keyword arguments of the rule: struct info, attributes, the rest."""
        operands = self._operands
        variadic = bool(operands) and operands[-1].variadic
        required = sum(p.required for p in operands)
        if len(call.args) < required or (len(call.args) > len(operands) and not variadic):
            wanted = counted(required if variadic else len(operands), "operand")
            least = "at least " if variadic else ""
            raise StructInfoTypeError(f"takes {least}{wanted}, found {len(call.args)}")
        named = self._values(call)
        rest: list[object] = []
        for i, arg in enumerate(call.args):
            parameter = operands[min(i, len(operands) - 1)]
            info = ctx.info_of(arg)
            if parameter.is_absent(info):
                continue
            if not isinstance(info, parameter.kinds):
                raise _wrong_kind(parameter, arg, info)
            if isinstance(info, TensorStructInfo) and not _has_its_rank(info):
                raise StructInfoError(
                    f"{parameter.name} has the shape {info.shape} and ndim {info.ndim}",
                    rule="WF-14d",
                    about=arg,
                )
            if parameter.variadic:
                rest.append(info)
            else:
                named[parameter.name] = info
        for name, kind in self._injected.items():
            named[name] = call if kind is Call else ctx
        first = [
            named.pop(name) if name in named else self._defaults[name] for name in self._leading
        ]
        return [*first, *rest], named

    def _values(self, call: Call) -> dict[str, object]:
        """The attributes of a call, each of its type; those left out have their defaults."""
        for name in call.attrs:
            if name not in self._attributes:
                raise StructInfoTypeError(
                    f"has no attribute {name!r}", hint=close_names(name, self._attributes)
                )
        named: dict[str, object] = {}
        for name, parameter in self._attributes.items():
            if name in call.attrs:
                named[name] = parameter.attribute(call.attrs[name])
            elif parameter.required:
                raise StructInfoTypeError(f"the attribute {name} is missing")
            else:
                named[name] = parameter.default
        return named

    def completed(self, call: Call) -> Call:
        """`call`, which may have been built by hand, with every attribute, each of its type."""
        if self._infer is not None:
            return call
        values, known = self._values(call), call.attrs
        if len(values) == len(known) and all(values[name] is known[name] for name in known):
            return call
        attrs = Attrs(values)
        if attrs == known:
            return call
        whole = replace(call, attrs=attrs)
        set_fields(whole, info_is_derived=call.info_is_derived)
        return whole

    def arguments(self, call: Call) -> Written:
        """The positional and keyword arguments of which `make` makes `call` again."""
        if self._unmake is not None:
            return self._unmake(call)
        named: dict[str, object] = {
            name: value
            for name, value in call.attrs.items()
            if name not in self._attributes or self._attributes[name].default != value
        }
        first: list[object] = []
        rest = list(call.args)
        for parameter in self._by_position:
            if parameter.is_operand:
                end = len(rest) if parameter.variadic else 1
                first, rest = first + rest[:end], rest[end:]
            else:
                first.append(named.pop(parameter.name, parameter.default))
        later = [p.name for p in self._operands if p not in self._by_position]
        if len(rest) > len(later):  # the call has too many operands
            return list(call.args), named
        return first, dict(zip(later, rest, strict=False)) | named


def _has_its_rank(info: TensorStructInfo) -> bool:
    return not isinstance(info.shape, ShapeExpr) or len(info.shape.values) == info.ndim


def _wrong_kind(parameter: Parameter, arg: Expr, info: StructInfo) -> StructInfoTypeError:
    vague = isinstance(info, ObjectStructInfo)
    hint = "say what it is with R.match_cast first" if vague else None
    numbers = _as_numbers(arg) if TensorStructInfo in parameter.kinds else None
    if numbers is not None:
        hint = f"for a tensor of these numbers write R.const({numbers}, dtype)"
    if isinstance(info, DTensorStructInfo):
        hint = "call a kernel for tensors on several devices: R.dist.call_tir(..., out_sinfo)"
    return StructInfoTypeError(
        f"{parameter.name} is {parameter.expected()}, found {info}",
        rule="SI-15" if vague else "DER-36",
        span=written_at(arg),
        hint=hint,
        about=arg,
    )


def _as_numbers(arg: Expr) -> str | None:
    """The list of Python that became the tuple `arg`, where its members are literals."""
    fields = arg.fields if isinstance(arg, Tuple) else ()
    scalars = [f.value for f in fields if isinstance(f, PrimValue)]
    literals = [str(v.value) for v in scalars if isinstance(v, tir.ConstExpr)]
    return f"[{', '.join(literals)}]" if fields and len(literals) == len(fields) else None


class _Named:
    """Puts the operator's name before the message of an error raised inside.

    With a call and a context, an error about an info becomes one about the operand that has it.
    """

    __slots__ = ("call", "ctx", "name")

    def __init__(self, name: str, call: Call | None = None, ctx: Context | None = None) -> None:
        self.name = name
        self.call = call
        self.ctx = ctx

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, RelaxpyError):
            return
        about = error.about
        if isinstance(about, StructInfo) and self.call is not None and self.ctx is not None:
            about = _operand_of(about, self.call, self.ctx)
        span = written_at(about) if isinstance(about, Expr) else None
        rule = None if self.call is None else "DER-36"
        error.diagnostics = tuple(_with_name(d, self.name, rule, span) for d in error.diagnostics)
        error.about = about


def _operand_of(info: StructInfo, call: Call, ctx: Context) -> object:
    """The operand of this very info, or the member of a tuple among them; else the info."""
    members = [m for a in call.args if isinstance(a, Tuple) for m in a.fields]
    for operand in (*call.args, *members):
        if ctx.info_of(operand) is info:
            return operand
    for operand in call.args:
        whole = ctx.info_of(operand)
        if isinstance(whole, TupleStructInfo) and any(f is info for f in whole.fields):
            return operand
    return info


def _with_name(found: Diagnostic, name: str, rule: str | None, span: Span | None) -> Diagnostic:
    message = found.message if found.message.startswith(name) else f"{name}: {found.message}"
    return replace(found, message=message, rule=found.rule or rule, span=found.span or span)


_table: dict[str, OpDef] = {}


def register(
    name: str,
    *,
    pure: bool = False,
    infer: InferRule | None = None,
    unmake: Callable[[Call], Written] | None = None,
    legalize: Callable[..., Any] | None = None,
    gradient: Callable[..., Any] | None = None,
    calls_operand: bool = False,
    literal: bool = False,
    adapt: Adapt | None = None,
) -> Callable[[Callable[..., Any]], OpDef]:
    """Enter the decorated function as operator `name` (OP-16).

    Without `infer` the function is the rule: parameters annotated with infos are operands, those
    annotated Call or Context receive the call and its surroundings, all others are attributes. With
    `infer` it builds the call from what users write, and `unmake` is its inverse. An operator that
    says nothing on purity is impure (PU-14). `calls_operand`: the first operand is what is called.
    `literal`: in normal form, a call whose scalar is known is that scalar.
    `adapt` may change the arguments by name, before they are read as operands and attributes.

    Errors:
        MisuseError: the name is taken.
    """

    def enter(function: Callable[..., Any]) -> OpDef:
        if name in _table:
            raise MisuseError(f"operator {name!r} is registered already", rule="OP-16")
        record = OpDef(
            name,
            function,
            infer,
            unmake,
            calls_operand=calls_operand,
            literal=literal,
            adapt=adapt,
        )
        _table[name] = record
        columns = {
            "FPurity": pure,
            "FInferStructInfo": record.infer,
            "FLegalize": legalize,
            "FPrimalGradient": gradient,
        }
        for key, value in columns.items():
            if value is not None:
                record.op.set_attr(key, value)
        return record

    return enter


class _View(Mapping[str, OpDef]):
    """The table as others see it."""

    @override
    def __getitem__(self, name: str) -> OpDef:
        return _table[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(_table)

    @override
    def __len__(self) -> int:
        return len(_table)


_view = _View()


def registered_ops() -> Mapping[str, OpDef]:
    """Every registered operator by its name."""
    return _view


def find(op: Op) -> OpDef | None:
    """The record of `op`, or None if nothing was registered under its name."""
    return _table.get(op.name)


def _context_of(builder: object) -> Context:
    context = getattr(builder, "context", None)
    if isinstance(context, Context):
        return context
    raise MisuseError(f"expected a BlockBuilder, found {type(builder).__name__}", about=builder)


def _for_rules_of_users(call: Call, ctx: Context) -> Context:
    """`ctx`, open: such a rule may ask other rules about calls of variables that it makes up.

    What the call itself takes has to be in scope all the same (DER-3).
    """
    for arg in call.args:
        ctx.info_of(arg)
    return replace(ctx, closed=False)


def infer_op_call(op: Op, call: Call, ctx: Context) -> StructInfo:
    """DER-35, OP-16: what column FInferStructInfo gives for `call`; Object where it is empty.

    Errors:
        StructInfoError: nothing is registered under the name, or the rule refuses the call.
    """
    rule = op.get_attr("FInferStructInfo")
    if rule is not None:
        record = _table.get(op.name)
        if record is None or rule != record.infer:
            ctx = _for_rules_of_users(call, ctx)
        return typing.cast("InferRule", rule)(call, ctx)
    if op.get_attr("FPurity") is None:
        raise StructInfoError(
            f"no operator is registered as {op.name}",
            rule="OP-16",
            span=call.span,
            hint=close_names(op.name, _table),
            about=op,
        )
    return ObjectStructInfo()
