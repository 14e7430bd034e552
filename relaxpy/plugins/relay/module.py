"""The module of Relay: global functions and data types by name (RLY-37, RLY-85, RLY-95)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from relaxpy.errors import MisuseError, UnknownNameError, check_type, close_names
from relaxpy.ir import hooks
from relaxpy.ir.core.function_table import FunctionTable
from relaxpy.ir.core.node import Attrs, Node, as_attrs
from relaxpy.ir.core.traverse import walk
from relaxpy.plugins.relay.expr import Constructor, Function, GlobalVar, RelayExpr, Textual
from relaxpy.plugins.relay.ty import GlobalTypeVar, TypeData
from relaxpy.plugins.relay.variables import free_vars
from relaxpy.support.entry import user_facing


class RelayModule(Textual, FunctionTable[GlobalVar, Function]):
    """Functions and data types, each with a name that is unique in the module: `relay.IRModule`.

    Errors:
        UnknownNameError (also KeyError, ValueError): the module does not have a name.
        MisuseError (also TypeError, ValueError): a value is neither an expression nor a data type,
            or a name of a constructor or a data type is already taken (RLY-95).
    """

    __slots__ = ("_constructors", "_definitions", "_type_vars", "attrs")
    _fields = ("functions_by_name", "definitions_by_name", "attrs")
    _kind = GlobalVar

    def __init__(
        self,
        functions: Mapping[GlobalVar, Function] | Mapping[str, Function] | None = None,
        type_definitions: Mapping[GlobalTypeVar, TypeData] | None = None,
        attrs: Mapping[str, object] | None = None,
    ) -> None:
        self._vars, self._functions = {}, {}
        self._type_vars: dict[str, GlobalTypeVar] = {}
        self._definitions: dict[str, TypeData] = {}
        self._constructors: dict[str, Constructor] = {}
        self.attrs: Attrs = as_attrs(attrs)
        for table in (functions, type_definitions):
            check_type(table, Mapping | None, "a module is built from tables by name")
        for header, data in (type_definitions or {}).items():
            self[header] = data
        for name, function in (functions or {}).items():
            self[name] = function

    @property
    def type_definitions(self) -> dict[GlobalTypeVar, TypeData]:
        """A copy of the table of data types, in insertion order."""
        return {var: self._definitions[name] for name, var in self._type_vars.items()}

    @property
    def definitions_by_name(self) -> dict[str, TypeData]:
        """A copy of the table of data types, keyed by plain names."""
        return dict(self._definitions)

    @property
    def constructors(self) -> dict[str, Constructor]:
        """The constructors of all data types by name."""
        return dict(self._constructors)

    def get_global_type_vars(self) -> list[GlobalTypeVar]:
        """The names of all data types, in insertion order."""
        return list(self._type_vars.values())

    @user_facing
    def get_global_var(self, name: str) -> GlobalVar:
        """The variable of the function `name`."""
        if name not in self._vars:
            raise _unknown("function", name, self._vars)
        return self._vars[name]

    @user_facing
    def get_global_type_var(self, name: str) -> GlobalTypeVar:
        """The name of the data type `name`."""
        if name not in self._type_vars:
            raise _unknown("data type", name, self._type_vars)
        return self._type_vars[name]

    @user_facing
    def get_type(self, name: str) -> tuple[Any, ...]:
        """The name of a data type, followed by its constructors."""
        header = self.get_global_type_var(name)
        return header, *self._definitions[name].constructors

    @user_facing
    def get_constructor(self, tag: int | str) -> Constructor:
        """The constructor with a tag or a name."""
        if isinstance(tag, str) and tag in self._constructors:
            return self._constructors[tag]
        for constructor in self._constructors.values():
            if constructor.tag == tag:
                return constructor
        raise _unknown("constructor", str(tag), self._constructors)

    @user_facing
    def __getitem__(self, name: GlobalVar | GlobalTypeVar | str) -> Any:
        if isinstance(name, GlobalTypeVar):
            return self._definitions[self.get_global_type_var(name.name_hint).name_hint]
        return self._functions[self._find(name).name_hint]

    @override
    def _find(self, name: GlobalVar | str) -> GlobalVar:
        return self.get_global_var(self._hint(name))

    @user_facing
    def __setitem__(self, name: GlobalVar | GlobalTypeVar | str, value: Node) -> None:
        if isinstance(value, TypeData):
            self._enter_type(name, value)
        elif isinstance(value, RelayExpr) and not isinstance(name, GlobalTypeVar):
            hint = self._hint(name)
            if isinstance(name, GlobalVar) or hint not in self._vars:
                self._vars[hint] = name if isinstance(name, GlobalVar) else GlobalVar(hint)
            self._functions[hint] = as_function(value)
        else:
            raise MisuseError(
                f"a module contains functions and data types, found {value!r:.60} for {name!s}",
                rule="RLY-37",
                about=value,
            )

    def _enter_type(self, name: object, data: TypeData) -> None:
        header = data.header
        hint = header.name_hint
        if getattr(name, "name_hint", name) != hint:
            raise MisuseError(
                f"the data type is called {hint}, not {name!s}", rule="RLY-95", about=name
            )
        old = self._definitions.get(hint)
        names = {} if old is None else {c.name_hint: c for c in old.constructors}
        taken = self._constructors.keys() - names.keys()
        entered: dict[str, Constructor] = {}
        for constructor in data.constructors:
            if constructor.name_hint in taken or constructor.name_hint in entered:
                raise MisuseError(
                    f"two constructors are called {constructor.name_hint}",
                    rule="RLY-95",
                    about=constructor,
                )
            entered[constructor.name_hint] = constructor
        for stale in names:
            del self._constructors[stale]
        self._constructors.update(entered)
        self._type_vars[hint] = header
        self._definitions[hint] = data

    @override
    def __contains__(self, name: object) -> bool:
        if isinstance(name, GlobalTypeVar):
            return name.name_hint in self._definitions
        return FunctionTable.__contains__(self, name)

    @user_facing
    def update(self, other: RelayModule | Mapping[Any, Function]) -> None:
        """Add all functions and data types of `other`, which replace those of the same names."""
        if isinstance(other, RelayModule):
            for header, data in other.type_definitions.items():
                self[header] = data
            other = other.functions
        for name, function in other.items():
            self[name] = function

    @user_facing
    def import_from_std(self, file: str) -> None:
        """Add the functions and data types of a file of the standard library (RLY-113).

        Errors:
            UnknownNameError (also ValueError): there is no such file.
        """
        self.update(hooks.call("relay_std", file))

    @override
    def clone(self) -> RelayModule:
        return RelayModule(self.functions, self.type_definitions, self.attrs)

    def with_fields(self, **changes: Any) -> RelayModule:
        """A copy with some of `_fields` replaced, and the same variables."""
        functions = changes.get("functions_by_name", self._functions)
        definitions = changes.get("definitions_by_name", self._definitions)
        return RelayModule(
            {self._vars.get(name, name): function for name, function in functions.items()},
            {data.header: data for data in definitions.values()},
            changes.get("attrs", self.attrs),
        )

    @staticmethod
    def from_expr(
        expr: RelayExpr,
        functions: Mapping[Any, Function] | None = None,
        type_defs: Mapping[GlobalTypeVar, TypeData] | None = None,
    ) -> RelayModule:
        """A module whose function `main` is `expr`, or a function over its free variables.

        If `functions` have a `main`, the name is made unique.
        """
        module = RelayModule(functions, type_defs)
        name, number = "main", 0
        while name in module:
            number += 1
            name = f"main{number}"
        module[name] = expr
        return module


class Prelude:
    """The Prelude, imported into the module `mod` (RLY-113).

    Errors:
        MisuseError (also TypeError): it is not a module of Relay.
    """

    @user_facing
    def __init__(self, mod: RelayModule | None = None) -> None:
        check_type(mod, RelayModule | None, "expected a module of Relay")
        self.mod = RelayModule() if mod is None else mod
        self.mod.import_from_std("prelude.rly")


def as_function(expr: RelayExpr) -> Function:
    """A function itself, or a function of the free variables of another expression."""
    return expr if isinstance(expr, Function) else Function(tuple(free_vars(expr)), expr)


def global_names(expr: Node) -> set[str]:
    """The names of the global functions that an expression refers to."""
    return {node.name_hint for node in walk(expr) if isinstance(node, GlobalVar)}


def _unknown(what: str, name: object, known: Mapping[str, object]) -> UnknownNameError:
    listed = f"; it has {', '.join(known)}" if known else " (it has none)"
    return UnknownNameError(
        f"the module has no {what} {name!s}{listed}",
        rule="RLY-95",
        hint=close_names(str(name), known),
        about=name,
    )
