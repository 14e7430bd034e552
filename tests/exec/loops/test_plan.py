"""What a plan decides: divided domains, orders among parts, what is parallel."""

import inspect

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.loops.nest.domain import split
from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.exec.loops.plan import dependence, planner, schedule, tree as plan
from relaxpy.exec.loops.plan.blocking import in_tiles
from relaxpy.exec.loops.plan.memory import reads_sizes_only
from relaxpy.exec.loops.plan.planner import make_plan
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Contraction, For, Run, Scan, Tile
from relaxpy.ir.arith.algebra.affine import affine, as_poly
from relaxpy.ir.module import IRModule
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import And, FloorDiv, Not, Or, PrimExpr, Var
from relaxpy.script import relax as R, tir as T
from tests.exec.loops.support import check
from tests.exec.loops.test_model_kernels import CLASSIFIER
from tests.exec.loops.test_strategies import KINDS
from tests.exec.loops.written import kernel

n, i, j = Var("n", "int64"), Var("i", "int64"), Var("j", "int64")


def number(value: int) -> PrimExpr:
    return ops.const(value, "int64")


def test_sums_and_products_are_compared_as_polynomials() -> None:
    assert as_poly((i + 1) * (n - 2)).same(as_poly(i * n - i * 2 + n - 2))
    assert as_poly(n * 2 - n - n + 3).constant == 3
    assert as_poly(n + 3).is_at_least(3, {n})
    assert not as_poly(n - 1).is_at_least(0, {n})
    assert as_poly(n - ops.minimum(n, number(4))).is_at_least(0, {n})


def test_a_product_of_many_sums_is_not_multiplied_out() -> None:
    """Of sixty sums of two, that would be 2**60 terms."""
    value = number(1)
    for k in range(60):
        value = value * (Var(f"n{k}", "int64") + 1)
    assert len(as_poly(value).terms) <= 256
    assert as_poly(value + i).same(as_poly(i + value))


def test_an_index_is_affine_or_not() -> None:
    found = affine(i * n + j * 2 - 1, {i, j})
    assert found is not None
    assert found.coefficients[i].same(as_poly(n))
    assert found.constant(j) == 2
    assert found.offset.same(-1)
    assert affine(i * j, {i, j}) is None
    assert affine(FloorDiv(i, 2), {i}) is None
    assert affine(FloorDiv(n, 2) + i, {i}) is not None


BOX = (Axis(i, number(0), number(6)), Axis(j, number(0), number(5)))
CONDITIONS = [
    i < 3,
    i * 2 > 5,
    i * -3 < -7,
    And(i >= 1, And(i < 4, j > 2)),
    Or(i < 2, j > 3),
    Not(And(i >= 1, j >= 1)),
    ops.convert(i.equal(3)),
    Not(i.equal(0)),
    And(5 - i > j * 0 + 2, j < 9),
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_a_divided_domain_is_disjoint_and_whole(condition: PrimExpr) -> None:
    found = split(condition, BOX, set())
    assert found is not None
    holds = np.zeros((6, 5), int)
    fails = np.zeros((6, 5), int)
    for parts, grid in ((found.holds, holds), (found.fails, fails)):
        for a, b in parts:
            rows = slice(*(int(as_poly(v).constant or 0) for v in (a.start, a.stop)))
            columns = slice(*(int(as_poly(v).constant or 0) for v in (b.start, b.stop)))
            grid[rows, columns] += 1
    assert ((holds + fails) == 1).all()


def test_a_condition_over_two_axes_divides_nothing() -> None:
    assert split(i < j, BOX, set()) is None
    assert split(ops.convert(i.equal(j)), BOX, set()) is None


def test_a_dense_layer_is_a_product_into_the_result_and_an_addition_there() -> None:
    found = make_plan(kernel(CLASSIFIER["a dense layer"]), "dense")
    product, bias = found.trees
    assert isinstance(product, Run)
    assert isinstance(product.idiom, Contraction)
    assert product.accumulation is not None
    assert product.accumulation.initial is not None
    assert isinstance(bias, Run)
    assert bias.store is not None
    assert list(found.shared.values()) == [bias.store.target]


def test_the_stages_of_a_softmax_share_their_rows() -> None:
    [block] = in_tiles(make_plan(kernel(CLASSIFIER["softmax"]), "softmax")).trees
    assert isinstance(block, Tile)
    assert [len(run.over) for run in block.body] == [1, 0, 1, 0]
    assert all(isinstance(run.statement, Assignment) for run in block.body)
    assert {b.name for b in block.local} == {"highest", "total"}


def test_only_the_axis_that_carries_a_dependence_is_serial() -> None:
    first, rest = make_plan(
        kernel(KINDS["a running sum accumulates over all rows at once"]), "cumsum"
    ).trees
    assert isinstance(first, Run)
    assert first.store is not None
    assert isinstance(rest, Run)
    assert isinstance(rest.idiom, Scan)
    assert [axis.var.name for axis in rest.ordered] == ["j"]
    [sweep] = make_plan(kernel(KINDS["a sweep runs step by step over whole grids"]), "jacobi").trees
    assert isinstance(sweep, For)
    assert sweep.axis.var.name == "_sweep"


@T.prim_func
def skewed(A: T.Buffer((8, 8), "float32")):
    for p, q in T.grid(7, 7):
        A[p + 1, q] = A[p, q + 1] + T.float32(1)


def test_a_loop_is_not_moved_outward_past_what_it_would_reverse() -> None:
    [tree] = make_plan(skewed, "skewed").trees
    assert isinstance(tree, For)
    assert tree.axis.var.name == "p"


def test_a_plan_names_no_library() -> None:
    for module in (plan, planner, schedule, dependence):
        assert "numpy" not in inspect.getsource(module).lower()
    assert make_plan(kernel(KINDS["a loop that is split"]), "split").name == "split"


@T.prim_func
def two_at_once(x: T.Buffer((4, 3), "float32"), y: T.Buffer((4, 3), "float32")):
    a = T.alloc_buffer((4, 3), "float32")
    b = T.alloc_buffer((4, 3), "float32")
    c = T.alloc_buffer((4, 3), "float32")
    for p, q in T.grid(4, 3):
        a[p, q] = x[p, q] + T.float32(1)
    for p, q in T.grid(4, 3):
        b[p, q] = x[p, q] * T.float32(2)
    for p, q in T.grid(4, 3):
        c[p, q] = b[p, q] - T.float32(3)
    for p, q in T.grid(4, 3):
        y[p, q] = a[p, q] * c[p, q]


def test_memory_is_shared_by_buffers_that_do_not_live_at_once() -> None:
    shared = make_plan(two_at_once, "two_at_once").shared
    names = {buffer.name: owner.name for buffer, owner in shared.items()}
    assert names == {"b": "y", "c": "y"}
    values = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    check(two_at_once, values, np.zeros((4, 3), np.float32))


def test_numbers_of_more_than_64_bits_are_written_as_sums_of_products() -> None:
    value = as_poly(n) * (1 << 62) * 8 + 5
    assert as_poly(value.expr()).same(value)
    assert as_poly((value * -1).expr()).same(value * -1)


@pytest.mark.rule("PX-9")
def test_a_size_that_is_too_large_for_most_values_is_right_for_the_rest() -> None:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        y = R.zeros(R.shape([n * 4000000000000000000, 4]), "float32")
        return R.add(y, y)

    for target in ("numpy", "reference"):
        run = relaxpy.compile(IRModule({"main": main}), target=target)["main"]
        assert run(np.zeros(0, "float32")).shape == (0, 4)
        with pytest.raises(RuntimeCheckError, match="cannot allocate") as caught:
            run(np.zeros(1, "float32"))
        assert caught.value.diagnostic.rule == "PX-9"


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("a: f32[n], b: f32[n, 4]", True),
        ("a: f32[n], b: f32[4], k: T.int64", True),
        ("a: f32[n], b: f32[4], k: T.int32", False),
        ("a: f32[n], b: f32[4], k: T.float32", False),
        ('a: f32[n], b: T.Buffer((4,), "float32", strides=(2,))', False),
        ('a: f32[n], b: T.Buffer((4,), "float32", elem_offset=1)', False),
        ('a: T.Buffer((4,), "float32", strides=(2,)), b: f32[4], n: T.int64', False),
        ('a: T.Buffer((4,), "float32", strides=(2,))', False),
    ],
)
def test_a_kernel_that_is_called_without_checks_has_plain_arguments(parameters, expected) -> None:
    func = kernel(f"def f({parameters}):\n    a[1] = T.float32(1)")
    assert reads_sizes_only(make_plan(func, "f")) is expected


@pytest.mark.parametrize(("strides", "expected"), [("[1]", {}), ("[2]", {}), ("[]", {"B": "C"})])
def test_an_intermediate_result_is_not_in_the_memory_of_strided_results(strides, expected) -> None:
    func = kernel(f"""
def f(A: f32[4], c: T.handle):
    C = T.match_buffer(c, (4,), "float32", strides={strides})
    B = T.alloc_buffer((4,))
    for i in range(4):
        B[i] = A[i] * T.float32(3)
    for i in range(4):
        C[i] = B[i] + T.float32(1)
""")
    shared = make_plan(func, "f").shared
    assert {buffer.name: owner.name for buffer, owner in shared.items()} == expected
