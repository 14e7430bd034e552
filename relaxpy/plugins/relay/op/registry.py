"""The registry of operators: one record for each name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, ClassVar, Final, Self, TypeAlias

from typing_extensions import override

from relaxpy.errors import MisuseError, UnknownNameError, close_names, unexpected
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs, freeze
from relaxpy.ir.relax import nodes as rx
from relaxpy.plugins.relay.expr import RelayExpr
from relaxpy.plugins.relay.op.relations import RELATIONS, Relation, relation_of
from relaxpy.plugins.relay.ty import FuncType, Type, TypeRelation, TypeVar
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing

Translate: TypeAlias = Callable[[tuple[rx.Expr, ...], Attrs], rx.Expr]
"""The Relax expression of a call: of its operands, Relax variables, and its attributes."""
Compute: TypeAlias = Callable[[Attrs, Sequence[Any], Type | None], Sequence[Any]]
"""The `te` tensors of a call: of its attributes, of `te` operands and of the result type."""


Results: TypeAlias = int | Callable[[Any, Mapping[str, Any]], int]
"""The number of results, or a function of a call and its attributes that returns it."""
KnownDims: TypeAlias = Callable[[tuple[rx.Expr, ...], Attrs], Sequence[Sequence[object]]]
"""The dimensions of each result that follow from the operands and attributes, None for others."""


class Missing(Enum):
    """The default of an attribute that every call has to give."""

    REQUIRED = "required"


REQUIRED: Final = Missing.REQUIRED


@dataclass(frozen=True, slots=True, eq=False)
class OpRecord:
    """The record of an operator, compared by identity.

    `attributes` are the defaults of the text (RLY-71), `maker_defaults` those of the Python
    function where they differ. Without a `relation`, the type follows from the struct info of the
    Relax expression that `translate` returns. `known_dims` gives, for each result whose struct info
    has no more than a rank, the dimensions that follow from the operands, and None for the others.
    """

    name: str
    operands: tuple[str, ...] = ()
    attributes: Mapping[str, object] = field(default_factory=dict)
    maker_defaults: Mapping[str, object] = field(default_factory=dict)
    relation: Relation | None = None
    relation_name: str = ""
    translate: Translate | None = None
    compute: Compute | None = None
    results: Results = 1
    known_dims: KnownDims | None = None
    description: str = ""
    kinds: Mapping[str, Kind] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", kinds_of(self.attributes))

    def check_attribute(self, name: str, value: object) -> None:
        """Check the value of one of the attributes.

        Errors:
            MisuseError (also TypeError): it is of another kind.
        """
        check_attribute(self.name, name, self.kinds[name], self.attributes[name], value)

    def text_attrs(self, attrs: Mapping[str, object]) -> dict[str, object]:
        """The attributes of a call in text, completed with their defaults.

        Errors:
            MisuseError (also TypeError): an attribute is unknown or of another kind, or one
                without default is missing.
        """
        return self._completed(attrs, self.attributes)

    def maker_attrs(self, attrs: Mapping[str, object]) -> dict[str, object]:
        """The attributes of a call in Python, completed with their defaults.

        Errors:
            MisuseError (also TypeError): an attribute is unknown, missing, or of another kind.
        """
        return self._completed(attrs, {**self.attributes, **self.maker_defaults})

    def _completed(
        self, attrs: Mapping[str, object], defaults: Mapping[str, object]
    ) -> dict[str, object]:
        for name in attrs:
            if name not in self.attributes:
                raise MisuseError(
                    f"{self.name} has no attribute {name}",
                    rule="RLY-71",
                    hint=close_names(name, self.attributes),
                    about=name,
                )
            self.check_attribute(name, attrs[name])
        completed = {name: attrs.get(name, default) for name, default in defaults.items()}
        for name, value in completed.items():
            if value is REQUIRED:
                raise MisuseError(
                    f"{self.name} needs the attribute {name}", rule="RLY-71", about=attrs
                )
        return completed


class Op(RelayExpr):
    """An operator; there is one object for each name (RLY-29)."""

    __slots__ = ("_columns", "name", "record")
    __match_args__ = ("name",)
    _fields = ("name",)
    _shared = False
    _table: ClassVar[dict[str, Op]] = {}
    name: str
    record: OpRecord
    _columns: dict[str, object]
    checked_type_: ClassVar[None] = None  # type: ignore[misc]
    span: ClassVar[None] = None  # type: ignore[misc]

    def __new__(cls, name: str) -> Self:
        """The registered operator `name`."""
        return cls.get(name)  # type: ignore[return-value]

    @staticmethod
    def get(name: str) -> Op:
        """The registered operator `name`.

        Errors:
            UnknownNameError (also ValueError, KeyError): it is not registered.
        """
        op = Op._table.get(name) if isinstance(name, str) else None
        if op is None:
            raise UnknownNameError(
                f"no operator is registered as {name!r:.60}",
                rule="RLY-95",
                hint=close_names(str(name), Op._table),
                about=name,
            )
        return op

    @staticmethod
    def enter(record: OpRecord) -> Op:
        """Register a new operator.

        Errors:
            MisuseError (also ValueError): the name is taken.
        """
        if record.name in Op._table:
            raise MisuseError(f"an operator is already called {record.name}", rule="RLY-29")
        op = object.__new__(Op)
        op.name, op.record, op._columns = record.name, record, {}
        Op._table[record.name] = op
        return op

    @property
    @override
    def checked_type(self) -> Type:
        """The type as a function: of any types under the relation of the operator (RLY-28)."""
        args = tuple(TypeVar(f"a{i}") for i in range(len(self.record.operands)))
        result = TypeVar("r")
        relation = TypeRelation(self.record.relation_name or self.name, (*args, result))
        return FuncType(args, result, (*args, result), (relation,))

    def number_of_results(self, call: Any) -> int:
        """The number of results of a call of this operator, in a tuple if several."""
        results, record = self.record.results, self.record
        return results if isinstance(results, int) else results(call, record.text_attrs(call.attrs))

    def extend(self, **changes: object) -> None:
        """Replace fields of the record."""
        self.record = replace(self.record, **changes)  # type: ignore[arg-type]

    def get_attr(self, key: str) -> object | None:
        """The value of the column `key` for this operator, or None (RLY-27)."""
        return self._columns.get(key)

    def has_attr(self, key: str) -> bool:
        """True if the column `key` has a value for this operator."""
        return self._columns.get(key) is not None

    def set_attr(self, key: str, value: object) -> None:
        """Set the value of the column `key` for this operator."""
        self._columns[key] = value

    # The names under which a user describes a new operator, one property at a time.

    def set_num_inputs(self, number: int) -> None:
        """Set the number of operands."""
        names = self.record.operands[:number]
        self.extend(operands=(*names, *(f"arg{i}" for i in range(len(names), number))))

    def add_argument(self, name: str, type: str = "", description: str = "") -> None:
        """Name the next operand; `type` and `description` have no effect."""
        operands = list(self.record.operands)
        unnamed = [i for i, operand in enumerate(operands) if operand == f"arg{i}"]
        if unnamed:
            operands[unnamed[0]] = name
        else:
            operands.append(name)
        self.extend(operands=tuple(operands))

    def set_support_level(self, level: int) -> None:
        """Accept TVM's level of support, which has no effect."""

    def set_attrs_type_key(self, key: str) -> None:
        """Accept the name of TVM's table of attributes, which has no effect."""

    @user_facing
    def add_type_rel(
        self, name: str, func: Callable[[Sequence[Type], Attrs], Type | None] | None = None
    ) -> None:
        """Set the relation: a registered one, or a function from operand types to the result type.

        The function returns None as long as it cannot tell (RLY-100).

        Errors:
            UnknownNameError: without a function, `name` is not a registered relation.
        """
        if func is not None:
            relation = relation_of(func)
        elif name in RELATIONS:
            relation = RELATIONS[name]
        else:
            raise UnknownNameError(
                f"there is no type relation {name!r:.60}",
                rule="RLY-95",
                hint=close_names(str(name), RELATIONS),
                about=name,
            )
        self.extend(relation=relation, relation_name=name)

    @override
    def __setattr__(self, key: str, value: object) -> None:
        object.__setattr__(self, key, value)

    @override
    def __str__(self) -> str:
        return f"Op({self.name})"

    @override
    def __reduce__(self) -> tuple[type[Op], tuple[str]]:
        return Op, (self.name,)


def list_op_names() -> list[str]:
    """The names of all registered operators."""
    return list(Op._table)


def is_op_name(name: str) -> bool:
    """True if an operator is registered under a name."""
    return name in Op._table


@user_facing
def register(name: str, describe: str = "") -> Op:
    """Register an operator of the user (RLY-28).

    Errors:
        MisuseError (also ValueError): the name is taken.
    """
    return Op.enter(OpRecord(name, description=describe))


@user_facing
def register_compute(name: str, compute: Compute | None = None) -> Any:
    """Set the function that computes a user's operator; without one, return a decorator."""

    def enter(function: Compute) -> Compute:
        Op.get(name).extend(compute=function)
        return function

    return enter if compute is None else enter(compute)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of values: what a message calls it, and whether a value, frozen, is of it."""

    described: str
    accepts: Callable[[Any], bool]


def _each(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Accept a value, or a list of lists of values that are accepted, however deep."""

    def accepts_all(value: Any) -> bool:
        return all(map(accepts_all, value)) if isinstance(value, tuple) else accepts(value)

    return accepts_all


def _is_int(value: Any) -> bool:
    return type(value) is int


def _is_float(value: Any) -> bool:
    return type(value) in (int, float)


def _is_dtype(value: Any) -> bool:
    """Accept the name of a datatype; `""` and `"None"` stand for that of an operand."""
    if not isinstance(value, str):
        return False
    try:
        return value == "None" or DataType(value) is not None
    except MisuseError:
        return False


INT: Final = Kind("an integer", _is_int)
INTS: Final = Kind("an integer or a list of integers", _each(_is_int))
FLOAT: Final = Kind("a number", _is_float)
FLOATS: Final = Kind("a number or a list of numbers", _each(_is_float))
BOOL: Final = Kind("True or False", lambda value: type(value) is bool or value in (0, 1))
TEXT: Final = Kind("a string", lambda value: isinstance(value, str))
DTYPE: Final = Kind("the name of a datatype", _is_dtype)
ANY: Final = Kind("anything", lambda value: True)

_OF_DEFAULTS: Final = {bool: BOOL, int: INT, float: FLOAT, str: TEXT}
#: The kinds of attributes whose defaults do not show them, by their names.
_BY_NAME: Final[Mapping[str, Kind]] = {
    name: kind
    for kind, names in (
        (INT, "block_size channels depth index_rank lhs_end num_groups repeats rhs_end units"),
        (INTS, "axes axis begin end indices_or_sections kernel_size newshape output_size pad_width "
               "pool_size reps shape size strides target_shape"),
        (FLOAT, "a_max a_min"),
        (TEXT, "data_layout dst_layout equation kernel_layout src_layout"),
        (DTYPE, "compute_dtype dtype out_dtype"),
    )
    for name in names.split()
}  # fmt: skip
#: Attributes that may be None although that is not the default.
_OPTIONAL: Final = {"axis", "strides"}


def kinds_of(attributes: Mapping[str, object]) -> dict[str, Kind]:
    """The kinds of attributes, by their names and defaults."""
    return {name: _kind(name, default) for name, default in attributes.items()}


def _kind(name: str, default: object) -> Kind:
    if isinstance(default, tuple):
        return FLOATS if default and isinstance(default[0], float) else INTS
    if name in _BY_NAME and type(default) is not int:
        return _BY_NAME[name]
    return _OF_DEFAULTS.get(type(default), ANY)


def check_attribute(operator: str, name: str, kind: Kind, default: object, value: object) -> None:
    """Check the value of an attribute of an operator.

    Errors:
        MisuseError (also TypeError): the value is not of the kind of the attribute.
    """
    if value is None and (default is None or name in _OPTIONAL):
        return
    if not kind.accepts(freeze(value)):
        raise unexpected(value, f"{operator}: {name} is {kind.described}", rule="RLY-71")
