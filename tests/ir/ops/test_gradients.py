"""The gradient of an operator is the quotient of small differences of its definition in float64."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pytest

from relaxpy.exec.api.compile import compile
from relaxpy.ir import DataType, IRModule, Op
from relaxpy.ir.ops.definition.gradients import no_gradient
from relaxpy.ir.ops.definition.registry import registered_ops
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir import expr as tir
from tests.ir.ops.cases import CASES, Array, Case
from tests.ir.ops.comparison import doubles
from tests.ir.ops.variants import module
from tests.rows import draw

#: Differences are taken at each element of inputs of at most this size.
MOST_ELEMENTS = 64
NO_GRADIENT = Op("relax.grad.no_grad")


def is_compared(case: Case) -> bool:
    sizes = [x.size for x in case.inputs if x.dtype.kind == "f"]
    finite = all(np.isfinite(x).all() for x in case.inputs if x.dtype.kind == "f")
    differentiable = registered_ops()[case.operator].record.gradient is not None
    return differentiable and case.smooth and finite and 0 < sum(sizes) <= MOST_ELEMENTS


COMPARED = [case for case in CASES if is_compared(case)]


def fields(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def constant_like(sinfo: rx.StructInfo, name: str) -> list[rx.Var]:
    """Parameters for the gradients of a tensor or of the fields of a tuple."""
    fields = sinfo.fields if isinstance(sinfo, rx.TupleStructInfo) else (sinfo,)
    return [rx.Var(f"{name}{k}", field) for k, field in enumerate(fields)]


def pairs(operands: Sequence[rx.Expr], grads: Sequence[rx.Expr]) -> list[tuple[rx.Expr, rx.Expr]]:
    """Tensors and their gradients, those of the fields of tuples among them."""
    out = []
    for operand, grad in zip(operands, grads, strict=True):
        if isinstance(operand, rx.Tuple):
            items = [rx.TupleGetItem(grad, k) for k in range(len(operand.fields))]
            fields = grad.fields if isinstance(grad, rx.Tuple) else items
            out.extend(pairs(operand.fields, fields))
        elif not (isinstance(grad, rx.Call) and grad.op == NO_GRADIENT):
            out.append((operand, grad))
    return out


def gradient_program(
    case: Case, *, symbolic: bool, floats: str = "float64"
) -> tuple[IRModule, list[int], list[str]]:
    """A function from the inputs and the gradients of the results to gradients of inputs.

    Beside it, the positions of these inputs, and the datatypes of the results. `floats` is the
    datatype of all floats.
    """
    sizes: dict[int, Any] = {}
    params = []
    for k, array in enumerate(case.inputs):
        shape = [
            sizes.setdefault(n, tir.Var(f"n{n}", "int64")) if symbolic and n > 1 else n
            for n in array.shape
        ]
        dtype = floats if array.dtype.kind == "f" else array.dtype
        params.append(rx.Var(f"x{k}", rx.TensorStructInfo(tuple(shape), DataType(dtype))))  # type: ignore[arg-type]
    builder = BlockBuilder()
    call = case.call(*params)
    assert isinstance(call, rx.Call)
    assert isinstance(call.op, Op)
    sinfo = call.struct_info
    assert sinfo is not None
    given = constant_like(sinfo, "g")
    rule = registered_ops()[call.op.name].record.gradient
    assert rule is not None
    with builder.function("main", [*params, *given]):
        with builder.dataflow():
            var = builder.emit(call)
            whole = given[0] if not isinstance(sinfo, rx.TupleStructInfo) else rx.Tuple(given)
            chosen: dict[int, rx.Expr] = {}
            for operand, grad in pairs(call.args, rule(var, call, whole, builder)):
                if operand in params:
                    place = params.index(operand)  # an input that occurs twice gets both gradients
                    chosen[place] = grad if place not in chosen else chosen[place] + grad
            order = sorted(chosen)
            out = builder.emit_output(rx.Tuple([builder.emit(chosen[k]) for k in order]))
        builder.emit_func_output(out)
    return builder.finalize(), order, [str(v.struct_info.dtype) for v in given]  # type: ignore[union-attr]


def differences(case: Case, inputs: list[Array], weights: list[Array], place: int) -> Array:
    """The derivative of the weighted sum of the results by each element of one input."""
    out = np.zeros(inputs[place].shape)

    def total(moved: Array) -> float:
        with np.errstate(all="ignore"):
            found = fields(case.expected(*inputs[:place], moved, *inputs[place + 1 :]))
        return sum(float(np.sum(w * np.asarray(v))) for w, v in zip(weights, found, strict=True))

    for index in np.ndindex(*out.shape):
        step = 1e-5 * max(1.0, abs(float(inputs[place][index])))
        above, below = inputs[place].copy(), inputs[place].copy()
        above[index] += step
        below[index] -= step
        out[index] = (total(above) - total(below)) / (2 * step)
    return out


#: Operators whose rows are differences, of which differences have too few digits: those of values
#: that are compared with the rows are taken.
BY_DIFFERENCES = {"relax.grad.grid_sample_backward", "relax.grad.attention_var_len_backward"}

Derivatives: TypeAlias = tuple[list[Array], list[Array], list[Array]]


@lru_cache(maxsize=8)
def expected(number: int, dtypes: tuple[str, ...]) -> Derivatives:
    """The derivatives of a case, which its static and its symbolic program share."""
    return derivatives(COMPARED[number], dtypes)


def derivatives(case: Case, dtypes: Iterable[str]) -> Derivatives:
    """The inputs of a case, the weights of its results, and the derivatives by each input."""
    inputs = [doubles(np.asarray(x)) for x in case.inputs]
    if case.operator in BY_DIFFERENCES:
        program = module(replace(case, inputs=tuple(inputs)), tuple(inputs), "static")
        case = replace(case, expected=compile(program, "numpy")["main"])
    with np.errstate(all="ignore"):
        results = fields(case.expected(*inputs))
    random = np.random.default_rng(0)
    weights = [
        random.standard_normal(np.shape(v)).astype(dtype)
        for v, dtype in zip(results, dtypes, strict=True)
    ]
    slopes = [
        differences(case, inputs, weights, place) if x.dtype.kind == "f" else np.zeros(x.shape)
        for place, x in enumerate(inputs)
    ]
    return inputs, weights, slopes


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        rows = [
            (number, symbolic)
            for number, case in enumerate(COMPARED)
            for symbolic in (False, True)
            if not (symbolic and "numbers" in case.needs)
        ]
        drawn = draw(metafunc.config, rows, lambda row: COMPARED[row[0]].operator)
        ids = [
            f"{COMPARED[n].name}-{'symbolic' if symbolic else 'static'}" for n, symbolic in drawn
        ]
        metafunc.parametrize(("number", "symbolic"), drawn, ids=ids)


def test_the_gradient_is_that_of_the_definition(number: int, symbolic: bool) -> None:
    assert_gradient(COMPARED[number], symbolic, lambda dtypes: expected(number, tuple(dtypes)))


def assert_gradient(
    case: Case, symbolic: bool, expect: Callable[[Iterable[str]], Derivatives]
) -> None:
    """The gradient of a case has the derivatives that `expect` returns for its datatypes."""
    program, places, dtypes = gradient_program(case, symbolic=symbolic)
    inputs, weights, slopes = expect(dtypes)
    with np.errstate(all="ignore"):
        grads = fields(
            compile(program, "reference" if symbolic else "numpy")["main"](*inputs, *weights)
        )
    by_place = dict(zip(places, grads, strict=True))
    for place, slope in enumerate(slopes):
        if inputs[place].dtype.kind == "f":
            found = by_place.get(place, np.zeros(slope.shape))  # no_grad: it is 0 everywhere
            assert found.shape == slope.shape
            np.testing.assert_allclose(found, slope, rtol=1e-5, atol=1e-6)


#: Why operators have no gradient.
WITHOUT_GRADIENT = {
    "nothing is known of the derivative of the function that it calls": """
        call_builtin_with_ctx call_dps_packed call_inplace_packed call_pure_packed call_py_func
        call_tir call_tir_inplace dist.call_tir_local_view
        invoke_closure invoke_pure_closure make_closure
    """,
    "it occurs in lowered programs only, whose values share memory": """
        builtin.alloc_tensor memory.alloc_storage memory.alloc_tensor memory.kill_storage
        memory.kill_tensor memory.view memory.ensure_zero_offset
        vm.alloc_storage vm.alloc_tensor vm.call_tir_dyn vm.kill_object
    """,
    "the result holds no floats": """
        inspect.tensor_byte_offset inspect.tensor_dtype_bits inspect.tensor_dtype_code
        inspect.tensor_dtype_lanes inspect.tensor_elem_offset inspect.tensor_ndim
        inspect.tensor_shape_i inspect.tensor_stride_i
        shape_of shape_to_tensor tensor_to_shape null_value assert_op print
    """,
    "the derivative by boxes is not computed": "vision.non_max_suppression",
}
EXCEPTIONS = {f"relax.{name}" for names in WITHOUT_GRADIENT.values() for name in names.split()}


def test_operators_have_a_gradient_or_a_reason() -> None:
    ours = {n: op.record for n, op in registered_ops().items() if n.startswith("relax.")}
    without = {name for name, record in ours.items() if record.gradient is None}
    assert without == EXCEPTIONS, "pass gradient=..., which is `no_gradient` where it is 0"


def test_gradients_other_than_0_are_compared() -> None:
    rules = {case.operator: registered_ops()[case.operator].record.gradient for case in CASES}
    others = {name for name, rule in rules.items() if rule not in (None, no_gradient)}
    assert others <= {case.operator for case in COMPARED}
