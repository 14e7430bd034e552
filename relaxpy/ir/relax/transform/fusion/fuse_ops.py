"""AnnotateTIROpPattern: kernels are annotated with their op pattern, for fusion.

FuseOps: calls of kernels that can be one kernel become calls of one function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from typing_extensions import override

from relaxpy.errors import unexpected
from relaxpy.ir.core.node import is_function
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext, register_config
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.op_pattern import (
    OpPatternKind,
    has_reshape_pattern,
    is_batched_matmul,
    is_row_local,
    op_pattern_kind,
)
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.transform.fusion.grouping import (
    RULE_OPTION,
    FunctionGroup,
    FusionRule,
    group_bindings,
    is_kernel_call,
)
from relaxpy.ir.relax.transform.fusion.partition import GraphNode, partition
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class AnnotateTIROpPattern(Pass):
    """Sets the attribute `op_pattern` of kernels that have none to the number of their kind."""

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return map_functions(mod, PrimFunc, _annotated)


def _annotated(func: PrimFunc) -> PrimFunc:
    if "op_pattern" in func.attrs:
        return func
    return func.with_attr("op_pattern", int(op_pattern_kind(func)))


MAX_DEPTH: Final = 256
"""The default maximum number of kernels in a group."""
MAX_DEPTH_BY_RULE: Final = 32
"""The limit where a rule decides: more do not run faster, and take longer to compile."""
_OPTION: Final = "relax.FuseOps.max_depth"
register_config(_OPTION, int, positive=True)


@dataclass(frozen=True)
class FuseOps(Pass):
    """Groups calls of kernels in dataflow blocks into functions with the attribute `Primitive`.

    The groups follow from the attribute `op_pattern` of the kernels, which
    AnnotateTIROpPattern sets: elementwise and broadcasting kernels go with the kernel that uses
    them, injective ones too, and a contraction goes with the elementwise kernels after it. At the
    level 0 nothing is fused; -1 is the level of the PassContext. Its option
    `relax.FuseOps.max_depth` limits the size of a group. If there is a `rule`, a kernel is grouped
    with one that uses its result only if `rule(kernel, user)` is true; then a reshape is also
    grouped with its only user, of whatever kind that is, and row-local kernels are grouped with
    each other, reductions among them, and with a contraction before them. Those after a batched
    matmul are also grouped with the batched matmul that uses them, as in attention. The option
    `relax.FuseOps.rule` overrides the rule. FuseTIR makes one kernel of each function.

    Errors:
        MisuseError (also TypeError): the level is not an integer, or the rule not a function.
    """

    fuse_opt_level: int = -1
    rule: FusionRule | None = None

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        level = ctx.opt_level if self.fuse_opt_level == -1 else self.fuse_opt_level
        if level == 0:
            return mod
        config = ctx.config or {}
        rule = config.get(RULE_OPTION, self.rule)
        _check_rule(rule)
        limit = config.get(_OPTION, MAX_DEPTH if rule is None else MAX_DEPTH_BY_RULE)
        kernels = _Kernels(mod, rule)
        return group_bindings(
            mod, lambda block: _groups(block, kernels, limit), lift_constants=True
        )


def _check_rule(rule: object) -> None:
    """Errors: MisuseError (also TypeError) unless a rule is None or a function."""
    if rule is not None and not is_function(rule):
        raise unexpected(rule, "a rule is a function of a kernel and its user")


class _Kernels:
    """The kinds of the kernels of a module, and the decisions of a rule about pairs of them."""

    def __init__(self, mod: IRModule, rule: FusionRule | None) -> None:
        functions = mod.functions_by_name
        self.rule = rule
        self.by_name = {n: func for n, func in functions.items() if isinstance(func, PrimFunc)}
        self.kinds = {name: _kind_of(func) for name, func in self.by_name.items()}
        self._decided: dict[tuple[str, str], bool] = {}
        self._reshapes: dict[str, bool] = {}
        self._row_wise: dict[str, bool] = {}
        self._batched: dict[str, bool] = {}

    def is_row_local(self, name: str) -> bool:
        """True if a kernel is row-local, where a rule decides."""
        if self.rule is None or name not in self.by_name:
            return False
        if name not in self._row_wise:
            self._row_wise[name] = is_row_local(self.by_name[name])
        return self._row_wise[name]

    def is_batched_matmul(self, name: str) -> bool:
        """True if a kernel is a batched matmul, where a rule decides."""
        if self.rule is None or self.kinds.get(name) is not OpPatternKind.OUT_EWISE_FUSABLE:
            return False
        if name not in self._batched:
            self._batched[name] = is_batched_matmul(self.by_name[name])
        return self._batched[name]

    def reshapes(self, name: str) -> bool:
        """True if a kernel only reshapes, where a rule decides."""
        if self.rule is None or self.kinds.get(name) is not OpPatternKind.INJECTIVE:
            return False
        if name not in self._reshapes:
            self._reshapes[name] = has_reshape_pattern(self.by_name[name])
        return self._reshapes[name]

    def pays(self, producer: str, consumer: str) -> bool:
        """The decision of the rule; "" is a binding that calls no kernel."""
        if self.rule is None or not producer or not consumer:
            return True
        pair = producer, consumer
        if pair not in self._decided:
            self._decided[pair] = bool(self.rule(*(self.by_name[name] for name in pair)))
        return self._decided[pair]


def _kind_of(func: PrimFunc) -> OpPatternKind:
    """The kind that a kernel is annotated with."""
    kind = func.attrs.get("op_pattern")
    if isinstance(kind, int) and kind in set(OpPatternKind):
        return OpPatternKind(kind)
    return OpPatternKind.OPAQUE


def _groups(
    block: rx.DataflowBlock, kernels: _Kernels, limit: int
) -> Mapping[rx.Binding, FunctionGroup]:
    """The groups of two and more bindings of a block."""
    if len(block.bindings) < 2:
        return {}
    index = {b.var: k for k, b in enumerate(block.bindings) if b.var is not None}
    called = [_kernel_of(binding, kernels) for binding in block.bindings]
    nodes: list[GraphNode] = []
    for k, binding in enumerate(block.bindings):
        kind = kernels.kinds[called[k]] if called[k] else _kind(binding, index)
        leaves = not isinstance(binding.var, rx.DataflowVar)
        nodes.append(
            GraphNode(
                kind,
                leaves=leaves,
                reshapes=kernels.reshapes(called[k]),
                row_wise=kernels.is_row_local(called[k]),
                products=int(kernels.is_batched_matmul(called[k])),
            )
        )
        for var in occurring_vars(binding.value):
            if var in index:
                nodes[index[var]].users.append(k)
    roots = partition(nodes, limit, lambda k, user: kernels.pays(called[k], called[user]))
    table = {root: FunctionGroup() for root in roots if root.size > 1}
    bound = zip(block.bindings, roots, strict=True)
    return {binding: table[root] for binding, root in bound if root in table}


def _kernel_of(binding: rx.Binding, kernels: _Kernels) -> str:
    """The name of the kernel that a binding calls, or ""."""
    value = binding.value
    if not isinstance(binding, rx.VarBinding) or not is_kernel_call(value):
        return ""
    kernel, operands = value.args[:2]
    if not isinstance(kernel, rx.GlobalVar) or not isinstance(operands, rx.Tuple):
        return ""
    return kernel.name_hint if kernel.name_hint in kernels.by_name else ""


def _kind(binding: rx.Binding, index: Mapping[rx.Var, int]) -> OpPatternKind:
    """The kind of a binding that calls no kernel."""
    value: rx.Expr = binding.value
    if not isinstance(binding, rx.VarBinding) or not isinstance(value, rx.TupleGetItem):
        return OpPatternKind.OPAQUE
    return OpPatternKind.INJECTIVE if value.tuple_value in index else OpPatternKind.OPAQUE
