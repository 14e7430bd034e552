"""Scalar expressions, under TVM's module name: all names of `tir`, and those of `==` and `!=`."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.tir.expr")
if TYPE_CHECKING:
    from relaxpy import tir as tir
    from relaxpy.tir import *
    from relaxpy.tir import EQ as EqualOp
    from relaxpy.tir import NE as NotEqualOp
    __all__ = ['Add', 'Allocate', 'AllocateConst', 'And', 'AssertStmt', 'AttrStmt', 'BijectiveLayout', 'BinaryOpExpr', 'Block', 'BlockRealize', 'Broadcast', 'Buffer', 'BufferLoad', 'BufferRealize', 'BufferRegion', 'BufferStore', 'Call', 'CallEffectKind', 'Cast', 'CmpExpr', 'CommReducer', 'ConstExpr', 'DeclBuffer', 'Div', 'EQ', 'EqualOp', 'Evaluate', 'FloatImm', 'FloorDiv', 'FloorMod', 'For', 'ForKind', 'GE', 'GT', 'IfThenElse', 'IndexMap', 'IntImm', 'IterVar', 'IterVarKind', 'LE', 'LT', 'Layout', 'Let', 'LetStmt', 'LogicalExpr', 'MatchBufferRegion', 'Max', 'Min', 'Mod', 'Mul', 'NE', 'Not', 'NotEqualOp', 'Or', 'PrimExpr', 'PrimFunc', 'ProducerLoad', 'PyStmtExprMutator', 'PyStmtExprMutatorWithAnalyzer', 'PyStmtExprVisitor', 'PyStmtExprVisitorWithAnalyzer', 'Ramp', 'Range', 'Reduce', 'SBlock', 'SBlockRealize', 'Schedule', 'ScheduleError', 'Select', 'SeqStmt', 'Shuffle', 'SizeVar', 'Stmt', 'StmtSRef', 'StringImm', 'Sub', 'Var', 'While', 'abs', 'acos', 'acosh', 'add', 'address_of', 'all', 'analysis', 'any', 'asin', 'asinh', 'assume', 'atan', 'atan2', 'atanh', 'bijective_layout', 'bitwise_and', 'bitwise_not', 'bitwise_or', 'bitwise_xor', 'break_loop', 'buffer', 'build', 'call_cpacked', 'call_extern', 'call_intrin', 'call_packed', 'call_pure_extern', 'ceil', 'ceildiv', 'check_values', 'clz', 'comm_reducer', 'const', 'continue_loop', 'convert', 'copysign', 'cos', 'cosh', 'data_layout', 'decl_buffer', 'div', 'erf', 'exp', 'exp10', 'exp2', 'expr', 'floor', 'floordiv', 'floormod', 'fmod', 'function', 'functor', 'generic', 'hypot', 'if_then_else', 'indexdiv', 'indexmod', 'infinity', 'isfinite', 'isinf', 'isnan', 'isnullptr', 'layout', 'ldexp', 'likely', 'log', 'log10', 'log1p', 'log2', 'logaddexp', 'logical_not', 'max', 'max_value', 'min', 'min_value', 'multiply', 'nearbyint', 'nextafter', 'op', 'popcount', 'pow', 'power', 'reinterpret', 'ret', 'round', 'rsqrt', 'schedule', 'shift_left', 'shift_right', 'sigmoid', 'sin', 'sinh', 'sqrt', 'stmt', 'stmt_functor', 'stmt_seq', 'subtract', 'sum', 'tan', 'tanh', 'tir', 'transform', 'trunc', 'truncdiv', 'truncmod', 'undef', 'vscale']
