"""InlineDecoding: packed weights are dequantised inside the matmul that reads them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from typing_extensions import override

from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.fusion.fuse_ops import AnnotateTIROpPattern, FuseTIR
from relaxpy.ir.passes.fusion.grouping import FunctionGroup, group_bindings
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.op_pattern import OpPatternKind, op_pattern_kind
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.known import called_kernel
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import Cast, FloorDiv, FloorMod, IntImm
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block, BufferStore, Stmt
from relaxpy.support.dataclass import dataclass

_MOST: Final = 128
"""The maximum number of neighbouring weights that are decoded together."""
_UNIT: Final = 8
"""Their number is a multiple of this."""
_GROUPS: Final = 8
"""The groups of which the last one may have fewer weights."""
_GROWTH: Final = 1.5
"""The minimum ratio of the bytes of decoded and packed weights."""
_PART: Final = 32
"""The divisor of the row length of weights that are not packed."""
_BYTE: Final = 8
FEW_ROWS: Final = 64
"""The maximum number of rows for which decoding inside the matmul is faster than before it."""


@dataclass(frozen=True)
class InlineDecoding(Pass):
    """Dequantises packed weights inside a matmul with few rows, or an unknown number.

    The kernels are annotated with their patterns. Weights are decoded by one elementwise kernel,
    and groups of some neighbours have a common element of memory.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        functions = mod.functions_by_name
        kernels = {name: f for name, f in functions.items() if isinstance(f, PrimFunc)}
        is_worth = cache(_is_worth)  # layers of a model have the same kernels
        grouped = group_bindings(
            mod, lambda block: _groups(block, kernels, is_worth), lift_constants=True
        )
        joined = [
            name
            for name, func in grouped.functions_by_name.items()
            if isinstance(func, rx.Function) and func.attrs.get(_MARK)
        ]
        if not joined:
            return mod
        result = FuseTIR().transform(grouped, ctx).clone()
        for name, func in list(result.functions_by_name.items()):
            if name in joined and isinstance(func, PrimFunc):
                result[name] = _inlined(func)
        return AnnotateTIROpPattern().transform(result, ctx)


_MARK: Final = "decodes_weights"


def _groups(
    block: rx.DataflowBlock,
    kernels: Mapping[str, PrimFunc],
    is_worth: Callable[[PrimFunc, PrimFunc, int], bool],
) -> Mapping[rx.Binding, FunctionGroup]:
    """A group for each matmul and the kernel that decodes its weights, if that is profitable."""
    uses = Counter(var for b in block.bindings for var in occurring_vars(b.value))
    by_var = {b.var: b for b in block.bindings if isinstance(b.var, rx.DataflowVar)}
    groups: dict[rx.Binding, FunctionGroup] = {}
    for binding in block.bindings:
        call = _kernel_call(binding, kernels)
        if call is None:
            continue
        product, args = call
        sources = [_source(arg, by_var, uses, args) for arg in args]
        kernels_of = [None if s is None else _kernel_call(s, kernels) for s in sources]
        for number, (source, decoding) in enumerate(zip(sources, kernels_of, strict=True)):
            if source is None or decoding is None or source in groups:
                continue
            if is_worth(decoding[0], product, number):
                group = FunctionGroup({_MARK: True})
                groups |= {source: group, binding: group}
                for other, widening in zip(sources, kernels_of, strict=True):
                    if other is not None and widening and other is not source:
                        groups |= {other: group} if _is_of_bytes(widening[0]) else {}
                break
    return {b: groups[b] for b in block.bindings if b in groups}


def _source(
    arg: rx.Expr,
    by_var: Mapping[rx.DataflowVar, rx.Binding],
    uses: Mapping[rx.Var, int],
    args: Sequence[rx.Expr],
) -> rx.Binding | None:
    """The binding of an operand that is used nowhere else."""
    if not isinstance(arg, rx.DataflowVar) or uses[arg] != 1 or list(args).count(arg) != 1:
        return None
    return by_var.get(arg)


def _is_of_bytes(func: PrimFunc) -> bool:
    """True if a kernel converts 8-bit integers to equally many floats."""
    match list(_blocks(func)):
        case [Block(body=BufferStore(value=Cast(value=BufferLoad(buffer=buffer)), buffer=target))]:
            return buffer.dtype.is_int and buffer.dtype.bits == _BYTE and target.dtype.is_float
        case _:
            return False


def _kernel_call(
    binding: rx.Binding, kernels: Mapping[str, PrimFunc]
) -> tuple[PrimFunc, Sequence[rx.Expr]] | None:
    """The kernel that a binding calls for one output, and its tensors."""
    value = binding.value
    called = called_kernel(value, of_any_kind=True) if isinstance(binding, rx.VarBinding) else None
    if called is None or not isinstance(value, rx.Call) or len(value.args) != 2:
        return None
    func, operands = kernels.get(called[0]), called[1]
    return (func, operands) if func and len(func.params) == len(operands) + 1 else None


def _is_worth(decoding: PrimFunc, product: PrimFunc, number: int) -> bool:
    """True if a kernel decodes the operand `number` of a matmul, for few rows at most."""
    if op_pattern_kind(decoding) > OpPatternKind.INJECTIVE:
        return False
    if op_pattern_kind(product) is not OpPatternKind.OUT_EWISE_FUSABLE:
        return False
    sources, results = ([*f.buffer_map_items] for f in (decoding, product))
    weights = _size(sources[-1])
    stored = [_size(buffer) for buffer in sources[:-1]]
    if weights is None or any(size is None for size in stored):
        return False
    if weights[1] < _GROWTH * sum(size[1] for size in stored if size is not None):
        return False
    if (used := results[number]) is None:
        return False
    blocks = [b for b in _blocks(product) if _loads_of(used, b)]
    if len(blocks) != 1 or str(_target(blocks[0]).dtype) != "float32":
        return False
    [block] = blocks
    extents = {axis.var: _extent(axis) for axis in block.iter_vars}
    loads = _loads_of(used, block)
    if len(loads) != 1:
        return False
    [load] = loads
    own = [extents.pop(i, None) for i in load.indices if isinstance(i, tir.Var)]
    known = [n for n in own if n is not None]
    if len(known) < len(load.indices) or math.prod(known) != weights[0]:
        return False
    if math.prod(n or 1 for n in extents.values()) > FEW_ROWS:
        return False
    reduced = [a for a in block.iter_vars if _is_reduced(a)]
    if len(reduced) != 1 or load.indices[-1] is not reduced[0].var:
        return False
    return _has_groups(decoding, known[-1])


def _is_reduced(axis: IterVar) -> bool:
    return axis.iter_type is tir.IterVarKind.CommReduce


def _extent(axis: IterVar) -> int | None:
    """The iterations of an axis, if they are known."""
    extent = None if axis.dom is None else axis.dom.extent
    return extent.value if isinstance(extent, IntImm) else None


def _has_groups(decoding: PrimFunc, size: int) -> bool:
    """True if the kernel decodes groups of neighbours of rows of `size` weights."""
    blocks = list(_blocks(decoding))
    if len(blocks) != 1:
        return False
    [block] = blocks
    stores = list(occurrences(block.body, BufferStore))
    if len(stores) != 1 or not stores[0].buffer.dtype.is_float or not stores[0].indices:
        return False
    last = stores[0].indices[-1]
    divisions = [n for kind in (FloorDiv, FloorMod) for n in occurrences(stores[0].value, kind)]
    divisors = [n.b.value for n in divisions if isinstance(n.b, IntImm) and n.b.value > 0]
    if len(divisors) < len(divisions):
        return False
    if not divisors:  # each weight has an integer of its own
        return size % _PART == 0 and any(
            n.buffer.dtype.bits == _BYTE for n in occurrences(block.body, BufferLoad)
        )
    if not all(last in set(occurrences(n.a, tir.Var)) for n in divisions):
        return False
    return has_fast_groups(math.lcm(*divisors), size)


def has_fast_groups(group: int, size: int) -> bool:
    """True if matmuls can decode rows of `size` weights in groups of `group` neighbours."""
    is_whole = size % group == 0 or size >= _GROUPS * group
    return is_whole and group <= _MOST and group % _UNIT == 0


def _size(buffer: Buffer | None) -> tuple[int, int] | None:
    """The elements and the bytes of a buffer, if they are known."""
    if buffer is None:
        return None
    known = [n.value for n in buffer.shape if isinstance(n, IntImm)]
    if len(known) < len(buffer.shape):
        return None
    count = math.prod(known)
    return count, count * buffer.dtype.itemsize


def _loads_of(buffer: Buffer, block: Block) -> set[BufferLoad]:
    """The loads of a buffer in a block."""
    return {load for load in occurrences(block.body, BufferLoad) if load.buffer is buffer}


def _blocks(func: PrimFunc) -> Iterator[Block]:
    """The blocks that have variables."""
    return (b for b in occurrences(func.body, Block) if b.iter_vars)


def _inlined(func: PrimFunc) -> PrimFunc:
    """The kernel, with weights decoded where its matmul reads them."""
    from relaxpy.ir.tir.rewrite.inline import compute_inline  # with all of scheduling
    from relaxpy.ir.tir.rewrite.state import State

    state = State(func)
    local = {b for block in occurrences(state.func.body, Block) for b in block.alloc_buffers}
    sums = {_target(b) for b in _blocks(state.func) if any(map(_is_reduced, b.iter_vars))}
    targets = [_target(b) for b in _blocks(state.func)]
    for buffer in targets:
        if buffer in local and buffer not in sums:
            compute_inline(state, next(b for b in _blocks(state.func) if _target(b) is buffer))
    return state.func


def _target(block: Stmt) -> Buffer:
    return next(occurrences(block, BufferStore)).buffer
