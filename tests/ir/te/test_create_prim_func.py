"""Tensor expressions become kernels that compute what NumPy computes."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxpy.errors import MisuseError
from relaxpy.exec.api.compile import compile
from relaxpy.ir import assert_structural_equal, load_json, save_json
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import ShapeExpr
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.lower import create_prim_func
from relaxpy.ir.tir import expr as tir, intrin, reduce
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block
from relaxpy.script import from_source

Array = np.ndarray


def run(func: PrimFunc, *arrays: Array) -> None:
    executable = compile(IRModule({"main": func}), target="reference")
    executable["main"](*arrays)


def blocks(func: PrimFunc) -> list[str]:
    return [node.name_hint for node in walk(func.body) if isinstance(node, Block)]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("override", [None, "int64"])
def test_stages_run_one_after_the_other(rng: np.random.Generator, override: str | None) -> None:
    n = te.var("n", "int64")
    a, b = te.placeholder((n, 5), name="A"), te.placeholder((5, 6), name="B")
    k = te.reduce_axis((0, 5), "k")
    c = te.compute((n, 6), lambda i, j: reduce.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((n, 6), lambda i, j: c[i, j] + i.astype("float32"), name="D")
    func = create_prim_func([a, b, d], index_dtype_override=override)
    assert blocks(func) == ["C", "D", "root"]
    x, w = rng.random((3, 5), "float32"), rng.random((5, 6), "float32")
    out = np.empty((3, 6), "float32")
    run(func, x, w, out)
    np.testing.assert_allclose(out, x @ w + np.arange(3)[:, None], rtol=1e-5)


def test_listed_tensors_are_parameters_and_others_are_allocated() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((4,), lambda i: b[i] * 2.0, name="C")
    assert len(create_prim_func([a, c]).params) == 2
    both = create_prim_func([a, b, c])
    assert len(both.params) == 3
    root = next(
        node for node in walk(both.body) if isinstance(node, Block) and node.name_hint == "root"
    )
    assert root.alloc_buffers == ()


@pytest.mark.parametrize(
    ("reducer", "expected"),
    [(reduce.sum, np.sum), (reduce.prod, np.prod), (reduce.min, np.min), (reduce.max, np.max)],
)
def test_reducers(rng, reducer, expected) -> None:
    a = te.placeholder((3, 4), name="A")
    k = te.reduce_axis((0, 4), "k")
    b = te.compute((3,), lambda i: reducer(a[i, k], axis=k), name="B")
    x, out = rng.standard_normal((3, 4)).astype("float32"), np.empty(3, "float32")
    run(create_prim_func([a, b]), x, out)
    np.testing.assert_allclose(out, expected(x, axis=1), rtol=1e-5)


def argmax(x: tuple[tir.PrimExpr, ...], y: tuple[tir.PrimExpr, ...]) -> tuple[tir.PrimExpr, ...]:
    first = tir.Select(x[1] >= y[1], x[0], y[0])
    return first, tir.Select(x[1] >= y[1], x[1], y[1])


def test_a_reduction_of_tuples_gives_several_tensors(rng: np.random.Generator) -> None:
    over = reduce.comm_reducer(
        argmax, lambda index, value: (tir.IntImm(index, -1), intrin.min_value(value)), "argmax"
    )
    a = te.placeholder((3, 7), name="A")
    k = te.reduce_axis((0, 7), "k")
    index, value = te.compute((3,), lambda i: over((k.var, a[i, k]), axis=k), name="best")
    x = rng.standard_normal((3, 7)).astype("float32")
    where, best = np.empty(3, "int32"), np.empty(3, "float32")
    run(create_prim_func([a, index, value], index_dtype_override="int64"), x, where, best)
    np.testing.assert_array_equal(where, x.argmax(axis=1))
    np.testing.assert_array_equal(best, x.max(axis=1))


def test_a_scalar_result_has_one_block_over_a_unit_axis(rng: np.random.Generator) -> None:
    a = te.placeholder((5,), name="A")
    k = te.reduce_axis((0, 5), "k")
    s = te.compute((), lambda: reduce.sum(a[k], axis=k), name="S")
    t = te.compute((), lambda: s() * 2.0, name="T")
    x, out = rng.random(5, "float32"), np.empty((), "float32")
    run(create_prim_func([a, t]), x, out)
    np.testing.assert_allclose(out, 2 * x.sum(), rtol=1e-6)


def test_several_outputs_elementwise() -> None:
    a = te.placeholder((4,), "int32", name="A")
    b, c = te.compute((4,), lambda i: (a[i] + i, a[i] * 2), name="B")
    x = np.arange(4, dtype="int32")
    y, z = np.empty(4, "int32"), np.empty(4, "int32")
    run(create_prim_func([a, b, c], index_dtype_override="int64"), x, y, z)
    np.testing.assert_array_equal(y, x + np.arange(4))
    np.testing.assert_array_equal(z, x * 2)


def test_indices_may_come_from_tensors() -> None:
    table, index = te.placeholder((5,), name="T"), te.placeholder((3,), "int32", name="I")
    out = te.compute((3,), lambda i: table[index[i]], name="O")
    found = np.empty(3, "float32")
    data = np.arange(5, dtype="float32") * 10
    run(create_prim_func([table, index, out], "int64"), data, np.array([4, 0, 2], "int32"), found)
    np.testing.assert_array_equal(found, [40, 0, 20])


@pytest.mark.parametrize("override", [None, "int64"])
def test_a_scalar_parameter_may_be_an_index(override: str | None) -> None:
    table, first = te.placeholder((6,), name="T"), te.var("first", "int32")
    out = te.compute((3,), lambda i: table[i + first], name="O")
    func = create_prim_func([table, first, out], override)
    data, found = np.arange(6, dtype="float32"), np.empty(3, "float32")
    run(func, data, 2, found)
    np.testing.assert_array_equal(found, [2, 3, 4])


@pytest.mark.rule("DER-49")
def test_the_signature_is_read_off_the_parameters() -> None:
    n = te.var("n", "int64")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i], name="B")
    func = create_prim_func([a, b])
    assert str(func.struct_info) == (
        'R.Callable((R.Tensor((n,), dtype="float32"), R.Tensor((n,), dtype="float32")), '
        "R.Tuple(), False)"
    )


def test_a_shape_may_be_an_expression_of_relax() -> None:
    a = te.placeholder(ShapeExpr((2, 3)), name="A")
    assert te.compute(ShapeExpr(a.shape), lambda i, j: a[i, j]).shape == a.shape == (2, 3)


def test_an_unlisted_placeholder_is_refused() -> None:
    a, b = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
    c = te.compute((4,), lambda i: a[i] + b[i], name="C")
    with pytest.raises(MisuseError, match="placeholder B is read but is not among the arguments"):
        create_prim_func([a, c])


def test_a_reduction_inside_an_expression_is_refused() -> None:
    a = te.placeholder((4,), name="A")
    k = te.reduce_axis((0, 4), "k")
    with pytest.raises(MisuseError, match="top level of compute"):
        te.compute((4,), lambda i: reduce.sum(a[k], axis=k) + 1.0, name="C")


def test_wrong_indices_and_parameters_are_refused() -> None:
    a = te.placeholder((4, 4), name="A")
    with pytest.raises(MisuseError, match="tensor A has rank 2, found 3 indices"):
        te.compute((4,), lambda i: a[i, i, i], name="C")
    with pytest.raises(MisuseError, match="positional"):
        te.compute((4,), lambda i, j=3: a[i, j], name="C")
    with pytest.raises(MisuseError, match="2 index parameters for 1 dimensions"):
        te.compute((4,), lambda i, j: a[i, j], name="C")


@pytest.mark.parametrize("target", ["reference", "numpy"])
@pytest.mark.parametrize(("low", "begins"), [(0, True), (3, False), (3, True)])
def test_a_reduction_may_choose_its_rounds_and_begin_elsewhere(target, low, begins) -> None:
    a, first = te.placeholder((3, 5), name="A"), te.placeholder((3,), name="first")
    k = te.reduce_axis((0, 5), "k")

    def total(i: tir.Var) -> object:
        init = first[i] if begins else None
        return reduce.sum(a[i, k], axis=k, where=k.var >= low, init=init)

    func = create_prim_func([a, first, te.compute((3,), total, name="B")])
    x, start = np.arange(15, dtype="float32").reshape(3, 5), np.array([10, 20, 30], "float32")
    out = np.empty(3, "float32")
    compile(IRModule({"main": func}), target)["main"](x, start, out)
    np.testing.assert_array_equal(out, x[:, low:].sum(1) + (start if begins else 0))


def test_a_condition_keeps_a_reduction_from_reading_outside() -> None:
    a = te.placeholder((4,), name="A")
    k = te.reduce_axis((0, 3), "k")
    b = te.compute((4,), lambda i: reduce.sum(a[i + k], axis=k, where=i + k < 4), name="B")
    x, out = np.arange(4, dtype="float32"), np.empty(4, "float32")
    run(create_prim_func([a, b]), x, out)
    np.testing.assert_array_equal(out, [3, 6, 5, 3])


def test_expressions_may_be_deep() -> None:
    a = te.placeholder((4,), name="A")

    def chain(i: tir.Var) -> object:
        value = a[i]
        for k in range(3000):
            value = value + float(k + 1)
        return value

    body = create_prim_func([a, te.compute((4,), chain)]).body
    assert sum(isinstance(node, tir.Add) for node in walk(body)) == 3000


def endless(a: te.Tensor) -> te.Tensor:
    """A sum over two axes whose domains read each other."""
    k, j = tir.Var("k", "int32"), tir.Var("j", "int32")
    pairs = ((k, j), (j, k))
    axes = [IterVar(Range(0, end), var, tir.IterVarKind.CommReduce) for var, end in pairs]
    return te.compute((4,), lambda i: reduce.sum(a[k + j], axis=axes))


REFUSED: list[tuple[Callable[[te.Tensor], object], str]] = [
    (lambda a: te.compute((4,), 3), "fcompute is a function of the indices, found 3"),
    (lambda a: te.compute((4,), max), "parameters of <built-in function max> are not known"),
    (lambda a: te.compute((4,), lambda i: []), "fcompute does not return an element"),
    (lambda a: reduce.sum(a[0]), "sum takes axes to reduce over, or several values"),
    (lambda a: reduce.prod(a[0]), "prod takes axes to reduce over, or several values"),
    (lambda a: te.ProducerLoad(3, []), "a Tensor is read, found 3"),
    (lambda a: te.ProducerLoad(a, 0), "expected a list of indices, found 0"),
    (lambda a: create_prim_func(3), "expected a list of tensors, found 3"),
    (lambda a: create_prim_func(a, a), r"one list.* hint: write create_prim_func\(\[A, B\]\)"),
    (
        lambda a: te.compute((4,), lambda i: np.exp(a[i])),
        r"functions of NumPy take arrays, not elements.*hint: .* as in te\.exp\(A\[i\]\)",
    ),
    (lambda a: te.reduce_axis(5), r"a Range or \(begin, end\), found 5"),
    (lambda a: te.reduce_axis((0,)), r"a Range or \(begin, end\), found \(0,\)"),
    (lambda a: a[0, 0], "tensor A has rank 1, found 2 indices"),
    (lambda a: a[1.5], "an index is an integer, found .* of float32"),
    (lambda a: create_prim_func([te.compute((4,), lambda i: a[i])]), "not among the arguments"),
    (
        lambda a: te.extern(
            [(4,), (4,)], [a], lambda i, o: tir.IntImm("int32", 0), dtype=["int8"] * 3
        ),
        "3 datatypes for 2 shapes",
    ),
    (lambda a: create_prim_func([a, endless(a)]), r"domain of axis k reads the axis itself"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_is_not_a_tensor_expression_is_refused(make, message) -> None:
    with pytest.raises(MisuseError) as caught:
        make(te.placeholder((4,), name="A"))
    diagnostic = caught.value.diagnostic  # its text quotes the row, and with it the message
    assert re.search(message, f"{diagnostic.message} hint: {diagnostic.hint}")


def test_widened_indices_leave_the_comparison_of_data_alone() -> None:
    a = te.placeholder((3,), "uint64", name="A")
    b, c = (te.placeholder((3,), "int32", name=name) for name in "BC")
    large = te.compute((3,), lambda i: a[i] > tir.IntImm("uint64", 5), name="large")
    wrapped = te.compute((3,), lambda i: b[i] + b[i] < c[i], name="wrapped")
    place = te.compute((3,), lambda i: b[i] + c[i] < i.astype("int32"), name="place")
    x = np.array([2**63, 5, 6], "uint64")
    y, z = np.array([2**31 - 1, 0, -3], "int32"), np.array([1, 0, 4], "int32")
    found = [np.empty(3, "bool") for _ in range(3)]
    run(create_prim_func([a, b, c, large, wrapped, place], "int64"), x, y, z, *found)
    np.testing.assert_array_equal(found[0], x > 5)
    np.testing.assert_array_equal(found[1], y + y < z)
    np.testing.assert_array_equal(found[2], y + z < np.arange(3))


def test_layouts_that_are_left_open_are_named() -> None:
    a, b = te.placeholder((4, 4), name="A"), te.placeholder((4, 4), name="B")
    c = te.compute(
        (4, 4), lambda i, j: a[i, j] + b[j, i], name="C", attrs={"layout_free_placeholders": [b]}
    )
    d = te.compute(
        (4, 4), lambda i, j: c[i, j] + 1, name="D", attrs={"layout_free_placeholders": [c]}
    )
    func = create_prim_func([a, b, d])
    assert func.attrs["layout_free_buffers"] == (1,)
    last = [node for node in walk(func.body) if isinstance(node, Block) and node.name_hint == "D"]
    (buffer,) = last[0].annotations["layout_free_placeholders"]  # type: ignore[misc]
    assert buffer.name == "C"
    assert "layout_free_placeholders" not in create_prim_func([a, b, c]).script()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (lambda b, m: b, "B"),
        (lambda b, m: [m, b, 1], "[M, B, 1]"),
        (lambda b, m: {"x": b, "y": [m]}, '{"x": B, "y": [M]}'),
    ],
)
def test_tensors_in_attributes_become_buffers(kind: Any, text: str) -> None:
    a, b = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
    m = te.compute((4,), lambda i: a[i] * 2, name="M")
    c = te.compute((4,), lambda i: m[i] + b[i], name="C", attrs={"other": kind(b, m)})
    func = create_prim_func([a, b, c])
    assert f'T.block_attr({{"other": {text}}})' in func.script()
    assert_structural_equal(from_source(func.script()), func)
    assert_structural_equal(load_json(save_json(func)), func)
    d = te.placeholder((4,), name="D")
    other = te.compute((4,), lambda i: a[i], name="C", attrs={"other": kind(d, d)})
    with pytest.raises(MisuseError, match="C has tensor D, which the kernel does not use"):
        create_prim_func([a, other])


def test_arithmetic_of_reduction_axes(rng: np.random.Generator) -> None:
    k, n = te.reduce_axis((0, 3), "k"), te.reduce_axis((0, 2), "n")
    data = te.placeholder((11,), "float64", name="data")

    def pooled(i: tir.Var) -> tir.PrimExpr:
        return reduce.sum(intrin.if_then_else(k < 2, data[k * 2 + 1 - n + i], 0.0), [k, n])

    values, out = rng.standard_normal(11), np.zeros(5)
    run(create_prim_func([data, te.compute((5,), pooled, name="pooled")]), values, out)
    np.testing.assert_allclose(out, [values[i : i + 4].sum() for i in range(5)])
    texts = (1 + k, k - n, k // 2, k % 2, -k, k << 1, k.equal(2), k.astype("int64"), k >= n)
    assert [str(text) for text in texts] == [
        "1 + k",
        "k - n",
        "k // 2",
        "k % 2",
        "k * -1",
        "T.shift_left(k, 1)",
        "k == 2",
        'T.Cast("int64", k)',
        "k >= n",
    ]
    assert k.dtype == "int32"


def test_elements_of_tensors_print_as_they_are_written() -> None:
    a, s = te.placeholder((4,), name="A"), te.placeholder((), name="S")
    assert str(a[0] + 1.0) == "A[0] + T.float32(1.0)"
    assert str(te.compute((4,), lambda i: s() * a[i]).op.body[0]) == "S[()] * A[i]"


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize("override", [None, "int64"])
def test_domains_of_reduction_axes_read_other_axes(
    rng: np.random.Generator, override: str | None, target: str
) -> None:
    a = te.placeholder((5, 5, 5), name="A")
    ends = te.placeholder((6,), "int32", name="ends")
    flat = te.placeholder((9,), name="flat")

    def nested(i: tir.Var) -> tir.PrimExpr:
        j = te.reduce_axis((0, i), "j")
        k = te.reduce_axis((j, i + 1), "k")
        return reduce.sum(a[i, j, k], axis=[k, j])

    def ragged(i: tir.Var) -> tir.PrimExpr:
        k = te.reduce_axis((0, ends[i + 1] - ends[i]), "k")
        return reduce.max(flat[ends[i] + k], axis=k)

    width = te.compute((1,), lambda i: ends[i + 1], name="width")

    def windows(i: tir.Var) -> tir.PrimExpr:
        k = te.reduce_axis((0, width[0]), "k")
        return reduce.sum(flat[i + k], axis=k)

    def last(i: tir.Var) -> tir.PrimExpr:
        k = te.reduce_axis((i, 5), "k")
        return reduce.sum(a[i, i, k], axis=k)

    made = [te.compute((5,), f, name=f.__name__) for f in (nested, ragged, windows, last)]
    func = create_prim_func([a, ends, flat, *made], override)
    around = ["nested", "nested_l2", "nested_l1", "ragged", "ragged_l1"]
    assert blocks(func) == [*around, "width", "windows", "last", "last_l1", "root"]
    x, y = rng.random((5, 5, 5), "float32"), rng.random(9, "float32")
    ends_of_rows = np.array([0, 2, 2, 5, 8, 9], "int32")
    results = sums, largest, wide, ends_of_sums = [np.full(5, 7, "float32") for _ in range(4)]
    compile(IRModule({"main": func}), target)["main"](x, ends_of_rows, y, *results)
    np.testing.assert_allclose(ends_of_sums, [x[i, i, i:].sum() for i in range(5)], rtol=1e-6)
    np.testing.assert_allclose(wide, y[:5] + y[1:6], rtol=1e-6)
    expected = [sum(x[i, j, j : i + 1].sum() for j in range(i)) for i in range(5)]
    np.testing.assert_allclose(sums, expected, rtol=1e-5)
    least = [np.finfo("float32").min]
    rows = np.split(y, ends_of_rows[1:-1])
    np.testing.assert_array_equal(largest, [max([*row, *least]) for row in rows])


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_the_largest_element_is_found_along_domains_of_rows(
    rng: np.random.Generator, target: str
) -> None:
    find = reduce.comm_reducer(argmax, lambda *kinds: (-1, -1.0))
    a = te.placeholder((4, 6, 5), name="A")

    def place(n: tir.Var, i: tir.Var) -> Any:
        k = te.reduce_axis((0, i), "k")
        return find((k, a[n, i, k]), axis=k)

    func = create_prim_func([a, *te.compute((4, 6), place)])
    x, places = rng.random((4, 6, 5), "float32"), np.zeros((4, 6), "int32")
    values = np.zeros((4, 6), "float32")
    compile(IRModule({"main": func}), target)["main"](x, places, values)
    for n, i in np.ndindex(4, 5):
        row = x[n, i + 1, : i + 1]
        assert (places[n, i + 1], values[n, i + 1]) == (row.argmax(), row.max())
    assert (places[:, 0] == -1).all()
