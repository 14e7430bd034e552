"""The two base classes of Relax, which refer to each other: Expr and StructInfo."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from typing_extensions import override

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir import hooks
from relaxpy.ir.core.node import Node, set_fields
from relaxpy.ir.equality.structural import structural_key
from relaxpy.ir.op import Op
from relaxpy.support.dataclass import replace
from relaxpy.support.missing import described

if TYPE_CHECKING:
    from relaxpy.errors import Span
    from relaxpy.ir.relax.nodes.expr import Call
    from relaxpy.ir.tir.expr import PrimExpr

M = TypeVar("M")


def _property(name: str, doc: str) -> property:
    """A property of a tensor, which the operators of `relax.inspect` read."""

    def read(self: Expr) -> Any:
        return hooks.call("property_of", self, name)

    return property(read, doc=doc)


def _operator(sign: str, *, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """The method of a Python operator; the reflected one has the expression on the right."""

    def apply(self: Expr, other: object) -> Any:
        operands = (other, self) if reflected else (self, other)
        return hooks.call("operator", sign, *operands)

    apply.__doc__ = f"The call of the operator of `{sign}`."
    return apply


def _unary_operator(sign: str) -> Callable[[Any], Any]:
    """The method of a Python operator on one expression."""

    def apply(self: Expr) -> Any:
        return hooks.call("unary_operator", sign, self)

    apply.__doc__ = f"The call of the operator of `{sign}`."
    return apply


class Expr(Node):
    """The base class of all Relax expressions, which are compared by identity.

    `struct_info` is None until it is derived: the BlockBuilder rebuilds nodes with struct info.
    """

    __slots__ = ()
    __array_ufunc__ = None  # NumPy leaves `array + expr` to the expression
    struct_info: StructInfo | None
    span: Span | None

    __add__, __radd__ = _operator("+"), _operator("+", reflected=True)
    __sub__, __rsub__ = _operator("-"), _operator("-", reflected=True)
    __mul__, __rmul__ = _operator("*"), _operator("*", reflected=True)
    __truediv__, __rtruediv__ = _operator("/"), _operator("/", reflected=True)
    __floordiv__, __rfloordiv__ = _operator("//"), _operator("//", reflected=True)
    __mod__, __rmod__ = _operator("%"), _operator("%", reflected=True)
    __pow__, __rpow__ = _operator("**"), _operator("**", reflected=True)
    __matmul__, __rmatmul__ = _operator("@"), _operator("@", reflected=True)
    __and__, __rand__ = _operator("&"), _operator("&", reflected=True)
    __or__, __ror__ = _operator("|"), _operator("|", reflected=True)
    __xor__, __rxor__ = _operator("^"), _operator("^", reflected=True)
    __lshift__, __rlshift__ = _operator("<<"), _operator("<<", reflected=True)
    __rshift__, __rrshift__ = _operator(">>"), _operator(">>", reflected=True)
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("<", "<=", ">", ">="))

    shape = _property("shape", "The dimensions of this tensor; `x.shape[i]` reads one.")
    dtype = _property("dtype", "The datatype of this tensor: `.type_code`, `.bits`, `.lanes`.")
    ndim = _property("ndim", "The rank of this tensor, as a call that reads it.")
    strides = _property("strides", "The strides of this tensor; `x.strides[i]` reads one.")
    byte_offset = _property("byte_offset", "The number of bytes before the first element.")
    elem_offset = _property("elem_offset", "The number of elements before the first one.")

    __neg__, __pos__ = _unary_operator("-"), _unary_operator("+")
    __invert__, __abs__ = _unary_operator("~"), _unary_operator("abs")

    def __array_function__(self, *_: object) -> Any:
        """NumPy refuses this expression: it would compute with it as with one Python object."""
        return NotImplemented

    def astype(self, dtype: str) -> Expr:
        """The elements converted to another datatype."""
        result: Expr = hooks.call("convert", self, dtype)
        return result

    def __prim_expr__(self) -> PrimExpr:
        """The value of this scalar, where a dimension or a number is expected.

        Errors:
            MisuseError (also TypeError): its struct info is not that of a scalar of known value.
        """
        from relaxpy.ir.relax.nodes.struct_info import scalar_value

        return scalar_value(self)

    def __call__(self, *args: object, attrs: Mapping[str, object] | None = None) -> Call:
        """A call of this expression; Python numbers, strings and sequences become expressions."""
        result: Call = hooks.call("make_call", self, args, attrs)
        return result

    def __getitem__(self, index: Any) -> Expr:
        """Field `index` of this tuple, or the elements of this tensor, as of an array of NumPy.

        Errors:
            MisuseError: `index` is not an integer, or not one that a tensor takes; IndexError: the
                tuple is shorter.
        """
        from relaxpy.ir.relax.nodes.struct_info import TensorStructInfo

        is_tensor = isinstance(self.struct_info, TensorStructInfo)
        result: Expr = hooks.call("subscript" if is_tensor else "project_tuple", self, index)
        return result

    def __iter__(self) -> Iterator[Expr]:
        """The fields of this tuple.

        Errors:
            MisuseError (also TypeError): the number of fields is not known.
        """
        fields: Iterator[Expr] = hooks.call("unpack_tuple", self)
        return fields

    @property
    def struct_info_(self) -> StructInfo | None:
        """TVM's name for the stored `struct_info`."""
        return self.struct_info

    @property
    def ty(self) -> StructInfo | None:
        """The name of `struct_info` in TVM after v0.22."""
        return self.struct_info

    def with_struct_info(self, struct_info: StructInfo | None) -> Self:
        """A copy of this node with another struct info."""
        return replace(self, struct_info=struct_info)  # type: ignore[type-var]


class StructInfo(Node):
    """The compile-time knowledge about a value.

    `==` is structural equality up to the names of bound shape variables (RES-13). A Callable is
    taken to bind all definable variables of its parameters; if some of them are in scope (SC-16),
    compare by `is_base_of(a, b, scope)` in both directions. The annotations `R.Tensor` etc. are
    equal to the struct info that they describe.
    """

    __slots__ = ("_key", "_node_count")
    _key: object
    _node_count: int

    @property
    def key(self) -> object:
        """A value that is equal exactly for equal struct infos, while both are alive."""
        try:
            return self._key
        except AttributeError:
            object.__setattr__(self, "_key", self._computed_key())
            return self._key

    def _computed_key(self) -> object:
        return structural_key(self)

    @property
    def node_count(self) -> int:
        """The number of struct infos and dimensions in this one; shared ones count per use."""
        return getattr(self, "_node_count", 1)

    def is_base_of(self, derived: StructInfo) -> bool:
        """True if `derived` is at least as specific as this: `derived <<: self` (SUB)."""
        result: bool = hooks.call("is_base_of", self, derived)
        return result

    @override
    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is type(self):
            for name in self._fields:
                if getattr(self, name) is not getattr(other, name):
                    break
            else:
                return True
        elif other is None:
            return False
        elif not isinstance(other, StructInfo):
            try:
                other = as_struct_info(other)
            except MisuseError:
                return NotImplemented
        return self.key == other.key

    @override
    def __hash__(self) -> int:
        return hash(self.key)

    @override
    def __str__(self) -> str:
        text: str = hooks.call("short_text", self)
        return text


MAX_NODES: Final = 1 << 17
"""The maximal number of nodes of a struct info, since every relation visits all of them."""


def count_nodes(nested: Iterable[object]) -> int:
    """The `node_count` of a struct info, or of an annotation, that contains these."""
    return 1 + sum(getattr(sinfo, "node_count", 1) for sinfo in nested)


def checked_node_count(nested: Iterable[object]) -> int:
    """The `node_count` of a struct info, or of an annotation, that contains these.

    Errors:
        MisuseError: it is more than MAX_NODES.
    """
    count = count_nodes(nested)
    if count > MAX_NODES:
        raise MisuseError(f"a struct info of more than {MAX_NODES} nodes is too large to work with")
    return count


def as_struct_info(value: object) -> StructInfo:
    """Convert an annotation such as `R.Tensor` to struct info.

    Errors:
        MisuseError (also TypeError): `value` is neither an annotation nor a StructInfo.
    """
    if isinstance(value, StructInfo):
        return value
    as_sinfo = getattr(value, "__struct_info__", None)
    if as_sinfo is not None:
        return cast("StructInfo", as_sinfo())
    raise MisuseError(
        f"expected a StructInfo, found {described(value)}",
        rule="AST-5",
        about=value,
        hint='struct info is written as in R.Tensor((4, 4), "float32")',
    )


def as_declared(value: object) -> StructInfo | None:
    """Convert the struct info that a node declares, as `as_struct_info` does; None stays None."""
    return value if value is None or isinstance(value, StructInfo) else as_struct_info(value)


def convert_declared(node: Expr) -> None:
    """Convert the struct info that a node under construction declares."""
    declared = node.struct_info
    if declared is not None and not isinstance(declared, StructInfo):
        set_fields(node, struct_info=as_struct_info(declared))


def check_expr(value: object) -> None:
    """Raise MisuseError (also TypeError) if `value` is neither an expression nor an operator."""
    if not isinstance(value, (Expr, Op)):
        raise _wrong_kind("a Relax expression", value)


def check_kind(
    value: object, kind: type[Node] | tuple[type[Node], ...], expected: str, rule: str
) -> None:
    """Raise MisuseError (also TypeError) if `value` is not of the kind that `expected` names."""
    if not isinstance(value, kind):
        raise _wrong_kind(expected, value, rule)


def check_name(value: object, what: str) -> None:
    """Raise MisuseError (also TypeError) if a name is not a string; `what` describes it."""
    if not isinstance(value, str):
        raise unexpected(value, f"{what} is a string")


def as_members(value: object, what: str, rule: str) -> tuple[Any, ...]:
    """Convert a list or another iterable to a tuple; `what` describes the members.

    Errors:
        MisuseError (also TypeError): `value` is a node or is not iterable.
    """
    if type(value) is tuple:
        return value
    if isinstance(value, (Node, str)) or not isinstance(value, Iterable):
        raise _wrong_kind(f"a list of {what}", value, rule)
    return tuple(value)


def member(members: tuple[M, ...], index: int, kind: str) -> M:
    """`members[index]`; an IndexError names the `kind` of the node."""
    try:
        return members[index]
    except IndexError:
        count = len(members)
        raise IndexError(f"{kind} index out of range: {index} of {count} members") from None


def _wrong_kind(expected: str, value: object, rule: str | None = None) -> MisuseError:
    return MisuseError(f"expected {expected}, found {described(value)}", rule=rule, about=value)
