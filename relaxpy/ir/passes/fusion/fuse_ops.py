"""AnnotateTIROpPattern: kernels are annotated with their op pattern, for fusion.

FuseOps: calls of kernels that can be one kernel become calls of one function.

FuseTIR: each function of kernel calls becomes one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final

from typing_extensions import override

from relaxpy.errors import unexpected
from relaxpy.ir.arith.algebra.affine import may_be_negative
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.node import as_attrs, is_function
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext, register_config
from relaxpy.ir.passes.cleanup.canonicalize_bindings import canonical_module
from relaxpy.ir.passes.fusion.grouping import (
    RULE_OPTION,
    FunctionGroup,
    FusionRule,
    group_bindings,
    known_dimensions,
    outputs_of,
)
from relaxpy.ir.passes.fusion.kernels import FusedKernel, fused_kernel
from relaxpy.ir.passes.fusion.partition import GraphNode, partition
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.op_pattern import (
    OpPatternKind,
    has_reshape_pattern,
    is_batched_matmul,
    is_row_local,
    op_pattern_kind,
)
from relaxpy.ir.relax.analysis.variables import binding_vars, occurring_vars
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.call_graph import mentioned_globals, reachable_functions
from relaxpy.ir.relax.known import called_kernel, fields_of, literal_shape
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, PrecedingBindings, Rewritten
from relaxpy.ir.tir import expr as tir
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
    matmul are also grouped with the batched matmul that uses them, as in attention. Reductions and
    other row-local kernels that read the rows of one tensor are grouped if `rule(one, other)` is
    true, whatever else uses their results. The option `relax.FuseOps.rule` overrides the rule.
    FuseTIR makes one kernel of each function.

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
        self.sizes = known_dimensions(*functions.values())
        self.kinds = {name: _kind_of(func) for name, func in self.by_name.items()}
        self._decided: dict[tuple[str, str], bool] = {}
        self._tested: dict[tuple[Callable[[PrimFunc], bool], str], bool] = {}

    def is_row_local(self, name: str) -> bool:
        """True if a kernel is row-local, where a rule decides."""
        if self.rule is None or name not in self.by_name:
            return False
        return self._holds(is_row_local, name)

    def is_batched_matmul(self, name: str) -> bool:
        """True if a kernel is a batched matmul, where a rule decides."""
        if self.rule is None or self.kinds.get(name) is not OpPatternKind.OUT_EWISE_FUSABLE:
            return False
        return self._holds(is_batched_matmul, name)

    def reshapes(self, name: str) -> bool:
        """True if a kernel only reshapes, where a rule decides."""
        if self.rule is None or self.kinds.get(name) is not OpPatternKind.INJECTIVE:
            return False
        return self._holds(has_reshape_pattern, name)

    def _holds(self, test: Callable[[PrimFunc], bool], name: str) -> bool:
        if (test, name) not in self._tested:
            self._tested[test, name] = test(self.by_name[name])
        return self._tested[test, name]

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
        row_wise = kernels.is_row_local(called[k])
        used = occurring_vars(binding.value)
        nodes.append(
            GraphNode(
                kind,
                leaves=leaves,
                reshapes=kernels.reshapes(called[k]),
                row_wise=row_wise,
                products=int(kernels.is_batched_matmul(called[k])),
                rows=_with_rows_of(binding, used, index) if row_wise else (),
            )
        )
        for var in used:
            if var in index:
                nodes[index[var]].users.append(k)
    roots = partition(nodes, limit, lambda k, user: kernels.pays(called[k], called[user]))
    table = {root: FunctionGroup() for root in roots if root.size > 1}
    bound = zip(block.bindings, roots, strict=True)
    groups = {binding: table[root] for binding, root in bound if root in table}
    hiding = _hiding(block, groups, kernels.sizes)
    return {binding: group for binding, group in groups.items() if group not in hiding}


def _with_rows_of(
    binding: rx.Binding, used: Iterable[rx.Var], computed: Container[rx.Var]
) -> list[rx.Var]:
    """The variables of a binding that have a row for each row of its result.

    Vectors of parameters are left out, which may be read by columns.
    """
    rows = (literal_shape(binding.var) or ())[:1]
    tensors = {var: literal_shape(var) for var in (binding.var, *used) if var is not None}
    return [
        var
        for var, shape in tensors.items()
        if rows and shape and prove_equal(shape[0], rows[0]) and (shape[1:] or var in computed)
    ]


def _hiding(
    block: rx.DataflowBlock, groups: Mapping[rx.Binding, FunctionGroup], sizes: Container[tir.Var]
) -> set[FunctionGroup]:
    """The groups that would hide a negative size, which is refused where memory is allocated.

    They have a tensor inside with a size that may be negative, and that no other tensor has which
    enters or leaves the group.
    """
    doubtful = [
        (b, size)
        for b in groups
        for size in literal_shape(b.var) or ()
        if may_be_negative(size, sizes)
    ]
    if not doubtful:
        return set()
    outputs = outputs_of(block, groups)
    allocated: dict[FunctionGroup, list[tir.PrimExpr]] = {
        group: [size for var in variables for size in literal_shape(var) or ()]
        for group, variables in outputs.items()
    }
    group_of = {binding.var: group for binding, group in groups.items()}
    for binding, group in groups.items():
        for var in binding_vars(binding):
            if group_of.get(var) is not group:
                allocated[group] += literal_shape(var) or ()
    return {
        groups[binding]
        for binding, size in doubtful
        if not any(prove_equal(size, other) for other in allocated[groups[binding]])
    }


def _kernel_of(binding: rx.Binding, kernels: _Kernels) -> str:
    """The name of the kernel that a binding calls, or ""."""
    is_bound = isinstance(binding, rx.VarBinding)
    called = called_kernel(binding.value, of_any_kind=True) if is_bound else None
    return called[0] if called is not None and called[0] in kernels.by_name else ""


def _kind(binding: rx.Binding, index: Mapping[rx.Var, int]) -> OpPatternKind:
    """The kind of a binding that calls no kernel."""
    value: rx.Expr = binding.value
    if not isinstance(binding, rx.VarBinding) or not isinstance(value, rx.TupleGetItem):
        return OpPatternKind.OPAQUE
    return OpPatternKind.INJECTIVE if value.tuple_value in index else OpPatternKind.OPAQUE


@dataclass(frozen=True)
class FuseTIR(Pass):
    """Makes one private kernel of each function with the attribute `Primitive` of FuseOps.

    Intermediate results are local buffers of the kernel, shapes that the function takes become
    scalars, and tuples their fields. A function that does more than call kernels on tensors of
    known shapes stays unchanged, and so does one that is used other than by calls, or that is
    public and not called. Private kernels that are not called any more are removed.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        before = normalize_module(mod)
        functions = before.functions_by_name
        primitive = {
            name: func
            for name, func in functions.items()
            if isinstance(func, rx.Function) and func.attrs.get("Primitive")
        }
        if not primitive:
            return before
        public = {name for name, func in primitive.items() if "global_symbol" in func.attrs}
        if public:
            public.difference_update(*map(mentioned_globals, functions.values()))
        kernels = {
            name: kernel
            for name, func in primitive.items()
            if name not in public  # unless it is called
            if (kernel := fused_kernel(func, functions)) is not None
        }
        for func in functions.values():
            for name in _otherwise_used(func, kernels):
                del kernels[name]
        if not kernels:
            return before
        result = before.clone()
        for var, func in before.items():
            if var.name_hint in kernels:
                result[var] = kernels[var.name_hint].func
            elif isinstance(func, rx.Function):
                result[var] = _Caller(kernels).expr(func)
        _remove_unused_kernels(result)
        return canonical_module(result, refuse_contradictions=False)


def _otherwise_used(func: rx.BaseFunc, kernels: Mapping[str, FusedKernel]) -> set[str]:
    """The functions that a function mentions other than in calls that can be rewritten."""
    names: set[str] = set()
    if kernels.keys().isdisjoint(mentioned_globals(func)):
        return names
    for node in walk(func):
        operands = list(children(node))
        if isinstance(node, rx.Call) and isinstance(node.op, rx.GlobalVar):
            kernel = kernels.get(node.op.name_hint)
            if kernel is not None and _is_callable(kernel, node):
                operands = list(node.args)
        names |= {operand.name_hint for operand in operands if isinstance(operand, rx.GlobalVar)}
    return names & kernels.keys()


def _is_callable(kernel: FusedKernel, call: rx.Call) -> bool:
    """True if the struct info of a call and its arguments suffices for a call of the kernel."""
    sinfo = call.struct_info
    outputs = fields_of(sinfo)
    return all(
        isinstance(output, rx.TensorStructInfo)
        and isinstance(output.shape, rx.ShapeExpr)
        and not output.dtype.is_void
        for output in outputs
    ) and all(len(_sizes(call.args[param])) > axis for param, axis in kernel.scalars)


def _sizes(arg: rx.Expr) -> tuple[tir.PrimExpr, ...]:
    sinfo = arg.struct_info
    if isinstance(arg, rx.ShapeExpr):
        return arg.values
    return (sinfo.values or ()) if isinstance(sinfo, rx.ShapeStructInfo) else ()


class _Caller(BindingRewriter):
    """Replaces calls of functions by calls of the kernels that they became."""

    def __init__(self, kernels: Mapping[str, FusedKernel]) -> None:
        super().__init__()
        self.kernels = kernels

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(call, rx.Call) or not isinstance(call.op, rx.GlobalVar):
            return None
        kernel = self.kernels.get(call.op.name_hint)
        if kernel is None:
            return None
        fields = _Fields(binding, block)
        operands = [fields.at(param, path) for param, path in kernel.operands]
        sizes = [_sizes(call.args[param])[axis] for param, axis in kernel.scalars]
        assert isinstance(call.struct_info, rx.StructInfo)
        inplace = kernel.inplace_indices
        new = rx.Call(
            Op.get("relax.call_tir_inplace" if inplace else "relax.call_tir"),
            (call.op, rx.Tuple(tuple(operands)), *([rx.ShapeExpr(tuple(sizes))] if sizes else [])),
            as_attrs({"inplace_indices": inplace} if inplace else None),
            (call.struct_info,),
            span=call.span,
        )
        return fields.ended(new)


class _Fields(PrecedingBindings):
    """Arguments of a call and their fields, which `bindings` get from them, each once."""

    def __init__(self, binding: rx.Binding, block: rx.BindingBlock) -> None:
        super().__init__(binding, block)
        assert isinstance(binding.value, rx.Call)
        self.call = binding.value
        self._known: dict[tuple[int, tuple[int, ...]], rx.Expr] = {}

    def at(self, param: int, path: tuple[int, ...]) -> rx.Expr:
        if not path:
            return self.call.args[param]
        if (param, path) not in self._known:
            self._known[param, path] = self._field(self.at(param, path[:-1]), path[-1])
        return self._known[param, path]

    def _field(self, whole: rx.Expr, index: int) -> rx.Expr:
        if isinstance(whole, rx.Tuple):
            return whole.fields[index]
        return self.bound(rx.TupleGetItem(whole, index))


def _remove_unused_kernels(mod: IRModule) -> None:
    """Remove the private kernels to which no other function leads."""
    functions = mod.functions_by_name
    roots = [
        name
        for name, func in functions.items()
        if not isinstance(func, PrimFunc) or "global_symbol" in func.attrs
    ]
    for name in functions.keys() - reachable_functions(mod, roots):
        del mod[name]
