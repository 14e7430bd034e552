"""Programs with something odd about them: read, printed, and read again."""

import enum
import math
from textwrap import dedent

import numpy as np
import pytest

from relaxpy import DataType, tir as tir_nodes
from relaxpy.errors import RelaxpyError
from relaxpy.ir import Op, assert_structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import TensorStructInfo as Tensor
from relaxpy.ir.tir import expr as tir
from relaxpy.script import from_source, relax as R, tir as T
from tests.rows import sections

PROGRAMS = sections(
    """
--- functions that call each other
@I.ir_module
class Module:
    @R.function(private=True)
    def helper(x: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
        return x

    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        cls = Module
        y = cls.helper(x)
        return y
--- a recursive local function
@R.function
def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Object:
    @R.function
    def loop(y: R.Object, d: R.Tensor((), "bool")) -> R.Object:
        if d:
            z: R.Object = loop(y, c)
        else:
            z: R.Object = y
        return z
    r = loop(x, c)
    return r
--- a local function that uses the sizes around it
@R.function
def main(x: R.Tensor(("n", "m"), "float32")) -> R.Object:
    n = T.int64()

    @R.function
    def inner(y: R.Tensor((n, "k"), "float32")) -> R.Tensor((n, "k"), "float32"):
        k = T.int64()
        z = R.match_cast(y, R.Tensor((n, k), "float32"))
        return z
    return inner
--- sizes that only a local function speaks of
@R.function
def main(x: R.Tensor(("n",), "float32")) -> R.Object:
    n = T.int64()

    @R.function
    def inner() -> R.Shape([n]):
        s = R.shape([n])
        return s
    return inner
--- branches that end in every kind of binding
@R.function(pure=False)
def main(
    c: R.Tensor((), "bool"), t: R.Tuple(R.Object, R.Object), x: R.Tensor(("n",), "float32")
) -> R.Object:
    n = T.int64()
    if c:
        if c:
            a: R.Object = t[0]
        else:
            a: R.Object = t[1]
    else:
        b = t[0]
        a: R.Object = b
    if c:
        d = R.match_cast(x, R.Tensor((n,), "float32"))
    else:
        R.print(a)
        d = x
    if c:
        e: R.Object = (a, d)
    else:
        @R.function
        def g(y: R.Object) -> R.Object:
            return y
        e: R.Object = g
    return (a, d, e)
--- bare casts, unit values and results in tuples
@R.function(pure=False)
def main(
    x: R.Object, s: R.Shape(["n"]), p: R.Prim(value="k")
) -> R.Tuple(R.Tuple, R.Object):
    n = T.int64()
    R.match_cast(x, R.Tensor((n, 2), "float32"))
    u = R.print(x)
    v = (u, x)
    return v
--- attributes of all kinds
@R.function(pure=False)
def main(x: R.Object) -> R.Object:
    R.func_attr({"a b": [1, [2.5, True], None], "c": {"d": "it's"}, "inf": -1e999})
    y = R.call_packed("f", x, axis=[0, 1], mode="fast", **{"not a name": 1})
    return y
--- attributes that are floats
@R.function
def main(x: R.Tensor((4,), "float32")):
    a = R.nn.pad(x, [1, 1], pad_value=float("nan"))
    b = R.nn.pad(x, [1, 1], pad_value=float("-nan"))
    c = R.nn.pad(x, [1, 1], pad_value=-0.0)
    return a, b, c
--- callables, nested in signatures
@R.function
def main(
    f: R.Callable((R.Tensor(("n",), "float32"),), R.Tensor(("n",), "float32"), True),
    g: R.Callable((R.Callable, R.Object), R.Shape(ndim=1), False),
    x: R.Tensor(("m",), "float32"),
) -> R.Tensor(("m",), "float32"):
    y = f(x)
    return y
--- dataflow blocks with and without results
@R.function
def main(x: R.Tensor(("n",), "float32")) -> R.Shape(["n"]):
    n = T.int64()
    with R.dataflow():
        a = R.shape_of(x)
        R.output()
    b = R.shape_of(x)
    with R.dataflow():
        c = R.shape_of(x)
        d = (c, c)
        e = d[1]
        R.output(e, d)
    return e
--- operators with operands and attributes
@R.function
def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 2), "float32")) -> R.Object:
    n = T.int64()
    a = R.sum(x, axis=[1], keepdims=True)
    b = R.matmul(x, w)
    c = R.concat([x, x], axis=1)
    d = R.astype(x, "float16")
    e = R.clip(x, 0, 6)
    f = R.full((n, 4), R.const(1.0, "float32"), "float32")
    g = R.arange(0, n, 1, "int64")
    h = R.broadcast_to(x, (2, n, 4))
    i = R.max(x)
    j = x + R.const(1.0, "float32")
    return (a, b, c, d, e, f, g, h, i, j)
--- sizes that are known to be sizes
@R.function
def main(
    x: R.Tensor(("n", "n * 2"), "float32"), f: R.Callable((R.Shape(["k"]),), R.Object, True)
) -> R.Tensor(("n", "n * 2"), "float32"):
    n = T.int64(is_size_var=True)
    k = T.int64(is_size_var=True)
    return x
--- parameters that are shapes of others
@R.function
def main(x: R.Tensor(s, "float32"), s: R.Shape(ndim=2)) -> R.Tensor(s, "float32"):
    return x
--- unit values that a dataflow block gives
@R.function
def main(x: R.Object) -> R.Object:
    with R.dataflow():
        u: R.Tuple = R.call_pure_packed("f", x, sinfo_args=(R.Tuple(),))
        R.output(u)
    return x
--- constants that lists cannot say
@R.function
def main() -> R.Tensor((2, 0, 3), "float32"):
    x = R.const([], "float32", shape=(2, 0, 3))
    y = R.const(["0x7fc00001", "nan", 1.5], "float32")
    return x
--- names that shadow each other
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Object:
    x = R.shape_of(x)
    x = (x, x)
    sum = x[0]
    R_1 = sum
    cls = R_1
    return cls
"""
)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
def test_programs_read_back(name: str):
    program = from_source(dedent(PROGRAMS[name]))
    for options in ({}, {"width": 50}, {"module_alias": ""}):
        text = program.script(**options)
        again = from_source(text)
        assert_structural_equal(program, again)
        assert again.script(**options).split("\n") == text.split("\n")
    bare = from_source(program.script(show_all_struct_info=False), check_well_formed=False)
    assert bare.script(show_all_struct_info=False) == program.script(show_all_struct_info=False)


@pytest.mark.rule("SC-17")
def test_a_parameter_keeps_its_name_where_another_is_declared_by_it():
    s, n = rx.Var("s", rx.ShapeStructInfo(ndim=1)), tir.Var("s", "int64")
    x, y = rx.Var("x", Tensor(s, "float32")), rx.Var("y", Tensor((n,), "float32"))
    func = rx.Function([x, y, s], rx.SeqExpr([], x), x.struct_info, attrs={"global_symbol": "main"})
    text = func.script()
    assert 'x: R.Tensor(s, dtype="float32"), y: R.Tensor(("s_1",), dtype="float32"), s:' in text
    assert_structural_equal(func, from_source(text))


def test_sizes_stay_sizes():
    program = from_source(dedent(PROGRAMS["sizes that are known to be sizes"]))
    assert isinstance(program.params[0].struct_info.shape.values[0], tir.SizeVar)


def test_large_constants_are_written_with_every_bit():
    data = np.full(40, np.frombuffer(b"\x01\x00\xc0\x7f", "float32"))
    data[3] = 0.1
    x = rx.Var("x", Tensor((40,), "float32"))
    block = rx.BindingBlock([rx.VarBinding(x, rx.Constant(data))])
    func = rx.Function([], rx.SeqExpr([block], x), x.struct_info)
    again = from_source(func.script(show_meta=True))
    assert_structural_equal(func, again)


FLOATS = ["float16", "float32", "float64", "bfloat16", "float8_e5m2", "float8_e4m3fn"]
FLOATS += ["float8_e3m4", "float8_e4m3b11fnuz", "float8_e8m0fnu"]


@pytest.mark.parametrize("dtype", [*FLOATS, "bool", "int8", "uint8", "int64", "uint64"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (0, 3), (7,), (3, 5, 3)])
def test_constants_of_every_datatype_keep_every_bit(dtype: str, shape: tuple[int, ...]):
    kind = DataType(dtype).numpy()
    rng = np.random.default_rng(len(dtype))
    data = np.frombuffer(rng.bytes(45 * kind.itemsize), kind)[: math.prod(shape)].reshape(shape)
    if dtype == "bool":
        data = rng.integers(0, 2, shape).astype(bool)
    x = rx.Var("x", rx.ObjectStructInfo())
    func = rx.Function([x], rx.SeqExpr([], rx.Constant(data)), rx.ObjectStructInfo())
    with np.errstate(over="raise", invalid="raise"):
        again = from_source(func.script(show_meta=True))
    assert_structural_equal(func, again)
    assert again.body.body.data.tobytes() == data.tobytes()


def test_values_of_numpy_and_enumerations_among_attributes_read_back():
    class Mode(enum.IntEnum):
        FAST = 1

    given = {
        "a": np.float64(1.5),
        "b": [np.int64(3), np.bool_(True)],
        "c": np.float32(0.5),
        "d": Mode.FAST,
        "e": np.str_("it's"),
        "f": Tensor((2,), "int8"),
        "g": R.Tensor((2,), "int8"),
    }
    body = rx.SeqExpr([], rx.Tuple([]))
    func = rx.Function([], body, rx.TupleStructInfo([]), attrs={"global_symbol": "main", **given})
    text = func.script()
    assert "np." not in text
    again = from_source(text)
    assert_structural_equal(func, again)
    assert again.attrs["a"] == 1.5
    assert again.attrs["g"] == Tensor((2,), "int8")


def test_sizes_in_callables_of_a_body_read_back():
    k = tir.Var("k", "int64")
    sinfo = rx.FuncStructInfo([Tensor((k,))], Tensor((k,)))
    x = rx.Var("x", rx.ObjectStructInfo())
    f = rx.Var("f", sinfo)
    body = rx.SeqExpr([rx.BindingBlock([rx.MatchCast(f, x, sinfo)])], f)
    func = rx.Function([x], body, rx.ObjectStructInfo(), attrs={"global_symbol": "main"})
    assert_structural_equal(func, from_source(func.script(), check_well_formed=False))


def test_malformed_calls_are_shown_as_they_are():
    for call, text in [
        (rx.Call(Op("relax.call_tir"), ()), "R.call_tir()"),
        (rx.Call(Op("relax.call_tir"), (rx.const(1),)), 'R.call_tir(R.const(1, "int32"))'),
        (rx.Call(Op("relax.call_pure_packed"), ()), "R.call_pure_packed()"),
        (rx.Call(Op("relax.shape_of"), (), {"x": 1}, [Tensor((2,), "int8")]), None),
    ]:
        shown = str(call)
        assert text is None or shown == text
        assert shown


@pytest.mark.parametrize("scope", ["global", ""])
def test_regions_made_real_read_back(scope: str):
    @T.prim_func
    def kernel(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        T.realize(A[0:2], scope, B[0] > T.float32(1))
        B[0] = A[0]

    text = kernel.script()
    assert_structural_equal(kernel, from_source(text))
    assert text.count("realize") == 1


@pytest.mark.rule("SC-16", "WF-6b")
@pytest.mark.parametrize(
    "returned",
    [
        'R.Callable((R.Tensor(("p + 1",)), R.Tensor(("p",))), R.Object)',
        'R.Callable((R.Callable((R.Object,), R.Tensor(("p + 1",))), R.Shape(["p"])), R.Object)',
        'R.Tuple(R.Callable((R.Tensor(("p * q",)), R.Tensor(("p", "q"))), R.Shape(["p + q"])))',
    ],
)
def test_sizes_of_returned_functions_are_bound_in_any_order(returned: str) -> None:
    text = f"@R.function(private=True)\ndef main(x: {returned}) -> {returned}:\n    return x\n"
    both = from_source(text)
    renamed = from_source(text.replace('"p', '"n', text.split(") ->")[0].count('"p')))
    for found in (both, renamed):
        assert_structural_equal(from_source(found.script()), found)
    assert_structural_equal(both, renamed)
    for unbound in ('R.Tensor(("p + 1",))', f'R.Tuple(R.Tensor(("p + 1",)), {returned})'):
        with pytest.raises(RelaxpyError, match=r"WF-(4|6a)"):
            from_source(f"@R.function\ndef main(x: R.Object) -> {unbound}:\n    return x\n")


def test_what_annotations_are_about_reads_back() -> None:
    func = from_source("""
        @T.prim_func
        def main(A: T.Buffer((4,), "float32")):
            with T.attr(T.int32(0), "k", 1):
                T.evaluate(1)
            with T.attr(T.StringImm("s"), "k", T.StringImm("x")):
                T.evaluate(1)
            with T.attr([1, {"a": None}], "k", "x"):
                T.evaluate(1)
            T.attr(A, "k", "x")
            T.evaluate(1)
    """)
    assert_structural_equal(from_source(func.script()), func)
    given = [0, "s", (1, {"a": None})]
    assert [found.node for found in func.body.seq[:3]] == given
    made = tir_nodes.AttrStmt(tir_nodes.const(0), "k", 1, tir_nodes.Evaluate(1))
    assert_structural_equal(made, func.body.seq[0])


@pytest.mark.parametrize(
    "body",
    [
        """
        tx = T.env_thread("threadIdx.x")
        with T.launch_thread(tx, 4):
            T.evaluate(tx)
        with T.launch_thread(tx, 8):
            T.evaluate(tx)
        """,
        """
        tx = T.env_thread("threadIdx.x", "int64")
        T.launch_thread(tx, T.int64(4))
        T.launch_thread(tx, T.int64(4))
        T.evaluate(tx)
        """,
        """
        h = T.handle("float32", "shared")
        with T.LetStmt(T.reinterpret("handle", T.int64(0)), var=h):
            T.evaluate(1)
        n = T.int32(is_size_var=True)
        with T.LetStmt(3, var=n):
            T.evaluate(n)
        T.evaluate(2)
        """,
        """
        i, j = T.int32(), T.int64()
        with T.attr(T.iter_var(i, (1, 4), "ThreadIndex", "vthread"), "virtual_thread", 4):
            T.evaluate(i)
        T.attr(T.iter_var(j, None, "Opaque", ""), "key", "value")
        T.evaluate(j)
        """,
    ],
)
def test_variables_that_a_statement_defines_again_or_by_another_read_back(body: str) -> None:
    func = from_source("@T.prim_func\ndef main():" + body.replace("\n    ", "\n"))
    assert_structural_equal(from_source(func.script()), func)
