"""Classes of modules: functions that see each other, attributes, global infos."""

import pytest

import relaxpy
from relaxpy.errors import MisuseError, ParseError, RelaxpyError, StructInfoError
from relaxpy.ir import IRModule, assert_structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from tests.script.marked import check_marks

WIDTH = 4


@I.ir_module
class Model:
    """A docstring."""

    I.module_attrs({"version": 2})
    half = WIDTH // 2
    extern = R.ExternFunc("my.extern")

    @R.function
    def main(x: R.Tensor(("n", WIDTH), "float32")) -> R.Tensor(("n", WIDTH), "float32"):
        cls = Model
        n = T.int64()
        with R.dataflow():
            lv = R.call_tir(cls.copy, (x,), out_sinfo=R.Tensor((n, WIDTH), "float32"))
            gv = cls.later(lv)
            R.output(gv)
        return Model.later(gv)

    @R.function(private=True)
    def later(x: R.Tensor(("k", WIDTH), "float32")):
        return x

    @T.prim_func(private=True)
    def copy(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, WIDTH), "float32")
        B = T.match_buffer(b, (n, WIDTH), "float32")
        for i, j in T.grid(n, half * 2):  # noqa: F821
            with T.block("copy"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]


@pytest.mark.rule("SC-1", "SC-2", "TOP-1", "TOP-5", "DER-2")
def test_functions_see_each_other_whatever_their_order() -> None:
    assert isinstance(Model, IRModule)
    assert [v.name_hint for v in Model.get_global_vars()] == ["extern", "main", "later", "copy"]
    assert isinstance(Model["copy"], PrimFunc)
    assert isinstance(Model["extern"], rx.ExternFunc)
    assert dict(Model.attrs) == {"version": 2}
    later = Model["later"].struct_info
    assert isinstance(later, rx.FuncStructInfo)
    assert later.ret == Model["later"].params[0].struct_info  # type: ignore[attr-defined]
    assert "global_symbol" not in Model["later"].attrs


@pytest.mark.rule("DER-2")
def test_a_variable_named_like_a_function_does_not_mention_it() -> None:
    @I.ir_module
    class Module:
        @R.function
        def x(y: R.Tensor((2,), "float32")):
            return Module.later(y) + Module.shape(y)

        @R.function
        def later(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                shape = R.exp(x)
                twice = shape + shape
                R.output(twice)
            return twice

        @R.function
        def shape(x: R.Tensor((2,), "float32")):
            return R.reshape(x, x.shape)

    assert isinstance(Module, IRModule)
    results = [Module[name].struct_info.ret for name in ("x", "later", "shape")]  # type: ignore[attr-defined]
    assert [str(sinfo) for sinfo in results] == ['R.Tensor((2,), dtype="float32")'] * 3


def test_a_module_reads_back() -> None:
    assert_structural_equal(from_source(Model.script()), Model)


@pytest.mark.rule("WF-8b")
@pytest.mark.parametrize(("result", "missing"), [("", 2), (' -> R.Tensor((), "bool")', 1)])
def test_a_missing_return_annotation_in_a_cycle_is_the_only_error(
    result: str, missing: int
) -> None:
    with pytest.raises(RelaxpyError) as caught:
        from_source(f"""
@I.ir_module
class Module:
    @R.function
    def even(k: R.Tensor((), "int64")){result}:
        return Module.odd(k)

    @R.function
    def odd(k: R.Tensor((), "int64")):
        return Module.even(k)
""")
    assert [d.rule for d in caught.value.diagnostics] == ["WF-8b"] * missing


def test_options_of_the_decorator() -> None:
    text = """
@I.ir_module(check_well_formed=False)
class Module:
    @R.function
    def main(x: R.Tensor):
        m = T.int64()
        return R.shape([m])
"""
    assert isinstance(from_source(text), IRModule)
    with pytest.raises(RelaxpyError, match="bound nowhere"):
        from_source(text.replace("(check_well_formed=False)", ""))
    with pytest.raises(MisuseError, match="decorates a class"):
        I.ir_module(5)
    with pytest.raises(MisuseError, match="True or False"):
        I.ir_module(check_well_formed="no")
    with pytest.raises(MisuseError, match="decorates a function"):
        R.function(5)


def test_attributes_of_a_module_may_be_put_in_place_of_others() -> None:
    module = from_source("""
        @I.ir_module
        class Module:
            I.module_attrs({"a": 1, "b": 2})
            I.module_attrs({"b": 3, "c": 4}, allow_overwrite=True)

            @R.function
            def main(x: R.Object):
                return x
    """)
    assert dict(module.attrs) == {"b": 3, "c": 4}


@pytest.mark.rule("TOP-1", "OP-1", "OP-8", "DER-41")
def test_errors_in_modules_are_located() -> None:
    check_marks("""
        @I.ir_module
        class Module:
            I.module_attrs({"a": 1})
            I.module_attrs({"b": 1})
        #   ^^^^^^^^^^^^^^^^^^^^^^^^ I.module_attrs occurs twice
        # hint: with allow_overwrite=True these replace the others
            I.module_attrs({"c": 1}, allow_overwrite=True)
            while True: pass
        #   ^^^^^ while is not part of a module
        # hint: use recursion: a function that calls itself in one branch of an if
            def plain(x): return x
        #       ^^^^^ function 'plain' is neither a graph function nor a kernel
        # hint: decorate it with @R.function or @T.prim_func
            @T.prim_func
            def f(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
                B[0, 0] = A[0, 0]
            @T.prim_func
            def broken(A: T.Buffer((4, 8), "float32")):
                A[0, 0] = nothing
            #             ^^^^^^^ unknown name 'nothing'
            @R.function
            def main(
                x: R.Tensor((4, 8), "float32"),
                y: R.Tensor((4,), "float32"),
                z: R.Tensor((4, 8), "int8"),
            ):
                cls = Module
                a = R.call_tir(cls.f, (y,), out_sinfo=R.Tensor((4, 8), "float32"))
                #                      ^ relax.call_tir: operand 1 of f is R.Tensor((4,),
                # ... dtype="float32"), the kernel takes R.Tensor((4, 8), dtype="float32"):
                # ... rank 1 is not rank 2 [OP-8]
                b = R.call_tir(cls.f, (z,), out_sinfo=R.Tensor((4, 8), "float32"))
                #                      ^ relax.call_tir: operand 1 of f is R.Tensor((4, 8),
                # ... dtype="int8"), the kernel takes R.Tensor((4, 8), dtype="float32"): dtype
                # ... int8 is not float32 [OP-8]
                c = R.call_tir(cls.ff, (x,), out_sinfo=R.Tensor((4, 8), "float32"))
                #                  ^^ the module has no function 'ff' [SC-1]
                # hint: it has broken, f, main
                d = R.call_tir(cls.main, (x,), out_sinfo=R.Tensor((4, 8), "float32"))
                #              ^^^^^^^^ relax.call_tir: main is a Relax function, not a PrimFunc
                # ... [OP-1]
                # hint: call it directly: main(...)
                d = R.call_tir(cls.f, (x,))
                #   ^^^^^^^^^^ relax.call_tir: argument 'out_sinfo' is missing [OP-3]
                # hint: declare the outputs once: out_sinfo=R.Tensor((4, 4), "float32")
                e = cls.broken(x)
                f = R.shape_of(e)
                g = cls.main2(y)
                #       ^^^^^ the module has no function 'main2' [SC-1]
                # hint: did you mean 'main'?
                return x
    """)


def test_what_a_module_cannot_be() -> None:
    with pytest.raises(ParseError, match="has no base other than"):
        from_source("@I.ir_module\nclass M(R.Tensor):\n    pass\n")
    with pytest.raises(ParseError, match="two functions named 'f'"):
        from_source(
            "@I.ir_module\nclass M:\n"
            + "    @R.function\n    def f(x: R.Tensor):\n        return x\n" * 2
        )


def test_functions_in_a_class_that_is_not_a_module_stand_for_themselves() -> None:
    class Plain:
        @R.function
        def f(x: R.Tensor((WIDTH,), "float32")):
            return x

        @T.prim_func
        def g(A: T.Buffer((WIDTH,), "float32")):
            A[0] = 1.0

    assert isinstance(Plain.f, rx.Function)
    assert Plain.f is Plain.f
    assert isinstance(Plain().g, PrimFunc)


def test_a_failing_module_reports_once_per_mistake() -> None:
    with pytest.raises(StructInfoError) as caught:

        @I.ir_module
        class Module:
            @R.function
            def main(x: R.Tensor((4,), "float32")) -> R.Tensor((5,), "float32"):
                return x

            @R.function
            def other(x: R.Tensor((4,), "float32")) -> R.Shape:
                return Module.main(x)

    assert len(caught.value.diagnostics) == 2
    assert caught.value.diagnostic.span is not None
    assert caught.value.diagnostic.span.file == __file__


@pytest.mark.rule("DER-3")
def test_a_function_outside_a_module_names_kernels_of_modules_to_come() -> None:
    later = rx.GlobalVar("later")

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.call_tir(later, x, out_sinfo=R.Tensor((2,), "float32"))
        return y

    assert main.body.struct_info == rx.TensorStructInfo((2,), "float32")
    names: dict[str, object] = {"later": later, "R": R}
    called = """
@R.function
def main(x: R.Tensor((4,), "float32")):
    y = later(x)
    return y
"""
    with pytest.raises(StructInfoError, match=r"the module has no function later \[DER-3\]"):
        from_source(called, names)


@pytest.mark.rule("OP-8")
def test_a_kernel_that_does_not_fit_is_an_error_at_its_call() -> None:
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((SIZE,), "float32")):
        y = R.call_tir(Module.copy, x, out_sinfo=R.Tensor((4,), "float32"))
        return y

    @T.prim_func
    def copy(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i]
"""
    assert isinstance(from_source(text.replace("SIZE", "4")), IRModule)
    with pytest.raises(StructInfoError, match=r"dimension 0: 5 is not 4 \[OP-8\]") as caught:
        from_source(text.replace("SIZE", "5"))
    assert caught.value.diagnostic.span is not None
    assert caught.value.diagnostic.span.line == 6
    unchecked = from_source(text.replace("SIZE", "5"), check_well_formed=False)
    [found] = check_well_formed(unchecked)
    assert (found.rule, found.span and found.span.line) == ("OP-8", 6)
    with pytest.raises(StructInfoError, match="OP-8"):
        relaxpy.compile(unchecked)


@pytest.mark.rule("DER-18", "DER-45")
@pytest.mark.parametrize(
    ("rule", "annotation", "result"),
    [
        ("DER-18", "(4,), 'int32'", "(4,), 'int32'"),
        ("DER-45", "(4,), 'float32'", "(5,), 'float32'"),
    ],
)
def test_a_wrong_annotation_of_an_unchecked_function_is_found_later(rule, annotation, result):
    text = f"""
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Tensor({result}):
    y: R.Tensor({annotation}) = R.exp(x)
    return y
"""
    with pytest.raises(StructInfoError, match=rule):
        from_source(text)
    unchecked = from_source(text, check_well_formed=False)
    assert rule in {found.rule for found in check_well_formed(unchecked)}


@pytest.mark.rule("SC-1")
@pytest.mark.parametrize("use", ["R.shape([k, 2])", "R.prim_value(k)"])
def test_a_function_of_the_module_hides_a_number_of_its_name(use: str) -> None:
    text = f"""
@I.ir_module
class Module:
    @R.function(private=True)
    def k(x: R.Tensor((4,), "float32")):
        return x

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return {use}
        #    {" " * use.index("k")}  ^ expected a scalar expression, found function k of the
        # ... module [AST-21]
        # hint: if a value of Python is meant, the function hides it: rename one k
"""
    check_marks(text, extra_vars={"I": I, "R": R, "T": T, "k": 2})
