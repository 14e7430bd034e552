"""What becomes of an info at a call, and where variables leave scope, as TVM's tools ask for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.infer import apply_signature
from relaxpy.ir.relax.expect import expect
from relaxpy.ir.relax.nodes import (
    Call,
    Expr,
    FuncStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    Var,
)
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.relations import erase
from relaxpy.ir.relax.relations.shape_vars import alpha_rename, map_nested, substitute_info
from relaxpy.ir.tir import expr as tir, ops

I = TypeVar("I", bound=StructInfo)  # noqa: E741


@user_facing
def derive_call_ret_struct_info(
    func_sinfo: FuncStructInfo, call: Call, ctx: BlockBuilder
) -> StructInfo:
    """The info of `call` where what it calls has the info `func_sinfo`.

    Errors:
        StructInfoError: the arguments do not fit (DER-39, DER-40, DER-41).
        MisuseError (also TypeError): an argument is of another kind.
    """
    if not isinstance(func_sinfo, FuncStructInfo):
        raise MisuseError(f"expected a Func info, found {func_sinfo!r:.60}", about=func_sinfo)
    if not isinstance(call, Call):
        raise MisuseError(f"expected a call, found {type(call).__name__}", about=call)
    if not isinstance(ctx, BlockBuilder):
        raise MisuseError(f"expected a BlockBuilder, found {type(ctx).__name__}", about=ctx)
    return apply_signature(alpha_rename(func_sinfo, ctx.context.shape_vars), call, ctx.context)


@user_facing
def erase_to_well_defined(
    sinfo: I,
    shape_var_map: Mapping[tir.Var, tir.PrimExpr | int] | Collection[tir.Var] | None = None,
    var_map: Mapping[Var, Expr] | Collection[Var] | None = None,
) -> I:
    """`sinfo` with its variables replaced as the mappings say.

    What mentions a variable that has no image loses its shape or value and keeps rank and datatype.
    What Func infos own stays. A collection of variables, those in scope, are images of themselves.

    Rule:
        ERA-1, ERA-2, ERA-3, ERA-4, ERA-5, ERA-6, ERA-7, ERA-8, ERA-9, for variables without image.
    Errors:
        MisuseError (also TypeError): these are no variables, or no images of such.
    """
    expect(sinfo, StructInfo)
    sizes = {
        var: image if isinstance(image, tir.PrimExpr) else ops.const(image, INT64)
        for var, image in _images(shape_var_map, tir.Var, (tir.PrimExpr, int)).items()
    }
    variables = _images(var_map, Var, Expr)
    erased = erase.erase_to_well_defined(sinfo, variables, sizes)
    return substitute_info(_with_shapes(erased, variables), sizes)


def _images(given: object, kind: type, images: type | tuple[type, ...]) -> dict[Any, Any]:
    """The images of variables of this kind; in a mere collection each is its own."""
    if given is None:
        return {}
    if isinstance(given, (list, tuple, set, frozenset)):
        given = {var: var for var in given}
    if not isinstance(given, Mapping):
        raise MisuseError(
            f"expected variables or a table of their images, found {given!r:.60}", about=given
        )
    for var, image in given.items():
        if not isinstance(var, kind) or not isinstance(image, images):
            wrong = var if not isinstance(var, kind) else image
            raise MisuseError(
                f"expected variables and what stands for them, found {wrong!r:.60}", about=given
            )
    return dict(given)


def _with_shapes(info: I, variables: Mapping[Var, Expr]) -> I:
    """The info with images in place of the variables that are shapes of tensors."""
    match info:
        case TensorStructInfo(shape=Var() as shape):
            image = variables.get(shape, shape)
            return info if image is shape else cast("I", replace(info, shape=image))
        case TupleStructInfo() | FuncStructInfo() | DTensorStructInfo():
            return map_nested(lambda part: _with_shapes(part, variables), info)
        case _:
            return info
