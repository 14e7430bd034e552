"""Natural numbers as instances of the data type `nat` of nat.rly: helpers of tests."""

from __future__ import annotations

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.exec.relay.values import ConstructorValue
from relaxpy.ir.relay.expr import Call, Constructor
from relaxpy.ir.relay.module import Prelude


@user_facing
def add_nat_definitions(prelude: Prelude) -> None:
    """Import `nat` and its functions into the module of a Prelude."""
    prelude.mod.import_from_std("nat.rly")


def _constructors(prelude: Prelude) -> tuple[Constructor, Constructor]:
    _, zero, successor = prelude.mod.get_type("nat")
    return zero, successor


@user_facing
def count(prelude: Prelude, n: ConstructorValue) -> int:
    """Return the number that an instance of `nat` stands for.

    Errors:
        MisuseError (also TypeError): it is not an instance of `nat`.
    """
    zero, successor = _constructors(prelude)
    number = 0
    while isinstance(n, ConstructorValue) and n.tag == successor.tag:
        (n,), number = n.fields, number + 1
    if not isinstance(n, ConstructorValue) or n.tag != zero.tag:
        raise MisuseError(f"expected an instance of nat, found {n!r:.60}", about=n)
    return number


@user_facing
def make_nat_value(prelude: Prelude, n: int) -> ConstructorValue:
    """Return the instance of `nat` for a number."""
    zero, successor = _constructors(prelude)
    value = ConstructorValue(zero.tag, (), zero)
    for _ in range(n):
        value = ConstructorValue(successor.tag, (value,), successor)
    return value


@user_facing
def make_nat_expr(prelude: Prelude, n: int) -> Call:
    """Return the expression of `nat` for a number.

    Errors:
        MisuseError (also ValueError): the number is negative.
    """
    if n < 0:
        raise MisuseError(f"a natural number is at least 0, found {n}", about=n)
    zero, successor = _constructors(prelude)
    expr = zero()
    for _ in range(n):
        expr = successor(expr)
    return expr
