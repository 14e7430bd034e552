"""Optimisers as Relax functions: their form is TVM's, their values those of the definitions."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import BuilderStateError, MisuseError
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.training.optimizer import SGD, Adam, AdamW, MomentumSGD, Optimizer
from relaxpy.script import relax as R

Array = np.ndarray[Any, Any]


def variables(dtype: str = "float32") -> list[relax.Var]:
    shapes = {"x": (3, 3), "y": (3,)}
    return [relax.Var(n, relax.TensorStructInfo(s, dtype)) for n, s in shapes.items()]


def sgd(p: Array, g: Array, state: dict[str, Array], **options: float) -> Array:
    g = g + options["weight_decay"] * p
    return p - options["lr"] * g


def momentum(p: Array, g: Array, state: dict[str, Array], **options: float) -> Array:
    g = g + options["weight_decay"] * p
    state["v"] = options["momentum"] * state.get("v", 0 * p) + (1 - options["dampening"]) * g
    if options["nesterov"]:
        return p - options["lr"] * (g + options["momentum"] * state["v"])
    return p - options["lr"] * state["v"]


def adam(p: Array, g: Array, state: dict[str, Array], **options: float) -> Array:
    g = g + options["weight_decay"] * p
    first, second = options["betas"]  # type: ignore[misc]
    state["t"] = state.get("t", 0) + 1  # type: ignore[call-overload]
    state["m"] = first * state.get("m", 0 * p) + (1 - first) * g
    state["v"] = second * state.get("v", 0 * p) + (1 - second) * g * g
    mean = state["m"] / (1 - first ** state["t"])
    square = state["v"] / (1 - second ** state["t"])
    return p - options["lr"] * mean / (np.sqrt(square) + options["eps"])


def adam_w(p: Array, g: Array, state: dict[str, Array], **options: float) -> Array:
    decay = options["lr"] * options["weight_decay"] * p
    return adam(p, g, state, **{**options, "weight_decay": 0}) - decay


@pytest.mark.each_choice
@pytest.mark.parametrize(
    ("optimizer", "definition", "options"),
    [
        (SGD, sgd, {"lr": 0.1, "weight_decay": 0.0}),
        (SGD, sgd, {"lr": 0.1, "weight_decay": 0.3}),
        *(
            (
                MomentumSGD,
                momentum,
                {
                    "lr": 0.1,
                    "momentum": 0.9,
                    "dampening": dampening,
                    "weight_decay": decay,
                    "nesterov": nesterov,
                },
            )
            for dampening, decay, nesterov in ((0, 0, False), (0.85, 0.02, False), (0.5, 0.1, True))
        ),
        (Adam, adam, {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}),
        (Adam, adam, {"lr": 0.2, "betas": (0.8, 0.85), "eps": 1e-3, "weight_decay": 0.1}),
        (AdamW, adam_w, {"lr": 0.2, "betas": (0.8, 0.85), "eps": 1e-3, "weight_decay": 0.1}),
    ],
)
@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_steps_are_those_of_the_definition(optimizer, definition, options, target) -> None:
    built = optimizer(**options).init(variables("float64"))
    step = relaxpy.compile(built.get_function(), target=target)[built.name]
    random = np.random.default_rng(0)
    params = tuple(random.standard_normal(shape) for shape in ((3, 3), (3,)))
    expected, memory = list(params), [{}, {}]  # type: ignore[var-annotated]
    state = tuple(built.state)
    for count in range(1, 4):
        gradients = tuple(random.standard_normal(p.shape) for p in params)
        params, state = step(params, gradients, state)
        expected = [
            definition(p, g, m, **options)
            for p, g, m in zip(expected, gradients, memory, strict=True)
        ]
        assert state[0] == count
        for found, value in zip(params, expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-12, atol=1e-15)


def test_adam_w_is_that_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    built = AdamW(0.05).init(variables())
    step = relaxpy.compile(built.get_function())["AdamW"]
    random = np.random.default_rng(1)
    params = tuple(random.standard_normal(s).astype("float32") for s in ((3, 3), (3,)))
    theirs = [torch.nn.Parameter(torch.tensor(p)) for p in params]
    optimizer, state = torch.optim.AdamW(theirs, 0.05), tuple(built.state)
    for _ in range(5):
        gradients = tuple(random.standard_normal(p.shape).astype("float32") for p in params)
        params, state = step(params, gradients, state)
        for param, gradient in zip(theirs, gradients, strict=True):
            param.grad = torch.tensor(gradient)
        optimizer.step()
    for found, param in zip(params, theirs, strict=True):
        np.testing.assert_allclose(found, param.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_the_form_of_a_step() -> None:
    @R.function
    def MomentumSGD(  # noqa: N802
        params: R.Tuple(R.Tensor((3, 3), "float32")),
        gradients: R.Tuple(R.Tensor((3, 3), "float32")),
        optim_states: R.Tuple(R.Tensor((), "int64"), R.Tensor((3, 3), "float32")),
    ):
        with R.dataflow():
            num_steps = optim_states[0]
            num_steps_new = R.add(num_steps, R.const(1, "int64"))
            x = params[0]
            x_grad = gradients[0]
            x_v = optim_states[1]
            lv = R.multiply(R.const(0.02, "float32"), x)
            x_grad_new = R.add(lv, x_grad)
            lv1 = R.multiply(R.const(0.9, "float32"), x_v)
            lv2 = R.multiply(R.const(0.15, "float32"), x_grad_new)
            x_v_new = R.add(lv1, lv2)
            lv3 = R.multiply(R.const(0.9, "float32"), x_v_new)
            x_g_nest = R.add(x_grad_new, lv3)
            lv4 = R.multiply(R.const(0.01, "float32"), x_g_nest)
            x_new = R.subtract(x, lv4)
            params_new = (x_new,)
            optim_states_new = (num_steps_new, x_v_new)
            R.output(params_new, optim_states_new)
        return (params_new, optim_states_new)

    built = relax.training.optimizer.MomentumSGD(0.01, 0.9, 0.85, 0.02, True)
    found = built.init(variables()[0]).get_function()
    assert_structural_equal(found, MomentumSGD)


@pytest.mark.each_choice
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("optimizer", [SGD(0.01), MomentumSGD(0.01, 0.9), Adam(0.01), AdamW(0.01)])
def test_steps_of_narrow_parameters_are_those_of_float32_rounded(optimizer, dtype) -> None:
    steps, states = [], []
    for floats in (dtype, "float32"):
        step = relaxpy.compile(optimizer.init(variables(floats)).get_function())
        steps.append(step[optimizer.name])
        assert optimizer.state is not None
        states.append(tuple(optimizer.state))
    params = np.linspace(-1, 1, 9).reshape(3, 3).astype(dtype), np.ones(3, dtype)
    for size in (1e-4, 0, 300, 1e-7):
        gradients = np.full((3, 3), size, dtype), np.array([0, size, -size], dtype)
        found, states[0] = steps[0](params, gradients, states[0])
        wide = (tuple(x.astype("float32") for x in xs) for xs in (params, gradients))
        expected, states[1] = steps[1](*wide, states[1])
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_array_equal(x, y.astype(dtype))
        for x, y in zip(*states, strict=True):
            np.testing.assert_array_equal(x, y, strict=True)
        params = found


def test_the_state_of_adam_has_the_datatype_of_the_parameters() -> None:
    built = Adam(0.1).init(variables("float64"))
    assert built.dtype == "float64"
    assert built.state is not None
    assert [str(array.dtype) for array in built.state] == ["int64", *["float64"] * 6]
    assert [array.shape for array in built.state] == [
        (), (), (), (3, 3), (3,), (3, 3), (3,),
    ]  # fmt: skip


X, Y = variables()
N = relaxpy.tir.Var("n", "int64")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([X, X], "a parameter is there twice"),
        ([X, variables("float64")[1]], "one datatype, found float32, float64"),
        (relax.Var("t", relax.TupleStructInfo([X.struct_info])), "a tensor of floats"),
        (relax.Var("k", relax.TensorStructInfo((3,), "int64")), "a tensor of floats"),
        (relax.Tuple([X]), "params are variables"),
        ([], "params are variables"),
        ([3], "a tensor of floats"),
        (relax.Var("s", relax.TensorStructInfo((N,), "float32")), "is known numbers"),
        (relax.Var("s", relax.TensorStructInfo(None, "float32")), "is known numbers"),
    ],
)
def test_what_are_not_parameters(params: Any, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        SGD(0.01).init(params)


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: SGD("fast"), "lr is a number"),  # type: ignore[arg-type]
        (lambda: SGD(np.complex64(0.1)), "lr is a number"),  # type: ignore[arg-type]
        (lambda: SGD(0.1, None), "weight_decay is a number"),  # type: ignore[arg-type]
        (lambda: MomentumSGD(0.1, [0.9]), "momentum is a number"),  # type: ignore[arg-type]
        (lambda: Adam(0.1, betas=0.9), "betas are two numbers"),  # type: ignore[arg-type]
        (lambda: Adam(0.1, eps=True), "eps is a number"),
    ],
)
def test_options_that_are_not_numbers(create: Any, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        create()


def test_a_function_needs_parameters() -> None:
    with pytest.raises(BuilderStateError, match=r"call init\(\) for the optimizer"):
        SGD(0.01).get_function()


def test_an_optimizer_of_a_user() -> None:
    class SignSGD(Optimizer):
        name = "SignSGD"

        def updated(self, step: Any, param: Any, gradient: Any, slots: Any) -> Any:
            return R.subtract(param, R.multiply(self.number(self.lr), R.sign(gradient)))

    built = SignSGD(0.5).init(variables()[1])
    (new,), _ = relaxpy.compile(built.get_function())["SignSGD"](
        (np.zeros(3, "float32"),), (np.array([-2, 0, 3], "float32"),), tuple(built.state or ())
    )
    np.testing.assert_array_equal(new, [0.5, 0, -0.5])
