"""The base class of Relay expressions, with Python's operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from typing_extensions import override

from relaxpy.errors import RelayTypeError, unexpected
from relaxpy.ir import hooks
from relaxpy.ir.core.node import Conversions, Node
from relaxpy.plugins.relay.ty import Type
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.errors import Span
    from relaxpy.plugins.relay.expr import Call


def _operator(name: str, *, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """Return the method of a Python operator; the reflected one has the expression on the right."""

    def apply(self: RelayExpr, other: object) -> Call:
        from relaxpy.plugins.relay.expr import Call
        from relaxpy.plugins.relay.op.registry import Op

        if not isinstance(other, RelayExpr):
            raise unexpected(
                other, "expected a Relay expression", hint=f"write relay.const({other!r:.60})"
            )
        return Call(Op.get(name), (other, self) if reflected else (self, other))

    apply.__doc__ = f"Return the call of the operator `{name}`."
    return apply


class Textual(Node):
    """The base class of nodes that have a program text, and whose fields are checked."""

    __slots__ = ()
    _conversions: ClassVar[Conversions]

    if not TYPE_CHECKING:  # which each kind with more checks would have to override

        def __post_init__(self):
            self._conversions.apply(self)

    @override
    def astext(
        self, show_meta_data: bool = True, annotate: Callable[[RelayExpr], str] | None = None
    ) -> str:
        """Return the program text (RLY-111); `annotate` gives comments instead of types."""
        text: str = hooks.call("relay_text", self, show_meta_data, annotate)
        return text

    @override
    def script(self, **options: object) -> str:
        """Return the program text."""
        text: str = hooks.call("relay_text", self, **options)
        return text


@dataclass(init=False, frozen=True, slots=True, eq=False, repr=False)
class RelayExpr(Textual):
    """The base class of all expressions; inference builds them anew with their types."""

    __array_ufunc__ = None  # NumPy leaves `array + expr` to the expression
    _shared = True
    checked_type_: Type | None = field(default=None, kw_only=True)
    span: Span | None = field(default=None, kw_only=True)

    __add__, __radd__ = _operator("add"), _operator("add", reflected=True)
    __sub__, __rsub__ = _operator("subtract"), _operator("subtract", reflected=True)
    __mul__, __rmul__ = _operator("multiply"), _operator("multiply", reflected=True)
    __truediv__, __rtruediv__ = _operator("divide"), _operator("divide", reflected=True)
    __lt__, __le__ = _operator("less"), _operator("less_equal")
    __gt__, __ge__ = _operator("greater"), _operator("greater_equal")

    def __neg__(self) -> Call:
        """Return the call of the operator `negative`."""
        from relaxpy.plugins.relay.expr import Call
        from relaxpy.plugins.relay.op.registry import Op

        return Call(Op.get("negative"), (self,))

    def astype(self, dtype: str) -> Call:
        """Return the call of the operator `cast`."""
        from relaxpy.plugins.relay.op.makers import build

        return build("cast", self, dtype=dtype)

    def __call__(self, *args: RelayExpr) -> Call:
        """Return a call of this expression."""
        from relaxpy.plugins.relay.expr import Call

        return Call(self, args)

    @property
    def checked_type(self) -> Type:
        """The type that inference found.

        Errors:
            RelayTypeError: inference has not visited this expression.
        """
        if self.checked_type_ is None:
            raise RelayTypeError(
                "this expression has no type yet",
                hint="relay.transform.InferType()(mod) returns the module with types",
                about=self,
            )
        return self.checked_type_

    def with_type(self, ty: Type) -> Self:
        """Return a copy of this node with another `checked_type`."""
        return replace(self, checked_type_=ty)
