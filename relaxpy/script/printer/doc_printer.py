"""Trees of Python source as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.core.orders import preorder
from relaxpy.ir.equality.access_path import AccessPath
from relaxpy.script.printer import doc as docs
from relaxpy.script.printer.doc import Doc, ExprDoc, OperationKind
from relaxpy.script.printer.underlines import END, START, underlined_text

# How tightly an expression binds its operands.
_LAMBDA, _CONDITIONAL, _NOT, _COMPARISON, _UNARY, _POWER, _ATOM = 1, 2, 5, 6, 13, 14, 15

_UNARY_SIGNS = {
    OperationKind.USub: ("-", _UNARY),
    OperationKind.Invert: ("~", _UNARY),
    OperationKind.Not: ("not ", _NOT),
}
_BINARY_SIGNS = {
    OperationKind.Or: ("or", 3),
    OperationKind.And: ("and", 4),
    OperationKind.Lt: ("<", _COMPARISON),
    OperationKind.LtE: ("<=", _COMPARISON),
    OperationKind.Eq: ("==", _COMPARISON),
    OperationKind.NotEq: ("!=", _COMPARISON),
    OperationKind.Gt: (">", _COMPARISON),
    OperationKind.GtE: (">=", _COMPARISON),
    OperationKind.BitOr: ("|", 7),
    OperationKind.BitXor: ("^", 8),
    OperationKind.BitAnd: ("&", 9),
    OperationKind.LShift: ("<<", 10),
    OperationKind.RShift: (">>", 10),
    OperationKind.Add: ("+", 11),
    OperationKind.Sub: ("-", 11),
    OperationKind.Mult: ("*", 12),
    OperationKind.Div: ("/", 12),
    OperationKind.FloorDiv: ("//", 12),
    OperationKind.Mod: ("%", 12),
    OperationKind.Pow: ("**", _POWER),
}


@user_facing
def to_python_script(
    doc: Doc,
    indent_spaces: int = 4,
    print_line_numbers: bool = False,
    num_context_lines: int | None = None,
    path_to_underline: Sequence[AccessPath] | None = None,
) -> str:
    """Return `doc` as Python.

    Underlined is what has the longest prefix of a path among its source paths. If
    `num_context_lines` is given, only lines at most that far from an underlined one are shown.

    Errors:
        MisuseError (also TypeError, ValueError): an operator has too few operands, or a comment
            beside a statement has several lines.
    """
    check_type(doc, Doc, "expected a Doc")
    writer = _Writer(indent_spaces, _underlined(doc, path_to_underline or ()))
    writer.statement(doc)
    context = -1 if num_context_lines is None else num_context_lines
    lines = underlined_text(writer.lines, numbered=print_line_numbers, context=context)
    return "\n".join(lines)


def _underlined(root: Doc, paths: Iterable[AccessPath]) -> set[int]:
    """Return the ids of the documents that have the longest prefix of one of the paths."""
    found: dict[AccessPath, list[int]] = {}
    for doc in preorder([root], lambda doc: doc.children()):
        for path in doc.source_paths:
            found.setdefault(path, []).append(id(doc))
    underlined: set[int] = set()
    for path in paths:
        prefixes = (AccessPath(path.steps[:n]) for n in range(len(path.steps), -1, -1))
        longest = next((prefix for prefix in prefixes if prefix in found), None)
        underlined.update(found.get(longest, ()) if longest is not None else ())
    return underlined


class _Writer:
    """Writes statements as lines, in which the texts to be underlined are marked."""

    def __init__(self, indent_spaces: int, underlined: set[int]) -> None:
        self.lines: list[str] = []
        self._step = " " * indent_spaces
        self._indent = ""
        self._underlined = underlined

    # Statements

    def statement(self, doc: Doc) -> None:
        """Write a statement, or an expression as one."""
        start = len(self.lines)
        self._comment(doc)
        self._statement(doc)
        if id(doc) in self._underlined and not isinstance(doc, (ExprDoc, docs.SliceDoc)):
            for index in range(start, len(self.lines)):
                text = self.lines[index]
                body = text.lstrip(" ")
                indent = text[: len(text) - len(body)]
                self.lines[index] = f"{indent}{START}{body}{END}" if body else text

    def _comment(self, doc: Doc) -> None:
        """Write the comment above a statement with a suite."""
        if isinstance(doc, (docs.IfDoc, docs.WhileDoc, docs.ForDoc, docs.ScopeDoc)):
            for line in (doc.comment or "").split("\n") if doc.comment else ():
                self._line(f"# {line}")

    def _statement(self, doc: Doc) -> None:
        text = self._expr
        match doc:
            case docs.StmtBlockDoc(stmts=stmts):
                for stmt in stmts:
                    self.statement(stmt)
            case docs.AssignDoc():
                self._simple(doc, self._assignment(doc, bare=True))
            case docs.ExprStmtDoc(expr=expr):
                self._simple(doc, text(expr))
            case docs.ReturnDoc(value=value):
                self._simple(doc, f"return {text(value)}")
            case docs.AssertDoc(test=test, msg=msg):
                message = "" if msg is None else f", {text(msg)}"
                self._simple(doc, f"assert {text(test)}{message}")
            case docs.IfDoc(predicate=predicate, then_branch=then, else_branch=other):
                self._suite(f"if {text(predicate)}:", then)
                if other:
                    self._suite("else:", other)
            case docs.WhileDoc(predicate=predicate, body=body):
                self._suite(f"while {text(predicate)}:", body)
            case docs.ForDoc(lhs=lhs, rhs=rhs, body=body):
                self._suite(f"for {self._targets(lhs)} in {text(rhs)}:", body)
            case docs.ScopeDoc(lhs=lhs, rhs=rhs, body=body):
                name = "" if lhs is None else f" as {text(lhs)}"
                self._suite(f"with {text(rhs)}{name}:", body)
            case docs.FunctionDoc():
                args = ", ".join(self._assignment(arg, bare=False) for arg in doc.args)
                kind = "" if doc.return_type is None else f" -> {text(doc.return_type)}"
                self._definition(doc, f"def {text(doc.name)}({args}){kind}:")
            case docs.ClassDoc():
                self._definition(doc, f"class {text(doc.name)}:")
            case docs.DocStringDoc(comment=comment):
                self._docstring(comment)
            case docs.CommentDoc(comment=comment):
                for line in comment.split("\n") if comment else ():
                    self._line(f"# {line}")
            case _:
                self._line(text(doc))

    def _line(self, text: str) -> None:
        self.lines.append(f"{self._indent}{text}".rstrip())

    def _simple(self, doc: docs.StmtDoc, text: str) -> None:
        """Write a statement on one line, with its comment after it."""
        if doc.comment is not None and "\n" in doc.comment:
            raise MisuseError(
                f"the comment beside a {type(doc).__name__} cannot have newlines", about=doc
            )
        self._line(f"{text}  # {doc.comment}" if doc.comment else text)

    @contextmanager
    def _indented(self) -> Iterator[None]:
        indent, self._indent = self._indent, self._indent + self._step
        yield
        self._indent = indent

    def _suite(self, header: str, body: Sequence[Doc]) -> None:
        self._line(header)
        with self._indented():
            self._body(body)

    def _body(self, body: Sequence[Doc]) -> None:
        """Write the statements of a suite; functions and classes are apart from each other."""
        start = len(self.lines)
        for index, stmt in enumerate(body):
            if index and isinstance(stmt, (docs.FunctionDoc, docs.ClassDoc)):
                self.lines.append("")
            self.statement(stmt)
        if len(self.lines) == start:
            self._line("pass")

    def _definition(self, doc: docs.FunctionDoc | docs.ClassDoc, header: str) -> None:
        for decorator in doc.decorators:
            self._line(f"@{self._expr(decorator)}")
        self._line(header)
        with self._indented():
            self._docstring(doc.comment)
            self._body(doc.body)

    def _docstring(self, comment: str | None) -> None:
        if comment:
            escaped = comment.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
            for line in ('"""', *escaped.split("\n"), '"""'):
                self._line(line)

    # Expressions

    def _assignment(self, doc: docs.AssignDoc, *, bare: bool) -> str:
        """Return `lhs: annotation = rhs`; a tuple has no parentheses if it is `bare`."""
        lhs = self._targets(doc.lhs) if bare else self._expr(doc.lhs)
        kind = "" if doc.annotation is None else f": {self._expr(doc.annotation)}"
        return f"{lhs}{kind}" if doc.rhs is None else f"{lhs}{kind} = {self._expr(doc.rhs)}"

    def _targets(self, doc: ExprDoc) -> str:
        if isinstance(doc, docs.TupleDoc) and doc.elements:
            return self._mark(doc, self._row(doc.elements) + ("," * (len(doc.elements) == 1)))
        return self._expr(doc)

    def _row(self, parts: Iterable[Doc]) -> str:
        return ", ".join(map(self._expr, parts))

    def _mark(self, doc: Doc, text: str) -> str:
        return f"{START}{text}{END}" if id(doc) in self._underlined else text

    def _expr(self, doc: Doc, level: int = 0) -> str:
        """Return an expression, in parentheses if it binds less tightly than `level`."""
        text, own = self._bare(doc)
        return self._mark(doc, f"({text})" if own < level else text)

    def _bare(self, doc: Doc) -> tuple[str, int]:
        """Return the text of an expression, and how tightly it binds."""
        match doc:
            case docs.LiteralDoc(value=value):
                text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else None
                text = repr(value) if text is None else text
                return text, _UNARY if text.startswith("-") else _ATOM
            case docs.IdDoc(name=name):
                return name, _ATOM
            case docs.AttrAccessDoc(value=value, name=name):
                is_int = isinstance(value, docs.LiteralDoc) and type(value.value) is int
                return f"{self._expr(value, _ATOM + is_int)}.{name}", _ATOM
            case docs.IndexDoc(value=value, indices=indices):
                inside = self._row(indices) if indices else "()"
                return f"{self._expr(value, _ATOM)}[{inside}]", _ATOM
            case docs.CallDoc():
                keywords = zip(doc.kwargs_keys, doc.kwargs_values, strict=True)
                args = [*map(self._expr, doc.args)]
                args += [f"{key}={self._expr(value)}" for key, value in keywords]
                return f"{self._expr(doc.callee, _ATOM)}({', '.join(args)})", _ATOM
            case docs.OperationDoc(kind=kind, operands=operands):
                return self._operation(kind, operands)
            case docs.LambdaDoc(args=args, body=body):
                return f"lambda {self._row(args)}: {self._expr(body)}", _LAMBDA
            case docs.ListDoc(elements=elements):
                return f"[{self._row(elements)}]", _ATOM
            case docs.TupleDoc(elements=elements):
                return f"({self._row(elements)}{',' * (len(elements) == 1)})", _ATOM
            case docs.DictDoc():
                pairs = zip(doc.keys, doc.values, strict=True)
                entries = (f"{self._expr(key)}: {self._expr(value)}" for key, value in pairs)
                return f"{{{', '.join(entries)}}}", _ATOM
            case docs.SliceDoc(start=start, stop=stop, step=step):
                first, last = ("" if end is None else self._expr(end) for end in (start, stop))
                return f"{first}:{last}" + ("" if step is None else f":{self._expr(step)}"), _ATOM
            case _:
                raise MisuseError(f"a {type(doc).__name__} is not an expression", about=doc)

    def _operation(self, kind: OperationKind, operands: Sequence[ExprDoc]) -> tuple[str, int]:
        expected = 3 if kind == OperationKind.IfThenElse else 1 if kind in _UNARY_SIGNS else 2
        if len(operands) != expected or kind.name.startswith("_"):
            raise MisuseError(f"{kind.name} with {len(operands)} operands is not an operation")
        if kind == OperationKind.IfThenElse:
            test, yes, no = (self._expr(operand, _CONDITIONAL + 1) for operand in operands)
            return f"{yes} if {test} else {no}", _CONDITIONAL
        if kind in _UNARY_SIGNS:
            sign, level = _UNARY_SIGNS[kind]
            return f"{sign}{self._expr(operands[0], level)}", level
        sign, level = _BINARY_SIGNS[kind]
        # ** associates to the right and takes -x as its exponent; comparisons do not associate.
        left = level + (level in (_POWER, _COMPARISON))
        right = _UNARY if level == _POWER else level + 1
        return f"{self._expr(operands[0], left)} {sign} {self._expr(operands[1], right)}", level
