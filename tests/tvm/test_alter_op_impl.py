"""AlterOpImpl and OptimizeLayoutTransform: programs before and after, and their values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.errors import TransformError
from relaxpy.ir import assert_structural_equal, structural_hash
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.relax.transform import AlterOpImpl, OptimizeLayoutTransform
from relaxpy.script import tir as T
from relaxpy.tir import IndexMap
from tests.counting import calls
from tests.ir.passes.before_after import agree
from tests.ir.relax.texts import graph, pair

ROWS: Callable[..., Any] = lambda i: (i // 4, i % 4)  # noqa: E731


def only_used(mod: IRModule) -> IRModule:
    """The module without the kernels that `main` does not call."""
    found = mod.clone()
    used = {var.name_hint for var in relax.analysis.all_global_vars(mod["main"])}
    for var in list(mod.functions):
        if var.name_hint not in {*used, "main"}:
            del found[var]
    return found


def verify(step: AlterOpImpl, before: IRModule, expected: IRModule) -> IRModule:
    hash_before = structural_hash(before)
    after = step(before)
    assert_structural_equal(only_used(after), expected)
    assert structural_hash(before) == hash_before
    assert check_well_formed(after, normal_form=True) == []
    assert step(after) is after
    return after


def check_values(before: IRModule, after: IRModule, *shapes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    agree(before, after, *(rng.standard_normal(shape).astype("float32") for shape in shapes))


@T.prim_func(private=True)
def add_in_rows(
    a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32"), c: T.Buffer((4, 4), "float32")
):
    for i, j in T.grid(4, 4):
        c[i, j] = a[i, j] + b[i, j]


Add = graph("""
@kernel
def add(a: f32[16], b: f32[16], c: f32[16]):
    T.func_attr({"operator_name": "relax.add"})
    for i in range(16):
        c[i] = a[i] + b[i]

def main(x: f32[16], y: f32[16]):
    lv = R.call_tir(cls.add, (x, y), f32[16])
    gv = R.call_tir(cls.add, (lv, y), f32[16])
    return gv
""")

AddInRows, AddInRowsOnce = pair(
    """
@kernel
def relax_add_replacement(a: f32[4, 4], b: f32[4, 4], c: f32[4, 4]):
    T.func_attr({"operator_name": "relax.add"})
    for i, j in T.grid(4, 4):
        c[i, j] = a[i, j] + b[i, j]

def main(x: f32[16], y: f32[16]):
    x1 = R.layout_transform(x, lambda i: (i // 4, i % 4))
    y1 = R.layout_transform(y, lambda i: (i // 4, i % 4))
    lv1 = R.call_tir(cls.relax_add_replacement, (x1, y1), f32[4, 4])
-   lv = R.layout_transform(lv1, lambda i, j: (i * 4 + j,))
-   lv2 = R.layout_transform(lv, lambda i: (i // 4, i % 4))
-   y2 = R.layout_transform(y, lambda i: (i // 4, i % 4))
-   lv3 = R.call_tir(cls.relax_add_replacement, (lv2, y2), f32[4, 4])
+   lv3 = R.call_tir(cls.relax_add_replacement, (lv1, y1), f32[4, 4])
    gv = R.layout_transform(lv3, lambda i, j: (i * 4 + j,))
    return gv
""",
    graph,
)

IN_ROWS = AlterOpImpl({"relax.add": add_in_rows}, {"relax.add": [ROWS, ROWS, ROWS]})


def test_operands_and_results_are_transformed() -> None:
    after = verify(IN_ROWS, Add, AddInRows)
    check_values(Add, after, (16,), (16,))


def test_transforms_between_two_kernels_are_removed() -> None:
    optimized = OptimizeLayoutTransform()(AddInRows)
    assert_structural_equal(optimized, AddInRowsOnce)
    assert OptimizeLayoutTransform()(optimized) is optimized
    check_values(AddInRows, optimized, (16,), (16,))


def test_only_functions_with_removed_transforms_are_simplified() -> None:
    mod = graph("""
    def other(x: f32[16]):
        a = R.layout_transform(x, lambda i: (i // 4, i % 4))
        b = R.layout_transform(x, lambda i: (i // 4, i % 4))
        c = R.add(a, b)
        gv = c
        return gv

    def main(x: f32[16]):
        a = R.layout_transform(x, lambda i: (i // 4, i % 4))
        b = R.layout_transform(a, lambda i, j: (i * 4 + j,))
        c = R.add(b, x)
        gv = c
        return gv
    """)
    mod = relax.transform.Normalize()(mod)
    after = OptimizeLayoutTransform()(mod)
    assert after["other"] is mod["other"]
    [block] = after["main"].body.blocks  # type: ignore[union-attr]
    assert [binding.var.name_hint for binding in block.bindings] == ["gv"]
    check_values(mod, after, (16,))


def test_an_index_map_and_a_function_are_the_same() -> None:
    maps = [IndexMap.from_func(ROWS)] * 3
    assert_structural_equal(
        AlterOpImpl({"relax.add": add_in_rows}, {"relax.add": maps})(Add), IN_ROWS(Add)
    )


def test_without_transforms_only_the_kernel_is_another() -> None:
    @T.prim_func(private=True)
    def backwards(
        a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32"), c: T.Buffer((16,), "float32")
    ):
        for i in range(16):
            c[15 - i] = a[15 - i] + b[15 - i]

    after = AlterOpImpl({"relax.add": backwards}, {"relax.add": None})(Add)
    assert "layout_transform" not in after.script()
    assert "relax_add_replacement" in after.functions_by_name
    check_values(Add, after, (16,), (16,))


def test_only_the_transformed_buffers_change() -> None:
    @T.prim_func(private=True)
    def mixed(
        a: T.Buffer((4, 4), "float32"), b: T.Buffer((16,), "float32"), c: T.Buffer((16,), "float32")
    ):
        for i, j in T.grid(4, 4):
            c[i * 4 + j] = a[i, j] + b[i * 4 + j]

    after = AlterOpImpl({"relax.add": mixed}, {"relax.add": [ROWS, None, None]})(Add)
    assert after.script().count("R.layout_transform(") == 2
    check_values(Add, after, (16,), (16,))


@pytest.mark.parametrize("rows", [ROWS, (IndexMap.from_func(ROWS), [1])])
def test_axis_separators_are_passed_on(rows: Any) -> None:
    step = AlterOpImpl(
        {"relax.add": add_in_rows},
        {"relax.add": [rows] * 3},
        {"relax.add": [[1], [1], []]},
        {"relax.add": [[], [], [1]]},
    )
    transforms = [
        (call.attrs["axis_separators"], call.attrs["input_axis_separators"])
        for block in step(Add)["main"].body.blocks  # type: ignore[union-attr]
        for binding in block.bindings
        if (call := binding.value).op == relaxpy.ir.Op.get("relax.layout_transform")
    ]
    assert transforms == [((1,), None), ((1,), None), (None, (1,))] * 2


Padded = graph("""
@kernel
def relu(a: f32[14], b: f32[14]):
    T.func_attr({"operator_name": "relax.relu"})
    for i in range(14):
        b[i] = T.max(a[i], T.float32(0))

def main(x: f32[14]):
    lv = R.call_tir(cls.relu, (x,), f32[14])
    gv = R.call_tir(cls.relu, (lv,), f32[14])
    return gv
""")


@T.prim_func(private=True)
def relu_in_rows(a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32")):
    for i, j in T.grid(4, 4):
        b[i, j] = T.max(a[i, j], T.float32(0))


RELU_IN_ROWS = AlterOpImpl({"relax.relu": relu_in_rows}, {"relax.relu": [ROWS, ROWS]})


def test_padding_is_removed_by_a_kernel() -> None:
    after = RELU_IN_ROWS(Padded)
    assert after["remove_pad"].attrs["operator_name"] == "remove_pad"
    assert "global_symbol" not in after["remove_pad"].attrs
    assert after.script().count(".remove_pad, (") == 2
    assert check_well_formed(after, normal_form=True) == []
    check_values(Padded, after, (14,))
    optimized = OptimizeLayoutTransform()(after)
    assert optimized.script().count(".remove_pad, (") == 1
    assert optimized.script().count("R.layout_transform(") == 2
    check_values(Padded, optimized, (14,))


def test_padding_of_another_value_is_not_removed() -> None:
    text = """
    @kernel
    def remove_pad(var_input: T.handle, var_output: T.handle):
        T.func_attr({"operator_name": "remove_pad", "tir.noalias": True})
        p0, i0 = T.int64(), T.int64()
        input = T.match_buffer(var_input, (p0,))
        output = T.match_buffer(var_output, (i0,))
        for i in range(i0):
            output[i] = input[i]

    def main(x: f32[4, 4]):
        flat = R.layout_transform(x, lambda i, j: (i * 4 + j,))
        short = R.call_tir(cls.remove_pad, (flat,), f32[14])
        gv = R.layout_transform(short, lambda i: (i // 4, i % 4), pad_value=T.float32(1))
        return gv
    """
    mod = graph(text)
    assert OptimizeLayoutTransform()(mod) is mod
    without = graph(text.replace(", pad_value=T.float32(1)", ""))
    assert "layout_transform" not in OptimizeLayoutTransform()(without)["main"].script()


Both = graph("""
@kernel
def both(a: f32[16], b: f32[16], c: f32[16]):
    T.func_attr({"operator_name": "test.both"})
    for i in range(16):
        b[i] = a[i] + T.float32(1)
        c[i] = a[i] * T.float32(2)

def main(x: f32[16]):
    out = f32[16]
    gv = R.call_tir(cls.both, (x,), [out, out])
    return gv
""")

BothInRows = graph("""
@kernel
def test_both_replacement(a: f32[4, 4], b: f32[4, 4], c: f32[4, 4]):
    T.func_attr({"operator_name": "test.both"})
    for i, j in T.grid(4, 4):
        b[i, j] = a[i, j] + T.float32(1)
        c[i, j] = a[i, j] * T.float32(2)

def main(x: f32[16]):
    x1 = R.layout_transform(x, lambda i: (i // 4, i % 4))
    out = f32[4, 4]
    lv = R.call_tir(cls.test_both_replacement, (x1,), [out, out])
    lv1 = lv[0]
    lv2 = R.layout_transform(lv1, lambda i, j: (i * 4 + j,))
    lv3 = lv[1]
    lv4 = R.layout_transform(lv3, lambda i, j: (i * 4 + j,))
    gv = (lv2, lv4)
    return gv
""")


@T.prim_func(private=True)
def both_in_rows(
    a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32"), c: T.Buffer((4, 4), "float32")
):
    for i, j in T.grid(4, 4):
        b[i, j] = a[i, j] + T.float32(1)
        c[i, j] = a[i, j] * T.float32(2)


def test_each_output_is_transformed() -> None:
    step = AlterOpImpl({"test.both": both_in_rows}, {"test.both": [ROWS] * 3})
    check_values(Both, verify(step, Both, BothInRows), (16,))


def test_bindings_outside_of_dataflow_blocks_are_altered() -> None:
    mod = relax.transform.ToNonDataflow()(Add)
    after = IN_ROWS(mod)
    assert after.script().count("R.layout_transform(") == 6
    assert check_well_formed(after, normal_form=True) == []
    check_values(mod, after, (16,), (16,))


def test_other_operators_stay() -> None:
    for step in (AlterOpImpl({}, {}), AlterOpImpl({"relax.subtract": add_in_rows})):
        assert step(Add) is Add
    assert OptimizeLayoutTransform()(Add) is Add


@T.prim_func(private=True)
def negative(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
    for i in range(16):
        b[i] = -a[i]


@pytest.mark.parametrize(
    ("func", "maps", "message"),
    [
        (
            negative,
            None,
            "AlterOpImpl, relax.add: the new PrimFunc has 2 parameters, that of the call of lv "
            "has 3",
        ),
        (
            add_in_rows,
            [ROWS],
            "relax.add: there is one transform for each of 3 parameters, or none, found 1",
        ),
        (
            add_in_rows,
            [lambda i, j: (j, i)] * 3,
            "relax.add: lv: relax.layout_transform: index_map takes 2 indices, x is",
        ),
        (add_in_rows, [None, None, lambda i, j: (j, i)], "lv: the map takes 2 sizes, found 1"),
        (add_in_rows, [None, None, lambda i: (i // 2,)], "lv: .* cannot be inverted"),
    ],
)
def test_a_replacement_that_does_not_fit_is_refused(func, maps, message) -> None:
    with pytest.raises(TransformError, match=message):
        AlterOpImpl({"relax.add": func}, {"relax.add": maps})(Add)


def transforms(first: str, second: str, shape: str = "n, 8") -> IRModule:
    return graph(f"""
    def main(x: f32[{shape}]):
        lv = R.layout_transform(x, {first})
        lv1 = R.layout_transform(lv, {second})
        gv = R.exp(lv1)
        return gv
    """)


@pytest.mark.parametrize(
    ("first", "second", "shape"),
    [
        ("lambda i, j: (j, i)", "lambda i, j: (j, i)", "n, 8"),
        ("lambda i, j: (i, j // 4, j % 4)", "lambda i, j, k: (i, j * 4 + k)", "n, 8"),
        ("lambda i, j: (i * 8 + j,)", "lambda i: (i // 8, i % 8)", "n, 8"),
        ("lambda i, j: (i, j)", "lambda i, j: (i, j)", "3, 8"),
    ],
)
def test_inverse_transforms_are_removed(first: str, second: str, shape: str) -> None:
    after = OptimizeLayoutTransform()(transforms(first, second, shape))
    assert "layout_transform" not in after.script()
    assert OptimizeLayoutTransform()(after) is after


@pytest.mark.parametrize(
    ("first", "second", "shape"),
    [
        ("lambda i, j: (j, i)", "lambda i, j: (i, j)", "8, 8"),
        ("lambda i, j: (i, 7 - j)", "lambda i, j: (i, j)", "3, 8"),
        ("lambda i, j: (i, j // 4, j % 4)", "lambda i, j, k: (i, j * 4 + k)", "3, 7"),
        ("lambda i, j: (i, j // 4, j % 4)", "lambda i, j, k: (i, k * 2 + j)", "3, 8"),
        ("lambda i, j: (i, j // 4, j % 4)", "lambda i, j, k: (i, j * 4 + k)", "n, m"),
    ],
)
def test_other_transforms_stay(first: str, second: str, shape: str) -> None:
    mod = transforms(first, second, shape)
    assert OptimizeLayoutTransform()(mod) is mod


def chain(count: int) -> IRModule:
    sums = "".join(
        f"    lv{k + 1} = R.call_tir(cls.add, (lv{k}, x), f32[16])\n" for k in range(count)
    )
    return graph(f"""
@kernel
def add(a: f32[16], b: f32[16], c: f32[16]):
    T.func_attr({{"operator_name": "relax.add"}})
    for i in range(16):
        c[i] = a[i] + b[i]

def main(x: f32[16]):
    lv0 = R.exp(x)
{sums}    return lv{count}
""")


def test_work_grows_with_the_program() -> None:
    OptimizeLayoutTransform()(IN_ROWS(chain(3)))
    works = []
    for count in (10, 40):
        mod = chain(count)
        works.append(calls(lambda mod=mod: OptimizeLayoutTransform()(IN_ROWS(mod))))  # type: ignore[misc]
    assert works[1] < 4.4 * works[0]
