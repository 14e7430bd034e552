"""Decorated functions have the metadata of the function of Python, as after functools.wraps."""

import functools
import inspect
import pydoc
from collections.abc import Callable
from typing import Any

import pytest

from relaxpy import relax
from relaxpy.errors import MisuseError
from relaxpy.ir import assert_structural_equal
from relaxpy.script import from_source, ir as I, relax as R, tir as T


def body(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 2), "float32")) -> R.Tensor:
    """The product of x and w.

    Shapes:
        x  (n, 4)
    """
    return R.matmul(x, w)


def undocumented(x: R.Tensor((4,), "float32")):
    return R.exp(x)


def kernel(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")) -> None:
    """Copy x to y."""
    for i in range(4):
        with T.block("copy"):
            vi = T.axis.spatial(4, i)
            y[vi] = x[vi]


def decorated(function: Callable[..., Any], decorator: Any) -> Any:
    return decorator(function)


@pytest.mark.parametrize(
    ("function", "decorator"),
    [
        (body, R.function),
        (body, R.function(private=True)),
        (undocumented, R.function),
        (kernel, T.prim_func),
        (kernel, T.prim_func(private=True)),
    ],
)
def test_metadata_is_that_of_functools_wraps(function: Any, decorator: Any) -> None:
    func = decorated(function, decorator)

    @functools.wraps(function)
    def wrapper(*args: object) -> None: ...

    for name in (*functools.WRAPPER_ASSIGNMENTS, "__wrapped__"):
        assert getattr(func, name) == getattr(wrapper, name)
    assert inspect.signature(func) == inspect.signature(function)
    assert inspect.getdoc(func) == inspect.getdoc(function)
    assert inspect.unwrap(func) is function
    assert inspect.getsource(func) == inspect.getsource(function)
    if function.__doc__:
        assert function.__doc__.splitlines()[0] in pydoc.render_doc(func)


def test_signatures_have_parameters_with_annotations() -> None:
    parameters = inspect.signature(R.function(body)).parameters
    assert list(parameters) == ["x", "w"]
    assert str(parameters["x"].annotation) == 'R.Tensor((n, 4), dtype="float32")'


def test_annotations_of_kernels_are_those_of_the_text() -> None:
    @T.prim_func
    def kernel(
        a: T.handle,
        b: T.Buffer((4, 2), "float16", strides=(3, 1)),
        c: T.Buffer((3,), scope="shared"),
        d: T.Buffer((), "int8"),
        e: T.int64,
    ) -> None:
        T.evaluate(0)

    parameters = inspect.signature(kernel).parameters.values()
    assert [str(parameter.annotation) for parameter in parameters] == [
        "T.handle",
        "T.Buffer(shape=(4, 2), dtype='float16', strides=(3, 1))",
        "T.Buffer(shape=(3,), scope='shared')",
        "T.Buffer(shape=(), dtype='int8')",
        "T.int64",
    ]


def test_functions_of_modules_have_metadata() -> None:
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            """Powers of the elements."""
            return R.exp(x)

        @R.function(private=True)
        def other(x: R.Tensor(("n", 4), "float32")):
            """The logarithm."""
            return R.log(x)

    assert Model["main"].__doc__ == "Powers of the elements."
    assert Model["other"].__doc__ == "The logarithm."
    assert Model["other"].__name__ == "other"
    assert list(inspect.signature(Model["main"]).parameters) == ["x"]
    assert Model["main"].__qualname__.endswith("Model.main")
    assert Model["main"].__module__ == __name__


def test_functions_of_a_class_are_documented_before_they_are_parsed() -> None:
    class Functions:
        @R.function
        def first(x: R.Tensor((4,), "float32")):
            """The first one."""
            return R.exp(x)

        deferred = first

    assert vars(Functions)["deferred"].__qualname__.endswith("Functions.first")
    assert Functions.first.__doc__ == "The first one."
    assert Functions.first.__module__ == __name__


def test_functions_that_no_one_wrote_in_python_are_of_relaxpy() -> None:
    func = from_source(R.function(undocumented).script())
    assert func.__doc__ == relax.Function.__doc__
    assert not hasattr(func, "__wrapped__")
    with pytest.raises(AttributeError, match="this Function has no name"):
        _ = relax.Function([], relax.Tuple([])).__name__


def test_metadata_changes_no_program() -> None:
    func = R.function(body)
    assert_structural_equal(from_source(func.script()), func)
    assert relax.Function.__module__.startswith("relaxpy.")
    changed = func.with_attr("a", 1)
    assert not hasattr(changed, "__wrapped__")
    with pytest.raises(AttributeError):
        func.note = 1
    with pytest.raises(MisuseError, match="decorates a function, found Function"):
        R.function(func)
