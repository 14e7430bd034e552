"""What `help` says about a decorated function."""

from __future__ import annotations

import pydoc

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
