"""Decorated functions that other decorated functions use: they become functions of the module."""

import pickle
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import BuilderStateError, RelaxpyError
from relaxpy.ir import assert_structural_equal, load_json, save_json
from relaxpy.relax.analysis import well_formed
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from relaxpy.script.ir_builder import IRBuilder, ir as ir_frames, relax as graph

ONES = np.ones(4, "float32")


@R.function
def double(x: R.Tensor((4,), "float32")):
    return x + x


@R.function
def quadruple(x: R.Tensor((4,), "float32")):
    return double(double(x))


@T.prim_func
def add_one(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = A[i] + T.float32(1)


def another_double() -> relax.Function:
    @R.function
    def double(x: R.Tensor((4,), "float32")):
        return x * 20.0

    return double


def names(module: relaxpy.IRModule) -> list[str]:
    assert well_formed(module)
    assert_structural_equal(from_source(module.script()), module)
    return [var.name_hint for var in module.functions]


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_a_function_uses_another_twice(target: str) -> None:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = double(x) + double(x)
        return y + 1.0

    module = relaxpy.IRModule.from_expr(main)
    assert names(module) == ["main", "double"]
    assert relaxpy.compile(main, target)["main"](ONES).tolist() == [5] * 4
    assert main(ONES).tolist() == [5] * 4
    assert double(ONES).tolist() == [2] * 4


def test_a_class_holds_what_its_functions_use() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                y = quadruple(x)
                z = R.call_tir(add_one, (y,), out_sinfo=R.Tensor((4,), "float32"))
                R.output(z)
            return z

        @R.function
        def other(x: R.Tensor((4,), "float32")):
            return double(x)

    assert names(Module) == ["main", "other", "quadruple", "double", "add_one"]
    assert relaxpy.compile(Module)["main"](ONES).tolist() == [5] * 4
    assert relaxpy.compile(Module)["double"](ONES).tolist() == [2] * 4


def test_a_member_is_the_function_that_it_names() -> None:
    @I.ir_module
    class Module:
        twice = double

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            return double(Module.twice(x))

    assert names(Module) == ["twice", "main"]
    assert relaxpy.compile(Module)["main"](ONES).tolist() == [4] * 4


def test_a_callee_that_means_another_function_is_another_one_itself() -> None:
    def quadruple_of(double: relax.Function) -> relax.Function:
        @R.function
        def quadruple(x: R.Tensor((4,), "float32")):
            return double(double(x))

        return quadruple

    first, second = quadruple_of(double), quadruple_of(another_double())

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return first(x), second(x)

    assert [found.tolist() for found in main(ONES)] == [[4] * 4, [400] * 4]


def test_a_definition_of_the_text_has_its_name_before_what_it_uses() -> None:
    outer = double

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            return outer(Module.double(x))

        @R.function
        def double(x: R.Tensor((4,), "float32")):
            return x * 3.0

    assert names(Module) == ["main", "double", "double1"]
    assert relaxpy.compile(Module)["main"](ONES).tolist() == [6] * 4


def test_functions_are_values() -> None:
    @R.function
    def apply(f: R.Callable((R.Tensor((4,), "float32"),), R.Tensor((4,), "float32")), x: R.Object):
        y = R.match_cast(x, R.Tensor((4,), "float32"))
        return f(f(y))

    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        f = double
        if c:  # noqa: SIM108
            g = quadruple
        else:
            g = f
        h = (f, g)
        return apply(g, h[0](x))

    assert names(relaxpy.IRModule.from_expr(main)) == ["main", "double", "quadruple", "apply"]
    assert main(ONES, True).tolist() == [32] * 4
    assert main(ONES, False).tolist() == [8] * 4


def test_helpers_and_local_functions_use_decorated_functions() -> None:
    def twice(f: Any, x: relax.Expr) -> relax.Expr:
        return f(f(x)) + R.call_tir(add_one, (x,), R.Tensor((4,), "float32"))

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        @R.function
        def local(y: R.Tensor((4,), "float32")):
            return twice(double, y)

        return local(x)

    assert names(relaxpy.IRModule.from_expr(main)) == ["main", "double", "add_one"]
    assert main(ONES).tolist() == [6] * 4


def test_private_functions_go_by_the_name_that_the_text_has_for_them() -> None:
    @R.function(private=True)
    def square(x: R.Tensor((4,), "float32")):
        return x * x

    kernel = add_one.without_attr("global_symbol")

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return square(R.call_tir(kernel, (x,), R.Tensor((4,), "float32")))

    assert names(relaxpy.IRModule.from_expr(main)) == ["main", "kernel", "square"]
    assert main(ONES).tolist() == [4] * 4


@pytest.mark.rule("SC-1")
def test_a_function_calls_itself() -> None:
    @R.function
    def power(x: R.Tensor((4,), "float32"), n: R.Tensor((), "int64")) -> R.Tensor((4,), "float32"):
        if n > 0:  # noqa: SIM108
            y = x * power(x, n - 1)
        else:
            y = R.ones_like(x)
        return y

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return power(double(x), R.const(3, "int64"))

    assert power(2 * ONES, 3).tolist() == [8] * 4
    assert relaxpy.compile(power, "reference")["power"](2 * ONES, 3).tolist() == [8] * 4
    assert main(ONES).tolist() == [8] * 4
    assert_structural_equal(from_source(power.script()), power)


def test_what_is_saved_printed_or_changed_keeps_its_callees() -> None:
    text = quadruple.script()
    assert names(from_source(text)) == ["double", "quadruple"]
    assert_structural_equal(from_source(text)["quadruple"], quadruple)
    for copy in (
        load_json(save_json(quadruple)),
        pickle.loads(pickle.dumps(quadruple)),
        quadruple.with_attr("note", 1),
    ):
        assert copy(ONES).tolist() == [4] * 4


def test_passes_and_builders_take_functions_with_callees() -> None:
    module = relax.transform.LegalizeOps()(relaxpy.IRModule.from_expr(quadruple))
    assert names(module) == ["quadruple", "double", "add"]
    builder = relax.BlockBuilder()
    var = builder.add_func(quadruple, "quadruple")
    x = relax.Var("x", R.Tensor((4,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.Call(var, [x])))
    assert relaxpy.compile(builder.get())["main"](ONES).tolist() == [4] * 4


def test_a_function_taken_out_of_its_module_is_refused_with_what_it_lacks() -> None:
    module = relaxpy.IRModule.from_expr(quadruple)
    taken = module["quadruple"]
    with pytest.raises(RelaxpyError, match="calls double of the module") as caught:

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            return taken(x)

    assert caught.value.diagnostics[0].span is not None
    assert "SC-1" in str(caught.value)


def test_a_kernel_called_like_a_function_says_how_it_is_called() -> None:
    with pytest.raises(RelaxpyError, match=r"R\.call_tir\(add_one"):

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            return add_one(x)


def test_functions_that_all_have_one_name_call_each_other() -> None:
    def after(func: relax.Function) -> relax.Function:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            return func(x) + 1.0

        return main.with_attr("global_symbol", "step")

    func = double
    for _ in range(20):
        func = after(func)
    assert len(names(relaxpy.IRModule.from_expr(func))) == 21
    assert func(ONES).tolist() == [22] * 4


def test_a_builder_enters_the_functions_that_it_calls() -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", R.Tensor((4,), "float32"))
    with builder.function("main", [x]):
        y = builder.emit(double(double(x)))
        z = builder.emit(relax.op.call_tir(add_one, (quadruple(y),), R.Tensor((4,), "float32")))
        builder.emit_func_output(z)
    assert names(builder.get()) == ["double", "add_one", "quadruple", "main"]
    assert relaxpy.compile(builder.get())["main"](ONES).tolist() == [17] * 4


def test_a_renamed_callee_that_comes_by_several_ways_is_one_function() -> None:
    other = another_double()

    @R.function
    def first(x: R.Tensor((4,), "float32")):
        return other(x)

    @R.function
    def second(x: R.Tensor((4,), "float32")):
        return other(x) + double(x)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return double(x) + first(x) + second(x) + other(x)

    module = relaxpy.IRModule.from_expr(main)
    assert names(module) == ["main", "double", "first", "double1", "second"]
    assert relaxpy.compile(main)["main"](ONES).tolist() == [64] * 4
    module = relaxpy.IRModule({"first": first, "second": second})
    assert names(module) == ["first", "second", "double", "double1"]


def test_a_member_that_others_use_is_one_function() -> None:
    other = another_double()

    @R.function
    def step(x: R.Tensor((4,), "float32")):
        return other(x)

    @R.function
    def steps(x: R.Tensor((4,), "float32")):
        return step(step(x))

    @I.ir_module
    class Module:
        one = step

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            return double(steps(x)) + Module.one(x)

    assert names(Module) == ["one", "main", "double", "steps", "double1"]
    assert relaxpy.compile(Module)["main"](ONES).tolist() == [820] * 4


def test_a_builder_renames_callees_with_their_symbols() -> None:
    @R.function
    def main(k: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        if k > 1:
            less = k - 1
            result = k * main(less)
        else:
            result = k
        return result

    other = another_double()
    builder, x = relax.BlockBuilder(), relax.Var("x", R.Tensor((4,), "float32"))
    k = relax.Var("k", R.Tensor((), "int64"))
    with builder.function("main", [x, k]):
        y = builder.emit(other(double(x)))
        z = builder.emit(other(y))
        builder.emit_func_output(relax.Tuple([z, builder.emit(main(k)), builder.emit(main(k))]))
    assert names(builder.get()) == ["double", "double1", "main1", "main"]
    found = relaxpy.compile(builder.get())["main"](ONES, 4)
    assert [value.tolist() for value in found] == [[800] * 4, 24, 24]


def test_a_callee_does_not_take_the_name_of_a_declared_function() -> None:
    signature = quadruple.with_attr("global_symbol", "double")

    def caller() -> None:
        with graph.function():
            graph.func_name("double")
            x = graph.arg("x", graph.Tensor((4,), "float32"))
            graph.func_ret_struct_info(graph.Tensor((4,), "float32"))
            graph.func_ret_value(graph.emit(graph.exp(graph.emit(double(x)))))

    with IRBuilder() as builder, ir_frames.ir_module():
        ir_frames.decl_function("double", signature)
        caller()
    assert names(builder.get()) == ["double", "double1"]
    found = relaxpy.compile(builder.get())["double"](0 * ONES)
    assert found.tolist() == [1] * 4
    message = "another function 'double', which is called"
    with IRBuilder(), ir_frames.ir_module(), pytest.raises(BuilderStateError, match=message):
        caller()


def test_a_kernel_does_not_call_kernels_of_elsewhere() -> None:
    with pytest.raises(RelaxpyError, match="a kernel calls kernels of its own module") as caught:

        @T.prim_func
        def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            add_one(A.data, B.data)

    assert "@I.ir_module" in (caught.value.diagnostics[0].hint or "")
