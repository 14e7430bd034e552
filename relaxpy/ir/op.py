"""Operators by name: one object per name, for all levels of the IR."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, ClassVar, Self, Unpack, final

from typing_extensions import override

from relaxpy import plugin
from relaxpy.errors import UnknownNameError, check_type, close_names
from relaxpy.ir.core.node import Node
from relaxpy.ir.op_families import FAMILIES
from relaxpy.ir.op_record import COLUMNS, Columns, OpRecord, check_columns
from relaxpy.support.dataclass import replace

UNREGISTERED = OpRecord()
"""The record of a name under which nothing is registered."""


def _modules() -> dict[str, str]:
    """The modules that register operators, by their names."""
    found, module = {}, ""
    for word in FAMILIES.split():
        if word.endswith(":"):
            module = f"relaxpy.ir.ops.{word[:-1]}"
        else:
            found[f"relax.{word}"] = module
    return found


@cache
def load_unlisted() -> None:
    """Import the modules of operators that the table does not list: new files."""
    for package in ("relaxpy.ir.ops", "relaxpy.ir.ops.nn"):
        for _, name, is_package in iter_modules(import_module(package).__path__, f"{package}."):
            if not is_package and f"\n{name.removeprefix('relaxpy.ir.ops.')}:" not in FAMILIES:
                import_module(name)


@final
class Op(Node):
    """An operator (AST-14); there is one object for each name.

    `Op.get` returns registered operators only. The constructor accepts any name, so that programs
    can be parsed before they are checked (OP-16). `record` has the registered properties, which
    `extend` replaces; attributes with other names are stored separately.
    """

    __slots__ = ("_others", "name", "record")
    __match_args__ = ("name",)
    _fields = ("name",)
    _table: ClassVar[dict[str, Op]] = {}
    modules: ClassVar[dict[str, str]] = _modules()
    """The modules that register operators when one of theirs is first named, by its name."""
    changes: ClassVar[int] = 0
    """A version number of operator records; code compiled under an earlier one may be outdated."""
    normalizations: ClassVar[int] = 0
    """A version number of the FNormalize rules; earlier normal forms may be outdated."""
    user_changes: ClassVar[int] = 0
    """The number of registrations other than those of relaxpy's modules at import."""
    name: str
    record: OpRecord
    _others: dict[str, object]
    span: ClassVar[None] = None
    """Operators have no source position; errors use that of the enclosing node."""

    def __new__(cls, name: str) -> Self:
        """The operator `name`."""
        check_type(name, str, "an operator is named by a string")
        cls.load(name)
        return cls.unloaded(name)

    @classmethod
    def load(cls, name: str) -> None:
        """Import the module that registers `name`, if it is not loaded yet."""
        module = cls.modules.get(name)
        if module is not None:
            import_module(module)  # while another thread does this, it waits
            cls.modules.pop(name, None)

    @classmethod
    def unloaded(cls, name: str) -> Self:
        """The operator `name`, whose module is perhaps not loaded yet."""
        op = cls._table.get(name)
        if op is None:
            new = object.__new__(cls)
            object.__setattr__(new, "name", name)
            object.__setattr__(new, "record", UNREGISTERED)
            object.__setattr__(new, "_others", {})
            op = cls._table.setdefault(name, new)
        return op

    @override
    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError("an operator cannot be changed; set_attr extends its record")

    @classmethod
    def get(cls, op_name: str) -> Op:
        """The registered operator `op_name`; "tirx." of TVM 0.27 is "tir.".

        Errors:
            UnknownNameError (also ValueError, KeyError): it is not registered.
        """
        if isinstance(op_name, str):
            op_name = (
                f"tir.{op_name.removeprefix('tirx.')}" if op_name.startswith("tirx.") else op_name
            )
            cls.load(op_name)
        op = cls._table.get(op_name) if isinstance(op_name, str) else None
        if op is None or not op._is_registered:
            load_unlisted()
            plugin.load("operators")
            op = cls._table.get(op_name) if isinstance(op_name, str) else None
        if op is None or not op._is_registered:
            known = cls.list_op_names()
            raise UnknownNameError(
                f"no operator is registered as {op_name!r:.60}",
                rule="OP-16",
                hint=close_names(str(op_name), known),
            )
        return op

    @classmethod
    def list_op_names(cls) -> list[str]:
        """The sorted names of all registered operators."""
        registered = (name for name, op in cls._table.items() if op._is_registered)
        return sorted({*cls.modules, *registered})

    @property
    def _is_registered(self) -> bool:
        return self.record is not UNREGISTERED or bool(self._others)

    def extend(self, **columns: Unpack[Columns]) -> None:
        """Replace these columns of the record, such as a gradient or a user's legalisation.

        Errors:
            MisuseError (also TypeError): a column does not exist.
        """
        check_columns(columns)
        Op.load(self.name)
        self.enter(replace(self.record, name=self.name, **columns))

    def enter(self, record: OpRecord) -> None:
        """Set the record of the operator."""
        if self.name not in Op.modules:  # nothing has seen the operator before its module
            Op.normalizations += record.normalize is not self.record.normalize
            Op.changes += 1
        object.__setattr__(self, "record", record)
        Op.user_changes += not _is_importing()

    def forget(self) -> None:
        """Remove all that is registered for the operator."""
        for key in [key for key in _levels if key[0] == self.name]:
            del _levels[key]
        self._others.clear()
        self.enter(UNREGISTERED)

    def get_attr(self, attr_name: str) -> object | None:
        """The attribute `attr_name`, which may be TVM's name of a column, or None."""
        column = COLUMNS.get(attr_name)
        return self._others.get(attr_name) if column is None else getattr(self.record, column)

    def has_attr(self, attr_name: str) -> bool:
        """True if there is an attribute `attr_name`."""
        return self.get_attr(attr_name) is not None

    def set_attr(self, attr_name: str, value: object, plevel: int = 10) -> None:
        """Replace the attribute `attr_name`, as `extend` does, unless its level is higher."""
        if _levels.get((self.name, attr_name), plevel) > plevel:
            return
        _levels[self.name, attr_name] = plevel
        column = COLUMNS.get(attr_name)
        if column is None:
            self._others[attr_name] = value
            Op.user_changes += not _is_importing()
        else:
            columns: dict[str, Any] = {column: value}
            self.extend(**columns)

    def reset_attr(self, attr_name: str) -> None:
        """Remove the attribute `attr_name`."""
        _levels.pop((self.name, attr_name), None)
        if self._others.pop(attr_name, None) is None and attr_name in COLUMNS:
            self.set_attr(attr_name, None, plevel=0)
            if self.record == OpRecord(self.name):
                self.enter(UNREGISTERED)

    @override
    def __str__(self) -> str:
        return f"Op({self.name})"

    @override
    def __reduce__(self) -> tuple[type[Op], tuple[str]]:
        return Op, (self.name,)


def _is_importing() -> bool:
    """True if a module of relaxpy registers something while it is imported."""
    frame = sys._getframe(2)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("relaxpy."):
        if frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


_levels: dict[tuple[str, str], int] = {}


def register_op_attr(
    op_name: str, attr_key: str, value: object | None = None, level: int = 10
) -> Any:
    """Set an attribute of the operator `op_name`; without a value, return a decorator.

    A value that was set at a higher level is kept.
    """

    def set_attr(attr: Any) -> Any:
        Op(op_name).set_attr(attr_key, attr, level)
        return attr

    return set_attr if value is None else set_attr(value)
