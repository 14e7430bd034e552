"""The source of a program: its syntax tree and positions, the names in scope, and its errors.

`Program` has the one conversion from positions in the tree to spans. `Scope` looks names up among
those that a program binds, and those of its enclosing scopes. `Report` collects the errors of a
program while it is parsed; and type parameters, `def f[n](...)`, are read here.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import io
import linecache
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import lru_cache
from itertools import accumulate, chain, zip_longest
from types import CodeType, FrameType, FunctionType
from typing import Any, Protocol

from typing_extensions import override

from relaxpy.errors import (
    Diagnostic,
    ParseError,
    ParseNameError,
    RelaxpyError,
    Source,
    Span,
    close_names,
)
from relaxpy.ir.core.budget import MAX_TOKENS
from relaxpy.ir.core.node import Node
from relaxpy.ir.relax.nodes import GlobalVar
from relaxpy.ir.relax.nodes.struct_info import UNKNOWN_SIZE
from relaxpy.script.language.wording import as_parse_error
from relaxpy.support.dataclass import dataclass
from relaxpy.support.screen import ipython

MAX_DEPTH = 90
#: The characters of one expression in a string: the syntax tree of a token takes up to 1,800 bytes
#: while Python makes it, and MAX_TOKENS limits those of a text.
MAX_QUOTED = 100_000
#: The last lines of the history of Python's prompt in which a program is looked up.
MAX_TYPED = 1_000
_COMPOUND = re.compile(r"@|(?:def|class|for|if|with|while|try)\b")
#: The fields of an f-string, times its characters: before 3.12, Python looks for each of them from
#: the beginning of the string.
MAX_SCANNED = 4_000_000_000
MAX_QUOTED_SCANNED = 40_000_000
_FORMATTED = re.compile(r"\b(?:f|rf|fr)['\"]", re.IGNORECASE)
#: Bytes of UTF-8 that begin no character, and how many bytes of a long line are counted at once.
_CONTINUATIONS = bytes(range(0x80, 0xC0))
_CHUNK = 4096
#: For each byte whether it belongs to a word (w), is white space, or is a token by itself (p).
_KINDS = bytes(
    ord("w") if b > 127 or chr(b).isalnum() or b == 0x5F else b if b in b" \t\r\f" else ord("p")
    for b in range(256)
)
#: IPython's file names for cells that begin with %%time and %%timeit.
_TIMED = ("<timed exec>", "<magic-timeit>")


class Positioned(Protocol):
    """A syntax tree node with a position: expression, statement, parameter or keyword."""

    lineno: int
    col_offset: int
    end_lineno: int | None
    end_col_offset: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A parsed text. `shift` is the difference between the line numbers of file and tree."""

    tree: ast.Module
    source: Source
    lines: list[str] = field(repr=False)
    shift: int = 0
    indent: int = 0

    def span(self, node: Positioned) -> Span:
        """The span of `node`: lines of the file, columns in characters from 1."""
        line = node.lineno
        end_line = node.end_lineno or line
        end = node.col_offset if node.end_col_offset is None else node.end_col_offset
        return Span(
            self.source,
            line + self.shift,
            self._column(line, node.col_offset),
            end_line + self.shift,
            self._column(end_line, end),
        )

    def _column(self, line: int, offset: int) -> int:
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        characters = offset if offset <= 0 or text.isascii() else _characters(text, offset)
        return characters + 1 + self.indent

    def error(
        self, node: Positioned, message: str, kind: type[ParseError] = ParseError, **details: object
    ) -> ParseError:
        """Create the error `message` at `node`."""
        return kind(message, span=self.span(node), **details)  # type: ignore[arg-type]

    def repeated(self, spec: ast.arguments) -> Iterator[ParseError]:
        """An error for each parameter with the name of a preceding one.

        Python reports them when it compiles a definition, but a text is not compiled.
        """
        names: set[str] = set()
        plain = (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)
        for arg in (*plain, *filter(None, (spec.vararg, spec.kwarg))):
            if arg.arg in names:
                yield self.error(arg, f"two parameters are called {arg.arg!r}")
            names.add(arg.arg)


def _characters(line: str, offset: int) -> int:
    """The number of characters in the first `offset` bytes of a line."""
    data, counts = _counted_characters(line)
    chunk = min(offset, len(data)) // _CHUNK
    rest = data[chunk * _CHUNK : offset]
    return counts[chunk] + len(rest.translate(None, _CONTINUATIONS))


@lru_cache(maxsize=4)
def _counted_characters(line: str) -> tuple[bytes, list[int]]:
    """A line in UTF-8, and the number of characters that begin before each of its chunks."""
    data = line.encode(errors="surrogatepass")
    chunks = (data[k : k + _CHUNK] for k in range(0, len(data), _CHUNK))
    counts = (len(chunk.translate(None, _CONTINUATIONS)) for chunk in chunks)
    return data, list(accumulate(counts, initial=0))


def check_size(text: str) -> None:
    """Check that Python's parser can read `text` in little memory.

    Errors: ParseError if it has more than MAX_TOKENS tokens, or f-strings of very many fields.
    """
    is_small = len(text) <= MAX_TOKENS or _max_tokens(text) <= MAX_TOKENS
    if is_small and _max_scanned(text) <= MAX_SCANNED:
        return
    # The bounds count punctuation inside of strings, and braces outside of them: count exactly.
    count = scanned = 0
    try:
        for more, characters in _tokens(text):
            count += more
            scanned += characters
            if count > MAX_TOKENS:
                raise ParseError(f"the text has more than {MAX_TOKENS} tokens, which are not read")
            if scanned > MAX_SCANNED:
                raise ParseError("the text has f-strings of too many fields, which are not read")
    except (tokenize.TokenError, SyntaxError) as error:
        raise ParseError(f"the text is not valid Python: {error.args[0]}") from None


def _max_tokens(text: str) -> int:
    """An upper bound on the number of tokens: words and punctuation, also in strings."""
    kinds = text.encode(errors="surrogatepass").translate(_KINDS)
    words = sum(kinds.count(bytes((before, ord("w")))) for before in b"p \t\r\f")
    return kinds.count(b"p") + words + kinds.startswith(b"w")


def _max_scanned(text: str) -> int:
    """An upper bound on the characters that Python scans for the fields of f-strings."""
    return text.count("{") * len(text) if _FORMATTED.search(text) else 0


def _tokens(text: str) -> Iterator[tuple[int, int]]:
    """For each token, the number of tokens in it, and of characters scanned for its fields.

    The expressions in an f-string are part of its token.
    """
    for kind, token, *_ in tokenize.generate_tokens(io.StringIO(text).readline):
        formatted = kind == tokenize.STRING and _FORMATTED.match(token)
        yield (_max_tokens(token), _max_scanned(token)) if formatted else (1, 0)


def parse_text(text: str, name: str, *, first_line: int = 1, limit: int | None = None) -> Program:
    """Parse `text` as a program; an indented text keeps its columns.

    A text that may be hostile has a `limit` of characters, and its size is checked first.

    Errors:
        ParseError: it is not valid Python, too long, or nested too deeply.
    """
    if limit is not None:
        if len(text) > limit:
            raise ParseError(f"the text has {len(text)} characters, more than {limit} are not read")
        check_size(text)
    source = Source(name, text, first_line)
    lines = (line for line in text.split("\n") if line.strip() and line.lstrip()[0] != "#")
    indented = next(lines, "")[:1] in (" ", "\t")
    code = "if 1:\n" + text if indented else text
    shift = first_line - (2 if indented else 1)
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        raise _syntax_error(error, source, shift) from None
    except (RecursionError, MemoryError):
        raise ParseError("the text is nested too deeply to be read") from None
    except ValueError as error:
        raise ParseError(f"the text is not valid Python: {error}") from None
    if indented and isinstance(tree.body[0], ast.If):
        tree.body = tree.body[0].body
    return Program(tree, source, code.split("\n"), shift)


def _syntax_error(error: SyntaxError, source: Source, shift: int) -> ParseError:
    line = max(1, error.lineno or 1) + shift
    column = max(1, error.offset or 1)
    end_line = (error.end_lineno or 0) + shift
    end = error.end_offset if end_line == line and error.end_offset else column + 1
    span = Span(source, line, column, line, max(end, column + 1))
    return ParseError(f"the text is not valid Python: {error.msg}", span=span)


def _lines_of(filename: str, code: CodeType | None) -> list[str]:
    """The lines of a file, a cell, `python -c` or a prompt; none if Python keeps none."""
    if filename == "<string>":
        return _compiled_lines(sys.orig_argv[1:], "exec", code)
    linecache.checkcache(filename)
    lines = linecache.getlines(filename)
    if not lines and filename.startswith("<stdin>"):
        return _compiled_lines(_typed(), "single", code)
    frame: FrameType | None = None if lines else sys._getframe()
    while frame is not None and not lines:
        if frame.f_code.co_filename == filename:  # of a module in an archive, its loader knows
            lines = linecache.getlines(filename, frame.f_globals)
        elif filename in _TIMED and frame.f_code.co_name == "run_cell_magic":
            cell = ipython().transform_cell(frame.f_locals["cell"])
            lines = cell.splitlines(keepends=True)
        frame = frame.f_back
    return lines


def _typed() -> Iterator[str]:
    """The statements with blocks that were typed at Python's prompt, the last one first.

    The history of lines has no empty ones, and only one of several equal ones.
    """
    readline: Any = sys.modules.get("readline")
    lines: list[str] = []
    for k in range(readline.get_current_history_length() if readline else 0, 0, -1):
        lines.insert(0, (readline.get_history_item(k) or "") + "\n")
        if len(lines) > MAX_TYPED:
            return
        if _COMPOUND.match(lines[0]):
            yield "".join(_indented_block(lines))


def _compiled_lines(texts: Iterable[str], mode: str, code: CodeType | None) -> list[str]:
    """The lines of the first of the texts from which `code` was compiled, if any."""
    for text in texts if code else ():
        try:
            worklist = [compile(text, "<string>", mode, dont_inherit=True)]
        except (SyntaxError, ValueError):
            continue
        while worklist:
            candidate = worklist.pop()
            if candidate == code:
                return text.splitlines(keepends=True)
            worklist += [c for c in candidate.co_consts if isinstance(c, CodeType)]
    return []


def too_deep(program: Program, statement: ast.stmt | None = None) -> ParseError:
    """Create the error for a stack overflow, located at the first deeply nested node.

    If there is none, a value that `statement` computes is nested too deeply.
    """
    stack: list[tuple[ast.AST, int]] = [(statement or program.tree, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH and isinstance(node, (ast.expr, ast.stmt)):
            return program.error(
                node,
                f"nested more than {MAX_DEPTH} levels deep",
                hint="bind subexpressions to names",
            )
        # A chain such as `a + b + c` is evaluated in a loop and counts as one level.
        first = node.left if isinstance(node, ast.BinOp) else None
        stack += [(child, depth + (child is not first)) for child in ast.iter_child_nodes(node)]
    if statement is not None:
        return program.error(statement, "a value that is computed here is nested too deeply")
    return ParseError("the text is nested too deeply to be read")


def quoted_program(program: Program, literal: ast.Constant) -> tuple[ast.expr, Program]:
    """The expression inside a string literal, with positions inside the literal.

    Errors:
        ParseError: it is not an expression, or is nested too deeply.
    """
    text = str(literal.value).strip()
    span = program.span(literal)
    tree = quoted_tree(text)
    if isinstance(tree, str):
        hint = UNKNOWN_SIZE if text in ("?", "*") else None
        raise ParseError(f"{literal.value!r:.60} {tree}", span=span, hint=hint)
    plain = span.line == span.end_line and span.end_column - span.column == len(text) + 2
    inner = Program(ast.Module([], []), program.source, [text], span.line - 1, span.column)
    for node in ast.walk(tree):
        if not plain and isinstance(node, ast.expr):
            # With escapes or joined literals, positions inside are wrong: use the whole literal.
            node.lineno = node.end_lineno = 1
            node.col_offset, node.end_col_offset = -1, span.end_column - span.column - 1
    return tree.body, inner


def quoted_tree(text: str) -> ast.Expression | str:
    """The tree of the expression in a string, or a description of the error."""
    if len(text) > MAX_QUOTED:
        return f"has {len(text)} characters, more than {MAX_QUOTED} are not read"
    if _max_scanned(text) > MAX_QUOTED_SCANNED:
        return "has f-strings of too many fields, which are not read"
    try:
        return ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return "is not an expression"
    except (RecursionError, MemoryError):
        return "is nested too deeply"


def source_of(code: CodeType) -> Program:
    """The text from which the `code` of a function was compiled.

    Errors:
        ParseError: there is none, as under `python -c` and `exec`.
    """
    return source_at(code.co_filename, code.co_firstlineno, code.co_name, code)


def definition_of(code: CodeType) -> tuple[ast.FunctionDef, Program]:
    """The definition from which the `code` of a function was compiled, and its program.

    Errors:
        ParseError: there is no text, or it has changed.
    """
    program, name = source_of(code), code.co_name
    match program.tree.body:
        case [ast.FunctionDef() as node, *_] if node.name == name:
            return node, program
        case [ast.AsyncFunctionDef() as node, *_]:
            raise program.error(node, "a program does not wait: write def, not async def")
        case _ if name.isidentifier():
            raise ParseError(
                f"the text of {name!r} is not what Python has compiled",
                hint=f"if {code.co_filename} has changed since then, run it again",
            )
        case _:
            raise ParseError(f"the text of {name!r} is not the definition of a function")


def source_at(filename: str, line: int, name: str, code: CodeType | None = None) -> Program:
    """The definition of `name`, with decorators, that begins at `line` of a file or cell.

    `code` is what Python compiled from it, if that is available.

    Errors:
        ParseError: there is no text for it.
    """
    lines = _lines_of(filename, code)
    if not 0 < line <= len(lines):
        raise ParseError(
            f"the source text of {name!r} cannot be found: Python keeps none for {filename}",
            hint="keep the program in a file or notebook cell, or pass its text to "
            "relaxpy.script.from_source(text)",
        )
    rest = lines[line - 1 :]
    try:
        return parse_text("".join(_indented_block(rest)), filename, first_line=line)
    except ParseError:  # a line of a string or bracket is indented less than the definition
        return parse_text("".join(inspect.getblock(rest)), filename, first_line=line)


def _indented_block(lines: list[str]) -> list[str]:
    """The definition at the beginning of `lines`, whose end is determined by indentation.

    A definition cut inside a string or bracket is not valid Python, so a wrong end is detected. To
    split the lines into tokens, as `inspect` does, takes longer than to parse them.
    """
    start = len(lines[0]) - len(lines[0].lstrip())
    in_definition = False
    for k, line in enumerate(lines):
        text = line.lstrip()
        if not text or text[0] in "#)]}" or len(line) - len(text) > start:
            continue
        if in_definition:
            return lines[:k]
        in_definition = text.startswith(("def ", "class ", "async def "))
    return lines if in_definition else inspect.getblock(lines)


#: The built-in functions that a program may call while it is parsed.
BUILTINS: Mapping[str, object] = {
    name: getattr(builtins, name)
    for name in (
        *("abs", "all", "any", "bool", "dict", "divmod", "enumerate", "filter", "float", "int"),
        *("isinstance", "len", "list", "map", "max", "min", "range", "reversed", "round", "set"),
        *("slice", "sorted", "str", "sum", "tuple", "zip"),
    )
}


class Missing:
    """The type of the result of a lookup that finds nothing."""


MISSING = Missing()


class Poison:
    """The type of the value of a name whose definition failed; its uses are not reported again."""


POISON = Poison()


class Poisoned(Exception):  # noqa: N818
    """A value is used whose definition has already been reported as an error."""


class FromText:
    """Base of the functions that a text defines; calling one reads its text."""

    __slots__ = ()


class ModuleRef:
    """The module that is being parsed, as its functions refer to it: `cls.f`, `Module.f`."""

    def __init__(self, functions: Mapping[str, GlobalVar]) -> None:
        self.__functions__ = functions
        self.__poisoned__: set[str] = set()

    def __getattr__(self, name: str) -> GlobalVar:
        if name in self.__poisoned__:
            raise Poisoned
        gvar = self.__functions__.get(name)
        if gvar is None:
            raise AttributeError(name)
        return gvar

    @override
    def __dir__(self) -> list[str]:
        return list(self.__functions__)

    @override
    def __repr__(self) -> str:
        return "the module"


class Scope:
    """The names of a program, innermost scope first, inside the enclosing mappings."""

    __slots__ = ("_enclosing", "_used", "frames")

    def __init__(self, *enclosing: Mapping[str, object]) -> None:
        self.frames: list[dict[str, object]] = [{}]
        self._enclosing = enclosing
        self._used: set[str] = set()  # names of the enclosing mappings

    def find(self, name: str) -> object:
        """The value of `name`, or MISSING."""
        for frame in reversed(self.frames):
            if name in frame:
                return frame[name]
        for mapping in self._enclosing:
            if name in mapping:
                return mapping[name]
        return MISSING

    def use(self, name: str) -> object:
        """The value of `name` where a program uses it, or MISSING."""
        value = self.find(name)
        if self.find_bound(name) is MISSING:
            self._used.add(name)
        return value

    def find_bound(self, name: str) -> object:
        """The value that the program itself has bound to `name`, or MISSING."""
        for frame in reversed(self.frames):
            if name in frame:
                return frame[name]
        return MISSING

    def set(self, name: str, value: object) -> None:
        """Bind `name` in the innermost scope."""
        self.frames[-1][name] = value

    def names(self) -> Iterator[str]:
        """All visible names."""
        known = chain.from_iterable((*reversed(self.frames), *self._enclosing))
        return (name for name in known if self.find(name) is not MISSING)

    @contextmanager
    def inner(self, names: Mapping[str, object] | None = None) -> Iterator[dict[str, object]]:
        """Open a scope inside this one until the context ends."""
        frame = dict(names or {})
        depth = len(self.frames)
        self.frames.append(frame)
        try:
            yield frame
        finally:
            del self.frames[depth:]

    @contextmanager
    def block(self, names: Mapping[str, object] | None = None) -> Iterator[dict[str, object]]:
        """Open a scope whose names hide those of the enclosing mappings, also after its end.

        A name of Python would otherwise silently replace a variable that is not visible any more.
        Modules and functions, such as T and max, do not, and those that were used before they were
        hidden are meant: they are visible again.
        """
        with self.inner(names) as frame:
            yield frame
        self.hide(frame)

    def hide(self, names: Iterable[str]) -> None:
        """Hide the values that the enclosing mappings have under `names`, as after a block."""
        for name in names:
            is_meant = name in self._used or _is_callee(self.find(name))
            if self.find_bound(name) is MISSING and not is_meant:
                self.set(name, MISSING)

    def closure(self) -> Scope:
        """The scope of a lambda defined here; later bindings in these frames are visible."""
        scope = Scope(*self._enclosing)
        scope.frames, scope._used = list(self.frames), self._used
        return scope

    def for_function(self, *first: Mapping[str, object]) -> Scope:
        """A scope for a function defined here: the names of this scope, then `first`."""
        return Scope(*reversed(self.frames), *first, *self._enclosing)


def _is_callee(value: object) -> bool:
    """True for what a program calls but cannot compute with: a function, or the module of one."""
    return inspect.ismodule(value) or (callable(value) and not isinstance(value, Node))


def captured_names(function: FunctionType, frame: FrameType | None) -> list[Mapping[str, object]]:
    """The scopes of names used in `function`: closure, defining frame, module."""
    closure = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            closure[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    scopes: list[Mapping[str, object]] = [closure]
    if frame is not None:
        scopes.extend(frame_names(frame))
    scopes.append(function.__globals__)
    return scopes


def frame_names(frame: FrameType) -> Iterator[Mapping[str, Any]]:
    """The current local names of a running frame, and of its callers that enclose it.

    The latter are those of annotations that Python does not evaluate, which no closure has.
    """
    code, caller = frame.f_code, frame.f_back
    if frame.f_locals is not frame.f_globals:
        yield dict(frame.f_locals)
    if caller is not None and any(code is constant for constant in caller.f_code.co_consts):
        yield from frame_names(caller)


def unknown_name(name: str, known: Iterable[str]) -> ParseNameError:
    """Create the error for an unknown name."""
    if hasattr(builtins, name):
        return ParseNameError(
            f"the built-in name {name!r} is not available inside a program",
            hint="a program is parsed, not run; " + _instead(name),
        )
    public = {n for n in known if not n.startswith("_")}
    return ParseNameError(f"unknown name {name!r}", hint=close_names(name, public))


def _instead(name: str) -> str:
    if name == "print":
        return "to print when the function runs use R.print(x) in a function with pure=False"
    return "call it outside and use its result, or a helper function that calls it"


MAX_ERRORS = 20


class TooManyErrors(Exception):  # noqa: N818
    """The program has MAX_ERRORS errors; parsing stops."""


class Report:
    """The errors found in a program so far."""

    def __init__(self) -> None:
        self.errors: list[RelaxpyError] = []

    def add(self, error: RelaxpyError) -> None:
        """Add an error."""
        self.errors.append(error)
        if len(self.errors) >= MAX_ERRORS:
            raise TooManyErrors

    def failure(self) -> RelaxpyError | None:
        """One error with all diagnostics, of the class of the first; None without errors."""
        if not self.errors:
            return None
        diagnostics: dict[Diagnostic, None] = {}
        for error in self.errors:
            diagnostics |= dict.fromkeys(error.diagnostics)
        kind = type(self.errors[0])
        return kind(list(diagnostics))


class Reading(Protocol):
    """The program and the scope of an evaluator."""

    program: Program
    scope: Scope


class Statements:
    """Parses statements one by one; an error in one is reported, and the next is parsed."""

    def __init__(self, reading: Reading, report: Report, *, in_macro: bool = False) -> None:
        self.reading = reading
        self.in_macro = in_macro
        self.report = report
        self.following: ast.stmt | None = None

    def read(
        self,
        nodes: Sequence[ast.stmt],
        statement: Callable[[ast.stmt], None],
        then: ast.stmt | None = None,
    ) -> None:
        """Parse `nodes` with `statement`; names bound by an erroneous one are poisoned.

        During a call, `following` is the next statement, which is `then` for the last one.
        """
        for node, self.following in zip_longest(nodes, nodes[1:], fillvalue=then):
            assert node is not None
            try:
                statement(node)
            except Poisoned:
                self.poison(node)
            except RecursionError:
                self.poison(node)
                if self.in_macro:  # a macro that uses itself, which is reported at its call
                    raise
                self.report.add(too_deep(self.reading.program, node))
            except RelaxpyError as error:
                self.poison(node)
                self.report.add(as_parse_error(error, self.reading.program.span(header(node))))

    def poison(self, node: ast.stmt) -> None:
        """Mark every name that `node` would have bound."""
        nested = (n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
        for name in (*bound_names(node), *nested):
            self.reading.scope.set(name, POISON)


def header(node: ast.stmt) -> ast.stmt | ast.expr:
    """The node at which a message about a statement points: without nested statements."""
    match node:
        case ast.If(test=test) | ast.While(test=test):
            return test
        case ast.For(iter=iter_):
            return iter_
        case ast.With(items=[item, *_]):
            return item.context_expr
        case _:
            return node


def bound_names(node: ast.stmt | ast.ExceptHandler | ast.match_case | ast.pattern) -> Iterator[str]:
    """The names that a statement binds in its enclosing scope."""
    worklist: list[ast.expr]
    match node:
        case ast.Assign(targets=targets):
            worklist = list(targets)
        case ast.AnnAssign(target=bound) | ast.AugAssign(target=bound):
            worklist = [bound]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
            return
        case _:
            for inner in ast.iter_child_nodes(node):
                if isinstance(inner, ast.stmt | ast.ExceptHandler | ast.match_case | ast.pattern):
                    yield from bound_names(inner)
            names = (getattr(node, field, None) for field in ("name", "rest"))  # of patterns
            yield from (name for name in names if isinstance(name, str))
            worklist = [node.target] if isinstance(node, ast.For) else []
    while worklist:
        target = worklist.pop()
        if isinstance(target, ast.Name):
            yield target.id
        elif isinstance(target, (ast.Tuple, ast.List)):
            worklist += target.elts
        elif isinstance(target, ast.Starred):
            worklist.append(target.value)


_STATEMENTS: dict[type[ast.stmt], tuple[str, str]] = {
    ast.While: ("while", "use recursion: a function that calls itself in one branch of an if"),
    ast.For: ("for", "write the functions one by one, or create them in Python"),
    ast.AsyncFor: ("async for", "programs do not wait for anything"),
    ast.AsyncWith: ("async with", "programs do not wait for anything"),
    ast.AsyncFunctionDef: ("async def", "programs do not wait for anything"),
    ast.Try: ("try", "errors of a running program end it; check before with an if"),
    ast.TryStar: ("try", "errors of a running program end it; check before with an if"),
    ast.Raise: ("raise", "use R.assert_op(condition) or T.Assert"),
    ast.Import: ("import", "import at the top of the file; its names can be used here"),
    ast.ImportFrom: ("import", "import at the top of the file; its names can be used here"),
    ast.Global: ("global", "return new values instead"),
    ast.Nonlocal: ("nonlocal", "return new values instead"),
    ast.Delete: ("del", "values die after their last use by themselves"),
    ast.ClassDef: ("class", "put all functions in the class of one @I.ir_module"),
    ast.Assert: ("assert", "use R.assert_op(condition, message) in an impure function"),
    ast.AugAssign: ("an augmented assignment", ""),
    ast.Break: ("break", "a loop is unrolled as a whole: iterate over fewer values"),
    ast.Continue: ("continue", "a loop is unrolled: put the other statements into an if"),
    ast.Match: ("match", "use if and else"),
    ast.FunctionDef: (
        "a function",
        "define it outside; functions of Python are called as they are",
    ),
}


_IN_KERNELS: dict[type[ast.stmt], str] = {
    ast.Global: "keep what changes in a buffer",
    ast.Raise: "write assert condition, message",
}


def refusal(program: Program, node: ast.stmt, where: str) -> ParseError:
    """Create the error for a Python statement that is not part of the language at `where`."""
    name, hint = _STATEMENTS.get(type(node), (type(node).__name__, ""))
    if isinstance(node, ast.AugAssign):
        target = ast.unparse(node.target)
        value = ast.BinOp(ast.Name(target), node.op, node.value)
        hint = f"write {target} = {ast.unparse(value)}: variables are bound, never changed"
    if where == "a kernel":
        hint = _IN_KERNELS.get(type(node), hint)
    if isinstance(node, ast.FunctionDef):
        node = _keyword(node, "def")
    blocks = (ast.Try, ast.TryStar, ast.With, ast.ClassDef, ast.For, ast.While, ast.AsyncFor)
    if isinstance(node, blocks):
        node = _keyword(node, name)
    rule = "EV-24" if name == "try" and where != "a kernel" else None
    return program.error(node, f"{name} is not part of {where}", rule=rule, hint=hint or None)


def _keyword(node: ast.stmt, name: str) -> ast.stmt:
    """A node with the position of the keyword of a compound statement."""
    keyword = ast.Pass()
    keyword.lineno = keyword.end_lineno = node.lineno
    keyword.col_offset = node.col_offset
    keyword.end_col_offset = node.col_offset + len(name)
    return keyword


def docstring_removed(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a body without its docstring."""
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest
        case _:
            return body


def type_parameters(
    node: ast.FunctionDef | ast.ClassDef, error: Callable[..., ParseError], report: Report
) -> list[str]:
    """The type parameters of a definition; errors in them are reported."""
    args = node.args if isinstance(node, ast.FunctionDef) else None
    taken = set() if args is None else {a.arg for a in (*args.posonlyargs, *args.args)}
    names: list[str] = []
    for param in getattr(node, "type_params", ()):
        name: str = param.name
        message, details = "", dict[str, Any]()
        if args is None:
            message = "the class of a module has no type parameters"
            details = {"rule": "SC-12", "hint": f"each function has its own: def f[{name}](...)"}
        elif type(param).__name__ in ("TypeVarTuple", "ParamSpec"):
            message = f"{name} is one shape variable, without a star"
            details = {"rule": "SC-12", "hint": f"[{name}] declares the shape variable {name}"}
        elif getattr(param, "bound", None) or getattr(param, "default_value", None):
            message = f"shape variable {name} is an int64 and has neither type nor default"
            details = {"rule": "PX-9", "hint": f"write [{name}]"}
        elif name in names or name in taken:
            other = "a shape variable" if name in names else "a parameter"
            message = f"{name} is the name of {other} already"
            details = {"rule": "SC-9"}
        if message:
            report.add(error(param, message, **details))
        if name not in names and name not in taken:
            names.append(name)
    return names
