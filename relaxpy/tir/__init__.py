"""The loop level: scalar expressions, statements, buffers and PrimFuncs."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.tir")
if TYPE_CHECKING:
    from relaxpy.errors import ScheduleError as ScheduleError
    from relaxpy.exec.api.compile import build_kernels as build
    from relaxpy.exec.inspect.check_values import check_values as check_values
    from relaxpy.ir.te.tensor import ProducerLoad as ProducerLoad
    from relaxpy.ir.tir.analysis.index_map import IndexMap as IndexMap
    from relaxpy.ir.tir.buffer import Buffer as Buffer, BufferLoad as BufferLoad, BufferRegion as BufferRegion, decl_buffer as decl_buffer
    from relaxpy.ir.tir.expr import Add as Add, And as And, BinaryOpExpr as BinaryOpExpr, Broadcast as Broadcast, Call as Call, Cast as Cast, CmpExpr as CmpExpr, ConstExpr as ConstExpr, Div as Div, EQ as EQ, FloatImm as FloatImm, FloorDiv as FloorDiv, FloorMod as FloorMod, GE as GE, GT as GT, IntImm as IntImm, IterVarKind as IterVarKind, LE as LE, LT as LT, Let as Let, LogicalExpr as LogicalExpr, Max as Max, Min as Min, Mod as Mod, Mul as Mul, NE as NE, Not as Not, Or as Or, PrimExpr as PrimExpr, Ramp as Ramp, Select as Select, Shuffle as Shuffle, SizeVar as SizeVar, StringImm as StringImm, Sub as Sub, Var as Var
    from relaxpy.ir.tir.intrin import abs as abs, acos as acos, acosh as acosh, address_of as address_of, asin as asin, asinh as asinh, assume as assume, atan as atan, atan2 as atan2, atanh as atanh, bitwise_and as bitwise_and, bitwise_not as bitwise_not, bitwise_or as bitwise_or, bitwise_xor as bitwise_xor, break_loop as break_loop, call_cpacked as call_cpacked, call_extern as call_extern, call_intrin as call_intrin, call_packed as call_packed, call_pure_extern as call_pure_extern, ceil as ceil, clz as clz, continue_loop as continue_loop, copysign as copysign, cos as cos, cosh as cosh, erf as erf, exp as exp, exp10 as exp10, exp2 as exp2, floor as floor, fmod as fmod, hypot as hypot, if_then_else as if_then_else, infinity as infinity, isfinite as isfinite, isinf as isinf, isnan as isnan, isnullptr as isnullptr, ldexp as ldexp, likely as likely, log as log, log10 as log10, log1p as log1p, log2 as log2, logaddexp as logaddexp, max_value as max_value, min_value as min_value, nearbyint as nearbyint, nextafter as nextafter, popcount as popcount, pow as pow, reinterpret as reinterpret, ret as ret, round as round, rsqrt as rsqrt, shift_left as shift_left, shift_right as shift_right, sigmoid as sigmoid, sin as sin, sinh as sinh, sqrt as sqrt, tan as tan, tanh as tanh, trunc as trunc, undef as undef, vscale as vscale
    from relaxpy.ir.tir.intrin import pow as power
    from relaxpy.ir.tir.intrinsics import CallEffectKind as CallEffectKind
    from relaxpy.ir.tir.iteration import IterVar as IterVar, Range as Range
    from relaxpy.ir.tir.layout import BijectiveLayout as BijectiveLayout, Layout as Layout, bijective_layout as bijective_layout, layout as layout
    from relaxpy.ir.tir.ops import add as add, ceildiv as ceildiv, const as const, convert as convert, div as div, floordiv as floordiv, floormod as floormod, logical_not as logical_not, truncdiv as truncdiv, truncmod as truncmod
    from relaxpy.ir.tir.ops import all_of as all
    from relaxpy.ir.tir.ops import any_of as any
    from relaxpy.ir.tir.ops import floordiv as indexdiv
    from relaxpy.ir.tir.ops import floormod as indexmod
    from relaxpy.ir.tir.ops import mul as multiply
    from relaxpy.ir.tir.ops import sub as subtract
    from relaxpy.ir.tir.prim_func import PrimFunc as PrimFunc
    from relaxpy.ir.tir.reduce import CommReducer as CommReducer, Reduce as Reduce, comm_reducer as comm_reducer, max as max, min as min, sum as sum
    from relaxpy.ir.tir.stmt import Allocate as Allocate, AllocateConst as AllocateConst, AssertStmt as AssertStmt, AttrStmt as AttrStmt, Block as Block, BlockRealize as BlockRealize, BufferRealize as BufferRealize, BufferStore as BufferStore, DeclBuffer as DeclBuffer, Evaluate as Evaluate, For as For, ForKind as ForKind, IfThenElse as IfThenElse, LetStmt as LetStmt, MatchBufferRegion as MatchBufferRegion, SeqStmt as SeqStmt, Stmt as Stmt, While as While, stmt_seq as stmt_seq
    from relaxpy.ir.tir.stmt import Block as SBlock
    from relaxpy.ir.tir.stmt import BlockRealize as SBlockRealize
    from relaxpy.plugins.schedule.schedule import Schedule as Schedule
    from relaxpy.plugins.schedule.scheduled import StmtSRef as StmtSRef
    from relaxpy.tir import analysis as analysis, buffer as buffer, data_layout as data_layout, expr as expr, function as function, functor as functor, generic as generic, op as op, schedule as schedule, stmt as stmt, stmt_functor as stmt_functor, transform as transform
    from relaxpy.tvm.tir.functor import PyStmtExprMutator as PyStmtExprMutator, PyStmtExprMutatorWithAnalyzer as PyStmtExprMutatorWithAnalyzer, PyStmtExprVisitor as PyStmtExprVisitor, PyStmtExprVisitorWithAnalyzer as PyStmtExprVisitorWithAnalyzer
    __all__ = ['Add', 'Allocate', 'AllocateConst', 'And', 'AssertStmt', 'AttrStmt', 'BijectiveLayout', 'BinaryOpExpr', 'Block', 'BlockRealize', 'Broadcast', 'Buffer', 'BufferLoad', 'BufferRealize', 'BufferRegion', 'BufferStore', 'Call', 'CallEffectKind', 'Cast', 'CmpExpr', 'CommReducer', 'ConstExpr', 'DeclBuffer', 'Div', 'EQ', 'Evaluate', 'FloatImm', 'FloorDiv', 'FloorMod', 'For', 'ForKind', 'GE', 'GT', 'IfThenElse', 'IndexMap', 'IntImm', 'IterVar', 'IterVarKind', 'LE', 'LT', 'Layout', 'Let', 'LetStmt', 'LogicalExpr', 'MatchBufferRegion', 'Max', 'Min', 'Mod', 'Mul', 'NE', 'Not', 'Or', 'PrimExpr', 'PrimFunc', 'ProducerLoad', 'PyStmtExprMutator', 'PyStmtExprMutatorWithAnalyzer', 'PyStmtExprVisitor', 'PyStmtExprVisitorWithAnalyzer', 'Ramp', 'Range', 'Reduce', 'SBlock', 'SBlockRealize', 'Schedule', 'ScheduleError', 'Select', 'SeqStmt', 'Shuffle', 'SizeVar', 'Stmt', 'StmtSRef', 'StringImm', 'Sub', 'Var', 'While', 'abs', 'acos', 'acosh', 'add', 'address_of', 'all', 'analysis', 'any', 'asin', 'asinh', 'assume', 'atan', 'atan2', 'atanh', 'bijective_layout', 'bitwise_and', 'bitwise_not', 'bitwise_or', 'bitwise_xor', 'break_loop', 'buffer', 'build', 'call_cpacked', 'call_extern', 'call_intrin', 'call_packed', 'call_pure_extern', 'ceil', 'ceildiv', 'check_values', 'clz', 'comm_reducer', 'const', 'continue_loop', 'convert', 'copysign', 'cos', 'cosh', 'data_layout', 'decl_buffer', 'div', 'erf', 'exp', 'exp10', 'exp2', 'expr', 'floor', 'floordiv', 'floormod', 'fmod', 'function', 'functor', 'generic', 'hypot', 'if_then_else', 'indexdiv', 'indexmod', 'infinity', 'isfinite', 'isinf', 'isnan', 'isnullptr', 'layout', 'ldexp', 'likely', 'log', 'log10', 'log1p', 'log2', 'logaddexp', 'logical_not', 'max', 'max_value', 'min', 'min_value', 'multiply', 'nearbyint', 'nextafter', 'op', 'popcount', 'pow', 'power', 'reinterpret', 'ret', 'round', 'rsqrt', 'schedule', 'shift_left', 'shift_right', 'sigmoid', 'sin', 'sinh', 'sqrt', 'stmt', 'stmt_functor', 'stmt_seq', 'subtract', 'sum', 'tan', 'tanh', 'transform', 'trunc', 'truncdiv', 'truncmod', 'undef', 'vscale']
