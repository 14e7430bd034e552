"""Operators that bound differentiation."""

from collections.abc import Iterator

from relaxpy.ir import ops as op
from tests.ir.ops.cases.case import Case, case, floats


def cases() -> Iterator[Case]:
    x = floats(2, 3)
    for name in ("start_checkpoint", "end_checkpoint"):
        yield Case(f"relax.grad.{name}", "matrix", (x,), getattr(op.grad, name), lambda v: v)
    yield case("grad.no_grad", "matrix", (x,), lambda v: v, smooth=False)
