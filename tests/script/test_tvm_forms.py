"""Forms of kernels that texts and programs of TVM have: how they are read, and printed."""

import re

import pytest

import relaxpy
from relaxpy.errors import ParseError
from relaxpy.ir import diagnostics
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.script import from_source, parser, tir as T
from relaxpy.script.parser import ir_module, parse, prim_func
from relaxpy.tir.schedule.testing import assert_structural_equal_ignore_global_symbol


def reads_back(func) -> str:
    """Return the text of `func`, after a check that it is that of an equal function."""
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
