"""RemoveUnusedKernelOutputs: calls of kernels compute only the outputs that are used."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from typing_extensions import override

from relaxpy.ir.core.traverse import children, rebuild, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.fusion.fold_views import is_bound_without
from relaxpy.ir.passes.fusion.grouping import may_fail
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.block_builder.function_table import FunctionTable
from relaxpy.ir.relax.known import called_kernel
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.tir.analysis.regions import stored_buffers
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import BlockRealize, SeqStmt, stmt_seq
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class RemoveUnusedKernelOutputs(Pass):
    """Calls kernels without the statements for those outputs that nothing uses.

    Kernels stay, and calls with other outputs get kernels of their own. A kernel that may fail at
    run time, and one whose other statements need an output, computes all of them.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        kernels = _Kernels(mod)
        for var, func in mod.items():
            if isinstance(func, rx.Function) and (used := _used_outputs(func)):
                kernels.result[var] = _Calls(kernels, used).expr(func)
        return normalize_module(kernels.result) if any(kernels.reduced.values()) else mod


def _used_outputs(func: rx.Function) -> dict[rx.Expr, set[int]]:
    """The outputs that are used of the results of kernels that have others, too."""
    nodes = list(walk(func))
    used: dict[rx.Expr, set[int]] = {
        node.var: set()
        for node in nodes
        if isinstance(node, rx.VarBinding) and len(_outputs(node.value)) > 1
    }
    for node in nodes if used else ():
        if isinstance(node, rx.TupleGetItem) and node.tuple_value in used:
            used[node.tuple_value].add(node.index)
            continue
        for child in (node.value,) if isinstance(node, rx.VarBinding) else children(node):
            if isinstance(child, rx.Expr) and child in used:
                del used[child]
    return {var: fields for var, fields in used.items() if fields}


def _outputs(value: rx.Expr) -> Sequence[rx.StructInfo]:
    """The struct info of each field of a call of a kernel; () for any other value."""
    if not isinstance(value, rx.Call) or called_kernel(value) is None or len(value.sinfo_args) != 1:
        return ()
    [result] = value.sinfo_args
    return result.fields if isinstance(result, rx.TupleStructInfo) else ()


class _Kernels:
    """The kernels of a module, and those with fewer outputs that `result` has, too."""

    def __init__(self, mod: IRModule) -> None:
        self.result = mod.clone()
        self.by_name = mod.functions_by_name
        self.reduced: dict[tuple[str, tuple[int, ...]], rx.GlobalVar | None] = {}
        self._table = FunctionTable(self.result, lambda name, sinfo: None)

    def without(self, name: str, dropped: tuple[int, ...]) -> rx.GlobalVar | None:
        """The kernel without parameters that are outputs; None if it needs all of them."""
        key = name, dropped
        if key not in self.reduced:
            kernel = self.by_name.get(name)
            new = _without(kernel, dropped) if isinstance(kernel, PrimFunc) else None
            self.reduced[key] = None if new is None else self._table.add(new, name)
        return self.reduced[key]


class _Calls(BindingRewriter):
    """Calls kernels for the outputs that are used."""

    def __init__(self, kernels: _Kernels, used: Mapping[rx.Expr, Collection[int]]) -> None:
        super().__init__()
        self.kernels, self.used = kernels, used
        self.fields: dict[rx.Expr, Sequence[int]] = {}
        self.original: rx.Expr | None = None

    @override
    def binding(
        self, binding: rx.Binding, block: rx.BindingBlock
    ) -> Iterable[rx.Binding | rx.BindingBlock]:
        self.original = binding.var
        return super().binding(binding, block)

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        value = binding.value
        if isinstance(value, rx.TupleGetItem) and value.tuple_value in self.fields:
            fields = self.fields[value.tuple_value]
            alone = len(fields) == 1
            return value.tuple_value if alone else rebuild(value, index=fields.index(value.index))
        outputs, original = _outputs(value), self.original
        if not isinstance(binding, rx.VarBinding) or not outputs or original is None:
            return None
        fields = sorted(self.used.get(original, range(len(outputs))))
        if len(fields) == len(outputs):
            return None
        called = called_kernel(value)
        assert isinstance(value, rx.Call)
        assert called is not None
        first = len(called[1])
        dropped = tuple(first + k for k in range(len(outputs)) if k not in fields)
        new = self.kernels.without(called[0], dropped)
        if new is None:
            return None
        kept = [outputs[k] for k in fields]
        sinfo = kept[0] if len(kept) == 1 else rx.TupleStructInfo(tuple(kept))
        call = rx.Call(
            value.op, (new, *value.args[1:]), value.attrs, sinfo_args=(sinfo,), span=value.span
        )
        var = self.rederived(binding.var)
        self.fields[var] = fields
        return rx.VarBinding(var, call, binding.span)


def _without(kernel: PrimFunc, dropped: Collection[int]) -> PrimFunc | None:
    """The kernel without some outputs, and without the statements that only store to them."""
    buffers = kernel.buffer_map_items
    outputs = {b for k in dropped if (b := buffers[k]) is not None}
    if may_fail(kernel) or not is_bound_without(kernel, dropped):
        return None
    realize = kernel.body
    is_root = isinstance(realize, BlockRealize) and not realize.block.iter_vars
    body = realize.block.body if isinstance(realize, BlockRealize) and is_root else realize
    statements = body.seq if isinstance(body, SeqStmt) else (body,)
    kept = [
        stmt
        for stmt in statements
        if not stored_buffers(stmt) or not stored_buffers(stmt) <= outputs
    ]
    mentioned = {node for stmt in kept for node in walk(stmt)}
    if not kept or mentioned & {x for b in outputs for x in (b, b.data)}:
        return None
    new = stmt_seq(*kept)
    if isinstance(realize, BlockRealize) and is_root:
        block = realize.block
        regions = {
            name: tuple(r for r in getattr(block, name) if r.buffer not in outputs)
            for name in ("reads", "writes")
        }
        new = rebuild(realize, block=rebuild(block, body=new, **regions))
    params = tuple(p for k, p in enumerate(kernel.params) if k not in dropped)
    map_ = {p: b for p, b in kernel.buffer_map.items() if p in params}
    attrs = kernel.without_attr("global_symbol").attrs
    return PrimFunc(params, new, buffer_map=map_, attrs=attrs)
