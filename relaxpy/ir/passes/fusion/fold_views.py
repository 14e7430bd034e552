"""FoldViews: kernels read tensors themselves instead of rearranged copies of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Mapping, Sequence
from functools import cached_property, partial, reduce
from operator import mul
from typing import TYPE_CHECKING, TypeAlias, cast

from typing_extensions import override

from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly, may_be_negative
from relaxpy.ir.arith.prove import prove_equal, simplify
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, occurrences, rebuild, rewrite, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition.rules import is_one
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.cleanup.dead_code_elimination import without_dead_code
from relaxpy.ir.passes.fusion.grouping import known_dimensions, may_fail
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import mutates
from relaxpy.ir.relax.analysis.op_pattern import has_reshape_pattern
from relaxpy.ir.relax.analysis.variables import mention_counts
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.block_builder.function_table import FunctionTable
from relaxpy.ir.relax.known import called_kernel, literal_shape
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.analysis.regions import filled_buffers
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion, decl_buffer
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block, BufferStore, DeclBuffer, For, MatchBufferRegion, Stmt
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.ir.arith.tvm.analyzer import Analyzer

Axes: TypeAlias = tuple[tuple[int, int] | None, ...]
"""For each axis of a tensor the axis of its copy, and how often elements are repeated along it.

None if the axis has size 1 and the copy has none for it; 0 times if the copy has the first elements
only, and a shape variable is the size of the tensor; -1 times if their order is reversed.
"""
View: TypeAlias = Axes | PrimExpr
"""The definition of a copy: a tensor along other axes, or the value of all its elements."""
_OFTEN = 32
"""From this many reads of an element, simple indices pay more than the avoided copy."""


@dataclass(frozen=True)
class FoldViews(Pass):
    """Passes tensors to the kernels of a dataflow block instead of rearranged copies of them.

    These are transposed and repeated tensors, the first elements of tensors whose size is a shape
    variable, and such with axes of size 1 added or removed. This is done for kernels that read each
    element of the copy in one place only, as matmuls do; repetitions of single elements, as of
    heads in attention, stay where kernels read them often. A tensor filled with one value becomes
    this value. Copies that nothing else uses are removed.

    Scans run from the end of an axis instead of over flipped copies.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        kernels = _Kernels(mod)
        if not kernels.views:
            return mod
        for var, func in mod.items():
            if isinstance(func, rx.Function):
                after = _Folding(kernels, func).expr(func)
                if after is not func:
                    kernels.result[var] = without_dead_code(after)
        return normalize_module(kernels.result) if kernels.folded else mod


class _Kernels:
    """The kernels of a module, those that compute views, and the new ones in `result`."""

    def __init__(self, mod: IRModule) -> None:
        self.result = mod.clone()
        functions = mod.functions_by_name
        self.by_name = {n: func for n, func in functions.items() if isinstance(func, PrimFunc)}
        found = ((name, _view_of(func)) for name, func in self.by_name.items())
        self.views: dict[str, View] = {name: view for name, view in found if view is not None}
        self.folded: dict[tuple[str, tuple[tuple[int, str], ...]], rx.GlobalVar] = {}
        self._table = FunctionTable(self.result, lambda name, sinfo: None)
        self._reads: dict[str, Mapping[int, int]] = {}

    def can_read(self, name: str, param: int, view: str, others: Collection[int]) -> bool:
        """True if a kernel can read a view instead of a copy, as it does for other parameters."""
        if name not in self._reads:
            kernel = self.by_name[name]
            self._reads[name] = {} if may_fail(kernel) else _reads(kernel)
        count, axes = self._reads[name].get(param, 0), self.views[view]
        if count != 1 and not (count and isinstance(axes, PrimExpr)):
            return False
        kernel = self.by_name[name]
        if _flips(axes) and not _is_scan(kernel):
            return False
        repeats = isinstance(axes, tuple) and any(step and step[1] > 1 for step in axes)
        if repeats and _reads_often(kernel, param):
            return False
        return is_bound_without(kernel, {param, *others})

    def reading(self, name: str, views: Mapping[int, str]) -> rx.GlobalVar:
        """The kernel `name` with the copies of some operands, by name, as a part of it."""
        key = name, tuple(views.items())
        if key not in self.folded:
            kernel = self.by_name[name]
            for param in sorted(views, reverse=True):
                kernel = _with_view(kernel, param, self.views[views[param]])
            names = [*dict.fromkeys(views.values()), name]
            new = self.folded[key] = self._table.add(kernel, "_".join(names))
            self.by_name[new.name_hint] = kernel
            view = _view_of(kernel)
            if view is not None:
                self.views[new.name_hint] = view
        return self.folded[key]

    def writing(self, name: str, view: str) -> rx.GlobalVar | None:
        """The scan `name` with its result flipped as the kernel `view` does; None if it cannot."""
        kernel, axes = self.by_name[name], self.views[view]
        if not isinstance(axes, tuple) or not _is_scan(kernel):
            return None
        if any(step not in ((k, 1), (k, -1)) for k, step in enumerate(axes)):
            return None
        if kernel.buffer_map_items[-1] in _aliased(kernel):
            return None
        key = name, ((len(kernel.params) - 1, view),)
        if key not in self.folded:
            flipped = _with_view(kernel, len(kernel.params) - 1, axes)
            new = self.folded[key] = self._table.add(flipped, f"{name}_{view}")
            self.by_name[new.name_hint] = flipped
        return self.folded[key]


class _Folding(BindingRewriter):
    def __init__(self, kernels: _Kernels, func: rx.Function) -> None:
        super().__init__()
        self.kernels = kernels
        self.func = func
        self.calls: dict[rx.Expr, rx.Call] = {}
        self.copies: dict[rx.Expr, tuple[str, tuple[rx.Expr, ...]]] = {}
        self.is_plain = False
        self.sizes = known_dimensions(func)

    @cached_property
    def uses(self) -> Counter[Node]:
        return mention_counts(self.func)

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        outer = self.copies, self.calls, self.is_plain
        self.is_plain = isinstance(block, rx.DataflowBlock)
        self.copies, self.calls = {}, {}
        after = super().block(block)
        self.copies, self.calls, self.is_plain = outer
        return after

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if mutates(binding):
            self.copies.clear()
            self.calls.clear()
        called = (
            called_kernel(call) if self.is_plain and isinstance(binding, rx.VarBinding) else None
        )
        if called is None or called[0] not in self.kernels.by_name:
            return None
        name, operands = called
        assert isinstance(call, rx.Call)
        if (written := self._written(name, operands)) is not None:
            return replace(binding, value=written)
        views: dict[int, str] = {}
        for k, operand in enumerate(operands):
            view = self.copies[operand][0] if operand in self.copies else ""
            if view and self.kernels.can_read(name, k, view, views):
                views[k] = view
        fields: list[rx.Expr] = []
        for k, operand in enumerate(operands):
            fields += self.copies[operand][1] if k in views else (operand,)
        kernel = self.kernels.reading(name, views) if views else rx.GlobalVar(name)
        copy = binding.var if kernel.name_hint in self.kernels.views else None
        if copy is not None and not self._may_fail(copy, fields):
            self.copies[copy] = kernel.name_hint, tuple(fields)
        if views:
            call = rebuild(call, args=(kernel, rx.Tuple(tuple(fields)), *call.args[2:]))
        if binding.var is not None:
            self.calls[binding.var] = call
        return replace(binding, value=call) if views else None

    def _may_fail(self, copy: rx.Var, operands: Sequence[rx.Expr]) -> bool:
        """True if a copy has a size that may be negative, which is refused where it is computed."""
        existing = {size for operand in operands for size in literal_shape(operand) or ()}
        new = (size for size in literal_shape(copy) or () if size not in existing)
        return any(may_be_negative(size, self.sizes) for size in new)

    def _written(self, name: str, operands: Sequence[rx.Expr]) -> rx.Call | None:
        """The call that computes the flipped copy of its result, which nothing else uses."""
        if not _flips(self.kernels.views.get(name)) or len(operands) != 1:
            return None
        call = self.calls.get(operands[0])
        once = self.uses[operands[0]] == 2  # its binding, and this use
        called = called_kernel(call) if once and call is not None else None
        if call is None or called is None or len(call.args) != 2:
            return None
        if len(self.kernels.by_name[called[0]].params) != len(called[1]) + 1:
            return None
        kernel = self.kernels.writing(called[0], name)
        return None if kernel is None else rebuild(call, args=(kernel, *call.args[1:]))


def _view_of(kernel: PrimFunc) -> View | None:
    """The view that a kernel computes, if that is all that it does."""
    buffers = [b for b in kernel.buffer_map_items if b is not None]
    stores = [*occurrences(kernel.body, BufferStore)]
    if len(stores) != 1 or not buffers or len(buffers) > 2:
        return None
    [store], (*sources, target) = stores, buffers
    value = store.value
    if sources:
        is_view = isinstance(value, BufferLoad) and value.buffer is sources[0]
    else:
        is_view = isinstance(value, (tir.IntImm, tir.FloatImm))
    if not is_view or target not in filled_buffers(kernel.body):
        return None
    if not isinstance(value, BufferLoad):
        return value
    axes = _axes(store, value)
    if axes is None and has_reshape_pattern(kernel):
        axes = _axes_without_units(sources[0], target)
    return None if axes == tuple((k, 1) for k in range(target.ndim)) else axes


def _is_scan(kernel: PrimFunc) -> bool:
    """True if a kernel reads elements of its last output at other places than it stores them."""
    out = kernel.buffer_map_items[-1]
    stored = {s.indices for s in occurrences(kernel.body, BufferStore) if s.buffer is out}
    read = {load.indices for load in occurrences(kernel.body, BufferLoad) if load.buffer is out}
    return not read <= stored


def _flips(view: View | None) -> bool:
    """True if a view has elements in reverse order along an axis."""
    return isinstance(view, tuple) and any(step is not None and step[1] < 0 for step in view)


def _axes(store: BufferStore, load: BufferLoad) -> Axes | None:
    """The axes of a load whose indices are different ones of the store, or 0 along size 1.

    None if it does not read the whole buffer, so that its size differs from that of the stored
    buffer.
    """
    positions = {index: k for k, index in enumerate(store.indices)}
    dims = [*store.buffer.shape, *load.buffer.shape]
    counts = Counter(node for dim in dims for node in walk(dim) if isinstance(node, tir.Var))
    analyzer: Analyzer | None = None
    axes: list[tuple[int, int] | None] = []
    for index, size in zip(load.indices, load.buffer.shape, strict=True):
        found, repeats = index, 1
        mirror = (v for v in positions if (as_poly(index) + as_poly(v)).same(as_poly(size) - 1))
        if index not in positions and (flipped := next(mirror, None)) is not None:
            found, repeats = flipped, -1
        elif index not in positions:
            analyzer = analyzer or _analyzer_in(store)
            found = analyzer.simplify(index)
        match found:
            case tir.IntImm(value=0) if is_one(size):
                axes.append(None)
                continue
            case tir.FloorDiv(a=a, b=tir.IntImm(value=count)):
                found, repeats = a, count
            case _:
                pass
        if found not in positions:
            return None
        axis = positions.pop(found)
        if prove_equal(store.buffer.shape[axis], size * abs(repeats)) is not True:
            if repeats != 1 or counts[size] != 1:  # type: ignore[index]
                return None
            repeats = 0
        axes.append((axis, repeats))
    return tuple(axes)


def _analyzer_in(store: BufferStore) -> Analyzer:
    """An analyzer for the indices of a store to a whole buffer."""
    from relaxpy.ir.arith.tvm.analyzer import Analyzer  # which few programs need

    analyzer = Analyzer()
    for index, size in zip(store.indices, store.buffer.shape, strict=True):
        if isinstance(index, tir.Var):
            analyzer.bind(index, Range(0, size))
    return analyzer


def _axes_without_units(source: Buffer, target: Buffer) -> Axes | None:
    """The axes of a reshape that adds and removes axes of size 1 only."""
    rest = [k for k, size in enumerate(target.shape) if not is_one(size)]
    kept = [size for size in source.shape if not is_one(size)]
    if len(rest) != len(kept):
        return None
    if any(prove_equal(target.shape[k], n) is not True for k, n in zip(rest, kept, strict=True)):
        return None
    following = iter(rest)
    return tuple(None if is_one(size) else (next(following), 1) for size in source.shape)


def _part(size: PrimExpr, repeats: int) -> PrimExpr:
    return size if repeats <= 1 else simplify(size // repeats)


def _place(index: PrimExpr, repeats: int, size: PrimExpr) -> PrimExpr:
    """The element that is at an index of the copy, which has a size."""
    return simplify(size - 1 - index) if repeats < 0 else _part(index, repeats)


def _region(region: Range, repeats: int, size: PrimExpr) -> Range:
    """The elements whose repetitions are in a range."""
    if repeats < 0:
        first = simplify(size - region.min - region.extent)
        return Range.from_min_extent(first, region.extent)
    if repeats <= 1:
        return region
    first = _part(region.min, repeats)
    if isinstance(region.extent, tir.IntImm) and region.extent.value == 1:
        return Range.from_min_extent(first, region.extent)
    end = _part(region.min + region.extent + (repeats - 1), repeats)
    return Range.from_min_extent(first, simplify(end - first))


def _reads(kernel: PrimFunc) -> Mapping[int, int]:
    """The number of loads of each parameter buffer that a kernel only reads."""
    loads: dict[Buffer, int] = {}
    stored: set[Buffer] = set()
    for node in walk(kernel.body):
        match node:
            case BufferLoad(buffer=buffer):
                loads[buffer] = loads.get(buffer, 0) + 1
            case BufferStore(buffer=buffer):
                stored.add(buffer)
            case _:
                pass
    aliased = _aliased(kernel)
    return {
        k: loads[buffer]
        for k, buffer in enumerate(kernel.buffer_map_items)
        if buffer in loads and buffer not in stored and buffer not in aliased
    }


def _aliased(kernel: PrimFunc) -> set[Buffer]:
    """The parameters that a kernel accesses by strides, as another buffer, or by pointers."""
    found: set[Node] = set()
    for node in walk(kernel.body):
        match node:
            case MatchBufferRegion(source=region):
                found.add(region.buffer)
            case tir.Call(op=Op(name="tir.address_of"), args=(BufferLoad(buffer=buffer),)):
                found.add(buffer)
            case DeclBuffer(buffer=buffer):
                found.add(buffer.data)
            case tir.Var():
                found.add(node)
            case _:
                pass
    buffers = (buffer for buffer in kernel.buffer_map_items if buffer is not None)
    return {buffer for buffer in buffers if buffer.strides or {buffer, buffer.data} & found}


def _reads_often(kernel: PrimFunc, param: int) -> bool:
    """True if loops that read a buffer certainly read each of its elements many times."""
    buffer = kernel.buffer_map_items[param]
    assert buffer is not None

    def iterations(node: Node, count: IndexPoly) -> IndexPoly | None:
        """The iterations of the loops that enclose a load of the buffer."""
        if isinstance(node, BufferLoad) and node.buffer is buffer:
            return count
        if isinstance(node, For):
            count = count * as_poly(node.extent)
        found = (iterations(child, count) for child in children(node))
        return next((n for n in found if n is not None), None)

    reads = iterations(kernel.body, as_poly(1))
    size = reduce(mul, map(as_poly, buffer.shape), as_poly(1))
    variables = {node for n in buffer.shape for node in walk(n) if isinstance(node, tir.Var)}
    return reads is not None and (reads - size * _OFTEN).is_at_least(0, variables)


def is_bound_without(kernel: PrimFunc, params: Container[int]) -> bool:
    """True if other parameters determine the variables in the shapes of some."""
    buffers = [(k, b) for k, b in enumerate(kernel.buffer_map_items) if b is not None]
    bound = {size for k, b in buffers if k not in params for size in b.shape} | {*kernel.params}
    sizes = [size for k, b in buffers if k in params for size in b.shape]
    return all(node in bound for size in sizes for node in walk(size) if isinstance(node, tir.Var))


def _with_view(kernel: PrimFunc, param: int, view: View) -> PrimFunc:
    """The kernel for a tensor instead of a copy of it, or without a copy of a value."""
    old = kernel.buffer_map_items[param]
    assert old is not None
    buffers = dict(kernel.buffer_map)
    handle, params = kernel.params[param], kernel.params
    if isinstance(view, tuple):
        shape = [_size(old, step) for step in view]
        buffers[handle] = decl_buffer(shape, old.dtype, old.name)
        body = rewrite(kernel.body, _Reads(old, buffers[handle], view).changed)
    else:
        del buffers[handle]
        params = tuple(other for other in params if other is not handle)
        body = rewrite(kernel.body, partial(_with_value, old, view))
    attrs = kernel.without_attr("global_symbol").attrs
    return PrimFunc(params, cast("Stmt", body), buffer_map=buffers, attrs=attrs)


def _size(copy: Buffer, step: tuple[int, int] | None) -> PrimExpr:
    """The size of a tensor along an axis, for that of its copy."""
    if step is None:
        return ops.const(1, "int64")
    axis, repeats = step
    return _part(copy.shape[axis], repeats) if repeats else tir.Var("room", "int64")


@dataclass(frozen=True)
class _Reads:
    """Reads of a buffer instead of those of another one, which is a view of it."""

    old: Buffer
    new: Buffer
    axes: Axes

    def changed(self, node: Node) -> Node | None:
        """The node that replaces one of the body of a kernel; None if none does."""
        match node:
            case BufferLoad(buffer=buffer, indices=indices) if buffer is self.old:
                return BufferLoad(self.new, self._places(indices))
            case BufferStore(buffer=buffer, indices=indices) if buffer is self.old:
                return replace(node, buffer=self.new, indices=self._places(indices))
            case BufferRegion(buffer=buffer, region=region) if buffer is self.old:
                first = Range.from_min_extent(ops.const(0, "int64"), ops.const(1, "int64"))
                regions = (
                    first if s is None else _region(region[s[0]], s[1], buffer.shape[s[0]])
                    for s in self.axes
                )
                return BufferRegion(self.new, tuple(regions))
            case _:
                return None

    def _places(self, indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        sizes, zero = self.old.shape, ops.const(0, "int64")
        return tuple(
            zero if s is None else _place(indices[s[0]], s[1], sizes[s[0]]) for s in self.axes
        )


def _with_value(old: Buffer, value: PrimExpr, node: Node) -> Node | None:
    """The replacement of a node of a kernel's body, given the value of all elements of a buffer."""
    match node:
        case BufferLoad(buffer=buffer) if buffer is old:
            return value
        case Block(reads=reads) if any(region.buffer is old for region in reads):
            return replace(node, reads=tuple(r for r in reads if r.buffer is not old))
        case _:
            return None
