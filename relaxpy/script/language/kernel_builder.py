"""A kernel as it comes into being, statement by statement, whoever makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from relaxpy.errors import BuilderStateError, RelaxpyError, Span
from relaxpy.ir.core.dtype import INT32, DataType
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.core.traverse import walk
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
    """What is said of a block so far."""

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

    That of `T.If` holds no statements, but its branches as `cases`.
    """

    kind: Literal["function", "block", "loop", "cases", "inner"]
    items: list[stmt.Stmt | Wrap] = field(default_factory=list)
    cases: dict[bool, stmt.Stmt] = field(default_factory=dict)

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


class KernelBuilder:
    """Takes parameters and statements, and gives the kernel of them.

    `at` is what is said, by whoever reads a text, to stand where: here it is not looked at.
    """

    def __init__(self) -> None:
        self.params: dict[Var, None] = {}
        self.buffer_map: dict[Var, Buffer] = {}
        self.attrs: dict[str, object] = {}
        self.ret_type: DataType | None = None
        self.loops: dict[Var, Range] = {}
        self.threads: dict[Var, str] = {}
        self.named: set[Var] = set()
        self.given_vars: list[Var] = []
        self.pointers: set[Var] = set()
        self.bodies: list[Body] = []
        self.root = Block(None)
        self.blocks: list[Block] = [self.root]
        self.undeclared: dict[stmt.Stmt, Block] = {}
        self.has_block = False

    # --- how mistakes are told

    def error(self, at: Any, message: str, **details: Any) -> RelaxpyError:
        """The error `message` about what stands at `at`."""
        return BuilderStateError(message, **details)

    def span(self, at: Any) -> Span | None:
        """Where `at` stands."""
        return None

    def made(self, at: Any, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What `make` gives; what it refuses is a mistake at `at`."""
        return make(*args, **kwargs)

    # --- bodies

    def add(self, item: stmt.Stmt | Wrap) -> None:
        """Append to the innermost body."""
        self.bodies[-1].items.append(item)

    @contextmanager
    def body(
        self, kind: Literal["function", "block", "loop", "cases", "inner"] = "inner"
    ) -> Iterator[Body]:
        """A body that takes the statements until the context ends."""
        body = Body(kind)
        self.bodies.append(body)
        try:
            yield body
        finally:
            self.bodies.pop()

    def check_place(self, at: Any) -> None:
        """A statement stands directly in T.If nowhere."""
        body = self.bodies[-1]
        if body.kind == "cases":
            body.cases.setdefault(True, _sequence([]))  # that none was given is not said as well
            raise self.error(at, "with T.If holds with T.Then(): and perhaps with T.Else():")

    def block_at(self, at: Any, what: str) -> Block:
        """The block around, in which `what` must stand directly."""
        if self.bodies[-1].kind != "block":
            raise self.error(at, f"{what} belongs directly into a block, with T.block(...):")
        return self.blocks[-1]

    # --- the kernel as a whole

    def parameter(self, name: str, given: Buffer | Var) -> None:
        """Append a parameter: a variable, or a buffer behind a handle called `name`."""
        if isinstance(given, Var):
            self.params[given] = None
            self.named.add(given)
            return
        handle = Var(name, "handle")
        self.params[handle] = None
        self.buffer_map[handle] = given
        self.pointers.add(given.data)

    def finished(
        self, body: Body, symbol: str | None, *, private_as: str | None, at: Any
    ) -> PrimFunc:
        """The kernel around `body`, with a root block where one is needed.

        `symbol` is what it is called from outside, `private_as` what one is called that has none.
        """
        lone = body.items[0] if len(body.items) == 1 else None
        bare = isinstance(lone, stmt.BlockRealize) and not lone.block.iter_vars
        if not bare:
            body.items = [
                self.declared(i) if isinstance(i, stmt.Stmt) and i in self.undeclared else i
                for i in body.items
            ]
        whole = body.fold()
        span = self.span(at)
        if self.root.allocations or (self.has_block and not bare):
            allocations = tuple(self.root.allocations)
            root = stmt.Block((), (), (), "root", whole, None, allocations, span=span)
            whole = stmt.BlockRealize((), ops.const(True, "bool"), root, span)
        if symbol is not None:
            self.attrs.setdefault("global_symbol", symbol)
        if private_as is not None and "global_symbol" in self.attrs:
            named = f" {private_as!r}" if private_as else ""
            raise self.error(at, f"private kernel{named} has a global_symbol")
        return PrimFunc(
            tuple(self.params),
            whole,
            self.ret_type,
            self.buffer_map,
            Attrs(self.attrs),
            span=span,
        )

    def is_doubtful(self) -> bool:
        """Whether there are variables that neither a statement nor a parameter surely defines."""
        bound = {v for b in self.buffer_map.values() for v in (*b.shape, *b.strides, b.elem_offset)}
        return not bound.issuperset(self.given_vars)

    def new_var(self, name: str, dtype: str | PointerType) -> Var:
        """A variable that the program defines."""
        var = Var(name, dtype)
        self.named.add(var)
        return var

    # --- what holds statements

    @contextmanager
    def loop(self, form: records.LoopForm, names: Sequence[str], at: Any) -> Iterator[list[Var]]:
        """The loops of `form`, one inside the other, over variables called so."""
        variables = []
        for name, (first, extent) in zip(names, form.bounds, strict=True):
            variables.append(self.new_var(name, first.dtype))
            self.loops[variables[-1]] = Range.from_min_extent(first, extent)
        with self.body("loop") as body:
            yield variables
        whole, span = body.fold(), self.span(at)
        for var, (first, extent) in zip(reversed(variables), reversed(form.bounds), strict=True):
            binding = None
            if form.thread is not None:
                index = Var("", var.dtype)
                binding = IterVar(None, index, IterVarKind.ThreadIndex, form.thread)
            whole = stmt.For(
                var, first, extent, form.kind, whole, binding, Attrs(form.annotations), span
            )
        self.add(whole)

    @contextmanager
    def while_loop(self, condition: PrimExpr, at: Any) -> Iterator[None]:
        """A loop with a condition."""
        with self.body("loop") as body:
            yield
        self.add(stmt.While(condition, body.fold(), self.span(at)))

    @contextmanager
    def branches(self, condition: PrimExpr, at: Any) -> Iterator[None]:
        """What holds the branches, and nothing else."""
        with self.body("cases") as body:
            yield
        cases = body.cases
        if True not in cases:
            raise self.error(at, "with T.If holds with T.Then():")
        self.add(stmt.IfThenElse(condition, cases[True], cases.get(False), self.span(at)))

    @contextmanager
    def branch(self, form: records.BranchForm, at: Any) -> Iterator[None]:
        """One of the branches."""
        around = self.bodies[-1]
        word = "Then" if form.taken else "Else"
        if around.kind != "cases":
            raise self.error(at, f"with T.{word} stands directly in with T.If(condition):")
        if form.taken in around.cases:
            raise self.error(at, f"with T.If holds with T.{word}() twice")
        with self.body() as body:
            yield
        around.cases[form.taken] = body.fold()

    @contextmanager
    def init(self, at: Any) -> Iterator[None]:
        """What the block around does first."""
        block = self.block_at(at, "T.init")
        if block.init is not None:
            raise self.error(at, "T.init is given twice for this block")
        with self.body() as body:
            yield
        block.init = body.fold()

    @contextmanager
    def block(self, form: records.BlockForm, at: Any) -> Iterator[None]:
        """A block."""
        top = self.bodies[-1].kind == "function"
        said = Block(form)
        self.blocks.append(said)
        try:
            with self.body("block") as body:
                yield
        finally:
            self.blocks.pop()
        self.has_block = True
        # Where it says what its variables stand for, and when it runs, they mean nothing yet.
        own = {axis.var for axis in said.iter_vars}
        before = [*said.iter_values, *([] if said.predicate is None else [said.predicate])]
        self.given_vars += [n for v in before for n in walk(v) if isinstance(n, Var) and n in own]
        span = self.span(at)
        whole = stmt.Block(
            tuple(said.iter_vars),
            said.regions.get("reads", ()),
            said.regions.get("writes", ()),
            form.name,
            body.fold(),
            said.init,
            tuple(said.allocations),
            tuple(said.matches),
            Attrs(said.attrs),
            span,
        )
        # Alone at the top of a kernel, a block without variables is its root and declares nothing.
        maybe_root = top and not said.iter_vars and not form.no_realize
        if not maybe_root:
            whole = self.made(at, self.inferred, whole, said)
        if form.no_realize:
            self.add(whole)
            return
        predicate = ops.const(True, "bool") if said.predicate is None else said.predicate
        realize = stmt.BlockRealize(tuple(said.iter_values), predicate, whole, span)
        if maybe_root:
            self.undeclared[realize] = said
        self.add(realize)

    def inferred(self, block: stmt.Block, said: Block) -> stmt.Block:
        """`block` with the regions that the text does not give."""
        if len(said.regions) == 2:
            return block
        reads, writes = access_regions(block, self.pointers)
        return replace(
            block,
            reads=said.regions.get("reads", reads),
            writes=said.regions.get("writes", writes),
        )

    def declared(self, realize: stmt.Stmt) -> stmt.Stmt:
        """`realize` with the regions of its block."""
        assert isinstance(realize, stmt.BlockRealize)
        block = self.inferred(realize.block, self.undeclared[realize])
        return replace(realize, block=block)
