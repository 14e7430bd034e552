"""The effects of the records of `T` on a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.types import PointerType, PrimType
from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes.naming import set_name
from relaxpy.ir.tir import expr as tir, ops, stmt
from relaxpy.ir.tir.buffer import (
    Buffer,
    BufferRegion,
    IterVar,
    Range,
    check_access,
    decl_buffer,
)
from relaxpy.ir.tir.expr import IterVarKind, PrimExpr, Var
from relaxpy.script.language import records
from relaxpy.script.language.kernel_builder import KernelBuilder, Wrap
from relaxpy.script.language.wording import describe

SCOPED = (
    records.DeclBufferForm,
    records.AllocateForm,
    records.AttrForm,
    records.LaunchThreadForm,
    records.RealizeForm,
    records.LetForm,
    records.AssertForm,
)


#: The records that `with` takes.
FRAMES = (
    *(records.LoopForm, records.BlockForm, records.InitForm, records.WhileForm, records.IfForm),
    *(records.BranchForm, *SCOPED),
)

_JUMPS: Mapping[Node, str] = {Op("tir.break_loop"): "break", Op("tir.continue_loop"): "continue"}

#: The records that define a value with a name.
NAMED = (
    *(records.AxisForm, records.RemapForm, records.MatchBufferForm),
    *(records.AllocBufferForm, records.EnvThreadForm),
)


class RecordBuilder(KernelBuilder):
    """A kernel builder that applies records."""

    def define(self, name: str, form: records.Form, at: Any) -> Any:
        """The value bound by `name = form`."""
        match form:
            case records.AxisForm():
                return self.axis(name, form, at)
            case records.RemapForm():
                axes = self.expand_remap(form, at)
                named = [
                    self.axis(n, a, at) for n, a in zip(_numbered(name, axes), axes, strict=True)
                ]
                return named[0] if len(named) == 1 else tuple(named)
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
                    raise self.error(at, f"{describe(form)} gives nothing to name")
                return result
            case records.BufferSpec(data=Var()):
                return self.define(name, records.DeclBufferForm(form), at)
            case records.BufferSpec():
                raise self.error(
                    at,
                    "T.Buffer describes a parameter",
                    hint="use T.match_buffer, T.alloc_buffer or T.decl_buffer here",
                )
            case _:
                raise self.error(at, f"{describe(form)} gives nothing to name")

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
        """Open a record that wraps the statements in it."""
        result, wrap = self.open_scope(names[0] if names else "", form, at)
        with self.body() as body:
            yield result
        self.add(wrap(body.fold()))

    # --- statements that wrap those that follow

    def open_scope(self, name: str, form: object, at: Any) -> tuple[object, Wrap]:
        """The value that `form` defines, and the function that wraps the statements that follow."""
        span = self.span(at)
        match form:
            case records.DeclBufferForm(spec=spec):
                buffer = self.call_at(at, spec.make, name or "buffer", self.span(at))
                self.pointers.add(buffer.data)
                return buffer, lambda body: self.declaration(buffer, spec.data is None, body, at)
            case records.AllocateForm(
                extents=extents, dtype=dtype, annotations=annotations, data=data
            ):
                pointer = self.new_var(name or "data", PointerType(PrimType(dtype), form.scope))
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

                def realized(body: stmt.Stmt) -> stmt.Stmt:
                    inner = stmt.BufferRealize(buffer, bounds, condition, body, span)
                    if not scope:
                        return inner
                    named = tir.StringImm(scope)
                    return stmt.AttrStmt(buffer, "realize_scope", named, inner, span)

                return None, realized
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

    def declaration(self, buffer: Buffer, allocate: bool, body: stmt.Stmt, at: Any) -> stmt.Stmt:
        """Wrap `body` in the declaration of a buffer, and in its allocation with `allocate`."""
        span = self.span(at)
        declared = stmt.DeclBuffer(buffer, body, span)
        if not allocate:
            return declared
        always = ops.const(True, "bool")
        return stmt.Allocate(buffer.data, buffer.dtype, buffer.shape, always, declared, span=span)

    def launch_thread(
        self, name: str, form: records.LaunchThreadForm, at: Any
    ) -> tuple[object, Wrap]:
        """The variable of a hardware index, and the function that wraps its scope."""
        thread = form.thread
        if isinstance(thread, str):
            var, tag = self.new_var(name or "v", form.extent.dtype), thread
        else:
            if thread not in self.threads:
                raise self.error(at, f"{thread.name} is not made by T.env_thread")
            var, tag = thread, self.threads[thread]
        span = self.span(at)
        index = IterVar(Range(0, form.extent), var, IterVarKind.ThreadIndex, tag, span)
        return var, lambda body: stmt.AttrStmt(index, "thread_extent", form.extent, body, span)

    # --- buffers

    def match_buffer(self, name: str, form: records.MatchBufferForm, at: Any) -> Buffer:
        """The buffer of a handle parameter, or a view of a region in a block."""
        source, spec = form.source, form.spec
        if isinstance(source, Var):
            assert spec is not None
            if self.bodies[-1].kind != "function":
                raise self.error(at, "a parameter is matched at the top of the kernel")
            if source not in self.params:
                raise self.error(at, f"{source.name or 'this'} is no parameter of the kernel")
            if source in self.buffer_map:
                raise self.error(at, f"parameter {source.name} already has a buffer")
            buffer: Buffer = self.call_at(at, spec.make, name, self.span(at))
            self.buffer_map[source] = buffer
            self.pointers.add(buffer.data)
            return buffer
        block = self.block_at(at, "the view of a region")
        region = stmt.regions([source])[0]
        if spec is None:
            shape = [part.extent for part in region.region]
            made = decl_buffer(shape, region.buffer.dtype, name)
            buffer = replace(made, span=self.span(at))
        else:
            buffer = self.call_at(at, spec.make, name, self.span(at))
            self.check_view(buffer, region, at)
        block.matches.append(stmt.MatchBufferRegion(buffer, region))
        return buffer

    def check_view(self, buffer: Buffer, region: BufferRegion, at: Any) -> None:
        """Check that the shape and datatype of a view do not provably differ from its region's."""
        sizes = [part.extent for part in region.region]
        outer = len(sizes) - buffer.ndim
        expected = [*[ops.const(1, "int32")] * outer, *buffer.shape]
        if outer < 0 or any(
            prove_equal(*pair) is False for pair in zip(sizes, expected, strict=True)
        ):
            raise self.error(
                at,
                f"{buffer.name} is {_box(buffer.shape)}, the region that it views is {_box(sizes)}",
                hint="without a shape, a view has that of its region",
            )
        if buffer.dtype != region.buffer.dtype:
            raise self.error(
                at,
                f"{buffer.name} holds {buffer.dtype}, {region.buffer.name} {region.buffer.dtype}",
            )

    def alloc_buffer(self, name: str, spec: records.BufferSpec, at: Any) -> Buffer:
        """Allocate a buffer in the enclosing block; at the top of the kernel, in its root block."""
        kind = self.bodies[-1].kind
        if kind not in ("function", "block"):
            raise self.error(
                at, "T.alloc_buffer belongs directly into a block or to the top of the kernel"
            )
        buffer: Buffer = self.call_at(at, spec.make, name, self.span(at))
        (self.blocks[-1] if kind == "block" else self.root).allocations.append(buffer)
        self.pointers.add(buffer.data)
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
        """The axes that a remap is short for."""
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
            case records.StoreForm(buffer, argument, indices, predicate):
                dtype, _, _ = self.call_at(at, check_access, buffer, indices)
                converted: PrimExpr = self.call_at(at, scalar, argument, dtype)
                stored = self.call_at(at, ops.cast_to, converted, dtype)
                span = self.span(at)
                self.add(
                    self.call_at(at, stmt.BufferStore, buffer, stored, indices, predicate, span)
                )
            case records.EvaluateForm(value=value):
                self.evaluate(value, at)
            case records.AccessForm(what=what, regions=regions):
                block = self.block_at(at, f"T.{what}")
                if what in block.regions:
                    raise self.error(at, f"T.{what} is given twice for this block")
                block.regions[what] = tuple(_region(region) for region in regions)
            case records.WhereForm(condition=condition):
                block = self.block_at(at, "T.where")
                if block.predicate is not None:
                    raise self.error(at, "T.where is given twice for this block")
                block.predicate = condition
            case records.AttrsForm(of="block", attrs=attrs):
                block = self.block_at(at, "T.block_attr")
                self.merge(block.attrs, attrs, at)
            case records.AttrsForm(of="function", attrs=attrs):
                if self.bodies[-1].kind != "function":
                    raise self.error(at, "T.func_attr belongs to the top of the kernel")
                self.call_at(at, records.added_attributes, self.attrs, attrs)
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
                raise self.error(at, f"{describe(form)} must be given a name")
            case _:
                raise self.error(at, f"{describe(form)} is not part of a kernel")

    def evaluate(self, value: PrimExpr, at: Any) -> None:
        """Evaluate an expression for its side effect; break and continue must be inside a loop."""
        word = _JUMPS.get(value.op) if isinstance(value, tir.Call) else None
        if word is not None and not any(body.kind == "loop" for body in self.bodies):
            raise self.error(at, f"{word} stands outside a loop")
        self.add(stmt.Evaluate(value, self.span(at)))

    def merge(self, table: dict[str, object], attrs: object, at: Any) -> None:
        """Add the attributes of a block; a key may be repeated with the same value."""
        assert isinstance(attrs, dict)
        for key, value in attrs.items():
            if key in table and Attrs({key: table[key]}) != Attrs({key: value}):
                raise self.error(
                    at, f"block attribute {key!r} is {table[key]!r} and {value!r} at once"
                )
            table[key] = value


def _box(sizes: Sequence[PrimExpr]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def _numbered(name: str, members: list[records.AxisForm]) -> list[str]:
    return [name] if len(members) == 1 else [f"{name}_{k}" for k in range(len(members))]


def _region(argument: object) -> BufferRegion:
    if isinstance(argument, Buffer):
        return BufferRegion(argument, tuple(Range(size) for size in argument.shape))
    return stmt.regions([argument])[0]  # type: ignore[list-item]


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
    """`value` as an expression; a Python number takes `dtype`.

    Errors: MisuseError if there is no such expression.
    """
    if dtype is not None and isinstance(value, (bool, int, float, np.number, np.bool_)):
        return ops.const(value, dtype)
    if isinstance(value, str):
        raise MisuseError(f"expected a scalar expression, found {value!r}", about=value)
    found = ops.convert(value)
    if not found.dtype:
        raise MisuseError(f"`{found}` has no value", about=value)
    return found
