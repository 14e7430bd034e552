"""The two classes that all of Relax descends from and that name each other: Expr and StructInfo."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.core.node import Node
from relaxpy.ir.equality.structural import structural_key
from relaxpy.ir.op import Op

if TYPE_CHECKING:
    from relaxpy.errors import Span
    from relaxpy.ir.relax.nodes.expr import Call

M = TypeVar("M")


def _property(name: str, what: str) -> property:
    """A property of a tensor that is read by the operators of `relax.inspect`.

    To a helper of a function being read it is what the text of the function reads.
    """

    def read(self: Expr) -> Any:
        from relaxpy.ir.relax.op.inspect import property_of

        return property_of(self, name)

    return property(read, doc=what)


def _operator(sign: str, *, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """The method behind `expr sign other`, or behind `other sign expr`."""

    def apply(self: Expr, other: object) -> Any:
        from relaxpy.ir.relax.op import operators

        operands = (other, self) if reflected else (self, other)
        return operators.apply(sign, *operands)

    apply.__doc__ = f"The call of the operator that `{sign}` stands for."
    return apply


class Expr(Node):
    """Base of all Relax expressions; compared by identity.

    `struct_info` is None where nothing was derived yet: the BlockBuilder answers with nodes that
    have it.
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
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("<", "<=", ">", ">="))

    shape = _property("shape", "The sizes of this tensor: `x.shape[i]` is the call that reads one.")
    dtype = _property("dtype", "The datatype of this tensor: `.type_code`, `.bits`, `.lanes`.")
    ndim = _property("ndim", "The rank of this tensor, as the call that reads it.")
    strides = _property("strides", "The strides of this tensor: `x.strides[i]` reads one.")
    byte_offset = _property("byte_offset", "Bytes of memory before the first element.")
    elem_offset = _property("elem_offset", "Elements of memory before the first element.")

    def __neg__(self) -> Expr:
        """The elements with the other sign."""
        from relaxpy.ir.relax.op.operators import negative

        return negative(self)

    def astype(self, dtype: str) -> Expr:
        """The elements in another datatype."""
        from relaxpy.ir.relax.op.operators import convert

        return convert(self, dtype)

    def __call__(self, *args: object, attrs: Mapping[str, object] | None = None) -> Call:
        """A call of this expression; Python numbers, strings and sequences become expressions."""
        from relaxpy.ir.relax.nodes.expr import make_call

        return make_call(self, args, attrs)

    def __getitem__(self, index: int) -> Expr:
        """Field `index` of this tuple.

        Errors:
            MisuseError: `index` is no integer; IndexError: the tuple is known to be shorter.
        """
        from relaxpy.ir.relax.nodes.expr import project_tuple

        return project_tuple(self, index)

    def __iter__(self) -> Iterator[Expr]:
        """The fields of this tuple, whose number is known.

        Errors:
            MisuseError (also TypeError): it is not known to be a tuple.
        """
        from relaxpy.ir.relax.nodes.expr import unpack_tuple

        return unpack_tuple(self)

    @property
    def struct_info_(self) -> StructInfo | None:
        """TVM's name for the field behind `struct_info`."""
        return self.struct_info

    def with_struct_info(self, struct_info: StructInfo | None) -> Self:
        """This node built anew with another info."""
        return replace(self, struct_info=struct_info)  # type: ignore[type-var]


class StructInfo(Node):
    """What is known about a value at compile time.

    `==` is sameness up to own shape variables (RES-13), each info standing for itself: what a Func
    info has alone in its parameters counts as its own. Where such variables are in scope around the
    infos (SC-16), `is_base_of(a, b, scope)` both ways is the question to ask. What `R.Tensor` and
    its siblings give outside a program is equal to the info that it stands for.
    """

    __slots__ = ("_key", "_node_count")
    _key: object
    _node_count: int

    @property
    def key(self) -> object:
        """A value that is equal for equal infos and for no others, while both are alive."""
        try:
            return self._key
        except AttributeError:
            object.__setattr__(self, "_key", structural_key(self))
            return self._key

    @property
    def node_count(self) -> int:
        """The number of struct infos in this one, itself included; shared ones count per use."""
        return getattr(self, "_node_count", 1)

    def is_base_of(self, derived: StructInfo) -> bool:
        """Whether `derived` is at least as specific as this info: `derived <<: self` (SUB)."""
        from relaxpy.ir.relax.relations import is_base_of

        return is_base_of(self, derived)

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
        from relaxpy.ir.short_text.nodes import short_text

        return short_text(self)


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
    """`value` as an info: itself, or what `R.Tensor` and its siblings give outside a program.

    Errors:
        MisuseError (also TypeError): it is none.
    """
    if isinstance(value, StructInfo):
        return value
    as_info = getattr(value, "__struct_info__", None)
    if as_info is not None:
        return cast("StructInfo", as_info())
    raise MisuseError(
        f"expected a StructInfo, found {type(value).__name__} {value!r:.60}",
        about=value,
        hint='infos are written as in R.Tensor((4, 4), "float32")',
    )


def as_declared(value: object) -> StructInfo | None:
    """`value`, which a node declares itself to be, as a struct info; None where it says nothing.

    Errors:
        MisuseError (also TypeError): it is something else.
    """
    return value if value is None or isinstance(value, StructInfo) else as_struct_info(value)


def convert_declared(node: Expr) -> None:
    """Convert the struct info that a node under construction declares, as `as_declared` does."""
    declared = node.struct_info
    if declared is not None and not isinstance(declared, StructInfo):
        set_fields(node, struct_info=as_struct_info(declared))


def set_fields(node: object, **fields: object) -> None:
    """Give a node that is being constructed the fields that its arguments were converted to."""
    for name, value in fields.items():
        object.__setattr__(node, name, value)


def check_expr(value: object) -> None:
    """Check that `value` may stand where an expression does.

    Errors:
        MisuseError (also TypeError): it is none.
    """
    if not isinstance(value, (Expr, Op)):
        raise _unlike("a Relax expression", value)


def check_kind(
    value: object, kind: type[Node] | tuple[type[Node], ...], what: str, rule: str
) -> None:
    """Check that a part of a node is of the kind it has to be, `what` in words.

    Errors:
        MisuseError (also TypeError): it is of another kind.
    """
    if not isinstance(value, kind):
        raise _unlike(what, value, rule)


def check_name(value: object, what: str) -> None:
    """Check that a name is a string.

    Errors:
        MisuseError (also TypeError): it is none.
    """
    if not isinstance(value, str):
        raise MisuseError(f"{what} is a string, found {value!r:.60}", about=value)


def as_members(value: object, what: str, rule: str) -> tuple[Any, ...]:
    """The members of a list, tuple or other iterable that is no node itself.

    Errors:
        MisuseError (also TypeError): it is something else.
    """
    if type(value) is tuple:
        return value
    if isinstance(value, (Node, str)) or not isinstance(value, Iterable):
        raise _unlike(f"a list of {what}", value, rule)
    return tuple(value)


def member(members: tuple[M, ...], index: int, kind: str) -> M:
    """`members[index]` of a node of this kind.

    Errors:
        IndexError: there are not as many.
    """
    try:
        return members[index]
    except IndexError:
        count = len(members)
        raise IndexError(f"{kind} index out of range: {index} of {count} members") from None


def _unlike(expected: str, found: object, rule: str | None = None) -> MisuseError:
    return MisuseError(
        f"expected {expected}, found {type(found).__name__} {found!r:.60}", rule=rule, about=found
    )
