"""Tensor expressions: tensors as functions of their indices."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.te")
if TYPE_CHECKING:
    from relaxpy.ir.te.lower import create_prim_func as create_prim_func
    from relaxpy.ir.te.tensor import ComputeOp as ComputeOp, ExternOp as ExternOp, PlaceholderOp as PlaceholderOp, ProducerLoad as ProducerLoad, ScanOp as ScanOp, TagScope as TagScope, Tensor as Tensor, TensorSlice as TensorSlice, compute as compute, const as const, extern as extern, placeholder as placeholder, reduce_axis as reduce_axis, scan as scan, size_var as size_var, tag_scope as tag_scope, var as var
    from relaxpy.ir.tir.analysis.index_map import IndexMap as _IndexMap
    AXIS_SEPARATOR = _IndexMap.AXIS_SEPARATOR
    from relaxpy.ir.tir.intrin import abs as abs, acos as acos, acosh as acosh, asin as asin, asinh as asinh, atan as atan, atanh as atanh, ceil as ceil, cos as cos, cosh as cosh, erf as erf, exp as exp, floor as floor, fmod as fmod, if_then_else as if_then_else, isfinite as isfinite, isinf as isinf, isnan as isnan, log as log, log10 as log10, log2 as log2, max_value as max_value, min_value as min_value, nearbyint as nearbyint, popcount as popcount, round as round, rsqrt as rsqrt, sigmoid as sigmoid, sin as sin, sinh as sinh, sqrt as sqrt, tan as tan, tanh as tanh, trunc as trunc
    from relaxpy.ir.tir.intrin import pow as power
    from relaxpy.ir.tir.ops import add as add, ceildiv as ceildiv, div as div, floordiv as floordiv, floormod as floormod, truncdiv as truncdiv, truncmod as truncmod
    from relaxpy.ir.tir.ops import floordiv as indexdiv
    from relaxpy.ir.tir.ops import floormod as indexmod
    from relaxpy.ir.tir.ops import mul as multiply
    from relaxpy.ir.tir.ops import sub as subtract
    from relaxpy.ir.tir.reduce import all as all, any as any, comm_reducer as comm_reducer, max as max, min as min, sum as sum
    from relaxpy.te import operation as operation, tag as tag, tensor as tensor
    from relaxpy.tvm.topi import extern_primfunc as extern_primfunc
    __all__ = ['AXIS_SEPARATOR', 'ComputeOp', 'ExternOp', 'PlaceholderOp', 'ProducerLoad', 'ScanOp', 'TagScope', 'Tensor', 'TensorSlice', 'abs', 'acos', 'acosh', 'add', 'all', 'any', 'asin', 'asinh', 'atan', 'atanh', 'ceil', 'ceildiv', 'comm_reducer', 'compute', 'const', 'cos', 'cosh', 'create_prim_func', 'div', 'erf', 'exp', 'extern', 'extern_primfunc', 'floor', 'floordiv', 'floormod', 'fmod', 'if_then_else', 'indexdiv', 'indexmod', 'isfinite', 'isinf', 'isnan', 'log', 'log10', 'log2', 'max', 'max_value', 'min', 'min_value', 'multiply', 'nearbyint', 'operation', 'placeholder', 'popcount', 'power', 'reduce_axis', 'round', 'rsqrt', 'scan', 'sigmoid', 'sin', 'sinh', 'size_var', 'sqrt', 'subtract', 'sum', 'tag', 'tag_scope', 'tan', 'tanh', 'tensor', 'trunc', 'truncdiv', 'truncmod', 'var']
