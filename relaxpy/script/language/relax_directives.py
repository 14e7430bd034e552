"""The directives of `R` that are not operators, and the namespaces of operators."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import lru_cache
from typing import Any

from typing_extensions import override

from relaxpy import plugin
from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir import ops as _ops  # noqa: F401  (registers the operators)
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.ops.call import call_packed as _call_packed
from relaxpy.ir.ops.definition.registry import OpDef, registered_ops
from relaxpy.ir.ops.nn.activation import relu6
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir.expr import CALLED_BY_TEXT, ExprLike, PrimExpr
from relaxpy.script.language import records
from relaxpy.script.language.annotations import resolve
from relaxpy.script.language.records import directive
from relaxpy.script.language.wording import unknown_member
from relaxpy.support.entry import user_facing
from relaxpy.support.scopes import setting


@directive
def emit_match_cast(value: object, struct_info: object) -> records.MatchCastForm:
    """Check `value` against a struct info at run time and bind it; the same as `R.match_cast`."""
    return records.MatchCastForm(value, struct_info)


@directive
def emit_var_binding(binding: rx.VarBinding) -> records.EmitForm:
    """Bind the value of a VarBinding object to the name on the left."""
    check_type(binding, rx.VarBinding, "expected a VarBinding")
    return records.EmitForm(binding.value, binding.var.struct_info)


@directive
def emit_te(func: Callable[..., Any], *args: object, **kwargs: object) -> records.TeForm:
    """Call a kernel that computes the tensor expressions that `func` returns for `args`.

    The kernel is added to the module, under `primfunc_name_hint` or the name of `func`.
    """
    if not callable(func):
        raise unexpected(func, "emit_te takes a function")
    return records.TeForm(func, args, kwargs)


def kernel_call(form: records.TeForm, builder: BlockBuilder, names: Container[str]) -> rx.Call:
    """Add the kernel of `form` to the module, under a name not in `names`; return its call.

    Errors:
        MisuseError: the function returns no tensor expressions for its arguments.
    """
    kwargs = dict(form.kwargs)
    hint = kwargs.pop("primfunc_name_hint", None) or kwargs.pop("function_name_hint", None)
    hint = hint or getattr(form.function, "__name__", "te")
    attrs: Any = kwargs.pop("primfunc_attrs", None) or kwargs.pop("function_attrs", None)
    name = free = str(hint).strip("<>")
    count = 0
    taken = {var.name_hint for var in builder.get()} if free in names else ()
    while free in names or (count and free in taken):
        count += 1
        free = f"{name}{count}"
    with setting(
        CALLED_BY_TEXT, False
    ):  # dimensions of tensor expressions are compared structurally
        return builder.call_te(
            form.function, *form.args, primfunc_name_hint=free, primfunc_attrs=attrs, **kwargs
        )


@directive
def dataflow() -> records.DataflowForm:
    """Open a block of bindings without side effects: `with R.dataflow():`."""
    return records.DataflowForm()


@directive
def SeqExpr() -> records.SeqForm:
    """Open a sequence of bindings with its own scope: `with R.SeqExpr():`."""
    return records.SeqForm()


@directive
def output(*variables: rx.Var) -> records.OutputForm:
    """Mark the variables that remain visible after the dataflow block."""
    return records.OutputForm(variables)


@directive
def match_cast(value: object, struct_info: object) -> records.MatchCastForm:
    """Check `value` against a struct info at run time, binding its new shape variables.

    An if or a function, whose value takes statements, is written in the block
    `with R.match_cast(..., struct_info):`.
    """
    return records.MatchCastForm(value, struct_info)


@directive
def func_attr(attrs: Mapping[str, object]) -> records.AttrsForm:
    """Add attributes to the function."""
    return records.AttrsForm("function", records.attributes(attrs))


@directive
def emit(value: object) -> records.EmitForm:
    """Bind `value` to the variable on the left."""
    return records.EmitForm(value)


# --- for an IRBuilder, whose functions have no text of their own


@directive
def func_name(name: str) -> records.BuilderForm:
    """Name the function that an IRBuilder builds."""
    return records.BuilderForm("func_name", (name,))


@directive
def arg(name: str, struct_info: object) -> records.BuilderForm:
    """Add the next parameter of the function that an IRBuilder builds."""
    return records.BuilderForm("arg", (name, struct_info))


@directive
def func_ret_struct_info(ret_sinfo: object) -> records.BuilderForm:
    """Declare the struct info of the result of the function that an IRBuilder builds."""
    return records.BuilderForm("func_ret_struct_info", (ret_sinfo,))


@directive
def func_ret_value(value: object) -> records.BuilderForm:
    """Set the result of the function that an IRBuilder builds."""
    return records.BuilderForm("func_ret_value", (value,))


@directive
def If(condition: object) -> records.BuilderForm:
    """Open a conditional of an IRBuilder, which contains R.Then and R.Else."""
    return records.BuilderForm("If", (condition,))


@directive
def Then() -> records.BuilderForm:
    """Open the branch of an IRBuilder's R.If for a true condition."""
    return records.BuilderForm("Then", ())


@directive
def Else() -> records.BuilderForm:
    """Open the branch of an IRBuilder's R.If for a false condition."""
    return records.BuilderForm("Else", ())


def const(
    value: object, dtype: str | None = None, *, shape: Sequence[int] | None = None
) -> rx.Constant:
    """A tensor literal; without `dtype`, integers are int32 and floats float32.

    `shape` is for shapes that nested lists cannot express, such as (0, 3).
    """
    constant = rx.const(value, dtype)
    if shape is None:
        return constant
    try:
        return rx.Constant(constant.data.reshape(shape))
    except (ValueError, TypeError):
        raise MisuseError(
            f"{constant.data.size} elements have no shape {shape!r:.60}", about=shape
        ) from None


def prim_value(value: ExprLike) -> rx.PrimValue:
    """A scalar."""
    return rx.PrimValue(value)


def string(value: str) -> rx.StringImm:
    """A string."""
    check_type(value, str, "expected a string")
    return rx.StringImm(value)


def dtype(value: str) -> rx.DataTypeImm:
    """A datatype as a value."""
    return rx.DataTypeImm(DataType(value))


def shape(values: Sequence[PrimExpr | int]) -> rx.ShapeExpr:
    """A shape value."""
    if not isinstance(values, (tuple, list)):
        raise unexpected(values, "a shape is a list of dimensions")
    return rx.ShapeExpr(tuple(values))


def make_tuple(*fields: object) -> rx.Tuple:
    """A tuple."""
    return rx.Tuple(tuple(rx.convert_to_expr(field) for field in fields))


def ExternFunc(global_symbol: str, struct_info: object = None) -> rx.ExternFunc:
    """The packed function registered under a name."""
    check_type(global_symbol, str, "a packed function is named by a string")
    return rx.ExternFunc(global_symbol, None if struct_info is None else resolve(struct_info))


def TupleGetItem(tuple_value: object, index: int) -> rx.TupleGetItem:
    """Field `index` of a tuple, taken at run time, whereas `(x, y)[0]` is folded to `x`."""
    return rx.TupleGetItem(rx.convert_to_expr(tuple_value), index)


def call_packed(
    func: rx.Expr | str, *args: Any, sinfo_args: object = (), **attrs: object
) -> rx.Call:
    """A call of a packed function by name; `sinfo_args` is the struct info of the result."""
    return _call_packed(func, *args, sinfo_args=sinfo_args, **attrs)  # type: ignore[arg-type]


class OpSpace:
    """The operators whose names begin with `prefix`; more may be registered later.

    `module` is the namespace whose other names hints mention, too.
    """

    def __init__(self, prefix: str, module: object = None) -> None:
        self._prefix = prefix
        self._module = module

    @property
    def display_name(self) -> str:
        """The name of the namespace in messages."""
        return self._prefix.replace("relax", "R", 1).removesuffix(".")

    @user_facing
    def __getattr__(self, name: str) -> OpDef | OpSpace | Callable[..., rx.Expr]:
        operator = None if name[:1] == "_" else find(self._prefix + name)
        if operator is None:
            raise unknown_member(self._module or self, self.display_name, name)
        return operator

    @override
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return find, (self._prefix.removesuffix("."),)

    def _offers(self, name: str) -> bool:
        """True if there is an operator or a namespace `name`."""
        return find(self._prefix + name) is not None

    def _public_names(self) -> set[str]:
        """The public names of this namespace."""
        return public(self._prefix)

    @override
    def __dir__(self) -> list[str]:
        return sorted(self._public_names())

    @override
    def __repr__(self) -> str:
        return f"<operators {self._prefix}*>"


_COMPOSED: Mapping[str, Callable[..., rx.Expr]] = {"relax.nn.relu6": relu6}
"""Functions in the namespaces of operators that return calls of other operators."""


def find(name: str) -> OpDef | OpSpace | Callable[..., rx.Expr] | None:
    """The operator called `name`, or the namespace of operators with that prefix."""
    found = _find_registered(name)
    if found is not None or ".__" in name:  # of Python, as in hasattr(R.nn, "__all__")
        return found
    return _find_registered(name) if plugin.load("operators") else None


def _find_registered(name: str) -> OpDef | OpSpace | Callable[..., rx.Expr] | None:
    table = registered_ops()
    record = table.get(name) or _COMPOSED.get(name)
    if record is not None:
        return record
    prefix = f"{name}."
    return OpSpace(prefix) if prefix in _prefixes(tuple(table)) else None


@lru_cache(maxsize=1)
def _prefixes(names: tuple[str, ...]) -> frozenset[str]:
    """The prefixes, up to a dot, in the names of operators."""
    components = (name.split(".") for name in names)
    return frozenset(".".join(p[:k]) + "." for p in components for k in range(1, len(p)))


def public(prefix: str) -> set[str]:
    """The first components after `prefix` in the names of operators."""
    start = len(prefix)
    names = (*registered_ops(), *_COMPOSED)
    return {n[start:].split(".")[0] for n in names if n.startswith(prefix)}
