"""Random programs of the generators: those that can be exported compute the bits of native code."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import CompileError, RelaxpyError
from tests.exec.export.library import Library, StatusError, serial_threads
from tests.exec.export.test_export import flat, pytestmark
from tests.fuzz import calls, graphs
from tests.fuzz.seed import COUNT, SEED

__all__ = ["pytestmark"]
Array = np.ndarray[Any, Any]


def same(found: Array, expected: Array) -> bool:
    """True if all bits are the same but the signs and payloads of NaN."""
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        return False
    if found.tobytes() == expected.tobytes() or found.dtype.kind in "iub":
        return found.tobytes() == expected.tobytes()
    a, b = (np.atleast_1d(each).astype("float64") for each in (found, expected))
    known = ~np.isnan(a)
    return np.array_equal(a, b, equal_nan=True) and bool(
        (np.signbit(a) == np.signbit(b))[known].all()
    )


def compared(module: relaxpy.IRModule, draws: Iterator[tuple[Any, ...]], folder: Path) -> int:
    """The number of calls whose results were compared, 0 if the module cannot be exported."""
    try:
        executable = relaxpy.compile(module, "native")
    except RelaxpyError:  # some of the programs are wrong
        return 0
    try:
        call = Library(executable, folder)["main"]
    except CompileError:
        return 0
    count = 0
    for number, drawn in enumerate(draws):
        values = [np.array(array) for array in flat(drawn)]
        with np.errstate(all="ignore"):
            try:
                expected: Any = flat(executable["main"](*drawn))
            except RelaxpyError:
                expected = None
        threads = serial_threads(3) if number % 2 else None
        try:
            found: Any = flat(call(*values, at_end=number % 2 == 0, threads=threads))
        except StatusError:
            found = None
        assert (found is None) == (expected is None)
        if found is not None:
            assert len(found) == len(expected)
            assert all(map(same, found, expected))
        count += 1
    return count


def graph(seed: str, folder: Path) -> tuple[relaxpy.IRModule, Iterator[tuple[Any, ...]]]:
    program = graphs.write(seed, tuples=True)
    drawn = (graphs.arguments(program, f"{seed}.{k}") for k in range(3))
    plain = ([np.array(array, order="C") for array in arrays] for arrays in drawn)
    return graphs._module(program, seed, folder), map(program.passed, plain)


def operators(seed: str, folder: Path) -> tuple[relaxpy.IRModule, Iterator[tuple[Any, ...]]]:
    module = calls.write(seed)
    return module, (calls.arguments(module, k, extreme=k == 1) for k in range(3))


@pytest.mark.parametrize("write", [graph, operators])
def test_random_programs(write: Callable[..., Any], tmp_path: Path) -> None:
    count = 0
    for k in range(max(COUNT // 6, 8)):
        seed = f"export.{SEED}.{k}"
        folder = tmp_path / str(k)
        folder.mkdir()
        try:
            count += compared(*write(seed, folder), folder)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert count > 0
