"""Mistakes in models of `nn` are refused with the line of the model, and with what to write."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.ir import assert_structural_equal
from relaxpy.plugins.nn.methods import INSTEAD, MODULE_INSTEAD
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import Tensor, op, spec
from relaxpy.script import from_source

X = spec.Tensor([3, 4], "float32")


def exported(forward: Callable[..., Any], **modes: str) -> IRModule:
    """The module of a model with this method, and a cache."""

    class Model(nn.Module):
        def __init__(self) -> None:
            self.cache = nn.KVCache(2, [4])
            self.weight = nn.Parameter([4], "float32")

    Model.main = forward  # type: ignore[attr-defined]
    mod, _ = Model().export_tvm({"main": {"x": X, "$": modes}})
    assert isinstance(mod, IRModule)
    return mod


def column(error: pytest.ExceptionInfo[RelaxpyError], text: str) -> str:
    """The part of the text that begins at the position of an error."""
    span = error.value.diagnostics[0].span
    assert span is not None
    assert span.file == __file__
    line = span.source.line(span.line)
    assert text in line
    return line[span.column - 1 :]


def test_the_position_of_a_mistake_is_the_call_of_the_layer() -> None:
    linear = nn.Linear(5, 2)

    def forward(self: Any, x: Tensor) -> Any:
        x = op.relu(x)
        return linear(x)

    with pytest.raises(RelaxpyError, match="the last dimension of x1 is 4") as caught:
        exported(forward)
    assert column(caught, "return linear(x)").startswith("linear(x)")


def test_positions_in_a_file_share_its_text() -> None:
    mod = exported(lambda self, x: op.exp(op.exp(x)))
    first, second = (binding.value.span for binding in mod["main"].body.blocks[0].bindings[:2])
    assert first.source is second.source
    assert first.column > second.column


@pytest.mark.parametrize(
    ("forward", "text"),
    [
        (lambda self, x: op.tanh(x) + op.ones([5]), "op.tanh(x) + op.ones([5])"),
        (lambda self, x: op.tanh(x) < "1", 'op.tanh(x) < "1"'),
        (lambda self, x: "1" / op.tanh(x), '"1" / op.tanh(x)'),
    ],
)
def test_the_position_of_a_mistake_is_the_operator(forward: Callable[..., Any], text: str) -> None:
    with pytest.raises(RelaxpyError) as caught:
        exported(forward)
    assert column(caught, text).startswith(text)


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: op.group_norm(5, 2, None, None),
        lambda self, x: op.layer_norm(5, 4),
        lambda self, x: op.multinomial_from_uniform(x, 5),
        lambda self, x: op.multinomial_from_uniform(x, x, 5),
        lambda self, x: op.sample_top_p_top_k_from_sorted_prob(x, x, x, x, 5),
        lambda self, x: op.sample_top_p_top_k_from_sorted_prob(x, x, x, x, x, 5),
    ],
)
def test_numbers_are_not_tensors(forward: Callable[..., Any]) -> None:
    with pytest.raises(MisuseError, match=r"expected an nn.Tensor, found 5"):
        exported(forward)


def test_layers_that_the_model_does_not_contain_are_refused() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.layers = [nn.Linear(4, 4), nn.Linear(4, 2)]

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    with pytest.raises(
        MisuseError, match=r"forward uses .*\(\(4, 4\).* which is not a part"
    ) as caught:
        Model().export_tvm({"forward": {"x": X}})
    assert "nn.ModuleList" in str(caught.value)


@pytest.mark.parametrize(
    ("forward", "mode"),
    [
        (lambda self, x: x + self.weight, "param_mode"),
        (lambda self, x: self.cache.append(x) or x, "effect_mode"),
    ],
)
def test_what_a_mode_leaves_out_cannot_be_used(forward: Callable[..., Any], mode: str) -> None:
    with pytest.raises(MisuseError, match=f'"{mode}": "plain"'):
        exported(forward, **{mode: "none"})


def test_numbers_of_numpy_are_operands_and_arrays_are_not() -> None:
    mod = exported(lambda self, x: np.float32(2) * x + np.int64(1) - np.float16(3))
    assert str(mod).count("R.const(") == 3
    for forward in (lambda self, x: x + np.ones(4), lambda self, x: np.ones(4) + x):
        with pytest.raises(MisuseError, match=r"expected an nn.Tensor or a number, found array"):
            exported(forward)


class Sum(nn.Module):
    define_subroutine = True

    def forward(self, first: Any, *others: Tensor, scale: float = 1, **named: Tensor) -> Tensor:
        for other in (*others, *named.values()):
            first = first + other * scale
        return first  # type: ignore[no-any-return]


def test_subroutines_take_any_arguments() -> None:
    mod = exported(lambda self, x: Sum()(x, op.exp(x), scale=2, last=op.log(x)))
    expected = """
@I.ir_module
class Expected:
    @R.function(private=True)
    def total(
        first: R.Tensor((3, 4)), others_0: R.Tensor((3, 4)), last: R.Tensor((3, 4))
    ):
        with R.dataflow():
            double = R.multiply(others_0, R.const(2.0, "float32"))
            partial = R.add(first, double)
            double1 = R.multiply(last, R.const(2.0, "float32"))
            whole = R.add(partial, double1)
            result = whole
            R.output(result)
        return result

    @R.function
    def main():
        return R.tuple()
"""
    found = mod["sum"]
    text = expected.replace("R.Tensor((3, 4))", 'R.Tensor((3, 4), "float32")')
    assert_structural_equal(found, from_source(text)["total"])
    with pytest.raises(TypeError, match=r"Sum\.forward: missing a required argument: 'first'"):
        exported(lambda self, x: Sum()())
    with pytest.raises(TypeError, match="has only tensors, found 3"):
        exported(lambda self, x: Sum()((x, 3)))


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ({"forward": None}, "specified by a table of its parameters, found None"),
        ({"training": {}}, "has no method 'training'"),
        ({"forward": {"x": X, "$": "packed"}}, r'"\$" is a table with param_mode and effect_mode'),
        ({"forward": {"x": X, "$": {"param_modes": "packed"}}}, "found {'param_modes': 'packed'}"),
    ],
)
def test_specifications_are_tables(specs: Any, message: str) -> None:
    class Model(nn.Module):
        training = False

        def forward(self, x: Tensor) -> Tensor:
            return x

    with pytest.raises(RelaxpyError, match=message):
        Model().export_tvm(specs)


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: spec.Object(int), "is nn.Object or a subclass, found class int"),
        (lambda: nn.ModuleList(3), "expected a list of nn.Module, found 3"),
        (lambda: nn.ModuleDict([nn.ReLU()]), "expected a table of nn.Module by name"),
        (lambda: nn.Conv2D(3, 4, 3, groups=2), "3 channels cannot be divided into 2 groups"),
        (lambda: nn.Conv1D(3, 4, 3, groups=0), "groups is an integer from 1, found 0"),
        (lambda: nn.Conv2D(3, 4, (3, 3, 3)), r"a window has 2 sizes, found \(3, 3, 3\)"),
        (lambda: nn.Conv3D(3, 4, 2.5), r"expected a list of sizes, found 2\.5"),
        (lambda: nn.KVCache(4, 2), "expected a list of sizes, found 2"),
        (lambda: nn.KVCache(-1, [2]), "a cache has literal sizes, found -1"),
        (lambda: nn.Linear(2, 2).load_state_dict(None), "expected a table of parameters"),
    ],
)
def test_parts_that_cannot_be_created_are_refused(create: Callable[[], Any], message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        create()


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda self, x: op.concat(x, 0), "expected a list of tensors, found Tensor"),
        (lambda self, x: op.extern("f", x, x), "expected a list of arguments, found Tensor"),
        (lambda self, x: op.tensor_expr_op(abs, "f", x), "expected a list of arguments"),
        (lambda self, x: op.group_norm(x, 2, None, None, channel_axis=2), "has no axis 2"),
        (lambda self, x: op.interpolate(x, scale_factor=2), "in layout NCHW has rank 4"),
        (
            lambda self, x: op.interpolate(op.ones([1, 1, 2, 3]), scale_factor=[2]),
            r"scale_factor is a number, or 2 of them, found \[2\]",
        ),
        (lambda self, x: op.interpolate(x, size=[2, 2], mode=3), 'a mode is "nearest", .*found 3'),
        (
            lambda self, x: op.get_timestep_embedding(op.arange(0, 3), "six"),
            "embedding_dim is an integer >= 2, found 'six'",
        ),
        (lambda self, x: self.cache.append(1), "expected an nn.Tensor, found 1"),
        (
            lambda self, x: op.renormalize_top_p_top_k_prob(x, x, 0.5, 3),
            r"expected an nn.Tensor, found 0\.5",
        ),
    ],
)
def test_arguments_of_operators_are_checked(forward: Callable[..., Any], message: str) -> None:
    with pytest.raises(MisuseError, match=message) as caught:
        exported(forward)
    assert "lambda self, x:" in str(caught.value) or "op.interpolate" in str(caught.value)


@pytest.mark.parametrize("symbols", [None, ["f"], {"f": 3}])
def test_symbols_are_functions_by_name(symbols: Any) -> None:
    with pytest.raises(MisuseError, match="symbols is a mapping from names to functions"):
        nn.ExternModule(symbols)


def test_states_may_have_arrays() -> None:
    layer = nn.Linear(2, 2, bias=False)
    layer.load_state_dict({"weight": np.ones((2, 2), "float32")})
    assert layer.weight.data is not None
    with pytest.raises(MisuseError, match="parameter of float32 cannot have a value of float64"):
        layer.load_state_dict({"weight": np.ones((2, 2))})


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda self, x: x[3], "index 3 is outside of axis 0 of size 3"),
        (lambda self, x: x[:, -5], "index -5 is outside of axis 1, which has size 4"),
        (lambda self, x: x[0, 0, 0], "a tensor of rank 2 cannot have 3 indices"),
        (lambda self, x: x[..., ...], "a subscript has one ellipsis, found two"),
        (lambda self, x: x[::0], "the stride of a slice is an integer other than 0"),
        (lambda self, x: x[:1.5], r"the bound of a slice is an integer or a scalar, found 1\.5"),
        (lambda self, x: x[x], "an index holds integers, found R.Tensor"),
        (lambda self, x: x[True], "None or a tensor of integers, found True"),
        (lambda self, x: x.transpose(0, 2), "rank 2 has no axis 2"),
        (lambda self, x: x if x.sum() > 0 else -x, r"branch on a value.*\n.*\n.*\n.*nn\.op\.where"),
        (lambda self, x: x and -x, "cannot branch on a value"),
        (lambda self, x: x.sofmax(), "an nn.Tensor has no attribute 'sofmax'"),
        (lambda self, x: x.sun(), "did you mean 'sum'"),
        (lambda self, x: x.item(), "known at run time only"),
        (lambda self, x: x.half(), 'write x.astype\\("float16"\\)'),
        (lambda self, x: np.mean(x), r"np\.mean cannot be applied to an nn.Tensor.*\n"),
        (lambda self, x: np.concatenate([x, x]), "np.concatenate cannot be applied"),
        (lambda self, x: np.maximum(x, 0), r"np\.maximum cannot be applied(.*\n)*.*nn\.op\.max"),
        (lambda self, x: np.add(x, 1), r"np\.add cannot be applied"),
        (lambda self, x: np.add.reduce(x), r"np\.add cannot be applied"),
        (lambda self, x: np.ones(4, "float32") * x, r"found array.*\n(.*\n)*.*Tensor\.from_const"),
        (lambda self, x: x.__setitem__(0, 1), "elements of a tensor of a model do not change"),
        (lambda self, x: x.__torch_function__(max, ()), "torch.max cannot be applied"),
    ],
)
def test_tensors_of_a_model_are_not_arrays(forward: Callable[..., Any], message: str) -> None:
    with pytest.raises(RelaxpyError, match=message):
        exported(forward)


def test_a_weight_that_a_layer_has_is_true() -> None:
    exported(lambda self, x: x * self.weight if self.weight else None)


@pytest.mark.parametrize(
    ("of_numpy", "of_python"),
    [
        (lambda x: np.float32(2) + x, lambda x: 2 + x),
        (lambda x: np.float32(2) - x, lambda x: 2 - x),
        (lambda x: np.float32(2) / x, lambda x: 2 / x),
        (lambda x: np.float32(2) ** x, lambda x: 2**x),
        (lambda x: np.float32(2) < x, lambda x: x > 2),
        (lambda x: np.float32(2) >= x, lambda x: x <= 2),
    ],
)
def test_numbers_of_numpy_are_left_operands(of_numpy, of_python) -> None:
    found, expected = (exported(lambda self, x, f=f: f(x)) for f in (of_numpy, of_python))
    assert_structural_equal(found, expected)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("eval", "leave it out: a model is exported for inference"),
        ("train", "relax.training trains"),
        ("half", r'model\.to\("float16"\)'),
        ("register_buffer", r"self\.name = nn\.Parameter"),
        ("summary", r"print\(model\)"),
        ("weigth", "'weight'"),
        ("named_parameter", "'named_parameters'"),
    ],
)
def test_attributes_that_a_module_lacks_have_hints(name: str, hint: str) -> None:
    layer = nn.Linear(4, 4)
    with pytest.raises(
        AttributeError, match=rf"module Linear has no attribute '{name}'\n(.*\n)*  hint: .*{hint}"
    ):
        getattr(layer, name)
    assert not hasattr(layer, name)


def test_modules_print_their_tree() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.layers = nn.ModuleList([nn.Linear(4, 4, bias=False) for _ in range(12)])
            self.act = nn.ReLU()
            self.scale = nn.Parameter((2,))

    assert repr(Model()).splitlines() == [
        "Model(",
        "  (layers): ModuleList(",
        "    (0 to 11): 12 x Linear(",
        '      (weight): Tensor([4, 4], "float32")',
        "    )",
        "  )",
        "  (act): ReLU()",
        '  (scale): Tensor([2], "float32")',
        ")",
    ]


def test_arrays_do_not_pass_through_modules_that_are_not_compiled() -> None:
    with pytest.raises(MisuseError, match=r"nothing is being exported(.*\n)*.*model\.jit\(spec\)"):
        nn.Linear(2, 2)(np.ones((1, 2), "float32"))
    with pytest.raises(MisuseError, match=r"found Linear(.*\n)*  hint: model\.jit\(spec\)"):
        relaxpy.compile(nn.Linear(2, 2))
    with pytest.raises(RelaxpyError, match=r"no parameter 'y'(.*\n)*  hint: its parameters are x"):
        nn.Linear(2, 2).export_tvm({"forward": {"y": X}})


def test_a_tensor_is_not_iterated() -> None:
    with pytest.raises(TypeError, match="not iterable"):
        exported(lambda self, x: list(x))


@pytest.mark.parametrize(
    ("space", "name", "hint"),
    [
        (nn, "Conv2d", "'Conv2D'"),
        (nn, "Linaer", "'Linear'"),
        (nn, "BatchNorm2d", "'BatchNorm2D'"),
        (nn, "functional", "nn.op"),
        (nn, "init", "load_state_dict"),
        (op, "cat", "nn.op.concat"),
        (op, "mean", r"x.mean\(axis\)"),
        (op, "sofmax", "'softmax'"),
    ],
)
def test_unknown_names_have_hints(space: Any, name: str, hint: str) -> None:
    with pytest.raises(
        AttributeError, match=rf"has no attribute '{name}'\n(.*\n)*  hint: .*{hint}"
    ):
        getattr(space, name)
    assert not hasattr(space, name)


def test_hints_name_what_exists() -> None:
    for name, hint in INSTEAD.items():
        assert not hasattr(nn, name) or not name[0].isupper()
        for found in re.findall(r"nn\.op\.(\w+)", hint):
            assert callable(getattr(op, found))
        for found in re.findall(r"(?<!R\.)\bnn\.([A-Z]\w+)", hint):
            assert isinstance(getattr(nn, found), type)
        for found in re.findall(r"\bx\.(\w+)", hint):
            assert callable(getattr(Tensor, found))
    for name, hint in MODULE_INSTEAD.items():
        assert not hasattr(nn.Module, name)
        for found in re.findall(r"\bmodel\.(\w+)", hint):
            assert callable(getattr(nn.Module, found))
