"""Arguments of the Python API that have no meaning: errors of relaxpy, never of its insides."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import RelaxpyError
from relaxpy.script import from_source

TEXT = "@R.function\ndef main(x: R.Tensor((3,), 'float32')):\n    return R.exp(x)\n"
MODULE = relaxpy.IRModule({"main": from_source(TEXT)})
EXECUTABLE = relaxpy.compile(MODULE, target="numpy")
NOT_PATHS = [None, 3, b"a", ["a"], np.ones(2), "a\0b", "\ud800"]
NOT_NAMES = [None, 3, b"a", ["a"], np.ones(2), 1.5]


@pytest.mark.parametrize(
    ("use", "values"),
    [
        (EXECUTABLE.save, NOT_PATHS),
        (relaxpy.load_executable, NOT_PATHS),
        (lambda value: relaxpy.compile(MODULE, target=value), [3, np.ones(2), ["a"], "a"]),
        (lambda value: from_source(TEXT, {value: 3}), [3, None, 1.5, b"a"]),
        (lambda value: from_source(TEXT).with_attr(value, 1), NOT_NAMES),
        (lambda value: relax.transform.DeadCodeElimination([value])(MODULE), NOT_NAMES),
    ],
    ids=["save", "load", "target", "extra_vars", "with_attr", "entry_functions"],
)
def test_an_argument_without_meaning(use: Callable[[Any], object], values: list[object]) -> None:
    for value in values:
        with pytest.raises(RelaxpyError):
            use(value)


def test_paths_and_names_that_have_a_meaning(tmp_path: Path) -> None:
    for path in (tmp_path / "é", str(tmp_path / "program")):
        EXECUTABLE.save(path)
        assert relaxpy.load_executable(path)["main"](np.zeros(3, "float32")).tolist() == [1] * 3
    func = from_source(TEXT).with_attr({"a": 1})
    assert func.attrs["a"] == 1
