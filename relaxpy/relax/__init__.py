"""The graph level of the IR: expressions, struct info, and the tools that work on them."""

from relaxpy.exec.compile import build as build
from relaxpy.exec.exec_builder import ExecBuilder as ExecBuilder
from relaxpy.exec.executable import Executable as Executable, VMExecutable as VMExecutable
from relaxpy.exec.python_module import BasePyModule as BasePyModule
from relaxpy.exec.runtime.instrument import VMInstrumentReturnKind as VMInstrumentReturnKind
from relaxpy.exec.vm import VirtualMachine as VirtualMachine
from relaxpy.ir.global_info import DummyGlobalInfo as DummyGlobalInfo, VDevice as VDevice
from relaxpy.ir.relax.block_builder.builder import BlockBuilder as BlockBuilder
from relaxpy.ir.relax.nodes.static_type import (
    DynTensorType as DynTensorType,
    FuncType as FuncType,
    ObjectType as ObjectType,
    PackedFuncType as PackedFuncType,
    ShapeType as ShapeType,
    TupleType as TupleType,
    Type as Type,
)
from relaxpy.ir.relax.op import (
    call_dps_packed as call_dps_packed,
    call_pure_packed as call_pure_packed,
    call_tir as call_tir,
    call_tir_inplace as call_tir_inplace,
    call_tir_packed as call_tir_packed,
    call_tir_with_grad as call_tir_with_grad,
)
from relaxpy.ir.relax.rewrite.binding_rewrite import DataflowBlockRewrite as DataflowBlockRewrite
from relaxpy.ir.relax.rewrite.expr_functor import ExprFunctor as ExprFunctor
from relaxpy.ir.relax.rewrite.expr_mutator import PyExprMutator as PyExprMutator
from relaxpy.ir.relax.rewrite.expr_visitor import PyExprVisitor as PyExprVisitor
from relaxpy.ir.relax.tvm_pipelines import get_default_pipeline as get_default_pipeline
from relaxpy.ir.transform import (
    get_pipeline as get_pipeline,
    register_pipeline as register_pipeline,
)
from relaxpy.missing import hint_at_absent as _hint_at_absent
from relaxpy.relax import (
    analysis as analysis,
    backend as backend,
    base_py_module as base_py_module,
    binding_rewrite as binding_rewrite,
    block_builder as block_builder,
    distributed as distributed,
    dpl as dpl,
    exec_builder as exec_builder,
    expr as expr,
    expr_functor as expr_functor,
    frontend as frontend,
    ir as ir,
    op as op,
    pipeline as pipeline,
    relax_to_pyfunc_converter as relax_to_pyfunc_converter,
    struct_info as struct_info,
    testing as testing,
    training as training,
    transform as transform,
    ty as ty,
    utils as utils,
    vm_build as vm_build,
)
from relaxpy.relax.expr import *
from relaxpy.relax.expr_functor import ExprMutator as ExprMutator, ExprVisitor as ExprVisitor
from relaxpy.relax.struct_info import *

AnyType = ObjectType
TensorType = DynTensorType

_hint_at_absent(globals())
