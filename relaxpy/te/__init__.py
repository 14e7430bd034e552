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
from relaxpy.ir.tir.intrin import (
    abs as abs,
    acos as acos,
    acosh as acosh,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atanh as atanh,
    ceil as ceil,
    cos as cos,
    cosh as cosh,
    erf as erf,
    exp as exp,
    floor as floor,
    fmod as fmod,
    if_then_else as if_then_else,
    isfinite as isfinite,
    isinf as isinf,
    isnan as isnan,
    log as log,
    log2 as log2,
    log10 as log10,
    max_value as max_value,
    min_value as min_value,
    nearbyint as nearbyint,
    popcount as popcount,
    pow as _pow,
    round as round,
    rsqrt as rsqrt,
    sigmoid as sigmoid,
    sin as sin,
    sinh as sinh,
    sqrt as sqrt,
    tan as tan,
    tanh as tanh,
    trunc as trunc,
)
from relaxpy.ir.tir.ops import (
    add as add,
    ceildiv as ceildiv,
    div as div,
    floordiv as floordiv,
    floormod as floormod,
    mul as _mul,
    sub as _sub,
    truncdiv as truncdiv,
    truncmod as truncmod,
)
from relaxpy.ir.tir.reduce import (
    all as all,
    any as any,
    comm_reducer as comm_reducer,
    max as max,
    min as min,
    sum as sum,
)
from relaxpy.missing import hint_at_absent as _hint_at_absent

power = _pow
multiply = _mul
subtract = _sub

# These have all names of this module.
from relaxpy.te import operation as operation, tag as tag, tensor as tensor  # noqa: E402

_hint_at_absent(globals())
