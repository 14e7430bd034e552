"""What is known of dimensions: those of tensors are at least 0, and none is very large."""

import itertools
import warnings
from collections.abc import Callable

import numpy as np
import pytest

from relaxpy import IRModule, compile, relax
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.relations.shape_vars import dimension_vars, variables_of
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.substitution import substitute
from relaxpy.relax import transform
from relaxpy.runtime import ShapeTuple
from relaxpy.script import from_source
from tests.ir.relax.graphs import built
from tests.ir.relax.sinfos import shape, tensor

N, M, K = (tir.Var(name, "int64") for name in ("n", "m", "k"))
STEPS = 20


def test_a_variable_is_a_dimension_where_it_is_a_whole_one_of_a_tensor_that_a_value_has() -> None:
    takes = relax.FuncStructInfo([tensor(K)], relax.ObjectStructInfo())
    nested = relax.TupleStructInfo([tensor(M), relax.TupleStructInfo([shape(K), takes])])
    assert [*dimension_vars(tensor(N, M + 1, 3))] == [N]
    assert [*dimension_vars(nested, tensor(N, M))] == [M, N, M]
    assert [*dimension_vars(shape(N), takes)] == []


def program(n_of: str, body: str) -> IRModule:
    text = f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, "m"), "float32"), s: {n_of}):
        n, m = T.int64(), T.int64()
        {body}
"""
    return from_source(text)  # type: ignore[return-value]


def last_size(mod: IRModule) -> tir.PrimExpr:
    """The last dimension of the result of a program."""
    func = mod["main"]
    assert isinstance(func, relax.Function)
    sinfo = func.body.struct_info
    assert isinstance(sinfo, relax.TensorStructInfo)
    shape = sinfo.get_shape()
    assert shape is not None
    return shape[-1]


def columns(mod: IRModule) -> str:
    return str(last_size(mod)).replace("T.int64(2)", "2")


def elements(size: tir.PrimExpr, **sizes: int) -> int:
    """The value of a size for values of its variables."""
    values = {v: ops.const(sizes[v.name], "int64") for v in variables_of(size)}
    result = simplify(substitute(size, values))
    assert isinstance(result, tir.IntImm)
    return result.value


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(
    ("begin", "end", "known"),
    [("0", "n", "n"), ("n", "n + m", "m"), ("n", "n + m + 1", "m"), ("n", "m + n * 2", "m")],
)
def test_only_a_dimension_of_a_tensor_is_known_to_be_at_least_0(begin, end, known) -> None:
    body = f"""y = R.concat((x, R.zeros((2, n), "float32")), axis=1)
        z = R.strided_slice(y, [1], [{begin}], [{end}])
        return z"""
    mods = [program(sinfo, body) for sinfo in ('R.Tensor(("n",), "float32")', 'R.Shape(["n"])')]
    assert columns(mods[0]) == known
    for mod, least in zip(mods, (0, -3), strict=True):
        for n, m in itertools.product(range(least, 3), range(3, 5)):
            bounds = (eval(bound, {"n": n, "m": m}) for bound in (begin, end))
            assert elements(last_size(mod), n=n, m=m) == len(range(n + m)[slice(*bounds)])
    x, s = np.ones((2, 3), "float32"), np.ones(2, "float32")
    bounds = (eval(bound, {"n": 2, "m": 3}) for bound in (begin, end))
    expected = np.concatenate([x, np.zeros((2, 2), "float32")], 1)[:, slice(*bounds)]
    for mod, second in zip(mods, (s, ShapeTuple((2,))), strict=True):
        legal = transform.LegalizeOps()(mod)
        assert not check_well_formed(legal)
        for target in ("reference", "numpy"):
            assert np.array_equal(compile(legal, target=target)["main"](x, second), expected)


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(
    "size",
    ["T.max(n, 0)", "n + T.min(n, 0)", "T.Select(n < 0, m, n)", "T.if_then_else(n < 0, m, n)"],
)
def test_the_sign_of_a_dimension_makes_a_choice(size: str) -> None:
    body = f"return R.concat((x, R.zeros((2, {size}), 'float32')), axis=1)"
    tensor_of, shape_of = (
        last_size(program(sinfo, body))
        for sinfo in ('R.Tensor(("n",), "float32")', 'R.Shape(["n"])')
    )
    assert str(tensor_of) == "m + n"
    assert shape_of.height > tensor_of.height


@pytest.mark.rule("DER-35")
def test_a_cast_to_a_tensor_tells_the_sign_until_its_scope_ends() -> None:
    slice_ = "R.strided_slice(R.concat((x, x), axis=1), [1], [0], [n])"
    before = program('R.Shape(["n"])', f"z = {slice_}\n        return z")
    after = program(
        'R.Shape(["n"])',
        f"y = R.match_cast(x, R.Tensor((2, n), 'float32'))\n        z = {slice_}\n        return z",
    )
    branch = program(
        'R.Shape(["n"])',
        f"""c = R.const(True, "bool")
        if c:
            y = R.match_cast(x, R.Tensor((2, n), "float32"))
            r = R.sum(y)
        else:
            r = R.sum(x)
        z = {slice_}
        return z""",
    )
    assert columns(before) == columns(branch)
    assert "if_then_else" in columns(before)
    assert "if_then_else" not in columns(after)


def test_what_is_known_in_one_function_is_not_known_in_another() -> None:
    builder = relax.BlockBuilder()
    shapes: list[str] = []
    for name, known in (("f", True), ("g", False), ("h", True)):
        x = relax.Var("x", relax.TensorStructInfo((M,), "float32"))
        sizes = relax.TensorStructInfo((N,), "float32") if known else relax.ShapeStructInfo((N,))
        s = relax.Var("s", sizes)
        with builder.function(name, [x, s]):
            twice = builder.emit(relax.op.concat((x, x)))
            part = builder.emit(relax.op.strided_slice(twice, [0], [0], [N]))
            builder.emit_func_output(part)
            shapes.append(str(part.struct_info))
    assert shapes[0] == shapes[2] != shapes[1]
    assert "if_then_else" in shapes[1]
    assert not check_well_formed(transform.LegalizeOps()(builder.get()))


def test_a_longer_form_of_a_dimension_is_the_same_annotation() -> None:
    body = """y = R.concat((x, x), axis=1)
        z: R.Tensor((2, T.min(T.max(T.if_then_else(m < 0, m + m * 2, m), 0), m * 2)), "float32") = (
            R.strided_slice(y, [1], [0], [m]))
        return z"""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mod = program("R.Object", body)
        assert not check_well_formed(mod)


def cut(v: relax.Var, begin: tir.PrimExpr, end: tir.PrimExpr) -> relax.Expr:
    return relax.op.strided_slice(v, [0], [begin], [end])


Step = Callable[[relax.BlockBuilder, relax.Var, int], relax.Expr]
REPEATED: dict[str, Step] = {
    "to a dimension": lambda _, v, i: cut(v, ops.const(0, "int64"), N),
    "from a dimension": lambda _, v, i: cut(v, M, ops.add(N, M)),
    "from any size": lambda _, v, i: cut(v, K, N),
    "named": lambda builder, v, i: builder.match_cast(
        cut(v, K, N), relax.TensorStructInfo((tir.Var(f"m{i}", "int64"),), "float32")
    ),
}


def repeated(step: Step) -> IRModule:
    """A program that doubles a vector and cuts it, again and again."""

    def body(
        builder: relax.BlockBuilder, value: relax.Var, w: relax.Var, s: relax.Var
    ) -> relax.Expr:
        for i in range(STEPS):
            value = builder.emit(relax.op.concat((value, value)))
            value = builder.emit(step(builder, value, i))
        return relax.op.sum(value)

    return built(body, tensor(N), tensor(M), shape(K))


@pytest.mark.parametrize("step", REPEATED.values(), ids=REPEATED)
def test_shapes_of_what_is_joined_and_cut_again_and_again_stay_small(step: Step) -> None:
    mod = repeated(step)
    passes = [transform.CanonicalizeBindings(), transform.LegalizeOps()]
    for result in (mod, *(one(mod) for one in passes)):
        assert len(result.script()) < 200_000
        assert not check_well_formed(result)
    x, w = np.arange(3, dtype="float32"), np.ones(2, "float32")
    args = x, w, ShapeTuple((1,))
    expected = compile(mod, target="reference")["main"](*args)
    assert np.array_equal(compile(mod, target="numpy")["main"](*args), expected)


def test_a_large_dimension_is_kept_if_the_program_states_it() -> None:
    size: tir.PrimExpr = N
    for i in range(40):
        size = ops.floordiv(size * M + i, ops.const(3, "int64"))
    infos = []

    def body(builder: relax.BlockBuilder, v: relax.Var, w: relax.Var) -> relax.Expr:
        y = builder.emit(relax.op.zeros(relax.ShapeExpr([size]), "float32"))
        z = builder.emit(relax.op.exp(y))
        twice = builder.emit(relax.op.concat((z, z)))
        infos.extend([y.struct_info, z.struct_info, twice.struct_info])
        return relax.op.sum(twice)

    mod = built(body, tensor(N), tensor(M))
    assert infos == [tensor(size), tensor(size), relax.TensorStructInfo(dtype="float32", ndim=1)]
    assert_structural_equal(from_source(mod.script()), mod)


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8, 16])
def test_equal_sections_together_have_the_dimension_that_was_split(count: int) -> None:
    x = relax.Var("x", tensor(N, 4))
    joined = relax.op.concat(relax.op.split(x, count), 0)
    assert joined.struct_info == tensor(N, 4)


@pytest.mark.parametrize("count", [3, 8])
def test_sections_after_the_end_have_no_elements(count: int) -> None:
    sections = relax.op.split(relax.Var("x", tensor(N)), count).struct_info
    assert isinstance(sections, relax.TupleStructInfo)
    for size in range(2 * count + 1):
        step, number = -(-size // count), ops.const(size, "int64")
        for k, section in enumerate(sections.fields):
            [dimension] = section.shape.values
            least = max(0, min(step, size - k * step))
            assert simplify(substitute(dimension, {N: number})).same_as(ops.const(least, "int64"))
