"""Which kernels only read their input in row-major order."""

import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir import ops as op
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.relax.analysis.op_pattern import has_reshape_pattern
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source
from tests.ir.relax.graphs import returning
from tests.ir.relax.sinfos import tensor


def kernel(params: str, axes: str, kinds: str, store: str, *, before: str = "") -> PrimFunc:
    """One block over spatial axes named v0, v1, …, with the given extents."""
    sizes = axes.split(", ")
    loops = ", ".join(f"i{k}" for k in range(len(sizes)))
    names = ", ".join(f"v{k}" for k in range(len(sizes)))
    text = f"""
@T.prim_func
def f({params}):
{before}
    for {loops} in T.grid({axes}):
        with T.block("b"):
            {names} = T.axis.remap("{kinds}", [{loops}])
            {store}
"""
    found = from_source(text)
    assert isinstance(found, PrimFunc)
    return found


DYNAMIC = """
    n = T.int64()
    A = T.match_buffer(a, (n, T.int64(32), T.int64(8)), "float16")
    B = T.match_buffer(b, (T.int64(1), n, T.int64(32), T.int64(8)), "float16")
"""
FLAT = "(v0 * 3 + v1)"


@pytest.mark.parametrize(
    "func",
    [
        kernel("A: T.Buffer((1, 2, 3, 4)), B: T.Buffer((8, 3))", "8, 3", "SS",
               f"B[v0, v1] = A[{FLAT} // 24, {FLAT} % 24 // 12, {FLAT} % 12 // 4, {FLAT} % 4]"),
        kernel("A: T.Buffer((2, 3)), B: T.Buffer((2, 1, 3))", "2, 1, 3", "SSS",
               "B[v0, v1, v2] = A[v0, v2]"),
        kernel("A: T.Buffer((2, 3)), B: T.Buffer((2, 3))", "2, 3", "SS", "B[v0, v1] = A[v0, v1]"),
        kernel("a: T.handle, b: T.handle", "T.int64(1), n, T.int64(32), T.int64(8)", "SSSS",
               "B[v0, v1, v2, v3] = A[((v3 // T.int64(8) + v2) // T.int64(32) + v0 * n + v1) % n,"
               " (v3 // T.int64(8) + v2) % T.int64(32), v3 % T.int64(8)]", before=DYNAMIC),
    ],
)  # fmt: skip
def test_a_kernel_that_only_reshapes_is_found(func: PrimFunc) -> None:
    assert has_reshape_pattern(func)


@pytest.mark.parametrize(
    "func",
    [
        kernel("A: T.Buffer((2, 3)), B: T.Buffer((3, 2))", "3, 2", "SS", "B[v0, v1] = A[v1, v0]"),
        kernel("A: T.Buffer((4,)), B: T.Buffer((2,))", "2, 1", "SS", "B[v0 + v1] = A[v0 + v1]"),
        kernel("A: T.Buffer((2, 3)), B: T.Buffer((2, 3))", "2, 3", "SS",
               "B[v0, v1] = A[v0, v1] + T.float32(1)"),
        kernel("A: T.Buffer((2, 3)), B: T.Buffer((2, 3))", "2, 3", "SR", "B[v0, v1] = A[v0, v1]"),
        kernel("A: T.Buffer((2, 3)), B: T.Buffer((6,)), C: T.Buffer((6,))",
               "6, 1", "SS", "C[v0 + v1] = B[v0 + v1]"),
        kernel("B: T.Buffer((2, 3))", "2, 3", "SS", "B[v0, v1] = T.float32(0)"),
        kernel("A: T.Buffer((4,)), B: T.Buffer((4,))", "2", "S", "B[v0] = A[v0]"),
        kernel("A: T.Buffer((4,)), B: T.Buffer((4,))", "2, 2", "SS", "B[v0] = A[v0]"),
        kernel("A: T.Buffer((4,)), B: T.Buffer((4,))", "4", "S",
               "T.where(i0 < 3)\n            B[v0] = A[v0]"),
        # Equal positions in row-major order, with indices outside of their dimensions.
        kernel("A: T.Buffer((2, 3)), B: T.Buffer((6,))", "6", "S", "B[v0] = A[0, v0]"),
        kernel("A: T.Buffer((6,)), B: T.Buffer((1, 2, 3))", "6", "S", "B[0, 0, v0] = A[v0]"),
        kernel("A: T.Buffer((2, 3)), B: T.Buffer((3, 2))", "3, 2", "SS",
               "B[v0, v1] = A[0, v0 * 2 + v1]"),
    ],
)  # fmt: skip
def test_a_kernel_that_does_anything_else_is_not(func: PrimFunc) -> None:
    assert not has_reshape_pattern(func)


def test_two_copies_in_a_row_are_not_a_reshape() -> None:
    func = from_source("""
@T.prim_func
def f(A: T.Buffer((4,)), B: T.Buffer((4,))):
    C = T.alloc_buffer((4,))
    for i in range(4):
        with T.block("c"):
            v = T.axis.spatial(4, i)
            C[v] = A[v]
    for i in range(4):
        with T.block("b"):
            v = T.axis.spatial(4, i)
            B[v] = C[v]
""")
    assert not has_reshape_pattern(func)


N = tir.Var("n", "int64")


@pytest.mark.parametrize(
    ("make", "sinfo", "answer"),
    [
        (lambda x: op.reshape(x, (N * 4,)), tensor(N, 4), True),
        (lambda x: op.reshape(x, (2, N, 2)), tensor(N, 4), True),
        (op.flatten, tensor(2, 3, 4), True),
        (lambda x: op.expand_dims(x, [0, 2]), tensor(N, 4), True),
        (lambda x: op.squeeze(x, 1), tensor(N, 1, 4), True),
        (lambda x: op.permute_dims(x, (1, 0, 2)), tensor(1, N, 4), True),
        (lambda x: op.permute_dims(x, (1, 0)), tensor(N, 4), False),
        (lambda x: op.permute_dims(x, (1, 0)), tensor(3, 4), False),
        (lambda x: op.permute_dims(x, (1, 0)), tensor(1, 4), True),
        (lambda x: op.permute_dims(x, (2, 1, 0)), tensor(3, 1, 3), False),
        (lambda x: op.strided_slice(x, [0], [0], [4]), tensor(4, 3), True),
        (lambda x: op.broadcast_to(x, (2, 4)), tensor(4), False),
        (op.nn.relu, tensor(4), False),
    ],
)
def test_what_operators_become(make, sinfo, answer) -> None:
    functions = LegalizeOps()(returning(make, sinfo)).functions.values()
    [made] = [f for f in functions if isinstance(f, PrimFunc)]
    assert has_reshape_pattern(made) is answer


def test_only_kernels_are_asked() -> None:
    with pytest.raises(MisuseError, match="expected a PrimFunc, found int"):
        has_reshape_pattern(3)  # type: ignore[arg-type]
