"""Kernels on the native target and on NumPy, and what both do with the same arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.native.calls.entry_table import EntryTable
from relaxpy.script import from_source

HEADER = """
@T.prim_func
def main({params}):
    T.func_attr({{"global_symbol": "main"}})
"""


@dataclass
class Claim:
    """A kernel on both targets. `refused` counts the calls that native code left to NumPy."""

    native: Any
    numpy: Any
    refused: list[tuple[object, ...]] = field(default_factory=list)

    def same(self, *args: object, restored: bool = False) -> str | None:
        """Run both on copies of the arguments; the message of the error that both raise.

        After an error, arrays are only the same on both if they are `restored`.
        """
        results = []
        for executable in (self.native, self.numpy):
            copies = [copied(a) for a in args]
            error = None
            try:
                executable["main"](*copies)
            except RelaxpyError as caught:
                error = str(caught).splitlines()[0]
            results.append((error, [c for c in copies if isinstance(c, np.ndarray)]))
        (found, mine), (expected, theirs) = results
        assert found == expected
        if found is not None and not restored:
            return found
        for one, other in zip(mine, theirs, strict=True):
            if one.dtype.kind == "V":  # those of ml_dtypes
                one, other = one.astype("float32"), other.astype("float32")
            np.testing.assert_array_equal(one, other)
        return found

    def runs(self, *args: object) -> None:
        """Check that native code runs these arguments and does what NumPy does."""
        before = len(self.refused)
        assert self.same(*args) is None
        assert len(self.refused) == before

    def fails(self, message: str, *args: object, restored: bool = False) -> None:
        """Check that both targets raise an error with this message."""
        found = self.same(*args, restored=restored)
        assert found is not None
        assert message in found


@contextmanager
def calls_left_to_numpy() -> Iterator[list[tuple[object, ...]]]:
    """The arguments of the calls that native code, compiled meanwhile, leaves to NumPy."""
    refused: list[tuple[object, ...]] = []
    builtin = EntryTable.builtin

    def counted(
        self: EntryTable, library: Any, name: str, fallback: Callable[..., object]
    ) -> Callable[..., object]:
        def count(*args: object, **keywords: object) -> object:
            refused.append(args)
            return fallback(*args, **keywords)

        return builtin(self, library, name, count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EntryTable, "builtin", counted)
        yield refused


def copied(value: object) -> object:
    """A copy of an array in memory of the same layout, or any other value."""
    if not isinstance(value, np.ndarray):
        return value
    owner = value
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    memory = owner.copy(order="K")
    offset = value.ctypes.data - owner.ctypes.data
    return np.ndarray(value.shape, value.dtype, memory, offset, value.strides)


def claim(body: Sequence[str], params: str, text: str = "") -> Claim:
    """The kernel of the lines `body`, or of a whole `text`, which is claimed by native code."""
    text = text or HEADER.format(params=params) + "".join(f"    {line}\n" for line in body)
    func = from_source(text)
    with calls_left_to_numpy() as refused:
        native = relaxpy.compile(func, target="native")
    methods = [row.method + row.reason for row in native.report()]
    assert all(method.startswith("native") for method in methods), methods
    return Claim(native, relaxpy.compile(func, target="numpy"), refused)
