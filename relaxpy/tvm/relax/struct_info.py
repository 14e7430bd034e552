"""TVM's interface to the derivation of calls and to erasure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar, cast

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.infer import apply_signature
from relaxpy.ir.relax.relations import shape_vars
from relaxpy.ir.relax.relations.shape_vars import alpha_rename, map_nested, substitute_info
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing

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
    return apply_signature(alpha_rename(func_sinfo, ctx.context.shape_vars), call, ctx.context)


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
    return substitute_info(_with_shapes(erased, variables), sizes)


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
    return map_nested(lambda nested: _with_shapes(nested, variables), sinfo)
