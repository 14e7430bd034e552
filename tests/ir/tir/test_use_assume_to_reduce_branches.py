"""Branches for padding: kernels compute the padded value where assumptions give it."""

from random import Random
from textwrap import indent
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.ir import assert_structural_equal
from relaxpy.script import from_source
from relaxpy.tir.transform import UseAssumeToReduceBranches

PAD = "vi == 3 and 4 <= vk or vj == 3 and 2 <= vl"
#: A tensor of 28 by 14 in tiles of 8 by 4: the last tiles of both axes are half padding.
TILED = """
@T.prim_func
def f(
    a: T.Buffer((4, 4, 8, 4), "{dtype}"),
    b: T.Buffer((4, 4, 8, 4), "{dtype}"),
    out: T.Buffer((4, 4, 8, 4), "{dtype}"),
):
    T.func_attr({{"op_pattern": {kind}, "tir.noalias": True}})
    for i, j, k, l in T.grid(4, 4, 8, 4):
        with T.block("a_assumptions"):
            vi, vj, vk, vl = T.axis.remap("SSSS", [i, j, k, l])
            T.assume(not ({pad}) or a[vi, vj, vk, vl] == T.{dtype}({fill}))
    for i, j, k, l in T.grid(4, 4, 8, 4):
        with T.block("b_assumptions"):
            vi, vj, vk, vl = T.axis.remap("SSSS", [i, j, k, l])
            T.assume(not ({pad}) or b[vi, vj, vk, vl] == T.{dtype}({fill}))
    for i, j, k, l in T.grid(4, 4, 8, 4):
        with T.block("compute"):
            vi, vj, vk, vl = T.axis.remap("SSSS", [i, j, k, l])
            out[vi, vj, vk, vl] = {value}
"""


def tiled(value: str, *, dtype: str = "uint8", kind: int = 0, fill: int = 0) -> IRModule:
    return IRModule(
        {"f": from_source(TILED.format(value=value, dtype=dtype, kind=kind, pad=PAD, fill=fill))}
    )


def padded(dtype: str, seed: int, fill: int = 0) -> Any:
    data = np.random.default_rng(seed).integers(1, 9, (4, 4, 8, 4)).astype(dtype)
    data[3, :, 4:], data[:, 3, :, 2:] = fill, fill
    return data


def agree(before: IRModule, after: IRModule, *args: Any) -> None:
    """Both modules store the same into the last argument of `f`, on every target."""
    results = []
    for mod in (before, after):
        for target in ("numpy", "reference"):
            out = np.full_like(args[-1], 99)
            relaxpy.compile(mod, target=target)["f"](*args[:-1], out)
            results.append(out)
    for result in results[1:]:
        np.testing.assert_array_equal(results[0], result)


A, B = "a[vi, vj, vk, vl]", "b[vi, vj, vk, vl]"


@pytest.mark.parametrize(("op", "dtype"), [("+", "float32"), ("-", "uint8"), ("*", "int32")])
@pytest.mark.parametrize("kind", [0, 1])
def test_sums_differences_and_products_of_padded_tiles(dtype: str, op: str, kind: int) -> None:
    value = f"{A} {op} {B}"
    before = tiled(f"T.if_then_else({PAD}, T.{dtype}(0), {value})", dtype=dtype, kind=kind)
    after = UseAssumeToReduceBranches()(before)
    assert_structural_equal(after, tiled(value, dtype=dtype, kind=kind))
    assert UseAssumeToReduceBranches()(after) is after
    if kind == 0:
        inputs = padded(dtype, 0), padded(dtype, 1)
        agree(before, after, *inputs, np.empty_like(inputs[0]))


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (f"T.if_then_else(not ({PAD}), {A} + {B}, T.int32(6))", f"{A} + {B}"),
        (f"T.if_then_else({PAD}, T.int32(4), T.max({A}, {B}) + 1)", f"T.max({A}, {B}) + 1"),
        (f"T.if_then_else({PAD}, {A}, {A} - {B} + 3)", f"{A} - {B} + 3"),
        (f"T.if_then_else({PAD}, T.int32(0), {A} // 4 % 7)", f"{A} // 4 % 7"),
    ],
)
def test_other_values_and_expressions(value: str, kept: str) -> None:
    before = tiled(value, dtype="int32", fill=3)
    after = UseAssumeToReduceBranches()(before)
    assert_structural_equal(after, tiled(kept, dtype="int32", fill=3))
    agree(before, after, padded("int32", 0, 3), padded("int32", 1, 3), padded("int32", 2))


@pytest.mark.parametrize(
    "value",
    [
        f"T.if_then_else({PAD}, T.int32(1), {A} + {B})",
        f"T.if_then_else({PAD} or vi == 2, T.int32(0), {A} + {B})",
        f"T.if_then_else({PAD} or {A} == 0, T.int32(0), {A} + {B})",
        f"T.if_then_else({PAD}, T.int32(0), {A} * b[vi, vj, vk, vl + 1])",
        f"T.if_then_else({PAD}, T.int32(0), {A} // {B})",
        f"T.if_then_else({PAD}, T.int32(0), {A}) + {B}",
        f"T.if_then_else({PAD}, T.int32(0), a[vi, vj, vk, (vl + 1) % 4])",
    ],
    ids=["value", "region", "data", "index", "divisor", "inside", "elsewhere"],
)
def test_branches_whose_sides_are_not_known_to_be_equal_stay(value: str) -> None:
    before = tiled(value, dtype="int32")
    assert UseAssumeToReduceBranches()(before) is before


@pytest.mark.parametrize("factor", ["out[vi, vj, vk, vl]", "T.float32(-1)", "T.float32(math.inf)"])
def test_a_product_of_floats_with_zero_may_be_another_value(factor: str) -> None:
    factor = factor.replace("math.inf", '"inf"')
    before = tiled(f"T.if_then_else({PAD}, T.float32(0), {A} * {factor})", dtype="float32")
    assert UseAssumeToReduceBranches()(before) is before


@pytest.mark.parametrize("kind", [2, 3, 4, 8])
def test_kernels_of_other_kinds_stay(kind: int) -> None:
    before = tiled(f"T.if_then_else({PAD}, T.uint8(0), {A} + {B})", kind=kind)
    assert UseAssumeToReduceBranches()(before) is before


VECTOR = """
@T.prim_func
def f(a: T.Buffer((16,), "int32"), out: T.Buffer((16,), "int32")):
    T.func_attr({{"op_pattern": 0, "tir.noalias": True}})
{assumption}
    for i in range(16):
        with T.block("compute"):
            vi = T.axis.spatial(16, i)
            out[vi] = {value}
"""
DOUBLE = "T.if_then_else(vi < 14, a[vi] * 2, 0)"
ZERO = "for i in range(16):\n    T.assume(i < 14 or a[i] == 0)"


def vector(assumption: str, value: str = DOUBLE) -> IRModule:
    indented = indent(assumption, "    ")
    text = VECTOR.format(assumption=indented, value=value)
    return IRModule({"f": from_source(text)})


@pytest.mark.parametrize(
    "assumption",
    [
        ZERO,
        "for i in range(16):\n    T.assume(0 == a[i] or i < 14)",
        "for i in range(14, 16):\n    T.assume(a[i] == 0)",
        "for i in range(16):\n    if i >= 14:\n        T.assume(a[i] == 0)",
        "for i in range(16):\n    if i < 14:\n        T.evaluate(0)\n    else:\n"
        "        T.assume(a[i] == 0)",
        "for i in range(16):\n    T.assume(i < 14 or a[i] == i - i)",
        "for u, i in T.grid(1, 16):\n    T.assume(u + i < 14 or (a[i] == 0 and a[i] > -1))",
        "T.assume(a[0] == 1)\n" + ZERO,
    ],
)
def test_forms_of_assumptions(assumption: str) -> None:
    before = vector(assumption)
    after = UseAssumeToReduceBranches()(before)
    assert_structural_equal(after, vector(assumption, "a[vi] * 2"))
    data = np.r_[1:15, 0, 0].astype("int32")
    agree(before, after, data, data)


@pytest.mark.parametrize(
    "assumption",
    [
        "T.evaluate(0)",
        "T.assume(a[14] == 0)",
        "for i in range(15):\n    T.assume(i < 14 or a[i] == 0)",
        "for i in range(16):\n    T.assume(i < 15 or a[i] == 0)",
        "for i in range(16):\n    T.assume(i < 14 or a[i] <= 0)",
        "for i in range(16):\n    T.assume(i < 14 or a[i] == 0 or out[i] == 0)",
        "for i in range(16):\n    T.assume(i < 14 or a[i] == out[i])",
        "for i in range(16):\n    T.assume(i < 14 or a[15 - i] == 0)",
        "for i, j in T.grid(16, 2):\n    T.assume(i + j < 15 or a[i] == 0)",
        "for i in range(16):\n    if out[i] == 0:\n        T.assume(i < 14 or a[i] == 0)",
        f"{ZERO}\na[15] = 3",
        "for i in range(a[0]):\n    T.assume(i < 14 or a[i] == 0)",
        f"{ZERO}\nassert a[0] == 1, ''",
        f"{ZERO}\nT.evaluate(T.call_packed('some', a[0]))",
    ],
)
def test_assumptions_that_do_not_give_the_value_change_nothing(assumption: str) -> None:
    before = vector(assumption)
    assert UseAssumeToReduceBranches()(before) is before


def test_loads_of_vectors_are_not_replaced() -> None:
    value = "T.if_then_else(3 <= i, T.broadcast(0, 4), a[T.ramp(i * 4, 1, 4)] * T.broadcast(2, 4))"
    text = vector(ZERO)["f"].script().partition("    for i in range(16):\n        with")[0]
    store = f"    for i in range(4):\n        out[T.ramp(i * 4, 1, 4)] = {value}\n"
    before = IRModule({"f": from_source(text + store)})
    assert UseAssumeToReduceBranches()(before) is before


def test_a_kernel_of_unknown_kind_stays_until_it_is_annotated() -> None:
    kernel = vector(ZERO)["f"].without_attr("op_pattern")
    before = IRModule({"f": kernel})
    assert UseAssumeToReduceBranches()(before) is before


def test_sizes_may_be_symbolic() -> None:
    text = """
@T.prim_func
def f(a_: T.handle, out_: T.handle):
    T.func_attr({{"op_pattern": 0, "tir.noalias": True}})
    n = T.int64()
    a = T.match_buffer(a_, (n, 4), "int32")
    out = T.match_buffer(out_, (n, 4), "int32")
    for i, j in T.grid(n, 4):
        T.assume(i * 4 + j < n * 4 - 3 or a[i, j] == 0)
    for i, j in T.grid(n, 4):
        out[i, j] = {}
"""
    branch = "T.if_then_else(n * 4 - 3 <= i * 4 + j, 0, -a[i, j])"
    before, expected = (IRModule({"f": from_source(text.format(v))}) for v in (branch, "-a[i, j]"))
    after = UseAssumeToReduceBranches()(before)
    assert_structural_equal(after, expected)
    data = np.r_[1:10, 0, 0, 0].astype("int32").reshape(3, 4)
    agree(before, after, data, data)


CONDITIONS = ("vi < {}", "vi >= {}", "vi % 4 == {}", "vi == {}", "(vi + {}) // 3 == 2", "vi != {}")


def region(random: Random) -> str:
    parts = [random.choice(CONDITIONS).format(random.randrange(16)) for _ in range(2)]
    return random.choice(["{0}", "not ({0})", "({0}) and ({1})", "({0}) or ({1})"]).format(*parts)


def test_random_kernels_store_the_same_values() -> None:
    random, changed = Random(0), 0
    for _ in range(150):
        known = region(random)
        branch = random.choice([known, known, f"not ({known})", region(random)])
        index = random.choice(["vi", "vi", "vi", "15 - vi", "(vi + 1) % 16"])
        sides = [f"a[{index}] * {random.randrange(3)} + 2", str(random.choice([2, 3, 4, 6]))]
        random.shuffle(sides)
        fill = random.randrange(3)
        assumption = f"for vi in range(16):\n    T.assume(not ({known}) or a[vi] == {fill})"
        before = vector(assumption, f"T.if_then_else({branch}, {', '.join(sides)})")
        after = UseAssumeToReduceBranches()(before)
        if after is before:
            continue
        changed += 1
        # The texts of conditions are Python, too.
        data = [fill if eval(known, {"vi": vi}) else vi + 5 for vi in range(16)]
        agree(before, after, np.array(data, "int32"), np.zeros(16, "int32"))
    assert changed > 20
