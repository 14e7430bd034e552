"""SplitLayoutRewritePreproc: kernels that first rewrite weights become two kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from typing_extensions import override

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rebuild, rewrite, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.rewrite.map_with_builder import map_with_builder
from relaxpy.ir.relax.rewrite.preceding import PrecedingBindings
from relaxpy.ir.relax.transform.cleanup.dead_code_elimination import DeadCodeElimination
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.analysis.regions import loaded_buffers, stored_buffers
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, SeqStmt, Stmt
from relaxpy.support.dataclass import dataclass, replace

PREPROC = "meta_schedule.layout_rewrite_preproc"
"""The annotation of blocks that only copy a weight to another layout."""
LAYOUT_FREE = "layout_free_buffers"
"""The attribute of a PrimFunc that lists the parameters whose layout is free."""


@dataclass(frozen=True)
class SplitLayoutRewritePreproc(Pass):
    """Divides kernels into one that rewrites the layouts of weights, and one that computes.

    In such a kernel, blocks with the annotation `meta_schedule.layout_rewrite_preproc` copy
    operands to buffers of another layout, which all other blocks read instead. The result is a call
    of `<name>_weight_prepack` on these operands, which need not be repeated, and one of
    `<name>_prepacked`. Functions that nothing calls are removed, as by DeadCodeElimination.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        kernels = {
            var.name_hint: divided
            for var, func in mod.items()
            if isinstance(func, PrimFunc) and (divided := _divided(func)) is not None
        }
        if not kernels:
            return mod

        def split(func: rx.Function, builder: BlockBuilder) -> rx.Function:
            return _Splitting(kernels, builder).expr(func)

        result = map_with_builder(mod, split)
        return mod if result is mod else DeadCodeElimination().transform(result, ctx)


@dataclass(frozen=True, slots=True)
class _Kernels:
    """The two PrimFuncs, and the rewritten buffers by the positions of their parameters."""

    prepack: PrimFunc
    compute: PrimFunc
    rewritten: dict[int, Buffer]


class _Splitting(BindingRewriter):
    """Replaces the calls of one function."""

    def __init__(self, kernels: dict[str, _Kernels], builder: BlockBuilder) -> None:
        super().__init__()
        self.kernels, self.builder = kernels, builder

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(binding, rx.VarBinding) or not rx.is_call_of(call, "relax.call_tir"):
            return None
        if not isinstance(call.args[0], rx.GlobalVar):
            return None
        name = call.args[0].name_hint
        kernels = self.kernels.get(name)
        operands = list(cast("rx.Tuple", call.args[1]).fields)
        if kernels is None or max(kernels.rewritten) >= len(operands):
            return None
        prepack = self.builder.add_func(kernels.prepack, f"{name}_weight_prepack")
        compute = self.builder.add_func(kernels.compute, f"{name}_prepacked")
        weights = tuple(operands[k] for k in kernels.rewritten)
        sinfos = [
            rx.TensorStructInfo(rx.ShapeExpr(b.shape), b.dtype) for b in kernels.rewritten.values()
        ]
        whole = sinfos[0] if len(sinfos) == 1 else rx.TupleStructInfo(tuple(sinfos))
        new = PrecedingBindings(binding, block)
        packed = new.bound(
            rx.Call(call.op, (prepack, rx.Tuple(weights)), call.attrs, (whole,), span=call.span),
            "_weight",
        )
        for k, position in enumerate(kernels.rewritten):
            item = rx.TupleGetItem(packed, k, span=call.span)
            operands[position] = packed if len(sinfos) == 1 else new.bound(item, "_weight")
        arguments = (compute, rx.Tuple(tuple(operands)), *call.args[2:])
        return new.ended(new.bound(rebuild(call, args=arguments), "_value"))


def _divided(func: PrimFunc) -> _Kernels | None:
    """The kernels into which a PrimFunc is divided; None if it cannot be."""
    root = func.body.block if isinstance(func.body, BlockRealize) else None
    statements = root.body.seq if root is not None and isinstance(root.body, SeqStmt) else ()
    preproc = [stmt for stmt in statements if _is_preproc(stmt)]
    rest = [stmt for stmt in statements if not any(stmt is other for other in preproc)]
    if root is None or not preproc or not rest:
        return None
    rewritten: dict[int, Buffer] = {}
    buffers = func.buffer_map_items
    for stmt in preproc:
        [read], [written] = loaded_buffers(stmt), stored_buffers(stmt)
        if read not in buffers or written not in root.alloc_buffers:
            return None
        rewritten[buffers.index(read)] = written
    originals = [cast("Buffer", buffers[k]) for k in rewritten]
    sources = {*originals, *(buffer.data for buffer in originals)}
    constant = all(isinstance(n, tir.IntImm) for b in rewritten.values() for n in b.shape)
    is_private = all(_mentioned(s).isdisjoint(sources) for s in rest) and all(
        stored_buffers(s).isdisjoint(rewritten.values()) for s in rest
    )
    if len(rewritten) < len(preproc) or not constant or not is_private:
        return None
    positions = dict(sorted(rewritten.items()))
    attrs = func.without_attr(LAYOUT_FREE).without_attr("global_symbol").attrs
    pairs = [(func.params[k], buffers[k]) for k in positions]
    pairs += [(tir.Var(b.name, "handle"), b) for b in positions.values()]
    prepack = PrimFunc(
        tuple(param for param, _ in pairs),
        _root(root, map(_without_annotation, preproc), ()),
        None,
        {param: cast("Buffer", buffer) for param, buffer in pairs},
        attrs,
        span=func.span,
    )
    left = [b for b in root.alloc_buffers if b not in positions.values()]
    new = {**func.buffer_map, **{func.params[k]: b for k, b in positions.items()}}
    compute = PrimFunc(func.params, _root(root, rest, left), None, new, attrs, span=func.span)
    return _Kernels(prepack, compute, positions)


def _root(root: Block, statements: Iterable[Stmt], buffers: Sequence[Buffer]) -> BlockRealize:
    body = tuple(statements)
    block = Block(
        (),
        (),
        (),
        root.name_hint,
        body[0] if len(body) == 1 else SeqStmt(body),
        None,
        tuple(buffers),
    )
    return BlockRealize((), tir.IntImm("bool", 1), block)


def _blocks(stmt: Stmt) -> list[Block]:
    return [node for node in walk(stmt) if isinstance(node, Block)]


def _is_preproc(stmt: Stmt) -> bool:
    """True if a statement is one annotated block in loops, which copies one buffer to another."""
    blocks = _blocks(stmt)
    return (
        len(blocks) == 1
        and bool(blocks[0].annotations.get(PREPROC))
        and not blocks[0].alloc_buffers
        and len(loaded_buffers(stmt)) == len(stored_buffers(stmt)) == 1
    )


def _mentioned(stmt: Stmt) -> set[Buffer | tir.Var]:
    """The buffers that a statement may access, and all variables, among them their pointers."""
    result: set[Buffer | tir.Var] = set()
    for node in walk(stmt):
        if isinstance(node, (BufferLoad, BufferStore, BufferRegion)):
            result.add(node.buffer)
        elif isinstance(node, tir.Var):
            result.add(node)
    return result


def _without_annotation(stmt: Stmt) -> Stmt:
    """A statement whose block is not annotated any more."""
    [block] = _blocks(stmt)

    def plain(node: Node) -> Node | None:
        return (
            replace(block, annotations=block.annotations.without(PREPROC))
            if node is block
            else None
        )

    return cast("Stmt", rewrite(stmt, plain))
