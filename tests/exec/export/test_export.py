"""Exported programs compute the bits of native code, within the memory that callers give them."""

import ctypes
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import CompileError, MisuseError, RuntimeCheckError
from relaxpy.exec.inspect import live_memory
from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.runtime.scalar import ScalarEvaluator
from relaxpy.exec.runtime.values import Value
from relaxpy.ir.arith.algebra.affine import IndexPoly
from relaxpy.ir.core.traverse import walk
from relaxpy.script import from_source
from tests.exec.export.library import Library, StatusError, serial_threads
from tests.exec.native import same_bits
from tests.exec.program import test_loops as loops
from tests.ir.relax.texts import module as module_of
from tests.rows import sections

COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(
    COMPILER is None or sys.platform != "linux", reason="there is no C compiler, or no guard pages"
)
Array = np.ndarray[Any, Any]
HEAD = same_bits.HEAD


def flat(value: Any) -> list[Array]:
    """The arrays of a value of any nesting."""
    if isinstance(value, tuple):
        return [array for field in value for array in flat(field)]
    return [np.asarray(value)] if isinstance(value, np.ndarray | np.generic) else []


def assert_same(found: Any, expected: Any) -> None:
    found, expected = flat(found), flat(expected)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()


def library(executable: relaxpy.Executable, folder: Path, **options: Any) -> Library:
    return Library(executable, folder, **options)


#: Functions of `Program`, whose `main` is called with arrays that `arguments` draws.
PROGRAMS = sections("""
--- elementwise of all sizes
def main(x: R.Tensor(("n", "m"), "float32"), y: R.Tensor(("m",), "float32")):
    return R.add(R.exp(R.sin(x)), R.log(R.abs(y)))
--- a tuple in and out, and names of results
def main(x: R.Tuple(R.Tensor(("n",), "float32"), R.Tensor((3, 4), "float64"))):
    a = R.tanh(x[0])
    b = R.sqrt(R.abs(x[1]))
    return (b, (a, b, x[0]))
--- sizes that are computed
def main(x: R.Tensor(("n", 3), "float32"), y: R.Tensor(("m", 3), "float32")):
    return R.strided_slice(R.concat([x, y, x]), axes=[0], begin=[1], end=[100000], strides=[2])
--- a shape as a tensor
def main(x: R.Tensor(("n", "m"), "int8")):
    return R.shape_to_tensor(R.shape_of(x))
--- a shape as a parameter
def main(x: R.Tensor(("n",), "float32"), s: R.Shape(["k", "n"])):
    n = T.int64()
    k = T.int64()
    return R.add(x, R.full(R.shape([k, n]), R.const(2.5, "float32"), "float32"))
--- a shape as an operand
def main(x: R.Tensor(("n",), "float32"), s: R.Shape(["k", "n"])):
    return R.add(x, R.full(s, R.const(2.5, "float32"), "float32"))
--- a function that calls itself
def main(
    x: R.Tensor(("n", 4), "float32"), i: R.Tensor((), "int64")
) -> R.Tensor(("n", 4), "float32"):
    n = T.int64()
    done = R.less_equal(i, R.const(0, "int64"))
    if done:
        y = x
    else:
        a = R.nn.softmax(R.multiply(x, R.sum(R.exp(x), axis=[1], keepdims=True)))
        y: R.Tensor((n, 4), "float32") = Program.main(a, R.subtract(i, R.const(1, "int64")))
    return y
--- local functions that are called twice
def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("m", 4), "float32")):
    @R.function
    def shifted(a: R.Tensor(("k", 4), "float32")) -> R.Tensor(("k", 4), "float32"):
        k = T.int64()
        b = R.add(a, R.sum(x))
        return R.exp(R.negative(R.abs(b)))
    a = shifted(x)
    b = shifted(y)
    return (a, R.concat([b, a]), shifted(b))
--- local functions of tuples and shapes
def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("m", 4), "float32")):
    n = T.int64()
    m = T.int64()
    @R.function
    def sums(
        t: R.Tuple(R.Tensor(("k", 4), "float32"), R.Tensor((4,), "float32")), s: R.Shape(["j", 4])
    ) -> R.Tuple(R.Tensor(("k", 4), "float32"), R.Tensor(("j", 4), "float32")):
        k = T.int64()
        j = T.int64()
        whole = R.exp(R.negative(R.abs(R.add(t[0], t[1]))))
        return (whole, R.broadcast_to(t[1], R.shape([j, 4])))
    a = sums((x, R.sum(y, axis=[0])), R.shape([m + 1, 4]))
    b = sums((a[1], R.sum(a[0], axis=[0])), R.shape([2 * n, 4]))
    return (a, b)
--- parameters of which only the rank is known
def main(x: R.Tensor(ndim=2, dtype="float32"), y: R.Tensor(ndim=2, dtype="float32")):
    a = R.nn.softmax(R.exp(x))
    return (R.sum(a, axis=[0]), R.permute_dims(y), R.add(a, a))
--- parameters and constants as results
def main(x: R.Tensor(("n",), "float32"), y: R.Tensor((), "int64")):
    return (x, R.const([1.5, 2.5], "float32"), y, R.add(y, y), x)
--- tensors without elements
def main(x: R.Tensor((0, 4), "float32"), y: R.Tensor(("n", 0), "int8")):
    return (R.exp(x), R.sum(x), R.add(y, y), R.sum(x, axis=[0]))
--- one result twice
def main(x: R.Tensor(("n",), "float32")):
    y = R.exp(x)
    return (y, R.negative(y), y)
--- float64 and large integers
def main(x: R.Tensor(("n",), "float64"), y: R.Tensor(("n",), "uint64")):
    return (R.sqrt(R.abs(x)), R.add(y, R.const(1 << 40, "uint64")), R.cos(R.multiply(x, x)))
--- convolutions and pools
def main(x: R.Tensor(("n", 3, 17, 15), "float32"), w: R.Tensor((8, 3, 3, 3), "float32")):
    a = R.nn.relu(R.nn.conv2d(x, w, padding=(1, 1)))
    return R.nn.avg_pool2d(R.nn.max_pool2d(a, (2, 2), (2, 2)), (2, 2))
--- attention over symbolic lengths
def main(q: R.Tensor((1, "n", 2, 16), "float32"), k: R.Tensor((1, "m", 2, 16), "float32")):
    return R.nn.attention(q, k, k)
--- quantized weights
def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 48), "int8")):
    s = R.const(0.03, "float32")
    return R.matmul(x, R.multiply(R.astype(w, "float32"), s))
--- bfloat16
def main(x: R.Tensor(("n", 40), "bfloat16"), w: R.Tensor((40, 24), "bfloat16")):
    return R.nn.gelu(R.matmul(x, w))
--- float16
def main(x: R.Tensor(("n", 40), "float16"), w: R.Tensor((40, 24), "float16")):
    return R.nn.softmax(R.matmul(x, w))
--- int8
def main(x: R.Tensor(("n", 40), "int8"), w: R.Tensor((40, 33), "int8")):
    return R.matmul(x, w, out_dtype="int32")
--- integers and bools
def main(x: R.Tensor(("n",), "int32"), y: R.Tensor(("n",), "uint8")):
    return (R.greater(x, R.astype(y, "int32")), R.right_shift(x, R.const(2, "int32")), R.cumsum(x))
--- a batch of products
def main(x: R.Tensor(("n", 96), "float32"), w: R.Tensor((96, 160), "float32")):
    return R.nn.relu(R.matmul(x, w))
--- a normalization
def main(x: R.Tensor(("n", 517), "float32"), g: R.Tensor((517,), "float32")):
    return R.nn.layer_norm(x, g, g, axes=[-1])
--- a branch
def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
    if c:
        y = R.exp(x)
    else:
        y = R.multiply(x, x)
    return R.add(y, x)
--- a call of another function
def main(x: R.Tensor(("n",), "float32")):
    y = Program.twice(x)
    return R.add(y, Program.twice(y))
@R.function(private=True)
def twice(x: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
    return R.add(x, x)
--- parameters as results of branches
def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
    if c:
        a = (x, R.exp(y), x)
    else:
        b = R.sin(x)
        a = (b, y, b)
    return a
--- functions that call each other
def main(
    x: R.Tensor(("n", 4), "float32"), i: R.Tensor((), "int64")
) -> R.Tensor(("n", 4), "float32"):
    n = T.int64()
    done = R.less_equal(i, R.const(0, "int64"))
    if done:
        y = x
    else:
        y: R.Tensor((n, 4), "float32") = Program.other(R.exp(x), R.subtract(i, R.const(1, "int64")))
    return y
@R.function
def other(
    x: R.Tensor(("m", 4), "float32"), i: R.Tensor((), "int64")
) -> R.Tensor(("m", 4), "float32"):
    m = T.int64()
    done = R.less(i, R.const(1, "int64"))
    if done:
        y = R.negative(x)
    else:
        y: R.Tensor((m, 4), "float32") = Program.main(R.sin(x), R.subtract(i, R.const(1, "int64")))
    return y
--- functions that call themselves and each other, and then compute something
def main(
    x: R.Tensor(("n", 4), "float32"), i: R.Tensor((), "int64")
) -> R.Tuple(R.Tensor(("n", 4), "float32"), R.Tensor((), "int64")):
    R.func_attr({"max_depth": 5})
    n = T.int64()
    done = R.less_equal(i, R.const(0, "int64"))
    if done:
        y = (x, i)
    else:
        j = R.subtract(i, R.const(1, "int64"))
        a: R.Tuple(R.Tensor((n, 4), "float32"), R.Tensor((), "int64")) = Program.main(R.exp(x), j)
        b: R.Tensor((n, 4), "float32") = Program.other(a[0], j)
        y = (R.add(R.sin(b), R.multiply(x, a[0])), R.add(a[1], i))
    return y
@R.function(private=True)
def other(
    x: R.Tensor(("m", 4), "float32"), i: R.Tensor((), "int64")
) -> R.Tensor(("m", 4), "float32"):
    R.func_attr({"max_depth": 4})
    m = T.int64()
    done = R.less(i, R.const(1, "int64"))
    if done:
        y = R.negative(R.abs(x))
    else:
        j = R.subtract(i, R.const(1, "int64"))
        a: R.Tensor((m, 4), "float32") = Program.other(R.tanh(x), j)
        b: R.Tuple(R.Tensor((m, 4), "float32"), R.Tensor((), "int64")) = Program.main(a, j)
        y = R.subtract(b[0], a)
    return y
--- a local function whose calls get halves
def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((4,), "float32")):
    @R.function
    def sums(a: R.Tensor(("k", 4), "float32")) -> R.Tensor(("k", 4), "float32"):
        R.func_attr({"max_depth": 9})
        k = T.int64()
        short = R.less(R.max(R.shape_to_tensor(R.shape([k]))), R.const(2, "int64"))
        if short:
            s = R.multiply(a, y)
        else:
            h = R.strided_slice(a, [0], [0], [k // 2])
            h = R.match_cast(h, R.Tensor((k // 2, 4), "float32"))
            t = R.strided_slice(a, [0], [k // 2], [k])
            t = R.match_cast(t, R.Tensor((k - k // 2, 4), "float32"))
            b: R.Tensor((k // 2, 4), "float32") = sums(h)
            c: R.Tensor((k - k // 2, 4), "float32") = sums(t)
            s = R.match_cast(R.concat([b, R.add(c, R.sum(h))]), R.Tensor((k, 4), "float32"))
        return s
    return (sums(x), sums(R.exp(R.concat([x, x]))))
--- gathered rows
def main(x: R.Tensor(("n", 5), "float32"), i: R.Tensor(("k",), "int64")):
    return R.take(x, i, axis=0, mode="clip")
--- sorted rows
def main(x: R.Tensor(("n", 7), "float32")):
    return R.sort(x, axis=1)
--- sorted rows of unknown length
def main(x: R.Tensor(("n", "m"), "float32"), y: R.Tensor((300,), "int8")):
    a = R.argsort(x, axis=1, descending=True, dtype="int64")
    b = R.sort(R.negative(x), axis=0)
    z = R.round(x)
    zeros = (R.sort(z, axis=0), R.sort(z, descending=True), R.unique(z),
             R.unique(z, return_inverse=True), R.unique(z, return_counts=True))
    return (a, b, zeros, R.topk(x, k=6, axis=1), R.topk(y, k=0, axis=0, largest=False))
--- powers
def main(x: R.Tensor(("n", 7), "float32")):
    return R.power(R.abs(x), R.const(1.7, "float32"))
--- places of elements
def main(x: R.Tensor(("n", "m"), "float32"), y: R.Tensor((), "int64"), z: R.Tensor((3,), "bool")):
    n = T.int64()
    m = T.int64()
    k = T.int64()
    positive = R.greater(x, R.const(0, "float32"))
    places = R.match_cast(R.nonzero(positive), R.Tensor((2, k), "int64"))
    rows = R.strided_slice(places, axes=[0], begin=[0], end=[1])
    chosen = R.take(x, R.reshape(rows, (k,)), axis=0)
    return (places, R.sum(chosen, axis=[0]), R.nonzero(y), R.nonzero(z), chosen, places)
--- distinct elements
def main(x: R.Tensor(("n", "m"), "int8"), y: R.Tensor(("k",), "float32")):
    a = R.unique(x, return_index=True, return_inverse=True, return_counts=True)
    b = R.unique(R.round(y), sorted=False, return_index=True, return_inverse=True,
                 return_counts=True)
    return (a, R.add(b[0], b[0]), b, R.unique(R.astype(a[3], "uint16")))
--- slices whose bounds are data
def main(x: R.Tensor(("n", 7), "float32"), i: R.Tensor((2,), "int64"), j: R.Tensor((2,), "int64")):
    one = R.const([1, 2], "int64")
    a = R.dynamic_strided_slice(x, i, R.add(R.add(i, j), one), one)
    b = R.dynamic_strided_slice(R.exp(a), R.const([99, -1], "int64"), R.const([-99, -99], "int64"),
                                R.subtract(R.const([-2, -2], "int64"), j))
    return (R.sum(a, axis=[1]), b)
--- sizes that depend on data in a branch and a loop
def main(
    x: R.Tensor(("n", 4), "float32"), i: R.Tensor((), "int64"), c: R.Tensor((), "bool")
) -> R.Tensor(("n", 4), "float32"):
    n = T.int64()
    done = R.less_equal(i, R.const(0, "int64"))
    if done:
        if c:
            a: R.Tensor((n, 4), "float32") = R.add(x, R.max(R.unique(x)))
        else:
            a: R.Tensor((n, 4), "float32") = R.add(x, x)
        y = a
    else:
        a = R.unique(R.round(R.reshape(x, (n * 4,))), return_counts=True)
        b = R.multiply(x, R.sum(R.multiply(a[0], R.astype(a[1], "float32"))))
        y: R.Tensor((n, 4), "float32") = Program.main(b, R.subtract(i, R.const(1, "int64")), c)
    return y
--- sizes that depend on branches
def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool"), i: R.Tensor((), "int64")):
    d = R.less(i, R.const(2, "int64"))
    a = R.unique(R.round(x))
    if c:
        if d:
            b = (a, R.concat([a, x]))
        else:
            b = (x, R.unique(R.concat([a, a])))
        y = (b[1], b[0])
    else:
        y = (R.sin(x), x)
    return (y, R.add(y[0], R.const(1.0, "float32")), R.sum(y[1]), R.concat([y[0], y[1]]))
--- sizes that depend on the end of a loop
def main(x: R.Tensor(("n",), "float32"), i: R.Tensor((), "int64")):
    n = T.int64()
    @R.function
    def loop(
        a: R.Tensor((n,), "float32"), k: R.Tensor((), "int64")
    ) -> R.Tensor(ndim=1, dtype="float32"):
        done = R.less(k, R.const(1, "int64"))
        if done:
            small = R.less(R.sum(a), R.const(0.5, "float32"))
            if small:
                r = R.unique(R.round(a))
            else:
                r = R.concat([a, x])
            y = r
        else:
            b = R.multiply(a, R.const(-1.5, "float32"))
            y: R.Tensor(ndim=1, dtype="float32") = loop(b, R.subtract(k, R.const(1, "int64")))
        return y
    y = loop(x, i)
    return (R.exp(R.negative(R.abs(y))), y)
--- a declared size
def main(x: R.Tensor(("n",), "float32"), i: R.Tensor((2,), "int64")):
    R.func_attr({"tir_var_upper_bound": {"rows": 4, "columns": 4}})
    n = T.int64()
    rows = T.int64()
    columns = T.int64()
    s = R.match_cast(R.tensor_to_shape(i), R.Shape([rows, columns]))
    return R.add(R.broadcast_to(R.sum(x), R.shape([rows, columns + 1])), R.const(1.5, "float32"))
--- an asserted condition
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")):
    ok = R.less(R.min(x), R.const(100.0, "float32"))
    _ = R.assert_op(ok, format="too large")
    return R.negative(x)
--- an asserted condition on sizes
@R.function(pure=False)
def main(x: R.Tensor(("n", "m"), "float32")):
    n = T.int64()
    m = T.int64()
    _ = R.assert_op(R.prim_value(T.Or(n < m, T.Not(n % 2 == 0))), [R.prim_value(n)], format="{}")
    return R.negative(x)
""")
INTEGERS = {"i": 4}
"""The exclusive upper bounds of parameters that are integers."""
SIZES = {"n": 5, "m": 9, "k": 4}


def program(name: str) -> relaxpy.IRModule:
    body = "".join(f"    {line}\n" for line in PROGRAMS[name].strip().splitlines())
    first = "" if body.lstrip().startswith("@") else "    @R.function\n"
    return from_source(f"{HEAD}@I.ir_module\nclass Program:\n{first}{body}")


def drawn(sinfo: relax.StructInfo, name: str, sizes: dict[str, int]) -> Value:
    """A random value; shapes are of the named sizes."""
    if isinstance(sinfo, relax.TupleStructInfo):
        return tuple(drawn(field, f"{name}{n}", sizes) for n, field in enumerate(sinfo.fields))
    size = lambda s: sizes[str(s)] if isinstance(s, relaxpy.tir.Var) else int(s)  # noqa: E731
    if isinstance(sinfo, relax.ShapeStructInfo):
        return relaxpy.runtime.ShapeTuple(list(map(size, sinfo.values)))
    known = sinfo.shape is not None
    shape = tuple(map(size, sinfo.shape.values)) if known else tuple(sizes.values())[: sinfo.ndim]
    draw = np.random.default_rng(len(name) + sum(shape))
    if name in INTEGERS:
        return draw.integers(0, INTEGERS[name], shape)
    dtype = relaxpy.ir.DataType(sinfo.dtype).numpy() if hasattr(relaxpy, "ir") else sinfo.dtype
    if np.dtype(dtype).kind in "iub":
        return draw.integers(0, 2 if sinfo.dtype == "bool" else 100, shape).astype(dtype)
    return np.asarray(draw.standard_normal(shape)).astype(dtype)


def arguments(mod: relaxpy.IRModule, sizes: dict[str, int] = SIZES) -> list[Value]:
    return [drawn(p.struct_info, p.name_hint, sizes) for p in mod["main"].params]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_have_the_bits_of_native_code(name: str, tmp_path: Path) -> None:
    mod = program(name)
    executable = relaxpy.compile(mod, "native")
    call = library(executable, tmp_path)["main"]
    for sizes in (SIZES, {"n": 1, "m": 1, "k": 1}, {"n": 67, "m": 131, "k": 19}):
        values = arguments(mod, sizes)
        known = {n: sizes[n] for n in call.function.sizes if n in sizes}
        expected = executable["main"](*values)
        for at_end in (True, False):
            assert_same(call(*flat(tuple(values)), at_end=at_end, **known), expected)
        for offset in (1, 8, 63):
            found = call(*flat(tuple(values)), offset=offset, threads=serial_threads(3), **known)
            assert_same(found, expected)
    for sizes in (dict.fromkeys(SIZES, 0), *({**SIZES, n: 0} for n in SIZES)):
        values = arguments(mod, sizes)
        known = {n: sizes[n] for n in call.function.sizes if n in sizes}
        try:
            expected = executable["main"](*values)
        except RuntimeCheckError:
            with pytest.raises(StatusError):
                call(*flat(tuple(values)), **known)
        else:
            assert_same(call(*flat(tuple(values)), **known), expected)


def test_workspaces_have_what_kernels_pack_beyond_the_stack(tmp_path: Path) -> None:
    executable = relaxpy.compile(same_bits.module_of("packed weights"), "native")
    call = library(executable, tmp_path)["main"]
    for rows in (1, 7, 64, 65, 300):
        x = same_bits.numbers(rows, 96)
        for at_end in (True, False):
            assert_same(call(x, at_end=at_end, n=rows), executable["main"](x))


DATA = """
@I.ir_module
class Program:
    @R.function
    def declared(i: R.Tensor((1,), "int64")):
        R.func_attr({"tir_var_upper_bound": {"k": 6}})
        k = T.int64()
        _ = R.match_cast(R.tensor_to_shape(i), R.Shape([k]))
        return R.zeros(R.shape([k]), "float32")
    @R.function
    def sliced(x: R.Tensor(("n",), "float32"), i: R.Tensor((1,), "int64")):
        return R.dynamic_strided_slice(x, i, i, i)
    @R.function(pure=False)
    def asserted(x: R.Tensor(("n", "m"), "float32")):
        n = T.int64()
        m = T.int64()
        _ = R.assert_op(
            R.prim_value(T.Not(n > m + 1)), [R.prim_value(n), R.prim_value(m + 1)],
            format="{} rows, {} columns")
        return R.negative(x)
    @R.function
    def checked(x: R.Tensor(("n", 2), "int32")):
        n = T.int64()
        y = R.call_pure_packed(
            "relaxpy.check_elements", R.str("i"), x, R.prim_value(0), R.prim_value(n),
            sinfo_args=R.Tensor((n, 2), "int32"))
        return R.add(y, y)
"""


def test_sizes_that_depend_on_data_have_limits(tmp_path: Path) -> None:
    loaded = library(relaxpy.compile(from_source(HEAD + DATA), "native"), tmp_path)
    call = loaded["declared"]
    assert call.function.outputs[0].is_static is False
    for size in (0, 1, 6):
        assert_same(call(np.array([size])), np.zeros(size, "float32"))
    for size in (7, -1, 1 << 40):
        with pytest.raises(StatusError, match="k, a size that depends on data, is more than 6"):
            call(np.array([size]))
        assert call.failed == (size, 6)
    call = loaded["sliced"]
    with pytest.raises(StatusError, match="strides are other than 0"):
        call(np.zeros(3, "float32"), np.array([0]))
    x = np.arange(5, dtype="float32")
    low, high = np.iinfo("int64").min, np.iinfo("int64").max
    for n in (low, low + 1, -6, -5, -1, 1, 2, 5, 6, high):
        assert_same(call(x, np.array([n])), x[n:n:n])
    call = loaded["asserted"]
    assert_same(call(np.ones((3, 2), "float32")), -np.ones((3, 2), "float32"))
    with pytest.raises(StatusError, match=r"assertion failed: {} rows, {} columns"):
        call(np.ones((4, 2), "float32"))
    assert call.failed == (4, 3)
    call, elements = loaded["checked"], np.array([[0, 1], [2, 3], [0, 3]], "int32")
    assert_same(call(elements), 2 * elements)
    for wrong in (-1, 4):
        elements[2, 0] = wrong
        with pytest.raises(StatusError, match="i has an element that is not from 0 to n"):
            call(elements)


NESTED = """
@I.ir_module
class Program:
    @R.function
    def fibonacci(i: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        R.func_attr({"max_depth": 9})
        small = R.less(i, R.const(2, "int64"))
        if small:
            y = i
        else:
            a: R.Tensor((), "int64") = Program.fibonacci(R.subtract(i, R.const(1, "int64")))
            b: R.Tensor((), "int64") = Program.fibonacci(R.subtract(i, R.const(2, "int64")))
            y = R.add(a, b)
        return y
    @R.function
    def doubled(
        x: R.Tensor(("n",), "float32"), i: R.Tensor((), "int64")
    ) -> R.Tensor((), "float32"):
        R.func_attr({"max_depth": 9})
        done = R.less(i, R.const(1, "int64"))
        if done:
            y = R.sum(x)
        else:
            j = R.subtract(i, R.const(1, "int64"))
            a: R.Tensor((), "float32") = Program.doubled(R.concat([x, x]), j)
            y = R.negative(a)
        return y
    @R.function
    def bounded(
        x: R.Tensor(("n",), "float32"), i: R.Tensor((), "int64")
    ) -> R.Tensor((), "float32"):
        R.func_attr({"max_depth": 9, "tir_var_upper_bound": {"n": 8}})
        done = R.less(i, R.const(1, "int64"))
        if done:
            y = R.sum(x)
        else:
            y: R.Tensor((), "float32") = Program.bounded(
                R.concat([x, x]), R.subtract(i, R.const(1, "int64")))
        return y
"""


def test_nested_calls_have_limits(tmp_path: Path) -> None:
    loaded = library(relaxpy.compile(from_source(HEAD + NESTED), "native"), tmp_path)
    call = loaded["fibonacci"]
    for i, expected in enumerate([0, 1, 1, 2, 3, 5, 8, 13, 21, 34]):
        assert_same(call(np.array(i)), np.array(expected))
    with pytest.raises(StatusError, match="calls of fibonacci are nested more than 9 deep"):
        call(np.array(10))
    call, x = loaded["doubled"], np.arange(3, dtype="float32")
    assert_same(call(x, np.array(0)), x.sum())
    with pytest.raises(StatusError, match="a size that depends on data, is more than n"):
        call(x, np.array(2))
    assert call.failed == (6, 3)
    call = loaded["bounded"]
    assert_same(call(x[1:], np.array(2)), np.array(12, "float32"))
    for size, i in ((3, 2), (9, 0)):
        with pytest.raises(StatusError, match="a size that depends on data, is more than 8"):
            call(np.zeros(size, "float32"), np.array(i))


UNBOUNDED = """
@I.ir_module
class Program:
    @R.function
    def unbounded(i: R.Tensor((1,), "int64")):
        k = T.int64()
        _ = R.match_cast(R.tensor_to_shape(i), R.Shape([k]))
        return R.zeros(R.shape([k]), "float32")
    @R.function
    def rows(x: R.Tensor(("n", 4), "float32")):
        return R.unique(x, axis=0)
    @R.function
    def twice(x: R.Tensor((4,), "float32"), i: R.Tensor((), "int64")) -> R.Tensor((4,), "float32"):
        done = R.less_equal(i, R.const(0, "int64"))
        if done:
            y = x
        else:
            a: R.Tensor((4,), "float32") = Program.twice(x, R.subtract(i, R.const(1, "int64")))
            y = R.exp(R.add(a, x))
        return y
"""


def test_the_caller_of_export_declares_limits(tmp_path: Path) -> None:
    executable = relaxpy.compile(program("a declared size"), "native")
    with pytest.raises(MisuseError, match="the program has no size 'row'"):
        executable.export(tmp_path / "model.o", at_most={"row": 3})
    with pytest.raises(MisuseError, match="the largest value of rows is an integer from 0 on"):
        executable.export(tmp_path / "model.o", at_most={"rows": -1})
    _, header = executable.export(tmp_path / "model.o", at_most={"rows": 7})
    assert "with room for (7, 5)" in header.read_text()


@pytest.mark.parametrize("depth", ["", 'R.func_attr({"max_depth": 1001})'])
def test_what_has_no_limit_is_refused(depth: str, tmp_path: Path) -> None:
    text = UNBOUNDED.replace("        done = ", f"        {depth}\n        done = ")
    executable = relaxpy.compile(from_source(HEAD + text), "native")
    with pytest.raises(CompileError) as error:
        executable.export(tmp_path / "model.o")
    assert "unbounded: sizes depend on data: declare the largest value of k, " in str(error.value)
    assert "rows: it calls relax.unique" in str(error.value)
    assert "twice: twice calls itself, and not last: declare how many" in str(error.value)
    assert "1,000 or fewer" in str(error.value)


def test_calls_of_local_functions_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = relaxpy.compile(program("local functions that are called twice"), "native")
    monkeypatch.setattr("relaxpy.exec.program.graph.local_functions.MOST_BODIES", 1)
    with pytest.raises(CompileError, match="main: it calls local functions more than 1 times"):
        executable.export(tmp_path / "model.o")


def called(call: Any) -> Any:
    """A function of a library with the signature of that of an executable."""

    def main(*arrays: Array) -> Any:
        found = call(*map(np.ascontiguousarray, arrays))
        return found[0] if len(found) == 1 else found

    return main


@pytest.mark.parametrize("inside", [True, False], ids=["weights inside", "weights of the caller"])
@pytest.mark.parametrize("name", same_bits.texts())
def test_operators_and_networks(name: str, inside: bool, tmp_path: Path) -> None:
    executable = relaxpy.compile(same_bits.module_of(name), "native")
    exported = library(executable, tmp_path, weights_inside=inside)
    found = same_bits.results(name, called(exported["main"]))
    assert_same(tuple(found), tuple(same_bits.results(name, executable["main"])))


@pytest.mark.parametrize("name", loops.LOOPS)
def test_loops(name: str, tmp_path: Path) -> None:
    executable = relaxpy.compile(module_of(loops.LOOPS[name] + loops.KERNELS), "native")
    call = library(executable, tmp_path)["main"]
    usual = [(n, loops.VALUES) for n in loops.COUNTS]
    for values in loops.ARGUMENTS.get(name, usual):
        expected = executable["main"](*map(np.array, values))
        assert_same(call(*map(np.array, values)), expected)


#: Programs with tensors in a workspace, or with kernels that have memory of their own, some of it
#: for each thread.
PLANNED = (
    "attention over symbolic lengths",
    "float16",
    "sizes that are computed",
    "a branch",
    "a call of another function",
    "local functions that are called twice",
    "an asserted condition",
)


@pytest.mark.parametrize("name", PLANNED)
def test_the_workspace_is_that_of_the_executable(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the alignment of a few tensors."""
    executable = relaxpy.compile(program(name), "native")
    call = library(executable, tmp_path, machine=host())["main"]
    for threads in (1, 3):
        monkeypatch.setattr(live_memory, "native_threads", lambda threads=threads: threads)
        use, pool = executable.memory().workspace, serial_threads(threads)
        for sizes in (SIZES, {"n": 3000, "m": 100}, {"n": 100, "m": 3000}):
            values = flat(tuple(arguments(program(name), sizes)))
            given, _ = call.prepared(values, threads=pool)
            assert call.workspace(ctypes.byref(given)) - value_of(use, sizes) in range(64 * 6)


def value_of(size: IndexPoly, sizes: dict[str, int]) -> int:
    expr = size.expr()
    known = {var: sizes[var.name] for var in walk(expr) if isinstance(var, relaxpy.tir.Var)}
    return int(ScalarEvaluator(known).value(expr))


CACHE = """
@I.ir_module
class Program:
    @T.prim_func(private=True)
    def append(cache: T.handle, row: T.Buffer((8,), "float32"), at: T.int64):
        m = T.int64()
        Cache = T.match_buffer(cache, (m, 8), "float32")
        for j in range(8):
            with T.block("append"):
                w = T.axis.spatial(8, j)
                Cache[at, w] = row[w]
    @R.function(pure=False)
    def step(x: R.Tensor((8,), "float32"), keys: R.Tensor(("m", 8), "float32"),
             pair: R.Tuple(R.Tensor(("m", 8), "float32"), R.Tensor((8, 8), "float32")),
             at: R.Prim(value="at")):
        m = T.int64()
        at = T.int64()
        k = R.call_tir_inplace(
            Program.append, (keys, R.matmul(x, pair[1])), 0,
            R.Tensor((m, 8), "float32"), tir_vars=R.shape([at]))
        v = R.call_tir_inplace(
            Program.append, (pair[0], R.tanh(x)), 0,
            R.Tensor((m, 8), "float32"), tir_vars=R.shape([at]))
        s = R.nn.softmax(R.matmul(k, x))
        return (R.matmul(s, v), k, v)
"""


def test_a_decoder_writes_the_caches_of_its_caller(tmp_path: Path) -> None:
    executable = relaxpy.compile(from_source(HEAD + CACHE), "native")
    call = library(executable, tmp_path)["step"]
    keys, values = same_bits.numbers(6, 8), same_bits.numbers(6, 8, seed=2)
    w, (own_keys, own_values) = same_bits.numbers(8, 8, seed=5), (keys.copy(), values.copy())
    assert [tensor.written for tensor in call.function.inputs] == [False, True, True, False]
    for at in (0, 3, 5):
        x = same_bits.numbers(8, seed=at + 9)
        expected = executable["step"](x, keys, (values, w), at)
        found = call(x, own_keys, own_values, w, at=at, guards=False)
        assert_same(found, expected)
        assert found[1] is own_keys
        assert_same((own_keys, own_values), (keys, values))
    for at in (6, -1):
        with pytest.raises(RuntimeCheckError, match="outside"):
            executable["step"](x, keys, (values, w), at)
        with pytest.raises(StatusError, match="append: an index is outside dimension 0"):
            call(x, own_keys, own_values, w, at=at, guards=False)
        assert call.failed == (at, 6)
