"""Modules by IRBuilder: their functions, kernels that join them, attributes, infos."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax, te
from relaxpy.errors import BuilderStateError, MisuseError
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.script import ir as text_I, ir_builder, relax as text_R
from relaxpy.script.ir_builder import IRBuilder, ir as I, relax as R, tir as T
from tests.script.marked import rejected
from tests.script.test_ir_builder_graphs import F32, built, function, same


def names(mod: IRModule) -> list[str]:
    return [var.name_hint for var in mod.functions]


def module() -> None:
    A = text_R.Tensor((4,), "float32")
    with ir_builder.ir_module() as frame:
        I.module_attrs({"k": 1})
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("cuda", 0)]})
        with T.prim_func():
            T.func_name("kernel")
            T.func_attr({"tir.noalias": True})
            X, Y = (T.arg(name, T.Buffer((4,), "float32")) for name in "XY")
            with T.serial(4) as i, T.block("b"):
                vi = T.axis.spatial(4, i)
                T.buffer_store(Y, X[vi] * 2, [vi])
        with R.function():
            R.func_name("helper")
            x = R.arg("x", R.Tensor((4,), "float32", I.lookup_vdevice("cuda", 0)))
            R.func_ret_value(R.emit(R.exp(x)))
        with R.function():
            R.func_name("main")
            x = R.arg("x", A)
            kernel = frame.global_vars["kernel"]
            y = R.emit(R.call_tir(kernel, (x,), out_sinfo=A))
            R.func_ret_value(R.emit(R.add(y, y)))


MODULE = """
@I.ir_module
class Module:
    I.module_attrs({"k": 1})
    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("cuda", 0)]})

    @T.prim_func
    def kernel(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
        T.func_attr({"tir.noalias": True})
        for i in range(4):
            with T.block("b"):
                vi = T.axis.spatial(4, i)
                Y[vi] = X[vi] * T.float32(2)

    @R.function
    def helper(x: R.Tensor((4,), "float32", "cuda:0")):
        y = R.exp(x)
        return y

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Module
        y = R.call_tir(cls.kernel, (x,), out_sinfo=R.Tensor((4,), "float32"))
        z = R.add(y, y)
        return z
"""


def test_modules_of_both_kinds() -> None:
    found = built(module)
    same(found, MODULE)
    result = relaxpy.compile(found)["main"](np.ones(4, "float32"))
    np.testing.assert_array_equal(result, np.full(4, 4, "float32"))


def test_modules_may_be_empty() -> None:
    def build() -> None:
        with I.ir_module():
            pass

    assert_structural_equal(built(build), IRModule({}))


def test_functions_call_what_is_declared_before_it_is_defined() -> None:
    with IRBuilder() as signature, R.function():
        R.func_name("twice")
        x = R.arg("x", F32)
        R.func_ret_struct_info(F32)
        R.func_ret_value(x)
    with IRBuilder() as builder, I.ir_module():
        twice = I.decl_function("twice", signature.get())
        ext = relax.ExternFunc("ext")
        with R.function():
            R.func_name("main")
            R.func_ret_value(R.emit(twice(R.arg("x", F32))))
        with R.function():
            R.func_name("twice")
            x = R.arg("x", F32)
            R.func_ret_struct_info(F32)
            R.func_ret_value(R.emit(R.add(x, x)))
        I.def_function("ext", ext)
    same(
        builder.get(),
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 4), "float32")):
        y = Module.twice(x)
        return y

    @R.function
    def twice(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        y = R.add(x, x)
        return y

    ext = R.ExternFunc("ext")
""",
    )


def test_kernels_of_tensor_expressions_join_the_module() -> None:
    def double(t: Any) -> Any:
        return relaxpy.te.compute(t.shape, lambda i, j: t[i, j] * 2, name="double")

    with IRBuilder() as builder, I.ir_module(), R.function():
        R.func_name("main")
        x = R.arg("x", F32)
        y = R.emit(R.emit_te(double, x, primfunc_name_hint="twice"))
        R.func_ret_value(y)

    @text_I.ir_module
    class Expected:
        @text_R.function
        def main(x: text_R.Tensor((4, 4), "float32")):
            y = text_R.emit_te(double, x, primfunc_name_hint="twice")
            return y

    assert_structural_equal(builder.get(), Expected)
    with pytest.raises(BuilderStateError, match="the enclosing module, and there is none"):
        function(lambda: R.emit_te(double, R.arg("x", F32)))


@pytest.mark.rule("TOP-1")
def test_a_function_cannot_take_the_name_of_a_kernel_that_is_called() -> None:
    def double(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda i, j: x[i, j] * 2, "double")

    def caller(name: str) -> None:
        with R.function():
            R.func_ret_value(R.emit(R.emit_te(double, R.arg("x", F32))))
            R.func_name(name)

    def kernel() -> None:
        with T.prim_func():
            T.func_name("double")
            T.evaluate(0)

    def lost() -> None:
        with R.function():
            R.emit(R.emit_te(double, R.arg("x", F32)))
            raise LookupError

    with IRBuilder() as builder, I.ir_module():
        caller("main")
        with pytest.raises(BuilderStateError, match="has already created a kernel 'double'"):
            kernel()
        with pytest.raises(BuilderStateError, match="has already created a kernel 'double'"):
            caller("double")
    made = builder.get()
    assert set(names(made)) == {"main", "double"}
    assert relax.analysis.well_formed(made)
    with IRBuilder() as builder, I.ir_module():
        kernel()
        caller("main")
    assert set(names(builder.get())) == {"main", "double", "double1"}
    with IRBuilder() as builder, I.ir_module():
        with pytest.raises(LookupError):
            lost()
        kernel()
    assert names(builder.get()) == ["double"]


def test_modules_that_are_wrong() -> None:
    ext = relax.ExternFunc("ext")

    def declared_only() -> None:
        I.decl_function("f", ext)

    def defined_twice() -> None:
        I.def_function("f", ext)
        I.def_function("f", ext)

    def declared_twice() -> None:
        I.decl_function("f", ext)
        I.decl_function("f", ext)

    def without_name() -> None:
        with R.function():
            R.func_ret_value(R.const(1))

    def attrs_twice() -> None:
        I.module_attrs({"k": 1})
        I.module_attrs({"m": 1})

    def infos_twice() -> None:
        I.module_global_infos({"dummy": [I.dummy_global_info()]})
        I.module_global_infos({"dummy": [I.dummy_global_info()]})

    def unlisted() -> None:
        I.module_global_infos({"vdevice": [I.vdevice("cuda", 0)]})
        I.lookup_vdevice("cuda", 7)

    for build, message in [
        (declared_only, "function 'f' is declared and never defined"),
        (defined_twice, "two functions named 'f'.*TOP-1"),
        (declared_twice, "two functions named 'f'.*TOP-1"),
        (without_name, "a function of a module needs a name"),
        (attrs_twice, "I.module_attrs occurs twice"),
        (lambda: I.module_attrs({}, 3), "allow_overwrite is True or False, found 3"),
        (infos_twice, "I.module_global_infos occurs twice"),
        (lambda: I.decl_function("f", 3), "expected a function, found 3"),
        (lambda: I.def_function("f", 3), "expected a function, found 3"),
        (lambda: I.decl_function(3, ext), "the name of a function is a string, found 3"),
        (lambda: I.def_function([], ext), r"the name of a function is a string, found \[\]"),
        (lambda: I.module_get_attr([]), r"a key is a string, found \[\]"),
        (lambda: I.module_set_attr({}, 1), "a key is a string, found {}"),
        (lambda: R.emit(R.const(1)), "R.emit belongs in a graph function"),
        (lambda: T.evaluate(1), "T.evaluate belongs in a kernel"),
        (unlisted, "the module lists no device 'cuda:7'"),
    ]:

        def whole(build: Callable[[], object] = build) -> None:
            with I.ir_module():
                build()

        with rejected(MisuseError, message):
            built(whole)


def test_attributes_of_a_module() -> None:
    def build() -> None:
        with I.ir_module():
            I.module_attrs({"k": 1})
            I.module_attrs({"j": 0, "k": 1}, allow_overwrite=True)
            I.module_attrs({"k": 2, "m": 3}, allow_overwrite=True)
            I.module_set_attr("n", 4)
            assert I.module_get_attrs() == {"k": 2, "m": 3, "n": 4}
            assert (I.module_get_attr("m"), I.module_get_attr("z")) == (3, None)
            with pytest.raises(BuilderStateError, match="'n' of the module is set twice"):
                I.module_set_attr("n", 5)
            I.module_set_attr("n", 5, allow_overwrite=True)

    assert dict(built(build).attrs) == {"k": 2, "m": 3, "n": 5}
