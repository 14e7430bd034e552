"""A tuple expression whose fields are indexed."""

from __future__ import annotations

from relaxpy.errors import MisuseError
from relaxpy.ir.relay.expr import RelayExpr, TupleGetItem


class TupleWrapper:
    """An expression that returns a tuple of `size` fields; indices give their projections.

    Calls of operators with several results are indexed themselves.
    """

    def __init__(self, tuple_value: RelayExpr, size: int) -> None:
        if not isinstance(tuple_value, RelayExpr):
            raise MisuseError(
                f"expected a Relay expression, found {tuple_value!r:.60}", about=tuple_value
            )
        self.tuple_value = tuple_value
        self.size = size

    def astuple(self) -> RelayExpr:
        """Return the expression."""
        return self.tuple_value

    def astext(self) -> str:
        """Return the program text of the expression."""
        return self.tuple_value.astext()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> TupleGetItem:
        return TupleGetItem(self.tuple_value, range(self.size)[index])
