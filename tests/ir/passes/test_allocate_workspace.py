"""AllocateWorkspace: parameters of functions for back ends, and allocations of their callers."""

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.errors import TransformError
from relaxpy.relax.transform import AllocateWorkspace
from tests.ir.passes.before_after import check, stays
from tests.ir.relax.texts import module, pair


def test_local_functions_and_both_kinds_of_blocks() -> None:
    Before, After = pair("""
    -def one(x: f32[4]) -> f32[4]:
    -   R.func_attr({"Codegen": "example", "WorkspaceSize": 64})
    -   def inner(y: f32[4]) -> f32[4]:
    -       R.func_attr({"Composite": "example.exp", "WorkspaceSize": 64})
    +def one1(x: f32[4], workspace: u8[64]) -> f32[4]:
    +   R.func_attr({"Codegen": "example"})
    +   def inner(y: f32[4], workspace: u8[64]) -> f32[4]:
    +       R.func_attr({"Composite": "example.exp"})
            with R.dataflow():
                z = R.abs(y)
                R.output(z)
            return z
    -   r = inner(x)
    +   r = inner(x, workspace)
        return r

    @private
    -def two(x: f32[4]) -> f32[4]:
    -   R.func_attr({"Composite": "example.log", "WorkspaceSize": 32})
    +def two1(x: f32[4], workspace: u8[64]) -> f32[4]:
    +   R.func_attr({"Composite": "example.log"})
        y = R.negative(x)
        return y

    def main(x: f32[4]) -> f32[4]:
        with R.dataflow():
    +       w = R.builtin.alloc_tensor(R.shape([64]), "uint8", 0, "global")
            a = R.add(x, x)
    -       b = cls.one(a)
    -       c = cls.two(b)
    +       b = cls.one1(a, w)
    +       c = cls.two1(b, w)
            R.output(b, c)
    -   d = cls.two(c)
    +   v = R.builtin.alloc_tensor(R.shape([64]), "uint8", 0, "global")
    +   d = cls.two1(c, v)
        return d

    def other(x: f32[4]) -> f32[4]:
        with R.dataflow():
            y = R.add(x, x)
            R.output(y)
        return y
    """)
    x = np.array([-1, 0, 2, 3], "float32")
    check(AllocateWorkspace(), Before, After, x)
    found = AllocateWorkspace()(Before)
    assert AllocateWorkspace()(found) is found
    np.testing.assert_array_equal(relaxpy.compile(found)["main"](x), np.abs(2 * x))


def test_a_wrapper_passes_its_workspace_on_to_a_global_function() -> None:
    Before, After = pair("""
    -def outer(x: f32[4]) -> f32[4]:
    -   R.func_attr({"Codegen": "example", "WorkspaceSize": 64})
    -   y = cls.inner(x)
    +def outer1(x: f32[4], workspace: u8[64]) -> f32[4]:
    +   R.func_attr({"Codegen": "example"})
    +   y = cls.inner1(x, workspace)
        return y

    @private
    -def inner(x: f32[4]) -> f32[4]:
    -   R.func_attr({"Composite": "example.abs", "WorkspaceSize": 64})
    +def inner1(x: f32[4], workspace: u8[64]) -> f32[4]:
    +   R.func_attr({"Composite": "example.abs"})
        y = R.abs(x)
        return y
    """)
    check(AllocateWorkspace(), Before, After)


def function(attr: str) -> IRModule:
    return module(f"""
    def compiled(x: f32[4]) -> f32[4]:
        R.func_attr({attr})
        y = R.abs(x)
        return y

    def main(x: f32[4]):
        f = cls.compiled
        y = f(x)
        return y
    """)


def test_functions_that_need_none_and_those_that_are_not_for_back_ends_stay() -> None:
    stays(AllocateWorkspace(), function('{"Codegen": "example"}'))
    stays(AllocateWorkspace(), function('{"WorkspaceSize": 64}'))


def test_a_size_is_a_number_of_bytes() -> None:
    mod = function('{"Codegen": "example", "WorkspaceSize": "much"}')
    with pytest.raises(TransformError, match="WorkspaceSize is a number of bytes, found 'much'"):
        AllocateWorkspace()(mod)


def test_a_function_with_a_workspace_is_only_called() -> None:
    mod = function('{"Codegen": "example", "WorkspaceSize": 64}')
    with pytest.raises(TransformError, match="compiled is used as a value; only calls"):
        AllocateWorkspace()(mod)
