"""A checker of schedules: replays the trees of a plan and compares it with the text, by element.

Every store of the plan is matched with one of the text, and must read values of the same writers.
In the end each element of an argument must have the same last writer. Buffers share memory as the
plan states. A run that executes many iterations at once reads all operands before it writes, and
may use its target as scratch memory if it does not read it. Where the plan does without a buffer,
what reads it reads what its elements were computed from.
It shares no code with the analysis of dependences, nor with the scheduler.
"""

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from relaxpy.exec.loops.nest.nodes import (
    Axis,
    Bind,
    Branch,
    Check,
    Item,
    Jump,
    Loop,
    Store,
    WhileLoop,
)
from relaxpy.exec.loops.plan.blocking import in_tiles
from relaxpy.exec.loops.plan.planner import make_plan
from relaxpy.exec.loops.plan.statements import Assignment, Compound, Statement
from relaxpy.exec.loops.plan.tree import For, Plan, Run, Scan, Tile, Tree
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.prim_func import PrimFunc
from tests.exec.loops.schedule_text import (
    Bound,
    Cell,
    Env,
    Read,
    Stored,
    TextRun,
    Token,
    UnsupportedError,
    accumulated,
    accumulation,
    compact,
    evaluate,
    position_of,
    sizes_of,
    wrapped,
)

Memory: TypeAlias = tuple[object, int]
"""An element in the plan: the owner of the memory, and the position in it."""
SCRATCH = "an intermediate result"
COMBINED: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "add": ("+", operator.add),
    "mul": ("*", operator.mul),
    "min": ("min", min),
    "max": ("max", max),
}
"""What the text calls the accumulations of plans, and what they do."""


class OrderError(Exception):
    """The plan violates a dependence."""


class _JumpError(Exception):
    """A jump out of a loop, or out of an iteration."""


def first_fault(
    func: PrimFunc, args: tuple[Any, ...], plan: Plan | None = None, text: TextRun | None = None
) -> str | None:
    """A description of the first dependence of `func` that its plan violates, or None.

    `text` is the run of the program in the order of its text, if that was made already.

    Errors:
        UnsupportedError: the program contains a construct that cannot be replayed.
    """
    text = TextRun(func, args) if text is None else text
    try:
        PlanRun(in_tiles(make_plan(func, "kernel")) if plan is None else plan, text).whole()
    except OrderError as error:
        return str(error)
    return None


@dataclass(eq=False)
class Ready:
    """A store whose operands have been read."""

    stored: Stored
    memory: Memory
    value: Callable[[Any], Any]
    """The new value of the element, from its value when it is written."""


@dataclass
class PlanRun:
    """The replay of a plan."""

    plan: Plan
    text: TextRun
    values: dict[Memory, Any] = field(default_factory=dict)
    tokens: dict[Memory, Token] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.env: Env = sizes_of(self.text.func, self.text.args)
        self.blocks: dict[Buffer, int] = {}
        """The number of the block in which a buffer lives that only does so in blocks."""
        self.serial: list[Var] = []
        self.named: dict[str, int] = {}
        self.equal: defaultdict[object, list[Stored]] = defaultdict(list)
        self.by_cell: defaultdict[Cell, list[Stored]] = defaultdict(list)
        self.done: set[int] = set()
        self.repeats: dict[int, Token] = {}
        """The first of the stores of one value from the same operands: all count as it.

        A copy of an element to the same memory counts as the writer of that.
        """
        first: dict[object, int] = {}
        for stored in self.text.stores:
            if (copied := self.copied(stored)) is not None:
                self.repeats[stored.number] = self.once(copied)
                continue
            operands = ((c, frozenset(map(self.once, ts))) for c, ts in stored.reads.items())
            before = stored.kind and self.once(stored.before)
            key = stored.position, stored.cell, stored.value, before, frozenset(operands)
            self.repeats[stored.number] = first.setdefault(key, stored.number)
        for stored in self._forwarded():
            self.equal[stored.position, stored.cell, stored.sources].append(stored)
            self.by_cell[stored.cell].append(stored)
        self.arguments = {b.name: b for b in self.text.func.buffer_map.values()}
        for name, buffer in self.arguments.items():
            for (cell, _), value in self.text.initial.items():
                if cell[0] == name:
                    self.values[self.owner(buffer), cell[1]] = value

    def copied(self, stored: Stored) -> Token:
        """The writer of the element that a store copies to the same memory, as the plan has it."""
        match [*stored.reads.items()]:
            case [((name, where), tokens)] if stored.kind is None and len(tokens) == 1:
                shared = {buffer.name: owner.name for buffer, owner in self.plan.shared.items()}
                is_same = where == stored.cell[1] and shared.get(name) == stored.cell[0]
                [token] = tokens
                return token if is_same and self.value_of(token) == stored.value else None
            case _:
                return None

    def value_of(self, token: Token) -> Any:
        """The value that a writer has left."""
        match token:
            case int():
                return self.text.stores[token].value
            case (str(), _, frozenset() as numbers):
                return self.text.stores[max(numbers)].value
            case _:
                return None

    def _forwarded(self) -> Iterator[Stored]:
        """The stores of the text, without those to buffers that the plan does without."""
        absent = {buffer.name for buffer in self.plan.forwarded}
        made: dict[int, Stored] = {}
        for stored in self.text.stores:
            reads: dict[Cell, set[Token]] = {}
            sources: set[Cell] = set()
            for cell, tokens in stored.reads.items():
                if cell[0] not in absent:
                    reads.setdefault(cell, set()).update(tokens)
                    sources |= {cell} & stored.sources
                    continue
                for token in tokens:
                    if not isinstance(token, int):
                        raise OrderError(f"{stored} reads {cell[0]}[{cell[1]}] before it is stored")
                    if cell in stored.sources:  # and not in a condition
                        sources |= made[token].sources
                    for other, writers in made[token].reads.items():
                        reads.setdefault(other, set()).update(writers)
            stored = replace(stored, reads=reads, sources=frozenset(sources))
            if stored.cell[0] in absent:
                made[stored.number] = stored
                self.done.add(stored.number)
            else:
                yield stored

    def whole(self) -> None:
        """Replay the trees.

        Errors:
            OrderError: they violate a dependence.
        """
        self.trees(self.plan.trees)
        self.complete()

    def complete(self) -> None:
        """Compare what the trees have left with what the text leaves.

        A store on which no argument depends need not be executed.
        """
        done = set().union(*(self.numbers_of(self.once(number)) for number in self.done))
        for number in sorted(self.needed()):
            if not self.numbers_of(self.once(number)) <= done:
                raise OrderError(f"{self.text.stores[number]} is never executed")
        for cell, token in self.text.results():
            found = self.tokens.get((self.owner(self.arguments[cell[0]]), cell[1]))
            if self.once(found) != self.once(token):
                actual, expected = self.described(found), self.described(token)
                raise OrderError(f"{cell[0]}[{cell[1]}] is left by {actual}, not by {expected}")

    def numbers_of(self, token: Token) -> set[int]:
        """The numbers of the stores that a writer consists of."""
        match token:
            case int():
                return {token}
            case (str(), base, frozenset() as numbers):
                return self.numbers_of(base) | numbers
            case _:
                return set()

    def needed(self) -> set[int]:
        """The numbers of the stores on which the arguments depend in the end."""
        found: set[int] = set()
        left = [token for _, token in self.text.results()]
        while left:
            match left.pop():
                case int(number) if number not in found:
                    found.add(number)
                    left += [
                        t for tokens in self.text.stores[number].reads.values() for t in tokens
                    ]
                case (str(), base, frozenset() as numbers):
                    left += [base, *numbers]
                case _:
                    pass
        return found

    def once(self, token: Token) -> Token:
        """The writer, which is the first of those that store one value from the same operands."""
        match token:
            case int():
                return self.repeats.get(token, token)
            case (str() as kind, base, frozenset() as numbers):
                return kind, self.once(base), frozenset(map(self.once, numbers))
            case _:
                return token

    def described(self, token: Token) -> str:
        match token:
            case None:
                return "its initial value"
            case int():
                return str(self.text.stores[token])
            case (str() as kind, base, frozenset() as numbers):
                added = "; ".join(str(self.text.stores[n]) for n in sorted(numbers))
                return f"{self.described(base)}, then {kind} of {added}"
            case _:
                return str(token)

    # -- memory

    def owner(self, buffer: Buffer) -> object:
        """The owner of the memory of `buffer`."""
        buffer = self.plan.views.get(buffer, buffer)
        while buffer in self.plan.shared:
            buffer = self.plan.shared[buffer]
        return (buffer, self.blocks[buffer]) if buffer in self.blocks else buffer

    def believed(self, buffer: Buffer) -> Buffer:
        """The owner of the memory of `buffer` as an emitter sees it."""
        buffer = self.plan.views.get(buffer, buffer)
        return self.plan.shared.get(buffer, buffer)

    def locate(self, buffer: Buffer, indices: tuple[int, ...]) -> tuple[Cell, Memory]:
        """The element in the text, and in the plan."""
        shape = tuple(self.index(d) if _is_known(d, self.env) else 1 for d in buffer.shape)
        strides = tuple(map(self.index, buffer.strides)) or compact(shape)
        offset = self.index(buffer.elem_offset) + sum(map(int.__mul__, indices, strides))
        root = self.plan.views.get(buffer, buffer)
        name, where = root.name, offset
        if root is buffer:
            own = self.text.shapes.get(name)
            if own is None:
                raise UnsupportedError(f"the buffer {name}, which the text does not have")
            where = offset % max(1, math.prod(own))  # without the dimensions of loops
        return (name, where), (self.owner(buffer), offset)

    def index(self, expr: PrimExpr) -> int:
        value = evaluate(expr, self.env, _no_load)
        assert isinstance(value, int)
        return value

    # -- one store

    def operands(self, store: Assignment | Store, target: Buffer) -> Ready:
        """Read the operands of a store in this iteration, and compare them with the text."""
        own = BufferLoad(target, store.indices)
        combine = store.combine if isinstance(store, Assignment) else None
        if combine is not None and combine not in COMBINED:
            raise UnsupportedError(f"an accumulation by {combine}")
        kind = COMBINED[combine][0] if combine else accumulated(store.value, own)
        found: dict[Cell, Token] = {}
        read = self.reader(found, None if kind is None else own)
        indices = tuple(evaluate(i, self.env, read) for i in store.indices)
        operands: list[Any] = []

        def noted(load: BufferLoad | Bound, env: Env) -> Any:
            value = read(load, env)
            if load is not own:
                operands.append(value)
            return value

        value = evaluate(store.value, self.env, noted)
        cell, memory = self.locate(target, indices)
        sources = frozenset(found) - {cell}
        iteration = self.iteration(target, memory[1])
        stored = self.match(position_of(store), cell, sources, *iteration)
        if stored.kind is not None and cell not in stored.reads:
            found.pop(cell, None)
        self.compare(stored, found)
        if kind is None:
            return Ready(stored, memory, lambda _: wrapped(value, target.dtype))
        if combine is not None:
            function = COMBINED[combine][1]
            return Ready(stored, memory, lambda old: wrapped(function(old, value), target.dtype))
        env = dict(self.env)

        def combined(current: Any) -> Any:
            left = iter(operands)
            again: Read = lambda load, _: current if load is own else next(left)  # noqa: E731
            return wrapped(evaluate(store.value, env, again), target.dtype)

        return Ready(stored, memory, combined)

    def match(
        self, position: str, cell: Cell, sources: frozenset[Cell], iteration: int, iterations: int
    ) -> Stored:
        """The store of the text that is executed now, one of those that read the same elements.

        That of this iteration, by the element in a buffer with one for each, or the names of loops.
        """
        equal = self.equal[position, cell, sources]
        left = [s for s in equal if s.number not in self.done]
        if not left:
            reads = ", ".join(f"{name}[{where}]" for name, where in sorted(sources))
            raise OrderError(
                f"the store in {position} to {cell[0]}[{cell[1]}] from {reads or 'nothing'} "
                "is not in the text, or not so often"
            )
        here = (s for s in left if all(self.named.get(v.name) == n for v, n in s.loops.items()))
        stored = next(here, left[0])
        if len(equal) == iterations:
            stored = equal[iteration] if equal[iteration] in left else stored
        self.done.add(stored.number)
        return stored

    def iteration(self, target: Buffer, place: int) -> tuple[int, int]:
        """For which iteration a buffer has the element at a place, and for how many it has one."""
        own = max(1, math.prod(self.text.shapes[self.plan.views.get(target, target).name]))
        return place // own, math.prod(map(self.index, target.shape)) // own

    def compare(self, stored: Stored, found: dict[Cell, Token]) -> None:
        for cell, token in found.items():
            expected = stored.reads.get(cell, {None})
            if self.once(token) not in set(map(self.once, expected)):
                wanted = " or ".join(map(self.described, expected))
                raise OrderError(
                    f"{stored} reads {cell[0]}[{cell[1]}] as left by {self.described(token)}, "
                    f"not by {wanted}"
                )

    def reader(self, found: dict[Cell, Token], skipped: BufferLoad | None = None) -> Read:
        def read(load: BufferLoad | Bound, env: Env) -> Any:
            if isinstance(load, Bound):
                found.update((cell, token) for cell, [token] in load.reads.items())
                return load.value
            indices = tuple(evaluate(i, env, read) for i in load.indices)
            cell, memory = self.locate(load.buffer, indices)
            if load is not skipped:
                found[cell] = self.tokens.get(memory)
            return self.values.get(memory, 0)

        return read

    def write(self, ready: Ready) -> None:
        number, memory = ready.stored.number, ready.memory
        if ready.stored.kind is None:
            self.tokens[memory] = number
        else:
            before = self.tokens.get(memory)
            self.tokens[memory] = accumulation(ready.stored.kind, before, number)
        self.values[memory] = ready.value(self.values.get(memory, 0))

    # -- iterations

    def iterate(self, var: Var, value: int) -> None:
        self.env[var] = self.named[var.name] = value

    def iterations(self, axes: Sequence[Axis]) -> Iterator[None]:
        if not axes:
            yield
            return
        first, *rest = axes
        for n in range(self.index(first.start), self.index(first.stop)):
            self.iterate(first.var, n)
            yield from self.iterations(rest)

    def is_in_domain(self, statement: Statement, axes: Sequence[Axis]) -> bool:
        """Whether this iteration of the enclosing loops is in the domain of the statement."""
        free = {a.var for a in axes}
        outer = {var: self.env[var] for var in self.serial}
        self.named = {var.name: value for var, value in outer.items()}
        for axis in statement.axes:
            start, stop = self.bound(axis.start), self.bound(axis.stop)
            if axis.var in self.serial:
                if not start <= self.env[axis.var] < stop:
                    return False
            elif axis.var not in free:
                if start >= stop:
                    return False
                self.iterate(axis.var, start)
            else:
                self.iterate(axis.var, start)
        return True

    def bound(self, expr: PrimExpr) -> int:
        value = evaluate(expr, self.env, self.reader({}))
        assert isinstance(value, int)
        return value

    def holds(self, guards: Iterable[PrimExpr]) -> bool:
        return all(evaluate(g, self.env, self.reader({})) for g in guards)

    # -- trees

    def trees(self, trees: Iterable[Tree]) -> None:
        for tree in trees:
            self.tree(tree)

    def tree(self, tree: Tree) -> None:
        match tree:
            case For(axis=axis, body=body):
                self.serial.append(axis.var)
                for n in range(self.bound(axis.start), self.bound(axis.stop)):
                    self.iterate(axis.var, n)
                    self.trees(body)
                self.serial.pop()
            case Tile(axis=axis, low=low, high=high, body=body, local=local):
                for n in reversed(range(self.index(axis.start), self.index(axis.stop))):
                    self.env[low], self.env[high] = n, n + 1
                    self.blocks |= dict.fromkeys(local, n)
                    self.trees(body)
            case Run(statement=statement) if self.is_in_domain(statement, tree.loops):
                self.run(tree, statement)

    def run(self, run: Run, statement: Statement) -> None:
        match statement:
            case Compound(items=items):
                self.extremes(run.axes, statement)
                for _ in self.iterations(run.loops):
                    self.items(items)
            case Assignment() if run.over:
                self.reduce(run, statement)
            case Assignment() if run.ordered and isinstance(run.idiom, Scan):
                for _ in self.iterations(run.loops):
                    self.write(self.operands(statement, statement.target))
            case Assignment() if run.ordered:
                for ready in self.at_once(statement, run.ordered):
                    self.write(ready)
            case Assignment():
                self.map(statement, run.axes)

    def at_once(self, statement: Assignment, axes: Sequence[Axis]) -> list[Ready]:
        """The stores of many iterations, whose operands are all read first."""
        return [
            self.operands(statement, statement.target)
            for _ in self.iterations(axes)
            if self.holds(statement.guards)
        ]

    def map(self, statement: Assignment, axes: Sequence[Axis]) -> None:
        before = dict(self.tokens)
        reads = {self.believed(r.buffer) for r in statement.reads}
        if not statement.guards and self.believed(statement.target) not in reads:
            for _ in self.iterations(axes):
                indices = tuple(evaluate(i, self.env, self.reader({})) for i in statement.indices)
                self.tokens[self.locate(statement.target, indices)[1]] = SCRATCH
        ready = self.at_once(statement, axes)
        self.tokens = before
        if len({r.memory for r in ready}) != len(ready) and any(r.stored.kind for r in ready):
            raise OrderError(f"{ready[0].stored} and others meet in one step")
        for one in ready:
            self.write(one)

    def reduce(self, run: Run, statement: Assignment) -> None:
        ready = self.at_once(statement, run.loops)
        if statement.initial is not None:
            for _ in self.iterations(run.axes):
                self.begin(statement, statement.initial, ready)
        for one in ready:
            self.write(one)

    def begin(self, statement: Assignment, initial: PrimExpr, ready: Sequence[Ready]) -> None:
        """Store the initial value of the accumulation of `ready` into one element."""
        found: dict[Cell, Token] = {}
        value = evaluate(initial, self.env, self.reader(found))
        indices = tuple(map(self.index, statement.indices))
        cell, memory = self.locate(statement.target, indices)
        earliest = next((r.stored for r in ready if r.memory == memory), None)
        stored = self.initial(cell, earliest)
        self.compare(stored, found)
        self.write(Ready(stored, memory, lambda _: wrapped(value, statement.target.dtype)))

    def initial(self, cell: Cell, first: Stored | None) -> Stored:
        """The store of the initial value of the accumulation that contains `first`."""
        base = None if first is None else first.before
        while isinstance(base, tuple):
            base = base[1]
        for stored in self.by_cell[cell]:
            if stored.number not in self.done and (first is None or stored.number == base):
                self.done.add(stored.number)
                return stored
        raise OrderError(f"the initial value of {cell[0]}[{cell[1]}] is not in the text")

    def extremes(self, axes: Sequence[Axis], statement: Compound) -> None:
        """Check that the iterations of `axes` store to different elements."""
        targets: set[Memory] = set()
        for _ in self.iterations(axes):
            for write in statement.writes if axes else ():
                memory = self.locate(write.buffer, tuple(map(self.index, write.indices)))[1]
                if memory in targets:
                    raise OrderError(f"{write.buffer.name}[{memory[1]}] is stored twice at once")
                targets.add(memory)

    # -- groups

    def items(self, items: Iterable[Item]) -> None:
        for item in items:
            match item:
                case Loop(axis=axis, body=body):
                    for n in range(self.bound(axis.start), self.bound(axis.stop)):
                        self.iterate(axis.var, n)
                        if self.jumps(lambda body=body: self.items(body)) == "break":
                            break
                case Branch(condition=condition, body=body, orelse=orelse):
                    self.items(body if self.holds((condition,)) else orelse)
                case WhileLoop(condition=condition, body=body):
                    while self.holds((condition,)):
                        if self.jumps(lambda body=body: self.items(body)) == "break":
                            break
                case Store(buffer=buffer):
                    self.write(self.operands(item, buffer))
                case Bind(var=var, value=value):
                    found: dict[Cell, Token] = {}
                    bound = evaluate(value, self.env, self.reader(found))
                    self.env[var] = Bound(bound, {cell: {token} for cell, token in found.items()})
                case Check():
                    pass
                case Jump(kind=kind):
                    raise _JumpError(kind)
                case _:
                    raise UnsupportedError(type(item).__name__)

    def jumps(self, body: Callable[[], None]) -> str:
        try:
            body()
        except _JumpError as jumped:
            return str(jumped)
        return ""


def _is_known(expr: PrimExpr, env: Env) -> bool:
    return isinstance(expr, IntImm) or not isinstance(expr, Var) or expr in env


def _no_load(load: BufferLoad | Bound, env: Env) -> Any:
    raise UnsupportedError(f"{load} in a layout")
