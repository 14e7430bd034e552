"""The graph level of the IR: expressions, struct info, and the tools that work on them."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax")
if TYPE_CHECKING:
    from relaxpy.exec.api.compile import build as build
    from relaxpy.exec.api.executable import Executable as Executable, VMExecutable as VMExecutable
    from relaxpy.exec.api.vm import VirtualMachine as VirtualMachine
    from relaxpy.exec.inspect.check_values import check_values as check_values
    from relaxpy.exec.runtime.instrument import VMInstrumentReturnKind as VMInstrumentReturnKind
    from relaxpy.ir.global_info import DummyGlobalInfo as DummyGlobalInfo, VDevice as VDevice
    from relaxpy.ir.ops import call_dps_packed as call_dps_packed, call_pure_packed as call_pure_packed, call_tir as call_tir, call_tir_inplace as call_tir_inplace, call_tir_packed as call_tir_packed, call_tir_with_grad as call_tir_with_grad
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder as BlockBuilder
    from relaxpy.ir.relax.nodes.static_type import DynTensorType as DynTensorType, FuncType as FuncType, ObjectType as ObjectType, PackedFuncType as PackedFuncType, ShapeType as ShapeType, TupleType as TupleType, Type as Type
    from relaxpy.ir.relax.nodes.static_type import ObjectType as AnyType
    from relaxpy.ir.relax.nodes.static_type import DynTensorType as TensorType
    from relaxpy.ir.relax.rewrite.expr_functor import ExprFunctor as ExprFunctor, PyExprMutator as PyExprMutator
    from relaxpy.ir.relax.rewrite.expr_functor import PyExprMutator as ExprMutator
    from relaxpy.ir.transform import get_pipeline as get_pipeline, register_pipeline as register_pipeline
    from relaxpy.relax import analysis as analysis, backend as backend, base_py_module as base_py_module, binding_rewrite as binding_rewrite, block_builder as block_builder, distributed as distributed, dpl as dpl, exec_builder as exec_builder, expr as expr, expr_functor as expr_functor, frontend as frontend, ir as ir, op as op, pipeline as pipeline, relax_to_pyfunc_converter as relax_to_pyfunc_converter, struct_info as struct_info, testing as testing, training as training, transform as transform, ty as ty, utils as utils, vm_build as vm_build
    from relaxpy.relax.expr import *
    from relaxpy.relax.struct_info import *
    from relaxpy.tvm.exec_builder import ExecBuilder as ExecBuilder
    from relaxpy.tvm.pipelines import get_default_pipeline as get_default_pipeline
    from relaxpy.tvm.python_module import BasePyModule as BasePyModule
    from relaxpy.tvm.relax.binding_rewrite import DataflowBlockRewrite as DataflowBlockRewrite
    from relaxpy.tvm.relax.dump_ast import PyExprVisitor as PyExprVisitor
    from relaxpy.tvm.relax.dump_ast import PyExprVisitor as ExprVisitor
    __all__ = ['AnyType', 'BasePyModule', 'Binding', 'BindingBlock', 'BlockBuilder', 'Call', 'Constant', 'DTensorStructInfo', 'DataTypeImm', 'DataflowBlock', 'DataflowBlockRewrite', 'DataflowVar', 'DummyGlobalInfo', 'DynTensorType', 'EnvFunc', 'ExecBuilder', 'Executable', 'Expr', 'ExprFunctor', 'ExprMutator', 'ExprVisitor', 'ExternFunc', 'FuncStructInfo', 'FuncType', 'Function', 'GlobalVar', 'Id', 'If', 'MatchCast', 'ObjectStructInfo', 'ObjectType', 'PackedFuncType', 'PrimStructInfo', 'PrimValue', 'PyExprMutator', 'PyExprVisitor', 'SeqExpr', 'ShapeExpr', 'ShapeStructInfo', 'ShapeType', 'StringImm', 'StructInfo', 'TensorStructInfo', 'TensorType', 'Tuple', 'TupleGetItem', 'TupleStructInfo', 'TupleType', 'Type', 'VDevice', 'VMExecutable', 'VMInstrumentReturnKind', 'Var', 'VarBinding', 'VirtualMachine', '_update_struct_info', 'analysis', 'backend', 'base_py_module', 'binding_rewrite', 'block_builder', 'build', 'call_dps_packed', 'call_pure_packed', 'call_tir', 'call_tir_inplace', 'call_tir_packed', 'call_tir_with_grad', 'check_values', 'const', 'convert_to_expr', 'distributed', 'dpl', 'exec_builder', 'expr', 'expr_functor', 'extern', 'frontend', 'get_default_pipeline', 'get_pipeline', 'get_shape_of', 'ir', 'make_shape', 'op', 'pipeline', 'prim_value', 'register_pipeline', 'relax_to_pyfunc_converter', 'struct_info', 'testing', 'training', 'transform', 'ty', 'update_struct_info', 'utils', 'vm_build']
