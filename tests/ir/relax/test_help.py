"""What `help` says about a decorated function."""

from __future__ import annotations

import inspect
import pydoc

import pytest

from relaxpy import relax
from relaxpy.ir.ops.definition.registry import registered_ops
from relaxpy.ir.ops.definition.signature import Signature
from relaxpy.script import relax as R, tir as T


@R.function
def undocumented(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    return R.exp(x)


@R.function
def documented(x: R.Tensor((4,), "float32")):
    """The exponential."""
    return R.exp(x)


@T.prim_func
def kernel(A: T.Buffer((4,), "float32")):
    for i in range(4):
        A[i] = T.float32(1)


def test_help_shows_the_signature_of_a_function_without_a_docstring() -> None:
    for func, name in ((undocumented, "undocumented(x:"), (kernel, "kernel(A:")):
        text = pydoc.render_doc(func, renderer=pydoc.plaintext)
        assert name in text
        assert "Method resolution order" not in text


def test_help_shows_a_docstring() -> None:
    assert "The exponential." in pydoc.render_doc(documented, renderer=pydoc.plaintext)


@pytest.mark.parametrize("decorator", [R.function, T.prim_func])
def test_help_of_a_decorator_explains_its_options(decorator) -> None:
    text = pydoc.render_doc(decorator, renderer=pydoc.plaintext)
    name = decorator.display_name
    assert f"`{name}`" in text
    assert f"@{name}(private=True)" in text
    for option in inspect.signature(decorator).parameters:
        assert option in ("function", "others") or f" {option}: " in text.partition("Method ")[0]
    others = {"R.function", "T.prim_func"} - {name}
    assert not any(f"`{other}`" in text for other in others)


def test_signatures_of_operators_show_what_a_caller_passes() -> None:
    for operator in registered_ops().values():
        text = str(inspect.signature(operator))
        assert "rx." not in text, operator
        assert "StructInfo'" not in text, operator
    assert str(inspect.signature(R.take)).startswith("(x: 'Expr', indices: 'Expr', axis: 'int")
    assert "tensors: 'Expr | Sequence[Expr]'" in str(inspect.signature(R.concat))
    assert "shape: 'Expr | Sequence[PrimExpr | int]'" in str(inspect.signature(R.reshape))
    assert "bias: 'Expr | None' = None" in str(inspect.signature(R.nn.attention))


def test_annotations_that_are_classes_stay() -> None:
    def rule(x: relax.TensorStructInfo, size: int) -> relax.TensorStructInfo:
        return x

    rule.__annotations__ = {"x": relax.TensorStructInfo, "size": int}
    parameters = Signature(rule, is_rule=True).of_calls.parameters
    assert [p.annotation for p in parameters.values()] == ["Expr", int]
