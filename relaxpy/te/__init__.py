"""Tensor expressions: tensors as functions of their indices."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.te.kernels import extern_primfunc as extern_primfunc
    from relaxpy.ir.te.lower import create_prim_func as create_prim_func
    from relaxpy.ir.te.tag import TagScope as TagScope, tag_scope as tag_scope
    from relaxpy.ir.te.tensor import (
        ComputeOp as ComputeOp,
        ExternOp as ExternOp,
        PlaceholderOp as PlaceholderOp,
        ProducerLoad as ProducerLoad,
        ScanOp as ScanOp,
        Tensor as Tensor,
        TensorSlice as TensorSlice,
        compute as compute,
        const as const,
        extern as extern,
        placeholder as placeholder,
        reduce_axis as reduce_axis,
        scan as scan,
        size_var as size_var,
        var as var,
    )
    from relaxpy.ir.tir.analysis.index_map import IndexMap as _IndexMap
    from relaxpy.ir.tir.intrin import pow as power
    from relaxpy.ir.tir.maths import *
    from relaxpy.ir.tir.ops import (
        floordiv as floordiv,
        floordiv as indexdiv,
        floormod as floormod,
        floormod as indexmod,
        mul as multiply,
        sub as subtract,
    )
    from relaxpy.ir.tir.reduce import all as all, any as any
    from relaxpy.te import operation as operation, tag as tag, tensor as tensor

    AXIS_SEPARATOR = _IndexMap.AXIS_SEPARATOR
else:
    _face(
        globals(),
        """
        relaxpy.ir.te.kernels: extern_primfunc
        relaxpy.ir.te.lower: create_prim_func
        relaxpy.ir.te.tag: TagScope tag_scope
        relaxpy.ir.te.tensor: ComputeOp ExternOp PlaceholderOp ProducerLoad ScanOp Tensor TensorSlice
            compute const extern placeholder reduce_axis scan size_var var
        relaxpy.ir.tir.analysis.index_map: AXIS_SEPARATOR=IndexMap.AXIS_SEPARATOR
        relaxpy.ir.tir.intrin: power=pow
        relaxpy.ir.tir.maths: *
        relaxpy.ir.tir.ops: floordiv floormod indexdiv=floordiv indexmod=floormod multiply=mul
            subtract=sub
        relaxpy.ir.tir.reduce: all any
        relaxpy.te.: operation tag tensor
        """,
    )
