"""What models of `nn` become: the structure of exported modules."""

import re
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax, te, tir
from relaxpy.errors import BuilderStateError, CompileError, MisuseError, UnknownNameError
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import Tensor, op, spec
from relaxpy.script import from_source, relax as R, tir as T
from tests.ir.relax import texts
from tests.rows import sections

X = spec.Tensor(["n", 4], "float32")


def exported(method: Callable[..., Any], debug: bool = False, **inputs: Any) -> IRModule:
    """The module of a model whose only method is a function of tensors."""
    model = type("Model", (nn.Module,), {"main": lambda self, *args: method(*args)})()
    specs = [inputs[name] for name in inputs]
    method_spec = spec.MethodSpec(model.main, list(inputs), specs, "plain", "plain")
    mod, _ = model.export_tvm(spec.ModuleSpec(model, ["main"], [method_spec]), debug=debug)
    assert relax.analysis.well_formed(mod)
    return mod


def run(row: str) -> None:
    """Check that a method consists of these bindings, the last of which is the result.

    A row has the inputs, the method and the bindings: `x: f32[n, 4] <- op.exp(x)`, `a = R.exp(x)`.
    """
    head, lines = re.split(r"\n(?! )", row.strip(), maxsplit=1)
    params, _, method = head.partition(" <- ")
    inputs = re.findall(r"(\w+): (\w+)\[(.*?)\]", params)
    specs = {
        name: spec.Tensor(
            [int(d) if d.isdigit() else d for d in dims.split(", ")], texts.DTYPES[short]
        )
        for name, short, dims in inputs
    }
    *_, last = re.findall(r"^\w+", lines, re.MULTILINE)
    body = textwrap.indent(f'R.func_attr({{"num_input": {len(inputs)}}})\n{lines}', "    ")
    expected = texts.graph(f"def main({params}):\n{body}\n    result = {last}\n    return result")
    function = eval(f"lambda {', '.join(specs)}: {' '.join(method.split())}", globals())
    assert_structural_equal(exported(function, **specs), expected)


METHODS = sections("""
--- operators on elements emit calls
x: f32[3], y: f32[3] <- op.where(op.maximum(op.exp(x), y), op.gelu(x, "tanh"), op.relu6(x))
a = R.exp(x)
b = R.maximum(a, y)
c = R.nn.gelu_tanh(x)
d = R.clip(x, 0, 6)
e = R.astype(b, "bool")
f = R.where(e, c, d)
--- python operators convert numbers
x: f16[2, 4] <- ((1 - x) * 2 / x + 1).maximum(0).reshape(4, -1) < 3
a = R.subtract(R.const(1, "float16"), x)
b = R.multiply(a, R.const(2, "float16"))
c = R.divide(b, x)
d = R.add(c, R.const(1, "float16"))
e = R.maximum(d, R.const(0, "float16"))
f = R.reshape(e, (4, -1))
g = R.less(f, R.const(3, "float16"))
--- signs of bits and powers emit calls 1
k: i32[3], f: f32[3, 3] <- (abs(-k) ^ (1 << k)) & ~(k >> 2)
a = R.negative(k)
b = R.abs(a)
c = R.left_shift(R.const(1, "int32"), k)
d = R.bitwise_xor(b, c)
e = R.right_shift(k, R.const(2, "int32"))
g = R.bitwise_not(e)
h = R.bitwise_and(d, g)
--- signs of bits and powers emit calls 2
k: i32[3], f: f32[3, 3] <- f @ f**2 // 3 > 2**f
a = R.power(f, R.const(2, "float32"))
b = R.matmul(f, a)
c = R.floor_divide(b, R.const(3, "float32"))
d = R.power(R.const(2, "float32"), f)
e = R.greater(c, d)
--- signs of bits and powers emit calls 3
x: f32[3] <- (x > 0) & ~(x < 2) | (x > 3)
a = R.greater(x, R.const(0, "float32"))
b = R.less(x, R.const(2, "float32"))
c = R.logical_not(b)
d = R.logical_and(a, c)
e = R.greater(x, R.const(3, "float32"))
g = R.logical_or(d, e)
--- operators that arrange elements emit calls
x: f32[3, 2] <- op.concat([op.unsqueeze(a, 0) for a in op.split(op.sort(x), [1], 1)], dim=0)
a = R.sort(x)
b = R.split(a, [1], axis=1)
c = b[0]
d = b[1]
e = R.expand_dims(c, 0)
f = R.expand_dims(d, 0)
g = R.concat((e, f), axis=0)
--- layers without parameters use ones and zeros
x: f32[3, n] <- op.group_norm(op.layer_norm(x, x.shape[1:], eps=0.5), 1, None, None)
n = T.int64()
a = R.ones((n,), "float32")
b = R.zeros((n,), "float32")
c = R.nn.layer_norm(x, a, b, axes=[-1], epsilon=0.5)
d = R.ones((n,), "float32")
e = R.zeros((n,), "float32")
f = R.nn.group_norm(c, d, e, num_groups=1, channel_axis=1, axes=[])
--- images are convolved and resized
x: f32[1, 3, 8, 8], w: f32[8, 3, 3, 3], b: f32[8] <- op.interpolate(
    op.conv2d(op.pad(x, [0, 0, 0, 0, 1, 1, 1, 1]), w, b, stride=2), scale_factor=2)
a = R.nn.pad(x, (0, 0, 0, 0, 1, 1, 1, 1))
c = R.nn.conv2d(a, w, strides=[2, 2])
d = R.reshape(b, (1, 8, 1, 1))
e = R.add(c, d)
f = R.image.resize2d(e, (8, 8), method="nearest_neighbor",
  coordinate_transformation_mode="asymmetric")
""")


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_these_bindings(name: str) -> None:
    run(METHODS[name])


def test_a_model_with_layers_becomes_functions_of_inputs_and_parameters() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            self.first = nn.Linear(4, 8)
            self.rest = nn.ModuleList([nn.SiLU(), nn.Linear(8, "out", bias=False)])

        def forward(self, x: Tensor) -> Tensor:
            return self.rest(self.first(x))

        def half(self, x: Tensor) -> Tensor:
            return self.first(x) / 2

    mod, params = Block().export_tvm({"forward": {"x": X}, "half": {"x": X}})

    Expected = texts.graph("""
    def forward(x: f32[n, 4], weight: f32[8, 4], bias: f32[8], last: f32[out, 8]):
        R.func_attr({"num_input": 1})
        a = R.permute_dims(weight)
        b = R.matmul(x, a)
        c = R.add(b, bias)
        d = R.nn.silu(c)
        e = R.permute_dims(last)
        f = R.matmul(d, e)
        g = f
        return g

    def half(x: f32[n, 4], weight: f32[8, 4], bias: f32[8], last: f32[out, 8]):
        R.func_attr({"num_input": 1})
        a = R.permute_dims(weight)
        b = R.matmul(x, a)
        c = R.add(b, bias)
        d = R.divide(c, R.const(2.0, "float32"))
        e = d
        return e
    """)
    assert_structural_equal(mod, Expected)
    assert_structural_equal(from_source(mod.script()), mod)
    assert [name for name, _ in params] == ["first.weight", "first.bias", "rest.1.weight"]
    assert [param.dtype for _, param in params] == ["float32"] * 3


def test_effects_are_parameters_and_results() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.cache = nn.KVCache(8, [4])

        def forward(self, x: Tensor, total: tir.Var) -> Tensor:
            self.cache.append(x)
            op.print_(x)
            return self.cache.view(total)

    mod, _ = Model().export_tvm({"forward": {"x": X, "total": int}}, debug=True)
    line = re.search(r'R.str\("(.*):\d+"\)', mod.script())
    assert line is not None
    assert line[1].endswith("test_nn_export.py")
    position = line[0]
    text = f"""
@I.ir_module
class Expected:
    @R.function
    def _initialize_effect():
        with R.dataflow():
            io = R.null_value()
            zeros = R.zeros(R.shape([8, 4]), "float32")
            cache = R.call_pure_packed("vm.builtin.attention_kv_cache_create", zeros,
                R.shape([8, 4]), R.prim_value(0), sinfo_args=R.Object)
            both = (io, cache)
            result = both
            R.output(result)
        return result

    @R.function
    def forward(x: R.Tensor(("n", 4), "float32"), total: R.Shape(["t"]), io: R.Object,
                cache: R.Object):
        R.func_attr({{"num_input": 4}})
        t = T.int64()
        with R.dataflow():
            filled = R.call_inplace_packed("vm.builtin.attention_kv_cache_append", cache, x,
                inplace_indices=[0], sinfo_args=R.Object)
            printed = R.call_pure_packed("vm.builtin.invoke_debug_func", io,
                R.str("vm.builtin.debug_print"), {position}, x, sinfo_args=R.Object)
            rows = R.call_pure_packed("vm.builtin.attention_kv_cache_view", filled,
                R.shape([t, 4]), sinfo_args=R.Tensor((t, 4), "float32"))
            result = (rows, (printed, filled))
            R.output(result)
        return result
"""
    assert_structural_equal(mod, from_source(text))


def test_packed_parameters_and_effects_are_one_tuple_each() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter((4,))
            self.bias = nn.Parameter((4,))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight + self.bias

    modes = {"param_mode": "packed", "effect_mode": "packed"}
    mod, _ = Model().export_tvm({"forward": {"x": X, "$": modes}}, debug=True)

    Expected = texts.graph("""
    def forward(x: f32[n, 4], effects: R.Tuple(R.Object), params: R.Tuple(f32[4], f32[4])):
        R.func_attr({"num_input": 2})
        io = effects[0]
        weight = params[0]
        bias = params[1]
        product = R.multiply(x, weight)
        total = R.add(product, bias)
        result = (total, (io,))
        return result
    """)
    assert_structural_equal(mod["forward"], Expected["forward"])
    modes["effect_mode"] = "none"
    mod, _ = Model().export_tvm({"forward": {"x": X, "$": modes}}, debug=True)
    assert [param.name_hint for param in mod["forward"].params] == ["x", "packed_params"]


def test_inputs_may_be_tuples_integers_and_objects() -> None:
    seen: list[object] = []

    class Handle(nn.Object):
        pass

    class Model(nn.Module):
        def forward(self, pair: Any, size: tir.Var, handle: Handle) -> Any:
            seen.extend((pair, size, handle))
            return [op.reshape(pair[0], (size, -1)), handle]

    inputs = {"pair": (X, [X]), "size": "int", "handle": spec.Object(Handle)}
    mod, _ = Model().export_tvm({"forward": inputs})
    pair, size, handle = seen
    assert isinstance(pair, tuple)
    assert isinstance(pair[1], list)
    assert isinstance(size, tir.Var)
    assert isinstance(handle, Handle)
    func = mod["forward"]
    assert str(func.params[1].struct_info) == "R.Shape([size])"
    assert func.params[2].struct_info == relax.ObjectStructInfo()


def test_kernels_are_functions_of_the_module() -> None:
    @T.prim_func(private=True)
    def scale(a: T.handle, b: T.handle, factor: T.int64) -> None:
        n = T.int64()
        x = T.match_buffer(a, (n, 4), "float32")
        y = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.block("scale"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] * T.Cast("float32", factor)

    def method(x: Tensor) -> Any:
        y = op.tensor_ir_op(scale, "scale", [x, 3], Tensor.placeholder(x.shape, "float32"))
        z = op.tensor_expr_op(lambda a: te.compute(a.shape, lambda i, j: a[i, j] + 1), "inc", [y])
        return op.tensor_expr_op(
            lambda a: te.compute(a.shape, lambda i, j: a[i, j] + 1), "inc", [z], attrs={"k": 1}
        )

    mod = exported(method, x=X)
    names = {gv.name_hint for gv in mod.get_global_vars()}
    assert names == {"inc", "inc1", "main", "scale"}
    assert re.search(r"R.call_tir\(\s*cls.scale,\s*\(x,\),", mod.script())
    assert "tir_vars=R.shape([3])" in mod.script()
    assert mod["inc1"].attrs["k"] == 1


def test_kernels_leave_names_to_methods() -> None:
    class Model(nn.Module):
        def double(self, x: Tensor) -> Tensor:
            return op.tensor_expr_op(
                lambda a: te.compute(a.shape, lambda *i: a(*i) * 2), "later", [x]
            )

        def later(self, x: Tensor) -> Tensor:
            return op.tensor_expr_op(
                lambda a: te.compute(a.shape, lambda *i: a(*i) + 2), "later", [x]
            )

    mod, _ = Model().export_tvm({"double": {"x": X}, "later": {"x": X}})
    kinds = {name: type(func).__name__ for name, func in mod.functions_by_name.items()}
    kernels = dict.fromkeys(["later1", "later2"], "PrimFunc")
    assert kinds == {"double": "Function", "later": "Function", **kernels}


def test_sizes_are_cast_to_the_integers_of_a_kernel() -> None:
    @T.prim_func(private=True)
    def count(a: T.handle, b: T.handle, rows: T.int32) -> None:
        n = T.int64()
        x = T.match_buffer(a, (n, 4), "float32")
        y = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.block("count"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] + T.Cast("float32", rows)

    def method(x: Tensor) -> Any:
        return op.tensor_ir_op(
            count, "count", [x, x.shape[0]], Tensor.placeholder(x.shape, "float32")
        )

    mod = exported(method, x=spec.Tensor(["n", 4], "float32"))
    rows = np.ones((3, 4), "float32")
    np.testing.assert_array_equal(relaxpy.compile(mod)["main"](rows), rows + 3)


def test_layers_may_be_functions_of_their_own() -> None:
    class Layer(nn.Module):
        define_subroutine = True

        def __init__(self, outputs: int) -> None:
            self.weight = nn.Parameter((4, outputs))

        def forward(self, x: Tensor) -> Tensor:
            return op.matmul(x, self.weight)

    class BigModel(nn.Module):
        def __init__(self) -> None:
            self.layers = nn.ModuleList([Layer(4), Layer(4), Layer(2)])

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x)

    mod, _ = BigModel().export_tvm({"forward": {"x": X}})

    Expected = texts.graph("""
    @private
    def layer(x: f32[n, 4], weight: f32[4, 4]):
        y = R.matmul(x, weight)
        z = y
        return z

    @private
    def layer1(x: f32[n, 4], weight: f32[4, 2]):
        y = R.matmul(x, weight)
        z = y
        return z

    def forward(x: f32[n, 4], w0: f32[4, 4], w1: f32[4, 4], w2: f32[4, 2]):
        R.func_attr({"num_input": 1})
        a = cls.layer(x, w0)
        b = cls.layer(a, w1)
        c = cls.layer1(b, w2)
        d = c
        return d
    """)
    assert_structural_equal(mod, Expected)


def test_external_functions_make_a_method_impure() -> None:
    calls: list[int] = []

    class Model(nn.Module):
        def __init__(self) -> None:
            self.out = nn.ExternModule({"ext.twice": lambda x, k: x})

        def forward(self, x: Tensor) -> Tensor:
            calls.append(1)
            nn.add_extern(self.out)
            return self.out["ext.twice"](x, 2)

    mod, _, externs = Model().export_tvm({"forward": {"x": X}}, allow_extern=True)

    @R.function(pure=False)
    def forward(x: R.Tensor(("n", 4), "float32")):
        R.func_attr({"num_input": 1})
        n = T.int64()
        y = R.call_dps_packed(
            "ext.twice", (x, R.prim_value(2)), out_sinfo=R.Tensor((n, 4), "float32")
        )
        z = y
        return z

    assert_structural_equal(mod["forward"], forward)
    assert len(externs) == 1
    with pytest.raises(MisuseError, match="the model has external modules"):
        Model().export_tvm({"forward": {"x": X}})
    with pytest.raises(CompileError, match=r"no Python function is registered as ext.twice"):
        externs[0].load()
    with pytest.raises(UnknownNameError, match=r"no symbol 'ext.twic'"):
        externs[0]["ext.twic"]
    with pytest.raises(BuilderStateError, match="add_extern belongs in a method"):
        nn.add_extern(externs[0])


def test_external_modules_of_files_read_their_sources(tmp_path: Any) -> None:
    path = tmp_path / "f.cc"
    path.write_text("int f();")
    module = nn.SourceModule({"f": lambda: None}, path, "cpp")
    assert module.source_code == nn.SourceModule({}, "int f();", "cpp").source_code
    with pytest.raises(CompileError, match="calls no compiler"):
        module.compile(tmp_path / "f.o")
    with pytest.raises(MisuseError, match="expected a format cpp or cu, found 'rust'"):
        nn.SourceModule({}, "", "rust")
    with pytest.raises(MisuseError, match="there is no file"):
        nn.ObjectModule({}, tmp_path / "g.o")
    assert nn.ObjectModule({}, path).filepath == path


def test_parameters_have_values_of_their_shape_and_datatype() -> None:
    param = nn.Parameter((2, "n"), "float16")
    assert repr(param) == 'Tensor([2, n], "float16")'
    param.to("float32")
    assert (param.dtype, param.ndim, param.data) == ("float32", 2, None)
    weight = nn.Parameter((2,))
    with pytest.raises(MisuseError, match=r"shape \(2,\) cannot have a value of shape \(3,\)"):
        weight.data = np.zeros(3, "float32")
    with pytest.raises(MisuseError, match="float32 cannot have a value of float64"):
        weight.data = np.zeros(2)
    with pytest.raises(MisuseError, match="has a tensor as value, found 1"):
        weight.data = 1
    weight.data = np.ones(2, "float32")
    with pytest.raises(MisuseError, match="with a value stays float32"):
        weight.to("float16")
    weight.data = None
    assert weight.data is None


def test_the_default_datatype_is_that_of_new_parameters() -> None:
    nn.core.set_default_dtype("float16")
    try:
        assert nn.Linear(2, 2).weight.dtype == "float16"
    finally:
        nn.core.set_default_dtype("float32")
    assert nn.core.get_default_dtype() == "float32"


class Tree(nn.Module):
    def __init__(self) -> None:
        self.dtype = "float32"
        self.layers = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False)})
        self.list = nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])
        self.scales = nn.ParameterList([nn.Parameter((1,))])
        self.named = nn.ParameterDict({"p": nn.Parameter((2,))})


PATHS = ["layers.a.weight", "list.0.weight", "list.0.bias", "scales.0", "named.p"]


def test_parameters_are_found_by_their_paths() -> None:
    tree = Tree()
    assert list(tree.state_dict()) == PATHS
    assert list(tree.state_dict(prefix="m.", destination={"x": tree.scales[0]}))[:2] == [
        "x",
        "m.layers.a.weight",
    ]
    assert len(list(tree.parameters())) == 5
    tree.to("float16")
    assert {param.dtype for param in tree.parameters()} == {"float16"}
    assert tree.dtype == "float16"


def test_states_are_loaded_by_path() -> None:
    tree, other = Tree(), Tree()
    for i, param in enumerate(other.parameters()):
        param.data = np.full(param.shape, i, "float32")
    assert tree.load_state_dict(other.state_dict()) == ([], [])
    assert [param.data.flat[0] for param in tree.parameters()] == [0, 1, 2, 3, 4]
    state = other.state_dict()
    state["extra"] = state.pop("scales.0")
    with pytest.raises(KeyError, match=r"missing \['scales.0'\], unexpected \['extra'\]"):
        tree.load_state_dict(state)
    assert tree.load_state_dict(state, strict=False) == (["scales.0"], ["extra"])
    with pytest.raises(MisuseError, match=r"parameter layers.a.weight of the state has no value"):
        tree.load_state_dict(Tree().state_dict())


class Tied(nn.Module):
    def __init__(self) -> None:
        self.embed = nn.Embedding(5, 3)
        self.layer = nn.Linear(3, 3, bias=False)
        self.again = self.layer
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, i: Tensor) -> Tensor:
        return self.head(self.again(self.layer(self.embed(i))))


def test_a_parameter_at_several_paths_is_one_as_in_torch() -> None:
    torch = pytest.importorskip("torch")

    class Expected(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(5, 3)
            self.layer = torch.nn.Linear(3, 3, bias=False)
            self.again = self.layer
            self.head = torch.nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, i: Any) -> Any:
            return self.head(self.again(self.layer(self.embed(i))))

    expected, model = Expected(), Tied()
    names = [name for name, _ in expected.named_parameters()]
    assert [name for name, _ in model.named_parameters()] == names
    assert list(model.state_dict()) == list(expected.state_dict())
    inputs = {"forward": {"i": spec.Tensor((2,), "int32")}}
    mod, params = model.export_tvm(inputs)
    assert [name for name, _ in params] == names
    i = np.array([4, 1], "int32")
    result = expected(torch.from_numpy(i)).detach().numpy()
    values = [param.detach() for param in expected.parameters()]
    close = {"rtol": 1e-5, "atol": 1e-6}  # sums of products that nearly cancel
    np.testing.assert_allclose(relaxpy.compile(mod)["forward"](i, *values), result, **close)
    assert model.load_state_dict(expected.state_dict()) == ([], [])
    np.testing.assert_allclose(model.jit(inputs)(i), result, **close)


def test_values_of_a_parameter_at_several_paths_agree() -> None:
    model, layer = Tied(), np.eye(3, dtype="float32")
    weight = np.arange(15, dtype="float32").reshape(5, 3)
    for path in ("embed.weight", "head.weight"):
        assert model.load_state_dict({path: weight, "again.weight": layer}) == ([], [])
        assert model.embed.weight.data is weight
    with pytest.raises(MisuseError, match=r"embed\.weight and head\.weight are one parameter"):
        model.load_state_dict(
            {"embed.weight": weight, "head.weight": -weight, "layer.weight": layer}
        )
    with pytest.raises(UnknownNameError, match=r"missing \['layer\.weight', 'again\.weight'\]"):
        model.load_state_dict({"head.weight": weight})


def test_a_state_at_several_paths_is_one() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.cache = nn.KVCache(8, [2])
            self.again = self.cache

        def forward(self, x: Tensor) -> Tensor:
            self.cache.append(x)
            return self.again.view(1)

    x = np.array([[3, 5]], "float32")
    compiled = Model().jit({"forward": {"x": spec.Tensor((1, 2), "float32")}})
    np.testing.assert_array_equal(compiled(x), x)


def test_collections_accept_items_of_their_kind() -> None:
    tree = Tree()
    tree.list.append(nn.SiLU())
    tree.list[1] = nn.GELU()
    assert [type(layer) for layer in tree.list] == [nn.Linear, nn.GELU, nn.SiLU]
    assert (len(tree.list), len(tree.named), "p" in tree.named) == (3, 1, True)
    assert list(tree.layers) == list(tree.layers.values())
    assert list(tree.named) == list(tree.named.keys()) == ["p"]
    assert tree.named.pop("p").shape == [2]
    assert tree.named.get("p") is None
    with pytest.raises(KeyError, match="there is no item 'p'"):
        tree.named["p"]
    with pytest.raises(TypeError, match=r"expected an nn.Module, found 1"):
        tree.list.append(1)
    with pytest.raises(TypeError, match=r"expected an nn.Parameter"):
        tree.named["q"] = nn.ReLU()
    tree.layers.clear()
    assert list(tree.layers.items()) == []


def test_a_mutator_replaces_parts() -> None:
    class ToHalf(nn.Mutator):
        def visit_param(self, name: str, node: nn.Parameter) -> nn.Parameter:
            paths.append(name)
            return nn.Parameter(node.shape, "float16")

        def visit_module(self, name: str, node: nn.Module) -> Any:
            if isinstance(node, nn.ReLU):
                return nn.SiLU()
            return self.visit(name, node)

    paths: list[str] = []
    tree = ToHalf().visit_module("", Tree())
    assert paths == PATHS
    assert {param.dtype for param in tree.parameters()} == {"float16"}
    assert isinstance(tree.list[1], nn.SiLU)


def test_effects_of_users_are_replaced_and_define_their_methods() -> None:
    class First(nn.Effect):
        pass

    class Second(nn.Effect):
        pass

    class Model(nn.Module):
        def __init__(self) -> None:
            self.effect = First()

        def forward(self, x: Tensor) -> Tensor:
            return x

    class Replace(nn.Mutator):
        def visit_effect(self, name: str, node: nn.Effect) -> nn.Effect:
            return Second()

    model = Replace().visit("", Model())
    assert isinstance(model.effect, Second)
    with pytest.raises(MisuseError, match="effect Second has no method emit_init"):
        model.export_tvm({"forward": {"x": X}})


def test_names_are_where_programs_of_tvm_import_them() -> None:
    assert nn.modules.Module is nn.core.Module is nn.Module
    assert nn.modules.KVCache is nn.KVCache
    assert nn.spec.Tensor is spec.Tensor
    assert nn.relu is op.relu
    assert relax.frontend.nn is nn


def test_specifications_have_texts() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor, n: int, pair: Any) -> Tensor:
            return x

    inputs = {"x": X, "n": int, "pair": (X, "int")}
    full = spec.ModuleSpec.from_raw({"forward": inputs}, Model())
    assert repr(full) == (
        "ModuleSpec:\n  forward(x: Tensor([n, 4], 'float32'), n: int, "
        "pair: (Tensor([n, 4], 'float32'), int))"
    )
    of_values = spec.MethodSpec.from_torch([np.ones((2, 3)), 4, 5], Model().forward)
    assert repr(of_values) == "MethodSpec(x: Tensor([2, 3], 'float64'), n: int, pair: int)"


class Identity(nn.Module):
    def forward(self, x: Tensor, y: Any = None) -> Any:
        return x


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"forward": {}}, r"has parameters \['x', 'y'\], but the specification has \[\]"),
        ({"forward": {"x": X, "z": X}}, "method forward has no parameter 'z'"),
        ({"forwards": {"x": X}}, "module Identity has no method 'forwards'"),
        ({"forward": {"x": 3}}, "parameter x is specified by 3"),
        ({"forward": {"x": np.ones(2)}}, r"parameter x is specified by array\("),
        ({"forward": {"x": X, "$": {"param_mode": "flat"}}}, "param_mode is plain, packed or none"),
        ([], "a specification is a table by the names of methods"),
    ],
)
def test_specifications_that_do_not_fit_are_refused(inputs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Identity().export_tvm(inputs)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (lambda x: 1, "a method returns tensors, or tuples and lists of them, found 1"),
        (lambda x: op.add(x, 1), "expected an nn.Tensor, found 1"),
        (lambda x: x + "1", "expected an nn.Tensor or a number, found '1'"),
        (lambda x: op.matmul(x, x), "matmul"),
        (lambda x: x & x, "& is for Booleans or for integers, found float32 and float32"),
        (lambda x: x % 2, "% leaves the sign of the remainder open"),
        (lambda x: ~x, "~ is for Booleans or for integers, found float32"),
        (lambda x: op.print_(x), "need the model to be exported for debugging"),
        (lambda x: nn.KVCache(1, [4]).view(1), "a cache has a state only in a method"),
        (lambda x: nn.Module()(x), "module Module has no method forward"),
        (lambda x: op.interpolate(x), "takes either a size or a scale_factor"),
        (lambda x: op.scaled_dot_product_attention(x, x, x, x), "takes no attn_mask"),
    ],
)
def test_mistakes_in_methods_are_located(method: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(RuntimeError, match=message) as caught:
        exported(method, x=spec.Tensor([3, 4], "float32"))
    assert "test_nn_export.py" in str(caught.value)


def test_operators_need_an_export() -> None:
    x = nn.Tensor.from_const(np.ones(2, "float32"))
    with pytest.raises(BuilderStateError, match="where nothing is being exported"):
        x + x
    with pytest.raises(MisuseError, match=r"an nn.Tensor has a known shape"):
        nn.Tensor(_expr=relax.Var("x", relax.TensorStructInfo(ndim=2, dtype="float32")))


def test_exported_functions_say_what_they_return() -> None:
    mod = exported(lambda x: (op.exp(x), op.sum(x)), x=X)
    found = mod["main"].ret_struct_info
    assert isinstance(found, relax.TupleStructInfo)
    assert [str(field.dtype) for field in found.fields] == ["float32", "float32"]
    assert found == mod["main"].struct_info.ret


def test_the_transposed_weight_of_a_linear_layer_is_named_after_the_product() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            self.linear_a, self.gate = nn.Linear(4, 3, bias=False), nn.Linear(4, 3, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear_a(x) + self.gate(x)

    for mode in ("plain", "packed"):
        signature = {"x": X, "$": {"param_mode": mode, "effect_mode": "none"}}
        mod, _ = Two().export_tvm({"forward": signature})
        (block,) = mod["forward"].body.blocks
        names = [binding.var.name_hint for binding in block.bindings]
        unpacked = ["linear_a_weight", "gate_weight"] if mode == "packed" else []
        products = ["matmul_a_weight", "matmul", "permute_dims", "matmul1"]
        assert names == [*unpacked, *products, "add", "gv"]
