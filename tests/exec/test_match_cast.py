"""match_cast at run time, on both targets."""

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from relaxpy.errors import MatchCastError, RelaxpyWarning, RuntimeCheckError, Source, Span
from relaxpy.exec.compile import compile
from relaxpy.exec.executable import Executable
from relaxpy.exec.runtime.checks import Bindings, match_cast
from relaxpy.exec.runtime.registry import register_func, remove_global_func
from relaxpy.exec.runtime.values import Closure, PrimFuncValue, ShapeTuple
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from tests.exec.kernels import function, module, size_var, tensor

Cast = Callable[..., object]
OBJECT = rx.ObjectStructInfo()
F = np.zeros((2, 4), "float32")


@pytest.fixture(params=["reference", "numpy"])
def cast(request: pytest.FixtureRequest) -> Cast:
    """Runs `y = match_cast(x, sinfo)` and gives y, and the shape of `sizes` after it."""

    def run(
        value: object, sinfo: rx.StructInfo, *sizes: tir.Var, span: Span | None = None
    ) -> object:
        ex = cast_to(sinfo, sizes, request.param, span)
        result = ex["main"](value)
        return result if sizes else result[0]  # type: ignore[index]

    return run


def cast_to(
    sinfo: rx.StructInfo, sizes: tuple[tir.Var, ...], target: str, span: Span | None = None
) -> Executable:
    x, y = rx.Var("x"), rx.Var("y", sinfo)
    result = rx.Tuple((y, rx.ShapeExpr(sizes)))
    main = function([x], [rx.MatchCast(y, x, sinfo, span)], result)
    return compile(module(main=main), target, relax_pipeline=None)


def refused(cast: Cast, value: object, sinfo: rx.StructInfo, message: str, rule: str) -> None:
    with pytest.raises(MatchCastError, match=message) as caught:
        cast(value, sinfo)
    assert caught.value.diagnostic.rule == rule
    assert str(sinfo) in str(caught.value)
    assert "match_cast" in str(caught.value)


def closure(params: tuple[rx.StructInfo, ...], ret: rx.StructInfo, pure: bool = True) -> Closure:
    return Closure(lambda *args: args, rx.FuncStructInfo(params, ret, pure), "c")


N, M = size_var("n"), size_var("m")


@pytest.mark.rule("MC-1", "MC-19")
@pytest.mark.parametrize("value", [F, (F,), None, 3, "s", len, ShapeTuple((1,)), object()])
def test_every_value_is_an_object(cast: Cast, value: object) -> None:
    assert cast(value, OBJECT) is value


@pytest.mark.rule("MC-2")
@pytest.mark.parametrize(
    ("value", "sinfo"),
    [
        (3, rx.TensorStructInfo(None, "")),
        ((F,), rx.TensorStructInfo(None, "")),
        (ShapeTuple((2,)), rx.TensorStructInfo(None, "")),
        (F, rx.ShapeStructInfo()),
        ((2, 4), rx.ShapeStructInfo()),
        (np.array(3), rx.PrimStructInfo("int64")),
        (ShapeTuple((2,)), rx.TupleStructInfo((OBJECT,))),
        ([F], rx.TupleStructInfo((OBJECT,))),
        (F, rx.FuncStructInfo((), OBJECT)),
        (None, rx.FuncStructInfo.opaque_func()),
    ],
)
def test_a_value_of_another_category_is_refused(
    cast: Cast, value: object, sinfo: rx.StructInfo
) -> None:
    refused(cast, value, sinfo, "is not a", "MC-2")


@pytest.mark.rule("MC-3")
@pytest.mark.parametrize(
    "sinfo",
    [
        rx.TensorStructInfo(None, ""),
        rx.TensorStructInfo(None, "float32"),
        rx.TensorStructInfo(None, "", ndim=2),
        rx.TensorStructInfo(None, "float32", ndim=2),
    ],
)
def test_unknown_rank_and_datatype_fit_all(cast: Cast, sinfo: rx.StructInfo) -> None:
    assert cast(F, sinfo) is F


@pytest.mark.rule("MC-3")
def test_a_wrong_rank_or_datatype_is_refused(cast: Cast) -> None:
    refused(cast, F, rx.TensorStructInfo(None, "", ndim=3), "its rank .ndim. is 2, not 3", "MC-3")
    sinfo = rx.TensorStructInfo(None, "float64", ndim=2)
    refused(cast, F, sinfo, "its dtype is float32, not float64", "MC-3")
    swapped = F.astype(">f4")
    refused(cast, swapped, tensor((2, 4)), "bytes of its elements are swapped", "MC-3")
    refused(cast, np.zeros(2, "complex64"), tensor((2,)), "complex64", "MC-2")


@pytest.mark.rule("MC-4")
def test_a_shape_variable_holds_the_expected_shape() -> None:
    for target in ("reference", "numpy"):
        x, s, y = rx.Var("x"), rx.Var("s", rx.ShapeStructInfo(ndim=2)), rx.Var("y")
        sinfo = rx.TensorStructInfo(s, "float32")
        main = function([x, s], [rx.MatchCast(y, x, sinfo)], y)
        ex = compile(module(main=main), target, relax_pipeline=None)
        assert ex["main"](F, ShapeTuple((2, 4))) is F
        with pytest.raises(MatchCastError, match=r"its shape is \(2, 4\), but s is \(2, 5\)") as e:
            ex["main"](F, ShapeTuple((2, 5)))
        assert e.value.diagnostic.rule == "MC-4"


@pytest.mark.rule("MC-5", "MC-6", "MC-7", "PX-8")
def test_dimensions_bind_and_check(cast: Cast) -> None:
    assert cast(F, tensor((N, M)), N, M) == (F, (2, 4))
    assert cast(F, tensor((N, 4)), N)[1] == (2,)  # type: ignore[index]
    refused(cast, F, tensor((N,)), "its rank .ndim. is 2, not 1", "MC-3")
    refused(cast, F, tensor((N, 5)), "dimension 1 is 4, not 5", "MC-7")


@pytest.mark.rule("MC-8", "RES-34")
def test_members_are_taken_from_left_to_right(cast: Cast) -> None:
    assert cast(F, tensor((N, N * 2)), N)[1] == (2,)  # type: ignore[index]
    square = np.zeros((3, 3), "float32")
    assert cast(square, tensor((N, N)), N)[1] == (3,)  # type: ignore[index]
    refused(cast, F, tensor((N, N)), "dimension 1 is 4, but n = 2", "MC-7")
    refused(cast, F, tensor((N, N + 1)), r"dimension 1 is 4, but n \+ 1 = 3", "MC-7")
    pair = rx.TupleStructInfo((tensor((N, 4)), tensor((4, N))))
    assert cast((F, F.T), pair, N)[1] == (2,)  # type: ignore[index]
    refused(cast, (F, F), pair, "field 1: dimension 0 is 2, not 4", "MC-7")


def test_the_place_where_a_size_was_bound_is_named(cast: Cast) -> None:
    with pytest.raises(MatchCastError, match=r"note: n = 2 was bound by dimension 0 of match_cast"):
        cast(F, tensor((N, N)))


@pytest.mark.rule("MC-8", "PX-3")
def test_a_size_that_differs_comes_before_one_that_cannot_be_computed(cast: Cast) -> None:
    quotient = tir.FloorDiv(N, M)
    sizes = rx.ShapeStructInfo((N, M))
    zero = ShapeTuple((3, 0))
    differs = rx.TupleStructInfo((sizes, tensor((N + 1, quotient))))
    refused(cast, (zero, F), differs, r"dimension 0 is 2, but n \+ 1 = 4", "MC-7")
    with pytest.raises(RuntimeCheckError, match="division by zero"):
        cast((zero, F.T), differs)


@pytest.mark.rule("MC-9")
@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (3, "int64"),
        (np.int64(3), "int64"),
        (np.int32(3), "int32"),
        (0.5, "float64"),
        (True, "bool"),
    ],
)
def test_a_prim_value_has_exactly_its_datatype(cast: Cast, value: object, dtype: str) -> None:
    assert cast(value, rx.PrimStructInfo(dtype)) == value
    other = "int8" if dtype != "int8" else "int16"
    refused(cast, value, rx.PrimStructInfo(other), f"its dtype is {dtype}, not int8", "MC-9")


@pytest.mark.rule("MC-10", "RES-31")
def test_the_value_of_a_prim_struct_info_is_compared_or_bound(cast: Cast) -> None:
    assert cast(6, rx.PrimStructInfo("int64", 6)) == 6
    refused(cast, 7, rx.PrimStructInfo("int64", 6), "its value is 7, not 6", "MC-10")
    assert cast(7, rx.PrimStructInfo(value=N), N)[1] == (7,)  # type: ignore[index]
    pair = rx.TupleStructInfo((rx.PrimStructInfo(value=N), tensor((N, 4))))
    assert cast((2, F), pair, N)[1] == (2,)  # type: ignore[index]
    refused(cast, (3, F), pair, "field 1: dimension 0 is 2, but n = 3", "MC-7")


@pytest.mark.rule("MC-11", "MC-12")
def test_shape_values_are_checked_member_by_member(cast: Cast) -> None:
    shape = ShapeTuple((2, 4))
    assert cast(shape, rx.ShapeStructInfo()) is shape
    assert cast(shape, rx.ShapeStructInfo(ndim=2)) is shape
    assert cast(shape, rx.ShapeStructInfo((N, N * 2)), N)[1] == (2,)  # type: ignore[index]
    refused(cast, shape, rx.ShapeStructInfo(ndim=3), "it has 2 dimensions, not 3", "MC-11")
    refused(cast, shape, rx.ShapeStructInfo((N,)), "it has 2 dimensions, not 1", "MC-11")
    refused(cast, shape, rx.ShapeStructInfo((2, 5)), "dimension 1 is 4, not 5", "MC-12")


@pytest.mark.rule("MC-13")
def test_tuples_are_checked_field_by_field(cast: Cast) -> None:
    value = (F, (3, None))
    inner = rx.TupleStructInfo((rx.PrimStructInfo("int64"), OBJECT))
    assert cast(value, rx.TupleStructInfo((tensor((2, 4)), inner))) is value
    assert cast((), rx.TupleStructInfo(())) == ()
    refused(cast, value, rx.TupleStructInfo((OBJECT,)), "it has 2 fields, not 1", "MC-13")
    wrong = rx.TupleStructInfo((OBJECT, rx.TupleStructInfo((rx.PrimStructInfo("bool"), OBJECT))))
    refused(cast, value, wrong, "field 1: field 0: its dtype is int64, not bool", "MC-9")


@pytest.mark.rule("MC-14", "MC-15", "RES-45")
def test_the_two_forms_of_functions_are_distinguished(cast: Cast) -> None:
    plain, packed = closure((OBJECT,), OBJECT), len
    kernel = PrimFuncValue(lambda x: (), rx.FuncStructInfo((OBJECT,), OBJECT, False), "k")
    form = rx.FuncStructInfo((OBJECT,), OBJECT, False)
    assert cast(plain, form) is plain
    assert cast(kernel, form) is kernel
    refused(cast, packed, form, "a packed function is not a closure or a PrimFunc", "MC-2")
    assert cast(packed, rx.FuncStructInfo.opaque_func()) is packed
    assert cast(packed, rx.FuncStructInfo.opaque_func(purity=True)) is packed
    refused(cast, plain, rx.FuncStructInfo.opaque_func(), "is not a packed function", "MC-2")


@pytest.mark.rule("MC-16", "RES-54")
def test_the_signature_of_a_closure_is_compared(cast: Cast) -> None:
    wide = closure((OBJECT,), tensor((3,)))
    assert cast(wide, rx.FuncStructInfo((tensor((2,)),), rx.TensorStructInfo(None, "float32")))
    narrow = closure((tensor((2,)),), OBJECT)
    refused(cast, narrow, rx.FuncStructInfo((OBJECT,), OBJECT), "R.Callable", "MC-16")
    sized = closure((tensor((2,)),), tensor((2,)))
    pair = rx.TupleStructInfo((tensor((N, 4)), rx.FuncStructInfo((tensor((N,)),), tensor((N,)))))
    assert cast((F, sized), pair, N)[1] == (2,)  # type: ignore[index]
    refused(
        cast, (F.T, sized), rx.TupleStructInfo((tensor((N, 2)), pair.fields[1])), "Call", "MC-16"
    )


@pytest.mark.rule("MC-17")
def test_an_impure_closure_is_not_pure(cast: Cast) -> None:
    impure = closure((), OBJECT, pure=False)
    assert cast(impure, rx.FuncStructInfo((), OBJECT, False)) is impure
    refused(cast, impure, rx.FuncStructInfo((), OBJECT, True), "it is impure", "MC-17")


@pytest.mark.rule("MC-18")
def test_a_failed_check_binds_nothing() -> None:
    bindings = Bindings()
    with pytest.raises(MatchCastError):
        match_cast(F, tensor((N, N)), bindings)
    assert bindings.sizes == {}


@pytest.mark.rule("MC-20", "EV-22")
@pytest.mark.parametrize("target", ["reference", "numpy"])
def test_a_cast_without_variable_checks_and_binds(target: str) -> None:
    x = rx.Var("x")
    main = function([x], [rx.MatchCast(None, x, tensor((N, 4)))], rx.ShapeExpr((N,)))
    ex = compile(module(main=main), target, relax_pipeline=None)
    assert ex["main"](F) == (2,)
    with pytest.raises(MatchCastError, match="dimension 1 is 5, not 4"):
        ex["main"](np.zeros((2, 5), "float32"))


@pytest.mark.rule("EV-22")
@pytest.mark.parametrize("target", ["reference", "numpy"])
def test_the_value_of_a_cast_is_evaluated_once(target: str) -> None:
    calls: list[int] = []
    register_func("test.once", lambda: calls.append(1) or F)
    try:
        value = rx.Call(rx.ExternFunc("test.once"), ())
        y = rx.Var("y")
        main = function([], [rx.MatchCast(y, value, tensor((N, M)))], y, pure=False)
        assert compile(module(main=main), target, relax_pipeline=None)["main"]() is F
    finally:
        remove_global_func("test.once")
    assert calls == [1]


@pytest.mark.rule("PX-6", "MC-7")
@pytest.mark.parametrize("target", ["reference", "numpy"])
def test_a_bound_size_is_checked_by_later_casts(target: str) -> None:
    x, y = rx.Var("x", tensor((N,))), rx.Var("y")
    z = rx.Var("z")
    main = function([x, y], [rx.MatchCast(z, y, tensor((N, M)))], rx.ShapeExpr((N, M)))
    ex = compile(module(main=main), target, relax_pipeline=None)
    assert ex["main"](np.zeros(2, "float32"), F) == (2, 4)
    with pytest.raises(MatchCastError, match="dimension 0 is 2, but n = 3") as caught:
        ex["main"](np.zeros(3, "float32"), F)
    assert "n = 3 was bound by" in str(caught.value)


@pytest.mark.parametrize("target", ["reference", "numpy"])
def test_errors_show_the_line_of_the_cast(target: str) -> None:
    text = "    y = R.match_cast(x, R.Tensor((2,)))"
    span = Span(Source("model.py", text, 7), 7, 9, 7, 40)
    ex = cast_to(tensor((2,)), (), target, span)
    with pytest.raises(MatchCastError) as caught:
        ex["main"](F)
    assert str(caught.value).startswith("model.py:7:9: match_cast of y")
    assert "R.match_cast(x, R.Tensor((2,)))\n            ^^^^" in str(caught.value)


DIMS = st.sampled_from([N, M, N + 1, N * 2, tir.IntImm("int64", 2), tir.IntImm("int64", 3)])


@given(
    st.lists(DIMS, min_size=1, max_size=3),
    st.lists(st.integers(0, 4), min_size=1, max_size=3),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_both_targets_judge_alike(
    dims: list[tir.PrimExpr], shape: list[int], as_shape: bool
) -> None:
    lone = [d for i, d in enumerate(dims) if isinstance(d, tir.Var)]
    uses_n = any(d is not M and not isinstance(d, tir.IntImm) for d in dims)
    first_n = next((i for i, d in enumerate(dims) if d is N), len(dims))
    if uses_n and any(not isinstance(d, (tir.Var, tir.IntImm)) for d in dims[:first_n]):
        return
    sinfo = rx.ShapeStructInfo(tuple(dims)) if as_shape else tensor(tuple(dims))
    value = ShapeTuple(shape) if as_shape else np.zeros(shape, "float32")
    outcomes = []
    for target in ("reference", "numpy"):
        ex = cast_to(sinfo, tuple(dict.fromkeys(lone)), target)
        try:
            outcomes.append(("fits", ex["main"](value)[1]))
        except MatchCastError as error:
            outcomes.append(("refused", str(error)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.rule("MC-2", "MC-9", "EV-7")
@pytest.mark.parametrize("target", ["reference", "numpy"])
@pytest.mark.parametrize(
    "literal",
    [
        rx.PrimValue(4),
        rx.PrimValue(-4),
        rx.PrimValue(2.5),  # type: ignore[arg-type]
        rx.PrimValue(tir.IntImm("bool", 1)),
        rx.StringImm("a"),
    ],
)
def test_a_literal_is_cast_like_any_value(literal: rx.Expr, target: str) -> None:
    sinfos: list[rx.StructInfo] = [tensor((2,)), tensor((N,)), rx.TensorStructInfo(None, "int64")]
    sinfos += [rx.ShapeStructInfo((2,)), rx.ShapeStructInfo((N,)), rx.ShapeStructInfo(ndim=1)]
    sinfos += [rx.TupleStructInfo(()), rx.TupleStructInfo((OBJECT,)), rx.FuncStructInfo((), OBJECT)]
    for sinfo in sinfos:
        y = rx.Var("y", sinfo)
        main = function([], [rx.MatchCast(y, literal, sinfo)], y)
        with (
            pytest.warns(RelaxpyWarning, match="DER-26")
            if isinstance(literal, rx.PrimValue)
            else nullcontext()
        ):
            ex = compile(module(main=main), target)
        with pytest.raises(MatchCastError, match="match_cast"):
            ex["main"]()
    y = rx.Var("y", OBJECT)
    ex = compile(module(main=function([], [rx.MatchCast(y, literal, OBJECT)], y)), target)
    held = literal.value if isinstance(literal, rx.StringImm) else literal.value.value  # type: ignore[attr-defined]
    assert ex["main"]() == held
