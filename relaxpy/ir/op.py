"""Built-in operators by name: one object a name, whatever level of the IR it belongs to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self, Unpack, final

from typing_extensions import override

from relaxpy.errors import MisuseError, UnknownNameError, close_names
from relaxpy.ir.core.node import Node
from relaxpy.ir.op_record import COLUMNS, Columns, OpRecord, check_columns

UNREGISTERED = OpRecord()
"""The record of a name under which nothing is registered."""


@final
class Op(Node):
    """A built-in operator (AST-14): two references to one name are the same object.

    `Op.get` answers for registered operators only; the constructor makes the object of any name, so
    that programs can be read before they are checked (OP-16). What is registered is its `record`,
    which `extend` replaces; attributes of other names are kept beside it.
    """

    __slots__ = ("_others", "name", "record")
    __match_args__ = ("name",)
    _fields = ("name",)
    _table: ClassVar[dict[str, Op]] = {}
    name: str
    record: OpRecord
    _others: dict[str, object]
    span: ClassVar[None] = None
    """Operators have no position in a text: where one is used wrongly, the enclosing node has."""

    def __new__(cls, name: str) -> Self:
        """The object that stands for `name`."""
        if not isinstance(name, str):
            raise MisuseError(f"an operator is named by a string, found {name!r:.60}", about=name)
        op = cls._table.get(name)
        if op is None:
            made = object.__new__(cls)
            object.__setattr__(made, "name", name)
            object.__setattr__(made, "record", UNREGISTERED)
            object.__setattr__(made, "_others", {})
            op = cls._table.setdefault(name, made)
        return op

    @override
    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError("an operator cannot be changed; set_attr extends its record")

    @classmethod
    def get(cls, name: str) -> Op:
        """The registered operator `name`.

        Errors:
            UnknownNameError (also ValueError, KeyError): nothing was registered under it.
        """
        op = cls._table.get(name) if isinstance(name, str) else None
        if op is None or not op._is_registered:
            known = cls.list_op_names()
            raise UnknownNameError(
                f"no operator is registered as {name!r:.60}",
                rule="OP-16",
                hint=close_names(str(name), known),
            )
        return op

    @classmethod
    def list_op_names(cls) -> list[str]:
        """The names of all registered operators, sorted."""
        return sorted(name for name, op in cls._table.items() if op._is_registered)

    @property
    def _is_registered(self) -> bool:
        return self.record is not UNREGISTERED or bool(self._others)

    def extend(self, **columns: Unpack[Columns]) -> None:
        """Replace these columns of the record, such as a gradient or a user's legalisation.

        Errors:
            MisuseError (also TypeError): no column has such a name.
        """
        check_columns(columns)
        self.enter(replace(self.record, name=self.name, **columns))

    def enter(self, record: OpRecord) -> None:
        """Make `record` the operator's."""
        object.__setattr__(self, "record", record)

    def get_attr(self, key: str) -> object | None:
        """The attribute `key`, a column of the record by TVM's name or another one, or None."""
        column = COLUMNS.get(key)
        return self._others.get(key) if column is None else getattr(self.record, column)

    def has_attr(self, key: str) -> bool:
        """Whether there is an attribute `key`."""
        return self.get_attr(key) is not None

    def set_attr(self, key: str, value: object) -> None:
        """Replace the attribute `key`, as `extend` does."""
        column = COLUMNS.get(key)
        if column is None:
            self._others[key] = value
        else:
            columns: dict[str, Any] = {column: value}
            self.extend(**columns)

    def reset_attr(self, key: str) -> None:
        """Remove the attribute `key`."""
        if self._others.pop(key, None) is None and key in COLUMNS:
            self.set_attr(key, None)
            if self.record == OpRecord(self.name):
                self.enter(UNREGISTERED)

    @override
    def __str__(self) -> str:
        return f"Op({self.name})"

    @override
    def __reduce__(self) -> tuple[type[Op], tuple[str]]:
        return Op, (self.name,)


_levels: dict[tuple[str, str], int] = {}


def register_op_attr(
    op_name: str, attr_key: str, value: object | None = None, level: int = 10
) -> Any:
    """Enter `value` in a column of the record of `op_name`; without one, a decorator that does.

    What was entered so at a higher level stays.
    """

    def enter(found: Any) -> Any:
        present = _levels.get((op_name, attr_key))
        if present is None or present <= level:
            Op(op_name).set_attr(attr_key, found)
            _levels[op_name, attr_key] = level
        return found

    return enter if value is None else enter(value)
