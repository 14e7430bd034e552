"""Annotated programs of many kinds compute on workers what one process computes."""

import math
import textwrap
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.distributed import communication
from relaxpy.errors import RuntimeCheckError, TransformError
from relaxpy.relax import get_pipeline
from relaxpy.relax.distributed.transform import PropagateSharding
from tests.ir.relax.texts import module
from tests.plugins.distributed.team import Team

Array = np.ndarray[Any, Any]


def program(params: str, body: str, mesh: tuple[int, ...] = (2,), others: str = "") -> IRModule:
    """A module whose `main` is this body, which returns y."""
    lines = textwrap.indent(body.strip(), "        ")
    return module(f"""
    I.module_global_infos({{"mesh": [R.device_mesh({mesh}, I.Range(0, {math.prod(mesh)}))]}})
{others}
    def main({params}):
{lines}
        return y
    """)


def numbers(*shape: int, dtype: str = "float32") -> Array:
    rng = np.random.default_rng(sum(shape))
    if dtype in {"float32", "float16"}:
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(-4, 5, shape).astype(dtype)


def is_equal_on_workers(mod: IRModule, *args: Array, mesh: tuple[int, ...] = (2,)) -> None:
    """Compare each worker's part of the results with that of the one process."""
    expected = relaxpy.compile(mod)["main"](*args)
    placed = PropagateSharding()(mod)["main"].body.body.struct_info
    main = relaxpy.compile(mod, relax_pipeline=get_pipeline("distributed"))["main"]
    operands = [[arg, *[np.zeros_like(arg)] * (math.prod(mesh) - 1)] for arg in args]
    is_tuple = isinstance(expected, tuple)
    for place, found in zip(
        np.ndindex(mesh), Team(math.prod(mesh)).run(main, *operands), strict=True
    ):
        results = zip(*((expected, found) if is_tuple else ((expected,), (found,))), strict=True)
        infos = placed.fields if is_tuple else (placed,)
        for sinfo, (own, part) in zip(infos, results, strict=True):
            for spec, number, count in zip(sinfo.placement.dim_specs, place, mesh, strict=True):
                if spec.kind == "sharding":
                    own = np.split(own, count, spec.axis)[number]
            assert part.dtype == own.dtype
            tolerance = 2e-2 if own.dtype == "float16" else 1e-4
            np.testing.assert_allclose(part, own, tolerance, tolerance)


def one_operator(expression: str) -> None:
    """An operator on a tensor of shape (4, 8), split along each axis."""
    for placement in ("S[0]", "S[1]"):
        body = f'a = R.dist.annotate_sharding(x, "mesh[0]", "{placement}")\ny = {expression}'
        is_equal_on_workers(program('x: R.Tensor((4, 8), "float32")', body), numbers(4, 8))


@pytest.mark.parametrize(
    "expression",
    [
        "R.mean(a, axis=1)",
        "R.variance(a, axis=[1], keepdims=True)",
        "R.std(a)",
        "R.argmax(a, axis=1)",
        "R.nn.softmax(a, axis=-1)",
        "R.nn.layer_norm(a, R.ones((8,), 'float32'), R.zeros((8,), 'float32'), axes=[-1])",
        "R.cumsum(a, axis=1)",
        "R.sort(a, axis=1)",
        "R.topk(a, k=2, axis=1, ret_type='both')",
        "R.flip(a, axis=1)",
        "R.concat((a, R.exp(a)), axis=1)",
        "R.split(a, 2, axis=1)",
        "R.reshape(a, (32,))",
        "R.reshape(a, (2, 16))",
        "R.reshape(a, R.shape_of(a))",
        "R.matmul(a, R.permute_dims(a))",
        "R.einsum((a, a), 'ij,kj->ik')",
        "R.take(a, R.const([1, 3, 0], 'int64'), axis=1)",
        "R.gather_elements(a, R.const([[0], [1], [2], [3]], 'int64'), axis=1)",
        "R.unique(a)",
        "R.add(a, R.const([1, 2, 3, 4, 5, 6, 7, 8], 'float32'))",
        "R.add(a, R.astype(R.arange(0, 8), 'float32'))",
        "R.strided_slice(a, axes=[1], begin=[1], end=[5])",
        "R.tril(a)",
        "R.call_pure_packed('tests.sums_of_rows', a, sinfo_args=R.Tensor((4,), 'float32'))",
    ],
)
def test_an_operator_along_and_across_a_split_axis(expression: str) -> None:
    relaxpy.register_func("tests.sums_of_rows", lambda x: x.sum(1), override=True)
    one_operator(expression)


@pytest.mark.each_choice
@pytest.mark.parametrize("placement", ["S[0]", "S[1]"])
@pytest.mark.parametrize(
    ("shapes", "annotated", "expression"),
    [
        (((8, 4),), "x0", "R.take(a, R.const([[1, 3], [2, 7]], 'int64'), axis=0)"),
        (((2, 4, 6, 6), (4, 4, 3, 3)), "x0", "R.nn.conv2d(a, x1)"),
        (((2, 4, 6, 6), (4, 4, 3, 3)), "x1", "R.nn.conv2d(x0, a, padding=1)"),
        (((4, 4, 3, 3), (4,)), "x0", "R.nn.batch_norm(a, x1, x1, x1, R.abs(x1), axis=1)[0]"),
        (((2, 4, 3, 4),), "x0", "R.nn.attention(a, a, a, causal_mask='BottomRight')"),
        (((3, 8), (8, 10)), "x1", "R.argmax(R.matmul(x0, a), axis=-1)"),
    ],
)
def test_a_layer_with_split_tensors(placement, shapes, annotated, expression) -> None:
    params = ", ".join(f'x{k}: R.Tensor({shape}, "float32")' for k, shape in enumerate(shapes))
    text = f'a = R.dist.annotate_sharding({annotated}, "mesh[0]", "{placement}")\ny = {expression}'
    is_equal_on_workers(program(params, text), *(numbers(*shape) for shape in shapes))


def test_heads_that_share_keys() -> None:
    body = """
q0 = R.dist.annotate_sharding(wq, "mesh[0]", "S[1]")
k0 = R.dist.annotate_sharding(wk, "mesh[0]", "S[1]")
q = R.permute_dims(R.reshape(R.matmul(x, q0), (2, 3, 4, 4)), [0, 2, 1, 3])
k = R.permute_dims(R.reshape(R.matmul(x, k0), (2, 3, 2, 4)), [0, 2, 1, 3])
keys = R.repeat(k, 2, 1)
s = R.nn.softmax(R.matmul(q, R.permute_dims(keys, [0, 1, 3, 2])), axis=-1)
y = R.reshape(R.permute_dims(R.matmul(s, keys), [0, 2, 1, 3]), (2, 3, 16))
"""
    sizes = {"x": (2, 3, 8), "wq": (8, 16), "wk": (8, 8)}
    params = ", ".join(f'{name}: R.Tensor({size}, "float32")' for name, size in sizes.items())
    mod = program(params, body)
    is_equal_on_workers(mod, *(numbers(*size) for size in sizes.values()))
    assert "allgather" not in get_pipeline("distributed")(mod).script()


@pytest.mark.parametrize("operator", ["R.exp(a)", "R.repeat(a, 2, 0)", "R.sum(a, axis=0)"])
def test_two_axes_of_a_mesh_split_one_axis(operator: str) -> None:
    body = f'a = R.dist.annotate_sharding(x, "mesh[0]", "S[0], S[0]")\ny = {operator}'
    mod = program('x: R.Tensor((8, 6), "float32")', body, mesh=(2, 2))
    assert "R.Tensor((2, 6)" in get_pipeline("distributed")(mod).script()
    is_equal_on_workers(mod, numbers(8, 6), mesh=(2, 2))


def test_an_annotated_tensor_is_both_operands() -> None:
    for placement in ("S[0], S[1]", "S[1], S[0]"):
        body = f'a = R.dist.annotate_sharding(x, "mesh[0]", "{placement}")\ny = R.matmul(a, a)'
        mod = program('x: R.Tensor((8, 8), "float32")', body, mesh=(2, 2))
        is_equal_on_workers(mod, numbers(8, 8), mesh=(2, 2))


def test_a_mesh_has_fewer_workers_than_there_are() -> None:
    body = 'a = R.dist.annotate_sharding(w, "mesh[0]", "S[0], S[0]")\ny = R.matmul(x, a)'
    params = 'x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 6), "float32")'
    mod = program(params, body, mesh=(2, 2))
    main = relaxpy.compile(mod, relax_pipeline=get_pipeline("distributed"))["main"]
    x, w = numbers(4, 8), numbers(8, 6)
    for found in Team(8).run(main, [x] * 8, [w] * 8):
        np.testing.assert_allclose(found, x @ w, 1e-4, 1e-4)
    with pytest.raises(RuntimeCheckError, match="the program is for 4 workers, but there are 2"):
        Team(2).run(main, [x] * 2, [w] * 2)


def test_experts_on_different_workers() -> None:
    body = """
a = R.dist.annotate_sharding(w, "mesh[0]", "S[0]")
g = R.nn.softmax(R.matmul(x, gate), axis=-1)
h = R.matmul(R.expand_dims(x, 0), a)
y = R.sum(R.multiply(h, R.expand_dims(R.permute_dims(g), 2)), axis=0)
"""
    sizes = {"x": (6, 8), "gate": (8, 4), "w": (4, 8, 8)}
    params = ", ".join(f'{name}: R.Tensor({size}, "float32")' for name, size in sizes.items())
    mod = program(params, body)
    is_equal_on_workers(mod, *(numbers(*size) for size in sizes.values()))
    sent = communication(get_pipeline("distributed")(mod))
    assert [call.op for call in sent.calls].count("ccl.allreduce") == 1


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_products_of_narrow_numbers(dtype: str) -> None:
    params = f'x: R.Tensor((4, 8), "{dtype}"), w: R.Tensor((8, 6), "{dtype}")'
    for result in ("R.matmul(x, a)", "R.sum(a, axis=0)"):
        body = f'a = R.dist.annotate_sharding(w, "mesh[0]", "S[0]")\ny = {result}'
        args = numbers(4, 8, dtype=dtype), numbers(8, 6, dtype=dtype)
        is_equal_on_workers(program(params, body), *args)


def test_a_batch_of_any_size() -> None:
    body = """
a = R.dist.annotate_sharding(x, "mesh[0]", "S[0]")
y = R.nn.softmax(R.matmul(a, w), axis=-1)
"""
    mod = program('x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 6), "float32")', body)
    for size in (2, 6):
        is_equal_on_workers(mod, numbers(size, 8), numbers(8, 6))
    with pytest.raises(RuntimeCheckError, match="its size 5 is not a multiple"):
        is_equal_on_workers(mod, numbers(5, 8), numbers(8, 6))
    square = (
        'a = R.dist.annotate_sharding(x, "mesh[0]", "S[0]")\ny = R.matmul(a, R.permute_dims(a))'
    )
    is_equal_on_workers(program('x: R.Tensor(("n", 8), "float32")', square), numbers(6, 8))


BRANCHES = """
a = R.dist.annotate_sharding(x, "mesh[0]", "S[1]")
c = R.greater(R.sum(a), R.const(0.0, "float32"))
if c:
    y = R.exp(a)
else:
    y = R.negative(a)
"""


def test_branches_on_a_value_of_all_workers() -> None:
    mod = program('x: R.Tensor((4, 8), "float32")', BRANCHES)
    for sign in (-1, 1):
        is_equal_on_workers(mod, sign * np.abs(numbers(4, 8)))


def test_a_private_function_takes_part() -> None:
    others = """
    @R.function(private=True)
    def sub(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        y = R.exp(x)
        return y
"""
    params = 'x: R.Tensor((4, 8), "float32")'
    body = 'a = R.dist.annotate_sharding(x, "mesh[0]", "S[1]")\ny = cls.sub(a)'
    is_equal_on_workers(program(params, body, others=others), numbers(4, 8))
    with pytest.raises(TransformError, match=r"passed to the function .*sub(.|\n)*private=True"):
        PropagateSharding()(program(params, body, others=others.replace("private=True", "")))


KERNELS = """
    @T.prim_func(private=True)
    def from_hundred(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("b"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    B[vi] = T.float32(100)
                B[vi] = B[vi] + A[vi, vj]

    @T.prim_func(private=True)
    def loops(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = T.float32(0)
            for j in range(8):
                B[i] = B[i] + A[i, j]

    @T.prim_func(private=True)
    def last(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi] = A[vi, vj]

    @T.prim_func(private=True)
    def diagonal(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("b"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi, vi]

    @T.prim_func(private=True)
    def shares(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
        C = T.alloc_buffer((4,), "float32")
        for i, j in T.grid(4, 8):
            with T.block("c"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vj]
        for i, j in T.grid(4, 8):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] / C[vi]

    @T.prim_func(private=True)
    def times_rows(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 8), "float32")
        B = T.match_buffer(b, (n, 8), "float32")
        for i, j in T.grid(n, 8):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.Cast("float32", n)
"""


@pytest.mark.each_choice
@pytest.mark.parametrize("placement", ["S[0]", "S[1]"])
@pytest.mark.parametrize(
    ("kernel", "shape"),
    [
        ("from_hundred", (4,)),
        ("loops", (4,)),
        ("last", (4,)),
        ("diagonal", (4,)),
        ("shares", (4, 8)),
        ("times_rows", (4, 8)),
    ],
)
def test_kernels_whose_parts_are_not_parts_of_the_result(kernel, shape, placement) -> None:
    body = f"""
a = R.dist.annotate_sharding(x, "mesh[0]", "{placement}")
b = R.call_tir(cls.{kernel}, (a,), out_sinfo=R.Tensor({shape}, "float32"))
y = R.negative(b)
"""
    mod = program('x: R.Tensor((4, 8), "float32")', body, others=KERNELS)
    is_equal_on_workers(mod, numbers(4, 8))


def test_what_nothing_splits_is_on_every_worker() -> None:
    params = 'x: R.Tensor((4, 8), "float32"), z: R.Tensor((3,), "float32")'
    body = 'a = R.dist.annotate_sharding(x, "mesh[0]", "S[0]")\ny = (R.exp(a), R.cumsum(z))'
    is_equal_on_workers(program(params, body), numbers(4, 8), numbers(3))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            'a = R.dist.annotate_sharding(x, "mesh[0]", "S[0]")\ny = R.exp(a)',
            "axis 0 of R.Tensor.* cannot be divided in 2 equal parts(.|\n)*pad the tensor",
        ),
        (
            'a = R.dist.annotate_sharding(x, "mesh[0]", "S[1]")\ny = (a, (a, a))',
            "y is a tuple in a tuple",
        ),
        (
            'a = R.dist.annotate_sharding(x, "mesh[0]", "S[1]")\nm = T.int64()\n'
            'y = R.match_cast(a, R.Tensor((m, 8), "float32"))',
            "a match_cast in a function with annotations",
        ),
        (
            'a = R.dist.annotate_sharding(x, "mesh[0]", "S[1]")\n'
            "y = (a, R.shape_to_tensor(R.shape_of(x)))",
            "relax.shape_to_tensor computes a tensor of one device(.|\n)*pass it to the function",
        ),
        (
            'a = R.dist.annotate_sharding(x, "mesh[0]", "S[1]")\n@R.function\n'
            'def f(z: R.Tensor((5, 8), "float32")) -> R.Tensor((5, 8), "float32"):\n'
            "    w = R.exp(z)\n    return w\ny = f(a)",
            "a local function in a function with annotations",
        ),
    ],
)
def test_what_is_refused(body: str, message: str) -> None:
    mod = program('x: R.Tensor((5, 8), "float32")', body)
    with pytest.raises(TransformError, match=f"PropagateSharding: {message}"):
        get_pipeline("distributed")(mod)
