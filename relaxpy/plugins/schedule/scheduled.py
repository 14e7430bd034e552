"""The kernels that a schedule transforms, the names of their blocks and loops, and the record."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from random import Random
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from relaxpy.errors import (
    MisuseError,
    ScheduleError,
    check_type,
    close_names,
    unexpected,
    unknown_attribute,
)
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.rewrite.stages import Stage, listed_stages
from relaxpy.ir.tir.rewrite.state import State, refused
from relaxpy.ir.tir.stmt import Block, For
from relaxpy.ir.tir.substitution import substitute
from relaxpy.plugins.schedule import trace
from relaxpy.plugins.schedule.trace import BlockRV, LoopRV
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.ir.relax.nodes.expr import GlobalVar


def block_named(state: State, name: str) -> Block:
    """The block with a name. Errors: ScheduleError if there is none, or several."""
    found = [block for block in state.blocks() if block.name_hint == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise refused(f"there are {len(found)} blocks with the name {name!r:.40}", found[1]).hinted(
            "names of different blocks differ; get_child_blocks reaches these, too"
        )
    known = [block.name_hint for block in state.blocks()]
    hint = close_names(str(name), known) or f"there are {', '.join(known)}"
    raise refused(f"there is no block {name!r:.40}").hinted(hint)


def _with_others(state: State, block: Block) -> tuple[Stage, list[Stage]]:
    stages = listed_stages(state, state.scope(block))
    own = next(stage for stage in stages if stage.block is block)
    return own, [stage for stage in stages if stage is not own]


def producers(state: State, block: Block) -> list[Block]:
    """The other blocks of the scope that write what `block` reads."""
    own, others = _with_others(state, block)
    return [other.block for other in others if _shared(other.writes, own.reads)]


def consumers(state: State, block: Block) -> list[Block]:
    """The other blocks of the scope that read what `block` writes."""
    own, others = _with_others(state, block)
    return [other.block for other in others if _shared(own.writes, other.reads)]


def _shared(a: object, b: object) -> bool:
    return not frozenset(a).isdisjoint(b)  # type: ignore[call-overload]


def outputs(state: State, scope: Block) -> list[Block]:
    """The blocks of a scope that write a buffer which is not allocated in it."""
    return [
        stage.block
        for stage in listed_stages(state, scope)
        if any(buffer not in scope.alloc_buffers for buffer in stage.writes)
    ]


P = ParamSpec("P")
R = TypeVar("R")
RV = TypeVar("RV", BlockRV, LoopRV)
S = TypeVar("S", bound="ScheduledKernels")
_Item: TypeAlias = Block | Var | IntEnum


def primitive(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorate a primitive: it is recorded, names itself in errors, and fails without a trace."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def apply(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._maps.clear()
        self._decided = None
        bound: inspect.BoundArguments | None = None
        try:
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
        except TypeError:
            pass  # the call of `method` says what is wrong
        before, self._step = self._step, None
        key = None if bound is None or kind.decides else self._key(kind.name, bound.arguments)
        if before is not None and key in before.later:
            self._step = before.later[key]
            result = cast("R", self._repeat(self._step))
        else:
            try:
                result = changed(self, args, kwargs)
            except BaseException:
                self._step = before
                raise
            if before is not None and key is not None:
                self._step = self._done(result, before.known)
            if before is not None and self._step is not None:
                before.later[key] = self._step
        assert bound is not None
        arguments = {
            k: self._maps.get(v, v) if isinstance(v, IndexMap) or callable(v) else v
            for k, v in bound.arguments.items()
        }
        if "func_name" in arguments and arguments["func_name"] is None:
            arguments["func_name"] = self._working_on
        outputs = result if isinstance(result, list) else () if result is None else (result,)
        inst = trace.Instruction(kind, *kind.packed(arguments), tuple(outputs))  # type: ignore[arg-type]
        self.trace.append(inst, self._decided)
        return result

    def changed(self: S, args: Any, kwargs: Any) -> R:
        saved = {name: state.copy() for name, state in self._states.items()}
        try:
            result = method(self, *self._known(args), **self._known(kwargs))
            for name, state in self._states.items():
                if name in saved and state.func is not saved[name].func:
                    state.check()
        except ScheduleError as error:
            self._states |= saved
            first = error.diagnostic
            raise ScheduleError(
                f"{kind.method_name}: {first.message}", span=first.span, hint=first.hint
            ) from None
        except MisuseError:
            self._states |= saved
            raise
        return result

    entry = user_facing(apply)
    kind = trace.InstructionKind(entry)
    trace.KINDS[kind.name] = kind
    return entry


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """The result of a primitive on a lone kernel, and the values of the names that it returned.

    Models define a kernel for each of their layers, and schedule all in the same way: the steps of
    the first one are reused for the others.
    """

    func: PrimFunc
    renewed: Mapping[Block, Block]
    items: list[_Item] | _Item | None
    known: list[_Step]
    later: dict[object, _Step]


_MOST_STEPS = 256


@functools.lru_cache(maxsize=16)
def _steps(text: str) -> list[_Step]:
    """The steps of schedules of kernels with this text, at least one once it was requested."""
    return []


@dataclass(frozen=True, slots=True, eq=False)
class StmtSRef:
    """A block or loop, and the kernel that it is part of."""

    stmt: Block | For
    _kernel: State

    @property
    def parent(self) -> StmtSRef | None:
        """The block or loop around it, or None."""
        for above in self._kernel.ancestors(self.stmt):
            if isinstance(above, (Block, For)):
                return StmtSRef(above, self._kernel)
        return None

    def same_as(self, other: object) -> bool:
        """True if both refer to one statement of one schedule."""
        return (
            isinstance(other, StmtSRef)
            and self.stmt is other.stmt
            and self._kernel is other._kernel
        )


class UnknownRVError(MisuseError, IndexError):
    """A name of a block or loop that the schedule does not know."""


class ScheduledKernels:
    """The current kernels, and the blocks and loops that names stand for."""

    @user_facing
    def __init__(
        self,
        mod: PrimFunc | IRModule,
        *,
        seed: int | None = None,
        debug_mask: str | int = "none",
        error_render_level: Literal["detail", "fast", "none"] = "detail",
        enable_check: bool = True,
    ) -> None:
        """A lone kernel becomes the function `main`; `seed` is that of random draws.

        The other options change nothing here.

        Errors:
            MisuseError (also TypeError): `mod` is neither a kernel nor a module.
        """
        self._step: _Step | None = None
        if isinstance(mod, PrimFunc):
            named = "global_symbol" in mod.attrs
            func = mod.with_attr("global_symbol", "main") if named else mod
            text = f"{func.span} {func.script()}"  # errors have the position
            if "metadata[" not in text:  # which stands for what a text leaves out
                steps = _steps(text)
                if not steps:
                    steps.append(_Step(func, {}, None, steps, {}))
                self._step = steps[0]
                func = self._step.func
            mod = IRModule({"main": func})
        check_type(mod, IRModule, "expected a PrimFunc or a module")
        self._module = mod
        self._states: dict[str, State] = {}
        self._items: dict[BlockRV | LoopRV, tuple[str, _Item]] = {}
        self._numbers: dict[Var, PrimExpr] = {}
        self._random = Random(seed)
        self._decided: object = None
        self._maps: dict[object, IndexMap] = {}
        self._separators: list[int] = []
        self.trace = trace.Trace()
        kernels = [v.name_hint for v, f in mod.functions.items() if isinstance(f, PrimFunc)]
        self._working_on: str | None = (
            "main" if "main" in kernels else kernels[0] if len(kernels) == 1 else None
        )

    if not TYPE_CHECKING:  # it would make a type checker accept every name

        @user_facing
        def __getattr__(self, name):
            """Errors: UnknownAttributeError (also AttributeError), with what to use instead."""
            raise unknown_attribute(self, name, "sch", ())

    # --- what is scheduled

    @property
    def mod(self) -> IRModule:
        """The module with the current kernels."""
        table = self._module.functions_by_name
        changed = {
            name: state.func
            for name, state in self._states.items()
            if state.func is not table[name]
        }
        if changed:
            self._module = self._module.clone()
            for name, func in changed.items():
                self._module[name] = func
        return self._module

    @property
    def func_working_on(self) -> GlobalVar | None:
        """The kernel in which blocks without a function name are looked up."""
        return None if self._working_on is None else self.mod.get_global_var(self._working_on)

    @user_facing
    def work_on(self, func_name: str) -> None:
        """Look up blocks without a function name in the kernel `func_name` from now on."""
        self._state(func_name)
        self._working_on = func_name

    def copy(self) -> Self:
        """A schedule of the same kernels for which the names of this one are valid, too."""
        other = type(self)(self.mod, seed=self.fork_seed())
        other._working_on = self._working_on
        for name, state in self._states.items():
            other._states[name] = state.copy()
        other._items = dict(self._items)
        other._numbers = dict(self._numbers)
        other.trace = trace.Trace(self.trace.insts, self.trace.decisions)
        return other

    def show(self, *args: Any, **kwargs: Any) -> None:
        """Print the kernels and the trace."""
        self.mod.show(*args, **kwargs)
        self.trace.show()

    @overload
    def get(self, rand_var_or_sref: BlockRV) -> Block: ...
    @overload
    def get(self, rand_var_or_sref: LoopRV) -> For: ...
    @overload
    def get(self, rand_var_or_sref: PrimExpr) -> int | PrimExpr: ...
    @user_facing
    def get(self, rand_var_or_sref: BlockRV | LoopRV | PrimExpr) -> Block | For | int | PrimExpr:
        """The current block or loop of a name, or a number that was drawn.

        Errors:
            ScheduleError: it is gone.
        """
        if isinstance(rand_var_or_sref, PrimExpr):
            if isinstance(rand_var_or_sref, Var) and rand_var_or_sref not in self._numbers:
                raise UnknownRVError("the schedule did not draw this number")
            value = Analyzer().simplify(self._known(rand_var_or_sref))
            return value.value if isinstance(value, IntImm) else value
        if isinstance(rand_var_or_sref, BlockRV):
            return self._block(rand_var_or_sref)[1]
        return self._loop(rand_var_or_sref)[1]

    @user_facing
    def get_sref(self, rand_var_or_stmt: BlockRV | LoopRV | Block | For) -> StmtSRef:
        """The statement of a name, or a statement of the kernels, and where it is now.

        Errors:
            ScheduleError: it is gone. MisuseError (also TypeError): it is of another type.
        """
        if isinstance(rand_var_or_stmt, (BlockRV, LoopRV)):
            state, node = self._either(rand_var_or_stmt)
            return StmtSRef(node, state)
        if not isinstance(rand_var_or_stmt, (Block, For)):
            raise unexpected(
                rand_var_or_stmt,
                "get_sref takes a block, a loop or its name",
                hint="a block is found by sch.get_block(name), its loops by sch.get_loops(block)",
            )
        for var, func in self.mod.functions.items():
            if isinstance(func, PrimFunc):
                kernel = self._state(var.name_hint)
                if kernel.is_here(rand_var_or_stmt):
                    return StmtSRef(rand_var_or_stmt, kernel)
        raise refused("the statement is not in the kernels", rand_var_or_stmt)

    @property
    def state(self) -> Self:
        """This schedule, which has the module and `get_sref` of TVM's ScheduleState."""
        return self

    @user_facing
    def seed(self, seed: int) -> None:
        """Replace the random generator."""
        self._random = Random(seed)

    def fork_seed(self) -> int:
        """A seed, drawn at random, for another schedule."""
        return self._random.getrandbits(31)

    @user_facing
    def remove_rv(self, rand_var: BlockRV | LoopRV) -> None:
        """Forget a name of a block or loop."""
        self._item(rand_var, type(rand_var))
        del self._items[rand_var]

    # --- steps that other schedules have made

    def _key(self, kind: str, arguments: Mapping[str, Any]) -> object:
        """The key that decides the effect of a primitive on the kernel of a step, or None."""

        def plain(value: Any) -> object:
            match value:
                case BlockRV() | LoopRV():
                    return self._items[value]
                case None | bool() | int() | float() | str():
                    return type(value), value
                case tuple() | list():
                    return tuple(map(plain, value))
                case _:
                    raise KeyError

        try:
            return kind, tuple(plain(v) for name, v in arguments.items() if name != "self")
        except KeyError:
            return None

    def _done(self, result: Any, known: list[_Step]) -> _Step | None:
        """The step that a primitive with this result has made, if there is room for it."""
        if len(known) == _MOST_STEPS:
            return None
        state = self._state("main")
        items: list[_Item] | _Item | None = None
        if isinstance(result, list):
            items = [self._items[rv][1] for rv in result]
        elif result is not None:
            items = self._items[result][1]
        known.append(_Step(state.func, state.renewed, items, known, {}))
        return known[-1]

    def _repeat(self, step: _Step) -> list[BlockRV | LoopRV] | BlockRV | LoopRV | None:
        """Make a step, and return new names for its items."""
        state = self._state("main")
        if state.func is not step.func:
            state.become(step.func, step.renewed)

        def named(item: _Item) -> BlockRV | LoopRV:
            if isinstance(item, Block):
                return self._block_rv(state, item)
            return self._enter(state, LoopRV(), item)

        items = step.items
        if isinstance(items, list):
            return [named(item) for item in items]
        return None if items is None else named(items)

    # --- names

    def _state(self, func_name: str | None) -> State:
        name = self._working_on if func_name is None else func_name
        if name is None:
            raise refused(
                "the schedule does not know which function to be working on: give func_name, or "
                "call work_on"
            )
        if name not in self._states:
            func = self._module.functions_by_name.get(name)
            if not isinstance(func, PrimFunc):
                raise refused(f"there is no kernel {name!r:.40} in the module")
            self._states[name] = State(func)
        return self._states[name]

    def _known(self, value: Any) -> Any:
        """Arguments of a primitive with names replaced by the numbers drawn."""
        match value:
            case _ if not self._numbers:
                return value
            case tuple() | list():
                return type(value)(map(self._known, value))
            case dict():
                return {key: self._known(item) for key, item in value.items()}
            case PrimExpr():
                return substitute(value, self._numbers)
            case _:
                return value

    def _enter(self, state: State, rv: RV, item: _Item) -> RV:
        name = next(name for name, other in self._states.items() if other is state)
        self._items[rv] = name, item
        rv.hint = item.name_hint if isinstance(item, Block) else item.name
        return rv

    def _block_rv(self, state: State, block: Block) -> BlockRV:
        return self._enter(state, BlockRV(), block)

    def _loop_rv(self, state: State, loop: For) -> LoopRV:
        return self._enter(state, LoopRV(), loop.loop_var)

    def _item(self, rv: object, kind: type) -> tuple[State, _Item]:
        noun = "block" if kind is BlockRV else "loop"
        if not isinstance(rv, kind):
            hint = f"{noun}s are its elements" if isinstance(rv, (list, tuple)) else None
            expected = f"expected a {noun}{', or its name' * (kind is BlockRV)}"
            raise unexpected(rv, expected, hint=hint)
        if rv not in self._items:
            raise UnknownRVError(f"the schedule did not return this {noun}, or removed its name")
        name, item = self._items[rv]
        return self._states[name], item

    def _block(self, rv: BlockRV | str) -> tuple[State, Block]:
        if isinstance(rv, str):
            state = self._state(None)
            return state, block_named(state, rv)
        state, item = self._item(rv, BlockRV)
        assert isinstance(item, Block)
        block = state.current(item)
        if block is None:
            raise refused(f"block {item.name_hint} is not in the kernel any more")
        return state, block

    def _loop(self, rv: LoopRV) -> tuple[State, For]:
        state, item = self._item(rv, LoopRV)
        assert not isinstance(item, Block)
        if not isinstance(item, Var):
            raise refused(f"the location that was drawn is {item.name.lower()}, not a loop")
        loop = state.loop(item)
        if loop is None:
            raise refused(f"loop {item.name} is not in the kernel any more")
        return state, loop

    def _loops(self, rvs: Sequence[LoopRV]) -> tuple[State, list[For]]:
        found = [self._loop(rv) for rv in rvs]
        if not found:
            raise MisuseError("expected at least one loop, found none")
        if any(state is not found[0][0] for state, _ in found):
            raise refused("the loops are of different kernels")
        return found[0][0], [loop for _, loop in found]

    def _either(self, rv: BlockRV | LoopRV | str) -> tuple[State, Block | For]:
        return self._loop(rv) if isinstance(rv, LoopRV) else self._block(rv)

    def _map(self, value: IndexMap | Callable[..., Any], rank: int, dtype: DataType) -> IndexMap:
        """A map of the numbers that were drawn, which is also the one of the trace."""
        if isinstance(value, IndexMap):
            index_map = value
        else:
            index_map, separators = IndexMap.from_func_with_separators(
                value, rank, index_dtype=dtype
            )
            self._separators += separators
        self._maps[value] = substitute(index_map, self._numbers)
        return self._maps[value]
