"""Results of a captured graph that are views of its arguments, or of other results.

PyTorch reads the sizes, the strides and the place in memory of such results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch

from relaxpy.dataclass import dataclass
from relaxpy.frontend.torch.program import Program
from relaxpy.frontend.torch.symbols import is_symbolic, sympy_of


@dataclass(frozen=True)
class View:
    """A view of an argument or of a result, whose numbers may depend on sizes of arguments."""

    of_argument: bool
    index: int
    sizes: Sequence[Any]
    strides: Sequence[Any]
    #: The distance from the first element of the tensor that it is of.
    offset: Any

    def made(self, base: Any, numbers: Mapping[Any, int]) -> Any:
        """The view of this tensor."""
        sizes, strides = ([_number(n, numbers) for n in v] for v in (self.sizes, self.strides))
        offset = base.storage_offset() + _number(self.offset, numbers)
        return base.detach().as_strided(sizes, strides, offset)


def _number(value: Any, numbers: Mapping[Any, int]) -> int:
    return value if isinstance(value, int) else int(value.xreplace(numbers))


class Aliases:
    """Which results of a graph are views, by their positions."""

    def __init__(self, program: Program, results: Sequence[Any]) -> None:
        metas = [_meta(item) for item in results]
        given = [item.meta for item in program.inputs]
        #: Where arguments have the sizes of symbols: their positions, and axes of tensors.
        self._places: dict[Any, tuple[int, int | None]] = {}
        for k, meta in enumerate(given):
            sizes = [*enumerate(meta.shape)] if isinstance(meta, torch.Tensor) else [(None, meta)]
            for axis, size in sizes:
                if is_symbolic(size) and sympy_of(size).is_Symbol:
                    self._places.setdefault(sympy_of(size), (k, axis))
        bases = {_memory(meta): (False, k) for k, meta in enumerate(metas) if is_whole(meta)}
        bases.update({_memory(m): (True, k) for k, m in enumerate(given) if _has_memory(m)})
        self.views: dict[int, View] = {}
        for k, meta in enumerate(metas):
            base = bases.get(_memory(meta)) if _has_memory(meta) else None
            if base is None or base == (False, k):
                continue
            of = (given if base[0] else metas)[base[1]]
            view = _view(*base, meta, of)
            if _kind(meta) == _kind(of) and self._is_known(view):
                self.views[k] = view

    def _is_known(self, view: View) -> bool:
        numbers = (n for n in (*view.sizes, *view.strides, view.offset) if not isinstance(n, int))
        return all(n.free_symbols <= self._places.keys() for n in numbers)

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
    """What decides which numbers the elements in memory are."""
    return meta.dtype, meta.is_conj(), meta.is_neg()


def _memory(meta: Any) -> Any:
    return meta.untyped_storage()._cdata


def is_whole(meta: Any) -> bool:
    """Whether a result has all of its memory, with its elements in order."""
    if not _has_memory(meta) or sympy_of(meta.storage_offset()) != 0:
        return False
    stride: Any = 1
    for size, found in zip(reversed(meta.shape), reversed(meta.stride()), strict=True):
        if sympy_of(found) != stride:
            return False
        stride = stride * sympy_of(size)
    size = sympy_of(meta.untyped_storage().nbytes())
    return bool(sympy.expand(stride * meta.itemsize - size) == 0)


def _view(of_argument: bool, index: int, meta: Any, base: Any) -> View:
    sizes, strides = (tuple(map(sympy_of, v)) for v in (meta.shape, meta.stride()))
    offset = sympy_of(meta.storage_offset()) - sympy_of(base.storage_offset())
    return View(of_argument, index, sizes, strides, offset)
