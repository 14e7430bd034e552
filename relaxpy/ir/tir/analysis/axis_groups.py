"""Analysis of the buffer axes and loops of a kernel that can be split, and those split together."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TypeAlias

from relaxpy.errors import TransformError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import Groups, children, rewrite, walk
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion
from relaxpy.ir.tir.expr import FloatImm, IntImm, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, MatchBufferRegion
from relaxpy.support.dataclass import replace

Axis: TypeAlias = tuple[Buffer, int] | Var
"""An axis of a buffer, a loop, or an iteration variable of a block."""

_COMBINATIONS: dict[type[tir.BinaryOpExpr], str] = {
    tir.Add: "sum",
    tir.Mul: "prod",
    tir.Max: "max",
    tir.Min: "min",
}


class AxisGroups:
    """The axes of a kernel in groups: one is split only together with the others of its group.

    An axis is in a group with the variables that index it. It has to be whole if it is indexed in
    another way, and so does a loop whose variable is used other than as an index, or that stores to
    one element several times without a block that declares its reduction. An axis whose size is a
    variable is split only if nothing else depends on that variable.
    """

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self._groups: Groups[Axis] = Groups()
        self._whole: list[Axis] = []
        self._mentions: list[Var] = []
        self._buffers: dict[Buffer, None] = dict.fromkeys(func.buffer_map.values())
        self._reductions: list[tuple[Var, Block]] = []
        for node in walk(func.body):
            self._enter(node)
        self._enter_stores(func.body, ())
        self._enter_sizes()
        for buffer in self._buffers:
            if buffer.strides:
                self._whole += [(buffer, axis) for axis in range(len(buffer.shape))]
        self._has_to_be_whole = {self._groups.find(axis) for axis in self._whole}

    def group(self, buffer: Buffer, axis: int) -> Axis | None:
        """The representative of the group of a buffer's axis; None if it has to be whole."""
        group = self._groups.find((buffer, axis))
        return None if group in self._has_to_be_whole else group

    def reductions(self, groups: Container[Axis]) -> dict[tuple[Buffer, str], list[Axis]]:
        """The buffers that hold partial results if these groups are split, and how to combine them.

        Beside them are the groups over which each is reduced.

        Errors:
            TransformError: a reduction is not a sum, product, min or max, or its result is used
                in the kernel.
        """
        found: dict[tuple[Buffer, str], list[Axis]] = {}
        for var, block in self._reductions:
            group = self._groups.find(var)
            if group in groups:
                found.setdefault(self._combination(block), []).append(group)
        return found

    def _combination(self, block: Block) -> tuple[Buffer, str]:
        store = block.body
        value = store.value if isinstance(store, BufferStore) else None
        if (
            isinstance(store, BufferStore)
            and isinstance(value, tir.BinaryOpExpr)
            and type(value) in _COMBINATIONS
        ):
            first = value.a
            if isinstance(first, BufferLoad) and first.buffer is store.buffer:
                reads = [
                    node
                    for node in walk(self.func.body)
                    if isinstance(node, BufferLoad) and node.buffer is store.buffer
                ]
                if (
                    store.buffer in self.func.buffer_map.values()
                    and all(read is first for read in reads)
                    and _starts_neutral(block, type(value))
                ):
                    return store.buffer, _COMBINATIONS[type(value)]
        raise TransformError(
            f"block {block.name_hint} reduces along an axis that is split over several devices, "
            "and its partial results are not the result of the kernel",
            span=block.span,
            hint="split another axis, or legalise the operator to several kernels",
        )

    def split(self, groups: Mapping[Axis, int]) -> PrimFunc:
        """The kernel on one shard; each group's axes are split into the given number of shards.

        Errors:
            TransformError: a size is neither a variable nor a constant that the number divides.
        """

        def part(axis: Axis, size: PrimExpr) -> PrimExpr:
            count = groups.get(self._groups.find(axis), 1)
            if count == 1:
                return size
            if isinstance(size, Var):
                return size
            if not isinstance(size, IntImm) or size.value % count:
                raise TransformError(
                    f"an axis of size {size} cannot be divided in {count} equal parts",
                    span=self.func.span,
                )
            return ops.const(size.value // count, size.dtype)

        buffers = {
            buffer: replace(
                buffer, shape=tuple(part((buffer, k), size) for k, size in enumerate(buffer.shape))
            )
            for buffer in self._buffers
            if any(self._groups.find((buffer, k)) in groups for k in range(len(buffer.shape)))
        }

        def step(node: Node) -> Node | None:
            match node:
                case Buffer():
                    return buffers.get(node)
                case For(loop_var=var, extent=size) | IterVar(var=var, dom=Range(extent=size)) if (
                    self._groups.find(var) in groups
                ):
                    extent = part(var, size)
                    if isinstance(node, For):
                        return replace(node, extent=extent)
                    assert node.dom is not None
                    return replace(node, dom=Range.from_min_extent(node.dom.min, extent))
                case _:
                    return None

        result = rewrite(self.func, step)
        assert isinstance(result, PrimFunc)
        return result

    # --- analysis of the kernel

    def _enter(self, node: Node) -> None:
        match node:
            case BufferLoad(buffer=buffer, indices=indices):
                self._access(buffer, indices)
            case BufferStore(buffer=buffer, indices=indices, value=value):
                self._access(buffer, indices)
                self._mentioned(value)
            case BufferRegion(buffer=buffer, region=region):
                self._access(buffer, [dom.min if _is_point(dom) else None for dom in region])
            case BlockRealize(block=block, iter_values=values, predicate=predicate):
                self._mentioned(predicate)
                for iter_var, value in zip(block.iter_vars, values, strict=True):
                    if isinstance(value, Var):
                        self._groups.join(iter_var.var, value)
                    else:
                        self._whole.append(iter_var.var)
                    if iter_var.iter_type == IterVarKind.CommReduce:
                        self._reductions.append((iter_var.var, block))
            case Block(alloc_buffers=buffers):
                self._buffers |= dict.fromkeys(buffers)
            case MatchBufferRegion(source=source, buffer=buffer):
                for one in (source.buffer, buffer):
                    self._whole += [(one, axis) for axis in range(len(one.shape))]
            case For(min=start, loop_var=var):
                if not isinstance(start, IntImm) or start.value:
                    self._whole.append(var)
            case IterVar() | Range() | Buffer():
                pass
            case _:
                for child in children(node):
                    self._mentioned(child)

    def _enter_stores(self, node: Node, repeated: tuple[Var, ...]) -> None:
        """Note the loops that store to one element several times; `repeated` enclose them."""
        match node:
            case For(loop_var=var):
                repeated = (*repeated, var)
            case Block(iter_vars=iter_vars):
                reduced = {
                    self._groups.find(iter_var.var)
                    for iter_var in iter_vars
                    if iter_var.iter_type == IterVarKind.CommReduce
                }
                repeated = tuple(v for v in repeated if self._groups.find(v) not in reduced)
            case BufferStore(indices=indices):
                stored = {self._groups.find(i) for i in indices if isinstance(i, Var)}
                self._whole += [v for v in repeated if self._groups.find(v) not in stored]
            case _:
                pass
        for child in children(node):
            self._enter_stores(child, repeated)

    def _enter_sizes(self) -> None:
        """Note the axes on whose size something else depends."""
        owners: dict[Var, set[Axis]] = {}
        own: list[tuple[Axis, PrimExpr]] = [
            ((b, k), size) for b in self._buffers for k, size in enumerate(b.shape)
        ]
        for node in walk(self.func.body):
            match node:
                case For(loop_var=var, extent=size) | IterVar(var=var, dom=Range(extent=size)):
                    own.append((var, size))
                case _:
                    pass
        for axis, size in own:
            if isinstance(size, Var):
                owners.setdefault(size, set()).add(self._groups.find(axis))
        whole = set(self._mentions)
        whole |= {
            node
            for _, size in own
            if not isinstance(size, Var)
            for node in walk(size)
            if isinstance(node, Var)
        }
        for size, groups in owners.items():
            if size in whole or len(groups) > 1 or size in self.func.params:
                self._whole += groups

    def _access(self, buffer: Buffer, indices: Sequence[PrimExpr | None]) -> None:
        self._buffers.setdefault(buffer)
        for axis, index in enumerate(indices):
            if isinstance(index, Var):
                self._groups.join((buffer, axis), index)
            else:
                self._whole.append((buffer, axis))

    def _mentioned(self, node: Node) -> None:
        if isinstance(node, Var):
            self._whole.append(node)
            self._mentions.append(node)


def _starts_neutral(block: Block, combination: type[tir.BinaryOpExpr]) -> bool:
    """True if all devices may start with the init value without changing the total."""
    if combination in (tir.Max, tir.Min):
        return True
    start = block.init.value if isinstance(block.init, BufferStore) else None
    neutral = 1 if combination is tir.Mul else 0
    return isinstance(start, (IntImm, FloatImm)) and start.value == neutral


def _is_point(dom: Range) -> bool:
    return isinstance(dom.extent, IntImm) and dom.extent.value == 1
