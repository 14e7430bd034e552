"""AdjustMatmulOrder, ExpandMatmulOfSum, and the passes that reorder products and concatenations."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.relax.transform import (
    AdjustMatmulOrder,
    ExpandMatmulOfSum,
    ReorderPermuteDimsAfterConcat,
    ReorderTakeAfterMatmul,
)
from relaxpy.script import ir as I, relax as R
from tests.ir.passes.before_after import check, numbers, stays
from tests.ir.relax.texts import module


def program(
    params: str, lines: str, *, inputs: int | None = None, pure: bool = True, dtype: str = "float32"
) -> IRModule:
    """A function of tensors `name:size,size` of one datatype, with its last line returned."""
    typed = []
    for param in params.split():
        name, sizes = param.split(":")
        dims = "".join(f"{s if s.isdigit() else repr(s)}, " for s in sizes.split(","))
        typed.append(f'{name}: R.Tensor(({dims}), "{dtype}")')
    attr = "" if inputs is None else f'R.func_attr({{"num_input": {inputs}}})'
    body = "\n    ".join([attr, *lines.split("; ")])
    last = lines.split("; ")[-1].split(" = ")[0]
    return module(
        f"@R.function(pure={pure})\ndef main({', '.join(typed)}):\n    {body}\n    return {last}"
    )


@pytest.mark.each_choice
@pytest.mark.parametrize(
    ("params", "before", "after"),
    [
        ("x:16 a:16,2 b:2,32", "w = a @ b; y = x @ w", "p = x @ a; y = p @ b"),
        ("x:16 a:32,2 b:2,16", "w = a @ b; y = w @ x", "p = b @ x; y = a @ p"),
        ("x:n,1,16 a:16,r b:r,32", "w = a @ b; y = x @ w", "p = x @ a; y = p @ b"),
        ("x:n,16,1 a:32,r b:r,16", "w = a @ b; y = w @ x", "p = b @ x; y = a @ p"),
        (
            "x:1,16 a:32,2 b:2,16",
            "w = a @ b; t = R.permute_dims(w); y = x @ t",
            "b1 = R.permute_dims(b); p = x @ b1; a1 = R.permute_dims(a); y = p @ a1",
        ),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "void"])  # operands of unknown ones must agree
def test_the_cheaper_order_is_chosen(params: str, before: str, after: str, dtype: str) -> None:
    mod, expected = program(params, before, dtype=dtype), program(params, after, dtype=dtype)
    found = AdjustMatmulOrder()(mod)
    assert found.script().count("matmul") == 2
    arrays = [
        numbers(*(int(s) if s.isdigit() else 3 for s in p.split(":")[1].split(",")), seed=k)
        for k, p in enumerate(params.split())
    ]
    if "permute_dims" not in before:
        check(AdjustMatmulOrder(), mod, expected, *arrays)
    results = [relaxpy.compile(m)["main"](*arrays) for m in (mod, found, expected)]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    assert AdjustMatmulOrder()(found) is found


@pytest.mark.parametrize(
    ("params", "lines", "inputs"),
    [
        ("a:m,n b:n,p c:p,q", "w = a @ b; y = w @ c", None),
        ("a:m,n b:n,p c:p,q", "w = b @ c; y = a @ w", None),
        ("x:16 a:16,2 b:2,32", "w = a @ b; y = x @ w", 1),
        ("x:16 a:32,2 b:2,16", "w = a @ b; y = w @ x", 1),
        ("x:16 a:16,2 b:2,32", "w = a @ b; y = x @ w", 0),
        # a vector before a stack: the product is not associative
        ("x:4 a:4,4,4 b:4,4,1", "w = x @ a; y = w @ b", None),
        ("a:4,4 b:4 c:4,1", "w = a @ b; y = w @ c", None),
        # the inner product is computed anyway
        ("x:16 a:16,2 b:2,2", "w = a @ b; y = x @ w; z = R.exp(w); t = (y, z)", None),
        ("x:4 a:4,4", "b = a @ a; c = b @ b; y = x @ b; t = (y, c)", None),
        # a permutation of other axes
        ("x:1,2 a:2,4,2 b:2,2,2", "w = a @ b; t = R.permute_dims(w, (1, 2, 0)); y = x @ t", None),
    ],
)
def test_another_order_is_not_better_or_not_the_same(params, lines, inputs) -> None:
    stays(AdjustMatmulOrder(), program(params, lines, inputs=inputs))


def test_the_cheaper_order_may_depend_on_bounds_of_sizes() -> None:
    params, before = "x:n,512 a:512,rank b:rank,512", "w = a @ b; y = x @ w"
    mod = program(params, before)
    stays(AdjustMatmulOrder(), mod)
    after, expected = (program(params, lines) for lines in (before, "p = x @ a; y = p @ b"))
    for each in (after, expected):
        each["main"] = each["main"].with_attr("tir_var_upper_bound", {"rank": 256})
    relaxpy.ir.assert_structural_equal(AdjustMatmulOrder()(after), expected)
    mod["main"] = mod["main"].with_attr("tir_var_upper_bound", 256)
    with pytest.raises(relaxpy.errors.TransformError, match="a mapping from names to integers"):
        AdjustMatmulOrder()(mod)


def test_factors_that_are_known_early_are_multiplied_first() -> None:
    before = program("x:16 a:16,2 b:2,32", "w = x @ a; y = w @ b", inputs=1)
    after = program("x:16 a:16,2 b:2,32", "w = a @ b; y = x @ w", inputs=1)
    check(AdjustMatmulOrder(), before, after, numbers(16), numbers(16, 2), numbers(2, 32))


def test_squares_of_squares_are_not_multiplied_one_by_one() -> None:
    squares = [f"a{k + 1} = a{k} @ a{k}" for k in range(30)]
    after = AdjustMatmulOrder()(program("x:4 a0:4,4", "; ".join([*squares, "y = x @ a30"])))
    assert after.script().count("matmul") == 31


def test_a_product_with_a_sum_is_expanded() -> None:
    params = "x:2,3 a:4,3 b:4,3"
    before = program(params, "w = a + b; t = R.permute_dims(w); y = x @ t")
    after = program(
        params, "s = R.permute_dims(a); p = x @ s; t = R.permute_dims(b); q = x @ t; y = p + q"
    )
    check(ExpandMatmulOfSum(), before, after, numbers(2, 3), numbers(4, 3), numbers(4, 3, seed=1))


@pytest.mark.parametrize(
    ("params", "lines", "inputs"),
    [
        ("x:2,3 a:3,4 b:3,4", "w = a + b; y = x @ w", 1),
        ("x:2,3 a:3,4 b:4", "w = a + b; y = x @ w", None),
        ("x:2,3 a:3,4 b:3,1", "w = a + b; y = x @ w", None),
        ("x:2,3 a:3,4 b:3,4", "w = a * b; y = x @ w", None),
    ],
)
def test_a_sum_that_is_known_early_or_broadcast_stays(params, lines, inputs) -> None:
    stays(ExpandMatmulOfSum(), program(params, lines, inputs=inputs))


def test_a_table_of_matrices_is_used_as_one() -> None:
    Before = module("""
    def main(x: f32[2, 3, 4], table: f32[5, 4, 6], indices: i64[2]):
        w = R.take(table, indices, axis=0)
        y = R.matmul(x, w)
        return y
    """)
    After = module("""
    def main(x: f32[2, 3, 4], table: f32[5, 4, 6], indices: i64[2]):
        t = R.permute_dims(table, (1, 0, 2))
        m = R.reshape(t, (4, 30))
        p = R.matmul(x, m)
        r = R.reshape(p, (2, 3, 5, 6))
        c = R.take(r, indices, axis=2)
        y = R.einsum((c,), "ijik->ijk")
        return y
    """)
    arrays = (numbers(2, 3, 4), numbers(5, 4, 6), np.array([4, 1]))
    check(ReorderTakeAfterMatmul(), Before, After, *arrays)


@pytest.mark.parametrize(("axis", "mode"), [(1, "wrap"), (-1, "clip")])
def test_slices_are_taken_of_the_product(axis: int, mode: str) -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 3), "float32"),
            table: R.Tensor((3, 5), "float32"),
            indices: R.Tensor((2,), "int64"),
        ):
            w = R.take(table, indices, axis=axis, mode=mode)
            y = R.matmul(x, w)
            return y

    after = ReorderTakeAfterMatmul()(Before)
    assert after is not Before
    arrays = (numbers(2, 3), numbers(3, 5), np.array([7, -2]))
    results = [relaxpy.compile(mod)["main"](*arrays) for mod in (Before, after)]
    np.testing.assert_array_equal(*results)


def test_slices_of_rows_stay() -> None:
    Mod = module("""
    def main(x: f32[2, 3], table: f32[5, 4], indices: i64[3]):
        w = R.take(table, indices, axis=0)
        y = R.matmul(x, w)
        return y
    """)
    stays(ReorderTakeAfterMatmul(), Mod)


def test_tensors_are_joined_before_they_are_permuted() -> None:
    params = "x:2,3,4 y:2,5,4 z:2,6,4"
    axes = "(2, 0, 1)"
    parts = "; ".join(f"{n}1 = R.permute_dims({n}, {axes})" for n in "xyz")
    before = program(params, f"{parts}; r = R.concat((x1, y1, z1), axis=-1)")
    after = program(params, f"j = R.concat((x, y, z), axis=1); r = R.permute_dims(j, {axes})")
    arrays = [numbers(2, n, 4, seed=n) for n in (3, 5, 6)]
    check(ReorderPermuteDimsAfterConcat(), before, after, *arrays)


@pytest.mark.parametrize(
    "lines",
    [
        "s = R.permute_dims(x); r = R.concat((s, y), axis=0)",
        "s = R.permute_dims(x); t = R.permute_dims(y, (0, 1)); r = R.concat((s, t), axis=1)",
    ],
)
def test_tensors_that_are_permuted_in_other_ways_stay(lines: str) -> None:
    stays(ReorderPermuteDimsAfterConcat(), program("x:3,3 y:3,3", lines))


def test_a_term_of_several_sums_is_multiplied_once() -> None:
    params = "x:2,3 a:3,4 b:3,4"
    lines = "c = a + b; d = b + c; e = c + d; y = x @ e"
    expected = "p = x @ a; q = x @ b; r = p + q; s = q + r; y = r + s"
    arrays = numbers(2, 3), numbers(3, 4), numbers(3, 4, seed=1)
    check(ExpandMatmulOfSum(), program(params, lines), program(params, expected), *arrays)


def test_a_long_chain_of_sums_is_expanded() -> None:
    names = ["a", "b", *(f"s{k}" for k in range(200))]
    sums = [f"{z} = {x} + {y}" for x, y, z in zip(names, names[1:], names[2:], strict=False)]
    mod = program("x:2,3 a:3,4 b:3,4", "; ".join([*sums, f"y = x @ {names[-1]}"]))
    after = ExpandMatmulOfSum()(mod)
    assert after.script().count("matmul") == 2
    assert len(after["main"].body.blocks[0].bindings) == len(sums) + 2


def test_a_sum_of_a_value_with_itself_is_expanded() -> None:
    before, after = "w = a + a; y = x @ w", "p = x @ a; y = p + p"
    params = "x:2,3 a:3,4"
    arrays = numbers(2, 3), numbers(3, 4)
    check(ExpandMatmulOfSum(), program(params, before), program(params, after), *arrays)


@pytest.mark.rule("OPT-3")
def test_terms_are_not_used_after_an_effect_that_may_change_them() -> None:
    params = "x:2,3 a:3,4 b:3,4"
    lines = 'w = a + b; _ = R.print(a, format="{}"); y = x @ w'
    stays(ExpandMatmulOfSum(), program(params, lines, pure=False))


#: Programs, whose first and last products may have a wider datatype.
PRODUCTS = [
    (AdjustMatmulOrder(), "x:1,2 a:2,64 b:64,2", "p = R.matmul(a, b{0}); y = R.matmul(x, p{1})"),
    (AdjustMatmulOrder(), "x:2,1 a:2,64 b:64,2", "p = R.matmul(a, b{0}); y = R.matmul(p, x{1})"),
    (
        AdjustMatmulOrder(),
        "x:1,2 a:2,64 b:64,2",
        "p = R.matmul(a, b{0}); q = R.permute_dims(p); y = R.matmul(x, q{1})",
    ),
    (ExpandMatmulOfSum(), "x:1,2 a:2,2 b:2,2", "w = a + b; y = R.matmul(x, w{1})"),
    (
        ExpandMatmulOfSum(),
        "x:1,2 a:2,2 b:2,2",
        "w = a + b; t = R.permute_dims(w); y = R.matmul(x, t{1})",
    ),
    (
        ReorderTakeAfterMatmul(),
        "x:2,3 a:3,5",
        "w = R.take(a, R.const([4, 0]), axis=-1); y = R.matmul(x, w{1})",
    ),
    (
        ReorderTakeAfterMatmul(),
        "x:2,1,3 a:4,3,5",
        "w = R.take(a, R.const([3, 1]), axis=0); y = R.matmul(x, w{1})",
    ),
]


@pytest.mark.each_choice
@pytest.mark.parametrize(
    ("dtype", "wide", "first", "last"),
    [
        ("int8", "int32", False, False),
        ("int8", "int32", False, True),
        ("int8", "int32", True, True),
        ("uint8", "uint32", False, True),
        ("float16", "float32", False, True),
        ("float16", "float32", True, True),
    ],
)
@pytest.mark.parametrize(("step", "params", "lines"), PRODUCTS)
def test_products_wrap_and_overflow_where_the_program_says(
    step: Any, params: str, lines: str, dtype: str, wide: str, first: bool, last: bool
) -> None:
    out = f', out_dtype="{wide}"'
    lines = lines.format(out if first else "", out if last else "")
    if first and lines.startswith("p ="):  # the other factor has that datatype, too
        lines = lines.replace("(x, ", "(z, ").replace(", x, ", ", z, ")
        lines = f'z = R.astype(x, "{wide}"); {lines}'
    mod = program(params, lines, dtype=dtype)
    largest = 40000 if dtype == "float16" else np.iinfo(dtype).max - 20
    args = []
    for param in params.split():
        name, sizes = param.split(":")
        args.append(np.full(list(map(int, sizes.split(","))), 1 if name == "x" else largest, dtype))
    with np.errstate(over="ignore"):
        before, after = (
            relaxpy.compile(m, target="reference")["main"](*args) for m in (mod, step(mod))
        )
    np.testing.assert_array_equal(after, before)
