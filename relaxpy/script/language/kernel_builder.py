"""Builds a kernel statement by statement, for the parser and for IRBuilder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from relaxpy.errors import BuilderStateError, RelaxpyError, Span
from relaxpy.ir.core.dtype import INT32, DataType
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.core.types import PointerType
from relaxpy.ir.tir import ops, stmt
from relaxpy.ir.tir.analysis.regions import access_regions
from relaxpy.ir.tir.buffer import Buffer, BufferRegion, IterVar, Range
from relaxpy.ir.tir.expr import IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.script.language import records

Wrap: TypeAlias = Callable[[stmt.Stmt], stmt.Stmt]


@dataclass(slots=True)
class Block:
    """The state of a block that is being built."""

    form: records.BlockForm | None
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
    """Statements being collected; a wrapper takes all that follow it as its body.

    The body of `T.If` holds no statements, but its branches as `cases`.
    """

    kind: Literal["function", "block", "loop", "cases", "inner"]
    items: list[stmt.Stmt | Wrap] = field(default_factory=list)
    cases: dict[bool, stmt.Stmt] = field(default_factory=dict)

    def fold(self) -> stmt.Stmt:
        """Combine the statements to one."""
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


class KernelBuilder:
    """Builds a kernel from parameters and statements.

    `at` is the location of a statement. Only subclasses that read a text use it.
    """

    def __init__(self) -> None:
        self.params: dict[Var, None] = {}
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

    # --- how mistakes are told

    def error(self, at: Any, message: str, **details: Any) -> RelaxpyError:
        """Create the error `message` at location `at`."""
        return BuilderStateError(message, **details)

    def span(self, at: Any) -> Span | None:
        """The span of location `at`."""
        return None

    def call_at(self, at: Any, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `make`; an error in it is reported at location `at`."""
        return make(*args, **kwargs)

    # --- bodies

    def add(self, item: stmt.Stmt | Wrap) -> None:
        """Append to the innermost body."""
        self.bodies[-1].items.append(item)

    @contextmanager
    def body(
        self, kind: Literal["function", "block", "loop", "cases", "inner"] = "inner"
    ) -> Iterator[Body]:
        """Open a body that collects the statements until the context ends."""
        body = Body(kind)
        self.bodies.append(body)
        try:
            yield body
        finally:
            self.bodies.pop()

    def check_position(self, at: Any) -> None:
        """Check that a statement is not directly inside T.If."""
        body = self.bodies[-1]
        if body.kind == "cases":
            # A branch is entered, so that its absence is not reported as well.
            body.cases.setdefault(True, _sequence([]))
            raise self.error(at, "with T.If holds with T.Then(): and perhaps with T.Else():")

    def block_at(self, at: Any, what: str) -> Block:
        """The enclosing block, directly inside which `what` must be."""
        if self.bodies[-1].kind != "block":
            raise self.error(at, f"{what} belongs directly into a block, with T.block(...):")
        return self.blocks[-1]

    # --- the kernel as a whole

    def parameter(self, name: str, param: Buffer | Var) -> None:
        """Append a parameter: a variable, or a buffer with a handle called `name`."""
        if isinstance(param, Var):
            self.params[param] = None
            self.named.add(param)
            return
        handle = Var(name, "handle")
        self.params[handle] = None
        self.buffer_map[handle] = param
        self.pointers.add(param.data)

    def finish(
        self, body: Body, symbol: str | None, *, private_as: str | None, at: Any
    ) -> PrimFunc:
        """Create the kernel with this body, adding a root block where one is needed.

        `symbol` is its global symbol; `private_as` is the name of a kernel without one.
        """
        lone = body.items[0] if len(body.items) == 1 else None
        is_root = isinstance(lone, stmt.BlockRealize) and not lone.block.iter_vars
        if not is_root:
            body.items = [
                self.declare_regions(i) if isinstance(i, stmt.Stmt) and i in self.undeclared else i
                for i in body.items
            ]
        result = body.fold()
        span = self.span(at)
        if self.root.allocations or (self.has_block and not is_root):
            allocations = tuple(self.root.allocations)
            root = stmt.Block((), (), (), "root", result, None, allocations, span=span)
            result = stmt.BlockRealize((), ops.const(True, "bool"), root, span)
        if symbol is not None:
            self.attrs.setdefault("global_symbol", symbol)
        if private_as is not None and "global_symbol" in self.attrs:
            named = f" {private_as!r}" if private_as else ""
            raise self.error(at, f"private kernel{named} has a global_symbol")
        return PrimFunc(
            tuple(self.params),
            result,
            self.ret_type,
            self.buffer_map,
            Attrs(self.attrs),
            span=span,
        )

    def new_var(self, name: str, dtype: str | PointerType) -> Var:
        """Create a variable that the program defines."""
        var = Var(name, dtype)
        self.named.add(var)
        return var

    # --- statements with a body

    @contextmanager
    def loop(self, form: records.LoopForm, names: Sequence[str], at: Any) -> Iterator[list[Var]]:
        """Open the nested loops of `form`, over variables called `names`."""
        variables = []
        for name, (first, extent) in zip(names, form.bounds, strict=True):
            variables.append(self.new_var(name, first.dtype))
            self.loops[variables[-1]] = Range.from_min_extent(first, extent)
        with self.body("loop") as body:
            yield variables
        result, span = body.fold(), self.span(at)
        for var, (first, extent) in zip(reversed(variables), reversed(form.bounds), strict=True):
            binding = None
            if form.thread is not None:
                index = Var("", var.dtype)
                binding = IterVar(None, index, IterVarKind.ThreadIndex, form.thread)
            result = stmt.For(
                var, first, extent, form.kind, result, binding, Attrs(form.annotations), span
            )
        self.add(result)

    @contextmanager
    def while_loop(self, condition: PrimExpr, at: Any) -> Iterator[None]:
        """Open a while loop."""
        with self.body("loop") as body:
            yield
        self.add(stmt.While(condition, body.fold(), self.span(at)))

    @contextmanager
    def branches(self, condition: PrimExpr, at: Any) -> Iterator[None]:
        """Open the body of `T.If`, which holds branches only."""
        with self.body("cases") as body:
            yield
        cases = body.cases
        if True not in cases:
            raise self.error(at, "with T.If holds with T.Then():")
        self.add(stmt.IfThenElse(condition, cases[True], cases.get(False), self.span(at)))

    @contextmanager
    def branch(self, form: records.BranchForm, at: Any) -> Iterator[None]:
        """Open one of the branches."""
        enclosing = self.bodies[-1]
        word = "Then" if form.taken else "Else"
        if enclosing.kind != "cases":
            raise self.error(at, f"with T.{word} stands directly in with T.If(condition):")
        if form.taken in enclosing.cases:
            raise self.error(at, f"with T.If holds with T.{word}() twice")
        with self.body() as body:
            yield
        enclosing.cases[form.taken] = body.fold()

    @contextmanager
    def init(self, at: Any) -> Iterator[None]:
        """Open the initialisation of the enclosing block."""
        block = self.block_at(at, "T.init")
        if block.init is not None:
            raise self.error(at, "T.init is given twice for this block")
        with self.body() as body:
            yield
        block.init = body.fold()

    @contextmanager
    def block(self, form: records.BlockForm, at: Any) -> Iterator[None]:
        """Open a block."""
        is_top = self.bodies[-1].kind == "function"
        state = Block(form)
        self.blocks.append(state)
        try:
            with self.body("block") as body:
                yield
        finally:
            self.blocks.pop()
        self.has_block = True
        span = self.span(at)
        result = stmt.Block(
            tuple(state.iter_vars),
            state.regions.get("reads", ()),
            state.regions.get("writes", ()),
            form.name,
            body.fold(),
            state.init,
            tuple(state.allocations),
            tuple(state.matches),
            Attrs(state.attrs),
            span,
        )
        # Alone at the top of a kernel, a block without variables is its root and declares nothing.
        may_be_root = is_top and not state.iter_vars and not form.no_realize
        if not may_be_root:
            result = self.call_at(at, self.infer_regions, result, state)
        if form.no_realize:
            self.add(result)
            return
        predicate = ops.const(True, "bool") if state.predicate is None else state.predicate
        realize = stmt.BlockRealize(tuple(state.iter_values), predicate, result, span)
        if may_be_root:
            self.undeclared[realize] = state
        self.add(realize)

    def infer_regions(self, block: stmt.Block, state: Block) -> stmt.Block:
        """Infer the regions that the program does not declare."""
        if len(state.regions) == 2:
            return block
        reads, writes = access_regions(block, self.pointers)
        return replace(
            block,
            reads=state.regions.get("reads", reads),
            writes=state.regions.get("writes", writes),
        )

    def declare_regions(self, realize: stmt.Stmt) -> stmt.Stmt:
        """Add the inferred regions to the block of `realize`."""
        assert isinstance(realize, stmt.BlockRealize)
        block = self.infer_regions(realize.block, self.undeclared[realize])
        return replace(realize, block=block)
