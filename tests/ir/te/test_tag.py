"""Scopes that tag what is computed in them."""

import pytest

from relaxpy import te
from relaxpy.errors import MisuseError

A = te.placeholder((4,), name="A")


def plus_one(a: te.Tensor) -> te.Tensor:
    found = te.compute(a.shape, lambda i: a[i] + 1.0)
    assert isinstance(found, te.Tensor)
    return found


def test_what_is_computed_in_a_scope_has_its_tag() -> None:
    with te.tag_scope(tag="gemm"):
        first = plus_one(A)
    assert first.op.tag == "gemm"
    assert plus_one(A).op.tag == ""
    assert te.compute((4,), lambda i: A[i], tag="own").op.tag == "own"


def test_a_scope_decorates_functions_that_may_call_each_other_one_after_the_other() -> None:
    @te.tag_scope("conv")
    def conv(a: te.Tensor) -> te.Tensor:
        return plus_one(a)

    assert conv(conv(A)).op.tag == "conv"
    with te.tag_scope("outer"), pytest.raises(MisuseError, match="inside the scope of tag 'outer'"):
        conv(A)
    assert plus_one(A).op.tag == ""


def test_a_scope_ends_with_an_error() -> None:
    with pytest.raises(MisuseError, match="fcompute is a function"), te.tag_scope("t"):
        te.compute((4,), 3)  # type: ignore[arg-type]
    assert plus_one(A).op.tag == ""


def test_tags_inside_each_other_are_refused() -> None:
    with te.tag_scope("t"), pytest.raises(MisuseError, match="tag 'own' is inside the scope"):
        te.compute((4,), lambda i: A[i], tag="own")
    for wrong in ("", 3):
        with pytest.raises(MisuseError, match="a tag is a string"):
            te.tag_scope(wrong)  # type: ignore[arg-type]
