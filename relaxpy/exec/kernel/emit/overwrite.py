"""Which inputs of an emitted kernel may be in the memory of an output."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field

import numpy as np

from relaxpy.dataclass import dataclass
from relaxpy.exec.python_ast import nodes_in

_VIEWS = ("reshape", "transpose")
"""Methods of arrays whose result is in the same memory, or a copy that is only read."""


@dataclass(slots=True)
class _Event:
    """A statement: its accesses to parameters, by their names, and where it is.

    `output` is the access that an elementwise ufunc writes. `rows` is the function of blocks of
    rows that contains the statement.
    """

    accesses: dict[str, list[ast.expr]]
    output: ast.expr | None = None
    operands: Sequence[ast.expr] = ()
    rows: str | None = None


@dataclass(slots=True)
class _Use:
    """The first and the last event that accesses a parameter, and its rows in each function."""

    first: int
    last: int
    rows: dict[str, set[str | None]] = field(default_factory=dict)


def overwritable(
    function: ast.FunctionDef, inputs: Collection[str], outputs: Collection[str]
) -> frozenset[tuple[str, str]]:
    """The pairs of an input and an output of a kernel that may be one array, by their names.

    Both have the same shape and datatype. No statement reads the input after the first one that
    accesses the output. That one does not read the input, or it is an elementwise ufunc on the same
    elements of both. A function for blocks of rows accesses the same rows of both.
    """
    events = _Events([*inputs, *outputs])
    if not events.understands(function):
        return frozenset()
    uses: dict[str, _Use] = {}
    for k, event in enumerate(events.found):
        for name, accesses in event.accesses.items():
            use = uses.setdefault(name, _Use(k, k))
            use.last = k
            if event.rows is not None:
                use.rows.setdefault(event.rows, set()).update(map(_outermost, accesses))
    return frozenset(
        (source, target)
        for target in outputs
        for source in inputs
        if target in uses and source in uses
        if _may_share(uses[source], uses[target])
        and (
            uses[source].last < uses[target].first
            or _computes_in_place(events.found[uses[target].first], source, target)
        )
    )


def _may_share(read: _Use, write: _Use) -> bool:
    """Whether one array is read before the other is written, and blocks have rows of their own."""
    common = [(rows, write.rows[name]) for name, rows in read.rows.items() if name in write.rows]
    own_rows = all(
        rows == others and len(rows) == 1 and None not in rows for rows, others in common
    )
    return read.last <= write.first and own_rows


def _computes_in_place(event: _Event, source: str, target: str) -> bool:
    """Whether a ufunc writes the elements of the target from the same ones of the source."""
    if event.output is None or _root_of(event.output) != target:
        return False
    same = [a for a in event.operands if _root_of(a) == source and _text(a) == _text(event.output)]
    return len(same) == len(event.accesses[source])


class _Events:
    """The statements of a kernel that access parameters, in order."""

    def __init__(self, params: Collection[str]) -> None:
        self.found: list[_Event] = []
        self._views: dict[str, ast.expr] = {name: ast.Name(name) for name in params}
        self._aliases: dict[str, set[str]] = {}

    def understands(self, function: ast.FunctionDef) -> bool:
        """Enter the statements of a kernel; whether all of its functions are for blocks of rows."""
        functions = [
            n for n in nodes_in((function,)) if isinstance(n, (ast.FunctionDef, ast.Lambda))
        ]
        return 1 + self._enter(function.body, None) == len(functions)

    def _enter(self, body: Sequence[ast.stmt], rows: str | None) -> int:
        """Enter statements; the number of the functions that they define and run."""
        defined: ast.FunctionDef | None = None
        count = 0
        for stmt in body:
            match stmt:
                case ast.FunctionDef():
                    defined = stmt
                    continue
                case ast.Expr(
                    value=ast.Call(
                        func=ast.Attribute(value=ast.Name(id="rt"), attr="blocks"),
                        args=[ast.Name(id=name), *others],
                    )
                ) if defined is not None and name == defined.name and rows is None:
                    self._add(others, None)
                    count += 1 + self._enter(defined.body, name)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self._is_view(value):
                    self._views[name] = self._resolved(value)
                    self._aliases.pop(name, None)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_new(value):
                    self._add([value], rows)
                    self._views.pop(name, None)
                    self._aliases.pop(name, None)
                case ast.Expr(value=ast.Call() as call) if _output_of(call) is not None:
                    self._add_ufunc(call, rows)
                case _:
                    accessed = self._add([stmt], rows)
                    for node in nodes_in((stmt,)):
                        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                            self._views.pop(node.id, None)
                            self._aliases[node.id] = accessed
            defined = None
        return count

    def _is_view(self, value: ast.expr) -> bool:
        return _root_of(value) in self._views and len(list(self._accesses(value))) == 1

    def _add(self, nodes: Iterable[ast.AST], rows: str | None) -> set[str]:
        """Add an event with these expressions; the parameters that it accesses."""
        accesses: dict[str, list[ast.expr]] = {}
        for access in (access for node in nodes for access in self._accesses(node)):
            accesses.setdefault(_root_of(access) or "", []).append(access)
        if accesses:
            self.found.append(_Event(accesses, rows=rows))
        return set(accesses)

    def _add_ufunc(self, call: ast.Call, rows: str | None) -> None:
        written = _output_of(call)
        assert written is not None
        output, operands = written
        self._add([call], rows)
        if _root_of(output) in self._views:
            event = self.found[-1]
            event.output = self._resolved(output)
            event.operands = [self._resolved(a) for a in operands if _root_of(a) in self._views]

    def _accesses(self, node: ast.AST) -> Iterator[ast.expr]:
        """The largest expressions in `node` that are views of parameters."""
        if isinstance(node, ast.Name) and node.id in self._aliases:
            yield from map(ast.Name, self._aliases[node.id])
        elif isinstance(node, ast.expr) and _root_of(node) in self._views:
            yield self._resolved(node)
            base: ast.expr | None = node
            while base is not None:
                for index in _indices(base):
                    yield from self._accesses(index)
                base = _base(base)
        else:
            for child in ast.iter_child_nodes(node):
                yield from self._accesses(child)

    def _resolved(self, access: ast.expr) -> ast.expr:
        """The access in terms of the parameter whose view it is."""
        match access:
            case ast.Name(id=name):
                return self._views[name]
            case ast.Subscript(value=value, slice=index):
                return ast.Subscript(self._resolved(value), index, ast.Load())
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=args):
                return ast.Call(ast.Attribute(self._resolved(value), attr, ast.Load()), args, [])
            case _:
                return access


def _base(access: ast.expr) -> ast.expr | None:
    """The array that an expression takes a part or another arrangement of."""
    match access:
        case ast.Subscript(value=value):
            return value
        case ast.Call(func=ast.Attribute(value=value, attr=attr), keywords=[]) if attr in _VIEWS:
            return value
        case _:
            return None


def _indices(access: ast.expr) -> Sequence[ast.expr]:
    match access:
        case ast.Subscript(slice=index):
            return (index,)
        case ast.Call(args=args):
            return args
        case _:
            return ()


def _root_of(access: ast.expr) -> str | None:
    """The name of the array that is accessed."""
    base: ast.expr | None = access
    while base is not None and not isinstance(base, ast.Name):
        base = _base(base)
    return base.id if base is not None else None


def _outermost(access: ast.expr) -> str | None:
    """The first selection from the array, as text; None if it is accessed as a whole."""
    inner = None
    while not isinstance(access, ast.Name):
        inner = access
        access = _base(access)  # type: ignore[assignment]
    return ast.dump(inner.slice) if isinstance(inner, ast.Subscript) else None


def _text(access: ast.expr) -> str:
    """The access as text, without the name of the array."""
    match access:
        case ast.Name():
            return "array"
        case ast.Subscript(value=value, slice=index):
            return f"{_text(value)}[{ast.dump(index)}]"
        case ast.Call(func=ast.Attribute(value=value, attr=attr), args=args):
            return f"{_text(value)}.{attr}({', '.join(map(ast.dump, args))})"
        case _:
            return ast.dump(access)


def _is_new(value: ast.expr) -> bool:
    """Whether an expression is a new array."""
    if not isinstance(value, ast.Call):
        return False
    ufunc = _ufunc_of(value)
    if ufunc is None:
        return ast.unparse(value.func) in ("np.empty", "rt.empty")
    return ufunc.signature is None and len(value.args) == ufunc.nin and not value.keywords


def _output_of(call: ast.Call) -> tuple[ast.expr, list[ast.expr]] | None:
    """The array that an elementwise call of a ufunc writes, and its operands."""
    ufunc = _ufunc_of(call)
    if ufunc is None or ufunc.signature is not None or ufunc.nout != 1:
        return None
    match call:
        case ast.Call(args=args, keywords=[ast.keyword(arg="out", value=out)]):
            return (out, args) if len(args) == ufunc.nin else None
        case _:
            return None


def _ufunc_of(call: ast.Call) -> np.ufunc | None:
    """The ufunc of NumPy that is called."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="np"), attr=name):
            function = getattr(np, name, None)
            return function if isinstance(function, np.ufunc) else None
        case _:
            return None
