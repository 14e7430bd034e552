"""FuseOps: calls of kernels that can be one kernel become calls of one function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import Pass, PassContext, register_config
from relaxpy.ir.relax.analysis.op_pattern import OpPatternKind
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.nodes import (
    Binding,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    GlobalVar,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relaxpy.ir.relax.transform.fusion.grouping import KERNEL_CALLS, FunctionGroup, group_bindings
from relaxpy.ir.relax.transform.fusion.partition import GraphNode, partition
from relaxpy.ir.tir.prim_func.function import PrimFunc

MAX_DEPTH: Final = 256
"""How many kernels are fused into one at most, unless the option says otherwise."""
_OPTION: Final = "relax.FuseOps.max_depth"
register_config(_OPTION, int)


@dataclass(frozen=True)
class FuseOps(Pass):
    """Groups calls of kernels in dataflow blocks into functions with the attribute `Primitive`.

    What can be grouped follows from the attribute `op_pattern` of the kernels, which
    AnnotateTIROpPattern sets: elementwise and broadcasting kernels go with the kernel that uses
    them, injective ones too, and a contraction goes with the elementwise kernels after it.
    At the level 0 nothing is fused; -1 is the level of the PassContext. Its option
    `relax.FuseOps.max_depth` limits the size of a group. FuseTIR makes one kernel of each function.

    Example:
        @I.ir_module
        class Before:
            @T.prim_func(private=True)
            def double(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
                T.func_attr({"op_pattern": 0})
                for i in range(4):
                    with T.block("B"):
                        vi = T.axis.spatial(4, i)
                        b[vi] = a[vi] * T.float32(2)

            @R.function
            def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                cls = Before
                with R.dataflow():
                    y = R.call_tir(cls.double, (x,), R.Tensor((4,), "float32"))
                    z = R.call_tir(cls.double, (y,), R.Tensor((4,), "float32"))
                    R.output(z)
                return z

        @I.ir_module
        class After:
            @T.prim_func(private=True)
            def double(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
                T.func_attr({"op_pattern": 0})
                for i in range(4):
                    with T.block("B"):
                        vi = T.axis.spatial(4, i)
                        b[vi] = a[vi] * T.float32(2)

            @R.function
            def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                cls = After
                with R.dataflow():
                    z = cls.fused_double_double(x)
                    R.output(z)
                return z

            @R.function(private=True)
            def fused_double_double(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                R.func_attr({"Primitive": 1})
                cls = After
                with R.dataflow():
                    y = R.call_tir(cls.double, (x,), R.Tensor((4,), "float32"))
                    z = R.call_tir(cls.double, (y,), R.Tensor((4,), "float32"))
                    R.output(z)
                return z

    Errors:
        MisuseError (also TypeError): the level is not an integer.

    """

    fuse_opt_level: int = -1

    def __post_init__(self) -> None:
        if isinstance(self.fuse_opt_level, bool) or not isinstance(self.fuse_opt_level, int):
            raise MisuseError(
                f"fuse_opt_level is an integer, found {self.fuse_opt_level!r:.60}",
                about=self.fuse_opt_level,
            )

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        level = ctx.opt_level if self.fuse_opt_level == -1 else self.fuse_opt_level
        if level == 0:
            return mod
        limit = (ctx.config or {}).get(_OPTION, MAX_DEPTH)
        functions = mod.functions_by_name
        kinds = {
            name: _kind_of(func) for name, func in functions.items() if isinstance(func, PrimFunc)
        }
        return group_bindings(mod, lambda block: _groups(block, kinds, limit), lift_constants=True)


def _kind_of(func: PrimFunc) -> OpPatternKind:
    """The kind that a kernel is annotated with."""
    kind = func.attrs.get("op_pattern")
    if isinstance(kind, int) and kind in set(OpPatternKind):
        return OpPatternKind(kind)
    return OpPatternKind.OPAQUE


def _groups(
    block: DataflowBlock, kinds: Mapping[str, OpPatternKind], limit: int
) -> Mapping[Binding, FunctionGroup]:
    """The groups of two and more bindings of a block."""
    index = {b.var: k for k, b in enumerate(block.bindings) if b.var is not None}
    nodes: list[GraphNode] = []
    for k, binding in enumerate(block.bindings):
        kind = _kind(binding, kinds, index)
        nodes.append(GraphNode(kind, leaves=not isinstance(binding.var, DataflowVar)))
        for var in occurring_vars(binding.value):
            if var in index:
                nodes[index[var]].users.append(k)
    roots = partition(nodes, limit)
    table = {root: FunctionGroup() for root in roots if root.size > 1}
    bound = zip(block.bindings, roots, strict=True)
    return {binding: table[root] for binding, root in bound if root in table}


def _kind(
    binding: Binding, kinds: Mapping[str, OpPatternKind], index: Mapping[Var, int]
) -> OpPatternKind:
    value: Expr = binding.value
    if not isinstance(binding, VarBinding):
        return OpPatternKind.OPAQUE
    if isinstance(value, TupleGetItem) and value.tuple_value in index:
        return OpPatternKind.INJECTIVE
    if isinstance(value, Call) and isinstance(value.op, Op) and value.op.name in KERNEL_CALLS:
        kernel, operands = value.args[:2]
        if isinstance(kernel, GlobalVar) and isinstance(operands, Tuple):
            return kinds.get(kernel.name_hint, OpPatternKind.OPAQUE)
    return OpPatternKind.OPAQUE
