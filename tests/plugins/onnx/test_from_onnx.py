"""`from_onnx`: parameters, names, shapes, opsets, errors; models made by ONNX's own helpers."""

import contextlib
import copy
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxpy
from relaxpy import relax, tir
from relaxpy.errors import RuntimeCheckError
from relaxpy.plugins.importing.unsupported import FrontendError, OpNotImplemented
from relaxpy.plugins.onnx import importer
from relaxpy.plugins.onnx.view import COPIED, NEWEST_IR, NEWEST_OPSETS, model_bytes, read_model
from relaxpy.relax.frontend import detach_params
from relaxpy.relax.frontend.onnx import from_onnx
from tests.plugins.onnx.texts import model, node_of, nodes_of
from tests.rows import table

graph_of = onnx.parser.parse_graph
Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(7)


def value(name: str, shape: Sequence[Any] | None, dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def run(proto: Any, *args: Any, **options: Any) -> Any:
    """The result on both targets, which have to agree, and of the reference."""
    mod = from_onnx(proto, **options)
    assert relax.analysis.well_formed(mod)
    results = [relaxpy.compile(mod, target)["main"](*args) for target in ("native", "numpy")]
    expected = relaxpy.compile(mod, "reference")["main"](*args)
    for found in results:
        for a, b in zip(_leaves(found), _leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return results[0]


def _leaves(found: Any) -> list[Any]:
    if isinstance(found, tuple):
        return [leaf for item in found for leaf in _leaves(item)]
    return [found]


W = RNG.standard_normal((4, 3)).astype("float32")
X = RNG.standard_normal((2, 4)).astype("float32")


def linear(**options: Any) -> Any:
    nodes = nodes_of("y = MatMul(x, w.0); z = Relu(y)")
    return model(nodes, [value("x", ["n", 4])], ["z"], {"w.0": W}, **options)


def test_initializers_are_constants_and_sizes_are_named() -> None:
    mod = from_onnx(linear())
    main = mod["main"]
    assert [param.name_hint for param in main.params] == ["x"]
    assert str(main.params[0].struct_info) == 'R.Tensor((n, 4), dtype="float32")'
    assert str(main.struct_info.ret) == 'R.Tensor((n, 3), dtype="float32")'
    assert main.attrs["num_input"] == 1
    for rows in (1, 2, 5):
        x = RNG.standard_normal((rows, 4)).astype("float32")
        np.testing.assert_allclose(run(linear(), x), np.maximum(x @ W, 0), rtol=1e-5)


@pytest.mark.filterwarnings("ignore:the input")
def test_kept_parameters_can_be_detached() -> None:
    mod = from_onnx(linear(), keep_params_in_input=True)
    assert [param.name_hint for param in mod["main"].params] == ["x", "w_0"]
    plain, params = detach_params(mod)
    assert "params" not in plain["main"].attrs
    np.testing.assert_array_equal(params["main"][0], W)
    found = relaxpy.compile(plain)["main"](X, *params["main"])
    np.testing.assert_allclose(found, np.maximum(X @ W, 0), rtol=1e-5)


def test_inputs_that_are_initializers_are_no_parameters() -> None:
    proto = linear()
    proto.graph.input.append(value("w.0", [4, 3]))
    assert len(from_onnx(proto)["main"].params) == 1


def test_shapes_and_datatypes_of_inputs_can_be_replaced() -> None:
    m = tir.Var("m", "int64")
    mod = from_onnx(linear(), shape_dict={"x": [m, 4]})
    assert mod["main"].params[0].struct_info.shape.values[0] is m
    mod = from_onnx(linear(), shape_dict={"x": [2, 4]})
    assert str(mod["main"].struct_info.ret) == 'R.Tensor((2, 3), dtype="float32")'
    proto = model(nodes_of("y = Relu(x)"), [value("x", [2])], ["y"])
    mod = from_onnx(proto, dtype_dict={"x": "float16"})
    assert str(mod["main"].struct_info.ret.dtype) == "float16"
    with pytest.raises(
        relaxpy.errors.MisuseError, match=r"has no input 'y'[\s\S]*its inputs are x"
    ):
        from_onnx(linear(), shape_dict={"y": [2]})


@pytest.mark.parametrize(
    ("name", "made"), [("a.b", "a_b"), ("0", "input_0"), ("x:0", "x:0"), ("ok", "ok")]
)
@pytest.mark.filterwarnings("ignore:the input")
def test_names_of_inputs_are_sanitized(name: str, made: str) -> None:
    proto = model([helper.make_node("Relu", [name], ["y"])], [value(name, [2])], ["y"])
    assert from_onnx(proto)["main"].params[0].name_hint == made
    kept = from_onnx(proto, sanitize_input_names=False)["main"].params[0].name_hint
    assert kept == name


@pytest.mark.parametrize(
    ("sizes", "stated", "good", "bad"),
    [
        ([["past + now"], ["past"], ["now"]], "past + now", (5, 2, 3), (6, 2, 3)),
        ([["2*n"], ["n"]], "2 * n", (6, 3), (6, 4)),
        ([["n/2"], ["n"]], "n // 2", (2, 5), (3, 5)),
        ([["n%(m - 1)"], ["n"], ["m"]], "n % (m - 1)", (1, 5, 3), (2, 5, 3)),
        ([["batch-size"], ["batch"]], "x_0", (7, 3), None),  # a name: no input has the size `size`
        ([["n+1"]], "x_0", (7,), None),
        ([["n/0"], ["n"]], "x_0", (7, 2), None),
        ([["n.m"], ["n"]], "x_0", (7, 2), None),
        ([["("], ["n"]], "x_0", (7, 2), None),
        ([["n" + "+n" * 200], ["n"]], "x_0", (7, 2), None),
    ],
)
def test_sizes_are_expressions_of_others(sizes, stated, good, bad) -> None:
    names = ["x", "y", "z"][: len(sizes)]
    nodes = [helper.make_node("Relu", [name], [f"{name}_out"]) for name in names]
    inputs = [value(name, shape) for name, shape in zip(names, sizes, strict=True)]
    mod = from_onnx(model(nodes, inputs, [f"{name}_out" for name in names]))
    assert str(mod["main"].params[0].struct_info) == f'R.Tensor(({stated},), dtype="float32")'
    main = relaxpy.compile(mod)["main"]
    main(*(np.zeros(size, "float32") for size in good))
    if bad is not None:
        with pytest.raises(relaxpy.errors.RelaxpyError):
            main(*(np.zeros(size, "float32") for size in bad))


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("place", ["initializer", "constant"])
def test_sparse_tensors_are_dense_in_relax(flat: bool, place: str) -> None:
    indices = np.array([1, 3] if flat else [[0, 1], [1, 0]], "int64")
    sparse = onnx.helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([2, -3], "float32"), "s"),
        numpy_helper.from_array(indices, "places"),
        [2, 3],
    )
    nodes = nodes_of("y = Add(x, s)")
    if place == "constant":
        nodes.insert(0, node_of("s = Constant(sparse_value=sparse)", sparse=sparse))
    proto = model(nodes, [value("x", [2, 3])], ["y"])
    if place == "initializer":
        proto.graph.sparse_initializer.append(sparse)
    x = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(run(proto, x), [[1, 3, 1], [-2, 1, 1]])


@pytest.mark.parametrize(
    ("dims", "indices", "message"),
    [
        ([1 << 40, 1 << 40], [1, 3], "expected one of at most"),
        ([2, -3], [1, 3], "expected one of at most"),
        ([2, 3], [1, 6], "an index is outside the shape"),
        ([2, 3], [-1, 3], "an index is outside the shape"),
        ([2, 3], [[0, 1], [2, 0]], "is damaged"),
        ([2, 3], [0, 1, 2], r"has 2 elements and \(3,\) indices"),
    ],
)
def test_sparse_tensors_that_do_not_fit_are_refused(dims, indices, message) -> None:
    sparse = onnx.SparseTensorProto(
        values=numpy_helper.from_array(np.array([2, -3], "float32"), "s"),
        indices=numpy_helper.from_array(np.array(indices, "int64"), "places"),
        dims=dims,
    )
    proto = model(nodes_of("y = Add(x, s)"), [value("x", [2, 3])], ["y"])
    proto.graph.sparse_initializer.append(sparse)
    with pytest.raises(FrontendError, match=message):
        from_onnx(proto)


def test_several_outputs_are_a_tuple() -> None:
    nodes = nodes_of("a, b = Split(x, axis=1, num_outputs=2)")
    first, second = run(
        model(nodes, [value("x", ["n", 5])], ["a", "b"]), np.ones((2, 5), "float32")
    )
    assert (first.shape, second.shape) == ((2, 3), (2, 2))


def test_a_chain_of_shapes_becomes_a_symbolic_shape() -> None:
    """Shape, Gather, Unsqueeze, Concat, Reshape: one expression, no tensor is computed."""
    nodes = nodes_of("""
        s = Shape(x); n = Gather(s, zero); n1 = Unsqueeze(n, axes);
        shape = Concat(n1, rest, axis=0); y = Reshape(x, shape)
    """)
    initializers = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1, 2])}
    proto = model(nodes, [value("x", ["n", "m", 4])], ["y"], initializers)
    mod = from_onnx(proto)
    text = mod.script()
    assert "shape_to_tensor" not in text
    assert "tensor_to_shape" not in text
    assert str(mod["main"].struct_info.ret) == 'R.Tensor((n, m * 2, 2), dtype="float32")'
    x = RNG.standard_normal((3, 5, 4)).astype("float32")
    np.testing.assert_array_equal(run(proto, x), x.reshape(3, -1, 2))


def test_sizes_that_a_scale_multiplies_stay_expressions() -> None:
    nodes = nodes_of("""
        s = Shape(x); f = Cast(s, to=FLOAT); g = Mul(f, half); h = Floor(g); i = Cast(h, to=INT64);
        y = ConstantOfShape(i)
    """)
    proto = model(nodes, [value("x", ["n"])], ["y"], {"half": np.array(0.5, "float32")})
    assert str(from_onnx(proto)["main"].struct_info.ret) == 'R.Tensor((n // 2,), dtype="float32")'
    assert run(proto, np.ones(7, "float32")).shape == (3,)


@pytest.mark.each_choice
@pytest.mark.parametrize(
    ("op", "operands", "expected"),
    [
        ("Reshape", {"shape": np.array([2, -1])}, lambda x: x.reshape(2, -1)),
        ("Reshape", {"shape": np.array([0, 1, 6])}, lambda x: x.reshape(4, 1, 6)),
        ("Expand", {"shape": np.array([3, 1, 1])}, lambda x: np.broadcast_to(x, (3, 4, 6))),
        ("Tile", {"repeats": np.array([2, 3])}, lambda x: np.tile(x, (2, 3))),
        ("Unsqueeze", {"axes": np.array([0, -1])}, lambda x: x[None, :, :, None]),
        ("ReduceSum", {"axes": np.array([-1])}, lambda x: x.sum(-1, keepdims=True)),
        ("ReduceMax", {"axes": np.array([0])}, lambda x: x.max(0, keepdims=True)),
        ("CumSum", {"axis": np.array(-1)}, lambda x: x.cumsum(-1, dtype="float32")),
        ("Trilu", {"k": np.array(1)}, lambda x: np.triu(x, 1)),
        ("Pad", {"pads": np.array([0, 1, 2, 0])}, lambda x: np.pad(x, [(0, 2), (1, 0)])),
        (
            "Slice",
            {"starts": np.array([1]), "ends": np.array([-1]), "axes": np.array([1])},
            lambda x: x[:, 1:-1],
        ),
    ],
)
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("symbolic", [True, False])
def test_shapes_and_axes_are_constants_or_known_at_run_time(
    op: str, operands: dict[str, Array], expected: Any, constant: bool, symbolic: bool
) -> None:
    x = RNG.standard_normal((4, 6)).astype("float32")
    inputs = [value("x", ["n", "m"] if symbolic else [4, 6])]
    if not constant:
        inputs += [value(k, a.shape, TensorProto.INT64) for k, a in operands.items()]
    proto = model(
        [helper.make_node(op, ["x", *operands], ["y"])],
        inputs,
        ["y"],
        operands if constant else None,
        opset=22,
    )
    found = run(proto, x, *([] if constant else operands.values()))
    np.testing.assert_allclose(found, expected(x), rtol=1e-5)


@pytest.mark.each_choice
@pytest.mark.parametrize("symbolic", [True, False])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    ("op", "x", "operands", "expected"),
    [
        ("Tile", np.zeros((3, 0), "float32"), {"repeats": np.array([0, 1])}, np.zeros((0, 0))),
        ("Reshape", np.zeros((0, 1), "float32"), {"shape": np.array([1, -1])}, np.zeros((1, 0))),
        (
            "Slice",
            np.arange(3, dtype="float32"),
            {
                "starts": np.array([-4]),
                "ends": np.array([-(2**63)]),
                "axes": np.array([0]),
                "steps": np.array([-2]),
            },
            np.zeros(1),
        ),
        ("Hardmax", np.zeros((3, 0), "float32"), {}, np.zeros((3, 0))),
        ("ReduceLogSumExp", np.array([3, 3], "int32"), {"axes": np.array([0])}, np.array([3])),
    ],
)
def test_sizes_of_zero_and_indices_beyond_the_ends(op, x, operands, expected, symbolic, constant):
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    names = [f"n{k}" for k in range(x.ndim)] if symbolic else list(x.shape)
    inputs = [value("x", names, kind)]
    if not constant:
        inputs += [value(k, a.shape, TensorProto.INT64) for k, a in operands.items()]
    node = helper.make_node(op, ["x", *operands], ["y"])
    proto = model([node], inputs, ["y"], operands if constant else None)
    found = run(proto, x, *([] if constant else operands.values()))
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, expected)


def test_functions_of_the_model_are_inlined_with_their_attributes() -> None:
    scaled = onnx.parser.parse_function("""
        <domain: "own", opset_import: ["" : 21]> Scaled <factor> (x) => (y)
            { c = Constant <value_float: float = @factor> () y = Mul(x, c) }
    """)
    nodes = nodes_of("a = own::Scaled(x, factor=2.0); b = own::Scaled(a, factor=3.0)")
    proto = model(nodes, [value("x", [4])], ["b"], functions=[scaled], domains=[("own", 1)])
    np.testing.assert_allclose(run(proto, X[0]), X[0] * 6, rtol=1e-6)


@pytest.mark.parametrize(
    ("opset", "attributes", "expected"),
    [
        (11, {"axis": 1}, lambda e: e / e.sum((1, 2), keepdims=True)),
        (11, {}, lambda e: e / e.sum((1, 2), keepdims=True)),
        (9, {"axis": 3}, np.ones_like),  # one element in each row of the matrix
        (13, {"axis": 1}, lambda e: e / e.sum(1, keepdims=True)),
        (13, {}, lambda e: e / e.sum(-1, keepdims=True)),
    ],
)
def test_an_operator_means_what_it_does_in_its_opset(opset, attributes, expected) -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"], **attributes)]
    x = RNG.standard_normal((2, 3, 4)).astype("float32")
    found = run(model(nodes, [value("x", [2, 3, 4])], ["y"], opset=opset), x)
    np.testing.assert_allclose(found, expected(np.exp(x)), rtol=1e-5)


def test_sizes_are_tensors_where_a_model_returns_them() -> None:
    nodes = nodes_of("s = Shape(x); f = Cast(s, to=FLOAT); y = Div(f, four)")
    proto = model(nodes, [value("x", ["n", 3])], ["s", "y"], {"four": np.array(4, "float32")})
    sizes, quarters = run(proto, np.zeros((2, 3), "float32"))
    np.testing.assert_array_equal(sizes, [2, 3])
    np.testing.assert_array_equal(quarters, np.array([0.5, 0.75], "float32"))


def deciding_ranks(count: int) -> Any:
    """A model in which so many branches each decide the rank of a value."""
    nodes, name = [], "x"
    for k in range(count):
        then = helper.make_node("Unsqueeze", [name, "zero"], [f"t{k}"])
        other = helper.make_node("Identity", [name], [f"e{k}"])
        ways = {
            f"{way}_branch": helper.make_graph([node], way, [], [onnx.ValueInfoProto(name=out)])
            for way, node, out in (("then", then, f"t{k}"), ("else", other, f"e{k}"))
        }
        nodes.append(helper.make_node("If", [f"c{k}"], [f"y{k}"], **ways))
        nodes.append(helper.make_node("ReduceSum", [f"y{k}"], [f"z{k}"]))
        nodes.append(helper.make_node("Reshape", [f"z{k}", "one"], [f"r{k}"]))
        name = f"r{k}"
    inputs = [value("x", [3])] + [value(f"c{k}", [], TensorProto.BOOL) for k in range(count)]
    return model(nodes, inputs, [name], {"zero": np.array([0]), "one": np.array([1])})


@pytest.mark.parametrize("choices", [(True, False), (False, False), (True, True)])
def test_branches_that_decide_ranks_lead_to_the_rest_of_the_graph(choices) -> None:
    found = run(deciding_ranks(2), np.ones(3, "float32"), *map(np.array, choices))
    np.testing.assert_array_equal(found, [3])


def test_branches_that_decide_too_many_ranks_are_refused() -> None:
    with pytest.raises(OpNotImplemented, match="the rank of an operand is not known"):
        from_onnx(deciding_ranks(9))


def test_all_nodes_that_cannot_be_imported_are_in_one_error() -> None:
    nodes = [
        helper.make_node("Nope", ["x"], ["a"], name="first"),
        *nodes_of("b = Relu(a); c = com.example::Also(x); d = Clip(x, wrong=1)"),
    ]
    proto = model(nodes, [value("x", ["n", 4])], ["b", "c", "d"], domains=[("com.example", 3)])
    with pytest.raises(OpNotImplemented) as caught:
        from_onnx(proto)
    text = str(caught.value)
    assert "3 nodes of the ONNX model cannot be imported" in text
    assert "node 'first': Nope of ai.onnx 21(x: R.Tensor((n, 4)" in text
    assert "node 2: Also of com.example 3" in text
    assert "no converter" in text
    assert "attribute 'wrong'" in text
    assert [node.where for node in caught.value.nodes] == ["node 'first'", "node 2", "node 3"]
    assert isinstance(caught.value, NotImplementedError)


def test_nodes_that_no_output_needs_are_not_imported() -> None:
    body = graph_of("body () => (float[] negative) { negative = Neg(kept) }")
    nodes = [
        *nodes_of("a = Nope(x); b = Relu(a)"),
        node_of("kept = Abs(x)"),  # only a branch reads it
        node_of("y = If(c, then_branch=body, else_branch=body)", body=body),
    ]
    inputs = [value("x", [2]), value("c", [], TensorProto.BOOL)]
    found = run(model(nodes, inputs, ["y"]), np.array([-1, 2], "float32"), np.array(True))
    np.testing.assert_array_equal(found, [-1, -2])
    nodes[1].input[0] = "nowhere"
    with pytest.raises(FrontendError, match="uses 'nowhere', which no node before it defines"):
        from_onnx(model(nodes, inputs, ["y"]))


def test_nodes_may_stand_before_those_that_define_what_they_read() -> None:
    body = graph_of("body () => (float[] n) { n = Neg(late) e = Exp(x) }")
    nodes = nodes_of(
        """
        a = If(c, then_branch=body, else_branch=body); y = Add(b, a); late = Abs(x); b = Relu(late)
    """,
        body=body,
    )
    inputs = [value("x", [2]), value("c", [], TensorProto.BOOL)]
    found = run(model(nodes, inputs, ["y"]), np.array([-1, 2], "float32"), np.array(True))
    np.testing.assert_array_equal(found, [0, 0])
    nodes[2].input[0] = "y"
    with pytest.raises(FrontendError, match="which no node before it defines"):
        from_onnx(model(nodes, inputs, ["y"]))


def _bad_node(**changes: Any) -> Any:
    proto = linear()
    for name, new in changes.items():
        getattr(proto.graph.node[0], name)[:] = new
    return proto


def _with(change: Any) -> Any:
    proto = linear()
    change(proto)
    return proto


def _loop(nodes: str) -> Any:
    """A loop of a body that is the nodes, with its condition `a` before and `b` after."""
    body = graph_of(f"""
        body (int64 k, bool a, float[2, 4] s) => (bool b, float[2, 4] t)
            {{ {nodes} t = Identity(s) }}
    """)
    node = node_of("y = Loop(n, go, x, body=body)", body=body)
    given = {"n": np.array(3), "go": np.array(True)}
    return model([node], [value("x", [2, 4])], ["y"], given)


def test_versions_that_are_not_known_yet_are_warned_of() -> None:
    newest = onnx.helper.VERSION_TABLE[-1]
    versions = [("", newest[2]), ("ai.onnx.ml", newest[3]), ("ai.onnx.preview.training", newest[4])]
    assert dict(versions) == NEWEST_OPSETS
    assert newest[1] == NEWEST_IR
    known = linear()
    known.opset_import.extend(onnx.helper.make_opsetid(*pair) for pair in versions[1:])
    known.opset_import[0].version, known.ir_version = newest[2], newest[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_onnx(known)
    for k, (domain, version) in enumerate(versions):
        later = copy.deepcopy(known)
        later.opset_import[k].version += 1
        message = f"opset {version + 1} of {domain or 'ai.onnx'}, the newest .* is {version}:"
        with pytest.warns(UserWarning, match=message) as found:
            from_onnx(later)
        assert found[0].filename == __file__
    known.ir_version += 1
    with pytest.warns(UserWarning, match=f"IR version {newest[1] + 1}, .* is {newest[1]}:"):
        from_onnx(known)


def test_files_that_cannot_be_read_are_errors_of_the_system_too(tmp_path: Path) -> None:
    for path, kind in ((tmp_path / "absent.onnx", FileNotFoundError), (tmp_path, OSError)):
        with pytest.raises(FrontendError) as found:
            from_onnx(path)
        assert isinstance(found.value, kind)


_WRONG: dict[str, tuple[Any, str]] = {
    "no model": (b"\xff\xff\xff", "not an ONNX model"),
    "truncated": (linear().SerializeToString()[:-20], "not an ONNX model"),
    "empty": (b"", "not an ONNX model: it is empty"),
    "no graph": (b"\x08\x08", "not an ONNX model: it has no graph"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\n", "hint: .* `git lfs pull`"),
    "a list": ([1, 2], "takes a ModelProto of onnx, a path, or bytes"),
    "missing file": ("absent.onnx", "absent.onnx: No such file"),
    "unknown name": (_bad_node(input=["q", "w.0"]), "node 0 uses 'q', which no node before it"),
    "cycle": (_bad_node(input=["z", "w.0"]), "node 1 uses 'y', which no node before it"),
    "cycle of conditions": (
        _loop("b = Identity(c) c = Identity(b)"),
        "node 1 uses 'b', which no node before it",
    ),
    "no condition": (_loop("b = Identity()"), "Identity of ai.onnx 21: operand x is missing"),
    "defined twice": (_bad_node(output=["z"]), "uses 'y', which no node before it|second time"),
    "old IR": (_with(lambda p: setattr(p, "ir_version", 2)), "IR version 2"),
    "no version": (
        _with(lambda p: setattr(p.opset_import[0], "version", -1)),
        "imports version -1 of the domain 'ai.onnx', expected a number from 1",
    ),
    "huge version": (
        _with(lambda p: setattr(p.opset_import[0], "version", 1 << 40)),
        "imports version 1099511627776 of the domain 'ai.onnx'",
    ),
    "huge": (
        _with(lambda p: p.graph.initializer[0].dims.__setitem__(0, 1 << 40)),
        "tensor 'w.0' of .* has 48 bytes, expected",
    ),
    "more than memory": (
        _with(lambda p: p.graph.initializer[0].dims.extend([1 << 62] * 300)),
        r"tensor 'w.0' has the shape \(4, 3, 4611686018427387904, ",
    ),
    "negative size": (
        _with(lambda p: p.graph.initializer[0].dims.__setitem__(0, -4)),
        r"tensor 'w.0' has the shape \(-4, 3\)",
    ),
    "unknown type": (
        _with(lambda p: setattr(p.graph.initializer[0], "data_type", 77)),
        "no element type 77",
    ),
    "complex": (
        _with(lambda p: setattr(p.graph.initializer[0], "data_type", TensorProto.COMPLEX64)),
        "no tensors of COMPLEX64",
    ),
    "external without folder": (
        _with(lambda p: setattr(p.graph.initializer[0], "data_location", TensorProto.EXTERNAL)),
        "the data of tensor 'w.0' is in the file",
    ),
    "defines an input": (_bad_node(output=["x"]), "defines 'x' for the second time"),
    "defines an initializer": (_bad_node(output=["w.0"]), "defines 'w.0' for the second time"),
    "two initializers": (
        _with(lambda p: p.graph.initializer.append(p.graph.initializer[0])),
        "two initializers 'w.0'",
    ),
    "two attributes": (
        _with(lambda p: p.graph.node[0].attribute.extend([helper.make_attribute("to", 1)] * 2)),
        "node 0 has two attributes 'to'",
    ),
    "two inputs": (_with(lambda p: p.graph.input.append(p.graph.input[0])), "two inputs 'x'"),
}


@pytest.mark.parametrize("case", _WRONG)
def test_files_that_are_not_well_formed_have_clear_errors(case: str) -> None:
    proto, message = _WRONG[case]
    with pytest.raises(FrontendError, match=message):
        from_onnx(proto)


def test_functions_that_call_each_other_without_end_are_refused() -> None:
    again = onnx.parser.parse_function(
        '<domain: "own", opset_import: ["own" : 1]> F (x) => (y) { y = own.F(x) }'
    )
    nodes = nodes_of("y = own::F(x)")
    proto = model(nodes, [value("x", [4])], ["y"], functions=[again], domains=[("own", 1)])
    with pytest.raises(FrontendError, match="without end"):
        from_onnx(proto)


def test_external_data_are_mapped_from_the_folder_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save_model(
        linear(), path, save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    found = relaxpy.compile(from_onnx(path))["main"](X)
    np.testing.assert_allclose(found, np.maximum(X @ W, 0), rtol=1e-5)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"location": "../outside.bin"}, "not a file in the model's folder"),
        ({"location": "/etc/hostname"}, "not a file in the model's folder"),
        ({"location": "link.bin"}, "not a file in the model's folder"),
        ({"location": "absent.bin"}, "not a file in the model's folder"),
        ({"location": "weights.bin", "offset": "16"}, "needs 48 bytes from 16"),
        ({"location": "weights.bin", "offset": "-8"}, "needs 48 bytes from -8"),
        ({"location": "weights.bin", "length": "12"}, "the model says 12"),
        ({"location": "weights.bin", "offset": "many"}, "no numbers for its place"),
    ],
)
def test_external_data_stay_in_the_folder(place, message, tmp_path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in (folder / "weights.bin", tmp_path / "outside.bin"):
        file.write_bytes(W.tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    proto = linear()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in place.items():
        tensor.external_data.add(key=key, value=text)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(FrontendError, match=message):
        from_onnx(path)


@pytest.mark.filterwarnings("ignore:the input")
def test_names_may_be_bytes_that_are_no_text() -> None:
    data = linear().SerializeToString().replace(b"w.0", b"w\xff0")
    np.testing.assert_allclose(
        relaxpy.compile(from_onnx(data))["main"](X), np.maximum(X @ W, 0), 1e-5
    )


def test_the_model_is_not_changed() -> None:
    proto = linear()
    before = proto.SerializeToString()
    from_onnx(proto, keep_params_in_input=False)
    assert proto.SerializeToString() == before


def test_importing_relaxpy_does_not_import_onnx() -> None:
    program = "import sys, relaxpy.relax.frontend; print('onnx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_without_onnx_the_error_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['onnx'] = None\n"
        "try:\n    from relaxpy.relax.frontend.onnx import from_onnx\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'relaxpy[onnx]'" in done.stdout, done.stderr


HUGE = 1 << 40


def nested_calls(depth: int) -> Any:
    """Functions each of which calls the next one twice."""
    ops = [*(f"own.F{k + 1}" for k in range(depth)), "Relu"]
    functions = [
        onnx.parser.parse_function(f"""
            <domain: "own", opset_import: ["own" : 1, "" : 21]> F{k} (x) => (y)
                {{ t = {op}(x) y = {op}(t) }}
        """)
        for k, op in enumerate(ops)
    ]
    node = node_of("y = own::F0(x)")
    return model([node], [value("x", [2])], ["y"], functions=functions, domains=[("own", 1)])


def test_all_tensors_that_are_computed_at_import_have_a_bound(monkeypatch) -> None:
    monkeypatch.setattr("relaxpy.plugins.onnx.importer._MAX_FOLDED", 1400)
    names = [f"y{k}" for k in range(6)]
    shape = {"shape": np.array([10, 10])}
    nodes = [helper.make_node("ConstantOfShape", ["shape"], [name]) for name in names]
    proto = model(nodes, [], names, shape)
    text = from_onnx(proto).script(show_meta=True)
    assert text.count("R.zeros") + text.count("R.full") == 3
    for found in run(proto):
        np.testing.assert_array_equal(found, np.zeros((10, 10), np.float32))


@pytest.mark.parametrize(
    ("op", "operands"),
    [
        ("Expand", ["x", "sizes"]),
        ("ConstantOfShape", ["sizes"]),
        ("Reshape", ["x", "sizes"]),
        ("Tile", ["x", "sizes"]),
        ("Pad", ["x", "sizes"]),
        ("Slice", ["x", "sizes", "sizes"]),
        ("Unsqueeze", ["x", "sizes"]),
        ("Squeeze", ["x", "sizes"]),
        ("Resize", ["x", "", "", "sizes"]),
    ],
)
def test_a_vector_of_a_million_sizes_is_no_shape(op: str, operands: list[str]) -> None:
    inputs = [value("x", [1, 3]), value("sizes", [10**6], TensorProto.INT64)]
    proto = model([helper.make_node(op, operands, ["y"])], inputs, ["y"])
    tracemalloc.start()
    try:
        with pytest.raises(OpNotImplemented):
            from_onnx(proto)
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "node",
    nodes_of(
        """
        y = Range(a, b, one); y = ConstantOfShape(square); y = Tile(one1, square);
        y = Expand(one1, square); y = HannWindow(b); y = DFT(x, b); y = LRN(x, size=HUGE);
        y = Split(x, num_outputs=HUGE); y = OneHot(one1, b, one1); y = SplitToSequence(wide, one);
        y = Det(wide)
    """,
        HUGE=HUGE,
    ),
    ids=lambda node: node.op_type,
)
def test_sizes_that_no_memory_holds_need_none_to_be_imported(node: Any) -> None:
    """What fits is imported, as the sizes could be those of a program that is not run."""
    initializers = {
        "a": np.array(0),
        "b": np.array(HUGE),
        "one": np.array(1),
        "one1": np.array([1, 1]),
        "square": np.array([HUGE, HUGE]),
    }
    inputs = [value("x", [1, 8, 2]), value("wide", [HUGE, HUGE])]
    proto = model([node], inputs, ["y"], initializers, opset=18)
    tracemalloc.start()
    with contextlib.suppress(OpNotImplemented):
        from_onnx(proto)
    assert tracemalloc.get_traced_memory()[1] < 40e6
    tracemalloc.stop()


def test_functions_that_multiply_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "_MAX_NODES", 5000)
    with pytest.raises(FrontendError, match="more than 5000 nodes"):
        from_onnx(nested_calls(40))


def test_chains_that_double_a_shape_stay_small() -> None:
    nodes = nodes_of("s0 = Shape(x)")
    nodes += [helper.make_node("Concat", [f"s{k}"] * 2, [f"s{k + 1}"], axis=0) for k in range(30)]
    mod = from_onnx(model(nodes, [value("x", ["n"])], ["s30"]))
    assert mod["main"].struct_info.ret.shape.values[0] == 1 << 30


BODY = graph_of("body (float[] item) => (float[] out) { out = Relu(item) }")
#: ONNX writes this as text, in which names have no such points, and reads it again.
DOTTED = helper.make_graph(
    nodes_of("t = Mul(s, a.b)"),
    *("score", [value("s", [1, 1, 2, 2])], [value("t", [1, 1, 2, 2])]),
    [numpy_helper.from_array(np.float32(2), "a.b")],
)
_ILL_TYPED = table(r"""
SequenceMap(x, body=BODY) => operand input_sequence is tensor.float.
SequenceMap(, x, body=BODY) => operand input_sequence is missing
SequenceMap(s, body=3) => attribute 'body' has the type INT, expected GRAPH
SequenceMap(s) => attribute 'body' is missing
SequenceMap(s, body=BODY, more=1) => attribute 'more' is not known
LinearAttention(x, q_num_heads=1, kv_num_heads=1) => it has 1 operands
LinearAttention(x, i, x, q_num_heads=1, kv_num_heads=1) => key is tensor.int64
LinearAttention(x, h, x, q_num_heads=1, kv_num_heads=1) => expected tensor.float.
CausalConvWithState(x, ) => operand weight is missing
ai.onnx.preview::FlexAttention(q, q, q, score_mod=DOTTED) => ONNX builds no body for it:
""")


@pytest.mark.parametrize(("node", "message"), _ILL_TYPED)
def test_native_code_of_onnx_sees_no_operands_that_schemas_refuse(node: str, message: str) -> None:
    """It builds bodies that depend on types, and trusts its arguments."""
    nodes = nodes_of(f"s = SequenceConstruct(x, x); y = {node}", BODY=BODY, DOTTED=DOTTED)
    inputs = [value("x", [1, 2, 4]), value("i", [1], TensorProto.INT64)]
    inputs += [value("h", [1, 2, 4], TensorProto.FLOAT16), value("q", [1, 1, 2, 2])]
    domains = [("ai.onnx.preview", 1)]
    with pytest.raises(OpNotImplemented, match=message):
        from_onnx(model(nodes, inputs, ["y"], opset=28, domains=domains))


_ILL_SHAPED = table(r"""
Reshape(x, four) => size 3 is to be copied of 3 sizes
SpaceToDepth(x, blocksize=2) => expected a tensor of rank 4, found rank 3
ConstantOfShape(two, value=1) => attribute 'value' has the type INT
Cast(x, to=[1]) => attribute 'to' has the type INTS, expected INT
Constant(value=1) => attribute 'value' has the type INT, expected TENSOR
Constant() => it has 0 values, expected one attribute with a value
Constant(value_int=1, value_float=2.0) => it has 2 values, expected one
SequenceLength(x) => expected a sequence, found the tensor R.Tensor..1, 2, 4.,
""")


@pytest.mark.parametrize(("node", "message"), _ILL_SHAPED)
def test_attributes_and_shapes_that_do_not_fit_are_named(node: str, message: str) -> None:
    shapes = {"two": np.array([2, 2]), "four": np.array([2, 0, 0, 0])}
    given = {name: shape for name, shape in shapes.items() if name in node}
    with pytest.raises(OpNotImplemented, match=message):
        from_onnx(model(nodes_of(f"y = {node}"), [value("x", [1, 2, 4])], ["y"], given))


def test_an_integer_may_stand_for_a_float() -> None:
    nodes = nodes_of("y = Gemm(x, x, alpha=2, transB=1)")
    np.testing.assert_allclose(run(model(nodes, [value("x", [2, 4])], ["y"]), X), 2 * X @ X.T, 1e-5)


def test_axes_of_a_reduction_are_a_vector() -> None:
    nodes = nodes_of("y = ReduceSum(x, axes)")
    inputs = [value("x", [1, 2, 4]), value("axes", [], TensorProto.INT64)]
    with pytest.raises(OpNotImplemented, match="expected a vector, found a tensor of rank 0"):
        from_onnx(model(nodes, inputs, ["y"]))


@pytest.mark.parametrize("op", ["Expand", "Reshape"])
def test_numbers_in_a_shape_that_is_partly_computed_stay_numbers(op: str) -> None:
    nodes = [
        node_of("shape = Concat(n, rest, axis=0)"),
        helper.make_node(op, ["x", "shape"], ["y"]),
    ]
    inputs = [value("x", [2, 3]), value("n", [1], TensorProto.INT64)]
    proto = model(nodes, inputs, ["y"], {"rest": np.array([2, 3])})
    assert "(size_0, 2, 3)" in from_onnx(proto).script()
    x = RNG.standard_normal((2, 3)).astype("float32")
    count = 1 if op == "Reshape" else 4
    np.testing.assert_array_equal(run(proto, x, np.array([count])), np.tile(x, (count, 1, 1)))


def test_sequences_know_the_ranks_of_their_values() -> None:
    nodes = nodes_of("t = SequenceAt(s, one); u = Transpose(t, perm=[1, 0]); y = Shape(u)")
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [None, 3]))
    proto = model(nodes, [helper.make_value_info("s", kind)], ["y"], {"one": np.array(1)})
    found = run(proto, (np.zeros((1, 3), "float32"), np.zeros((5, 3), "float32")))
    np.testing.assert_array_equal(found, [3, 5])


@pytest.mark.parametrize(
    ("op", "split", "place", "message"),
    [
        ("SequenceAt", 2, 2, "position 2 is not in a sequence of 2"),
        ("SequenceErase", 2, -3, "position -3 is not in a sequence of 2"),
        ("SequenceInsert", 2, 3, "position 3 is not in a sequence of 2"),
        ("SequenceAt", 0, 0, "parts of 0 elements, expected 4 in all"),
        ("SequenceAt", [1, 2], 0, "parts of .1, 2. elements, expected 4 in all"),
        ("Split", [1, 2], 0, "dimension 1 is 4, but part_0 . part_1 = 3"),
    ],
)
def test_places_and_parts_that_do_not_exist_are_named_at_run_time(op, split, place, message):
    whole, at = np.array(split, "int64"), np.array(place, "int64")
    operands = ["list", *(["x"] if op == "SequenceInsert" else []), "place"]
    nodes = [
        node_of("list = SplitToSequence(x, split, axis=1)"),
        helper.make_node(op, operands, ["y"]),
    ]
    if op == "Split":
        nodes = nodes_of("y, rest = Split(x, split, axis=1)")
    inputs = [value("x", [2, 4])]
    inputs += [value(n, a.shape, TensorProto.INT64) for n, a in (("split", whole), ("place", at))]
    main = relaxpy.compile(from_onnx(model(nodes, inputs, ["y"])), "numpy")["main"]
    with pytest.raises(RuntimeCheckError, match=message):
        main(X, whole, at)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("new_axis", [0, 1])
def test_an_axis_of_symbolic_size_is_split(keepdims: int, new_axis: int) -> None:
    axis = 1 if keepdims or new_axis else 0
    nodes = nodes_of(
        """
        s = SplitToSequence(x, axis=1, keepdims=keepdims);
        y = ConcatFromSequence(s, axis=axis, new_axis=new_axis); length = SequenceLength(s)
    """,
        keepdims=keepdims,
        axis=axis,
        new_axis=new_axis,
    )
    proto = model(nodes, [value("x", [2, "n", 3])], ["y", "length"], opset=13)
    for n in (1, 4):
        x = RNG.standard_normal((2, n, 3)).astype("float32")
        parts = [x[:, k : k + 1] if keepdims else x[:, k] for k in range(n)]
        y, length = run(proto, x)
        assert length == n
        expected = np.stack(parts, axis) if new_axis else np.concatenate(parts, axis)
        np.testing.assert_array_equal(y, expected)


@pytest.mark.each_choice
@pytest.mark.parametrize("opset", [9, 21])
@pytest.mark.parametrize("declared", [None, 1, 2])
def test_squeeze_drops_sizes_that_turn_out_to_be_1(opset: int, declared: int | None) -> None:
    nodes = nodes_of("s = Squeeze(x); y = Transpose(s); count = Size(s)")
    proto = model(nodes, [value("x", ["n", 1, 3])], ["y", "count"], opset=opset)
    if declared is not None:
        proto.graph.value_info.append(value("s", [None] * declared))
    for n in (1, 4) if declared is None else (1,):
        x = RNG.standard_normal((n, 1, 3)).astype("float32")
        y, count = run(proto, x)
        np.testing.assert_array_equal(y, np.squeeze(x, (0, 1) if n == 1 and declared != 2 else 1).T)
        assert count == 3 * n


def test_squeeze_finds_as_many_sizes_of_1_as_its_declared_rank_needs() -> None:
    node = node_of("y = Squeeze(x)")
    proto = model([node], [value("x", ["n", 1, "m", 3])], ["y"])
    proto.graph.output[0].CopyFrom(value("y", [None, None]))
    main = relaxpy.compile(from_onnx(proto), "numpy")["main"]
    for n, m in ((1, 4), (4, 1)):
        x = RNG.standard_normal((n, 1, m, 3)).astype("float32")
        np.testing.assert_array_equal(main(x), np.squeeze(x))
    for n in (1, 2):
        with pytest.raises(RuntimeCheckError, match="found"):
            main(np.ones((n, 1, n, 3), "float32"))


@pytest.mark.parametrize("node", [("BitShift", {"direction": "LEFT"}), ("Mod", {})], ids=str)
def test_a_size_of_1_is_known_after_operands_broadcast(node: tuple[str, dict[str, Any]]) -> None:
    op, attributes = node
    nodes = [helper.make_node(op, ["a", "b"], ["c"], **attributes), node_of("y = Squeeze(c)")]
    kind = TensorProto.UINT8
    inputs = [value("a", ["n", "m", 1], kind), value("b", [3, "k", 1], kind)]
    a, b = np.full((3, 2, 1), 7, "uint8"), np.full((3, 2, 1), 2, "uint8")
    assert run(model(nodes, inputs, ["y"]), a, b).shape == (3, 2)


def test_products_of_integers_have_factors_that_are_no_integers() -> None:
    a, b = np.array([[3, -2]], "int32"), np.array([[1], [4]], "int32")
    inputs = [value("a", [1, 2], TensorProto.INT32), value("b", [2, 1], TensorProto.INT32)]
    nodes = nodes_of("y = Gemm(a, b, alpha=0.5)")
    assert run(model(nodes, inputs, ["y"]), a, b).tolist() == [[-2]]  # -2.5 towards zero
    nodes = nodes_of("y = Gemm(a, b, b, alpha=0.5, beta=0.5)")
    assert run(model(nodes, inputs, ["y"]), a, b).tolist() == [[-2], [0]]  # the sum is rounded


def test_large_weights_are_read_from_where_they_stand_in_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((40, 40)).astype(dtype) for dtype in ("float32", "float64")]
    small = np.arange(3, dtype="int64")
    tensors = [numpy_helper.from_array(w, f"w{k}") for k, w in enumerate([*weights, small])]
    nodes = [helper.make_node("Identity", [f"w{k}"], [f"y{k}"]) for k in range(3)]
    outputs = [helper.make_empty_tensor_value_info(f"y{k}") for k in range(3)]
    model = helper.make_model(helper.make_graph(nodes, "g", [], outputs, tensors))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    assert len(model_bytes(path)) < path.stat().st_size / 10
    found = relaxpy.compile(from_onnx(path), target="numpy")["main"]()
    path.write_bytes(b"")  # what is read does not depend on the file any more
    for result, expected in zip(found, [*weights, small], strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("raw", [bytes(range(256)) * 64, b"\x21" * 4096], ids=["int32", "int4"])
def test_large_weights_are_read_once_from_the_bytes_of_a_model(raw: bytes) -> None:
    kind = TensorProto.INT32 if len(raw) > 4096 else TensorProto.INT4
    count = len(raw) // 4 if kind == TensorProto.INT32 else 2 * len(raw)
    tensor = TensorProto(name="w", dims=[count], data_type=kind, raw_data=raw)
    output = helper.make_empty_tensor_value_info("y")
    nodes = [helper.make_node("Identity", ["w"], ["y"])]
    data = helper.make_model(helper.make_graph(nodes, "g", [], [output], [tensor]))
    given = data.SerializeToString()
    assert len(read_model(given, None).proto.SerializeToString()) < len(given) / 10
    found = relaxpy.compile(from_onnx(given), target="numpy")["main"]()
    np.testing.assert_array_equal(found, numpy_helper.to_array(tensor).astype(found.dtype))


@pytest.mark.parametrize(
    ("offset", "message"), [("-8", "the model says"), ("100000", "which has"), ("x", "no numbers")]
)
def test_positions_in_the_bytes_of_a_model_are_checked(offset: str, message: str) -> None:
    tensor = TensorProto(name="w", dims=[1024], data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("offset", offset), ("length", "4096"), (COPIED, "1")):
        tensor.external_data.add(key=key, value=text)
    output = helper.make_empty_tensor_value_info("y")
    nodes = [helper.make_node("Identity", ["w"], ["y"], doc_string="long " * 1000)]
    data = helper.make_model(helper.make_graph(nodes, "g", [], [output], [tensor]))
    with pytest.raises(FrontendError, match=message):
        from_onnx(data.SerializeToString())


@pytest.mark.parametrize("cut", [1, 3000, 5000, 6400])
def test_a_file_that_ends_early_is_damaged(tmp_path: Path, cut: int) -> None:
    weight = numpy_helper.from_array(np.ones((40, 40), "float32"), "w")
    graph = helper.make_graph(
        nodes_of("y = Identity(w)"), "g", [], [helper.make_empty_tensor_value_info("y")], [weight]
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString()[:-cut])
    with pytest.raises(FrontendError, match=r"model.onnx: not an ONNX model, or a damaged one"):
        from_onnx(path)


@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_scales_of_an_axis_without_elements(op: str) -> None:
    kinds = (TensorProto.FLOAT, TensorProto.UINT8)
    source, result = kinds if op == "QuantizeLinear" else kinds[::-1]
    inputs = [value("x", ["n", 1, 0, 1], source), value("scale", [0])]
    inputs.append(value("zero", [0], TensorProto.UINT8))
    mod = from_onnx(model(nodes_of(f"y = {op}(x, scale, zero, axis=2)"), inputs, ["y"]))
    x = np.zeros((3, 1, 0, 1), helper.tensor_dtype_to_np_dtype(source))
    y = relaxpy.compile(mod)["main"](x, np.zeros(0, "f4"), np.zeros(0, "u1"))
    assert np.asarray(y).shape == x.shape
    assert np.asarray(y).dtype == helper.tensor_dtype_to_np_dtype(result)


def with_a_body(kind: str, size: int | None, *, outside: bool) -> Any:
    """A scan or loop of `size` rows whose body has or needs a node that cannot be imported."""
    strange = "b = Nope(a)"
    params, condition, first = "float[2] s, float[2] x", "", ""
    if kind == "Loop":
        params, condition, first = "int64 i, bool c, float[2] s", "bool d, ", "d = Identity(c)"
    body = graph_of(f"""
        body ({params}) => ({condition}float[2] t, float[2] y)
            {{ {"" if outside else strange} {first} t = Add(s, a) y = Neg(b) }}
    """)
    given = [value("s0", [2]), value("xs", [size or "n", 2]), value("a", [2])]
    operands, attributes = ["s0", "xs"], {"num_scan_inputs": 1}
    initializers = {"yes": np.array(True)}
    if kind == "Loop":
        operands, attributes = ["count", "yes", "s0"], {}
        if size is None:
            given.append(value("count", [], TensorProto.INT64))
        else:
            initializers["count"] = np.array(size)
    node = helper.make_node(kind, operands, ["end", "ys"], body=body, **attributes)
    nodes = [node_of(strange), node] if outside else [node]
    return model(nodes, given, ["end", "ys"], initializers)


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("size", [3, None])
@pytest.mark.parametrize("kind", ["Scan", "Loop"])
def test_nodes_that_bodies_need_and_that_cannot_be_imported_are_told(kind, size, outside) -> None:
    with pytest.raises(OpNotImplemented, match="cannot be imported") as caught:
        from_onnx(with_a_body(kind, size, outside=outside))
    assert "Nope of ai.onnx 21" in str(caught.value)
    assert "graph 'body' has nodes that cannot be imported" in str(caught.value)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_a_constant_condition_gives_sizes_that_are_known(axis: int | None) -> None:
    attributes = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("Compress", ["x", "chosen"], ["some"], **attributes),
        node_of("y = Squeeze(some)"),
    ]
    chosen = np.array([False, False, True])
    x = np.arange(9, dtype="float32").reshape(3, 3)
    found = run(model(nodes, [value("x", [3, 3])], ["y"], {"chosen": chosen}), x)
    np.testing.assert_array_equal(found, np.squeeze(np.compress(chosen, x, axis)))


def test_values_and_positions_of_topk_are_computed_together() -> None:
    node = node_of("values, positions = TopK(x, k)")
    proto = model([node], [value("x", [3, 9])], ["values", "positions"], {"k": np.array([2])})
    assert from_onnx(proto).script().count("R.topk(") == 1


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        ("ScatterElements", [[-4], [9.0]], "index -4 is outside dimension 0"),
        ("ScatterND", [[[-4]], [9.0]], "index -4 is outside dimension 0"),
        ("TopK", [[4]], "dimension 0 is 3, but k_0 = 4"),
        ("TopK", [[-1]], "TopK .node 0.: k is -1, expected at least 0"),
    ],
)
def test_indices_and_counts_beyond_an_operand_are_named_at_run_time(op, operands, message) -> None:
    arrays = [np.arange(3, dtype="float32"), np.array(operands[0])]
    arrays += [np.array(item, "float32") for item in operands[1:]]
    names = ["x", "index", "updates"][: len(arrays)]
    kinds = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in arrays]
    inputs = [
        value(n, [f"{n}{k}" for k in range(a.ndim)], kind)
        for n, a, kind in zip(names, arrays, kinds, strict=True)
    ]
    inputs[1] = value("index", arrays[1].shape, TensorProto.INT64)
    proto = model([helper.make_node(op, names, ["y", "z"][: 1 + (op == "TopK")])], inputs, ["y"])
    for target in ("native", "numpy"):
        with pytest.raises(RuntimeCheckError, match=message):
            relaxpy.compile(from_onnx(proto), target)["main"](*arrays)


_SEQUENCE = np.zeros((5, 2, 3), "float32")
_LAYER = [np.zeros((1, 4, 3), "float32"), np.zeros((1, 4, 4), "float32")]
_IMAGE = np.zeros((1, 1, 4, 4), "float32")
_OUTSIDE: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("OneHot", [[0, 1], -3, [0.0, 1.0]], {}, "depth is -3, expected at least 1"),
    ("ReverseSequence", [_SEQUENCE, [6, 1]], {}, "sequence_lens is 6, expected 0 to 5"),
    ("ReverseSequence", [_SEQUENCE, [1, -1]], {}, "sequence_lens is -1, expected 0 to 5"),
    *(
        ("RNN", [_SEQUENCE, *_LAYER, np.zeros((1, 8), "float32"), np.int32(lengths)], {}, message)
        for lengths, message in [
            ([9, 1], "sequence_lens is 9, expected 0 to 5"),
            ([1, 1, 1], r"sequence_lens( has the shape \(3\), expected \(2\)|.*2.*\(3,\))"),
        ]
    ),
    ("RNN", [_SEQUENCE, *_LAYER], {"hidden_size": 7}, r"W( has the shape|.*7.*\(1, 4, 3\))"),
    ("Range", [0, 5, 0], {}, "delta is (0|inf)"),
    ("Split", [[1.0, 2.0], [-1, 3]], {}, r"split is -1|parts of \(-1, 3\) elements"),
    ("Resize", [_IMAGE, [], [1.0, 1.0, 0.0, 1.0]], {}, "scales is 0.0, expected at least 1e-09"),
    ("MaxUnpool", [_IMAGE, np.full((1, 1, 4, 4), -1)], {"kernel_shape": [1, 1]}, "indices is -1"),
    ("CumSum", [[1.0, 2.0], 1], {}, "axis (is )?1"),
    ("ReduceSum", [[1.0, 2.0], [1]], {}, "ax[ei]s (is )?1"),
]


@pytest.mark.each_choice
@pytest.mark.parametrize(("op", "operands", "attributes", "message"), _OUTSIDE)
@pytest.mark.parametrize("are_known", [True, False])
def test_operands_outside_of_their_range_are_named(op, operands, attributes, message, are_known):
    arrays = [np.array(item, None if np.size(item) else "float32") for item in operands]
    arrays = [a.astype("float32") if a.dtype == "float64" else a for a in arrays]
    names = [f"x{k}" for k in range(len(arrays))]
    feeds = dict(zip(names, arrays, strict=True))
    fixed = {n: feeds.pop(n) for n in names[1:]} if are_known else {}
    inputs = [
        value(n, [f"{n}_{k}" if op == "RNN" else size for k, size in enumerate(a.shape)], kind)
        for n, a in feeds.items()
        for kind in [helper.np_dtype_to_tensor_dtype(a.dtype)]
    ]
    outputs = ["y", "z"] if op == "Split" else ["y"]
    proto = model([helper.make_node(op, names, outputs, **attributes)], inputs, ["y"], fixed)
    with pytest.raises((OpNotImplemented, RuntimeCheckError), match=message):
        relaxpy.compile(from_onnx(proto), "numpy")["main"](*feeds.values())


@pytest.mark.parametrize(
    ("op", "opset"), [("Softsign", 6), ("Softsign", 17), ("ThresholdedRelu", 10)]
)
def test_bodies_of_later_opsets_stand_for_operators_of_earlier_ones(op: str, opset: int) -> None:
    x = RNG.standard_normal((3, 4)).astype("float32") * 2
    proto = model([helper.make_node(op, ["x"], ["y"])], [value("x", ["n", 4])], ["y"], opset=opset)
    expected = x / (1 + np.abs(x)) if op == "Softsign" else np.where(x > 1, x, 0)
    np.testing.assert_allclose(run(proto, x), expected, rtol=1e-6)
