"""What is known of a kernel while it is read."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from typing_extensions import override

from relaxpy.errors import ParseError, RelaxpyError
from relaxpy.ir.dtype import INT32, INT64, DataType
from relaxpy.ir.relax.nodes import GlobalVar
from relaxpy.ir.tir import expr as tir, ops, stmt
from relaxpy.ir.tir.buffer import Buffer, BufferRegion, IterVar, Range
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.script.parser import forms
from relaxpy.script.parser.displays import VALUE_ERRORS
from relaxpy.script.parser.evaluator import Evaluator
from relaxpy.script.parser.guard import OPEN, Guard
from relaxpy.script.parser.macros import Macro, Unrolling, expanded
from relaxpy.script.parser.report import Report, Statements
from relaxpy.script.parser.scope import Scope
from relaxpy.script.parser.text import Positioned, Program
from relaxpy.script.parser.wording import as_parse_error

Wrap = Callable[[stmt.Stmt], stmt.Stmt]


@dataclass(slots=True)
class Block:
    """What is said of a block so far."""

    form: forms.BlockForm | None
    iter_vars: list[IterVar] = field(default_factory=list)
    iter_values: list[PrimExpr] = field(default_factory=list)
    regions: dict[str, tuple[BufferRegion, ...]] = field(default_factory=dict)
    init: stmt.Stmt | None = None
    allocations: list[Buffer] = field(default_factory=list)
    matches: list[stmt.MatchBufferRegion] = field(default_factory=list)
    attrs: dict[str, object] = field(default_factory=dict)
    predicate: PrimExpr | None = None


@dataclass(slots=True)
class Body:
    """Statements being collected; a wrapper takes all that follow it as its body."""

    kind: Literal["function", "block", "inner"]
    items: list[stmt.Stmt | Wrap] = field(default_factory=list)

    def fold(self) -> stmt.Stmt:
        """The statements as one."""
        rest: list[stmt.Stmt] = []
        for item in reversed(self.items):
            if isinstance(item, stmt.Stmt):
                rest.append(item)
            else:
                rest = [item(_sequence(rest))]
        return _sequence(rest)


def _sequence(backwards: list[stmt.Stmt]) -> stmt.Stmt:
    if not backwards:
        return stmt.Evaluate(ops.const(0, INT32))
    return backwards[0] if len(backwards) == 1 else stmt.SeqStmt(tuple(reversed(backwards)))


class KernelEvaluator(Evaluator):
    """Expressions of a kernel; functions of the module are called by the dtype that they return."""

    def __init__(
        self,
        program: Program,
        scope: Scope,
        guard: Guard,
        returns: Callable[[GlobalVar], DataType | None],
    ) -> None:
        Evaluator.__init__(self, program, scope, guard)
        self.returns = returns
        self.expand: Callable[[Macro, list[Any], dict[str, Any], ast.Call], None] | None = None

    @override
    def on_call(
        self, function: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        if isinstance(function, GlobalVar):
            if kwargs:
                raise self.error(node.keywords[0], "a function of the module takes no keywords")
            values = [a.data if isinstance(a, Buffer) else ops.convert(a) for a in args]
            return tir.Call(self.returns(function) or "", function, values)
        if isinstance(function, Macro) and self.expand is not None:
            return self.expand(function, args, kwargs, node)
        return function(*args, **kwargs)


class KernelState:
    """What is known of a kernel while it is read, and how mistakes in it are told."""

    def __init__(
        self,
        program: Program,
        scope: Scope,
        *,
        guard: Guard = OPEN,
        report: Report | None = None,
        returns: Callable[[GlobalVar], DataType | None] = lambda _: None,
    ) -> None:
        self.program = program
        self.scope = scope
        self.report = report if report is not None else Report()
        self.values = KernelEvaluator(program, scope, guard, returns)
        self.values.expand = self.expand
        self.values.size_of = self.size
        self.statements = Statements(program, scope, self.report)
        self.params: list[Var] = []
        self.buffer_map: dict[Var, Buffer] = {}
        self.attrs: dict[str, object] = {}
        self.ret_type: DataType | None = None
        self.loops: dict[Var, Range] = {}
        self.threads: dict[Var, str] = {}
        self.named: set[Var] = set()
        self.pointers: set[Var] = set()
        self.bodies: list[Body] = []
        self.root = Block(None)
        self.blocks: list[Block] = [self.root]
        self.undeclared: dict[stmt.Stmt, Block] = {}
        self.has_block = False
        self.loop_depth = 0
        self.sizes: dict[str, Var] = {}
        self.unrolling = Unrolling()

    def size(self, name: str) -> Var:
        """The variable that a TypeVar of this name stands for."""
        if name not in self.sizes:
            self.sizes[name] = Var(name, INT64)
            self.named.add(self.sizes[name])
        return self.sizes[name]

    def expand(self, macro: Macro, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> None:
        """Read the statements of a macro here.

        Errors:
            ParseError: it is a macro of Relax.
        """
        if macro.options.dialect != "tir":
            raise self.error(node.func, "a macro of Relax cannot be used in a kernel")
        self.unrolling.add(len(macro.node.body), node, self.values)
        with expanded(self, macro, args, kwargs, node):
            self.statements.read(macro.body(), self.statement)

    def error(self, node: Positioned, message: str, **details: Any) -> ParseError:
        """The error `message` about what stands at `node`."""
        return self.program.error(node, message, **details)

    def made(self, node: Positioned, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What `make` gives; misuse is a mistake of the text at `node`."""
        try:
            return make(*args, **kwargs)
        except RelaxpyError as error:
            raise as_parse_error(error, self.program.span(node)) from None
        except VALUE_ERRORS as error:
            raise self.error(node, str(error)) from None

    def add(self, item: stmt.Stmt | Wrap) -> None:
        """Append to the innermost body."""
        self.bodies[-1].items.append(item)

    def read_into(self, body: Body, nodes: Sequence[ast.stmt]) -> None:
        """Read `nodes` into `body`, in the present scope of names."""
        self.bodies.append(body)
        try:
            self.statements.read(nodes, self.statement)
        finally:
            self.bodies.pop()

    def statement(self, node: ast.stmt) -> None:
        """Read one statement."""
        raise AssertionError("given by the reader of statements")

    def inner(self, nodes: Sequence[ast.stmt], names: dict[str, object] | None = None) -> stmt.Stmt:
        """`nodes` as one statement, with a scope of their own."""
        body = Body("inner")
        with self.scope.inner(names):
            self.read_into(body, nodes)
        return body.fold()

    def block_at(self, node: Positioned, what: str) -> Block:
        """The block around, in which `what` must stand directly."""
        if self.bodies[-1].kind != "block":
            raise self.error(node, f"{what} belongs directly into a block, with T.block(...):")
        return self.blocks[-1]
