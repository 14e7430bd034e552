"""Models of `benchmarks/models.py` for other systems, with a table of operators for each.

ONNX Runtime and OpenVINO read the same file, which has the weights; torch.compile makes constants
of them (`freezing`). JAX and TVM get them as arguments.

Apache TVM parses the text of a model, and compiles it by its default pipeline, without tuning.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax.expr_functor import PyExprMutator, mutator

THREADS = int(os.environ.get("RELAXPY_NUM_THREADS") or os.cpu_count() or 1)
"""The threads of all but JAX, which uses all cores."""
Table = dict[str, Callable[..., Any]]
_MODULES = {
    "ONNX Runtime": "onnxruntime",
    "OpenVINO": "openvino",
    "JAX": "jax",
    "PyTorch": "torch",
    "torch.compile": "torch",
    "TVM": "tvm",
}
NAMES = tuple(name for name, module in _MODULES.items() if find_spec(module))


def translated(
    mod: IRModule, table: Table, params: Sequence[Any], literal: Callable[[Any], Any]
) -> list[Any]:
    """The results of `main`, with each operator as its row of a table computes it.

    A row gets the attributes of the call, and its operands.
    """
    main = mod["main"]
    assert isinstance(main, rx.Function)
    values: dict[Any, Any] = dict(zip(main.params, params, strict=True))

    def value(expr: Any) -> Any:
        match expr:
            case rx.Constant(data=data):
                return literal(np.asarray(data))
            case rx.Tuple(fields=fields):
                return tuple(map(value, fields))
            case rx.TupleGetItem(tuple_value=whole, index=index):
                return value(whole)[index]
            case rx.ShapeExpr(values=sizes):
                return [getattr(size, "value", -1) for size in sizes]
            case rx.PrimValue(value=number):
                return getattr(number, "value", None)
            case rx.Call(op=op, args=args):
                return table[op.name.removeprefix("relax.")](  # type: ignore[attr-defined]
                    dict(expr.attrs), *map(value, args)
                )
            case _:
                return values[expr]

    for block in main.body.blocks:
        for binding in block.bindings:
            values[binding.var] = value(binding.value)
    result = value(main.body.body)
    return list(result) if isinstance(result, tuple) else [result]


def sessions(
    mod: IRModule, values: tuple[np.ndarray[Any, Any], ...], inputs: int
) -> dict[str, Callable[[], Any]]:
    """Functions that compute a model; its parameters after the first `inputs` are weights."""
    found: dict[str, Callable[[], Any]] = {}
    if {"ONNX Runtime", "OpenVINO"} & {*NAMES}:
        file, given = _onnx_file(mod, values, inputs)
    if "ONNX Runtime" in NAMES:
        found["ONNX Runtime"] = _onnx_session(file, given)
    if "OpenVINO" in NAMES:
        found["OpenVINO"] = _openvino_session(file, given)
    if "JAX" in NAMES:
        found["JAX"] = _jax_session(mod, values)
    if "PyTorch" in NAMES:
        found |= _torch_sessions(mod, values, inputs)
    if "TVM" in NAMES:
        found["TVM"] = _tvm_session(mod, values)
    return found


# ---- ONNX Runtime


class _Graph:
    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        from onnx import helper

        names = [f"{op}{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attrs))
        return names[0] if outputs == 1 else tuple(names)

    def constant(self, value: Any, dtype: Any = None) -> str:
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name


def _onnx_table(g: _Graph) -> Table:
    def reduced(op: str) -> Callable[..., str]:
        return lambda a, x: g.add(op, x, g.constant(a["axis"], "int64"), keepdims=0)

    def variance(a: Any, x: str) -> str:
        axes = g.constant(a["axis"], "int64")
        centred = g.add("Sub", x, g.add("ReduceMean", x, axes))
        return str(g.add("ReduceMean", g.add("Mul", centred, centred), axes, keepdims=0))

    def attention(a: Any, *qkv: str) -> str:
        heads = [g.add("Transpose", x, perm=[0, 2, 1, 3]) for x in qkv]
        return str(g.add("Transpose", g.add("Attention", *heads, is_causal=1), perm=[0, 2, 1, 3]))

    def conv(a: Any, x: str, w: str) -> str:
        pads = [int(p) for p in a["padding"]]
        pads = pads * 2 if len(pads) == 2 else pads
        return str(g.add("Conv", x, w, strides=[int(s) for s in a["strides"]], pads=pads))

    def pool(a: Any, x: str) -> str:
        pads = [int(p) for p in a["padding"]]
        pads = pads * 2 if len(pads) == 2 else pads
        size, strides = [int(s) for s in a["pool_size"]], [int(s) for s in a["strides"]]
        return str(g.add("MaxPool", x, kernel_shape=size, strides=strides, pads=pads))

    def silu(a: Any, x: str) -> str:
        return str(g.add("Mul", x, g.add("Sigmoid", x)))

    table: Table = {
        "nn.attention": attention,
        "nn.conv2d": conv,
        "nn.max_pool2d": pool,
        "nn.silu": silu,
        "nn.relu": lambda a, x: g.add("Relu", x),
        "nn.gelu_tanh": lambda a, x: g.add("Gelu", x, approximate="tanh"),
        "nn.softmax": lambda a, x: g.add("Softmax", x, axis=a["axis"]),
        "nn.layer_norm": lambda a, *x: g.add("LayerNormalization", *x, axis=-1),
        "nn.rms_norm": lambda a, *x: g.add("RMSNormalization", *x, axis=-1),
        "nn.batch_norm": lambda a, x, *p: (g.add("BatchNormalization", x, *p),),
        "permute_dims": lambda a, x: g.add(
            "Transpose", x, **({"perm": [int(k) for k in a["axes"]]} if a["axes"] else {})
        ),
        "reshape": lambda a, x, s: g.add("Reshape", x, g.constant(s, "int64")),
        "concat": lambda a, x: g.add("Concat", *x, axis=int(a["axis"])),
        "split": lambda a, x: g.add("Split", x, outputs=2, num_outputs=2, axis=int(a["axis"])),
        "strided_slice": lambda a, x, axes, begin, end: g.add(
            "Slice", x, *(g.constant(list(v), "int64") for v in (begin, end, axes))
        ),
        "variance": variance,
        "negative": lambda a, x: g.add("Neg", x),
        "maximum": lambda a, *x: g.add("Max", *x),
    }
    for name, op in {"add": "Add", "multiply": "Mul", "matmul": "MatMul"}.items():
        table[name] = lambda a, *x, op=op: g.add(op, *x)
    for name, op in {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax"}.items():
        table[name] = reduced(op)
    return table


def _onnx_file(
    mod: IRModule, values: tuple[np.ndarray[Any, Any], ...], inputs: int
) -> tuple[bytes, dict[str, np.ndarray[Any, Any]]]:
    """A model in ONNX's format, and the values of the inputs that it uses."""
    import onnx
    from onnx import helper

    graph = _Graph()
    names = [f"x{k}" for k in range(inputs)]
    weights = [graph.constant(value) for value in values[inputs:]]
    outputs = translated(mod, _onnx_table(graph), [*names, *weights], graph.constant)
    read = {name for node in graph.nodes for name in node.input}
    given = {n: v for n, v in zip(names, values, strict=False) if n in read}
    infos = [helper.make_tensor_value_info(n, 1, v.shape) for n, v in given.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    whole = helper.make_graph(graph.nodes, "main", infos, results, graph.constants)
    onnx_model = helper.make_model(
        whole, opset_imports=[helper.make_opsetid("", 23)], ir_version=10
    )
    return onnx_model.SerializeToString(), given


def _onnx_session(file: bytes, given: dict[str, np.ndarray[Any, Any]]) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, given)


# ---- OpenVINO


def _openvino_session(file: bytes, given: dict[str, np.ndarray[Any, Any]]) -> Callable[[], Any]:
    import openvino

    core = openvino.Core()
    config = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": THREADS,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(core.read_model(file), "CPU", config)
    request = compiled.create_infer_request()
    inputs = [given[port.any_name] for port in compiled.inputs]

    def session() -> Any:
        request.infer(inputs, share_inputs=True)
        return [np.array(request.get_output_tensor(k).data) for k in range(len(compiled.outputs))]

    return session


# ---- JAX


def _jax_table() -> Table:
    import jax
    import jax.numpy as jnp

    def layer_norm(a: Any, x: Any, gamma: Any, beta: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-5) * gamma + beta

    def conv(a: Any, x: Any, w: Any) -> Any:
        pads = [int(p) for p in a["padding"]][-2:]
        strides = tuple(int(s) for s in a["strides"])
        return jax.lax.conv_general_dilated(x, w, strides, [(p, p) for p in pads])

    def pool(a: Any, x: Any) -> Any:
        pads = [(0, 0), (0, 0), *((int(p), int(p)) for p in a["padding"][-2:])]
        size, strides = (tuple(int(s) for s in a[k]) for k in ("pool_size", "strides"))
        return jax.lax.reduce_window(
            x, -jnp.inf, jax.lax.max, (1, 1, *size), (1, 1, *strides), pads
        )

    def batch_norm(a: Any, x: Any, *params: Any) -> Any:
        gamma, beta, mean, variance = (p[:, None, None] for p in params)
        return ((x - mean) * (gamma * jax.lax.rsqrt(variance + 1e-5)) + beta,)

    return {
        "nn.attention": lambda a, *x: jax.nn.dot_product_attention(*x, is_causal=True),
        "nn.conv2d": conv,
        "nn.max_pool2d": pool,
        "nn.batch_norm": batch_norm,
        "nn.silu": lambda a, x: jax.nn.silu(x),
        "nn.relu": lambda a, x: jax.nn.relu(x),
        "nn.gelu_tanh": lambda a, x: jax.nn.gelu(x, approximate=True),
        "nn.softmax": lambda a, x: jax.nn.softmax(x, a["axis"]),
        "nn.layer_norm": layer_norm,
        "nn.rms_norm": lambda a, x, w: (
            x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w
        ),
        "permute_dims": lambda a, x: x.transpose(
            [int(k) for k in a["axes"]] if a["axes"] else None
        ),
        "reshape": lambda a, x, s: x.reshape(s),
        "concat": lambda a, x: jnp.concatenate(x, int(a["axis"])),
        "split": lambda a, x: tuple(jnp.split(x, 2, int(a["axis"]))),
        "strided_slice": lambda a, x, axes, begin, end: x[:, -1:],
        "variance": lambda a, x: x.var([int(k) for k in a["axis"]]),
        "negative": lambda a, x: -x,
        "maximum": lambda a, x, y: jnp.maximum(x, y),
        "add": lambda a, x, y: x + y,
        "multiply": lambda a, x, y: x * y,
        "matmul": lambda a, x, y: x @ y,
        "sum": lambda a, x: x.sum(tuple(int(k) for k in a["axis"])),
        "mean": lambda a, x: x.mean(tuple(int(k) for k in a["axis"])),
        "max": lambda a, x: x.max(tuple(int(k) for k in a["axis"])),
    }


def _jax_session(mod: IRModule, values: tuple[np.ndarray[Any, Any], ...]) -> Callable[[], Any]:
    import jax

    table = _jax_table()
    compiled = jax.jit(lambda *params: translated(mod, table, params, lambda c: c))
    arrays = [jax.device_put(value) for value in values]
    return lambda: jax.block_until_ready(compiled(*arrays))


# ---- PyTorch


def _torch_table() -> Table:
    import torch
    from torch.nn import functional

    def attention(a: Any, *qkv: Any) -> Any:
        heads = [x.transpose(1, 2) for x in qkv]
        return functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)

    def window(a: Any) -> dict[str, list[int]]:
        padding = [int(p) for p in a["padding"][-2:]]
        return {"stride": [int(s) for s in a["strides"]], "padding": padding}

    def normalised(a: Any, x: Any, gamma: Any, beta: Any, mean: Any, variance: Any) -> Any:
        return (functional.batch_norm(x, mean, variance, gamma, beta, eps=1e-5),)

    return {
        "nn.attention": attention,
        "nn.conv2d": lambda a, x, w: functional.conv2d(x, w, **window(a)),
        "nn.max_pool2d": lambda a, x: functional.max_pool2d(
            x, [int(n) for n in a["pool_size"]], **window(a)
        ),
        "nn.batch_norm": normalised,
        "nn.silu": lambda a, x: functional.silu(x),
        "nn.relu": lambda a, x: functional.relu(x),
        "nn.gelu_tanh": lambda a, x: functional.gelu(x, approximate="tanh"),
        "nn.softmax": lambda a, x: functional.softmax(x, a["axis"]),
        "nn.layer_norm": lambda a, x, *w: functional.layer_norm(x, x.shape[-1:], *w),
        "nn.rms_norm": lambda a, x, w: functional.rms_norm(x, x.shape[-1:], w, 1e-5),
        "permute_dims": lambda a, x: x.permute(
            [int(k) for k in a["axes"]] if a["axes"] else [1, 0]
        ),
        "reshape": lambda a, x, s: x.reshape(s),
        "concat": lambda a, x: torch.cat(x, int(a["axis"])),
        "split": lambda a, x: x.chunk(2, int(a["axis"])),
        "strided_slice": lambda a, x, axes, begin, end: x[:, -1:],
        "variance": lambda a, x: x.var([int(k) for k in a["axis"]], correction=0),
        "negative": lambda a, x: -x,
        "maximum": lambda a, x, y: torch.maximum(x, y),
        "add": lambda a, x, y: x + y,
        "multiply": lambda a, x, y: x * y,
        "matmul": lambda a, x, y: x @ y,
        "sum": lambda a, x: x.sum([int(k) for k in a["axis"]]),
        "mean": lambda a, x: x.mean([int(k) for k in a["axis"]]),
        "max": lambda a, x: x.amax([int(k) for k in a["axis"]]),
    }


def _torch_sessions(
    mod: IRModule, values: tuple[np.ndarray[Any, Any], ...], inputs: int
) -> dict[str, Callable[[], Any]]:
    """Operators one by one, called by a Python function that is written once; and compiled."""
    import torch
    import torch._inductor.config as inductor
    from torch import fx

    torch.set_num_threads(THREADS)
    module, graph = torch.nn.Module(), fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)

    def literal(value: Any) -> Any:
        name = f"c{len(list(module.buffers()))}"
        module.register_buffer(name, torch.from_numpy(np.array(value)))
        return fx.Proxy(graph.get_attr(name), tracer)

    params = [fx.Proxy(graph.placeholder(f"x{k}"), tracer) for k in range(inputs)]
    weights = [literal(value) for value in values[inputs:]]
    results = translated(mod, _torch_table(), [*params, *weights], literal)
    graph.output([result.node for result in results])
    main = fx.GraphModule(module, graph).eval()
    tensors = [torch.from_numpy(value) for value in values[:inputs]]
    inductor.freezing = True

    def session(function: Callable[..., Any]) -> Callable[[], Any]:
        @torch.inference_mode()
        def run() -> Any:
            return [result.numpy() for result in function(*tensors)]

        return run

    return {"PyTorch": session(main), "torch.compile": session(torch.compile(main))}


# ---- Apache TVM


@mutator
class _ConstantsAsParams(PyExprMutator):
    """TVM does not read arrays in a text, so that they become parameters after the others."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.params: list[rx.Var] = []
        self.values: list[Any] = []

    def visit_constant_(self, op: rx.Constant) -> rx.Expr:
        self.params.append(rx.Var(f"c{len(self.params)}", op.struct_info))
        self.values.append(np.asarray(op.data))
        return self.params[-1]


def _tvm_session(mod: IRModule, values: tuple[np.ndarray[Any, Any], ...]) -> Callable[[], Any]:
    os.environ.setdefault("TVM_NUM_THREADS", str(THREADS))
    import tvm
    from tvm import relax

    main, lifted = mod["main"], _ConstantsAsParams(mod)
    assert isinstance(main, rx.Function)
    body = lifted.visit_expr(main.body)
    params = (*main.params, *lifted.params)
    text = IRModule({"main": rx.Function(params, body, main.ret_struct_info, attrs=main.attrs)})
    compiled = tvm.compile(tvm.script.from_source(text.script()), target="llvm")
    run = relax.VirtualMachine(compiled, tvm.cpu())["main"]
    tensors = [tvm.runtime.tensor(value) for value in (*values, *lifted.values)]

    def session() -> Any:
        found = run(*tensors)
        results = [found] if isinstance(found, tvm.runtime.Tensor) else list(found)
        return [result.numpy() for result in results]

    return session
