"""Tools for importers and passes: operands of `call_tir`, struct info, shapes, kinds of nodes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from functools import wraps
from inspect import Parameter
from types import UnionType
from typing import Any, ParamSpec, TypeVar, Union, cast, get_args, get_origin

from relaxpy.errors import (
    MisuseError,
    RelaxpyError,
    Source,
    StructInfoTypeError,
    UnknownNameError,
    check_type,
    close_names,
    unexpected,
)
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.ops.misc import shape_of
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.infer import apply_signature
from relaxpy.ir.relax.nodes import Expr, ShapeExpr, StructInfo, TensorStructInfo, as_struct_info
from relaxpy.ir.relax.nodes.static_type import TypeKind, erase_struct_info, wrap_type
from relaxpy.ir.relax.relations import shape_vars
from relaxpy.ir.relax.relations.compatibility import is_base_of, struct_info_glb, struct_info_lca
from relaxpy.ir.serialize import KINDS
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing

P = ParamSpec("P")
R = TypeVar("R")


@user_facing
def gen_call_tir_inputs(
    func: Callable[..., Any], *args: object, **kwargs: object
) -> tuple[PrimFunc, list[rx.Expr], list[rx.StructInfo], rx.ShapeExpr | None]:
    """The operands of the `call_tir` that computes the tensor expressions `func(*args)`.

    These are the kernel, the tensors that it reads, the struct infos of those that it writes, and
    the shape variables that no buffer determines. `primfunc_attrs` are attributes of the kernel;
    all other arguments are passed to `func`.

    Errors:
        MisuseError (also TypeError): as for `BlockBuilder.call_te`.
    """
    builder = BlockBuilder()
    call = builder.call_te(func, *args, **kwargs)  # type: ignore[arg-type]
    gvar, operands, *shape = call.args
    (sinfo,) = call.sinfo_args
    assert isinstance(gvar, rx.GlobalVar)
    assert isinstance(operands, rx.Tuple)
    kernel = builder.get()[gvar]
    assert isinstance(kernel, PrimFunc)
    outputs = list(sinfo.fields) if isinstance(sinfo, rx.TupleStructInfo) else [sinfo]
    return kernel, list(operands.fields), outputs, cast("rx.ShapeExpr", shape[0]) if shape else None


def extern(name: str, struct_info: rx.FuncStructInfo | None = None) -> rx.ExternFunc:
    """The packed function that is registered under a name."""
    return rx.ExternFunc(name, struct_info)


class ArgsConverter:
    """Decorators of functions on expressions, which convert arguments that are Python values.

    The name of a starred parameter means all of its arguments. None stays None if the annotation
    of the parameter allows it.

    Errors:
        MisuseError (also TypeError): an argument cannot be converted; the message names it.
    """

    def to_expr(self, *names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Convert the named arguments to expressions."""
        return _converting(names, rx.convert_to_expr)

    def to_optional_expr(self, *names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Convert the named arguments to expressions, unless they are None."""
        return _converting(names, _or_none(rx.convert_to_expr))

    def to_list_expr(self, *names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Convert the named arguments to lists of expressions."""
        return _converting(names, _as_list)

    def to_optional_list_expr(self, *names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Convert the named arguments to lists of expressions, unless they are None."""
        return _converting(names, _or_none(_as_list))

    def auto(self, function: Callable[P, R]) -> Callable[P, R]:
        """Convert the arguments annotated as `Expr` or `list[Expr]`, or as one of these or None."""
        kinds: dict[str, Callable[[object], object]] = {}
        for name, param in inspect.signature(function, eval_str=True).parameters.items():
            rest = _members(param.annotation) - {type(None)}
            if rest == {rx.Expr}:
                kinds[name] = rx.convert_to_expr
            elif len(rest) == 1 and _is_list_of_expr(*rest):
                kinds[name] = _as_list
        return _with_conversions(function, kinds)


args_converter = ArgsConverter()


def _or_none(convert: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: None if value is None else convert(value)


def _members(annotation: object) -> set[object]:
    """The types of a union, or the annotation itself."""
    if get_origin(annotation) in (Union, UnionType):
        return set(get_args(annotation))
    return {annotation}


def _is_list_of_expr(kind: object) -> bool:
    return get_origin(kind) is list and get_args(kind) == (rx.Expr,)


def _as_list(value: object) -> list[rx.Expr]:
    if not isinstance(value, (list, tuple)):
        raise MisuseError(
            f"expected a list of expressions, found {type(value).__name__}", about=value
        )
    return [rx.convert_to_expr(v) for v in value]


def _converting(
    names: tuple[str, ...], convert: Callable[[object], object]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known = inspect.signature(function).parameters
        for name in names:
            if name not in known:
                raise MisuseError(f"{function.__name__} has no parameter {name}")
        return _with_conversions(function, dict.fromkeys(names, convert))

    return decorate


def _with_conversions(
    function: Callable[P, R], kinds: dict[str, Callable[[object], object]]
) -> Callable[P, R]:
    signature = inspect.signature(function, eval_str=True)
    for name in kinds:
        if type(None) in _members(signature.parameters[name].annotation):
            kinds = {**kinds, name: _or_none(kinds[name])}

    @wraps(function)
    def converted(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        for name, convert in kinds.items():
            if name not in bound.arguments:
                continue
            value: Any = bound.arguments[name]
            match signature.parameters[name].kind:
                case Parameter.VAR_POSITIONAL:
                    value = tuple(_converted(name, convert, v) for v in value)
                case Parameter.VAR_KEYWORD:
                    value = {key: _converted(key, convert, v) for key, v in value.items()}
                case _:
                    value = _converted(name, convert, value)
            bound.arguments[name] = value
        return function(*bound.args, **bound.kwargs)

    return converted


def _converted(name: str, convert: Callable[[object], object], value: object) -> object:
    try:
        return convert(value)
    except MisuseError as error:
        raise MisuseError(f"argument {name}: {error}", about=error.about) from None


I = TypeVar("I", bound=rx.StructInfo)  # noqa: E741


@user_facing
def derive_call_ret_struct_info(
    func_sinfo: rx.FuncStructInfo, call: rx.Call, ctx: BlockBuilder
) -> rx.StructInfo:
    """The struct info of `call` if its callee has the struct info `func_sinfo`.

    Errors:
        StructInfoError: the arguments do not fit the parameters (DER-39, DER-40, DER-41).
        MisuseError (also TypeError): an argument is of another kind.
    """
    check_type(func_sinfo, rx.FuncStructInfo, "expected a FuncStructInfo")
    if not isinstance(call, rx.Call):
        raise MisuseError(f"expected a call, found {type(call).__name__}", about=call)
    if not isinstance(ctx, BlockBuilder):
        raise MisuseError(f"expected a BlockBuilder, found {type(ctx).__name__}", about=ctx)
    return apply_signature(
        shape_vars.alpha_rename(func_sinfo, ctx.context.shape_vars), call, ctx.context
    )


@user_facing
def erase_to_well_defined(
    sinfo: I,
    shape_var_map: Mapping[tir.Var, tir.PrimExpr | int] | Collection[tir.Var] | None = None,
    var_map: Mapping[rx.Var, rx.Expr] | Collection[rx.Var] | None = None,
) -> I:
    """Replace the free variables of `sinfo` by their images.

    Shapes and values that mention a variable without an image are erased; rank and datatype stay. A
    collection of variables means those in scope, which are their own images.

    Rule:
        ERA-1, ERA-2, ERA-3, ERA-4, ERA-5, ERA-6, ERA-7, ERA-8, ERA-9, for variables without image.
    Errors:
        MisuseError (also TypeError): a key is not a variable, or an image not an expression.
    """
    sinfo = cast("I", rx.as_struct_info(sinfo))
    sizes = {
        var: image if isinstance(image, tir.PrimExpr) else ops.const(image, INT64)
        for var, image in _images(shape_var_map, tir.Var, (tir.PrimExpr, int)).items()
    }
    variables = _images(var_map, rx.Var, rx.Expr)
    erased = shape_vars.erase_to_well_defined(sinfo, variables, sizes)
    return shape_vars.substitute_info(_with_shapes(erased, variables), sizes)


def _images(argument: object, kind: type, images: type | tuple[type, ...]) -> dict[Any, Any]:
    """The images of variables of this kind; in a collection each is its own image."""
    if argument is None:
        return {}
    if isinstance(argument, (list, tuple, set, frozenset)):
        argument = {var: var for var in argument}
    if not isinstance(argument, Mapping):
        raise unexpected(argument, "expected variables or a table of their images")
    for var, image in argument.items():
        if not isinstance(var, kind) or not isinstance(image, images):
            wrong = var if not isinstance(var, kind) else image
            raise MisuseError(
                f"expected variables and their images, found {wrong!r:.60}", about=argument
            )
    return dict(argument)


def _with_shapes(sinfo: I, variables: Mapping[rx.Var, rx.Expr]) -> I:
    """Replace the variables that are shapes of tensors by their images."""
    if isinstance(sinfo, rx.TensorStructInfo) and isinstance(sinfo.shape, rx.Var):
        image = variables.get(sinfo.shape, sinfo.shape)
        return sinfo if image is sinfo.shape else cast("I", replace(sinfo, shape=image))
    return shape_vars.map_nested(lambda nested: _with_shapes(nested, variables), sinfo)


@user_facing
def is_subtype(sub: TypeKind, base: TypeKind) -> bool:
    """True if `sub <: base`.

    Rule:
        TYP-7, TYP-8, TYP-9, TYP-10, TYP-11, TYP-12.
    Errors:
        MisuseError (also TypeError): an operand is not a type.
    """
    return is_base_of(wrap_type(base), wrap_type(sub))


@user_facing
def find_lub(a: TypeKind, b: TypeKind) -> TypeKind:
    """The least upper bound.

    Rule:
        TYP-13, TYP-14.
    Errors:
        MisuseError (also TypeError): an operand is not a type.
    """
    return erase_struct_info(struct_info_lca(wrap_type(a), wrap_type(b)))


@user_facing
def find_glb(a: TypeKind, b: TypeKind) -> TypeKind | None:
    """The greatest lower bound, or None if there is none.

    Rule:
        TYP-15, TYP-16.
    Errors:
        MisuseError (also TypeError): an operand is not a type.
    """
    bound = struct_info_glb(wrap_type(a), wrap_type(b))
    return None if bound is None else erase_struct_info(bound)


def require_subtype(actual: TypeKind, expected: TypeKind) -> None:
    """Check that a value of type `actual` can be used as an `expected`.

    Rule:
        TYP-17, TYP-18.
    Errors:
        StructInfoTypeError: it cannot; the hint is a cast if `actual` is the wider type.
    """
    if is_subtype(actual, expected):
        return
    hint = None
    if is_subtype(expected, actual):
        hint = f"check it at run time: R.match_cast(value, {expected})"
    raise StructInfoTypeError(f"{actual} is not {expected}", rule="TYP-18", hint=hint)


def make_shape(shape: Sequence[tir.ExprLike]) -> ShapeExpr:
    """The shape value with these members.

    Errors:
        MisuseError (also TypeError, ValueError): `shape` is not a list or tuple of integers.
    """
    if not isinstance(shape, (list, tuple)):
        raise unexpected(shape, "a shape is a list or tuple of dimensions")
    return ShapeExpr(tuple(shape))


def get_shape_of(expr: Expr) -> Expr:
    """The shape of a tensor from its struct info, or else a call of `relax.shape_of`.

    Errors:
        StructInfoTypeError: `expr` is not known to be a tensor.
    """
    sinfo = expr.struct_info if isinstance(expr, Expr) else type(expr).__name__
    if isinstance(sinfo, TensorStructInfo):
        return sinfo.shape if sinfo.shape is not None else shape_of(expr)
    raise StructInfoTypeError(
        f"expected a tensor, found {sinfo}", span=getattr(expr, "span", None), about=expr
    )


def update_struct_info(expr: Expr, struct_info: StructInfo) -> None:
    """Set the struct info of `expr`, which was built by hand and is not used yet.

    Other code relies on expressions not to change. To change the struct info of an expression that
    has one, build another expression by `with_struct_info`.

    Errors:
        MisuseError (also TypeError, ValueError): it has another struct info, or cannot have any.
    """
    if not isinstance(expr, Expr) or hasattr(expr, "with_fields"):
        raise MisuseError(f"a {type(expr).__name__} takes no struct info", about=expr)
    sinfo = as_struct_info(struct_info)
    if expr.struct_info is not None and expr.struct_info != sinfo:
        raise MisuseError(
            f"the expression is known to be {expr.struct_info} already",
            hint="build another one: expr.with_struct_info(...)",
            about=expr,
        )
    object.__setattr__(expr, "struct_info", sinfo)
    if hasattr(expr, "_nodes"):
        object.__delattr__(expr, "_nodes")  # which were those of its fields before


@user_facing
def make_node(type_key: str, **fields: object) -> Node | Attrs:
    """Build a node of the kind that is saved as `type_key`, or Attrs for "ir.DictAttrs".

    Keys may differ in the words before the last, such as TVM's "ir.IntImm" and "relax.expr.Var".

    Errors:
        UnknownNameError (also ValueError): there is no such kind.
        MisuseError: the kind has other fields.
    """
    words = type_key.split(".") if isinstance(type_key, str) else [""]
    if words[-1] == "DictAttrs":
        return Attrs(fields)
    ends = [name for name in KINDS if name.rpartition(".")[2] == words[-1]]
    own = [name for name in ends if name.startswith(f"{words[0]}.")]
    kind = KINDS[(own or ends)[0]] if len(own) == 1 or len(ends) == 1 else None
    if kind is None:
        raise UnknownNameError(
            f"there is no kind of node {type_key!r:.60}",
            hint=close_names(str(type_key), KINDS),
            about=type_key,
        )
    try:
        return kind(**fields)
    except TypeError as error:
        if isinstance(error, RelaxpyError):
            raise
        raise MisuseError(f"cannot build a {type_key}: {error}", about=type_key) from None


@dataclass(frozen=True, slots=True, eq=False)
class SourceName(Source):
    """The source of spans that are built by hand, without a program."""

    text: str = field(default="", repr=False)
