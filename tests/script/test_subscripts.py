"""Subscripts of tensors in programs: what NumPy gives, or an error that says what to write."""

import random
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MisuseError, RuntimeCheckError
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax.frontend import nn
from relaxpy.script import from_source, relax as R, tir as T
from relaxpy.testing import available_targets
from tests.rows import whole_tables
from tests.script.marked import check_marks

PER_PROGRAM = 8
OPERATORS = {"relax.strided_slice", "relax.squeeze", "relax.take", "relax.expand_dims"}


def bound(rng: random.Random, size: int, name: str) -> str:
    """A bound of a slice, inside or outside, as a number or as an expression of the dimension."""
    choices = ["", str(rng.randint(-size - 2, size + 2))]
    if name:
        choices += [name, f"{name} - {rng.randint(1, size + 1)}", f"-{name}", f"{name} // 2"]
    return rng.choice(choices)


def drawn(rng: random.Random, shape: tuple[int, ...], names: list[str]) -> str:
    """The text of a subscript of a tensor, each of whose dimensions may have a name."""
    count = rng.randint(0, len(shape))
    takes = rng.random() < 0.3 and count > 0 and all(shape[:count])
    at_tensor = rng.randrange(count) if takes else None
    parts = []
    for axis in range(count):
        size, name = shape[axis], names[axis]
        if axis == at_tensor:
            parts.append(rng.choice(["i0", "i1", "i2", "[0, 0]"]))
        elif rng.random() < 0.4 and size and at_tensor is None:
            parts.append(
                str(rng.randint(-size, size - 1))
                if rng.random() < 0.8 or not name
                else f"{name} - 1"
            )
        else:
            step = rng.choice(["", ":", ":-1", ":2", ":-2", ":3"])
            parts.append(f"{bound(rng, size, name)}:{bound(rng, size, name)}{step}")
    for _ in range(rng.choice([0, 0, 1, 2])):
        parts.insert(rng.randint(0, len(parts)), "None")
    # Dots stand for the last axes, or for those in between where all others have a part.
    if rng.random() < 0.3:
        parts.append("...")
    return ", ".join(parts) or "..."


def last_axes(rng: random.Random, shape: tuple[int, ...]) -> str:
    """A subscript whose indices are those of the last axes."""
    count = rng.randint(1, len(shape))
    parts = [rng.choice(["0", "-1", ":1", "::-1", "None"]) if n else ":" for n in shape[-count:]]
    return ", ".join(["...", *parts])


@pytest.mark.parametrize("seed", range(18) if whole_tables() else range(6, 12))
def test_subscripts_give_what_numpy_gives(seed: int) -> None:
    rng = random.Random(seed)
    kind = ("known", "symbolic", "rank")[seed % 3]
    shape = tuple(rng.choice([0, 1, 2, 3, 4]) if seed > 8 else rng.randint(1, 4) for _ in range(3))
    names = [name if kind == "symbolic" and axis != 1 else "" for axis, name in enumerate("nmk")]
    declared = ", ".join(
        f'"{name}"' if name else str(n) for name, n in zip(names, shape, strict=True)
    )
    tensor = "ndim=3" if kind == "rank" else f"({declared})"
    texts = [drawn(rng, shape, names) for _ in range(PER_PROGRAM - 2)]
    texts += [last_axes(rng, shape) for _ in range(2)]
    lines = "\n".join(f"    y{k} = x[{text}]" for k, text in enumerate(texts))
    func = from_source(f"""
@R.function
def main(
    x: R.Tensor({tensor}, dtype="float32"),
    i0: R.Tensor((), "int64"),
    i1: R.Tensor(("p",), "int32"),
    i2: R.Tensor((2, "p"), "int64"),
):
    {"n, k = T.int64(), T.int64()" if kind == "symbolic" else ""}
{lines}
    return {", ".join(f"y{k}" for k in range(len(texts)))},
""")
    assert isinstance(func, rx.Function)
    calls = [node for node in walk(func) if isinstance(node, rx.Call)]
    assert {call.op.name for call in calls} <= OPERATORS
    assert_structural_equal(from_source(func.script()), func)
    x = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    values = {"x": x, "n": shape[0], "k": shape[2], "i0": np.array(0), "i1": np.zeros(2, "int32")}
    values["i2"] = np.array([[0, 0], [0, 0]])
    if min(shape, default=0) > 1:
        values |= {
            "i0": np.array(1),
            "i1": np.array([1, 0], "int32"),
            "i2": np.array([[1, 0], [0, 1]]),
        }
    expected = [eval(f"x[{text}]", {}, values) for text in texts]
    args = [values[name] for name in ("x", "i0", "i1", "i2")]
    for target in available_targets():
        results = relaxpy.compile(func, target)["main"](*args)
        for text, actual, array in zip(texts, results, expected, strict=True):
            assert actual.dtype == np.float32
            np.testing.assert_array_equal(
                actual, array, err_msg=f"x[{text}] of {tensor} on {target}"
            )


def test_shapes_are_known_where_they_can_be() -> None:
    @R.function
    def main(x: R.Tensor(("n", 4, 5), "float32"), i: R.Tensor((2, 3), "int64"), k: R.Prim("int64")):
        n = T.int64()
        a = x[0]
        b = x[:, 1:3, -1]
        c = x[..., None]
        d = x[:, i]
        e = x[::-1]
        f = x[:0]
        g = x[n - 1, None]
        h = x[k]
        return a, b, c, d, e, f, g, h

    assert [str(field) for field in main.struct_info.ret.fields] == [
        f'R.Tensor({shape}, dtype="float32")'
        for shape in (
            "(4, 5)",
            "(n, 2)",
            "(n, 4, 5, 1)",
            "(n, 2, 3, 5)",
            "(n, 4, 5)",
            "(0, 4, 5)",
            "(1, 4, 5)",
            "(4, 5)",
        )
    ]


def test_the_whole_tensor_needs_no_operator() -> None:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        y = x[:][...][()]
        return y

    assert not [node for node in walk(main) if isinstance(node, rx.Call)]


def test_scalars_that_are_known_at_run_time_are_bounds_and_indices() -> None:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), k: R.Prim("int64")):
        row = x[k]
        rows = x[k : k + 2]
        return row, rows

    x = np.arange(20, dtype="float32").reshape(5, 4)
    for target in available_targets():
        row, rows = relaxpy.compile(main, target)["main"](x, 2)
        np.testing.assert_array_equal(row, x[2])
        np.testing.assert_array_equal(rows, x[2:4])


@pytest.mark.parametrize("index", [3, -4])
def test_an_index_outside_of_a_symbolic_axis_is_an_error_at_run_time(index: int) -> None:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        return x[index]

    for target in available_targets():
        run = relaxpy.compile(main, target)["main"]
        assert run(np.zeros((5, 4), "float32")).shape == (4,)
        with pytest.raises(RuntimeCheckError, match="outside dimension 0 of buffer x"):
            run(np.zeros((3, 4), "float32"))


@pytest.mark.parametrize("index", [-1, 3])
def test_indices_of_a_tensor_count_from_the_start(index: int) -> None:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), i: R.Tensor(("m",), "int64")):
        return x[i]

    for target in available_targets():
        with pytest.raises(RuntimeCheckError, match=f"index {index} is outside dimension 0"):
            relaxpy.compile(main, target)["main"](np.zeros((3, 4), "float32"), np.array([0, index]))


def test_what_has_no_meaning_says_what_to_write() -> None:
    check_marks("""
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"),
            i: R.Tensor((2,), "int64"),
            mask: R.Tensor((4,), "bool"),
            k: R.Prim("int64"),
            s: R.Tensor((), "int64"),
            o: R.Object,
        ):
            a = x[:, 4]
            #     ^^^^ index 4 is outside of axis 1, which has size 4: the tensor is
            # ... R.Tensor((n, 4), dtype="float32")
            b = x[0, 0, 0]
            #     ^^^^^^^ a tensor of rank 2 cannot have 3 indices: it is
            # ... R.Tensor((n, 4), dtype="float32")
            c = x[1.5]
            #     ^^^ an index of a tensor is an integer, a slice, ..., None or a tensor
            # ... of integers, found 1.5
            # hint: R.take(x, indices, axis) reads at indices, R.where(mask, x, y) where
            # ... a mask is true
            d = x[:, mask]
            #        ^^^^ the number of elements that a mask selects is known only when the
            # ... program runs
            # hint: R.where(mask, x, y) takes the others from y; R.nonzero(mask) has the
            # ... indices of the elements that are true
            e = x[x]
            #     ^ an index holds integers, found R.Tensor((n, 4), dtype="float32")
            # hint: convert it: R.astype(i, "int64")
            f = x[i, i]
            #     ^^^^ a subscript has one index that is a tensor, found two
            # hint: R.index_tensor(x, (i, j)) reads at pairs of indices, x[i][:, j] rows
            # ... and columns
            g = x[0, None, i]
            #     ^^^^^^^^^^ an integer and a tensor, apart from each other, would move axes
            # ... to the front
            # hint: use two subscripts: x[:, :, i][0] instead of x[0, :, i]
            h = x[[True, False]]
            #     ^^^^^^^^^^^^^ a list of indices holds integers, found [True, False]
            # hint: R.where(mask, x, y) selects the elements where a mask is true
            j = x[[-1]]
            #     ^^^^ indices in a list count from 0, found [-1]
            # hint: a single index, or the bound of a slice, may count from the end
            l = x[[[1], [1, 2]]]
            #     ^^^^^^^^^^^^^ the lists in an index are of one length, found [[1], [1, 2]]
            m = x[::k]
            #       ^ the stride of a slice is an integer other than 0 that is written
            # ... here, found k
            p = x[:, ::0]
            #          ^ the stride of a slice is an integer other than 0 that is written
            # ... here, found 0
            q = x[1:s]
            #       ^ the bound of a slice is an integer or a scalar, found s
            # hint: R.dynamic_strided_slice(x, begin, end, strides) takes tensors; a number
            # ... that a program binds to a name is one: name it outside of the function
            r = x[1.5:]
            #     ^^^ the bound of a slice is an integer or a scalar, found 1.5
            t = x[..., ...]
            #     ^^^^^^^^ a subscript has one ellipsis, found two
            u = x[o]
            #     ^ an index of a tensor is an integer, a slice, ..., None or a tensor
            # ... of integers, found o
            # hint: R.take(x, indices, axis) reads at indices, R.where(mask, x, y) where
            # ... a mask is true
            return x
    """)


def test_tuples_and_other_values_are_indexed_as_before() -> None:
    @R.function
    def main(t: R.Tuple(R.Tensor((4, 5), "float32"), R.Tensor((3,), "float32"))):
        y = t[0][1, 2:]
        return y

    x = np.arange(20, dtype="float32").reshape(4, 5)
    np.testing.assert_array_equal(main((x, x[0, :3])), x[1, 2:])
    pair = relax.Var("t", relax.TupleStructInfo([relax.TensorStructInfo((2,), "float32")]))
    assert isinstance(pair[0], relax.TupleGetItem)
    with pytest.raises(MisuseError, match="projects a tuple and takes an integer"):
        pair[0:1]
    with pytest.raises(MisuseError, match="projects a tuple and takes an integer"):
        relax.Var("o", relax.ObjectStructInfo())[0:1]


def test_expressions_have_the_same_subscripts() -> None:
    n = T.Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((n, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(x[1:, -1][None]))
    call = x[:, -1]
    assert isinstance(call, relax.Call)
    assert str(call.struct_info) == 'R.Tensor((n,), dtype="float32")'
    values = np.arange(12, dtype="float32").reshape(3, 4)
    run = relaxpy.compile(builder.get())["main"]
    np.testing.assert_array_equal(run(values), values[1:, -1][None])
    with pytest.raises(MisuseError, match="index 4 is outside of axis 1"):
        x[:, 4]


def test_tensors_of_models_have_the_same_subscripts() -> None:
    class Picks(nn.Module):
        def forward(self, x: nn.Tensor, i: nn.Tensor) -> Any:
            return x[1, ::-1], x[:, i], x[...], x[-1:, None, 0]

    spec = {
        "forward": {"x": nn.spec.Tensor(["n", 4], "float32"), "i": nn.spec.Tensor([3], "int64")}
    }
    mod, _ = Picks().export_tvm(spec)
    x, i = np.arange(12, dtype="float32").reshape(3, 4), np.array([3, 0, 1])
    results = relaxpy.compile(mod)["forward"](x, i)
    for actual, expected in zip(results, (x[1, ::-1], x[:, i], x, x[-1:, None, 0]), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_an_array_outside_of_the_program_takes_dots_too() -> None:
    table = np.arange(6, dtype="float32").reshape(2, 3)

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        return R.add(x, R.const(table[..., 1]))

    np.testing.assert_array_equal(main(np.zeros(2, "float32")), table[:, 1])
