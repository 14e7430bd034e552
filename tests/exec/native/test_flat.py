"""Elementwise kernels of tensors with few columns run along all elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source
from tests.exec.native.test_contract import graph, numbers

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

CASES: list[tuple[str, Callable[[Array], Array]]] = [
    ("R.nn.relu(x)", lambda x: np.maximum(x, 0)),
    ("R.add(R.abs(x), R.multiply(x, x))", lambda x: np.abs(x) + x * x),
]
SHAPES = [(101, 2), (5, 7, 1, 2), (9, 64)]


def compiled(shape: str, value: str, more: str = "") -> tuple[relaxpy.Executable, str]:
    """The executable of a function of `x`, and the loops of its kernel."""
    module = from_source(graph(f'x: R.Tensor({shape}, "float32"){more}', value))
    assert isinstance(module, relaxpy.IRModule)
    ex = relaxpy.compile(module, target="native")
    [name] = {row.kernel for row in ex.report()}
    return ex, ex.kernel_source(name, "tree")


@pytest.mark.parametrize(("text", "function"), CASES)
def test_elements(text: str, function: Callable[[Array], Array]) -> None:
    for shape in SHAPES:
        x = numbers(shape)
        np.testing.assert_array_equal(compiled(str(shape), text)[0](x), function(x))
    ex, tree = compiled('("n", "m", 2)', text)
    assert "i1" not in tree
    for shape in ((0, 3, 2), (4, 0, 2), (1, 1, 2), (33, 7, 2)):
        x = numbers(shape)
        np.testing.assert_array_equal(ex(x), function(x))


def test_axes() -> None:
    for text, _ in CASES:
        for shape in ("(1000, 3, 5, 2)", "(100000, 2)"):
            assert "i1" not in compiled(shape, text)[1]


def test_only_where_all_have_the_axes() -> None:
    ex, tree = compiled("(50, 3)", "R.add(x, b)", ', b: R.Tensor((3,), "float32")')
    assert "i1" in tree
    x, b = numbers((50, 3)), numbers((3,))
    np.testing.assert_array_equal(ex(x, b), x + b)
    ex, tree = compiled("(7, 5, 3)", "R.add(x, b)", ', b: R.Tensor((7, 1, 1), "float32")')
    assert "i1" in tree
    assert "i2" not in tree
    x, b = numbers((7, 5, 3)), numbers((7, 1, 1))
    np.testing.assert_array_equal(ex(x, b), x + b)
    ex, tree = compiled("(50, 3)", "R.flip(x, 1)")
    np.testing.assert_array_equal(ex(numbers((50, 3))), numbers((50, 3))[:, ::-1])


def test_outer_axes() -> None:
    for sizes in ("(9, 5, 4, 4)", '("n", "m", 4, 4)', '("n", "m", "h", "w")'):
        ex, tree = compiled(sizes, "R.permute_dims(x, [2, 3, 1, 0])")
        assert "i1" not in tree
        for shape in ((9, 5, 4, 4), (0, 5, 4, 4), (33, 1, 4, 4)):
            if "9" not in sizes or shape[0] == 9:
                x = numbers(shape)
                np.testing.assert_array_equal(ex(x), x.transpose(2, 3, 1, 0))
