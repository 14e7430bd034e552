"""Kernels that differ in sizes and numbers alone run as one, with the results of each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax, tir
from relaxpy.errors import RelaxpyError
from relaxpy.exec.machine.fast_paths import KERNEL_CLASSES
from relaxpy.exec.native.classes import classes_of
from relaxpy.script import from_source

pytest.importorskip("llvmlite")

op = relax.op
Array = np.ndarray[Any, Any]
Body = Callable[..., relax.Expr]

SIZES = ((0, 40), (1, 33), (17, 1), (16, 48), (31, 64), (97, 16), (53, 131), (256, 144), (199, 331))
SIZES += ((0, 67), (9, 75), (300, 97), (301, 127))
"""Below and at the length of a vector, multiples, primes, rows of few vectors; some are long."""
MATRIX, ROW, COLUMN, INDICES = (
    ("float32", lambda a, b: (a, b)),
    ("float32", lambda a, b: (b,)),
    ("float32", lambda a, b: (a, 1)),
    ("int64", lambda a, b: (a,)),
)
HALF, BYTES = (("float16", MATRIX[1]), ("int8", MATRIX[1]))
KERNELS: dict[str, tuple[Sequence[tuple[str, Any]], Body]] = {
    "elementwise": ([MATRIX], lambda x: op.add(op.tanh(x), x)),
    "a row": ([MATRIX, ROW], lambda x, y: op.nn.relu(op.add(x, y))),
    "a column": ([MATRIX, COLUMN], op.multiply),
    "a cast": ([HALF], lambda x: op.astype(x, "float32")),
    "bytes": ([BYTES, BYTES], op.add),
    "sums of rows": ([MATRIX], lambda x: op.sum(x, [1])),
    "sums of columns": ([MATRIX], lambda x: op.sum(x, [0])),
    "maxima": ([MATRIX], lambda x: op.max(x, [1])),
    "softmax": ([MATRIX], op.nn.softmax),
    "a transpose": ([MATRIX], op.permute_dims),
    "a gather": ([MATRIX, INDICES], lambda x, i: op.take(x, i, 0)),
    "a running sum": ([MATRIX], lambda x: op.cumsum(x, 1)),
    "a product": ([MATRIX, MATRIX], lambda x, y: op.matmul(x, op.permute_dims(y))),
    "a concatenation": ([MATRIX, MATRIX], lambda x, y: op.concat([x, y], 1)),
}
EXACT = KERNELS.keys() - {"sums of rows", "sums of columns", "softmax"}
"""Those whose order of summation does not depend on what is known of sizes."""
SEPARATE = {"sums of columns", "a running sum", "a product", "a concatenation"}
"""Those whose code depends on sizes."""


def program(name: str, sizes: Sequence[tuple[int, int]]) -> tuple[IRModule, list[Array]]:
    """A function with one kernel for matrices of each size, and its arguments."""
    operands, body = KERNELS[name]
    rng = np.random.default_rng(3)
    builder = relax.BlockBuilder()
    calls: list[list[relax.Var]] = []
    arrays: list[Array] = []
    for rows, columns in sizes:
        calls.append([])
        for dtype, shape in operands:
            info = relax.TensorStructInfo(shape(rows, columns), dtype)
            calls[-1].append(relax.Var(f"x{len(arrays)}", info))
            numbers = rng.standard_normal(shape(rows, columns)) * 4
            if dtype == "int64":
                numbers = rng.integers(0, max(rows, 1), rows)
            arrays.append(numbers.astype(dtype))
    with builder.function("main", [param for params in calls for param in params]):
        with builder.dataflow():
            results = [builder.emit(body(*params)) for params in calls]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    return builder.finalize(), arrays


def check(found: Sequence[Array], expected: Sequence[Array], *, exactly: bool) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if exactly:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("name", KERNELS)
def test_results_and_reports_are_those_of_separate_kernels(name: str) -> None:
    module, arrays = program(name, SIZES)
    shared = relaxpy.compile(module, "native")
    with KERNEL_CLASSES.off():
        separate = relaxpy.compile(module, "native")
    found = shared["main"](*arrays)
    check(found, separate["main"](*arrays), exactly=name in EXACT)
    check(found, relaxpy.compile(module, "numpy")["main"](*arrays), exactly=False)
    rows = [[(r.kernel, r.block, r.backend) for r in ex.report().rows] for ex in (shared, separate)]
    assert rows[0] == rows[1]


LONG = {"a transpose": [(64, 80), (80, 96)]}


@pytest.mark.parametrize("name", sorted(KERNELS.keys() - SEPARATE))
def test_kernels_of_a_class_have_one_function(name: str) -> None:
    check_one_function(name, LONG.get(name, [(199, 331), (257, 353)]))


@pytest.mark.parametrize("sizes", [[(21, 75), (30, 65)], [(300, 97), (301, 127)]])
def test_rows_of_few_vectors_have_one_function(sizes: list[tuple[int, int]]) -> None:
    check_one_function("softmax", sizes)


@pytest.mark.parametrize("sizes", [[(300, 80), (301, 96)], [(300, 53), (301, 54)]])
def test_rows_of_whole_vectors_and_short_ones_keep_their_sizes(sizes) -> None:
    with pytest.raises(AssertionError):
        check_one_function("softmax", sizes)


PRODUCTS: dict[str, tuple[Sequence[tuple[str, Any]], Body]] = {
    "a product": KERNELS["a product"],
    "a product, a bias and relu": (
        [MATRIX, ("float32", lambda a, b: (b, a + 1)), ("float32", lambda a, b: (a + 1,))],
        lambda x, y, z: op.nn.relu(op.add(op.matmul(x, y), z)),
    ),
}
CHEAP = [[(17, 33), (21, 70), (40, 19), (61, 65)], [(16, 16), (32, 96), (48, 80), (64, 32)]]
CHEAP += [[(17, 33), (32, 96), (21, 70), (40, 19), (24, 80), (61, 65)]]
"""Multiples of no vector, multiples, and a few of these among others."""


@pytest.mark.parametrize("sizes", CHEAP)
@pytest.mark.parametrize("name", PRODUCTS)
def test_many_cheap_products_have_one_function(monkeypatch, name: str, sizes: Any) -> None:
    monkeypatch.setitem(KERNELS, name, PRODUCTS[name])
    module, arrays = program(name, sizes)
    shared = relaxpy.compile(module, "native")
    kernels = sorted({row.kernel for row in shared.report().rows if "contraction" in row.method})
    assert len(kernels) == len(sizes)
    assert len({shared.kernel_source(kernel, "llvm") for kernel in kernels}) == 1
    with KERNEL_CLASSES.off():
        separate = relaxpy.compile(module, "native")
    found = shared["main"](*arrays)
    check(found, separate["main"](*arrays), exactly=True)
    check(found, relaxpy.compile(module, "numpy")["main"](*arrays), exactly=False)


@pytest.mark.parametrize(
    "sizes",
    [
        [(17, 33), (21, 70), (40, 19)],
        [(17, 33), (21, 70), (40, 19), (8, 35)],
        [(90, 71), (91, 73), (92, 75), (93, 77)],
    ],
    ids=["few", "few rows", "long"],
)
def test_products_that_are_few_or_take_long_keep_their_sizes(sizes: Any) -> None:
    module, _ = program("a product", sizes)
    ex = relaxpy.compile(module, "native")
    kernels = sorted({row.kernel for row in ex.report().rows if "contraction" in row.method})
    assert len({ex.kernel_source(kernel, "llvm") for kernel in kernels}) == len(sizes)


SUMS = [[(20, 64), (52, 80), (31, 96), (17, 112)], [(20, 65), (52, 81), (31, 127), (17, 102)]]
SUMS += [[(32, 76), (20, 65), (52, 81), (31, 127), (17, 102)]]


@pytest.mark.parametrize("sizes", SUMS)
@pytest.mark.parametrize("name", ["sums of rows", "maxima", "softmax"])
def test_many_short_sums_have_one_function_with_their_results(name: str, sizes: Any) -> None:
    module, arrays = program(name, sizes)
    shared = relaxpy.compile(module, "native")
    assert len(functions(shared)) == 1
    with KERNEL_CLASSES.off():
        separate = relaxpy.compile(module, "native")
        assert len(functions(separate)) == len(sizes)
    check(shared["main"](*arrays), separate["main"](*arrays), exactly=True)


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([(20, 65), (52, 81), (31, 127)], 3),
        ([(20, 65), (52, 65), (31, 127)], 2),
        ([(600, 65), (601, 81), (602, 127), (603, 102)], 4),
        ([(20, 65), (52, 131), (31, 133)], 2),
        ([(20, 63), (52, 62), (31, 61), (17, 55)], 4),
    ],
    ids=["few", "few lengths", "long", "short beside long", "shorter"],
)
def test_sums_that_are_few_or_take_long_keep_their_lengths(sizes: Any, count: int) -> None:
    module, _ = program("sums of rows", sizes)
    assert len(functions(relaxpy.compile(module, "native"))) == count


def test_multiples_that_take_long_keep_them() -> None:
    sizes = [(300, 97), (301, 127), (303, 131), (305, 133), (307, 144)]
    module, _ = program("elementwise", sizes)
    assert len(functions(relaxpy.compile(module, "native"))) == 2


def functions(ex: Any) -> set[str]:
    """The different functions of the kernels of a program, in LLVM IR."""
    return {ex.kernel_source(row.kernel, "llvm") for row in ex.report().rows}


def check_one_function(name: str, sizes: Sequence[tuple[int, int]]) -> None:
    module, _ = program(name, sizes)
    ex = relaxpy.compile(module, "native")
    names = sorted({row.kernel for row in ex.report().rows})
    one, other = (ex.kernel_source(kernel, "llvm") for kernel in names)
    assert one == other
    assert ex.kernel_source(names[0], "tree") == ex.kernel_source(names[1], "tree")


def test_kernels_run_on_threads() -> None:
    code = (
        "from tests.exec.test_kernel_classes import KERNELS, test_results_and_reports_are_those_of_"
        "separate_kernels as check\nfor name in KERNELS: check(name)\nprint('done')"
    )
    environment = os.environ | {"RELAXPY_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "done\n", done.stderr


KERNEL = """
@T.prim_func
def {name}(
    A: T.Buffer(({n},), "float32"), I: T.Buffer(({m},), "int64"), B: T.Buffer(({m},), "float32")
):
    for i in range({m}):
        with T.block("gather"):
            v = T.axis.spatial({m}, i)
            B[v] = A[I[v]] + T.float32(1)
"""
TWO = KERNEL.format(name="first", n=40, m=20) + KERNEL.format(name="second", n=50, m=30)


def outcome(ex: relaxpy.Executable, name: str, *args: Array) -> list[Any]:
    """The arguments after a call of a kernel, and its error."""
    try:
        ex[name](*args)
    except RelaxpyError as error:
        return [*args, f"{type(error).__name__}: {error}"]
    return [*args, ""]


def kernel_arguments(n: int, m: int) -> tuple[Array, Array, Array]:
    return np.arange(n, dtype="float32"), np.arange(m) * 7 % n, np.zeros(m, "float32")


def test_kernels_that_python_calls() -> None:
    shared = relaxpy.compile(from_source(TWO), "native")
    with KERNEL_CLASSES.off():
        separate = relaxpy.compile(from_source(TWO), "native")
    for name, n, m in (("first", 40, 20), ("second", 50, 30)):
        wrong = kernel_arguments(n, m)
        wrong[1][m // 2] = n
        a, i, b = kernel_arguments(n, m)
        memory = np.arange(2 * n, dtype="float32")
        for make in (
            lambda n=n, m=m: kernel_arguments(n, m),
            lambda n=n, m=m: kernel_arguments(n + 1, m),
            lambda wrong=wrong: tuple(x.copy() for x in wrong),
            lambda a=a, i=i, b=b: (a, i, b[::-1]),
            lambda memory=memory, n=n, m=m, i=i: (memory.copy()[:n], i, memory.copy()[n : n + m]),
        ):
            found, expected = outcome(shared, name, *make()), outcome(separate, name, *make())
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)


CHANGES = [
    ("+ T.float32(1)", "/ T.float32(1)"),
    ("A[I[v]]", "A[I[v] + 1]"),
    ("A[I[v]] +", "A[I[v]] -"),
    ("A[I[v]] + T.float32(1)", "T.Cast('float32', I[v])"),
    ('((30,), "int64")', '((30,), "int32")'),
    ("T.func_attr({})", 'T.func_attr({"note": 1})'),
    ("T.axis.spatial(30, i)", "T.axis.reduce(30, i)"),
    ("for i in range(30)", "for i in T.parallel(30)"),
    ("50", "12"),
    ('A: T.Buffer((50,), "float32"), I: T', 'A: T.Buffer((50,), "float32", strides=(1,)), I: T'),
]
"""Texts in the second kernel, and what makes it another one."""


@pytest.mark.parametrize(("old", "new"), [("", ""), *CHANGES])
def test_kernels_that_differ_in_more_than_sizes_have_no_class(old: str, new: str) -> None:
    first, second = (
        KERNEL.format(name="kernel", n=n, m=m).replace("    for", "    T.func_attr({})\n    for", 1)
        for n, m in ((40, 20), (50, 30))
    )
    assert old in second
    changed = from_source(second.replace(old, new) if old else second)
    found = list(classes_of([from_source(first), changed]))
    assert [len(each.members) for each in found] == ([] if old else [2])


def test_an_aliasing_result() -> None:
    ex = relaxpy.compile(from_source(TWO), "native")
    for name, n, m in (("first", 40, 20), ("second", 50, 30)):
        memory = np.arange(n, dtype="float32")
        expected, indices = memory.copy(), np.arange(m)[::-1] + 5
        for k in range(m):
            expected[k] = expected[indices[k]] + 1
        ex[name](memory, indices, memory[:m])
        np.testing.assert_array_equal(memory, expected)


@pytest.mark.parametrize("sizes", [[(40, 20), (50, 30)], [(300, 400), (200, 300)]])
def test_an_error_is_that_of_its_kernel(sizes: list[tuple[int, int]]) -> None:
    module, arrays = program("a gather", sizes)
    for number, (rows, _) in enumerate(sizes):
        wrong = [a.copy() for a in arrays]
        wrong[2 * number + 1][7] = rows + number
        texts = []
        for switch in (True, False):
            if switch:
                ex = relaxpy.compile(module, "native")
            else:
                with KERNEL_CLASSES.off():
                    ex = relaxpy.compile(module, "native")
            with pytest.raises(RelaxpyError) as caught:
                ex["main"](*wrong)
            texts.append(str(caught.value))
        assert texts[0] == texts[1]
        assert f"index {rows + number}" in texts[0]


NUMBERS: dict[str, Callable[[relax.Var, float], relax.Expr]] = {
    "one": lambda x, c: op.nn.relu(op.multiply(x, relax.const(c, "float32"))),
    "several": lambda x, c: op.minimum(
        op.add(op.maximum(op.multiply(op.exp(x), relax.const(c)), relax.const(2 * c)), x),
        relax.const(3 * c),
    ),
    "a sum": lambda x, c: op.multiply(op.sum(op.add(x, relax.const(c)), [1]), relax.const(1 / c)),
}
VALUES = (3.0, 0.1, -2.5, 1e-40, 1e38)


def program_with_numbers(
    name: str, values: Sequence[float], sizes: Sequence[tuple[int, int]]
) -> tuple[IRModule, list[Array]]:
    """A function with a kernel for each number and size."""
    builder, rng = relax.BlockBuilder(), np.random.default_rng(5)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in sizes]
    params = [
        relax.Var(f"x{n}", relax.TensorStructInfo(shape, "float32"))
        for n, shape in enumerate(sizes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            results = [
                builder.emit(NUMBERS[name](x, c)) for x, c in zip(params, values, strict=True)
            ]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    return builder.finalize(), arrays


@pytest.mark.parametrize("shape", [(), (3,), (16, 16), (199, 331)])
@pytest.mark.parametrize("name", NUMBERS)
def test_kernels_that_differ_in_numbers_have_one_function(name: str, shape: Any) -> None:
    if name == "a sum" and len(shape) < 2:
        pytest.skip("it sums rows")
    module, arrays = program_with_numbers(name, VALUES, [shape] * len(VALUES))
    ex = relaxpy.compile(module, "native")
    with KERNEL_CLASSES.off():
        separate = relaxpy.compile(module, "native")
    kernels = sorted({row.kernel for row in ex.report().rows})
    assert len(kernels) == len(VALUES)
    assert len({ex.kernel_source(kernel, "llvm") for kernel in kernels}) == 1
    with np.errstate(all="ignore"):
        check(ex["main"](*arrays), separate["main"](*arrays), exactly=True)


def test_what_all_kernels_of_a_class_have_in_common_is_not_an_argument() -> None:
    for values, sizes, expected in (
        ((3.0, 4.0), [(20, 70)] * 2, ["float32"]),
        ((3.0, 3.0), [(20, 70), (20, 90)], ["int64"]),
        ((3.0, 4.0), [(20, 70), (20, 90)], ["int64", "float32"]),
    ):
        module, _ = program_with_numbers("one", values, sizes)
        lowered = relax.get_pipeline("default", target="native")(module)
        kernels = [f for f in lowered.functions.values() if isinstance(f, tir.PrimFunc)]
        [found] = classes_of(kernels)
        assert [str(param.dtype) for param in found.func.params[2:]] == expected


def test_numbers_that_decide_the_code_have_no_class() -> None:
    texts = [KERNEL.format(name=f"k{n}", n=40, m=20) for n in range(3)]
    for change in (
        "T.pow(A[I[v]], T.float32({}))",
        "T.Select(A[I[v]] > T.float32({}), A[0], A[1])",
    ):
        changed = [
            from_source(text.replace("A[I[v]] + T.float32(1)", change.format(n + 2)))
            for n, text in enumerate(texts)
        ]
        assert not list(classes_of(changed))
    equal, other = (
        from_source(
            text.replace("A[I[v]] + T.float32(1)", f"A[I[v]] * T.float32(2) + T.float32({number})")
        )
        for text, number in zip(texts, (2, 3), strict=False)
    )
    assert not list(classes_of([equal, other]))


MIXED = """
from relaxpy.script import tir as T

@T.prim_func
def double(A: T.Buffer((T.int64({n}),), "float32"), B: T.Buffer((T.int64({n}),), "float32")):
    for i in T.serial(T.int32(0), T.int32({n})):
        with T.block("double"):
            vi = T.axis.spatial(T.int32({n}), i)
            B[vi] = A[vi] * T.float32(2)
"""


class NoHash:
    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("attrs", [{}, {"note": NoHash()}])
def test_kernels_without_a_class(attrs: dict[str, object]) -> None:
    """Loops of int32 over buffers with sizes of int64, and an attribute without a hash."""
    dtype = "int64" if attrs else "int32"
    kernels = {}
    for n in (48, 64):
        kernel = from_source(MIXED.format(n=n).replace("int32", dtype)).with_attrs(attrs)
        kernels[f"k{n}"] = kernel.with_attr("global_symbol", f"k{n}")
    ex = relaxpy.compile(IRModule(kernels), "native")
    for n in (48, 64):
        x, y = np.arange(n, dtype="float32"), np.zeros(n, "float32")
        ex[f"k{n}"](x, y)
        np.testing.assert_array_equal(y, x * 2)


def test_a_saved_program(tmp_path: Path) -> None:
    module, arrays = program("softmax", [(199, 331), (257, 353)])
    ex = relaxpy.compile(module, "native")
    ex.save(tmp_path / "model.rx")
    loaded = relaxpy.load_executable(tmp_path / "model.rx", native_code=True)
    check(loaded["main"](*arrays), ex["main"](*arrays), exactly=True)


@pytest.mark.parametrize(
    ("rows", "shapes", "count"),
    [
        (1, [(256, 192), (256, 256), (256, 320)], 1),
        ("n", [(256, 192), (256, 256), (256, 320)], 1),
        ("n", [(256, 192), (256, 256), (256, 135)], 2),
        (1, [(256, 192), (288, 192), (288, 256)], 2),
        (1, [(256, 192), (256, 63), (256, 12)], 3),
    ],
    ids=["one row", "rows", "another width", "another length", "few columns"],
)
def test_products_that_decode_weights_have_one_function(
    rows: Any, shapes: Sequence[tuple[int, int]], count: int
) -> None:
    lines = "".join(f"        y{n} = R.matmul(x{n}, w{n})\n" for n in range(3))
    params = "".join(
        f'x{n}: R.Tensor(({rows!r}, {shape[0]}), "float32"), w{n}: R.Tensor({shape}, "float32"), '
        for n, shape in enumerate(shapes)
    )
    main = from_source(
        f"@R.function\ndef main({params}):\n    with R.dataflow():\n{lines}"
        "        R.output(y0, y1, y2)\n    return y0, y1, y2\n"
    )
    plain, step = IRModule({"main": main}), relax.transform.QuantizeWeights(params=["w*"])
    module, rng = step(plain), np.random.default_rng(7)
    shared = relaxpy.compile(module, "native")
    assert len(functions(shared)) == count
    assert count > 1 or all(".task" in text for text in functions(shared))
    with KERNEL_CLASSES.off():
        separate = relaxpy.compile(module, "native")
    drawn = {f"w{n}": rng.standard_normal(s).astype("float32") for n, s in enumerate(shapes)}
    stored = step.pack(plain, drawn)
    for number in (1,) if rows == 1 else (0, 1, 3, 12):
        for n, (size, _) in enumerate(shapes):
            stored[f"x{n}"] = rng.standard_normal((number, size)).astype("float32")
        args = [stored[param.name_hint] for param in module["main"].params]
        found = shared["main"](*args)
        check(found, separate["main"](*args), exactly=True)
        check(found, relaxpy.compile(module, "numpy")["main"](*args), exactly=False)
