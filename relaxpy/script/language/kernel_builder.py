"""Builds a kernel statement by statement, for the parser and for IRBuilder."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from typing import Any, Literal, TypeAlias

import numpy as np

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import HANDLE, INT32, DataType
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.types import PointerType, PrimType
from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes.expr import set_name
from relaxpy.ir.tir import expr as tir, ops, stmt
from relaxpy.ir.tir.analysis.regions import access_regions
from relaxpy.ir.tir.buffer import Buffer, BufferRegion, check_access
from relaxpy.ir.tir.expr import IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script.language import records
from relaxpy.script.language.graph_builder import DefinitionBuilder
from relaxpy.script.language.wording import describe
from relaxpy.support.dataclass import dataclass, replace

Wrap: TypeAlias = Callable[[stmt.Stmt], stmt.Stmt]


@dataclass(slots=True)
class Block:
    """The state of a block that is being built."""

    iter_vars: list[IterVar] = field(default_factory=list)
    iter_values: list[PrimExpr] = field(default_factory=list)
    regions: dict[str, tuple[BufferRegion, ...]] = field(default_factory=dict)
    init: stmt.Stmt | None = None
    allocations: list[Buffer] = field(default_factory=list)
    matches: list[stmt.MatchBufferRegion] = field(default_factory=list)
    attrs: dict[str, object] = field(default_factory=dict)
    predicate: PrimExpr | None = None
    lets: dict[Var, PrimExpr] = field(default_factory=dict)

    def with_regions(self, block: stmt.Block, pointers: Container[Var]) -> stmt.Block:
        """`block` with the regions that the program declares; the others are inferred."""
        if len(self.regions) == 2:
            return block
        reads, writes = access_regions(block, pointers)
        return replace(
            block, reads=self.regions.get("reads", reads), writes=self.regions.get("writes", writes)
        )


@dataclass(slots=True)
class Body:
    """Statements being collected; the body of a wrapper is all statements that follow it.

    The body of `T.If` contains no statements; its branches are `cases`.
    """

    kind: Literal["function", "block", "loop", "cases", "inner"]
    items: list[stmt.Stmt | Wrap] = field(default_factory=list)
    cases: dict[bool, stmt.Stmt] = field(default_factory=dict)

    def fold(self) -> stmt.Stmt:
        """Combine the statements into one."""
        rest: list[stmt.Stmt] = []
        for item in reversed(self.items):
            if isinstance(item, stmt.Stmt):
                rest.append(item)
            else:
                rest = [item(_sequence(rest))]
        return _sequence(rest)


def _sequence(reverse: list[stmt.Stmt]) -> stmt.Stmt:
    if not reverse:
        return stmt.Evaluate(ops.const(0, INT32))
    return reverse[0] if len(reverse) == 1 else stmt.SeqStmt(tuple(reversed(reverse)))


def typed_var(name: str, argument: object) -> Var | None:
    """The variable that an annotation such as `T.int32` or `T.handle` declares, or None."""
    if isinstance(argument, (records.DatatypeName, records.HandleName)):
        return Var(name, argument.dtype) if argument.dtype else None
    if isinstance(argument, Var):
        return argument if argument.name else argument.renamed(name)
    return None


def result_type(argument: object) -> DataType | None:
    """The datatype of a kernel's result, from its annotation; None if there is no result.

    Errors: MisuseError if it is not a datatype.
    """
    match argument:
        case None:
            return None
        case records.DatatypeName() | records.HandleName() | Var() | PrimType():
            return argument.dtype
        case str():
            return DataType(argument)
        case _:
            raise MisuseError(
                f"a kernel returns a scalar datatype, found {describe(argument)}", about=argument
            )


def scalar(value: object, dtype: DataType | None) -> PrimExpr:
    """Convert `value` to an expression; a Python number takes `dtype`.

    Errors: MisuseError if that is not possible.
    """
    if dtype is not None and isinstance(value, (bool, int, float, np.number, np.bool_)):
        return ops.const(value, dtype)
    if isinstance(value, str) and dtype != HANDLE:
        raise unexpected(value, "expected a scalar expression")
    expr = ops.convert(value)
    if not expr.dtype:
        raise MisuseError(f"`{expr}` has no value", about=value)
    return expr


#: The records that wrap the statements that follow, or those in `with`.
SCOPED = (
    *(records.DeclBufferForm, records.AllocateForm, records.AttrForm, records.LaunchThreadForm),
    *(records.RealizeForm, records.LetForm, records.AssertForm),
)
#: The records that `with` takes.
FRAMES = (
    *(records.LoopForm, records.BlockForm, records.InitForm, records.WhileForm, records.IfForm),
    *(records.BranchForm, *SCOPED),
)

#: The other records that define a value with a name.
NAMED = (
    *(records.AxisForm, records.RemapForm, records.MatchBufferForm),
    *(records.AllocBufferForm, records.EnvThreadForm),
)
_JUMPS: Mapping[Node, str] = {Op("tir.break_loop"): "break", Op("tir.continue_loop"): "continue"}


class KernelBuilder(DefinitionBuilder):
    """Builds a kernel from parameters, statements, and the records of `T`."""

    def __init__(self) -> None:
        self.params: dict[Var, None] = {}
        self.buffer_map: dict[Var, Buffer] = {}
        self.attrs: dict[str, object] = {}
        self.ret_type: DataType | None = None
        self.loops: dict[Var, Range] = {}
        self.threads: dict[Var, str] = {}
        self.named: set[Var] = set()
        self.owners: dict[Var, Buffer] = {}
        """The first buffers that were declared over each pointer; the others are views."""
        self.bodies: list[Body] = []
        self.root = Block()
        self.blocks: list[Block] = [self.root]
        self.undeclared: dict[stmt.Stmt, Block] = {}
        self.has_block = False

    def call_at(self, at: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `function`; an error in it is reported at location `at`."""
        return function(*args, **kwargs)

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
            # An empty branch is added, so that its absence is not reported as well.
            body.cases.setdefault(True, Body("inner").fold())
            raise self.error(at, "with T.If contains with T.Then(): and optionally with T.Else():")

    def block_at(self, at: Any, directive: str) -> Block:
        """The enclosing block; `directive` must be directly inside it."""
        if self.bodies[-1].kind != "block":
            raise self.error(at, f"{directive} belongs directly in a block, with T.block(...):")
        return self.blocks[-1]

    def enclosing_block(self, at: Any, directive: str) -> Block:
        """The innermost block; `directive` may be inside of its loops and branches too.

        It declares a property of the whole block wherever it is, as in TVM.
        """
        if len(self.blocks) == 1:
            raise self.error(at, f"{directive} belongs in a block, with T.block(...):")
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
        self.owners[param.data] = param

    def finish(self, body: Body, name: str | None, *, private: bool, at: Any) -> PrimFunc:
        """Create the kernel with this body, adding a root block where one is needed."""
        first = body.items[0] if len(body.items) == 1 else None
        is_root = isinstance(first, stmt.BlockRealize) and not first.block.iter_vars
        if not is_root:
            body.items = [self.with_regions(item) for item in body.items]
        result = body.fold()
        span = self.span(at)
        if self.root.allocations or (self.has_block and not is_root):
            allocations = tuple(self.root.allocations)
            root = stmt.Block((), (), (), "root", result, None, allocations, span=span)
            result = stmt.BlockRealize((), ops.const(True, "bool"), root, span)
        self.set_symbol(self.attrs, "kernel", name, private=private, at=at)
        return PrimFunc(
            tuple(self.params), result, self.ret_type, self.buffer_map, Attrs(self.attrs), span=span
        )

    def new_var(self, name: str, dtype: str | PointerType) -> Var:
        """Create a variable that the program defines."""
        var = Var(name, dtype)
        self.named.add(var)
        return var

    # --- statements with a body

    @contextmanager
    def loop(
        self, form: records.LoopForm, names: Sequence[str], at: Any
    ) -> Iterator[list[PrimExpr]]:
        """Open the nested loops of `form`, over variables called `names`."""
        variables = []
        for name, (first, extent) in zip(names, form.bounds, strict=True):
            variables.append(self.new_var(name, first.dtype))
            self.loops[variables[-1]] = Range.from_min_extent(first, extent)
        values: list[PrimExpr] = [*variables]
        if form.first is not None:
            values = [form.first + var * form.step for var in variables]
        with self.body("loop") as body:
            yield values
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
        """Open the body of `T.If`, which contains branches only."""
        with self.body("cases") as body:
            yield
        cases = body.cases
        if True not in cases:
            raise self.error(at, "with T.If contains no with T.Then():")
        self.add(stmt.IfThenElse(condition, cases[True], cases.get(False), self.span(at)))

    @contextmanager
    def branch(self, form: records.BranchForm, at: Any) -> Iterator[None]:
        """Open one of the branches."""
        enclosing = self.bodies[-1]
        name = "Then" if form.taken else "Else"
        if enclosing.kind != "cases":
            raise self.error(at, f"with T.{name} belongs directly in with T.If(condition):")
        if form.taken in enclosing.cases:
            raise self.error(at, f"with T.If contains with T.{name}() twice")
        with self.body() as body:
            yield
        enclosing.cases[form.taken] = body.fold()

    @contextmanager
    def init(self, at: Any) -> Iterator[None]:
        """Open the initialisation of the enclosing block."""
        block = self.block_at(at, "T.init")
        if block.init is not None:
            raise self.error(at, "T.init occurs twice in this block")
        with self.body() as body:
            yield
        block.init = body.fold()

    @contextmanager
    def block(self, form: records.BlockForm, at: Any) -> Iterator[None]:
        """Open a block."""
        is_top = self.bodies[-1].kind == "function"
        state = Block()
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
            result = self.call_at(at, state.with_regions, result, self.owners)
        if form.no_realize:
            self.add(result)
            return
        predicate = ops.const(True, "bool") if state.predicate is None else state.predicate
        realize = stmt.BlockRealize(tuple(state.iter_values), predicate, result, span)
        if may_be_root:
            self.undeclared[realize] = state
        self.add(realize)

    def with_regions(self, item: stmt.Stmt | Wrap) -> stmt.Stmt | Wrap:
        """Infer the regions of `item` if it is a block that might have been the root."""
        if not isinstance(item, stmt.BlockRealize) or item not in self.undeclared:
            return item
        block = self.undeclared[item].with_regions(item.block, self.owners)
        return replace(item, block=block)

    # --- records

    def define(self, name: str, form: records.Form, at: Any) -> Any:
        """The value bound by `name = form`."""
        match form:
            case records.AxisForm():
                return self.axis(name, form, at)
            case records.RemapForm():
                axes = self.expand_remap(form, at)
                if len(axes) == 1:
                    return self.axis(name, axes[0], at)
                return tuple(self.axis(f"{name}_{k}", axis, at) for k, axis in enumerate(axes))
            case records.MatchBufferForm():
                return self.match_buffer(name, form, at)
            case records.AllocBufferForm(spec=spec):
                return self.alloc_buffer(name, spec, at)
            case records.EnvThreadForm(tag=tag, dtype=dtype):
                var = self.new_var(name, dtype)
                self.threads[var] = tag
                return var
            case records.Form() if isinstance(form, SCOPED):
                result, wrap = self.open_scope(name, form, at)
                self.add(wrap)
                if result is None:
                    raise self.error(at, f"{describe(form)} has no value to name")
                return result
            case records.BufferSpec(data=Var()):
                return self.define(name, records.DeclBufferForm(form), at)
            case records.BufferSpec():  # T.realize or an attribute says what its memory is
                buffer: Buffer = self.call_at(at, form.create, name, self.span(at))
                return buffer
            case _:
                raise self.error(at, f"{describe(form)} has no value to name")

    def apply(self, form: records.Form, at: Any) -> Any:
        """Apply a record that is not a frame, and return its result."""
        self.check_position(at)
        return self.define("", form, at) if isinstance(form, NAMED) else self.effect(form, at)

    # --- statements with a body

    @contextmanager
    def unnamed_frame(self, form: records.Form, at: Any) -> Iterator[object]:
        """Open `with form`, whose variables are named later, if at all."""
        names = [""] * len(form.bounds) if isinstance(form, records.LoopForm) else []
        with self.frame(form, names, at) as result:
            yield result[0] if isinstance(result, list) and len(result) == 1 else result

    def frame(
        self, form: records.Form, names: Sequence[str], at: Any
    ) -> AbstractContextManager[object]:
        """Open `with form as names:`; entering it returns the named values."""
        if not isinstance(form, records.BranchForm):
            self.check_position(at)
        match form:
            case records.LoopForm():
                return self.loop(form, names, at)
            case records.BlockForm():
                return self.block(form, at)
            case records.InitForm():
                return self.init(at)
            case records.WhileForm(condition=condition):
                return self.while_loop(condition, at)
            case records.IfForm(condition=condition):
                return self.branches(condition, at)
            case records.BranchForm():
                return self.branch(form, at)
            case _:
                return self.scoped(form, names, at)

    @contextmanager
    def scoped(self, form: records.Form, names: Sequence[str], at: Any) -> Iterator[object]:
        """Open a record that wraps the statements inside it."""
        result, wrap = self.open_scope(names[0] if names else "", form, at)
        with self.body() as body:
            yield result
        self.add(wrap(body.fold()))

    # --- statements that wrap those that follow

    def open_scope(self, name: str, form: object, at: Any) -> tuple[object, Wrap]:
        """The value that `form` defines, and a function that wraps the next statements."""
        span = self.span(at)
        match form:
            case records.DeclBufferForm(spec=spec):
                array = self.new_buffer(name or "buffer", spec, at)

                def declare(body: stmt.Stmt) -> stmt.Stmt:
                    inner = stmt.DeclBuffer(array, body, span)
                    if spec.data is not None:
                        return inner
                    always = ops.const(True, "bool")
                    return stmt.Allocate(
                        array.data, array.dtype, array.shape, always, inner, span=span
                    )

                return array, declare
            case records.AllocateForm(
                extents=extents, dtype=dtype, annotations=annotations, data=data
            ):
                pointer = self.new_var(name or "v", PointerType(PrimType(dtype), form.scope))
                if data is not None:
                    return pointer, lambda body: stmt.AllocateConst(
                        pointer, dtype, extents, data, body, Attrs(annotations), span
                    )
                test = form.condition
                assert test is not None
                return pointer, lambda body: stmt.Allocate(
                    pointer, dtype, extents, test, body, Attrs(annotations), span
                )
            case records.AttrForm(node=subject, key=key, value=value):
                return None, lambda body: stmt.AttrStmt(subject, key, value, body, span)
            case records.LaunchThreadForm():
                return self.launch_thread(name, form, at)
            case records.RealizeForm(region=region, scope=scope, condition=condition):
                buffer, bounds = region.buffer, region.region

                def realize(body: stmt.Stmt) -> stmt.Stmt:
                    inner = stmt.BufferRealize(buffer, bounds, condition, body, span)
                    if not scope:
                        return inner
                    scope_name = tir.StringImm(scope)
                    return stmt.AttrStmt(buffer, "realize_scope", scope_name, inner, span)

                return None, realize
            case records.LetForm(value=value, var=var):
                bound = Var("", value.dtype) if var is None else var
                if not bound.name:
                    set_name(bound, name or "v")
                self.named.add(bound)
                return bound, lambda body: stmt.LetStmt(bound, value, body, span)
            case records.AssertForm(condition=condition, message=message):
                return None, lambda body: stmt.AssertStmt(condition, message, body, span)
            case _:
                raise AssertionError(form)

    def launch_thread(
        self, name: str, form: records.LaunchThreadForm, at: Any
    ) -> tuple[object, Wrap]:
        """The variable of a hardware index, and the function that wraps its scope."""
        thread = form.thread
        if isinstance(thread, str):
            var, tag = self.new_var(name or "v", form.extent.dtype), thread
        else:
            if thread not in self.threads:
                raise self.error(at, f"{thread.name} is not a result of T.env_thread")
            var, tag = thread, self.threads[thread]
        span = self.span(at)
        index = IterVar(Range(0, form.extent), var, IterVarKind.ThreadIndex, tag, span)
        return var, lambda body: stmt.AttrStmt(index, "thread_extent", form.extent, body, span)

    # --- buffers

    def new_buffer(self, name: str, spec: records.BufferSpec, at: Any) -> Buffer:
        """Create a buffer that the kernel itself declares."""
        buffer: Buffer = self.call_at(at, spec.create, name, self.span(at))
        self.owners.setdefault(buffer.data, buffer)
        return buffer

    def match_buffer(self, name: str, form: records.MatchBufferForm, at: Any) -> Buffer:
        """The buffer of a handle parameter, or a view of a region in a block."""
        source, spec = form.source, form.spec
        if isinstance(source, Var):
            if self.bodies[-1].kind != "function":
                raise self.error(at, "a parameter is matched at the top of the kernel")
            if source not in self.params:
                raise self.error(at, f"{source.name or 'this'} is not a parameter of the kernel")
            if source in self.buffer_map:
                raise self.error(at, f"parameter {source.name} already has a buffer")
            self.buffer_map[source] = self.new_buffer(name, spec, at)
            return self.buffer_map[source]
        block = self.block_at(at, "the view of a region")
        region = stmt.regions([source])[0]
        buffer: Buffer = self.call_at(at, spec.create, name, self.span(at))
        self.check_view(buffer, region, at)
        block.matches.append(stmt.MatchBufferRegion(buffer, region))
        return buffer

    def check_view(self, buffer: Buffer, region: BufferRegion, at: Any) -> None:
        """Check that the shape and datatype of a view do not provably differ from its region's."""
        extents = [dim.extent for dim in region.region]
        leading = len(extents) - buffer.ndim
        expected = [*[ops.const(1, "int32")] * leading, *buffer.shape]
        if leading < 0 or any(
            prove_equal(*pair) is False for pair in zip(extents, expected, strict=True)
        ):
            shape, box = (f"[{', '.join(map(str, dims))}]" for dims in (buffer.shape, extents))
            raise self.error(
                at,
                f"{buffer.name} is {shape}, the region that it views is {box}",
                hint="without a shape, a view has the shape of its region",
            )
        source = region.buffer
        if buffer.dtype != source.dtype:
            raise self.error(
                at, f"{buffer.name} is of {buffer.dtype}, {source.name} of {source.dtype}"
            )

    def alloc_buffer(self, name: str, spec: records.BufferSpec, at: Any) -> Buffer:
        """Allocate a buffer in the enclosing block; at the top of the kernel, in its root block."""
        if len(self.blocks) == 1 and self.bodies[-1].kind != "function":
            raise self.error(at, "T.alloc_buffer belongs in a block or at the top of the kernel")
        buffer = self.new_buffer(name, spec, at)
        self.blocks[-1].allocations.append(buffer)
        return buffer

    # --- blocks

    def axis(self, name: str, form: records.AxisForm, at: Any) -> Var:
        """Add an iteration variable to the enclosing block."""
        block = self.block_at(at, "T.axis")
        var = self.new_var(name, form.dom.extent.dtype)
        block.iter_vars.append(IterVar(form.dom, var, form.kind, span=self.span(at)))
        block.iter_values.append(form.binding)
        return var

    def expand_remap(self, form: records.RemapForm, at: Any) -> list[records.AxisForm]:
        """The axes that a remap abbreviates."""
        axes = []
        kinds = {"S": IterVarKind.DataPar, "R": IterVarKind.CommReduce}
        for letter, binding in zip(form.kinds, form.bindings, strict=True):
            dom = self.loops.get(binding) if isinstance(binding, Var) else None
            if dom is None:
                raise self.error(
                    at,
                    f"T.axis.remap takes loop variables, found {describe(binding)}",
                    hint="use T.axis.spatial(extent, value) for other values",
                )
            axes.append(records.AxisForm(dom, binding, kinds[letter]))
        return axes

    def effect(self, form: records.Form, at: Any) -> None:
        """Apply a record that is a statement by itself."""
        match form:
            case records.StoreForm():
                self.store(form, at, target=at, source=at)
            case records.EvaluateForm(value=value):
                self.evaluate(value, at)
            case records.AccessForm(kind=kind, regions=regions):
                block = self.enclosing_block(at, f"T.{kind}")
                if kind in block.regions:
                    raise self.error(at, f"T.{kind} occurs twice in this block")
                block.regions[kind] = tuple(_region(region) for region in regions)
            case records.WhereForm(condition=condition):
                block = self.enclosing_block(at, "T.where")
                if block.predicate is not None:
                    raise self.error(at, "T.where occurs twice in this block")
                block.predicate = condition
            case records.AttrsForm(owner="block", attrs=attrs):
                block = self.enclosing_block(at, "T.block_attr")
                self.merge(block.attrs, attrs, at)
            case records.AttrsForm(owner="function", attrs=attrs):
                if self.bodies[-1].kind != "function":
                    raise self.error(at, "T.func_attr belongs at the top of the kernel")
                self.call_at(at, records.check_added_attributes, self.attrs, attrs)
                self.attrs.update(attrs)
            case records.Form() if isinstance(form, SCOPED):
                self.add(self.open_scope("", form, at)[1])
            case records.MetaVar():
                return
            case records.LoopForm():
                raise self.error(at, "a loop is written `for i in ...:`")
            case records.BlockForm() | records.InitForm():
                raise self.error(at, "a block is written `with ...:`")
            case records.WhileForm() | records.IfForm() | records.BranchForm():
                raise self.error(at, "write `with ...:`, or while and if as in Python")
            case records.AxisForm() | records.RemapForm():
                raise self.error(at, "name the block variable, as in vi = T.axis.spatial(...)")
            case records.Form() if isinstance(form, (*NAMED, records.BufferSpec)):
                raise self.error(at, f"{describe(form)} needs a name")
            case _:
                raise self.error(at, f"{describe(form)} is not part of a kernel")

    def evaluate(self, value: PrimExpr, at: Any) -> None:
        """Evaluate an expression for its side effect; break and continue must be inside a loop."""
        keyword = _JUMPS.get(value.op) if isinstance(value, tir.Call) else None
        if keyword is not None and not any(body.kind == "loop" for body in self.bodies):
            raise self.error(at, f"{keyword} is outside of a loop")
        self.add(stmt.Evaluate(value, self.span(at)))

    def store(self, form: records.StoreForm, at: Any, *, target: Any, source: Any) -> None:
        """Store a value, read at `source`, to the element of a buffer that is named at `target`."""
        buffer, indices = form.buffer, form.indices
        dtype, _, _ = self.call_at(target, check_access, buffer, indices)
        value = self.call_at(source, scalar, form.value, dtype)
        cast = self.call_at(source, ops.cast_to, value, dtype)
        span = self.span(at)
        self.add(self.call_at(at, stmt.BufferStore, buffer, cast, indices, form.predicate, span))

    def merge(self, table: dict[str, object], attrs: Mapping[str, object], at: Any) -> None:
        """Add the attributes of a block; tables are merged, other values may only be repeated."""
        for key, value in attrs.items():
            old = table.get(key)
            if isinstance(old, Mapping) and isinstance(value, Mapping):
                merged = dict(old)
                self.merge(merged, value, at)
                table[key] = merged
                continue
            if key in table and Attrs({key: old}) != Attrs({key: value}):
                raise self.error(at, f"block attribute {key!r} is {old!r} and {value!r} at once")
            table[key] = value


def _region(argument: object) -> BufferRegion:
    if isinstance(argument, Buffer):
        return BufferRegion(argument, tuple(Range(size) for size in argument.shape))
    return stmt.regions([argument])[0]  # type: ignore[list-item]
