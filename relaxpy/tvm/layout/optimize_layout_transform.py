"""OptimizeLayoutTransform: transforms that undo each other are removed."""

from __future__ import annotations

from typing import Any, cast

from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.op.definition.registry import with_all_attributes
from relaxpy.ir.relax.op.definition.rules import Sizes, literal_shape, same
from relaxpy.ir.relax.op.layouts import of_sizes
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten, remove_all_unused
from relaxpy.ir.relax.transform.cleanup.canonicalize_bindings import CanonicalizeBindings
from relaxpy.ir.relax.transform.cleanup.eliminate_common_subexpr import EliminateCommonSubexpr
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.iteration import Range
from relaxpy.support.dataclass import dataclass
from relaxpy.tvm.layout.alter_op_impl import OPERATOR_NAME, REMOVE_PAD


@dataclass(frozen=True)
class OptimizeLayoutTransform(Pass):
    """Uses a tensor itself where it is transformed to another layout and back again.

    AlterOpImpl leaves such transforms between two kernels. Padding that is removed and added again
    without a `pad_value` then has the value that it had before. Functions in which a transform is
    removed are simplified as by EliminateCommonSubexpr and CanonicalizeBindings, so that a tensor
    is transformed only once for several kernels.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)

        def optimized(func: rx.Function) -> rx.Function:
            after = _Optimizing(mod).expr(func)
            return func if after is func else remove_all_unused(after)

        after = normalize_module(map_functions(mod, rx.Function, optimized))
        if after is mod:
            return mod
        simple = EliminateCommonSubexpr().transform(after, ctx)
        simple = CanonicalizeBindings().transform(simple, ctx)
        result = after.clone()
        for var, func in after.items():
            if func is not mod[var.name_hint]:
                result[var] = simple[var.name_hint]
        return result


class _Optimizing(BindingRewriter):
    """Removes the transforms of one function."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self.mod = mod

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        second = _transform(binding.value)
        if second is None:
            return None
        value = self.value_of(second.args[0])
        unpadded = self._unpadded(value)
        first = _transform(value if unpadded is None else self.value_of(unpadded.args[1].fields[0]))
        if first is None or (unpadded is not None and second.attrs["pad_value"] is not None):
            return None
        [source] = first.args
        shape = _shape(source.struct_info)
        between = None if unpadded is None else _shape(unpadded.sinfo_args[0])
        if shape is None or not _is_inverse(_map(first), _map(second), shape, between):
            return None
        return source

    def _unpadded(self, value: rx.Expr | None) -> Any:
        """The call of a kernel that removes padding, if `value` is one."""
        if not rx.is_call_of(value, "relax.call_tir"):
            return None
        callee = value.args[0]
        if not isinstance(callee, rx.GlobalVar) or callee not in self.mod:
            return None
        kernel = self.mod[callee.name_hint]
        return value if kernel.attrs.get(OPERATOR_NAME) == REMOVE_PAD else None


def _transform(value: rx.Expr | None) -> rx.Call | None:
    """The value if it is a call of layout_transform."""
    return with_all_attributes(value) if rx.is_call_of(value, "relax.layout_transform") else None


def _map(call: rx.Call) -> IndexMap:
    return of_sizes(cast("IndexMap", call.attrs["index_map"]))


def _shape(sinfo: rx.StructInfo | None) -> Sizes | None:
    return literal_shape(sinfo) if isinstance(sinfo, rx.TensorStructInfo) else None


def _is_inverse(first: IndexMap, second: IndexMap, shape: Sizes, between: Sizes | None) -> bool:
    """Return whether a tensor of this shape is transformed to itself.

    `between` is the shape of the operand of the second map if padding is removed.
    """
    try:
        result = second.map_shape(first.map_shape(shape) if between is None else between)
    except MisuseError:
        return False
    if len(result) != len(shape) or not all(map(same, result, shape)):
        return False
    analyzer = Analyzer()
    indices = [tir.Var(f"i{k}", "int64") for k in range(len(shape))]
    for index, size in zip(indices, shape, strict=True):
        analyzer.bind(index, Range(0, size))
    images = second.map_indices(first.map_indices(indices))
    return all(map(analyzer.can_prove_equal, images, indices))
