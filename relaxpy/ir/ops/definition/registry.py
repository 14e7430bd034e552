"""The registry of operators, and the functions by which Python calls them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, Unpack

from typing_extensions import override

from relaxpy import plugin
from relaxpy.errors import (
    MisuseError,
    RelaxpyError,
    Span,
    StructInfoError,
    StructInfoTypeError,
    UnknownAttributeError,
    UnknownNameError,
    close_names,
    counted,
    unexpected,
)
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.node import set_fields
from relaxpy.ir.op import Op, load_unlisted, register_op_attr
from relaxpy.ir.op_record import (
    AxesRule,
    CallArguments,
    CallKind,
    Columns,
    Gradient,
    Legalization,
    OpRecord,
    apply_column,
    check_columns,
)
from relaxpy.ir.ops.definition.sharding import infer_distributed
from relaxpy.ir.ops.definition.signature import Named, Parameter, Signature
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import fields_of
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.nodes.expr import evaluated
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.relax.relations.shape_vars import simplified_shapes
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

F = TypeVar("F", bound=Callable[..., Any])
Operand: TypeAlias = rx.Expr | tir.PrimExpr | bool | int | float | str
_NO_CONTEXT = Context()


_OTHER_KEYWORDS = {"out_ty": "out_sinfo", "type_args": "sinfo_args", "ty_args": "sinfo_args"}


def renamed(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Rename keywords of older and newer versions to the current ones (LEG-12)."""
    if kwargs.keys().isdisjoint(_OTHER_KEYWORDS):
        return kwargs
    return {_OTHER_KEYWORDS.get(name, name): value for name, value in kwargs.items()}


class OpDef:
    """An operator that Python calls; `record` has everything that is registered for it."""

    __name__: str

    def __init__(self, declared: OpRecord) -> None:
        assert declared.function is not None
        self.name = declared.name
        self.op = Op.unloaded(declared.name)
        self._infer = declared.infer
        self.__name__ = self.__qualname__ = declared.name.rpartition(".")[2]
        self.__doc__ = declared.doc
        self.__wrapped__ = declared.function
        self.__module__ = declared.function.__module__

    @override
    def __repr__(self) -> str:
        return f"<operator {self.name}>"

    @property
    def display_name(self) -> str:
        """The name that programs write."""
        return f"R.{self.name.removeprefix('relax.')}"

    @override
    def __reduce__(self) -> tuple[Callable[[Op], OpDef | None], tuple[Op]]:
        return find, (self.op,)

    @property
    def __signature__(self) -> inspect.Signature:
        """The operator's parameters, as `inspect` and editors show them."""
        return self.signature.of_calls

    @late_property
    def signature(self) -> Signature:
        """The parameters, which the parser, the printer and checks read."""
        return Signature(self.__wrapped__, is_rule=self._infer is None)

    @property
    def record(self) -> OpRecord:
        """The record, including later extensions."""
        return self.op.record

    @property
    def pure(self) -> bool:
        """PU-14: whether a call has no effect but its result."""
        return self.record.pure is True

    @property
    def legalize(self) -> Legalization | None:
        """The registered legalisation of a call to a kernel, or None."""
        return self.record.legalize

    @property
    def gradient(self) -> Gradient | None:
        """The registered gradient rule, or None."""
        return self.record.gradient

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in the order of the signature."""
        return self.signature.parameters

    @property
    def needs_context(self) -> bool:
        """True if the struct info of a call depends on more than its operands and attributes."""
        return not self.signature.is_rule or Context in self.signature.injected.values()

    @user_facing
    def __call__(self, *args: object, **kwargs: object) -> rx.Call:
        """Build a call of the operator; see `make`."""
        return evaluated(self.make(*args, **kwargs))  # type: ignore[arg-type]

    def make(self, *args: object, span: Span | None = None, **kwargs: object) -> rx.Call:
        """Build a call of the operator, with its struct info if that of the operands is known.

        Errors:
            MisuseError (also TypeError): the arguments do not fit the operator's signature.
            StructInfoError: the operator does not take such operands.
        """
        call, bound = self._call(args, renamed(kwargs), span)
        kind, operands, callee = self.record.calls, call.args, None
        if kind is not None and kind.callee_is_operand:
            callee, operands = operands[0], operands[1:]
        if any(arg.struct_info is None for arg in operands):
            return call
        if isinstance(callee, rx.BaseFunc) and not isinstance(callee, rx.ExternFunc):
            return call  # a module refers to this function by a GlobalVar
        if isinstance(callee, rx.GlobalVar) and kind is not None and kind.takes_packed:
            return call  # the module decides whether this is a packed function
        try:
            sinfo = self.infer(call, _NO_CONTEXT)
        except RelaxpyError as error:
            error.about = self._arguments_by_value(call, bound).get(id(error.about), error.about)
            raise
        result = rx.Call(
            call.op, call.args, call.attrs, call.sinfo_args, struct_info=sinfo, span=call.span
        )
        set_fields(result, sinfo_is_derived=True)
        return result

    def _call(
        self, args: tuple[object, ...], kwargs: dict[str, object], span: Span | None
    ) -> tuple[rx.Call, dict[str, Any]]:
        """Build the call; also return the arguments by name, unless `function` built it."""
        with Named(self.name):
            if not self.signature.is_rule:
                call = self._built(args, kwargs)
                return (call if span is None else replace(call, span=span)), {}
            bound = self.signature.bound(args, kwargs)
            if self.record.adapt is not None:
                self.record.adapt(bound)
            operands, attrs = self.signature.divided(bound)
            variant = self.record.variant(bound) if self.record.variant is not None else None
        return rx.Call(Op(variant) if variant else self.op, operands, attrs, span=span), bound

    def _built(self, args: tuple[object, ...], kwargs: dict[str, object]) -> rx.Call:
        try:
            return typing.cast("rx.Call", self.signature.function(*args, **kwargs))
        except TypeError as error:
            if not isinstance(error, RelaxpyError):
                self.signature.bound(args, kwargs)
            raise

    def _arguments_by_value(self, call: rx.Call, bound: Mapping[str, Any]) -> dict[int, object]:
        """Map the identity of each operand and attribute to the argument that it was built from."""
        if not bound:
            return {}
        result = {id(call.attrs[name]): bound[name] for name in self.signature.attributes}
        if not self.signature.is_variadic:
            named = zip(call.args, self.signature.operands, strict=False)
            result |= {id(operand): bound[p.name] for operand, p in named}
        return result

    def infer(self, call: rx.Call, ctx: Context) -> rx.StructInfo:
        """Infer the struct info of a call (DER-35); `ctx` is a context or a BlockBuilder.

        Errors:
            StructInfoError: the rule refuses it (DER-36); the operand at fault is `about`.
            MisuseError: `ctx` is neither a context nor a BlockBuilder.
        """
        if not isinstance(ctx, Context):
            ctx = _context_of(ctx)
        if self._infer is not None:
            with Named(self.name, call):
                return _inferred(self._infer(call, ctx), self._infer)
        with Named(self.name, call, ctx):
            try:
                args, named = self.signature.rule_arguments(call, ctx)
            except StructInfoTypeError:
                if self.signature.is_variadic or not _is_distributed(call, ctx):
                    raise
                return self._infer_distributed(self.record.axes, call, ctx)
            sinfo = self.signature.function(*args, **named)
            sinfo = _inferred(sinfo, self.signature.function)
            if call.sinfo_args:
                return sinfo
            return simplified_shapes(sinfo, ctx.sizes, lambda: map(ctx.sinfo_of, call.args))

    def _infer_distributed(
        self, rule: AxesRule | None, call: rx.Call, ctx: Context
    ) -> rx.StructInfo:
        """The struct info of a call some operands of which are distributed."""
        whole = replace(ctx, closed=False)
        sinfos = [ctx.sinfo_of(arg) for arg in call.args]
        operands = self.signature.operands[: len(sinfos)]  # the last ones may be left out
        names = [parameter.name for parameter in operands]
        call = self.signature.completed(call)
        return infer_distributed(lambda new: self.infer(new, whole), rule, call, sinfos, names)

    def operand_gradients(
        self, var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
    ) -> tuple[rx.Expr, ...]:
        """The gradient of each operand of `call`, from that of its result `var`.

        `builder` receives the bindings that the rule of the operator emits.

        Errors:
            MisuseError: the operator has no gradient, or its rule does not return one expression
                for each operand.
        """
        rule = self.record.gradient
        if rule is None:
            raise MisuseError(f"{self.name} has no gradient", about=self)
        result = apply_column(
            self.name, "gradient", rule, var=var, call=call, gradient=gradient, builder=builder
        )
        is_list = isinstance(result, (list, tuple)) and len(result) == len(call.args)
        if not is_list or not all(isinstance(grad, rx.Expr) for grad in result):
            raise MisuseError(
                f"the gradient of {self.name} returns a list of one expression for each of "
                f"{counted(len(call.args), 'operand')}, found {result!r:.80}",
                hint="relax.op.grad.no_grad(operand) is that of an operand without a gradient",
                about=result,
            )
        return tuple(result)

    def implement(self, function: F) -> F:
        """Register the decorated function as the implementation on run-time values."""
        self.op.extend(runtime=function)
        return function

    def operands(self, call: rx.Call) -> tuple[rx.Expr | None, ...]:
        """The operands of a call by position, None for an optional one that is absent.

        Absent operands at the end are omitted.
        """
        return self.signature.present(call)

    def arguments(self, call: rx.Call) -> CallArguments:
        """The positional and keyword arguments with which `make` rebuilds `call`."""
        if self.record.unmake is not None:
            return self.record.unmake(call)
        if self.signature.is_rule:
            return self.signature.call_arguments(call)
        return _written(call, self.record.calls)


def _written(call: rx.Call, kind: CallKind | None) -> CallArguments:
    """The arguments of an operator that builds its calls: operands, attributes, struct info."""
    args: list[object] = list(call.args)
    named: dict[str, object] = dict(call.attrs)
    if kind is not None and kind.callee_is_operand and isinstance(callee := args[0], rx.ExternFunc):
        args[0] = callee.global_symbol
    if kind is not None and kind.has_outputs:
        [out] = call.sinfo_args
        fields = fields_of(out)
        named["out_sinfo"] = out if len(fields) == 1 else list(fields)
        if len(args) > 2:
            named["tir_vars"] = args[2]
        return [args[0], args[1]], named
    if call.sinfo_args:
        named["sinfo_args"] = list(call.sinfo_args)
    return args, named


_table: dict[str, OpDef] = {}
"""The operators that are registered already."""


class _Operators(Mapping[str, OpDef]):
    """The operators of all families, each of which is loaded for the first of its operators."""

    def __init__(self) -> None:
        self._names = dict.fromkeys(Op.modules)

    @override
    def __getitem__(self, name: str) -> OpDef:
        Op.load(name)
        return _table[name]

    @override
    def __contains__(self, name: object) -> bool:
        return name in _table or name in Op.modules

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._names | dict.fromkeys(_table))

    @override
    def __len__(self) -> int:
        return len(self._names | _table)


_operators: Final = _Operators()


def enter(record: OpRecord) -> OpDef:
    """Register an operator (OP-16).

    An operator without a declared purity is impure (PU-14), and one without a declared precision
    policy is never computed in a narrower datatype. The rule is completed here, before the record
    is visible.

    Errors:
        MisuseError: the name is taken, or the rule is not a function.
    """
    if not callable(record.function):
        raise MisuseError(f"the rule of {record.name} is a function, found {record.function!r:.60}")
    if not record.is_of_relaxpy:
        Op.load(record.name)
    present = _table.get(record.name)
    if present is not None and not _replaces(record.function, present.record):
        raise _taken(present)
    definition = _table[record.name] = OpDef(record)
    policy = 2 if record.precision_policy is None else record.precision_policy
    set_fields(record, infer=definition.infer, pure=record.pure is True, precision_policy=policy)
    definition.op.enter(record)
    return definition


@user_facing
def register(name: str, **columns: Unpack[Columns]) -> Callable[[Callable[..., Any]], OpDef]:
    """Register the decorated function as operator `name`; `OpRecord` documents the columns.

    Without `infer` the function is the rule: parameters annotated with struct info are operands,
    those annotated Call or Context receive the call and its context, all others are attributes.
    With `infer` it builds the call from the arguments. A function that is defined again, as by
    running a notebook cell twice, replaces the earlier one.

    Errors:
        MisuseError (also TypeError): the name is taken or not a dotted name, or a column does not
            exist or has another type.
    """
    if not isinstance(name, str) or not all(
        component.isidentifier() for component in name.split(".")
    ):
        raise unexpected(
            name,
            "an operator is named as in 'relax.name'",
            hint='write @relax.op.register("relax.name")',
        )
    check_columns(columns)

    @user_facing
    def decorated(function: Callable[..., Any]) -> OpDef:
        return enter(OpRecord(name, function, getattr(function, "__doc__", None) or "", **columns))

    return decorated


def register_gradient(op_name: str, fgradient: Gradient | None = None, level: int = 10) -> Any:
    """Set the gradient of the operator `op_name`; without one, return a decorator.

    A gradient that was set at a higher level is kept.
    """
    return register_op_attr(op_name, "FPrimalGradient", fgradient, level)


@user_facing
def unregister(name: str) -> None:
    """Remove an operator that a user registered, with all of its extensions.

    Errors:
        UnknownNameError (also ValueError, KeyError): there is none of this name.
        MisuseError: it belongs to relaxpy.
    """
    definition = _operators.get(name)
    if definition is None:
        raise UnknownNameError(
            f"no operator is registered as {name!r:.60}",
            rule="OP-16",
            hint=close_names(str(name), _operators),
            about=name,
        )
    if definition.record.is_of_relaxpy:
        raise MisuseError(f"operator {name} belongs to relaxpy", about=name)
    del _table[name]
    definition.op.forget()


def _replaces(function: object, present: OpRecord) -> bool:
    """True if `function` is a redefinition of the function in the record.

    That of a family is one where its first import was interrupted.
    """
    names = (_full_name(function), _full_name(present.function))
    return None not in names and names[0] == names[1]


def _full_name(function: object) -> str | None:
    """The module and qualified name of a function, if it has a name."""
    name = getattr(function, "__qualname__", "<lambda>")
    return None if name.endswith("<lambda>") else f"{getattr(function, '__module__', '')}.{name}"


def _taken(present: OpDef) -> MisuseError:
    name, record = present.name, present.record
    if record.is_of_relaxpy:
        return MisuseError(
            f"operator {name} is registered already, by relaxpy",
            rule="OP-16",
            hint="choose another name, or replace columns of it: "
            f'relaxpy.ir.Op.get("{name}").extend(legalize=...)',
            about=name,
        )
    function = _full_name(record.function) or "a function without a name"
    return MisuseError(
        f"operator {name} is registered already, by {function}",
        rule="OP-16",
        hint=f'choose another name, or free it: relax.op.unregister("{name}")',
        about=name,
    )


def _is_distributed(call: rx.Call, ctx: Context) -> bool:
    """True if an operand is a distributed tensor."""
    return any(isinstance(ctx.sinfo_of(arg), DTensorStructInfo) for arg in call.args)


def _inferred(sinfo: object, rule: Callable[..., Any]) -> rx.StructInfo:
    """The result of a rule. Errors: MisuseError if it is not struct info."""
    if isinstance(sinfo, rx.StructInfo):
        return sinfo
    name = getattr(rule, "__name__", "")
    raise unexpected(
        sinfo,
        f"the struct info rule {name} returns struct info",
        rule="DER-35",
        hint='return the struct info of the result: relax.TensorStructInfo(shape, "float32")',
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """The records of operators that share a rule; `doc` has {} for the meaning of each.

    `kernel` returns the legalisation for the last component of the name; a row may replace any
    column.
    """

    rule: Callable[..., rx.StructInfo]
    doc: str
    kernel: Callable[[str], Legalization]
    columns: Columns

    def __call__(self, name: str, meaning: str, **columns: Unpack[Columns]) -> OpRecord:
        """The record of the operator `relax.name`."""
        kernel = self.kernel(name.rpartition(".")[2])
        shared = Columns(pure=True, legalize=kernel) | self.columns
        return OpRecord(f"relax.{name}", self.rule, self.doc.format(meaning), **(shared | columns))


def rows(
    rule: Callable[..., rx.StructInfo],
    doc: str,
    kernel: Callable[[str], Legalization],
    **columns: Unpack[Columns],
) -> Rows:
    """The records of operators that also share these columns."""
    return Rows(rule, doc, kernel, columns)


def family(*records: OpRecord) -> dict[str, OpDef]:
    """Register operators that differ in a few columns; return them by the last part of the name."""
    return {record.name.rpartition(".")[2]: enter(record) for record in records}


def registered_ops() -> Mapping[str, OpDef]:
    """All registered operators by name."""
    load_unlisted()
    return _operators


def find(op: Op) -> OpDef | None:
    """The definition registered under the name of `op`, or None."""
    return _table.get(op.name)


def with_all_attributes(call: rx.Call) -> rx.Call:
    """The call, with the defaults of attributes that it leaves out."""
    operator = find(call.op) if isinstance(call.op, Op) else None
    return call if operator is None else operator.signature.completed(call)


class Namespace:
    """The registered operators whose names begin with `prefix`, as attributes.

    Rules use it to build calls of operators without importing their modules.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        """The operator of this name, or the namespace of this name.

        Errors:
            AttributeError: there is none.
        """
        full = f"{self._prefix}.{name}"
        found = _member(full)
        if found is None and not name.startswith("_"):
            load_unlisted()
            plugin.load("operators")
            found = _member(full)
        if found is not None:
            return found
        message = f"there is no operator {full}"
        if name.startswith("_"):
            raise AttributeError(message)
        raise UnknownAttributeError(message, hint=close_names(name, dir(self)), about=name)

    @override
    def __dir__(self) -> list[str]:
        """The names of operators in this namespace, without those nested deeper."""
        names = (key.removeprefix(f"{self._prefix}.") for key in _operators if self._owns(key))
        return sorted(name for name in names if "." not in name)

    def _owns(self, key: str) -> bool:
        return key.startswith(f"{self._prefix}.")


def _member(full: str) -> OpDef | Namespace | None:
    if full in _operators:
        return _operators[full]
    begins = methodcaller("startswith", f"{full}.")
    return Namespace(full) if any(map(begins, _operators)) else None


R = Namespace("relax")
"""All operators of Relax: `R.add`, `R.nn.relu`."""


def _context_of(builder: object) -> Context:
    context = getattr(builder, "context", None)
    if isinstance(context, Context):
        return context
    raise MisuseError(f"expected a BlockBuilder, found {type(builder).__name__}", about=builder)


def _for_rules_of_users(call: rx.Call, ctx: Context) -> Context:
    """Open `ctx`: such a rule may infer calls over variables that it creates.

    The operands of the call itself must still be in scope (DER-3).
    """
    for arg in call.args:
        ctx.sinfo_of(arg)
    return replace(ctx, closed=False)


def infer_op_call(op: Op, call: rx.Call, ctx: Context) -> rx.StructInfo:
    """DER-35, OP-16: the struct info of `call` by the rule of `op`; Object where there is none.

    Errors:
        StructInfoError: nothing is registered under the name, or the rule refuses the call.
    """
    rule = op.record.infer
    if rule is not None:
        definition = _table.get(op.name)
        if definition is None or rule != definition.infer:
            return _inferred(rule(call, _for_rules_of_users(call, ctx)), rule)
        return rule(call, ctx)
    if op.record.pure is None:
        raise StructInfoError(
            f"no operator is registered as {op.name}",
            rule="OP-16",
            span=call.span,
            hint=close_names(op.name, _operators),
            about=op,
        )
    return rx.ObjectStructInfo()
