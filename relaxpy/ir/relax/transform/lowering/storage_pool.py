"""Storage that is free for other tensors."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import TypeAlias

from relaxpy.dataclass import dataclass
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.nodes import Call, DataTypeImm, Var
from relaxpy.ir.tir import expr as tir

Kind: TypeAlias = tuple[str, ...]
"""The datatype, the device and the storage scope of a tensor, as text."""

_MATCH_RANGE = 16
"""The largest ratio between the sizes of tensors that share a storage."""
_SYMBOLIC = 16
"""The number of free storages of symbolic size that are compared."""


@dataclass(slots=True, eq=False)
class Storage:
    """Memory of `size` bytes, which is allocated for its `first` tensor."""

    var: Var
    first: Var
    size: tir.PrimExpr
    dtype: DataType
    kind: Kind


class StoragePool:
    """Assigns storage to the tensors of a block in the order in which they are allocated."""

    def __init__(self) -> None:
        self.storage_of: dict[Var, Storage] = {}
        self._free: dict[Kind, list[tuple[int, int, Storage]]] = {}
        self._symbolic: dict[Kind, deque[Storage]] = {}
        self._released = 0

    def allocate(self, tensor: Var, call: Call, size: tir.PrimExpr) -> None:
        """Assign storage of at least `size` bytes to the tensor of an allocation."""
        dtype = call.args[1]
        assert isinstance(dtype, DataTypeImm)
        kind = tuple(map(str, call.args[1:4]))
        storage = (
            self._fixed(kind, size) if isinstance(size, tir.IntImm) else self._equal(kind, size)
        )
        if storage is None:
            storage = Storage(Var("storage", span=tensor.span), tensor, size, dtype.value, kind)
        self.storage_of[tensor] = storage

    def release(self, tensor: Var) -> None:
        """Let other tensors have the storage of a tensor."""
        storage = self.storage_of[tensor]
        if isinstance(storage.size, tir.IntImm):
            self._released += 1
            free = self._free.setdefault(storage.kind, [])
            insort(free, (storage.size.value, self._released, storage))
        else:
            self._symbolic.setdefault(storage.kind, deque(maxlen=_SYMBOLIC)).append(storage)

    def _fixed(self, kind: Kind, size: tir.PrimExpr) -> Storage | None:
        """The smallest free storage that is large enough, or the largest one, which then grows."""
        assert isinstance(size, tir.IntImm)
        free = self._free.get(kind, [])
        index = bisect_left(free, (size.value,))
        if index < len(free) and free[index][0] <= size.value * _MATCH_RANGE:
            return free.pop(index)[2]
        if index and free[index - 1][0] * _MATCH_RANGE >= size.value:
            storage = free.pop(index - 1)[2]
            storage.size = size
            return storage
        return None

    def _equal(self, kind: Kind, size: tir.PrimExpr) -> Storage | None:
        """A free storage of the same symbolic size."""
        free = self._symbolic.get(kind, deque())
        for storage in free:
            if prove_equal(storage.size, size) is True:
                free.remove(storage)
                return storage
        return None
