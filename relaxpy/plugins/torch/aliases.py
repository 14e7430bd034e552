"""Results of a captured graph that are views of its arguments, or of other results.

PyTorch reads the sizes, the strides and the place in memory of such results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch

from relaxpy.plugins.torch.program import Program
from relaxpy.plugins.torch.symbols import is_symbolic, sympy_of
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class View:
    """A view of an argument or of a result, whose numbers may depend on sizes of arguments."""

    of_argument: bool
    index: int
    #: Its fake tensor.
    meta: Any
    sizes: Sequence[Any]
    strides: Sequence[Any]
    #: The bytes from the first element of the tensor that it is of.
    offset: Any
    #: True if PyTorch shares version counters, so that autograd sees changes of either.
    is_counted: bool

    def made(self, base: Any, numbers: Mapping[Any, int]) -> Any:
        """The view of this tensor."""
        sizes, strides = ([_number(n, numbers) for n in v] for v in (self.sizes, self.strides))
        offset = base.storage_offset() * base.itemsize + _number(self.offset, numbers)
        offset //= self.meta.itemsize
        if self.is_counted:
            return base.detach().as_strided(sizes, strides, offset)
        view = _tensor(base, self.meta.dtype, offset, sizes, strides)
        view = view.conj() if self.meta.is_conj() else view
        return torch._neg_view(view) if self.meta.is_neg() else view


def _tensor(of: Any, dtype: Any, offset: int, sizes: Any, strides: Any) -> Any:
    """A tensor in the memory of another one, which is not a view for autograd.

    PyTorch compiles no graph that changes one of several arguments in one memory if some of them
    are views and some are not; the results of its own backends are not views.
    """
    return torch.empty(0, dtype=dtype).set_(of.untyped_storage(), offset, sizes, strides)


def unrelated(view: Any) -> Any:
    """The same tensor as a view, but not a view for autograd."""
    return _tensor(view, view.dtype, view.storage_offset(), view.shape, view.stride())


def _number(value: Any, numbers: Mapping[Any, int]) -> int:
    return value if isinstance(value, int) else int(value.xreplace(numbers))


class Aliases:
    """The results of a graph that are views, by their positions.

    The first `count` results are for the caller, those after them for the backward graph. `bases`
    are nodes that results are views of though the graph does not return them: it has to, since
    results that alias in eager mode alias here, with the same strides.
    """

    def __init__(self, program: Program, results: Sequence[Any], count: int) -> None:
        metas = [_meta(item) for item in results]
        given = [item.meta for item in program.inputs]
        #: Where arguments have the sizes of symbols: their positions, and axes of tensors.
        self._places: dict[Any, tuple[int, int | None]] = {}
        for k, meta in enumerate(given):
            sizes = [*enumerate(meta.shape)] if isinstance(meta, torch.Tensor) else [(None, meta)]
            for axis, size in sizes:
                if is_symbolic(size) and sympy_of(size).is_Symbol:
                    self._places.setdefault(sympy_of(size), (k, axis))
        self.bases: list[Any] = []
        self.views: dict[int, View] = {}
        arguments = {_memory(meta): k for k, meta in enumerate(given) if _has_memory(meta)}
        known = {
            _memory(meta): (k, meta)
            for k, meta in enumerate(metas)
            if _fills_memory(meta, in_order=k >= count)
        }
        for k, meta in enumerate(metas):
            if not _has_memory(meta):
                continue
            memory = _memory(meta)
            if memory in arguments:
                place = arguments[memory]
                if _kind(meta) == _kind(given[place]):
                    self._add(k, _view(True, place, meta, given[place], is_counted=True))
            elif memory in known:
                place, base = known[memory]
                is_counted = count <= max(k, place) < len(metas)
                if place != k and (not is_counted or _kind(meta) == _kind(base)):
                    self._add(k, _view(False, place, meta, base, is_counted=is_counted))
            elif k < count and (node := _filling(program.graph, memory)) is not None:
                place, base = len(metas) + len(self.bases), node.meta["val"]
                if self._add(k, _view(False, place, meta, base, is_counted=False)):
                    known[memory] = place, base
                    self.bases.append(node)

    def _add(self, k: int, view: View) -> bool:
        """Note that a result is a view; whether the numbers of it can be computed."""
        numbers = (n for n in (*view.sizes, *view.strides, view.offset) if not isinstance(n, int))
        is_known = all(n.free_symbols <= self._places.keys() for n in numbers)
        if is_known:
            self.views[k] = view
        return is_known

    def numbers(self, args: Sequence[Any]) -> dict[Any, int]:
        """The numbers that symbols stand for, by the arguments of a call."""
        return {
            symbol: args[k] if axis is None else args[k].shape[axis]
            for symbol, (k, axis) in self._places.items()
        }


def _meta(item: Any) -> Any:
    return item.meta.get("val") if isinstance(item, torch.fx.Node) else None


def _has_memory(meta: Any) -> bool:
    return isinstance(meta, torch.Tensor) and meta.layout is torch.strided


def _kind(meta: Any) -> tuple[Any, bool, bool]:
    """The key of how memory is read as elements: datatype, conjugate bit, negative bit."""
    return meta.dtype, meta.is_conj(), meta.is_neg()


def _memory(meta: Any) -> Any:
    return meta.untyped_storage()._cdata


def is_whole(meta: Any) -> bool:
    """True if a result has all of its memory, with its elements in order."""
    if not _has_memory(meta) or sympy_of(meta.storage_offset()) != 0:
        return False
    stride: Any = 1
    for size, found in zip(reversed(meta.shape), reversed(meta.stride()), strict=True):
        if sympy_of(size) != 1 and sympy_of(found) != stride:
            return False
        stride = stride * sympy_of(size)
    size = sympy_of(meta.untyped_storage().nbytes())
    return bool(sympy.expand(stride * meta.itemsize - size) == 0)


def memory_order(meta: Any) -> list[int] | None:
    """The axes of a tensor in the order in which they fill its memory, if it is not theirs.

    It is None where they do not fill it, or PyTorch does not know strides that are symbolic.
    """
    strides = [s.node.hint if is_symbolic(s) else s for s in meta.stride()]
    if meta.layout is not torch.strided or None in strides:
        return None
    order = sorted(range(meta.ndim), key=lambda axis: -strides[axis])
    is_other = order != sorted(order) and not is_whole(meta)
    return order if is_other and is_whole(meta.permute(order)) else None


def _fills_memory(meta: Any, *, in_order: bool = False) -> bool:
    """True if a result has all of its memory, with its elements, and axes, in order."""
    if not _has_memory(meta) or meta.is_conj() or meta.is_neg():
        return False
    return is_whole(meta) or (not in_order and memory_order(meta) is not None)


def _filling(graph: Any, memory: Any) -> Any:
    """The node that computes the elements in a memory; None if the graph has none."""
    nodes = ((node, _meta(node)) for node in graph.nodes if node.op == "call_function")
    filling = (node for node, meta in nodes if _fills_memory(meta) and _memory(meta) == memory)
    return next(filling, None)


def _view(of_argument: bool, index: int, meta: Any, base: Any, *, is_counted: bool) -> View:
    sizes, strides = (tuple(map(sympy_of, v)) for v in (meta.shape, meta.stride()))
    offset = sympy_of(meta.storage_offset()) * meta.itemsize
    offset -= sympy_of(base.storage_offset()) * base.itemsize
    return View(of_argument, index, meta, sizes, strides, offset, is_counted)
