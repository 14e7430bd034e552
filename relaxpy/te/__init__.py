"""Tensor expressions: tensors as functions of their indices."""

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
from relaxpy.ir.tir.intrin import pow as _pow
from relaxpy.ir.tir.maths import *
from relaxpy.ir.tir.ops import floordiv as floordiv, floormod as floormod, mul as _mul, sub as _sub
from relaxpy.ir.tir.reduce import all as all, any as any
from relaxpy.missing import hint_at_absent as _hint_at_absent

AXIS_SEPARATOR = _IndexMap.AXIS_SEPARATOR
indexdiv = floordiv
indexmod = floormod
power = _pow
multiply = _mul
subtract = _sub

# These have all names of this module.
from relaxpy.te import operation as operation, tag as tag, tensor as tensor  # noqa: E402

_hint_at_absent(globals())
