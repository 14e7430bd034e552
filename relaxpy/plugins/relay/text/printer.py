"""Printing of Relay programs in TVM's format (RLY-58, RLY-111)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.ir.core.budget import Task, run
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.plugins.relay import expr as rl, ty as types
from relaxpy.plugins.relay.analysis import Scope, Scopes, is_atom, pattern_text
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.variables import all_type_vars, free_vars
from relaxpy.support.entry import user_facing
from relaxpy.support.gc_pause import gc_paused

HEADER: Final = '#[version = "0.0.5"]'
_SUFFIXES: Final = {
    "int16": "i16",
    "int32": "",
    "int64": "i64",
    "float16": "f16",
    "float32": "f",
    "float64": "f64",
}
_NAME: Final = re.compile(r"[^A-Za-z0-9_]")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_TYPE: Final = 100_000
_MAX_FLOAT: Final = float(np.finfo("float32").max)
MAX_DIGITS: Final = 400

Annotate = Callable[[rl.RelayExpr], str]


@user_facing
@gc_paused
def text(
    node: Node, show_meta_data: bool = True, annotate: Annotate | None = None, **_: object
) -> str:
    """The text of a module, an expression or a pattern.

    `annotate` returns the comment after an expression instead of its type.

    Errors:
        MisuseError: the program contains a TempExpr, or a type too large to be printed.
    """
    return _Printer(annotate).text(node, show_meta_data)


class _Names:
    """Unique names: the first free of `x`, `x1`, `x2` and so on; keywords are never free."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken: set[str] = {*taken}
        self.next: dict[str, int] = {}
        self.names: dict[object, str] = {}

    def name(self, variable: rl.Var | types.TypeVar) -> str:
        """The name of a variable, which is chosen at the first request."""
        name = self.names.get(variable)
        if name is None:
            name = self.names[variable] = self._free(variable.name_hint)
        return name

    def _free(self, hint: str) -> str:
        stem = _NAME.sub("_", hint)
        if not stem[:1].isascii() or not stem[:1].isalpha() or types.is_keyword(stem):
            stem = f"v{stem}"
        name, number = stem, self.next.get(stem, 0)
        while name in self.taken:
            number += 1
            name = f"{stem}{number}"
        self.next[stem] = number
        self.taken.add(name)
        return name


class _Printer:
    """The printer of one text."""

    def __init__(self, annotate: Annotate | None) -> None:
        self.annotate = annotate
        self.variables = _Names()
        self.type_params = _Names()
        self.data_types: list[str] = []
        self.constructors: Mapping[str, rl.Constructor] = {}
        self.numbers: dict[int, int] = {}
        self.count = 0
        self.constants: list[rl.Constant] = []
        self.scopes: Scopes
        self.let_values: set[int] = set()

    def text(self, node: Node, show_meta_data: bool) -> str:
        """The text of a node."""
        if isinstance(node, RelayModule):
            sections = [HEADER]
            self.data_types = [header.name_hint for header in node.type_definitions]
            self.constructors = node.constructors
            sections += [self.data_type(data) for data in node.type_definitions.values()]
            for var, function in node.functions.items():
                self.variables, self.type_params = _Names(), _Names(self.data_types)
                sections.append(self.definition(var.name_hint, function))
            out = (
                "\n\n".join([f"{sections[0]}\n{sections[1]}", *sections[2:]])
                if sections[1:]
                else sections[0]
            )
        elif isinstance(node, rl.RelayExpr):
            out = self.expression(node)
        elif isinstance(node, rl.Pattern):
            out = pattern_text(node, self.variable)
        elif isinstance(node, rl.Clause):
            out = f"{pattern_text(node.lhs, self.variable)} => {self.expression(node.rhs)}"
        else:
            out = self.type(node)
        if self.constants and show_meta_data:
            out += f"\n\n#[metadata]\n{self.metadata()}"
        return f"{out}\n" if isinstance(node, RelayModule) else out

    def enter(self, scopes: Scopes) -> None:
        """Begin the text of an expression."""
        self.scopes = scopes
        self.let_values = {id(let.value) for let in scopes.lets}

    def type(self, ty: Node) -> str:
        """The text of a type with unique names of type parameters."""
        out = types.type_text(ty, self.type_params.name, limit=_MAX_TYPE)
        if out.endswith("…"):
            raise MisuseError("a type has too many components to be printed", rule="RLY-111")
        return out

    def parameters(self, params: tuple[types.TypeVar, ...]) -> str:
        """A list of type parameters (RLY-74)."""
        listed = ", ".join(types.parameter_text(p, self.type_params.name) for p in params)
        return f"[{listed}]" if listed else ""

    def data_type(self, data: types.TypeData) -> str:
        """The declaration of a data type (RLY-77)."""
        self.type_params = _Names(self.data_types)
        head = f"{data.header.name_hint}{self.parameters(data.type_vars)}"
        if not data.constructors:
            return f"extern type {head}"
        lines = [f"type {head} {{"]
        for constructor in data.constructors:
            fields = ", ".join(map(self.type, constructor.inputs))
            lines.append(f"  {constructor.name_hint}{f'({fields})' if fields else ''},")
        return "\n".join([*lines, "}"])

    def definition(self, name: str, function: rl.Function) -> str:
        """A `def` (RLY-38)."""
        self.enter(Scopes(function))
        return "\n".join(run(self.function(function, f"def @{name}")))

    def expression(self, expr: rl.RelayExpr) -> str:
        """The text of an expression, after declarations of its free variables (RLY-80)."""
        self.enter(Scopes(expr))
        lines = []
        for var in free_vars(expr):
            if var is not expr or var.type_annotation is not None:
                annotation = (
                    "" if var.type_annotation is None else f": {self.type(var.type_annotation)}"
                )
                lines.append(f"free_var %{self.variables.name(var)}{annotation};")
        return "\n".join(lines + run(self.block(self.scopes.outermost)))

    def block(self, scope: Scope) -> Task[list[str]]:
        """The lines of a scope: its bindings, and its expression in the last place."""
        lines: list[str] = []
        uses = self.scopes.uses
        while True:
            root = scope.root
            for node in scope.nodes:
                if uses[id(node)] == 1 and (node is root or id(node) in self.let_values):
                    continue
                value = yield self.value(node)
                self.numbers[id(node)] = self.count
                lines += _around(f"%{self.count} = ", _bracketed(node, value), self.comment(node))
                lines[-1] += ";"
                self.count += 1
            if not isinstance(root, rl.Let) or id(root) in self.numbers:
                break
            lines += yield self.binding(root)
            scope = self.scopes.inner[id(root)][0]
        return [*lines, *(yield self.in_place(root))]

    def binding(self, let: rl.Let) -> Task[list[str]]:
        """The lines of the binding of a let."""
        value = yield self.in_place(let.value)
        head = f"let {self.variable(let.var)} = "
        return _around(head, _bracketed(let.value, value), ";")

    def in_place(self, expr: rl.RelayExpr) -> Task[list[str]]:
        """The lines of an expression where it is used: its number if it has one."""
        if is_atom(expr) or id(expr) in self.numbers:
            return [self.atom(expr)]
        lines = yield self.value(expr)
        comment = self.comment(expr)
        return [*lines[:-1], lines[-1] + comment]

    def comment(self, expr: rl.RelayExpr) -> str:
        """The comment after an expression."""
        if self.annotate is not None:
            words = self.annotate(expr)
            return f" {words}" if words else ""
        shown = isinstance(expr, (rl.Call, rl.TupleGetItem, rl.RefRead, rl.RefCreate))
        if not shown or expr.checked_type_ is None:
            return ""
        return f" /* ty={self.type(expr.checked_type_)} */"

    def atom(self, expr: rl.RelayExpr) -> str:
        """The text of a name, a constant, or an expression that has a number."""
        match expr:
            case rl.Var():
                return f"%{self.variables.name(expr)}"
            case rl.GlobalVar(name_hint=name):
                return f"@{name}"
            case rl.Constructor(name_hint=name):
                return name
            case Op(name=name):
                if name in self.constructors:
                    raise MisuseError(
                        f"the operator {name} cannot be printed: a constructor has its name",
                        rule="RLY-60",
                        about=expr,
                    )
                return name
            case rl.Constant():
                return self.constant(expr)
            case rl.Literal(value=value):
                return repr(value)
            case _:
                return f"%{self.numbers[id(expr)]}"

    def value(self, expr: rl.RelayExpr) -> Task[list[str]]:
        """The lines of an expression whose operands are atoms or have numbers."""
        match expr:
            case rl.Tuple(fields=fields):
                listed = ", ".join(map(self.atom, fields))
                return [f"({listed}{',' if len(fields) == 1 else ''})"]
            case rl.TupleGetItem(tuple_value=value, index=index):
                return [f"{self.atom(value)}.{index}"]
            case rl.Call():
                return [self.call(expr)]
            case rl.RefCreate(value=value):
                return [f"ref({self.atom(value)})"]
            case rl.RefRead(ref=ref):
                return [f"ref_read({self.atom(ref)})"]
            case rl.RefWrite(ref=ref, value=value):
                return [f"ref_write({self.atom(ref)}, {self.atom(value)})"]
            case rl.Function():
                return (yield from self.function(expr, "fn "))
            case rl.If():
                return (yield from self.branches(expr))
            case rl.Match():
                return (yield from self.match(expr))
            case rl.Let():
                lines: list[str] = yield self.binding(expr)
                lines += yield self.block(self.scopes.inner[id(expr)][0])
                return lines
            case _:
                raise MisuseError(
                    f"a {type(expr).__name__} cannot be printed: it occurs only inside a pass",
                    rule="RLY-56",
                    about=expr,
                )

    def call(self, call: rl.Call) -> str:
        """A call, with the attributes that differ from their defaults (RLY-71)."""
        args = list(map(self.atom, call.args))
        defaults: Mapping[str, object] = {}
        if isinstance(call.op, Op):
            defaults = call.op.record.attributes
        for name, value in call.attrs.items():
            if name not in defaults or not _same(defaults[name], value):
                args.append(f"{name}={self.attribute(value)}")
        type_args = "" if _follow(call) else ", ".join(map(self.type_arg, call.type_args))
        if isinstance(call.op, rl.Constructor) and not args and not type_args:
            return call.op.name_hint
        return f"{self.atom(call.op)}{f'<{type_args}>' if type_args else ''}({', '.join(args)})"

    def type_arg(self, arg: object) -> str:
        """The text of a type argument: a type, a shape, a dimension or a datatype."""
        if isinstance(arg, tuple):
            return f"({', '.join(map(self.type_arg, arg))}{',' if len(arg) == 1 else ''})"
        return self.type(arg) if isinstance(arg, types.Type) else str(arg)

    def attribute(self, value: Any) -> str:
        """The text of an attribute."""
        if value is None or isinstance(value, bool):
            return str(value)
        if isinstance(value, (int, np.integer)) and abs(int(value)) < 10**MAX_DIGITS:
            return str(int(value))
        if isinstance(value, (float, np.floating)):
            number = float(value)
            if np.isfinite(number):
                return f"{number!r}{'f' if abs(number) < _MAX_FLOAT else ''}"
            return self.constant(rl.Constant(np.array(number)))
        if isinstance(value, str):
            return json.dumps(str(value))
        if isinstance(value, (tuple, list)):
            return f"[{', '.join(map(self.attribute, value))}]"
        if isinstance(value, np.ndarray):
            return self.constant(rl.Constant(value))
        reason = {
            Attrs: "Relay text has no dictionaries",
            int: f"numbers of Relay text have at most {MAX_DIGITS} digits",
        }.get(type(value), "attributes are numbers, strings, arrays, lists of them, and None")
        raise MisuseError(
            f"the attribute {value!r:.60} cannot be printed: {reason}", rule="RLY-71", about=value
        )

    def constant(self, constant: rl.Constant) -> str:
        """A literal, or the entry of the metadata (RLY-65)."""
        data = constant.data
        dtype = data.dtype.name
        scalar: Any = data[()]
        if data.ndim == 0 and dtype == "bool":
            return str(bool(data))
        if data.ndim == 0 and dtype in _SUFFIXES and np.isfinite(data):
            if np.issubdtype(data.dtype, np.integer):
                return f"{int(data)}{_SUFFIXES[dtype]}"
            if not (data == 0 and np.signbit(data)):
                number = np.format_float_positional(scalar, trim="-")
                if len(number) > 24:
                    number = np.format_float_scientific(scalar, trim="-")
                return f"{number}{_SUFFIXES[dtype]}"
        self.constants.append(constant)
        return f"meta[relay.Constant][{len(self.constants) - 1}]"

    def metadata(self) -> str:
        """The table of constants that no literal can write."""
        entries = []
        for constant in self.constants:
            data = np.ascontiguousarray(constant.data)
            little = data.astype(data.dtype.newbyteorder("<"), copy=False)
            entries.append(
                {
                    "dtype": data.dtype.name,
                    "shape": list(constant.data.shape),
                    "data": base64.b64encode(little.tobytes()).decode("ascii"),
                }
            )
        return json.dumps({"relay.Constant": entries})

    def variable(self, var: rl.Var) -> str:
        """A variable where it is bound, with its annotation."""
        name = f"%{self.variables.name(var)}"
        return name if var.type_annotation is None else f"{name}: {self.type(var.type_annotation)}"

    def function(self, function: rl.Function, head: str) -> Task[list[str]]:
        """The lines of a function (RLY-11, RLY-74, RLY-76)."""
        params = [self.variable(p) for p in function.params]
        params += [f"{_key(name)}={self.attribute(v)}" for name, v in function.attrs.items()]
        result = "" if function.ret_type is None else f" -> {self.type(function.ret_type)}"
        where = ", ".join(map(self.type, function.constraints))
        opening = (
            f"{head}{self.parameters(function.type_params)}({', '.join(params)}){result}"
            f"{f' where {where}' if where else ''} {{"
        )
        body = yield self.block(self.scopes.inner[id(function)][0])
        return [opening, *_indented(body), "}"]

    def branches(self, expr: rl.If) -> Task[list[str]]:
        """The lines of an if, whose chains nest (RLY-50)."""
        lines = [f"if ({self.atom(expr.cond)}) {{"]
        while True:
            true, false = self.scopes.inner[id(expr)]
            lines += _indented((yield self.block(true)))
            other = false.root
            if (
                not isinstance(other, rl.If)
                or self.scopes.uses[id(other)] > 1
                or len(false.nodes) > 1
            ):
                break
            lines.append(f"}} else if ({self.atom(other.cond)}) {{")
            expr = other
        lines.append("} else {")
        lines += _indented((yield self.block(false)))
        return [*lines, "}"]

    def match(self, expr: rl.Match) -> Task[list[str]]:
        """The lines of a match (RLY-78)."""
        lines = [f"match{'' if expr.complete else '?'} ({self.atom(expr.data)}) {{"]
        for clause, scope in zip(expr.clauses, self.scopes.inner.get(id(expr), ()), strict=True):
            body = yield self.block(scope)
            lines += [
                f"  {pattern_text(clause.lhs, self.variable)} => {{",
                *_indented(_indented(body)),
            ]
            lines.append("  },")
        return [*lines, "}"]


def _follow(call: rl.Call) -> bool:
    """True if the type arguments of a call follow from the types of its arguments."""
    ty = call.op.checked_type_
    if call.checked_type_ is None or not isinstance(ty, types.FuncType):
        return not call.type_args
    return {*ty.type_params} <= {p for arg in ty.arg_types for p in all_type_vars(arg)}


def _bracketed(node: rl.RelayExpr, lines: list[str]) -> list[str]:
    """The lines of a `let` or `match` inside of another expression in brackets."""
    if isinstance(node, (rl.Let, rl.Match)) and len(lines) > 1:
        return ["(", *_indented(lines), ")"]
    return lines


def _key(name: str) -> str:
    """The name of an attribute."""
    if not all(map(_IDENTIFIER.fullmatch, name.split("."))):
        raise MisuseError(
            f"an attribute called {name!r:.60} cannot be printed: names consist of letters, digits "
            "and _, joined by dots",
            rule="RLY-71",
        )
    return name


def _around(head: str, lines: list[str], tail: str) -> list[str]:
    """Lines with text before the first and after the last."""
    if not lines:
        return [head + tail]
    lines = [head + lines[0], *lines[1:]]
    return [*lines[:-1], lines[-1] + tail]


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _same(default: object, value: object) -> bool:
    if isinstance(default, (list, tuple)) and isinstance(value, (list, tuple)):
        return len(default) == len(value) and all(map(_same, default, value))
    return type(default) is type(value) and default == value
