"""Kernels specialised to known sizes."""

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax, tir
from relaxpy.errors import MisuseError
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import tir as T


@T.prim_func(private=True)
def matmul(a: T.handle, b: T.handle, c: T.handle, n: T.int32) -> None:
    m = T.int32()
    A = T.match_buffer(a, [m, n])
    B = T.match_buffer(b, [m, n])
    C = T.match_buffer(c, [m, m])
    for i, j, k in T.grid(m, m, n):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]


@T.prim_func(private=True)
def matmul_128(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, [128, 128])
    B = T.match_buffer(b, [128, 128])
    C = T.match_buffer(c, [128, 128])
    for i, j, k in T.grid(128, 128, 128):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]


@T.prim_func(private=True)
def matmul_m_128(a: T.handle, b: T.handle, c: T.handle) -> None:
    m = T.int32()
    A = T.match_buffer(a, [m, 128])
    B = T.match_buffer(b, [m, 128])
    C = T.match_buffer(c, [m, m])
    for i, j, k in T.grid(m, m, 128):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]


@T.prim_func(private=True)
def copied(a: T.handle, b: T.handle, m: T.int32, n: T.int32, p: T.int32, q: T.int32) -> None:
    A = T.match_buffer(a, (m, n), "float32", strides=[p, 1], elem_offset=q)
    B = T.match_buffer(b, (m, n), "float32", strides=[p, 1], elem_offset=q)
    for i, j in T.grid(m, n):
        B[i, j] = A[i, j]


@T.prim_func(private=True)
def copied_16(a: T.handle, b: T.handle) -> None:
    A = T.match_buffer(a, (16, 16), "float32", strides=[8, 1], elem_offset=4)
    B = T.match_buffer(b, (16, 16), "float32", strides=[8, 1], elem_offset=4)
    for i, j in T.grid(16, 16):
        B[i, j] = A[i, j]


@T.prim_func(private=True)
def folding(a: T.handle, b: T.handle) -> None:
    n = T.int32()
    A = T.match_buffer(a, [n // 8, 8], "int32")
    B = T.match_buffer(b, [n], "int32")
    for i in range(n - 1):
        B[i] = A[i // 8, i % 8] + ((n + 1) * 42 + (n - 16))


@T.prim_func(private=True)
def folded(a: T.handle, b: T.handle) -> None:
    A = T.match_buffer(a, [2, 8], "int32")
    B = T.match_buffer(b, [16], "int32")
    for i in range(15):
        B[i] = A[i // 8, i % 8] + 714


def test_nothing_known_is_the_same_function() -> None:
    assert matmul.specialize({}) is matmul


def test_a_buffer_says_what_sizes_are() -> None:
    known = matmul.specialize({matmul.params[0]: tir.decl_buffer((128, 128))})
    assert_structural_equal(known, matmul_128)


def test_a_scalar_parameter_with_a_value_is_none() -> None:
    n = matmul.params[3]
    assert_structural_equal(matmul.specialize({n: 128}), matmul_m_128)
    x = tir.Var("x", "int32")
    known = matmul.specialize({n: x * 8})
    assert known.params == matmul.params[:3]
    assert known.buffer_map[known.params[0]].shape[1] is x * 8


def test_strides_and_offsets_are_sizes_too() -> None:
    a, _, m, n, p, q = copied.params
    other = tir.decl_buffer((16, 16), strides=[8, 1], elem_offset=4)
    assert_structural_equal(copied.specialize({a: other}), copied_16)
    assert_structural_equal(copied.specialize({n: 16, m: 16, p: 8, q: 4}), copied_16)
    same = copied.specialize({q: n})
    assert same.params == (a, copied.params[1], m, n, p)
    assert same.buffer_map[a].elem_offset is n


def test_buffers_share_memory_only_with_another_one_of_the_function() -> None:
    a, b = copied.params[:2]
    shared = copied.specialize({a: copied.buffer_map[b]})
    assert shared.buffer_map[a].data is shared.buffer_map[b].data is copied.buffer_map[b].data
    other = tir.decl_buffer((16, 16), strides=[8, 1], elem_offset=4)
    assert copied.specialize({a: other}).buffer_map[a].data is copied.buffer_map[a].data


def test_literals_are_folded() -> None:
    b = folding.params[1]
    known = folding.specialize({b: tir.decl_buffer([16], "int32")})
    assert_structural_equal(known, folded)


def test_a_specialised_kernel_computes_the_same() -> None:
    b = folding.params[1]
    known = folding.specialize({b: tir.decl_buffer([16], "int32")})
    given = np.arange(16, dtype="int32").reshape(2, 8)
    results = []
    for func in (folding, known):
        out = np.zeros(16, "int32")
        func(given, out)
        results.append(out)
    np.testing.assert_array_equal(results[0], results[1])


@T.prim_func(private=True)
def declared(data: T.handle("float32"), size: T.int32):  # type: ignore[valid-type]
    A = T.decl_buffer(size, "float32", data=data)
    for i in range(size):
        A[i] = A[i] * 2.0


@T.prim_func(private=True)
def declared_16(data: T.handle("float32")):  # type: ignore[valid-type]
    A = T.decl_buffer(16, "float32", data=data)
    for i in range(16):
        A[i] = A[i] * 2.0


@T.prim_func(private=True)
def two_pointers(first: T.handle("float32"), second: T.handle("float32")):  # type: ignore[valid-type]
    A = T.decl_buffer(32, "float32", data=first)
    B = T.decl_buffer(16, "float32", data=second)
    for i in range(16):
        B[i] = A[i] * 2.0


def test_declared_buffers_follow() -> None:
    assert_structural_equal(declared.specialize({declared.params[1]: 16}), declared_16)


def test_a_pointer_that_is_known_is_bound_where_a_buffer_is_declared_on_it() -> None:
    outer = two_pointers.body
    assert isinstance(outer, tir.DeclBuffer)
    place = tir.address_of(outer.buffer[16])
    known = two_pointers.specialize({two_pointers.params[1]: place})
    assert [p.name for p in known.params] == ["first"]
    bound = known.body.body  # type: ignore[attr-defined]
    assert (bound.var, bound.value) == (two_pointers.params[1], place)
    renamed = tir.Var("third", two_pointers.params[1].type_annotation)
    assert two_pointers.specialize({two_pointers.params[1]: renamed}).params == (
        two_pointers.params[0],
    )


def test_the_signature_follows() -> None:
    @T.prim_func(private=True)
    def ten(n: T.int32) -> T.int32:
        T.ret(n * 10)

    known = ten.specialize({ten.params[0]: 5})
    assert known.struct_info == relax.FuncStructInfo([], relax.PrimStructInfo("int32"), False)
    assert isinstance(known, PrimFunc)
    IRModule({"ten": known})


def test_floor_divisions_of_floats_stay() -> None:
    @T.prim_func(private=True)
    def rounded(out: T.Buffer((2,), "float32"), x: T.float32):
        out[0] = T.FloorDiv(T.float32(7), x)
        out[1] = T.FloorMod(T.float32(7), x)

    known = rounded.specialize({rounded.params[1]: T.float32(2)})
    out = np.zeros(2, "float32")
    relaxpy.compile(known)(out)
    assert out.tolist() == [3, 1]


@pytest.mark.parametrize(("divisor", "count"), [(0, 4), (1, 0)])
def test_divisions_by_zero_stay(divisor: int, count: int) -> None:
    @T.prim_func(private=True)
    def divided(out: T.Buffer((4,), "int32"), x: T.int32):
        out[0] = T.FloorDiv(7, x)
        out[1] = T.FloorMod(7, x)
        out[2] = T.Div(7, x)
        out[3] = T.Mod(7, x)

    known = divided.specialize({divided.params[1]: divisor})
    assert sum(isinstance(node, tir.BinaryOpExpr) for node in walk(known.body)) == count


a, b, c, n = matmul.params


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({a: tir.decl_buffer((128,))}, "2 dimensions"),
        ({a: tir.decl_buffer((1, 2), strides=[2, 1])}, "0 strides"),
        ({a: tir.decl_buffer((1, 2), data_alignment=8)}, "alignment"),
        ({a: tir.decl_buffer((1, 2), offset_factor=8)}, "offset factor"),
        ({a: tir.decl_buffer((1, 2), "int8")}, "holds float32"),
        ({a: tir.decl_buffer((1, 2)), b: tir.decl_buffer((3, 2))}, "two values"),
        ({a: 3}, "whose value is a Buffer"),
        ({n: tir.decl_buffer((1, 2))}, "has no buffer"),
        ({n: tir.const(3, "int64")}, "cannot be int64"),
        ({tir.Var("n", "int32"): 3}, "not a parameter"),
        ([n], "param_map maps"),
    ],
)
def test_what_does_not_fit(table: object, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        matmul.specialize(table)  # type: ignore[arg-type]


def test_only_lone_variables_get_values() -> None:
    first = folding.params[0]
    with pytest.raises(TypeError, match="only a variable dimension"):
        folding.specialize({first: tir.decl_buffer((2, 8), "int32")})
