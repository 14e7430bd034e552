"""What a beginner meets: interrupts, options and results of a wrong kind, names to complete."""

import importlib
import os
import signal
import threading
import traceback
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MisuseError, RelaxpyError, StructInfoError
from relaxpy.ir.relax.rewrite.map_bindings import map_bindings
from relaxpy.script import ir as I, relax as R
from relaxpy.testing import available_targets


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor(("n", "n"), "float32")):
        with R.dataflow():
            y = R.matmul(x, R.exp(x))
            R.output(y)
        return y


def interrupted(function: Any) -> KeyboardInterrupt:
    """The interrupt that ends a function which would not end."""
    # Libraries that other tests use have handlers of their own.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt) as caught:  # noqa: PT012
            while True:
                function()
    finally:
        timer.join()
        if before is not None:  # a handler that Python has not installed cannot be put back
            signal.signal(signal.SIGINT, before)
    return caught.value


@pytest.mark.parametrize("target", available_targets())
def test_an_interrupt_shows_no_internal_frames(target: str) -> None:
    run, x = relaxpy.compile(Model, target)["main"], np.ones((30, 30), "float32")
    for function in (lambda: run(x), lambda: relaxpy.compile(Model, target)):
        function()
        frames = traceback.extract_tb(interrupted(function).__traceback__)
        folder = os.path.dirname(relaxpy.__file__)
        assert [frame for frame in frames if frame.filename.startswith(folder)] == []


def test_a_parameter_without_an_annotation_is_to_be_annotated() -> None:
    with pytest.raises(StructInfoError, match=r"hint: annotate the parameter, as in x: R\.Tensor"):

        @R.function
        def main(x, w: R.Tensor((4, 2), "float32")):
            return R.matmul(x, w)


@pytest.mark.parametrize("depth", [0, -7])
def test_options_that_are_no_sizes_are_refused(depth: int) -> None:
    with pytest.raises(MisuseError, match=f"max_depth is at least 1, found {depth}"):
        relaxpy.transform.PassContext(config={"relax.FuseOps.max_depth": depth})


@pytest.mark.parametrize("result", [3, "x", [3], (1.5,), object()])
def test_a_step_that_returns_something_else_is_refused(result: object) -> None:
    with pytest.raises(MisuseError, match=r"a step returns None, an expression, a binding, or"):
        map_bindings(Model["main"], lambda binding, block: result)


def test_what_is_no_model_is_also_a_type_error() -> None:
    pytest.importorskip("onnx")
    for model in (3.5, None, object()):
        with pytest.raises(RelaxpyError, match="from_onnx takes a ModelProto") as caught:
            relax.frontend.onnx.from_onnx(model)
        assert isinstance(caught.value, (TypeError, ValueError))
        assert isinstance(caught.value, TypeError)


def test_a_profile_names_the_file_of_its_lines() -> None:
    found = relaxpy.compile(Model).profile(np.ones((3, 3), "float32"))
    assert "line of test_first_mistakes.py" in str(found).splitlines()[0]


@pytest.mark.parametrize(
    "name",
    [
        *("relaxpy", "relaxpy.ir", "relaxpy.relax", "relaxpy.relay", "relaxpy.testing"),
        *("relaxpy.te", "relaxpy.tir", "relaxpy.topi", "relaxpy.arith", "relaxpy.transform"),
        *("relaxpy.script", "relaxpy.runtime", "relaxpy.relax.transform"),
        *("relaxpy.relax.frontend.nn", "relaxpy.relax.analysis", "relaxpy.relax.training"),
    ],
)
def test_completion_offers_names_of_relaxpy_only(name: str) -> None:
    module = importlib.import_module(name)
    assert {"TYPE_CHECKING", "annotations"}.isdisjoint(dir(module))
    assert getattr(module, "Any", None) is not Any
    assert all(hasattr(module, each) for each in dir(module))
