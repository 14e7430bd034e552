"""Expressions of graphs whose loops run in lanes, and where their loads and stores end."""

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.native.machine_code.machine import Machine, host
from relaxpy.script import from_source
from tests.exec.native.expressions import run_expression
from tests.exec.native.test_contract import graph, numbers, run
from tests.rows import table

ROWS = table("""
x: F[3, N] <- R.strided_slice(x, [1], [0], [N], [2], False) => x[:, ::2]
    : F="f32 f64 f16 bf16 i8 u16 i64 bool", N="1 2 31 64 131"
x: F[N] <- R.strided_slice(x, [0], [0], [N], [S]) => x[::S]
    : F="f32 f64 f16 bf16 i8 u16 i64 bool", S="3 5 8 9", N="1 9 31 50 84 81 129 154 387 1161"
x: f32[100, N], y: f32[100, 1] <- R.concat((x, y), axis=1) => np.concatenate([x, y], 1)
    : N="1 2 3"
a: F[5, 7], b: F[7, 3] <- R.concat((R.strided_slice(R.OP(R.matmul(a, b)), [1], [-3], [-3]), a),
    axis=1) => a : F="f32 f16 f16", OP="negative abs exp"
x: F[2, 7, 19, N] <- R.permute_dims(x, [0, 3, 1, 2]) => x.transpose(0, 3, 1, 2)
    : F="f32 u8 f32 u8", N="3 3 4 4"
a: f32[9, 150], b: f32[150, 21] <- R.matmul(R.strided_slice(a, [1], [0], [150], [3]),
    R.strided_slice(b, [0], [0], [150], [3])) => a[:, ::3] @ b[::3] : tol=1e-5
a: f32[9, 200], b: f32[200, 21] <- R.matmul(R.strided_slice(a, [1], [0], [200], [4]),
    R.strided_slice(b, [0], [0], [200], [4])) => a[:, ::4] @ b[::4] : tol=1e-5
x: F[S] <- R.permute_dims(x, P) => x.transpose(P)
    : F="f32 f64 f16 bf16 i8 u16 i64 bool",
    S="16,16 15,40 70,33 300,257 31,8", P="(1,0)"
x: F[S] <- R.permute_dims(x, P) => x.transpose(P)
    : F="f32 f64 f16 bf16 i8 u16 i64 bool",
    S_P="3,37,20 (0,2,1); 5,9,17,21 (3,1,0,2); 6,7,9,10 (3,0,2,1); 9,5,4,4 (2,3,1,0)"
x: f32[n, m, 4, 4] <- R.permute_dims(x, [2, 3, 1, 0]) => x.transpose(2, 3, 1, 0)
    : n=(9, 0, 33), m=(5, 5, 1), no_tree="i1"
x: f32[n, m, h, w] <- R.permute_dims(x, [2, 3, 1, 0]) => x.transpose(2, 3, 1, 0)
    : n=(9, 0, 33), m=(5, 5, 1), h=4, w=(4, 4, 4), no_tree="i1"
x: f32[100, 70], y: f32[70, 100], z: f32[100, 70] <- R.add(R.permute_dims(x, [1, 0]), y) => x.T + y
x: f32[100, 70], y: f32[70, 100], z: f32[100, 70]
    <- R.permute_dims(R.subtract(x, R.abs(z)), [1, 0]) => (x - np.abs(z)).T
x: f32[100, 70], y: f32[70, 100], z: f32[100, 70]
    <- R.add(R.multiply(R.permute_dims(x, [1, 0]), y), R.permute_dims(z, [1, 0]))
    => x.T * y + z.T : tol=1e-6
x: F[5, 40, 33] <- R.flip(R.flip(R.permute_dims(x, [0, 2, 1]), A), B)
    => np.flip(np.flip(x.transpose(0, 2, 1), A), B) : F="f32 u8 f64 f32", A="1 2 1 0", B="0 0 2 1"
x: f32[100, 70] <- R.triu(R.permute_dims(x, [1, 0])) => np.triu(x.T)
x: F[3, N] <- R.repeat(x, S, 1) => np.repeat(x, S, 1)
    : F="f32 f64 bf16 i8 bool", N="131 40 37 5", S="2 3 4 16"
x: f32[m, n] <- R.repeat(x, 4, 1) => np.repeat(x, 4, 1) : m=(0, 2, 3, 2, 5), n=(3, 0, 7, 64, 101)
x: F[S] <- R.nn.relu(x) => np.maximum(x, 0) : F="f32 f64", S="101, 2; 5, 7, 1, 2; 9, 64"
x: f32[S] <- R.add(R.abs(x), R.multiply(x, x)) => abs(x) + x * x
    : S="101, 2; 5, 7, 1, 2; 9, 64", tol=1e-6
x: f32[S] <- R.nn.relu(x) => np.maximum(x, 0) : S="1000, 3, 5, 2; 100000, 2", no_tree="i1"
x: f32[n, m, 2] <- R.add(R.abs(x), R.multiply(x, x)) => abs(x) + x * x
    : n=(0, 4, 1, 33), m=(3, 0, 1, 7), tol=1e-6, no_tree="i1"
x: f32[50, 3], b: f32[3] <- R.add(x, b) => x + b : tree="i1"
x: f32[7, 5, 3], b: f32[7, 1, 1] <- R.add(x, b) => x + b : tree="i1", no_tree="i2"
x: f32[50, 3] <- R.flip(x, 1) => x[:, ::-1]
x: F[100, N] <- R.M(x, 1) => np.M(x, 1)
    : F="f32 f32 i8", N="1 2 3 7 8 9 33", M="max min argmax argmin"
x: f32[20, N] <- R.M(x, 1) => np.M(x, 1) : x=undefined(20, N), N="2 3 7 8 9 33", M="max min argmax"
x: F[20, N] <- (R.argmax(x, axis=1), R.argmin(x, axis=1)) => (x.argmax(1), x.argmin(1))
    : F="f32 f64 i8", N="64 65 130 200", x=ties(20, N, dtype="F")
x: F[20, N] <- (R.argmax(x, axis=1), R.argmin(x, axis=1)) => (x.argmax(1), x.argmin(1))
    : F="f32 f64 f32", N="64 65 130 200", x=undefined(20, N, dtype="F")
x: F[1000, N] <- (R.argmax(x, axis=0), R.argmin(x, axis=0)) => (x.argmax(0), x.argmin(0))
    : F="f32 i8 f64 i8", N="1 2 3 4 5 17", x=ties(1000, N, dtype="F")
x: f32[1000, N] <- (R.argmax(x, axis=0), R.argmin(x, axis=0)) => (x.argmax(0), x.argmin(0))
    : N="2 3 4 5 17", x=undefined(1000, N)
x: F[40, N] <- (R.max(x, axis=[1]), R.argmin(x, axis=1), R.subtract(x, R.min(x, 1, True)))
    => (x.max(1), x.argmin(1), x - x.min(1, keepdims=True))
    : F="f32 f64 f16 i8 i32", N="9 10 13 17 20 31 33 63 65 127"
x: F[40, N] <- (R.max(x, axis=[1]), R.argmin(x, axis=1), R.subtract(x, R.min(x, 1, True)))
    => (x.max(1), x.argmin(1), x - x.min(1, keepdims=True))
    : F="f32 f64 f16", N="9 10 13 17 20 31 33 63 65 127", x=undefined(40, N, dtype="F")
x: F[40, N] <- R.sum(x, axis=[1]) => x.sum(1)
    : F="f32 f64 i8 i32", N="9 10 13 17 20 31 33 63 65 127", tol=1e-5
x: f16[40, N] <- R.sum(x, axis=[1]) => x.sum(1) : N="9 10 13 17 33 63 127", tol=2e-2
x: f32[3, N] <- R.add(R.divide(x, R.sum(x, axis=1, keepdims=True)), R.sum(x, axis=0))
    => x / x.sum(1, keepdims=True) + x.sum(0)
    : N="1 7 15 16 17 31 33 64 65 129 200", x=abs(small(3, N)) + np.float32(1), tol=1e-5
x: f32[S] <- R.variance(x, [0]) => x.var(0)
    : S="50, 1; 1000, 3; 300, 100; 70, 600", tol=1e-5, tree="in registers: T_"
x: i32[S] <- R.cumsum(x, N) => np.cumsum(x, N, dtype="int32")
    : S_N="50 0; 7,33 1; 7,33 0; 5,6,9 1; 4,1 1; 40,3 0; 9,3,2 0; 50,17 0; 1,4 0; 9,40 0"
x: F[1, c, 4, 6]
    <- R.nn.adaptive_avg_pool2d(x, (2, 3), layout="NCHW", out_layout="HWNC")
    => (np.trunc if "F"[0] == "i" else np.array)(
    x.reshape(c, 2, 2, 3, 2).mean((2, 4)).transpose(1, 2, 0)[:, :, None])
    : F="i8 i16 i32 f32", c=(1, 3, 4, 7, 11, 40), tol=1e-5
x: F[1, c, h, w]
    <- R.nn.adaptive_avg_pool2d(x, (2, 3), layout="NCHW", out_layout="HWNC")
    => (np.trunc if "F"[0] == "i" else np.array)(
    x.reshape(c, 2, 2, 3, 2).mean((2, 4)).transpose(1, 2, 0)[:, :, None])
    : F="i8 i16 i32 f32", c=(1, 3, 4, 7, 11, 40), h=(4,) * 6, w=(6,) * 6, tol=1e-5
x: f32[1, 5, N, N] <- R.nn.max_pool2d(x, (2, 2), (2, 2))
    => x[:, :, :N // 2 * 2, :N // 2 * 2].reshape(1, 5, N // 2, 2, N // 2, 2).max((3, 5))
    : N="7 12 35"
x: F[2, 5, S] <- R.nn.max_pool2d(x, (3, 3), (1, 1), (1, 1), layout="NHWC")
    => pool(x.transpose(0, 3, 1, 2), "max", 3, 1, 1).transpose(0, 2, 3, 1)
    : F="f32 i8", S="2, 3; 3, 16; 7, 33; 13, 8; 18, 48"
x: f32[1, 5, N, N], w: f32[5, 1, 3, 3] <- R.nn.conv2d(x, w, strides=2, padding=1, groups=5)
    => convolution(x, w, 2, 1, 1, 5) : N="7 12 35", tol=1e-5
x: F[1, 4, W, C], w: F[K, K, 1, C] <- G(R.nn.conv2d(x, w, S, K // 2 * D, D, groups=C,
    data_layout="NHWC", kernel_layout="HWIO")) => H(by_rows(x, w, S, K // 2 * D, D, C))
    : F_K_S_D="f32 3 1 1; f16 3 2 1; f32 5 1 1; f64 3 1 2", W="2 3 7 13 18", C="3 16 33 8 48",
    G_H="R.nn.relu relu; R.sigmoid sigmoid",
    tol={"f16": 4e-3, "f32": 4e-5, "f64": 4e-14}["F"]
x: F[B, 3, H, W], w: F[C, 3, 3, 3], b: F[1, C, 1, 1]
    <- R.add(R.nn.conv2d(x, w, padding=P, dilation=D), b) => convolution(x, w, 1, P, D) + b
    : F="f32 f64 f32 f32 f64 f32", B="1 2 1 1 3 1", H="9 7 13 8 6 11", W="15 14 17 28 31 57",
    C="6 9 5 16 33 8", P="0 1 1 2 1 1", D="1 1 1 2 1 1", x=small(B, 3, H, W, dtype="F"),
    w=small(C, 3, 3, 3, dtype="F"), b=small(1, C, 1, 1, dtype="F")
x: f32[1, N * 5, 6, W], w: f32[N * 5, N, 3, 3], b: f32[1, N * 5, 1, 1]
    <- R.nn.relu(R.add(R.nn.conv2d(x, w, padding=1, groups=5), b))
    => np.maximum(convolution(x, w, 1, 1, 1, 5) + b, 0)
    : N_W="4 20; 3 17; 1 40", x=small(1, N * 5, 6, W), w=small(N * 5, N, 3, 3),
    b=small(1, N * 5, 1, 1)
x: f32[1, 130, 9, 20], w: f32[24, 130, 3, 3], b: f32[1, 24, 1, 1]
    <- ((R.nn.conv2d(x, w, padding=1) + b) * b + b) * b + R.nn.conv2d(x, w, padding=1)
    => ((convolution(x, w, 1, 1) + b) * b + b) * b + convolution(x, w, 1, 1)
    : x=small(1, 130, 9, 20), w=small(24, 130, 3, 3), b=small(1, 24, 1, 1)
x: F[9, 70], w: F[70, 21] <- R.matmul(x, w, out_dtype="int32")
    => x.astype(np.int64) @ w.astype(np.int64) : F="i8 u8 i32"
x: u8[M, K], w: i8[N, K]
    <- R.matmul(x, R.permute_dims(R.astype(w, "uint8")), out_dtype="int32")
    => x.astype(np.int64) @ w.astype(np.uint8).T.astype(np.int64)
    : M_N_K="8 67 300; 5 40 256; 8 21 70"
x: f32[2, 8, 10, 19], w: f32[12, C, 3, 3]
    <- R.nn.conv2d(x, w, strides=S, padding=P, dilation=D, groups=G)
    => convolution(x, w, S, P, D, G) : C_S_P_D_G="8 1 1 1 1; 4 2 1 1 2; 2 1 2 2 4", tol=2e-5
x: f32[2, 60, N, N], w: f32[40, 60, 3, 3] <- R.nn.conv2d(x, w, strides=S, padding=1)
    => convolution(x, w, S, 1) : N_S="7 1; 13 2; 9 1", tol=1e-4
x: F[2, 3, H, W] <- R.image.resize2d(x, R.shape([H * N, W * N]), layout="NCHW",
    method="nearest_neighbor", coordinate_transformation_mode="M", rounding_method="O")
    => np.repeat(np.repeat(x, N, 2), N, 3)
    : F="f32 i8", H="7 1 0", W="33 1 4 33", N="1 2 3 2 3",
    M_O="asymmetric floor; half_pixel round; half_pixel round_prefer_floor;
    pytorch_half_pixel round_prefer_ceil; tf_half_pixel_for_nn floor"
x: F[2, h, w, 3] <- R.image.resize2d(x, R.shape([h * N, w * N]), layout="NHWC",
    method="nearest_neighbor", coordinate_transformation_mode="M", rounding_method="O")
    => np.repeat(np.repeat(x, N, 1), N, 2)
    : F="f32 i8", h=(9, 7, 1, 0), w=(9, 33, 1, 4), N="1 2 3 2 3",
    M_O="asymmetric floor; half_pixel round; half_pixel round_prefer_floor;
    pytorch_half_pixel round_prefer_ceil; tf_half_pixel_for_nn floor"
x: F[20, N] <- (R.argsort(x, axis=1, dtype="int64"), R.sort(x, 1, True), R.argsort(x, 0))
    => (x.argsort(1, kind="stable"), np.flip(np.sort(x, 1), 1), x.argsort(0, kind="stable"))
    : F="f32 i8 f64 i64", N="1 3 10 11", x=ties(20, N, dtype="F")
x: f32[1000, N] <- (R.argsort(x, axis=1), R.sort(x, 1))
    => (x.argsort(1, kind="stable"), np.sort(x, 1)) : N="2 9", x=undefined(1000, N)
""")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1][:60])
def test_expressions(row: list[str]) -> None:
    run_expression(*row)


@pytest.mark.parametrize("count", [7, 300, 100_000])
@pytest.mark.parametrize("combine", ["add", "mul", "min", "max"])
def test_accumulations_into_one_element_are_not_lanes_or_tasks(combine: str, count: int) -> None:
    few = min(count, 300)
    args = (
        f'x: R.Tensor((5,), "int64"), i: R.Tensor(({count},), "int64"), '
        f'u: R.Tensor(({count},), "int64"), rows: R.Tensor((5, 33), "int64"), '
        f'k: R.Tensor(({few}, 1), "int64"), v: R.Tensor(({few}, 33), "int64")'
    )
    body = (
        f'(R.scatter_elements(x, i, u, reduction="{combine}"), '
        f'R.scatter_nd(rows, k, v, reduction="{combine}"))'
    )
    rng = np.random.default_rng(count)
    at = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[combine].at
    x, rows = rng.integers(-9, 9, 5), rng.integers(-9, 9, (5, 33))
    i, u = rng.integers(0, 5, count), rng.integers(-3, 4, count)
    k, v = rng.integers(0, 5, (few, 1)), rng.integers(-3, 4, (few, 33))
    expected, expected_rows = x.copy(), rows.copy()
    at(expected, i, u)
    at(expected_rows, k[:, 0], v)
    found, found_rows = run(graph(args, body), x, i, u, rows, k, v)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(found_rows, expected_rows)


@pytest.mark.parametrize("combine", ["update", "add", "max"])
def test_lines_are_not_lanes_if_all_accesses_are_distant(combine: str) -> None:
    """The condition that wraps indices is not a function, whose time would outweigh theirs."""
    args = ", ".join(
        f'{name}: R.Tensor((40, 70), "{dtype}")'
        for name, dtype in (("x", "float32"), ("i", "int64"), ("u", "float32"))
    )
    text = graph(args, f'R.scatter_elements(x, i, u, axis=1, reduction="{combine}")')
    ex = relaxpy.compile(from_source(text), target="native")
    loops = ex.kernel_source("scatter_elements", "tree").splitlines()
    assert any(line.startswith("for i0 < T.int64(40), i1 < T.int64(70)") for line in loops)
    x, u = numbers((40, 70)), numbers((40, 70))
    i = np.argsort(u, 1) - 70
    ufunc = {"update": lambda x, u: u, "add": np.add, "max": np.maximum}[combine]
    expected = np.empty_like(x)
    np.put_along_axis(expected, i, ufunc(np.take_along_axis(x, i, 1), u), 1)
    np.testing.assert_array_equal(ex["main"](x, i, u), expected)


@pytest.mark.parametrize("has_gathers", [True, False])
def test_elements_are_gathered_one_by_one_where_that_is_faster(
    has_gathers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    instructions = host().instructions - {"gather"} | ({"gather"} if has_gathers else set())
    monkeypatch.setattr(Machine, "instructions", instructions)
    args = 'x: R.Tensor((30, 170), "{}"), i: R.Tensor((30, 170), "int64")'
    for dtype in ("float32", "float16", "int8"):
        text = graph(args.format(dtype), "R.gather_elements(x, i, axis=1)")
        ex = relaxpy.compile(from_source(text), target="native")
        [name] = {row.kernel for row in ex.report()}
        assert ("masked.gather" in ex.kernel_source(name, "llvm")) is has_gathers
        x, i = numbers((30, 170)).astype(dtype), np.argsort(numbers((30, 170)), 1)
        np.testing.assert_array_equal(ex["main"](x, i), np.take_along_axis(x, i, 1))


def test_functions_of_many_instructions_have_loops_of_their_own() -> None:
    """What a processor looks ahead then is of several vectors, not of one."""
    text = graph('x: R.Tensor((20, 50), "float32")', "R.sigmoid(R.add(R.tanh(R.exp(x)), x))")
    ex = relaxpy.compile(from_source(text), target="native")
    [name] = {row.kernel for row in ex.report()}
    loops = ex.kernel_source(name, "tree").split("each i0")[1:]
    assert [[f for f in ("exp", "tanh", "+", "sigmoid") if f in x] for x in loops] == [
        ["exp"], ["tanh", "+"], ["sigmoid"],
    ]  # fmt: skip
    x = numbers((20, 50))
    wide = np.tanh(np.exp(x.astype("float64"))) + x
    np.testing.assert_allclose(ex["main"](x), 1 / (1 + np.exp(-wide)), rtol=1e-5)


@pytest.mark.parametrize(("dtype", "mark"), [("bfloat16", "fcmp uno"), ("float16", "fptrunc")])
def test_each_result_of_16_bits_is_rounded_once(dtype: str, mark: str) -> None:
    """What is stored is the bits of the last result, and a copy those of its operand."""
    counts = []
    for expression in ("R.flip(x, 0)", "R.add(x, x)", "R.subtract(R.add(x, x), x)"):
        text = graph(f'x: R.Tensor((64, 64), "{dtype}")', expression)
        ex = relaxpy.compile(from_source(text), target="native")
        [name] = {row.kernel for row in ex.report()}
        counts.append(ex.kernel_source(name, "llvm").count(mark))
    assert counts[0] == 0 < counts[1] == counts[2] / 2


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
@pytest.mark.parametrize("operator", ["divide", "mod", "floor_divide", "floor_mod"])
def test_quotients_of_integers_are_exact(operator: str, dtype: str) -> None:
    rng, limits = np.random.default_rng(3), np.iinfo(dtype)
    divisors = rng.integers(limits.min, limits.max, 3000, endpoint=True).astype(dtype)
    divisors = np.concatenate([divisors, divisors % 9, [limits.min, limits.max, 1]]).astype(dtype)
    divisors[divisors == 0] = 1
    multiples = (limits.max // divisors * divisors.astype("int64")).clip(limits.min, limits.max)
    y = np.tile(divisors, 4)
    x = [multiples, (multiples - 1).clip(limits.min), [limits.min] * len(divisors), divisors]
    x = np.concatenate(x).astype(dtype)
    args = f'x: R.Tensor(({len(x)},), "{dtype}"), y: R.Tensor(({len(x)},), "{dtype}")'
    found = run(graph(args, f"R.{operator}(x, y)"), x, y)
    a, b = x.astype("int64"), y.astype("int64")
    truncated = np.sign(a) * np.sign(b) * (abs(a) // abs(b))
    table = {
        "divide": truncated,
        "mod": a - truncated * b,
        "floor_divide": a // b,
        "floor_mod": a % b,
    }
    np.testing.assert_array_equal(found, table[operator].astype(dtype))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_the_minimum_of_a_quotient_and_of_what_llvm_knows_to_be_zero(dtype: str) -> None:
    kernel = from_source(f'''
@T.prim_func
def main(x: T.Buffer((70,), "{dtype}"), y: T.Buffer((70,), "{dtype}")):
    for i in range(70):
        y[i] = T.min(x[i] // T.max(x[i], T.{dtype}(1)), x[i] - x[i])
''')
    x, y = np.arange(70, dtype=dtype), np.ones(70, dtype)
    relaxpy.compile(kernel, target="native")["main"](x, y)
    np.testing.assert_array_equal(y, x - x)
