"""Columns that a mask hides in all rows of a block are left out where that changes no bit."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.machine import tuning
from relaxpy.exec.native.trees import chains, masks
from relaxpy.script import from_source
from tests.exec.native.test_chains import attended, small_blocks
from tests.exec.native.test_contract import numbers
from tests.exec.native.test_tasks import compiled

Array = np.ndarray
ROWS, COLUMNS, HEADS, WIDTH = 300, 523, 2, 8

pytestmark = pytest.mark.usefixtures(small_blocks.__name__)


def text(
    rows: object, columns: object, *, body: str, more: str = "", dtype: str = "float32"
) -> str:
    shapes = [(1, n, HEADS, WIDTH) for n in (rows, columns, columns)]
    args = (
        f"{x}: R.Tensor(({', '.join(map(repr, s))}), {dtype!r})"
        for x, s in zip("qkv", shapes, strict=True)
    )
    return f"""
@I.ir_module
class Module:
    @R.function
    def main({", ".join(args)}{more}):
        with R.dataflow():
            {body}
            R.output(y)
        return y
"""


def by_hand(hidden: float = -np.inf) -> str:
    """Attention whose mask is an argument."""
    return f"""heads = R.permute_dims(q, (0, 2, 1, 3))
            keys = R.permute_dims(k, (0, 2, 3, 1))
            values = R.permute_dims(v, (0, 2, 1, 3))
            scores = R.multiply(R.matmul(heads, keys), R.const({8**-0.5}, "float32"))
            shown = R.where(mask, scores, R.const({
        f"-{abs(hidden)}" if np.isfinite(hidden) else 'float("-inf")'
    }, "float32"))
            y = R.permute_dims(R.matmul(R.nn.softmax(shown), values), (0, 2, 1, 3))"""


def tree_of(executable: relaxpy.Executable) -> str:
    names = dict.fromkeys(row.kernel for row in executable.report())
    return "\n".join(executable.kernel_source(name, kind="tree") for name in names)


def operands(rows: int = ROWS, columns: int = COLUMNS, dtype: str = "float32") -> list[Array]:
    shapes = [(1, n, HEADS, WIDTH) for n in (rows, columns, columns)]
    return [numbers(shape, dtype, seed=n) for n, shape in enumerate(shapes)]


def shown_by(causal: str | None, window: int | None, rows: int, columns: int) -> Array:
    shift = columns - rows if causal == "BottomRight" else 0
    i, j = np.arange(rows)[:, None] + shift, np.arange(columns)
    shown = np.ones((rows, columns), bool) if causal is None else j <= i
    return shown if window is None else shown & (j > i - window)


@pytest.mark.each_choice
@pytest.mark.parametrize(
    ("causal", "window", "dtype"),
    [
        ("TopLeft", None, "float32"),
        ("BottomRight", 40, "float32"),
        ("TopLeft", 150, "float64"),
        ("BottomRight", None, "float16"),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_masks_of_positions(causal: str, window: int | None, dtype: str, known: bool) -> None:
    options = f'causal_mask="{causal}"' + (f", window_size={window}" if window else "")
    body = f"y = R.nn.attention(q, k, v, {options})"
    lengths = (ROWS, COLUMNS) if known else ("n", "m")
    program = text(*lengths, body=body, dtype=dtype)
    executable = relaxpy.compile(from_source(program), target="native")
    assert "columns from" in tree_of(executable)
    sizes = (
        [(ROWS, COLUMNS)] if known else [(ROWS, COLUMNS), (1, 700), (8, 300), (200, 3), (40, 40)]
    )
    for rows, columns in sizes:
        q, k, v = operands(rows, columns, dtype)
        mask = shown_by(causal, window, rows, columns)
        with np.errstate(invalid="ignore"):
            wanted = attended(q, k, v, mask=mask)
        wanted[:, ~mask.any(1)] = 0  # a query that attends to no key
        unit = np.finfo(dtype).eps
        np.testing.assert_allclose(executable["main"](q, k, v), wanted, atol=64 * unit)


MASKS = {
    "nothing": np.zeros((ROWS, COLUMNS), bool),
    "everything": np.ones((ROWS, COLUMNS), bool),
    "some rows": np.arange(ROWS)[:, None] % 100 + 0 * np.arange(COLUMNS) < 60,
    "the last column": np.arange(COLUMNS) + 0 * np.arange(ROWS)[:, None] == COLUMNS - 1,
    "the first column": np.arange(COLUMNS) + 0 * np.arange(ROWS)[:, None] == 0,
    "the middle": abs(np.arange(COLUMNS) + 0 * np.arange(ROWS)[:, None] - 256) < 2,
    "a random one": np.random.default_rng(1).random((ROWS, COLUMNS)) < 0.002,
    "blocks": np.kron(np.eye(3, 6, dtype=bool), np.ones((100, 88), bool))[:, :COLUMNS],
}
ODD = {
    "none": {},
    "values": {"v": [(2, np.nan), (400, np.inf), (520, -np.inf)]},
    "keys": {"k": [(3, np.inf), (300, np.nan)]},
    "queries": {"q": [(0, np.nan), (130, np.inf)]},
    "zeros": {"v": [(slice(None), -0.0)]},
}


@pytest.mark.parametrize(
    ("hidden", "rows", "columns"),
    [(-np.inf, ROWS, COLUMNS), (1.0, ROWS, COLUMNS), (-np.inf, 96, 128)],
)
def test_masks_of_data_change_no_bit(
    hidden: float, rows: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With masks, in threads, and as all of the columns: also with values that are not numbers."""
    more = f', mask: R.Tensor(({rows}, {columns}), "bool")'
    module = from_source(text(rows, columns, body=by_hand(hidden), more=more))
    assert "columns from" in tree_of(relaxpy.compile(module, target="native"))
    shared = compiled(module, 2, monkeypatch)["main"]
    alone = compiled(module, 1, monkeypatch)["main"]
    other = relaxpy.compile(module, target="numpy")["main"]
    monkeypatch.setattr(chains, "with_mask", lambda tile, *_: tile)
    whole = compiled(module, 1, monkeypatch)
    assert "columns from" not in tree_of(whole)
    for name, large in MASKS.items():
        mask = np.ascontiguousarray(large[:rows, -columns:])
        for odd, changes in ODD.items():
            q, k, v = operands(rows, columns)
            for operand, values in changes.items():
                for row, value in values:
                    where = {"q": q, "k": k, "v": v}[operand]
                    if isinstance(row, slice) or row < where.shape[1]:
                        where[0, row] = value
            result, same = alone(q, k, v, mask), whole["main"](q, k, v, mask)
            np.testing.assert_array_equal(result, same, f"{name}, {odd}")
            numbers_only = ~np.isnan(result)
            np.testing.assert_array_equal(
                np.signbit(result)[numbers_only], np.signbit(same)[numbers_only]
            )
            if odd == "values":
                np.testing.assert_array_equal(shared(q, k, v, mask), same, f"{name}, {odd}")
            with np.errstate(all="ignore"):
                wanted = other(q, k, v, mask)
            np.testing.assert_allclose(result, wanted, atol=1e-5, err_msg=f"{name}, {odd}")


def test_against_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning.Rows, "LEAST_PANEL", 4)
    monkeypatch.setattr(tuning.Rows, "PANEL", 8)
    monkeypatch.setattr(masks, "most_lanes", lambda run: 4)
    body = 'y = R.nn.attention(q, k, v, causal_mask="BottomRight", window_size=6)'
    module = from_source(text(12, 21, body=body))
    native, reference = (relaxpy.compile(module, target=t) for t in ("native", "reference"))
    assert "columns from" in tree_of(native)
    q, k, v = operands(12, 21)
    v[0, 12, 1], v[0, 7, 0, 3], k[0, 17, 1, 0] = np.nan, np.inf, -np.inf
    wanted = reference["main"](q, k, v)
    assert np.isnan(wanted).any()
    assert np.isfinite(wanted).any()
    np.testing.assert_allclose(native["main"](q, k, v), wanted, atol=1e-5)


LOOPS = """
@T.prim_func
def main(
    a: T.Buffer((300, 9), "float32"), b: T.Buffer((523, 9), "float32"),
    c: T.Buffer((523, 50), "float32"), d: T.Buffer((523,), "int32"),
    out: T.Buffer((300, 50), "float32"),
):
    s = T.alloc_buffer((300, 523))
    t = T.alloc_buffer((300, 523))
    for i, j, k in T.grid(300, 523, 9):
        if k == 0:
            s[i, j] = T.float32(0)
        s[i, j] = s[i, j] + a[i, k] * b[j, k]
    for i, j in T.grid(300, 523):
        t[i, j] = T.Select(SHOWN, STEP, T.float32(HIDDEN))
    for i, j, k in T.grid(300, 50, 523):
        if k == 0:
            out[i, j] = T.float32(START)
        out[i, j] = out[i, j] + t[i, k] * c[k, j]
"""
CONDITIONS = {
    "j <= i": (lambda i, j, d: j <= i, True),
    "i <= j and j < i + 30": (lambda i, j, d: (i <= j) & (j < i + 30), True),
    "d[j] > i": (lambda i, j, d: d[j] > i, True),
    "j // 64 == i // 32": (lambda i, j, d: j // 64 == i // 32, True),
    "i < 128": (lambda i, j, d: i + 0 * j < 128, False),
}


@pytest.mark.parametrize(
    ("shown", "step", "hidden", "start", "is_left_out"),
    [
        *((shown, "s[i, j]", "0.0", "0.0", has_it) for shown, (_, has_it) in CONDITIONS.items()),
        ("j <= i", "s[i, j] * s[i, j]", "-0.0", "0.0", True),
        ("j <= i", "s[i, j]", "1.0", "0.0", True),
        ("j <= i", "s[i, j]", "0.0", "-0.0", False),
        ("j <= i", "s[i, 522 - j]", "0.0", "0.0", False),
    ],
)
def test_masks_of_loops(shown: str, step: str, hidden: str, start: str, is_left_out: bool) -> None:
    source = LOOPS.replace("SHOWN", shown).replace("STEP", step).replace("HIDDEN", hidden)
    executable = relaxpy.compile(from_source(source.replace("START", start)), target="native")
    a, b, c = (numbers(shape, seed=2) for shape in ((300, 9), (523, 9), (523, 50)))
    d = numbers((523,), "int32") * 9
    d[200:] = -1
    out = numbers((300, 50))
    executable["main"](a, b, c, d, out)
    condition, _ = CONDITIONS[shown]
    scores = a.astype("float64") @ b.T
    first = eval(step.replace("s[i, j]", "scores").replace("s[i, 522 - j]", "scores[:, ::-1]"))
    mask = condition(np.arange(300)[:, None], np.arange(523), d)
    wanted = np.where(mask, first, float(hidden)) @ c
    np.testing.assert_allclose(out, wanted, rtol=2e-5, atol=2e-4)
    assert ("columns from" in tree_of(executable)) == is_left_out
