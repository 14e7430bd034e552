"""Products of matrices."""

from collections.abc import Iterator

import numpy as np

from relaxpy.ir import ops as op
from tests.ir.ops.cases.case import Case, case, floats, integers


def cases() -> Iterator[Case]:
    shapes = (
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (3, 4, 5)),
        ((2, 3, 4), (4,)),
        ((0, 4), (4, 2)),
        ((2, 0), (0, 3)),
    )
    for a, b in shapes:
        yield Case(
            "relax.matmul",
            f"{a} {b}",
            (floats(*a), floats(*b, seed=2)),
            lambda v, w: v @ w,
            np.matmul,
        )
    narrow = floats(2, 3, dtype="float16"), floats(3, 2, dtype="float16", seed=2)
    yield case(
        "matmul",
        "out_dtype",
        narrow,
        lambda v, w: v.astype("float64") @ w.astype("float64"),  # factors are converted first
        "float32",
    )
    other = integers(2, 3), floats(3, 2)
    yield case("matmul", "ints and floats", other, lambda v, w: v @ w.astype("float64"), "float64")
    truths = np.array([[True, False], [True, True]])
    yield case("matmul", "bool", (truths, truths), np.matmul)
    mixed = (truths, floats(2, 3))  # of which the product holds Booleans
    yield case("matmul", "bool and float", mixed, np.matmul, smooth=False)
    yield case("matmul", "ints", (integers(2, 3), integers(3, 2)), np.matmul)
    yield case("outer", "floats", (floats(3), floats(4, seed=1)), np.outer)
    yield case("outer", "ints", (integers(3), integers(2)), np.outer)
    yield case("outer", "empty", (floats(0), floats(4)), np.outer)
    yield from _sums_of_products()


def _sums_of_products() -> Iterator[Case]:
    table: dict[str, tuple[tuple[int, ...], ...]] = {
        "ij,jk->ik": ((2, 3), (3, 4)),
        "ij,jk": ((2, 3), (3, 4)),
        "bij , bjk -> bik": ((2, 2, 3), (2, 3, 4)),
        "ij,jk,kl->li": ((2, 3), (3, 4), (4, 2)),
        "ii->i": ((3, 3),),
        "ii": ((3, 3),),
        "iij->j": ((3, 3, 2),),
        "ij->ji": ((2, 3),),
        "ij->": ((2, 3),),
        "i,j->ij": ((2,), (3,)),
        "ij,ij->i": ((2, 3), (2, 3)),
        "i,i": ((4,), (4,)),
        "...ij,...jk->...ik": ((2, 1, 2, 3), (2, 3, 2)),
        "...i->...": ((2, 3, 2),),
        "...,...": ((3,), (3,)),
        "ba,ca": ((2, 3), (4, 3)),
        "ij,jk->k": ((2, 3), (3, 4)),
        "i,->i": ((3,), ()),
        "ab,b->": ((2, 3), (1,)),
        "ab,b,bc->c": ((2, 3), (1,), (1, 2)),
    }
    for subscripts, shapes in table.items():
        yield Case(
            "relax.einsum",
            subscripts,
            tuple(floats(*shape, seed=k) for k, shape in enumerate(shapes)),
            lambda *v, s=subscripts: op.einsum(v, s),
            lambda *v, s=subscripts: np.einsum(s, *v),
        )
    product = lambda *v: op.einsum(v, "ij,jk")  # noqa: E731
    pairs = {
        "ints": (integers(2, 3), integers(3, 2)),
        "empty": (floats(2, 0), floats(0, 3)),
        "half": (floats(2, 3, dtype="float16"), floats(3, 2, dtype="float16")),
    }
    for label, pair in pairs.items():
        yield Case("relax.einsum", label, pair, product, np.matmul)
