"""Layouts of a kernel's blocks and buffers that agree with layouts of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from relaxpy.errors import MisuseError, counted, unexpected
from relaxpy.ir.arith.tvm.iter_map import detect_iter_map
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax.known import expect
from relaxpy.ir.relax.relations.shape_vars import variables_of
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block, BufferStore
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.entry import user_facing
from relaxpy.tvm.patterns import detect_linear_equation

Transform: TypeAlias = IndexMap | Callable[..., object]
Suggestions: TypeAlias = dict[Block, dict[Block | Buffer, IndexMap]]
Indices: TypeAlias = tuple[PrimExpr, ...]


@user_facing
def suggest_layout_transforms(
    func: PrimFunc, write_buffer_transforms: Sequence[Transform]
) -> Suggestions:
    """Layout transforms of the variables and buffers of each block of `func`.

    The arguments are transforms of the buffers that `func` writes, which are its last parameters. A
    block has an entry if it writes a transformed buffer, at indices that are distinct spatial
    variables; the block is then transformed like the buffer, its other variables stay in their
    places. A buffer has an entry, with the first block that uses it, if every block that does then
    reads or writes it at some of the new variables, in their order; windows, steps and offsets of
    variables count as these unless they are divided. The argument for a buffer is never changed.

    Errors:
        MisuseError (also TypeError): `func` is not a PrimFunc, there are more transforms than
            buffers, or one has not as many indices as its buffer.
    """
    expect(func, PrimFunc)
    blocks = [_Accesses(n) for n in walk(func.body) if isinstance(n, Block) and _is_innermost(n)]
    requested = _requested(func, write_buffer_transforms)
    layouts = dict(requested)
    candidates: Suggestions = {}
    for accesses in reversed(blocks):
        if accesses.written in layouts:
            candidates[accesses.block] = accesses.maps(layouts[accesses.written])
        for buffer in accesses.read:
            readers = [b for b in blocks if buffer in b.read]
            agreed = _agreed(candidates, readers, buffer)
            if agreed is not None:
                layouts.setdefault(buffer, agreed)
    result: Suggestions = {}
    for accesses in blocks:
        for key, index_map in candidates.get(accesses.block, {}).items():
            users = [b for b in blocks if key in b.read or key is b.written]
            if isinstance(key, Block):
                fits = True
            elif users[0] is not accesses:
                fits = False
            elif key in requested:
                fits = requested[key].is_equivalent_to(index_map)
            else:
                fits = _agreed(candidates, users, key) is not None
            if fits:
                result.setdefault(accesses.block, {})[key] = index_map
    return result


def _agreed(candidates: Suggestions, users: Sequence[_Accesses], buffer: Buffer) -> IndexMap | None:
    """The layout of a buffer on which all blocks that use it agree, or None."""
    maps = [candidates.get(user.block, {}).get(buffer) for user in users]
    first = maps[0]
    if first is None or not all(m is not None and first.is_equivalent_to(m) for m in maps):
        return None
    return first


def _requested(func: PrimFunc, transforms: Sequence[Transform]) -> dict[Buffer, IndexMap]:
    buffers = [buffer for buffer in func.buffer_map_items if buffer is not None]
    if not isinstance(transforms, Sequence) or len(transforms) > len(buffers):
        raise unexpected(
            transforms,
            f"transforms are a list of at most {counted(len(buffers), 'map')}, one for each of the "
            "last buffers",
        )
    layouts = {}
    for buffer, transform in zip(reversed(buffers), reversed(transforms), strict=False):
        index_map = transform
        if not isinstance(index_map, IndexMap):
            index_map = IndexMap.from_func(index_map, len(buffer.shape))
        if len(index_map.initial_indices) != len(buffer.shape):
            raise MisuseError(
                f"buffer {buffer.name} has {counted(len(buffer.shape), 'index', 'indices')}, the "
                f"map takes {len(index_map.initial_indices)}",
                about=transform,
            )
        layouts[buffer] = index_map
    return layouts


def _is_innermost(block: Block) -> bool:
    return not any(isinstance(node, Block) for node in walk(block.body))


class _Accesses:
    """The buffers that an innermost block reads and writes, with the indices."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.stores: dict[Buffer, set[Indices]] = {}
        self.read: dict[Buffer, set[Indices]] = {}
        for part in (block.body, block.init):
            for node in () if part is None else walk(part):
                if isinstance(node, BufferStore):
                    self.stores.setdefault(node.buffer, set()).add(node.indices)
                elif isinstance(node, BufferLoad):
                    self.read.setdefault(node.buffer, set()).add(node.indices)
        self.written = next(iter(self.stores)) if len(self.stores) == 1 else None
        if self.written in self.read and self.read[self.written] <= self.stores[self.written]:
            del self.read[self.written]  # a reduction reads what it updates

    def _variable_indices(self, accesses: set[Indices]) -> Indices | None:
        """The indices of the only access if they are distinct block variables or 0."""
        if len(accesses) != 1:
            return None
        [indices] = accesses
        block_vars = {axis.var for axis in self.block.iter_vars}
        nonzero = [i for i in indices if not (isinstance(i, IntImm) and not i.value)]
        distinct = len(set(nonzero)) == len(nonzero)
        return indices if distinct and block_vars.issuperset(nonzero) else None

    def maps(self, layout: IndexMap) -> dict[Block | Buffer, IndexMap]:
        """The transforms that agree with a layout of the written buffer, if there are any."""
        assert self.written is not None
        target = self._variable_indices(self.stores[self.written])
        domains = {a.var: a.dom for a in self.block.iter_vars if a.dom is not None}
        if target is None or len(domains) != len(self.block.iter_vars) or self.written in self.read:
            return {}
        spatial = {var: dom for var, dom in domains.items() if var in target}
        moved = layout.map_indices(target)
        if detect_iter_map(moved, spatial, check_level="bijective").errors:
            return {}
        turn = iter(moved)
        places = (next(turn, None) if var in spatial else var for var in domains)
        order = [*(index for index in places if index is not None), *turn]
        maps: dict[Block | Buffer, IndexMap] = {
            self.block: IndexMap(*_renamed(list(domains), order)),
            self.written: layout,
        }
        for buffer, accesses in self.read.items():
            source = self._variable_indices(_leading(accesses, spatial, order))
            index_map = None if source is None else _arranged(source, order)
            if index_map is not None and _keeps_all(index_map, buffer):
                maps[buffer] = index_map
        return maps


def _leading(
    accesses: set[Indices], spatial: Mapping[Var, Range], order: Sequence[PrimExpr]
) -> set[Indices]:
    """The accesses with a sum over one spatial variable, if that stays whole, as the variable."""

    def leading(index: PrimExpr) -> PrimExpr:
        variables = [var for var in variables_of(index) if var in spatial and var in order]
        linear = len(variables) == 1 and detect_linear_equation(index, variables)
        return variables[0] if linear else index

    return {tuple(map(leading, indices)) for indices in accesses}


def _arranged(source: Indices, order: Sequence[PrimExpr]) -> IndexMap | None:
    """The transform of a buffer that is read at `source`, for an `order` of block variables."""
    here = {i for i in source if isinstance(i, Var)}
    uses = [set(variables_of(index)) for index in order]
    if any(used & here and used - here for used in uses):
        return None
    final = [index for index, used in zip(order, uses, strict=True) if used and used <= here]
    names = [i if isinstance(i, Var) else Var("unit", i.dtype) for i in source]
    variables, indices = _renamed(names, final)
    same = len(indices) == len(variables)
    if same and all(a is b for a, b in zip(indices, variables, strict=True)):
        return None
    return IndexMap(variables, indices)


def _keeps_all(index_map: IndexMap, buffer: Buffer) -> bool:
    """True if a transform maps all elements of a buffer to different ones."""
    iters = dict(zip(index_map.initial_indices, map(Range, buffer.shape), strict=True))
    return not detect_iter_map(index_map.final_indices, iters, check_level="bijective").errors


def _renamed(
    variables: Sequence[Var], indices: Sequence[PrimExpr]
) -> tuple[tuple[Var, ...], Indices]:
    """Both with new variables."""
    fresh = {var: var.renamed(var.name) for var in variables}
    return tuple(fresh.values()), tuple(substitute(index, fresh) for index in indices)
