"""What becomes of an info at a call, and where variables leave scope, as TVM's tools ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar, cast

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.dtype import INT64
from relaxpy.ir.relax import erase
from relaxpy.ir.relax.analysis.expect import expect
from relaxpy.ir.relax.builder import BlockBuilder
from relaxpy.ir.relax.distributed import DTensorStructInfo
from relaxpy.ir.relax.infer import apply_signature
from relaxpy.ir.relax.nodes import (
    Call,
    Expr,
    FuncStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    Var,
)
from relaxpy.ir.relax.shape_vars import map_infos, rename_apart, substitute_info
from relaxpy.ir.tir import expr as tir, ops

I = TypeVar("I", bound=StructInfo)  # noqa: E741


@user_facing
def derive_call_ret_struct_info(
    func_sinfo: FuncStructInfo, call: Call, ctx: BlockBuilder
) -> StructInfo:
    """The info of `call` where what it calls has the info `func_sinfo`.

    Errors:
        StructInfoError: the arguments do not fit (DER-39 to DER-41).
        MisuseError (also TypeError): an argument is of another kind.
    """
    if not isinstance(func_sinfo, FuncStructInfo):
        raise MisuseError(f"expected a Func info, found {func_sinfo!r:.60}", about=func_sinfo)
    if not isinstance(call, Call):
        raise MisuseError(f"expected a call, found {type(call).__name__}", about=call)
    if not isinstance(ctx, BlockBuilder):
        raise MisuseError(f"expected a BlockBuilder, found {type(ctx).__name__}", about=ctx)
    return apply_signature(rename_apart(func_sinfo, ctx.context.sizes), call, ctx.context)


@user_facing
def erase_to_well_defined(
    sinfo: I,
    shape_var_map: Mapping[tir.Var, tir.PrimExpr | int] | None = None,
    var_map: Mapping[Var, Expr] | None = None,
) -> I:
    """`sinfo` with its variables replaced as the mappings say.

    What mentions a variable that has no image loses its shape or value and keeps rank and datatype
    (ERA-1 to ERA-11). What Func infos own stays.
    """
    expect(sinfo, StructInfo)
    sizes = {
        var: image if isinstance(image, tir.PrimExpr) else ops.const(int(image), INT64)
        for var, image in (shape_var_map or {}).items()
    }
    variables = dict(var_map or {})
    erased = erase.erase_to_well_defined(sinfo, variables, sizes)
    return substitute_info(_with_shapes(erased, variables), sizes)


def _with_shapes(info: I, variables: Mapping[Var, Expr]) -> I:
    """The info with images in place of the variables that are shapes of tensors."""
    match info:
        case TensorStructInfo(shape=Var() as shape):
            image = variables.get(shape, shape)
            return info if image is shape else cast("I", replace(info, shape=image))
        case TupleStructInfo() | FuncStructInfo() | DTensorStructInfo():
            return map_infos(lambda part: _with_shapes(part, variables), info)
        case _:
            return info
