"""Forms of kernels that texts and programs of TVM have: how they are read, and printed."""

import re
from textwrap import dedent

import numpy as np
import pytest

import relaxpy
from relaxpy import te, topi
from relaxpy.errors import MisuseError, ParseError
from relaxpy.ir import assert_structural_equal, diagnostics
from relaxpy.ir.tir import expr as tir
from relaxpy.script import from_source, parser, relax as R, tir as T
from relaxpy.script.parser import ir_module, parse, prim_func
from relaxpy.tir.schedule.testing import assert_structural_equal_ignore_global_symbol
from relaxpy.topi.nn import pooling


def reads_back(func) -> str:
    """The text of `func`, after a check that it is that of an equal function."""
    shown = func.script(width=200)
    again = from_source(shown, check_well_formed=False)
    assert_structural_equal(func, again, map_free_vars=True)
    return shown


@T.prim_func
def allocating(A: T.Buffer((4,), "int8")):
    B = T.decl_buffer((4,), "int8", scope="shared")
    C = T.decl_buffer((2,), "int8", data=B.data)
    for i, j in T.grid(2, 2):
        with T.block("copy"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi * 2 + vj] = A[vi]
            C[vi] = A[vj]


def test_a_declaration_without_data_allocates() -> None:
    shown = reads_back(allocating)
    assert 'B = T.decl_buffer((4,), "int8", scope="shared")' in shown
    assert 'C = T.decl_buffer((2,), "int8", data=B.data, scope="shared")' in shown
    assert "T.allocate" not in shown


def test_without_sugar_each_loop_and_axis_is_a_statement() -> None:
    shown = allocating.script(syntax_sugar=False)
    assert_structural_equal(allocating, from_source(shown))
    lines = [line.strip() for line in shown.splitlines()]
    assert lines[3:5] == [
        "def allocating(var_A: T.handle):",
        'A = T.match_buffer(var_A, (4,), "int8")',
    ]
    for line in (
        'with T.block("root"):',
        'B = T.allocate([4], "int8", "shared")',
        'B_1 = T.decl_buffer((4,), "int8", data=B, scope="shared")',
        "for i in range(2):",
        "for j in range(2):",
        "vi = T.axis.spatial(2, i)",
        "vj = T.axis.spatial(2, j)",
    ):
        assert line in lines
    assert "grid" not in shown
    assert "remap" not in shown


def test_names_can_end_in_what_identifies_the_object() -> None:
    shown = allocating.script(show_object_address=True)
    [address] = set(re.findall(r"\bvi_0x([0-9a-f]+)\b", shown))
    assert address
    assert not re.search(r"\b(vi|vj|A|B|i)\b", shown)
    assert_structural_equal(allocating, from_source(shown))


def test_a_buffer_of_unknown_memory_is_declared_by_its_name() -> None:
    @T.prim_func
    def main(A: T.Buffer((8,), "float32")):
        B = T.Buffer((8,), scope="local")
        T.realize(B[0:8], "local")
        for i in range(8):
            B[i] = A[i]
            A[i] = B[i] * T.float32(2)

    shown = reads_back(main)
    assert '    B = T.Buffer((8,), scope="local")\n    T.realize(B[0:8], "local")\n' in shown


def test_getattr_reads_an_attribute() -> None:
    dtype = "float8_e4m3fn"

    @T.prim_func
    def main():
        T.evaluate(getattr(T, dtype)(1))

    assert str(main.body.value.dtype) == dtype
    body = "@T.prim_func\ndef main():\n    T.evaluate({})"
    named = "getattr takes the name of a public attribute, found "
    for text, message in (
        ('getattr(T, "__class__")(1)', f"{named}'__class__'"),
        ('getattr(T, "int8(1)")', f"{named}'int8(1)'"),
        ("getattr(T, 3)", f"{named}3"),
        ('getattr(T, "no_such_name")', "T has no attribute 'no_such_name'"),
        ('list(map(getattr, [T], ["int8"]))[0](1)', "'getattr' is not available"),
    ):
        with pytest.raises(ParseError, match=re.escape(message)):
            from_source(body.format(text))


def test_intrinsics_of_hardware_are_printed_by_their_names() -> None:
    @T.prim_func
    def main(A: T.Buffer((4,), "float32"), B: T.Buffer((16,), "float32")):
        A[0:4] = T.call_llvm_pure_intrin("float32x4", "llvm.sqrt", A[0:4])
        B[0 : T.vscale() * 4] = B.vload([T.Ramp(0, 1, T.vscale() * 4)])
        mask = T.meta_var(T.get_active_lane_mask("uint1xvscalex4", 0, 13))
        B.vstore([T.Ramp(0, 2, T.vscale() * 4)], B[0 : T.vscale() * 4], predicate=mask)

    shown = reads_back(main)
    assert 'A[0:4] = T.call_llvm_pure_intrin("float32x4", "llvm.sqrt", A[0:4])' in shown
    assert "B[0:T.vscale() * 4] = B[0:T.vscale() * 4]" in shown
    assert 'predicate=T.get_active_lane_mask("uint1xvscalex4", 0, 13))' in shown


def test_a_declaration_describes_the_variables_of_its_shape() -> None:
    @T.prim_func(check_well_formed=False)
    def main():
        size = T.int32()
        stride = T.int32()
        B = T.decl_buffer((size,), "float32", strides=(stride,))
        T.evaluate(B[0])

    assert "size = T.int32()" in reads_back(main)


def test_a_block_may_use_the_data_of_what_it_allocates() -> None:
    @T.prim_func
    def main(A: T.Buffer((8,), "int8")):
        for k in range(2):
            with T.block("copy"):
                B = T.alloc_buffer((8,), "int8")
                T.evaluate(T.call_extern("int32", "fill", B.data))
                for i in range(8):
                    A[i] = B[i] + T.Cast("int8", k)

    block = main.body.block.body.body.block
    assert block.reads == ()
    assert str(block.writes[0]) == "A[0:8]"
    reads_back(main)
    body = """
        @T.prim_func
        def main(A: T.Buffer((8,), "int8")):
            for k in range(2):
                with T.block("use"):
                    T.evaluate(T.call_extern("int32", "fill", A.data))
    """
    for place in ("A.data", "A", "T.address_of(A[0])"):
        with pytest.raises(ParseError, match="the data of buffer A is used as a pointer"):
            from_source(dedent(body.replace("A.data", place)))


def test_a_sum_of_calls_of_kernels_is_a_statement() -> None:
    @ir_module
    class Module:
        @T.prim_func
        def main(A: T.Buffer((2,), "float32")):
            Module.double(A[0]) + Module.double(A[1])

        @T.prim_func(private=True)
        def double(x: T.float32) -> T.float32:
            T.ret(x * T.float32(2))

    assert str(Module["main"].body) == "T.evaluate(double(A[0]) + double(A[1]))"
    body = "@T.prim_func\ndef main(x: T.float32):\n    T.exp(x) + T.float32(1)"
    with pytest.raises(ParseError, match="is not used"):
        from_source(body)


def test_rounding_of_literals() -> None:
    for name, value, expected in (
        ("floor", -1.5, -2),
        ("ceil", -1.5, -1),
        ("trunc", -1.5, -1),
        ("round", 2.5, 2),
        ("nearbyint", 3.5, 4),
        ("round", -0.2, 0),
    ):
        rounded = getattr(T, name)(T.float32(value))
        assert isinstance(rounded, tir.FloatImm)
        assert (rounded.value, rounded.dtype) == (expected, "float32")
    assert not isinstance(T.floor(T.float32("inf")), tir.FloatImm)


def test_an_attribute_may_be_a_scalar_with_a_name() -> None:
    @R.function
    def main(x: R.Tensor((1, 2, 1, 4), "float32")):
        scale = T.FloatImm("float32", 0.5)
        return R.nn.attention(x, x, x, scale=scale)

    [call] = [b.value for b in main.body.blocks[0].bindings if "attention" in str(b.value)]
    assert call.attrs["scale"] == 0.5


def test_an_extern_is_computed_by_a_kernel() -> None:
    @T.prim_func(private=True)
    def kernel(
        A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "int8")
    ):
        for i in range(4):
            B[i] = A[i] * T.float32(2)
            C[i] = T.Cast("int8", A[i])

    a = te.placeholder((4,), name="a")
    doubled, cast = te.extern_primfunc([a], kernel)
    compiled = relaxpy.compile(te.create_prim_func([a, doubled, cast]))["main"]
    values = np.float32([1, 2, 3, 4])
    results = np.zeros(4, "float32"), np.zeros(4, "int8")
    compiled(values, *results)
    np.testing.assert_array_equal(results[0], values * 2)
    np.testing.assert_array_equal(results[1], values.astype("int8"))

    @T.prim_func(private=True)
    def inplace(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = B[i] + A[i]

    assert te.extern_primfunc([a], inplace).shape == doubled.shape
    with pytest.raises(MisuseError, match="the inputs are the tensors for A"):
        te.extern_primfunc([te.placeholder((5,))], inplace)
    with pytest.raises(MisuseError, match="expected a PrimFunc"):
        te.extern_primfunc([a], te)
    with pytest.raises(MisuseError, match="reads and writes buffers"):
        te.extern_primfunc([a], T.prim_func(private=True)(_nothing))


def _nothing(A: T.Buffer((4,), "float32")):
    T.evaluate(0)


def test_a_renderer_is_given_the_error_of_a_text_once() -> None:
    seen: list[relaxpy.errors.RelaxpyError] = []
    diagnostics.override_renderer(seen.append)
    try:
        with pytest.raises(ParseError):
            from_source("@T.prim_func\ndef main(a):\n    T.evaluate(0)")
        [error] = seen
        [fault] = error.diagnostics
        assert fault.message == "parameter 'a' has no annotation"
        assert fault.span is not None
        assert fault.span.line == 2
    finally:
        diagnostics.override_renderer(None)
    with pytest.raises(TypeError, match="a renderer is a function, found 3"):
        diagnostics.override_renderer(3)  # type: ignore[arg-type]


def test_the_parser_has_the_decorators_and_the_reader() -> None:
    @prim_func
    def main(A: T.Buffer((4,), "int8")):
        A[0] = T.int8(1)

    @ir_module
    class Module:
        @T.prim_func
        def main(A: T.Buffer((4,), "int8")):
            A[0] = T.int8(1)

    assert parse is from_source
    assert_structural_equal(Module["main"], main)
    assert_structural_equal_ignore_global_symbol(main.with_attr("global_symbol", "f"), main)
    with pytest.raises(AssertionError):
        assert_structural_equal_ignore_global_symbol(main, allocating)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        parser.nothing  # noqa: B018


def test_pooling_has_a_module_of_its_own() -> None:
    assert pooling.pool2d is topi.nn.pool2d
    assert pooling.adaptive_pool is topi.nn.adaptive_pool


def test_names_and_assertions_of_newer_versions() -> None:
    func = from_source(
        """
        @T.prim_func
        def f(A: T.Buffer((8,), "int32"), n: T.int32):
            assert n < 8, ("ValueError", ["n is below ", "8"])
            assert n > 0, ("RuntimeError", ["n is positive"])
            x: T.let[T.int32] = n + 1
            A[x] = x
        """
    )
    shown = reads_back(func)
    assert 'assert n < 8, "ValueError: n is below 8"' in shown
    assert 'assert n > 0, "n is positive"' in shown
    assert "x: T.int32 = n + 1" in shown
    with pytest.raises(ParseError, match="a message is a string or"):
        from_source("@T.prim_func\ndef f(n: T.int32):\n    assert n < 8, ('ValueError', 8)")
    with pytest.raises(ParseError, match="a variable in a kernel is a scalar or a handle"):
        from_source("@T.prim_func\ndef f(n: T.int32):\n    x: T.let[8] = n")
