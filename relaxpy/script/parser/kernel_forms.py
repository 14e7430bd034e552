"""What the records of `T` do to the kernel that is being read."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TypeVar

from relaxpy.errors import MisuseError
from relaxpy.ir.dtype import DataType
from relaxpy.ir.node import Attrs
from relaxpy.ir.tir import expr as tir, ops, stmt
from relaxpy.ir.tir.buffer import (
    Buffer,
    BufferRegion,
    IterVar,
    Range,
    decl_buffer,
    load_parts,
)
from relaxpy.ir.tir.expr import IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.regions import access_regions
from relaxpy.ir.types import PointerType, PrimType
from relaxpy.script.parser import forms
from relaxpy.script.parser.kernel_state import Block, Body, KernelState, Wrap
from relaxpy.script.parser.scope import POISON
from relaxpy.script.parser.text import Positioned
from relaxpy.script.parser.wording import describe

SCOPED = (
    forms.DeclBufferForm,
    forms.AllocateForm,
    forms.AttrForm,
    forms.LaunchThreadForm,
    forms.RealizeForm,
    forms.LetForm,
    forms.AssertForm,
)


class KernelForms(KernelState):
    """Acts upon records."""

    def bind(self, name: str, value: object, target: ast.expr, at: ast.expr) -> None:
        """Give `name` the meaning of `value`; a scalar becomes a variable with a LetStmt.

        Errors:
            ParseError: the name already means something else in this scope.
        """
        present = self.scope.frames[-1].get(name, POISON)
        if present is not POISON and present is not value:
            raise self.error(
                target,
                f"{name!r} is already defined in this scope",
                hint="kernels bind a name once; use another name, or a buffer for what changes",
            )
        self.scope.set(name, self.meaning(name, value, at))

    def meaning(self, name: str, value: object, node: ast.expr) -> object:
        """What a name stands for after `name = value`."""
        match value:
            case forms.MetaVar(value=inner):
                return inner
            case TypeVar():
                return self.size(name)
            case forms.AxisForm():
                return self.axis(name, value, node)
            case forms.RemapForm():
                axes = self.remapped(value, node)
                named = [
                    self.axis(n, a, node) for n, a in zip(_numbered(name, axes), axes, strict=True)
                ]
                return named[0] if len(named) == 1 else tuple(named)
            case forms.MatchBufferForm():
                return self.match_buffer(name, value, node)
            case forms.AllocBufferForm(spec=spec):
                return self.alloc_buffer(name, spec, node)
            case forms.EnvThreadForm(tag=tag, dtype=dtype):
                var = self.new_var(name, dtype)
                self.threads[var] = tag
                return var
            case forms.Form() if isinstance(value, SCOPED):
                found, wrap = self.opened(name, value, node)
                self.add(wrap)
                if found is None:
                    raise self.error(node, f"{describe(value)} gives nothing to name")
                return found
            case forms.BufferSpec():
                raise self.error(
                    node,
                    "T.Buffer describes a parameter",
                    hint="use T.match_buffer, T.alloc_buffer or T.decl_buffer here",
                )
            case forms.Form():
                raise self.error(node, f"{describe(value)} gives nothing to name")
            case Var() if not value.name:
                fresh = value.renamed(name)
                self.named.add(fresh)
                return fresh
            case Var() if value not in self.named:
                return value
            case IterVar():
                return value.var
            case PrimExpr() | bool() | int() | float():
                return self.let(name, ops.convert(value), node)
            case _:
                return value

    def new_var(self, name: str, dtype: str | PointerType) -> Var:
        """A variable that the program defines."""
        var = Var(name, dtype)
        self.named.add(var)
        return var

    def let(self, name: str, value: PrimExpr, node: Positioned, var: Var | None = None) -> Var:
        """A variable for `value` in what follows."""
        if not value.dtype.lanes:
            raise self.error(node, f"`{value}` has no value to name")
        bound = var if var is not None else self.new_var(name, value.dtype)
        span = self.program.span(node)
        self.add(lambda body: stmt.LetStmt(bound, value, body, span))
        return bound

    # --- what encloses the statements that follow

    def opened(self, name: str, form: object, node: Positioned) -> tuple[object, Wrap]:
        """What `form` gives to name, and how it encloses what follows."""
        span = self.program.span(node)
        match form:
            case forms.DeclBufferForm(spec=spec):
                buffer = self.made(node, spec.make, name or "buffer", self.program.span(node))
                self.pointers.add(buffer.data)
                return buffer, lambda body: self.declaration(buffer, spec.data is None, body, node)
            case forms.AllocateForm(
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
            case forms.AttrForm(node=subject, key=key, value=value):
                return None, lambda body: stmt.AttrStmt(subject, key, value, body, span)
            case forms.LaunchThreadForm():
                return self.launched(name, form, node)
            case forms.RealizeForm(region=region, scope=scope, condition=condition):
                buffer, bounds = region.buffer, region.region

                def realized(body: stmt.Stmt) -> stmt.Stmt:
                    inner = stmt.BufferRealize(buffer, bounds, condition, body, span)
                    if not scope:
                        return inner
                    named = tir.StringImm(scope)
                    return stmt.AttrStmt(buffer, "realize_scope", named, inner, span)

                return None, realized
            case forms.LetForm(value=value, var=var):
                if var is None or not var.name:
                    kind = value.dtype if var is None else var.type_annotation
                    var = self.new_var(name or "v", kind)  # type: ignore[arg-type]
                bound = var
                self.named.add(bound)
                return bound, lambda body: stmt.LetStmt(bound, value, body, span)
            case forms.AssertForm(condition=condition, message=message):
                return None, lambda body: stmt.AssertStmt(condition, message, body, span)
            case _:
                raise AssertionError(form)

    def declaration(
        self, buffer: Buffer, allocate: bool, body: stmt.Stmt, node: Positioned
    ) -> stmt.Stmt:
        """`body` under a declared buffer, with memory of its own where it has none."""
        span = self.program.span(node)
        declared = stmt.DeclBuffer(buffer, body, span)
        if not allocate:
            return declared
        always = ops.const(True, "bool")
        return stmt.Allocate(buffer.data, buffer.dtype, buffer.shape, always, declared, span=span)

    def launched(
        self, name: str, form: forms.LaunchThreadForm, node: Positioned
    ) -> tuple[object, Wrap]:
        """A hardware index running over an extent."""
        thread = form.thread
        if isinstance(thread, str):
            var, tag = self.new_var(name or "v", form.extent.dtype), thread
        else:
            if thread not in self.threads:
                raise self.error(node, f"{thread.name} is not made by T.env_thread")
            var, tag = thread, self.threads[thread]
        span = self.program.span(node)
        index = IterVar(Range(0, form.extent), var, IterVarKind.ThreadIndex, tag, span)
        return var, lambda body: stmt.AttrStmt(index, "thread_extent", form.extent, body, span)

    # --- buffers

    def match_buffer(self, name: str, form: forms.MatchBufferForm, node: ast.expr) -> Buffer:
        """The buffer behind a parameter, or a view of a region of a block."""
        source, spec = form.source, form.spec
        if isinstance(source, Var):
            assert spec is not None
            if self.bodies[-1].kind != "function":
                raise self.error(node, "a parameter is matched at the top of the kernel")
            if source not in self.params:
                raise self.error(node, f"{source.name or 'this'} is no parameter of the kernel")
            if source in self.buffer_map:
                raise self.error(node, f"parameter {source.name} already has a buffer")
            buffer: Buffer = self.made(node, spec.make, name, self.program.span(node))
            self.buffer_map[source] = buffer
            self.pointers.add(buffer.data)
            return buffer
        block = self.block_at(node, "the view of a region")
        region = stmt.regions([source])[0]
        if spec is None:
            shape = [part.extent for part in region.region]
            made = decl_buffer(shape, region.buffer.dtype, name)
            buffer = replace(made, span=self.program.span(node))
        else:
            buffer = self.made(node, spec.make, name, self.program.span(node))
        block.matches.append(stmt.MatchBufferRegion(buffer, region))
        return buffer

    def alloc_buffer(self, name: str, spec: forms.BufferSpec, node: ast.expr) -> Buffer:
        """A buffer of the block around; at the top of the kernel, of its root block."""
        kind = self.bodies[-1].kind
        if kind == "inner":
            raise self.error(
                node, "T.alloc_buffer belongs directly into a block or to the top of the kernel"
            )
        buffer: Buffer = self.made(node, spec.make, name, self.program.span(node))
        (self.blocks[-1] if kind == "block" else self.root).allocations.append(buffer)
        self.pointers.add(buffer.data)
        return buffer

    # --- blocks

    def axis(self, name: str, form: forms.AxisForm, node: ast.expr) -> Var:
        """A variable of the block around."""
        block = self.block_at(node, "T.axis")
        var = self.new_var(name, form.dom.extent.dtype)
        block.iter_vars.append(IterVar(form.dom, var, form.kind, span=self.program.span(node)))
        block.iter_values.append(form.binding)
        return var

    def remapped(self, form: forms.RemapForm, node: Positioned) -> list[forms.AxisForm]:
        """The single axes that a remap stands for."""
        axes = []
        kinds = {"S": IterVarKind.DataPar, "R": IterVarKind.CommReduce}
        for letter, binding in zip(form.kinds, form.bindings, strict=True):
            dom = self.loops.get(binding) if isinstance(binding, Var) else None
            if dom is None:
                raise self.error(
                    node,
                    f"T.axis.remap takes loop variables, found {describe(binding)}",
                    hint="use T.axis.spatial(extent, value) for other values",
                )
            axes.append(forms.AxisForm(dom, binding, kinds[letter]))
        return axes

    def block(self, form: forms.BlockForm, nodes: list[ast.stmt], header: ast.expr) -> None:
        """The block `with form: nodes`."""
        self.has_block = True
        top = self.bodies[-1].kind == "function"
        said, body = Block(form), Body("block")
        self.blocks.append(said)
        try:
            with self.scope.inner():
                self.read_into(body, nodes)
        finally:
            self.blocks.pop()
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
            self.program.span(header),
        )
        # Alone at the top of a kernel, a block without variables is its root and declares nothing.
        maybe_root = top and not said.iter_vars and not form.no_realize
        if not maybe_root:
            whole = self.made(header, self.inferred, whole, said)
        if form.no_realize:
            self.add(whole)
            return
        predicate = ops.const(True, "bool") if said.predicate is None else said.predicate
        realize = stmt.BlockRealize(
            tuple(said.iter_values), predicate, whole, self.program.span(header)
        )
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

    def effect(self, form: forms.Form, node: ast.expr) -> None:
        """A record that stands alone on a line."""
        match form:
            case forms.StoreForm(buffer=buffer, value=given, indices=indices):
                dtype, _, _ = self.made(node, load_parts, buffer, indices)
                converted: PrimExpr = self.made(node, scalar, given, dtype)
                stored = self.made(node, ops.cast_to, converted, dtype)
                self.add(stmt.BufferStore(buffer, stored, indices, span=self.program.span(node)))
            case forms.EvaluateForm(value=value):
                self.add(stmt.Evaluate(value, self.program.span(node)))
            case forms.AccessForm(what=what, regions=regions):
                block = self.block_at(node, f"T.{what}")
                if what in block.regions:
                    raise self.error(node, f"T.{what} is given twice for this block")
                block.regions[what] = tuple(_region(region) for region in regions)
            case forms.WhereForm(condition=condition):
                block = self.block_at(node, "T.where")
                if block.predicate is not None:
                    raise self.error(node, "T.where is given twice for this block")
                block.predicate = condition
            case forms.AttrsForm(of="block", attrs=attrs):
                block = self.block_at(node, "T.block_attr")
                self.merge(block.attrs, attrs, node)
            case forms.AttrsForm(of="function", attrs=attrs):
                if self.bodies[-1].kind != "function":
                    raise self.error(node, "T.func_attr belongs to the top of the kernel")
                if set(attrs) & set(self.attrs):
                    twice = ", ".join(sorted(set(attrs) & set(self.attrs)))
                    raise self.error(node, f"attribute {twice} is set twice")
                symbol = attrs.get("global_symbol", "")
                if not isinstance(symbol, str):
                    raise self.error(node, f"global_symbol is a string, found {describe(symbol)}")
                self.attrs.update(attrs)
            case forms.Form() if isinstance(form, SCOPED):
                self.add(self.opened("", form, node)[1])
            case forms.MetaVar():
                return
            case forms.LoopForm():
                raise self.error(node, "a loop is written `for i in ...:`")
            case forms.BlockForm() | forms.InitForm():
                raise self.error(node, "a block is written `with ...:`")
            case forms.WhileForm() | forms.IfForm() | forms.BranchForm():
                raise self.error(node, "write `with ...:`, or while and if as in Python")
            case forms.AxisForm() | forms.RemapForm():
                raise self.error(node, "name the block variable, as in vi = T.axis.spatial(...)")
            case _:
                raise self.error(node, f"{describe(form)} must be given a name")

    def merge(self, table: dict[str, object], attrs: object, node: ast.expr) -> None:
        """Enter the attributes of a block; the same key may come again with the same value."""
        assert isinstance(attrs, dict)
        for key, value in attrs.items():
            if key in table and table[key] != value:
                raise self.error(
                    node, f"block attribute {key!r} is {table[key]!r} and {value!r} at once"
                )
            table[key] = value


def _numbered(name: str, members: list[forms.AxisForm]) -> list[str]:
    return [name] if len(members) == 1 else [f"{name}_{k}" for k in range(len(members))]


def _region(given: object) -> BufferRegion:
    if isinstance(given, Buffer):
        return BufferRegion(given, tuple(Range(size) for size in given.shape))
    return stmt.regions([given])[0]  # type: ignore[list-item]


def typed_var(name: str, given: object) -> Var | None:
    """The variable that an annotation such as `T.int32` or `T.handle` declares, or None."""
    if isinstance(given, (forms.Word, forms.HandleWord)):
        return Var(name, given.dtype)
    if isinstance(given, Var):
        return given if given.name else given.renamed(name)
    return None


def scalar(value: object, dtype: DataType | None) -> PrimExpr:
    """`value` as an expression; a Python number takes `dtype`.

    Errors: MisuseError if there is no such expression.
    """
    if dtype is not None and isinstance(value, (bool, int, float)):
        return ops.const(value, dtype)
    if isinstance(value, str):
        raise MisuseError(f"expected a scalar expression, found {value!r}", about=value)
    return ops.convert(value)
