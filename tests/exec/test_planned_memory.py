"""Programs that make storage, tensors in it and views, and call kernels with sizes."""

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.errors import RuntimeCheckError
from relaxpy.ir import assert_structural_equal
from relaxpy.runtime import ShapeTuple
from relaxpy.script import from_source, relax as R
from tests.ir.relax.texts import module

TARGETS = pytest.mark.parametrize("target", ["native", "numpy", "reference"])

Planned = module("""
@kernel
def double(a: T.handle, b: T.handle, n: T.int64):
    A = T.match_buffer(a, (n, 3), "float32")
    B = T.match_buffer(b, (n, 3), "float32")
    for i, j in SS(n, 3, "double"):
        B[vi, vj] = A[vi, vj] * T.float32(2)

@impure
def in_storage(x: f32[2, 3]):
    storage = R.memory.alloc_storage(
        R.shape([48]), R.prim_value(0), R.str("global"), R.dtype("uint8")
    )
    late = R.memory.alloc_tensor(storage, R.prim_value(24), R.shape([2, 3]), R.dtype("float32"))
    _ = R.vm.call_tir_dyn(cls.double, (x, late, R.shape([2])))
    whole = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([12]), R.dtype("float32"))
    _1 = R.memory.kill_tensor(late)
    _2 = R.memory.kill_storage(storage)
    return whole

@impure
def on_the_machine(x: f32[2, 3]):
    storage = R.vm.alloc_storage(R.shape([2, 3]), R.prim_value(0), R.dtype("float32"))
    made = R.vm.alloc_tensor(storage, R.prim_value(0), R.shape([2, 3]), R.dtype("float32"))
    fresh = R.builtin.alloc_tensor(R.shape([2, 3]), R.dtype("float32"), R.prim_value(0))
    _ = R.vm.call_tir_dyn(cls.double, (x, made, R.shape([2])))
    _1 = R.vm.call_tir_dyn(cls.double, (made, fresh, R.shape([2])))
    _2 = R.vm.kill_object(storage)
    kept = R.builtin.stop_lift_params(fresh)
    return kept

def views(x: f32[n], first: R.Prim("int64")):
    bits = R.memory.view(x, dtype="int32")
    square = R.memory.view(x, R.shape([n // 2, 2]))
    last = R.memory.view(x, R.shape([1]), "float32", first)
    same = R.memory.ensure_zero_offset(last)
    return (bits, square, same)
""")

X = np.arange(6, dtype="float32").reshape(2, 3)


@TARGETS
def test_tensors_lie_in_their_storage(target: str) -> None:
    whole = relaxpy.compile(Planned, target)["in_storage"](X)
    np.testing.assert_array_equal(whole[6:], 2 * X.ravel())


@TARGETS
def test_kernels_run_on_tensors_in_storage(target: str) -> None:
    np.testing.assert_array_equal(relaxpy.compile(Planned, target)["on_the_machine"](X), 4 * X)


@TARGETS
def test_views_share_memory(target: str) -> None:
    x = np.arange(4, dtype="float32")
    bits, square, last = relaxpy.compile(Planned, target)["views"](x, 12)
    np.testing.assert_array_equal(bits, x.view("int32"))
    np.testing.assert_array_equal(square, x.reshape(2, 2))
    np.testing.assert_array_equal(last, x[3:])
    assert all(np.shares_memory(x, v) for v in (bits, square, last))


@TARGETS
@pytest.mark.parametrize(
    ("x", "first", "message"),
    [
        (np.zeros(4, "float32"), 16, r"shape \[1\] at byte 16 leaves the tensor, which has 16"),
        (np.zeros(4, "float32"), -4, r"at byte -4 leaves the tensor"),
        (np.zeros(8, "float32")[::2], 0, "takes a tensor in row-major order without gaps"),
    ],
)
def test_views_stay_inside(target: str, x: np.ndarray, first: int, message: str) -> None:
    with pytest.raises(RuntimeCheckError, match=message):
        relaxpy.compile(Planned, target)["views"](x, first)


@TARGETS
def test_tensors_stay_inside_their_storage(target: str) -> None:
    @R.function
    def main(size: R.Shape(ndim=1), storage: R.Object):
        made = R.memory.alloc_storage(size, R.prim_value(0), "global", "uint8")
        there = R.memory.alloc_tensor(made, R.prim_value(0), R.shape([2]), R.dtype("float32"))
        other = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([2]), R.dtype("float32"))
        return (there, other)

    run = relaxpy.compile(main, target)["main"]
    with pytest.raises(RuntimeCheckError, match="leaves the storage, which has 7 bytes"):
        run(ShapeTuple([7]), None)
    with pytest.raises(RuntimeCheckError, match="alloc_tensor takes storage, found"):
        run(ShapeTuple([8]), "no storage")


@TARGETS
def test_storage_has_no_negative_sizes(target: str) -> None:
    @R.function
    def main(size: R.Shape(ndim=2)) -> R.Object:
        return R.vm.alloc_storage(size, R.prim_value(0), R.dtype("uint8"))

    run = relaxpy.compile(main, target)["main"]
    run(ShapeTuple([2, 8]))
    with pytest.raises(RuntimeCheckError, match="cannot allocate storage of shape"):
        run(ShapeTuple([-2, -8]))


def test_the_operators_are_read_back() -> None:
    assert_structural_equal(from_source(Planned.script()), Planned)


def planned(body: str) -> IRModule:
    """A module of a kernel `exp` over vectors, two that write parts of tensors, and `main`."""
    lines = "\n".join("        " + line for line in body.strip().splitlines())
    return from_source(f"""
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def exp(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.block("exp"):
                vi = T.axis.spatial(n, i)
                B[vi] = T.exp(A[vi])

    @T.prim_func(private=True)
    def half(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(2):
            with T.block("half"):
                vi = T.axis.spatial(2, i)
                B[vi] = A[vi]

    @T.prim_func(private=True)
    def diagonal(A: T.Buffer((4,), "float32"), B: T.Buffer((2, 2), "float32")):
        for i in range(2):
            with T.block("diagonal"):
                vi, vj = T.axis.remap("SS", [i, i])
                B[vi, vj] = A[vi]

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        cls = Module
        s = R.vm.alloc_storage(R.shape([16]), 0, "uint8")
{lines}
""")


VECTOR = np.array([0.0, 0.5, -0.5, 0.25], "float32")
A = 'a = R.vm.alloc_tensor(s, 0, R.shape([4]), "float32")\n_1 = cls.exp(x, a)\n'
T_ = 't = R.vm.alloc_storage(R.shape([16]), 0, "uint8")\n'
B = 'b = R.vm.alloc_tensor(t, 0, R.shape([4]), "float32")\n_2 = cls.exp(a, b)\n'
C = 'c = R.vm.alloc_tensor(s, 0, R.shape([4]), "float32")\n'


@pytest.mark.rule("OPT-10", "OPT-11")
@pytest.mark.parametrize(
    ("body", "is_needed"),
    [
        (A + "k = R.vm.kill_object(s)\nreturn a", False),
        (A + T_ + B + "k = R.vm.kill_object(a)\n" + C + "_3 = cls.exp(b, c)\nreturn c", False),
        (A + T_ + B + C + "_3 = cls.exp(b, c)\nreturn (a, c)", True),
        (A + T_ + B + C + "_3 = cls.exp(b, c)\n_4 = cls.exp(b, a)\nreturn c", True),
        (A + T_ + B + C + "_3 = cls.half(b, c)\nreturn c", True),
        (A + T_ + B + C.replace("[4]", "[2, 2]") + "_3 = cls.diagonal(b, c)\nreturn c", True),
        (A + T_ + B + C + "return (b, c)", True),
        (A + C + "_3 = cls.exp(x, c)\nd = a\nreturn d", True),
        (A + "u = (s, a)\nv = u[0]\n" + C.replace("(s", "(v") + "return c", True),
        (A.replace("[4]", "[3]").replace("_1 = cls.exp(x, a)", "return x"), False),
        (A.replace("(s, 0", "(s, 4").replace("_1 = cls.exp(x, a)", "return x"), True),
    ],
)
def test_storage_exists_where_its_tensors_share_it(body: str, is_needed: bool) -> None:
    mod = planned(body)
    executable = relaxpy.compile(mod, "numpy", relax_pipeline=None)
    assert ("new_storage" in executable.source) is is_needed
    if "(s, 4" in body:
        with pytest.raises(RuntimeCheckError, match="at byte 4 leaves the storage, which has 16"):
            executable["main"](VECTOR)
        return
    expected = relaxpy.compile(mod, target="reference", relax_pipeline=None)["main"](VECTOR)
    np.testing.assert_allclose(executable["main"](VECTOR), expected, rtol=1e-5)


@pytest.mark.rule("EV-27")
def test_kernels_on_new_tensors_are_called_without_checks() -> None:
    def source(body: str) -> str:
        text = relaxpy.compile(planned(body), "numpy", relax_pipeline=None).source
        return text[text.index("def main(") :]

    assert "exp_unchecked(x, a" in source(A + "return a")
    assert "exp_unchecked" not in source(A.replace("(x, a)", "(a, a)") + "return a")
    assert "exp_unchecked" not in source("_1 = cls.exp(x, x)\nreturn x")
    moved = A.replace("_1 = cls.exp(x, a)", "b = a\n_1 = cls.exp(b, a)") + "return a"
    assert "exp_unchecked" not in source(moved)
