"""Expressions of graphs as lines of a table, which native code computes as NumPy does.

    x: F[3, n], y: F[4] <- R.add(x, y) => x + y : F="f32 i8", n=(0, 5), tol=1e-5

The parameters, the expression, what it is in NumPy, and options: what stands for words (of which
each occurs, as in `rows.variants`; `; ` divides them if they have spaces, and in `N_F="3 f32; 4 i8"
two words belong together), the sizes of dimensions (one after the other), arguments by their names
(others are drawn), how far results may differ from those of float64 (by default they are these,
rounded), and `tree` or `no_tree`, a text that the loops have or have not.
"""

import re
from typing import Any

import numpy as np

import relaxpy
from relaxpy.ir.core.dtype import DataType
from tests.exec.native.test_contract import convolution as convolved
from tests.guard_pages import guarded
from tests.ir.ops.cases.windows import pool
from tests.ir.relax.texts import DTYPES, module
from tests.rows import variants

Array = np.ndarray[Any, Any]


def ties(*shape: int, dtype: str = "f32") -> Array:
    """Numbers of which many are equal, and of which the extremes may be the last ones."""
    found = np.random.default_rng(shape).integers(-3, 4, shape)
    found[0], found[1], found[2] = 1, 0, 0
    found[1, -1], found[2, -1] = 1, -1
    return found.astype(DataType(DTYPES[dtype]).numpy())


def undefined(*shape: int, dtype: str = "f32") -> Array:
    """Such numbers, and rows with NaN and infinities."""
    found = ties(*shape, dtype=dtype)
    found[3, -1] = found[4, shape[1] // 3] = found[4, -1] = np.nan
    found[5], found[6] = -np.inf, np.nan
    found[7, 1], found[8, -1] = np.inf, -0.0
    return found


def small(*shape: int, dtype: str = "f32") -> Array:
    """Small integers, whose sums are exact in any order."""
    found = np.random.default_rng(shape).integers(-3, 4, shape)
    return found.astype(DataType(DTYPES[dtype]).numpy())


def convolution(x: Array, w: Array, s: int = 1, p: int = 0, d: int = 1, groups: int = 1) -> Array:
    return convolved(x, w, stride=s, padding=p, dilation=d, groups=groups)


def by_rows(x: Array, w: Array, *options: int) -> Array:
    """The convolution of images whose channels are last, and filters whose sizes are first."""
    found = convolution(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), *options)
    return found.transpose(0, 2, 3, 1)


def relu(x: Array) -> Array:
    return x.clip(0)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


NAMES = {
    "gelu": gelu,
    "relu": relu,
    "sigmoid": sigmoid,
    "np": np,
    "ties": ties,
    "undefined": undefined,
    "small": small,
    "pool": pool,
    "convolution": convolution,
    "by_rows": by_rows,
}


def run_expression(params: str, body: str, expected: str, more: str = "") -> None:
    """Compare an expression with its definition.

    Errors:
        AssertionError: it is another value, or does not run in native code.
    """
    words = re.findall(r'\b([A-Z]\w*)="([^"]*)"', more)
    more = re.sub(r'\b[A-Z]\w*="[^"]*",? *', "", more)
    lines = [
        f"# with {name.replace('_', ' ')}: "
        f"{' | '.join(re.split('; ' if ';' in values else ' ', values))}\n"
        for name, values in words
    ]
    for text in variants("".join(lines) + "\n---\n".join([params, body, expected, more])):
        try:
            _run(*text.split("\n---\n"))
        except BaseException as error:
            error.add_note(text)
            raise


def _run(params: str, body: str, expected: str, more: str) -> None:
    executable = relaxpy.compile(module(f"def main({params}):\n    return {body}"), "native")
    report = executable.report()
    assert all("native" in row.method for row in report.rows), report
    options = eval(f"dict({more})", dict(NAMES))
    trees = "\n".join(
        executable.kernel_source(name, "tree")
        for name in dict.fromkeys(row.kernel for row in report.rows)
    )
    assert options.pop("tree", "") in trees, trees
    assert options.pop("no_tree", "no such text") not in trees, trees
    tolerance = options.pop("tol", 0)
    sizes = {name: v for name, v in options.items() if not isinstance(v, np.ndarray)}
    given = {name: v for name, v in options.items() if name not in sizes}
    count = max((len(v) for v in sizes.values() if isinstance(v, tuple)), default=1)
    each = [v if isinstance(v, tuple) else (v,) * count for v in sizes.values()]
    for chosen in zip(*each, strict=True) if sizes else [()]:
        arrays = _arguments(params, dict(zip(sizes, chosen, strict=True)), given)
        wide = {name: _wide(array) for name, array in arrays.items()}
        with np.errstate(all="ignore"):
            wanted = eval(expected, NAMES | dict(zip(sizes, chosen, strict=True)) | wide)
        for at_end in (False, True):
            found = executable["main"](*(guarded(a, at_end=at_end) for a in arrays.values()))
            _compare(found, wanted, tolerance)


def _arguments(params: str, sizes: dict[str, int], given: dict[str, Array]) -> dict[str, Array]:
    """Arrays of the shapes and datatypes of parameters."""
    rng = np.random.default_rng(7)
    arrays = {}
    for name, dtype, shape in re.findall(r"(\w+): (\w+)\[([^]]*)\]", params):
        dims = eval(f"({shape},)", dict(sizes))
        kind = DataType(DTYPES[dtype]).numpy()
        drawn = rng.standard_normal(dims)
        if kind.kind in "iu":
            drawn = np.round(drawn * 40)
        if kind.kind == "b":
            drawn = drawn > 0
        with np.errstate(invalid="ignore"):
            arrays[name] = given[name] if name in given else drawn.astype(kind)
        assert arrays[name].shape == dims
        assert arrays[name].dtype == kind
    return arrays


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.kind in "fV" else array


def _compare(found: Any, wanted: Any, tolerance: float) -> None:
    if isinstance(found, tuple):
        for one, other in zip(found, wanted, strict=True):
            _compare(one, other, tolerance)
        return
    assert found.shape == wanted.shape
    with np.errstate(all="ignore"):
        rounded = wanted.astype(found.dtype)
    if found.dtype.kind in "biu" or not tolerance:
        np.testing.assert_array_equal(_wide(found), _wide(rounded))
    else:
        np.testing.assert_allclose(_wide(found), _wide(wanted), rtol=tolerance, atol=tolerance)
