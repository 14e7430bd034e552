"""Exported programs of PyTorch: parameters, sizes, mutation, results, errors."""

from __future__ import annotations

import inspect
import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import AssertionFailedError, RuntimeCheckError
from relaxpy.ir.core.traverse import walk

torch: Any = pytest.importorskip("torch")
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

from relaxpy.ir import assert_structural_equal  # noqa: E402
from relaxpy.plugins.importing.unsupported import FrontendError  # noqa: E402
from relaxpy.plugins.torch.importer import Lines  # noqa: E402
from relaxpy.relax.frontend import detach_params  # noqa: E402
from relaxpy.relax.frontend.torch import dynamo_capture_subgraphs, from_exported_program, from_fx  # noqa: E402
from relaxpy.script import relax as R  # noqa: E402

TARGETS = ["numpy", "native"]


class Model(torch.nn.Module):  # type: ignore[misc]
    """A linear layer whose calls are counted, with a part of its result written."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 8)
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("shift", torch.ones(8), persistent=False)

    def forward(self, x: Any) -> Any:
        self.calls.add_(1)
        h = torch.relu_(self.linear(x)) + self.shift
        h.view(-1)[0] = 3.0
        return {"h": h, "n": x.shape[0]}


def exported(model: Any, *args: Any, **sizes: Any) -> Any:
    return torch.export.export(model.eval(), args, **sizes)


@pytest.mark.parametrize("target", TARGETS)
def test_results_are_the_new_buffers_and_then_what_the_model_returns(target: str) -> None:
    torch.manual_seed(0)
    model, batch = Model(), torch.export.Dim("batch", min=1, max=64)
    program = exported(model, torch.randn(3, 4), dynamic_shapes={"x": {0: batch}})
    mod = from_exported_program(program)
    run = relaxpy.compile(mod, target=target)["main"]
    for size in (1, 3, 5):
        x = torch.randn(size, 4)
        calls, h, n = run(x)
        model.calls.zero_()
        expected = model(x)
        assert torch.equal(calls, model.calls)
        torch.testing.assert_close(h, expected["h"].detach())
        assert int(n) == size


def test_sizes_have_the_names_that_the_user_gave() -> None:
    class Scores(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x @ y.T

    batch, time = torch.export.Dim("batch"), torch.export.Dim("time")
    args = (torch.ones(3, 4), torch.ones(6, 4))
    named = exported(Scores(), *args, dynamic_shapes={"x": {0: batch}, "y": {0: time}})
    mod = from_exported_program(named)
    assert [str(p.struct_info.shape[0]) for p in mod["main"].params] == ["batch", "time"]
    twice = exported(Scores(), *args, dynamic_shapes={"x": {0: batch}, "y": {0: 2 * batch}})
    mod = from_exported_program(twice)
    assert 'R.Tensor(("batch * 2", 4), dtype="float32")' in mod.script()


def test_parameters_are_inputs_when_asked_and_constants_over_their_memory_otherwise() -> None:
    model = torch.nn.Linear(4, 2)
    program = exported(model, torch.randn(3, 4))
    mod, params = detach_params(from_exported_program(program, keep_params_as_input=True))
    assert [p.name_hint for p in mod["main"].params] == ["input", "p_weight", "p_bias"]
    assert mod["main"].attrs["num_input"] == 1
    x = np.ones((3, 4), "float32")
    (kept,) = relaxpy.compile(mod)["main"](x, *params["main"])
    bound = from_exported_program(program, unwrap_unit_return_tuple=True)
    np.testing.assert_allclose(relaxpy.compile(bound)["main"](x), kept, rtol=1e-6)
    assert any(np.shares_memory(value, model.weight.detach().numpy()) for value in params["main"])


class Contractions(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any, w: Any) -> Any:
        y = torch.nn.functional.relu6(x @ w).clamp(0.1, 0.5)
        z = torch.nn.functional.linear(y, w)
        return torch.nn.functional.conv1d(z[None], w[:2, :, None]), torch.outer(x[0], w[0])


def test_contractions_and_bounds_are_written_as_by_the_importer_of_tvm() -> None:
    mod = from_exported_program(exported(Contractions(), torch.ones(3, 3), torch.ones(3, 3)))
    values = [binding.value for binding in mod["main"].body.blocks[0].bindings]
    calls = [value for value in values if isinstance(value, relax.Call)]
    names = [call.op.name.removeprefix("relax.") for call in calls]
    assert [name for name in names if name in ("matmul", "clip", "nn.conv1d", "outer")] == [
        *("matmul", "clip", "clip", "matmul", "nn.conv1d", "outer")
    ]
    declared = [call.attrs["out_dtype"] for call in calls if "out_dtype" in call.attrs]
    assert declared == ["float32"] * 3


class Accumulator(torch.nn.Module):  # type: ignore[misc]
    """A sum over calls, scaled by a buffer that stays."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x: Any) -> Any:
        return self.total.add_(x) * self.scale


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of PyTorch about itself
@pytest.mark.parametrize("decompositions", [None, {}], ids=["in place", "functional"])
def test_buffers_that_the_program_changes_are_copied_and_others_are_not(decompositions) -> None:
    program = exported(Accumulator(), x := torch.ones(3))
    if decompositions is not None:
        program = program.run_decompositions(decompositions)
    mod = from_exported_program(program)
    run = relaxpy.compile(mod)["main"]
    expected = [value.copy() for value in run(x.numpy())]
    program.module()(x)
    assert program.state_dict["total"].tolist() == [1, 1, 1]
    for value, was in zip(run(x.numpy()), expected, strict=True):
        np.testing.assert_array_equal(value, was)
    constants = [node.data for node in walk(mod["main"]) if isinstance(node, relax.Constant)]
    shared = [
        [np.shares_memory(value, program.state_dict[name].numpy()) for value in constants]
        for name in ("total", "scale")
    ]
    assert list(map(any, shared)) == [False, True]


def test_what_is_not_an_exported_program_is_refused_with_what_to_write() -> None:
    model = torch.nn.Linear(2, 2)
    for wrong in (model, torch.fx.symbolic_trace(model)):
        with pytest.raises(TypeError, match=r"hint: write args=\(x,\)"):
            relaxpy.compile(wrong)
    for wrong, hint in [
        ("model.pt2", "torch.export.load(path)"),
        (model, "torch.export.export(model, example_args)"),
    ]:
        with pytest.raises(TypeError, match=r"(?s)hint: .*" + re.escape(hint)):
            from_exported_program(wrong)


def test_nodes_that_cannot_be_imported_are_listed_with_the_line_of_the_model() -> None:
    class Sparse(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.to_sparse().to_dense()

    program = exported(Sparse(), torch.randn(3, 3))
    with pytest.raises(NotImplementedError, match=r"test_from_exported_program.py:\d+.*to_sparse"):
        from_exported_program(program)


def parts_of_an_even_number(x: Any) -> Any:
    first, second = x.chunk(2)
    pairs, half = x.view(x.shape[0] // 2, 2, 4), x.shape[0] // 2
    return torch.cat([second, first]), pairs.sum(1), x.reshape(2, -1), x.repeat(2, 1), x * half


@pytest.mark.parametrize("target", TARGETS)
def test_a_size_that_is_a_multiple_is_a_variable(target: str) -> None:
    half = torch.export.Dim("half", min=2, max=32)
    model = Function(parts_of_an_even_number)
    program = exported(model, torch.ones(6, 4), dynamic_shapes={"args": ({0: 2 * half},)})
    run = relaxpy.compile(from_exported_program(program), target=target)["main"]
    for size in (4, 10):
        x = torch.arange(4.0 * size).view(size, 4)
        for found, expected in zip(run(x), model(x), strict=True):
            torch.testing.assert_close(found, expected)


CONDITIONS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a range": (lambda n, m: n > 8, r"9 <= s\d+, found s\d+ = 4$"),
    "a sum": (lambda n, m: n + m > 15, r"15 < s\d+ \+ s\d+, found s\d+ = 4, s\d+ = 5$"),
    "a remainder": (lambda n, m: n % 5 == 2, r"s\d+ % 5 == 2, found s\d+ = 4$"),
}


@pytest.mark.each_choice
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize("name", CONDITIONS)
def test_sizes_that_take_another_branch_are_refused(name, is_loaded, target) -> None:
    test, message = CONDITIONS[name]
    model = Function(lambda x, y: x * 2 if test(x.shape[0], y.shape[0]) else x * 3)
    sizes = {"args": ({0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO})}
    program = exported(model, torch.ones(12), torch.ones(5), dynamic_shapes=sizes)
    if is_loaded:
        file = io.BytesIO()
        torch.export.save(program, file)
        program = torch.export.load(io.BytesIO(file.getvalue()))
    run = relaxpy.compile(from_exported_program(program), target=target)["main"]
    x = np.arange(17, dtype=np.float32)
    np.testing.assert_array_equal(run(x, x)[0], 2 * x)
    with pytest.raises(AssertionFailedError, match=message):
        run(x[:4], x[:5])


def as_written(x: Any) -> Any:
    y = x + 1
    return y.squeeze(), y.mean(-1), y.argmin(), torch.zeros_like(y), *y.unsqueeze(-1).unbind(-2)


@pytest.mark.parametrize(
    "sizes", [{}, {"dynamic_shapes": {"args": ({0: torch.export.Dim("n", min=2, max=9)},)}}]
)
def test_operators_have_the_arguments_that_the_program_has(sizes: Any) -> None:
    model, x = Function(as_written), torch.arange(8.0).view(4, 1, 2)
    mod = from_exported_program(exported(model, x, **sizes))
    squeezed = "R.squeeze(add, axis=[1])" if sizes else "R.squeeze(add)"
    others = "R.mean(add, axis=[-1])", "R.argmin(add)", "R.zeros_like(add)", "axis=[-1]"
    for text in (squeezed, *others, "indices_or_sections=2, axis=2"):
        assert text in mod.script(show_all_struct_info=False)
    for found, expected in zip(relaxpy.compile(mod)["main"](x), model(x), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_size_that_is_known_to_be_one_is_squeezed() -> None:
    model = Function(lambda x: (x[:, :, :1].squeeze(-1) + 1, x[:, :, :1].squeeze().sum(0)))
    n, m = torch.export.Dim("n", min=2, max=9), torch.export.Dim("m", min=1, max=9)
    program = exported(model, torch.ones(4, 4, 4), dynamic_shapes={"args": ({0: n, 2: m},)})
    run = relaxpy.compile(from_exported_program(program))["main"]
    for shape in ((3, 4, 1), (5, 4, 7)):
        x = torch.rand(shape)
        for found, expected in zip(run(x), model(x), strict=True):
            assert tuple(np.shape(found)) == tuple(expected.shape)
            torch.testing.assert_close(torch.as_tensor(np.asarray(found)), expected)


class Chosen(torch.nn.Module):  # type: ignore[misc]
    """Columns of the result of a linear layer, of which there are 8."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 8)

    def forward(self, x: Any, columns: Any) -> Any:
        rows = self.linear(x)
        return rows[:, columns].tanh()


_LINES = inspect.getsourcelines(Chosen)
LINE = {text.strip(): number for number, text in enumerate(_LINES[0], _LINES[1])}
CHOICE = "return rows[:, columns].tanh()"


def traced(model: Any) -> Any:
    tracer = torch.fx.Tracer()
    tracer.record_stack_traces = True
    graph = torch.fx.GraphModule(model, tracer.trace(model))
    return from_fx(graph, [((2, 4), "float32"), ((2,), "int64")])


@pytest.mark.each_choice
@pytest.mark.parametrize("target", [*TARGETS, "reference"])
@pytest.mark.parametrize("way", ["exported", "traced", "captured", "compiled"])
def test_errors_at_run_time_show_the_line_of_the_model(way: str, target: str) -> None:
    model, x = Chosen().eval(), torch.ones(2, 4)
    known, wrong, marked = torch.tensor([0, 7]), torch.tensor([0, 8]), CHOICE
    if way in ("captured", "compiled"):
        marked = "rows[:, columns].tanh()"
    if way == "compiled":
        torch._dynamo.reset()
        run = torch.compile(model, backend="relaxpy", options={"target": target})
        run(x, known)
    else:
        if way == "exported":
            mod = from_exported_program(exported(model, x, known))
        elif way == "captured":
            mod = dynamo_capture_subgraphs(model, x, known)
        else:
            mod = traced(model)
        run = relaxpy.compile(mod, target=target)[mod.get_global_vars()[0].name_hint]
    with torch.no_grad(), pytest.raises(RuntimeCheckError, match="index 8 is outside") as caught:
        run(x, wrong)
    span = caught.value.diagnostic.span
    assert (span.file, span.line) == (__file__, LINE[CHOICE])
    assert span.source.line(span.line)[span.column - 1 : span.end_column - 1] == marked


def test_reports_and_profiles_show_the_line_of_the_model() -> None:
    args = (torch.ones(2, 4), torch.tensor([0, 7]))
    ex = relaxpy.compile(from_exported_program(exported(Chosen(), *args)))
    expected = {f"{__file__}:{LINE[text]}" for text in ("rows = self.linear(x)", CHOICE)}
    assert {row.source for row in ex.report()} == expected
    assert {row.source for row in ex.profile(*args).rows if row.kind == "kernel"} == expected


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (None, None),
        ("", None),
        ("no frame", None),
        ('File "gone.py", line 3, in forward', ("gone.py:3:1", "")),
        ('File "gone.py", line 3, in f\n    y = x + 1\n', ("gone.py:3:1", "y = x + 1")),
        ('File "gone.py", line 3, in f\n    y = x + 1\n        ~~^~~\n', ("gone.py:3:5", "x + 1")),
        (f'File "{__file__}", line 1, in f\n    other()', (f"{__file__}:1:1", "other()")),
        (
            f'File "a.py", line 1, in f\n    g()\n  File "{torch.__file__}", line 9, in g\n    h()',
            ("a.py:1:1", "g()"),
        ),
        (f'File "{torch.__file__}", line 9, in g\n    h()', (f"{torch.__file__}:9:1", "h()")),
    ],
)
def test_the_line_of_a_node_is_the_innermost_one_outside_pytorch(trace: Any, expected: Any) -> None:
    node = torch.fx.Graph().placeholder("x")
    node.meta["stack_trace"] = trace
    span = Lines().span(node)
    text = span and span.source.line(span.line)[span.column - 1 : span.end_column - 1]
    assert (span and (str(span), text)) == expected


def doubled(x: Any) -> Any:
    return x, x


@pytest.mark.parametrize(
    ("function", "x", "message"),
    [
        (doubled, torch.ones(2).view(torch.bits8), "the input 'x' .*no datatype bits8"),
        (
            lambda x: "text",
            torch.ones(2),
            "a result of the program .*expected a tensor, found text",
        ),
    ],
)
def test_inputs_and_results_without_a_form_are_named(function: Any, x: Any, message: str) -> None:
    class Function(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return function(x)

    with pytest.raises(ValueError, match=message):
        from_exported_program(exported(Function(), x))


def calls(program: Any) -> list[Any]:
    return [node for node in program.graph.nodes if node.op == "call_function"]


def without_output(program: Any) -> None:
    program.graph.erase_node(program.graph.output_node())


def without_descriptions(program: Any) -> None:
    for node in program.graph.nodes:
        node.meta.clear()


def with_another_target(program: Any) -> None:
    for node in calls(program):
        node.target = print


def without_arguments(program: Any) -> None:
    for node in calls(program):
        node.args = ()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_output, "the graph has no output"),
        (without_descriptions, "does not describe its input 'p_weight'"),
        (lambda program: program.state_dict.clear(), "no tensor for 'weight'"),
        (with_another_target, "1 node .*there is no converter for it"),
        (without_arguments, "argument"),
    ],
)
def test_damaged_programs_are_refused_in_one_error(damage: Any, message: str) -> None:
    program = exported(torch.nn.Linear(4, 2), torch.randn(3, 4))
    from_exported_program(program)
    damage(program)
    with pytest.raises(FrontendError, match="(?s)" + message):
        from_exported_program(program)


def no_value(node: Any, importer: Any) -> None: ...


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "functions by names of operators, found 3"),
        ({"relu.default": 3}, "functions by names of operators"),
        ({"relu.default": no_value}, "its converter returned None"),
    ],
)
def test_converters_of_the_caller_that_cannot_be_used_are_refused(given: Any, message: str) -> None:
    program = exported(torch.nn.ReLU(), torch.ones(2))
    with pytest.raises(ValueError, match=message):
        from_exported_program(program, custom_convert_map=given)


def test_something_else_than_an_exported_program_is_refused() -> None:
    with pytest.raises(TypeError, match="expected an ExportedProgram, found Linear"):
        from_exported_program(torch.nn.Linear(2, 2))


class OfASparseMatrix(torch.nn.Module):  # type: ignore[misc]
    """A sparse matrix of the model, by which the input is multiplied."""

    def __init__(self, layout: Any) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.eye(3).to_sparse(layout=layout))

    def forward(self, x: Any) -> Any:
        return self.matrix @ x


def first_times_second(a: Any, b: Any) -> Any:
    return torch.sparse.mm(a, b)


def test_derivatives_that_pytorch_exports_as_constants_are_refused() -> None:
    """Their programs do not depend on their inputs."""
    for derivative in (torch.func.jacrev, torch.func.grad):
        program = exported(Function(derivative(lambda x: (x * x).sum())), torch.randn(3))
        with pytest.raises(FrontendError, match="while it differentiates, as a constant"):
            from_exported_program(program)


def sparse_for_a_while(x: Any) -> Any:
    return x.to_sparse().to_dense(), x.sin()


@pytest.mark.filterwarnings("ignore:Sparse CSR:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_tensors_are_refused_with_what_to_write(layout: Any) -> None:
    x = torch.ones(3, 4)
    sparse = torch.eye(3).to_sparse(layout=layout)
    name = str(layout).removeprefix("torch.")
    with pytest.raises(FrontendError, match=rf"'b_matrix' .* layout {name}; .*to_dense"):
        from_exported_program(exported(OfASparseMatrix(layout), x))
    with pytest.raises(FrontendError, match=rf"'args_0' .* layout {name}; .*to_dense"):
        from_exported_program(exported(Function(first_times_second), sparse, x))
    dense = exported(Function(lambda a, b: a @ b), sparse.to_dense(), x)
    found = relaxpy.compile(from_exported_program(dense))["main"](sparse.to_dense(), x)
    assert torch.equal(torch.as_tensor(found[0]), x)


def test_nodes_whose_results_have_no_form_are_refused() -> None:
    message = r"_to_sparse .*test_from_exported_program.*layout sparse_coo"
    with pytest.raises(NotImplementedError, match=message):
        from_exported_program(exported(Function(sparse_for_a_while), torch.ones(3, 4)))


class Function(torch.nn.Module):  # type: ignore[misc]
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def test_functions_mapped_over_batches() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    for row_by_row in (
        torch.vmap(lambda row: row.cumsum(0) * row.sum()),
        torch.vmap(torch.vmap(lambda number: number * 2 + 1)),
    ):
        mapped = Function(row_by_row)
        (found,) = relaxpy.compile(from_exported_program(exported(mapped, x)))["main"](x)
        torch.testing.assert_close(found, mapped(x))


class Paired(torch.nn.Module):  # type: ignore[misc]
    """A model whose weight is of a subclass of tensors, as quantised ones are."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(TwoTensor(torch.full([3], 2.0), torch.ones(3)))

    def forward(self, x: Any) -> Any:
        return x * self.weight.a + self.weight.b


def test_the_parts_of_weights_that_are_several_tensors() -> None:
    mod = from_exported_program(exported(Paired(), torch.zeros(4, 3)))
    (found,) = relaxpy.compile(mod)["main"](torch.full((4, 3), 5.0))
    assert torch.equal(torch.as_tensor(found), torch.full((4, 3), 11.0))


def test_products_of_matrices_of_8_bits() -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = (
        torch.randint(-128, 128, s, dtype=torch.int8, generator=draw) for s in ((17, 16), (16, 8))
    )
    f, g = a.div(64).to(torch.float8_e4m3fn), b.mT.contiguous().div(64).to(torch.float8_e4m3fn).mT
    one, each = torch.tensor(0.5), torch.tensor(0.25)
    cases: list[tuple[Any, tuple[Any, ...]]] = [
        (torch._int_mm, (a, b)),
        (torch._weight_int8pack_mm, (f.bfloat16(), b.mT.contiguous(), torch.arange(8).bfloat16())),
        (lambda *v: torch._scaled_mm(*v, out_dtype=torch.float32), (f, g, one, each)),
    ]
    for function, given in cases:
        model = Function(function)
        (found,) = relaxpy.compile(from_exported_program(exported(model, *given)))["main"](*given)
        torch.testing.assert_close(found, model(*given))


@pytest.mark.parametrize("name", ["layer_norm", "group_norm"])
def test_normalisations_are_one_operator_whatever_library_pytorch_has_for_them(name: str) -> None:
    layer = {"layer_norm": torch.nn.LayerNorm(6), "group_norm": torch.nn.GroupNorm(2, 4)}[name]
    x = torch.randn(2, 4, 6)
    mod = from_exported_program(torch.export.export(layer.eval(), (x,)))
    assert f"R.nn.{name}" in mod.script()
    (found,) = relaxpy.compile(mod)["main"](x)
    torch.testing.assert_close(found, layer(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["numpy", "native", "reference"])
def test_another_batch_names_what_to_write(target: str) -> None:
    program = torch.export.export(torch.nn.Linear(4, 2), (torch.ones(3, 4),))
    run = relaxpy.compile(from_exported_program(program), target)["main"]
    with pytest.raises(RuntimeCheckError, match="dimension 0 is 5, not 3") as caught:
        run(torch.ones(5, 4))
    assert "dynamic_shapes" in str(caught.value)
    with pytest.raises(RuntimeCheckError) as caught:
        run(torch.ones(3, 4, dtype=torch.float64))
    assert "dynamic_shapes" not in str(caught.value)


@pytest.mark.parametrize("function", [torch.addmm, torch.sparse.addmm])
def test_a_sum_with_a_product_has_the_form_of_tvms_importer(function: Any) -> None:
    class Scaled(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, a: Any, b: Any) -> Any:
            return function(x, a, b, beta=0.8, alpha=0.5)

    mod = from_exported_program(exported(Scaled(), *torch.randn(3, 4, 4).unbind()))

    @R.function
    def expected(
        x: R.Tensor((4, 4), "float32"),
        a: R.Tensor((4, 4), "float32"),
        b: R.Tensor((4, 4), "float32"),
    ):
        with R.dataflow():
            product = R.matmul(a, b, out_dtype="float32")
            scaled = R.multiply(product, R.const(0.5, "float32"))
            start = R.multiply(x, R.const(0.8, "float32"))
            total = R.add(start, scaled)
            out = (total,)
            R.output(out)
        return out

    assert_structural_equal(
        mod["main"].without_attr("global_symbol"), expected.without_attr("global_symbol")
    )


def test_a_normalisation_keeps_its_momentum() -> None:
    layer = torch.nn.BatchNorm1d(3, momentum=0.25)
    mod = from_exported_program(exported(layer, torch.randn(2, 3)))
    [call] = [n for n in walk(mod["main"]) if isinstance(n, relax.Call) and "momentum" in n.attrs]
    assert call.attrs["momentum"] == 0.25
