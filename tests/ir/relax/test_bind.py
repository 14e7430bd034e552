"""Functions specialised to known parameters and sizes."""

from dataclasses import replace

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MatchCastError, MisuseError, StructInfoError, UnknownNameError
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import defined_symbolic_vars
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.derive import normalize_function
from relaxpy.relax.dpl import is_op, wildcard
from relaxpy.relax.transform import BindSymbolicVars, FuseOpsByPattern, MergeCompositeFunctions
from relaxpy.runtime import ShapeTuple
from relaxpy.script import from_source
from relaxpy.transform import Sequential
from tests.ir.relax.graphs import (
    bind,
    bindings,
    block,
    called,
    cast,
    function,
    pure,
    seq,
    size,
    var,
)
from tests.ir.relax.sinfos import Object, prim, rank, shape, tensor
from tests.ir.relax.texts import module

MATMUL = """
@R.function(private=True)
def f(
    A: R.Tensor(({0}, {1}), "float32"), B: R.Tensor(({1}, {2}), "float32")
) -> R.Tensor(({0}, {2}), "float32"):
    return R.matmul(A, B)
"""


def matmul(m: object, k: object, n: object) -> rx.Function:
    found = from_source(MATMUL.format(m, k, n))
    assert isinstance(found, rx.Function)
    return found


@pytest.fixture
def func() -> rx.Function:
    return matmul("'m'", "'k'", "'n'")


def test_sizes_take_the_place_of_shape_variables(func: rx.Function) -> None:
    expected = matmul(128, 64, 32)
    assert_structural_equal(func.bind_symbolic_vars({"m": 128, "k": 64, "n": 32}), expected)
    m, k = func.params[0].struct_info.get_shape()  # type: ignore[union-attr]
    assert_structural_equal(func.bind_symbolic_vars({m: 128, k: 64, "n": 32}), expected)
    assert func.bind_symbolic_vars({}) is func


def test_sizes_may_depend_on_new_variables_that_parameters_define(func: rx.Function) -> None:
    o = size("o")
    after = func.bind_symbolic_vars({"m": o * 2, "k": o})
    assert after.params[0].struct_info == tensor(o * 2, o)
    assert check_well_formed(after) == []
    with pytest.raises(MisuseError, match="nothing defines shape variable o") as error:
        func.bind_symbolic_vars({"m": o * 2})
    assert error.value.diagnostic.rule == "WF-6a"


def test_unknown_and_ambiguous_shape_variables_are_refused(func: rx.Function) -> None:
    m = func.params[0].struct_info.get_shape()[0]  # type: ignore[union-attr]
    with pytest.raises(UnknownNameError, match="defines no shape variable mm; it defines m, k, n"):
        func.bind_symbolic_vars({"mm": 1})
    with pytest.raises(KeyError):
        func.bind_symbolic_vars({size("m"): 1})
    with pytest.raises(MisuseError, match="m is bound twice"):
        func.bind_symbolic_vars({m: 1, "m": 1})
    a, b = size("n"), size("n")
    twins = normalize_function(function([var("x", tensor(a, b))], rx.Tuple(())))
    with pytest.raises(MisuseError, match="several shape variables of the function are called n"):
        twins.bind_symbolic_vars({"n": 1})
    assert twins.bind_symbolic_vars({a: 3}).params[0].struct_info == tensor(3, b)


def test_a_name_means_a_size_of_the_signature_before_one_of_a_local_function() -> None:
    pattern = is_op("relax.matmul")(wildcard(), wildcard())
    fuse = Sequential([FuseOpsByPattern([("mine.product", pattern)]), MergeCompositeFunctions()])
    mod = fuse(
        module("""
        @R.function
        def main(a: R.Tensor(("m", 3), "float32"), b: R.Tensor((3, 4), "float32")):
            with R.dataflow():
                c = R.matmul(a, b)
                R.output(c)
            return c
        """)
    )
    (fused,) = (f for n, f in mod.functions_by_name.items() if n != "main")
    assert isinstance(fused, rx.Function)
    assert [v.name for v in defined_symbolic_vars(fused)] == ["m", "m"]
    assert fused.bind_symbolic_vars({"m": 2}).params[0].struct_info == tensor(2, 3)
    after = BindSymbolicVars({"m": 2})(mod)
    assert {f.params[0].struct_info for f in after.functions_by_name.values()} == {tensor(2, 3)}


def test_sizes_are_replaced_wherever_they_stand() -> None:
    n, m = size("n"), size("m")
    x, p, y, q = var("x", tensor(n * m)), var("p", prim(n)), var("y"), var("q", shape(n, m))
    func = function(
        [x, p, q],
        seq(
            block(
                cast(y, x, tensor(n)),
                bind(
                    var("z"),
                    pure("f", rx.ShapeExpr((n * 2, m)), rx.PrimValue(n + m), sinfo=tensor(n, m)),
                ),
            ),
            y,
        ),
        tensor(n),
    )
    after = normalize_function(func).bind_symbolic_vars({"n": 16})
    assert [v.struct_info for v in after.params] == [tensor(m * 16), prim(16), shape(16, m)]
    assert after.ret_struct_info == tensor(16)
    call = bindings(after)[1].value
    assert isinstance(call, rx.Call)
    assert call.struct_info == tensor(16, m)
    assert [a.struct_info for a in call.args] == [shape(32, m), prim(m + 16)]
    assert after.struct_info.params[1] == prim(16)  # type: ignore[union-attr]


def test_arrays_take_the_place_of_parameters(func: rx.Function) -> None:
    weight = np.arange(6, dtype="float32").reshape(3, 2)
    after = func.bind_params({"B": weight})
    (param,) = after.params
    assert param.struct_info == tensor(param.struct_info.get_shape()[0], 3)  # type: ignore[union-attr]
    constant = bindings(after)[0].value.args[1]  # type: ignore[attr-defined]
    assert isinstance(constant, rx.Constant)
    np.testing.assert_array_equal(constant.data, weight)
    assert check_well_formed(after) == []
    assert func.bind_params({func.params[1]: rx.const(weight)}).params[0].struct_info is not None
    assert len(func.params) == 2


def test_what_is_known_of_a_value_reaches_what_depends_on_it() -> None:
    x, y = var("x", rank(-1)), var("y")
    func = normalize_function(function([x], seq(block(bind(y, rx.Tuple((x,)))), y)))
    after = func.bind_params({"x": np.zeros((2, 3), "float32")})
    assert after.struct_info.ret == rx.TupleStructInfo((tensor(2, 3),))  # type: ignore[union-attr]


def test_values_that_do_not_fit_are_refused(func: rx.Function) -> None:
    ones = np.ones((3, 2), "float32")
    with pytest.raises(StructInfoError, match="rank 1 is not rank 2"):
        func.bind_params({"B": np.ones(3, "float32")})
    with pytest.raises(StructInfoError, match="DER-41"):
        func.bind_params({"A": ones, "B": ones})
    with pytest.raises(StructInfoError):
        func.bind_params({"B": np.ones((3, 2), "int8")})
    with pytest.raises(StructInfoError, match="a list is not a tensor"):
        func.bind_params({"B": ones.tolist()})
    pair = var("pair", rx.TupleStructInfo((tensor(3, 2), Object)))
    with pytest.raises(StructInfoError, match="1 fields are not 2"):
        normalize_function(function([pair], pair)).bind_params({"pair": (ones,)})


def test_arrays_are_copied_unless_nobody_can_write_their_memory(func: rx.Function) -> None:
    changing, fixed = bytearray(24), bytes(24)
    for memory in (memoryview(changing).toreadonly(), fixed):
        array = np.frombuffer(memory, "float32").reshape(3, 2)
        constant = bindings(func.bind_params({"B": array}))[0].value.args[1]  # type: ignore[attr-defined]
        assert np.shares_memory(constant.data, array) == (memory is fixed)


def test_unknown_and_ambiguous_parameters_are_refused(func: rx.Function) -> None:
    with pytest.raises(UnknownNameError, match="no parameter C; it has A, B"):
        func.bind_params({"C": 1})
    with pytest.raises(MisuseError, match="B is bound twice"):
        func.bind_params(
            {"B": np.ones((3, 2), "float32"), func.params[1]: np.ones((3, 2), "float32")}
        )
    twins = normalize_function(function([var("x", Object), var("x", Object)], rx.Tuple(())))
    with pytest.raises(MisuseError, match="several parameters of the function are called x"):
        twins.bind_params({"x": 1})
    with pytest.raises(MisuseError, match="expected a Relax expression"):
        func.bind_params({"B": object()})


def test_a_size_that_only_a_bound_parameter_defined_must_follow_from_its_value() -> None:
    n = size("n")
    x, y = var("x", tensor(n)), var("y", rank(1))
    func = normalize_function(function([x], rx.ShapeExpr((n,))))
    assert func.bind_params({"x": np.ones(3, "float32")}).body.body.struct_info == shape(3)  # type: ignore[attr-defined]
    after = func.bind_params({"x": y})
    (check,) = bindings(after)
    assert isinstance(check, rx.MatchCast)
    assert check.struct_info == tensor(n)
    z = var("z", tensor(n * 2))
    for other in (function([x, z], z), function([x], x, tensor(n))):
        with pytest.raises(MisuseError, match="nothing defines shape variable n"):
            normalize_function(other).bind_params({"x": y})


@pytest.mark.parametrize("sizes", [ShapeTuple([4, 5]), [4, np.int64(5)]])
def test_numbers_become_scalars_or_tensors_or_shapes_as_the_parameter_says(sizes) -> None:
    x, p, s = var("x", tensor()), var("p", prim()), var("s", shape(size("n"), 5))
    func = normalize_function(function([x, p, s], rx.Tuple((x, p, s))))
    body = func.bind_params({"x": 2, "p": 3, "s": sizes}).body.body  # type: ignore[attr-defined]
    assert body.struct_info == rx.TupleStructInfo((tensor(), prim(3), shape(4, 5)))


@pytest.mark.parametrize(
    ("dtype", "wrong", "right"),
    [("int32", 2.5, 3.0), ("int32", 2**40, 1), ("int32", float("nan"), -1), ("bool", 2, 1)],
)
def test_a_number_that_the_parameter_cannot_hold_is_refused(dtype, wrong, right) -> None:
    x = var("x", tensor(dtype=dtype))
    func = normalize_function(function([x], x))
    with pytest.raises(MisuseError):
        func.bind_params({"x": wrong})
    assert func.bind_params({"x": right}).body.body.data == right  # type: ignore[attr-defined]


@pytest.mark.rule("NF-17")
def test_a_value_that_is_not_a_leaf_is_evaluated_once_and_first() -> None:
    x, y = var("x", tensor(2)), var("y", tensor(2))
    func = normalize_function(function([x], pure("g", x, x)))
    after = func.bind_params({"x": pure("f", y, sinfo=tensor(2))})
    assert called(after) == ["f", "g"]


DOUBLED = """
@R.function
def main(x: R.Tensor(("m",), "float32"), w: R.Tensor(("2 * m",), "float32")):
    return R.add(w, w)
"""


@pytest.mark.rule("DER-41", "FN-1")
@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_a_value_that_may_not_fit_is_checked_when_the_program_runs(target: str) -> None:
    func = from_source(DOUBLED)
    assert isinstance(func, rx.Function)
    after = func.bind_params({"w": np.ones(4, "float32")})
    assert check_well_formed(after) == []
    ex = relaxpy.compile(after, target)
    assert ex["main"](np.ones(2, "float32")).tolist() == [2, 2, 2, 2]
    with pytest.raises(MatchCastError, match=r"2 \* m = 6"):
        ex["main"](np.ones(3, "float32"))


@pytest.mark.rule("WF-5b", "WF-6b", "FN-5")
def test_checks_of_values_bind_sizes_in_any_order() -> None:
    func = from_source("""
@R.function
def main(
    a: R.Tensor(("2 * k", "j"), "float32"),
    b: R.Tensor(("j + 1", "k"), "float32"),
    c: R.Shape(["k"]),
):
    k = T.int64()
    j = T.int64()
    return (a, b, R.shape([k, j]))
""")
    assert isinstance(func, rx.Function)
    a, b = var("a", rank(2)), var("b", rank(2))
    inside = func.bind_params({"a": a, "b": b})
    after = replace(inside, params=(a, b, *inside.params), struct_info=None)
    assert check_well_formed(after) == []
    ex = relaxpy.compile(after)

    def run(*shapes: tuple[int, int]) -> tuple[int, ...]:
        arrays = [np.ones(shape, "float32") for shape in shapes]
        return tuple(ex["main"](*arrays, ShapeTuple([2]))[2])

    assert run((4, 5), (6, 2)) == (2, 5)
    for wrong in [((5, 5), (6, 2)), ((4, 5), (5, 2)), ((6, 5), (6, 3))]:
        with pytest.raises(MatchCastError):
            run(*wrong)


def test_inputs_are_counted_again() -> None:
    params = [var(n, tensor(2)) for n in "xyz"]
    func = normalize_function(function(params, rx.Tuple(params), num_input=2))  # type: ignore[arg-type]
    assert func.bind_params({"x": np.ones(2, "float32")}).attrs["num_input"] == 1
    assert func.bind_params({"z": np.ones(2, "float32")}).attrs["num_input"] == 2


def test_calls_of_functions_of_the_module_keep_what_they_gave() -> None:
    n = size("n")
    mod = module("""
    def g(x: f32[n]) -> f32[n]:
        return x

    def main(x: f32[n]):
        y = cls.g(x)
        return y
    """)
    after = mod["main"].bind_symbolic_vars({"n": 4})
    assert bindings(after)[0].var.struct_info == tensor(4)  # type: ignore[union-attr]
    mod["main"] = after
    assert check_well_formed(mod) == []


def test_a_declaration_has_a_signature_and_no_body_yet() -> None:
    x = var("x", tensor(2))
    func = rx.Function.create_empty([x], tensor(3), False, {"a": 1})
    assert func.struct_info == rx.FuncStructInfo((tensor(2),), tensor(3), False)
    assert func.attrs["a"] == 1
    assert [d.rule for d in check_well_formed(func)] != []


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        *[("int32", 3), ("int8", -128), ("uint8", np.int64(255)), ("int64", np.int64(3))],
        *[("float32", 0.5), ("float16", 1), ("float32", np.float64(0.25)), ("bool", np.True_)],
    ],
)
@pytest.mark.parametrize("form", ["R.Prim({!r})", "R.Tuple(R.Prim({!r}))"])
def test_numbers_take_the_datatype_of_scalar_parameters(form, dtype, value) -> None:
    func = from_source(f"@R.function\ndef f(k: {form.format(dtype)}):\n    return k\n")
    nested = form.startswith("R.Tuple")
    result = func.bind_params({"k": (value,) if nested else value}).body.body
    literal = result.fields[0] if nested else result
    assert isinstance(literal, rx.PrimValue)
    assert (literal.value.dtype, literal.value.value) == (dtype, value)


@pytest.mark.rule("MC-3")
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        *[("int8", 128), ("uint8", -1), ("int64", 0.5), ("int32", float("inf")), ("bool", 2)],
        *[("int64", True), ("float32", True)],
    ],
)
@pytest.mark.parametrize("sinfo", ["R.Prim({!r})", "R.Tensor((), {!r})"])
def test_numbers_that_a_datatype_does_not_have_are_refused(sinfo, dtype, value) -> None:
    func = from_source(f"@R.function\ndef f(k: {sinfo.format(dtype)}):\n    return k\n")
    with pytest.raises(MisuseError, match=rf"{value} is not a value of type {dtype}") as caught:
        func.bind_params({"k": value})
    assert caught.value.diagnostic.rule == "MC-3"


def test_arrays_and_numbers_in_tuples_are_bound() -> None:
    func = from_source(
        '@R.function\ndef f(t: R.Tuple(R.Tensor(("n",), "float32"), R.Tensor((), "int8")),\n'
        '      x: R.Tensor(("n",), "float32")):\n    return (x, t[0], t[1])\n'
    )
    bound = func.bind_params({"t": (np.arange(2, dtype="float32"), 3)})
    assert bound.params[0].struct_info == tensor(2)
    found = relaxpy.compile(bound)["f"](np.ones(2, "float32"))
    assert [x.tolist() for x in found] == [[1, 1], [0, 1], 3]
