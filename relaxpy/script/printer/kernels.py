"""The text of PrimFuncs and their statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from relaxpy.ir.core.dtype import FLOAT32, INT32
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.core.types import PointerType
from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes import GlobalVar
from relaxpy.ir.short_text.document import (
    Concat,
    Doc,
    Group,
    call,
    flat,
    keyword,
    string_text,
    tuple_doc,
)
from relaxpy.ir.short_text.nodes import lambda_variables
from relaxpy.ir.tir import expr as tir, ops, stmt
from relaxpy.ir.tir.buffer import Buffer, BufferRegion
from relaxpy.ir.tir.expr import IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.reduce import Reduce
from relaxpy.script.printer.writer import ELIDED, Names, ScriptText, Writer

_AXES = {
    IterVarKind.DataPar: "spatial",
    IterVarKind.CommReduce: "reduce",
    IterVarKind.Ordered: "scan",
    IterVarKind.Opaque: "opaque",
}
_REMAPPED = {IterVarKind.DataPar: "S", IterVarKind.CommReduce: "R"}
_LOOPS = {
    stmt.ForKind.SERIAL: "serial",
    stmt.ForKind.PARALLEL: "parallel",
    stmt.ForKind.VECTORIZED: "vectorized",
    stmt.ForKind.UNROLLED: "unroll",
}


class KernelWriter:
    """Writes TIR: functions, statements, blocks."""

    def __init__(
        self, writer: Writer, text: ScriptText, names: Names, *, syntax_sugar: bool = True
    ) -> None:
        self.writer = writer
        self.text = text
        self.names = names
        self.syntax_sugar = syntax_sugar
        self.t = text.tir_prefix
        self._loops: dict[int, stmt.For] = {}
        self._threads: set[Var] = set()

    # Functions

    def function(
        self,
        func: PrimFunc,
        name: str,
        *,
        options: Sequence[str] = (),
        attrs: Attrs,
        module: str | None,
    ) -> None:
        """Write `func`; `module` is a line that assigns the module's alias, for functions used."""
        writer, t = self.writer, self.t
        writer.line(f"@{t}.prim_func" + (f"({', '.join(options)})" if options else ""))
        nodes = list(walk(func.body))
        used = _used(nodes)
        params: list[Doc] = []
        matched: list[tuple[str, Buffer]] = []
        owners = Counter(buffer.data for buffer in func.buffer_map.values())
        for param in func.params:
            buffer = func.buffer_of(param)
            if buffer is None:
                params.append(Concat(f"{self.names.bind(param)}: ", self._annotation(param)))
            elif param in used or not self.syntax_sugar or not self._is_declarable(buffer, owners):
                has_name = param.name not in ("", buffer.name)
                handle = self.names.bind(param, param.name if has_name else f"var_{buffer.name}")
                params.append(f"{handle}: {t}.handle")
                matched.append((handle, buffer))
            else:
                spec = call(f"{t}.Buffer", *self._buffer_args(buffer, always_dtype=True))
                params.append(Concat(f"{self._define(buffer)}: ", spec))
        writer.header(name, params, None if func.ret_type is None else f"{t}.{func.ret_type}")
        with writer.indented():
            if attrs:
                writer.line(call(f"{t}.func_attr", self.text.function_attrs_doc(attrs)))
            if module is not None and any(isinstance(n, GlobalVar) for n in nodes):
                writer.line(module)
            for handle, buffer in matched:
                self._declare(_shape_variables(buffer))
                spec = call(f"{t}.match_buffer", handle, *self._buffer_args(buffer))
                writer.line(f"{self._define(buffer)} = ", spec)
            self._declare(_free_variables(func.params, nodes, used))
            self._declare_threads(nodes)
            self._declare_buffers(nodes)
            self._function_body(func.body)

    def _annotation(self, param: Var) -> Doc:
        """The datatype of a parameter, or of the variable of a let statement."""
        kind = param.type_annotation
        if isinstance(kind, PointerType):
            args = [f'"{kind.element_type.dtype}"']
            if kind.storage_scope:
                args.append(string_text(kind.storage_scope))
            return call(f"{self.t}.handle", *args)
        suffix = "(is_size_var=True)" if isinstance(param, tir.SizeVar) else ""
        return f"{self.t}.{param.dtype or 'void'}{suffix}"

    def _declare(self, variables: Iterable[Var]) -> None:
        """Write `n = T.int64()` for each variable without a name."""
        for variable in variables:
            if variable not in self.names:
                spec = flat(self._annotation(variable))
                spec += "" if spec.endswith(")") else "()"
                self.writer.line(f"{self.names.bind(variable)} = {spec}")

    def _declare_threads(self, nodes: Iterable[Node]) -> None:
        """Write `tx = T.env_thread("threadIdx.x")` for each thread that is launched again."""
        seen: set[Var] = set()
        for node in nodes:
            if isinstance(node, stmt.AttrStmt) and (axis := _launched(node)) is not None:
                var = axis.var
                if var in seen and var not in self._threads:
                    self._threads.add(var)
                    extra = [] if var.dtype == INT32 else [keyword("dtype", f'"{var.dtype}"')]
                    spec = call(f"{self.t}.env_thread", string_text(axis.thread_tag), *extra)
                    self.writer.line(f"{self.names.bind(var)} = ", spec)
                seen.add(var)

    def declare_free(self, node: Node) -> None:
        """Write a line that describes each variable and buffer that `node` does not define."""
        nodes = list(walk(node))
        if isinstance(node, IterVar):
            self._declare([node.var])
        self._declare(_free_variables((), nodes, _used(nodes)))
        self._declare_buffers(nodes)

    def _declare_buffers(self, nodes: Sequence[Node]) -> None:
        """Write `A = T.Buffer(...)` for each buffer without a definition among the nodes."""
        defined = {buffer for node in nodes for buffer in _defined_buffers(node)}
        data = {n.buffer_var for n in nodes if isinstance(n, (stmt.Allocate, stmt.AllocateConst))}
        for buffer in dict.fromkeys(n for n in nodes if isinstance(n, Buffer)):
            if buffer not in defined and buffer not in self.names and buffer.data not in data:
                self._declare(_shape_variables(buffer))
                spec = call(f"{self.t}.Buffer", *self._buffer_args(buffer))
                self.writer.line(f"{self._define(buffer)} = ", spec)

    def _function_body(self, body: stmt.Stmt) -> None:
        """Write the body, without a root block that the parser would add."""
        if self.syntax_sugar and isinstance(body, stmt.BlockRealize) and _is_implied_root(body):
            self.writer.line(f'# with {self.t}.block("root"):')
            self._allocations(body.block)
            body = body.block.body
        self.statement(body)

    # Buffers

    def _define(self, buffer: Buffer, hint: str | None = None) -> str:
        """Choose a name for `buffer`; its data is an attribute of it unless it has a name."""
        name = self.names.bind(buffer, hint)
        if buffer.data not in self.names:
            self.names.alias(buffer.data, f"{name}.data")
        return name

    def _is_declarable(self, buffer: Buffer, owners: Mapping[Var, int]) -> bool:
        """True if a parameter can declare `buffer`: the preceding ones define its variables.

        `owners` are the numbers of buffers that have a variable as their data.
        """
        return owners[buffer.data] == 1 and all(v in self.names for v in _shape_variables(buffer))

    def _buffer_args(self, buffer: Buffer, *, always_dtype: bool = False) -> list[Doc]:
        """The arguments that declare `buffer`, without defaults."""
        prim = self.text.prim_doc
        args: list[Doc] = [tuple_doc(map(prim, buffer.shape))]
        if always_dtype or buffer.dtype != FLOAT32:
            args.append(f'"{buffer.dtype}"')
        if buffer.data in self.names:
            args.append(keyword("data", self.names.of(buffer.data)))
        if buffer.strides:
            args.append(keyword("strides", tuple_doc(map(prim, buffer.strides))))
        offset_type = buffer.shape[0].dtype if buffer.shape else INT32
        plain_offset = buffer.elem_offset is ops.const(0, offset_type)
        if not plain_offset or buffer.offset_factor != 1:
            args.append(keyword("elem_offset", prim(buffer.elem_offset)))
        if buffer.scope() != "global":
            args.append(keyword("scope", string_text(buffer.scope())))
        if buffer.data_alignment != 64:
            args.append(f"align={buffer.data_alignment}")
        if buffer.offset_factor != 1:
            args.append(f"offset_factor={buffer.offset_factor}")
        if buffer.buffer_type != 1:
            args.append('buffer_type="auto_broadcast"')
        if buffer.axis_separators:
            args.append(
                keyword("axis_separators", Group("[", map(str, buffer.axis_separators), "]"))
            )
        return args

    def _allocations(self, block: stmt.Block) -> None:
        for buffer in block.alloc_buffers:
            spec = call(f"{self.t}.alloc_buffer", *self._buffer_args(buffer))
            self.writer.line(f"{self._define(buffer)} = ", spec)

    # Statements

    @contextmanager
    def _suite(self) -> Iterator[None]:
        """Write an indented suite with a scope of its own."""
        with self.writer.indented(), self.names.frame():
            yield

    def statement(self, node: stmt.Stmt, *, last: bool = True) -> None:
        """Write a statement; the definitions of the `last` one hold until its suite ends."""
        current: stmt.Stmt | None = node
        if self.writer.is_too_deep:
            self.writer.line(ELIDED)
            return
        while current is not None:
            with self.writer.marked(current):
                current = self._statement(current, last=last)

    def _suite_of(self, body: stmt.Stmt) -> None:
        with self._suite():
            self.statement(body)

    def _scoped(
        self, plain: Sequence[Doc], context: Doc, body: stmt.Stmt, *, last: bool
    ) -> stmt.Stmt | None:
        """Write a statement that precedes `body`, or a `with` that contains it."""
        if last:
            self.writer.line(*plain)
            return body
        self.writer.line("with ", context, ":")
        self._suite_of(body)
        return None

    def _statement(self, node: stmt.Stmt, *, last: bool) -> stmt.Stmt | None:
        """Write `node`, and return the statement that follows in the same suite."""
        t, prim, writer = self.t, self.text.prim_doc, self.writer
        match node:
            case stmt.SeqStmt(seq=()):
                writer.line("pass")
            case stmt.SeqStmt(seq=seq):
                for child in seq[:-1]:
                    self.statement(child, last=False)
                self.statement(seq[-1], last=last)
            case stmt.For():
                self._loop(node)
            case stmt.BlockRealize(block=block):
                self._block(block, node)
            case stmt.Block():
                self._block(node, None)
            case stmt.BufferStore(buffer=buffer, value=value, indices=indices, predicate=None):
                writer.line(self.text.access_doc(buffer, indices), " = ", prim(value))
            case stmt.BufferStore(buffer=buffer, value=value, indices=indices):
                assert node.predicate is not None
                index = Group("[", map(prim, indices), "]")
                mask = keyword("predicate", prim(node.predicate))
                writer.line(call(f"{self.names.of(buffer)}.vstore", index, prim(value), mask))
            case stmt.IfThenElse():
                self._branches(node)
            case stmt.While(condition=condition, body=body):
                writer.line("while ", prim(condition), ":")
                self._suite_of(body)
            case stmt.Evaluate(value=value):
                writer.line(self._evaluated(value))
            case stmt.Allocate(body=stmt.DeclBuffer() as inner) if (
                self.syntax_sugar and _is_declaration(node, inner)
            ):
                with writer.marked(inner):
                    return self._definition(inner, last=last)
            case stmt.LetStmt() | stmt.Allocate() | stmt.AllocateConst() | stmt.DeclBuffer():
                return self._definition(node, last=last)
            case stmt.AssertStmt(condition=condition, message=message, body=body):
                args = (prim(condition), prim(message))
                plain: list[Doc] = ["assert ", args[0], ", ", args[1]]
                return self._scoped(plain, call(f"{t}.Assert", *args), body, last=last)
            case stmt.AttrStmt(node=IterVar() as axis, attr_key="thread_extent", body=body):
                is_declared = axis.var in self._threads
                thread = self.names.of(axis.var) if is_declared else string_text(axis.thread_tag)
                spec = call(f"{t}.launch_thread", thread, prim(node.value))
                if is_declared:
                    return self._scoped([spec], spec, body, last=last)
                return self._named(axis.var, spec, body, last=last)
            case stmt.AttrStmt(
                node=Buffer() as buffer,
                attr_key="realize_scope",
                value=tir.StringImm(value=scope),
                body=stmt.BufferRealize() as realize,
            ) if scope and realize.buffer is buffer:
                spec = self._realize(realize, scope)
                return self._scoped([spec], spec, realize.body, last=last)
            case stmt.AttrStmt(node=target, attr_key=key, value=value, body=body):
                spec = call(f"{t}.attr", self.text.attr_doc(target), string_text(key), prim(value))
                return self._scoped([spec], spec, body, last=last)
            case stmt.BufferRealize(body=body):
                spec = self._realize(node, "")
                return self._scoped([spec], spec, body, last=last)
            case _:
                writer.line(f"<{type(node).__name__}>")
        return None

    def _realize(self, node: stmt.BufferRealize, scope: str) -> Group:
        """The realization of a region; the enclosing attribute has its scope."""
        bounds = tuple(b for b in node.bounds if isinstance(b, Range))
        region = self.text.region_doc(BufferRegion(node.buffer, bounds))
        always = node.condition is ops.const(True)
        condition = [] if always else [self.text.prim_doc(node.condition)]
        return call(f"{self.t}.realize", region, string_text(scope), *condition)

    def _named(
        self, defined: Var | Buffer, spec: Doc, body: stmt.Stmt, *, last: bool
    ) -> stmt.Stmt | None:
        """Write `name = spec`, or a `with` that contains `body`."""
        if last:
            self.writer.line(f"{self._name(defined)} = ", spec)
            return body
        with self.names.frame():
            self.writer.line("with ", spec, f" as {self._name(defined)}:")
            self._suite_of(body)
        return None

    def _name(self, defined: Var | Buffer) -> str:
        return self._define(defined) if isinstance(defined, Buffer) else self.names.bind(defined)

    def _definition(
        self,
        node: stmt.LetStmt | stmt.Allocate | stmt.AllocateConst | stmt.DeclBuffer,
        *,
        last: bool,
    ) -> stmt.Stmt | None:
        t, prim = self.t, self.text.prim_doc
        match node:
            case stmt.LetStmt(var=var, value=value, body=body) if last:
                bound = prim(value)
                self.writer.line(f"{self.names.bind(var)}: ", self._annotation(var), " = ", bound)
                return body
            case stmt.LetStmt(var=var, value=value, body=body):
                if type(var) is Var and var.type_annotation == Var("", value.dtype).type_annotation:
                    return self._named(var, call(f"{t}.LetStmt", prim(value)), body, last=last)
                bound = prim(value)
                self._declare([var])  # its type is not that of the value
                spec = call(f"{t}.LetStmt", bound, keyword("var", self.names.of(var)))
                return self._scoped([], spec, body, last=last)
            case stmt.DeclBuffer(buffer=buffer, body=body):
                self._declare(_shape_variables(buffer))
                spec = call(f"{t}.decl_buffer", *self._buffer_args(buffer))
                return self._named(buffer, spec, body, last=last)
            case stmt.Allocate(buffer_var=var, body=body):
                kind = var.type_annotation
                scope = (kind.storage_scope if isinstance(kind, PointerType) else "") or "global"
                extents = Group("[", map(prim, node.extents), "]")
                args: list[Doc] = [extents, f'"{node.dtype}"', string_text(scope)]
                if not (isinstance(node.condition, tir.IntImm) and node.condition.value):
                    args.append(keyword("condition", prim(node.condition)))
                spec = call(f"{t}.allocate", *args, *self._annotations(node.annotations))
                return self._named(var, spec, body, last=last)
            case stmt.AllocateConst(buffer_var=var, body=body):
                extents = Group("[", map(prim, node.extents), "]")
                args = [self.text.attr_doc(node.data), f'"{node.dtype}"', extents]
                spec = call(f"{t}.allocate_const", *args, *self._annotations(node.annotations))
                return self._named(var, spec, body, last=last)

    def _annotations(self, table: Attrs) -> list[Doc]:
        return [keyword("annotations", self.text.table_doc(table))] if table else []

    def _evaluated(self, value: PrimExpr) -> Doc:
        prim = self.text.prim_doc
        match value:
            case tir.Call(op=Op(name="tir.ret"), args=(result,)):
                return Concat("return ", prim(result))
            case tir.Call():
                return prim(value)
            case _:
                return call(f"{self.t}.evaluate", prim(value))

    def _branches(self, node: stmt.IfThenElse) -> None:
        branch = "if"
        current: stmt.Stmt | None = node
        while isinstance(current, stmt.IfThenElse):
            self.writer.line(f"{branch} ", self.text.prim_doc(current.condition), ":")
            self._suite_of(current.then_case)
            branch, current = "elif", current.else_case
        if current is not None:
            self.writer.line("else:")
            self._suite_of(current)

    # Loops

    def _loop(self, node: stmt.For) -> None:
        nest, outer_vars = [node], {node.loop_var}
        if self.syntax_sugar and _is_plain(node):
            while isinstance(nest[-1].body, stmt.For) and _is_plain(nest[-1].body):
                inner = nest[-1].body
                if any(v in outer_vars for v in walk(inner.extent) if isinstance(v, Var)):
                    break
                nest.append(inner)
                outer_vars.add(inner.loop_var)
        domain = self._domain(nest)
        with self.names.frame():
            targets = ", ".join(self.names.bind(loop.loop_var) for loop in nest)
            self.writer.line(f"for {targets} in ", domain, ":")
            for loop in nest:
                self._loops[id(loop.loop_var)] = loop
            with self.writer.marked(*nest[1:]):
                self._suite_of(nest[-1].body)

    def _domain(self, nest: Sequence[stmt.For]) -> Doc:
        [loop, *inner] = nest
        prim, t = self.text.prim_doc, self.t
        if inner:
            return call(f"{t}.grid", *(prim(n.extent) for n in nest))
        bounds = list(self.text.bounds_docs(loop.min, loop.extent))
        if isinstance(loop.min, tir.IntImm) and loop.min.value == 0:
            bounds = [prim(loop.extent)]
        extra = self._annotations(loop.annotations)
        if loop.thread_binding is not None:
            thread = keyword("thread", string_text(loop.thread_binding.thread_tag))
            return call(f"{t}.thread_binding", *bounds, thread, *extra)
        if loop.kind == stmt.ForKind.SERIAL and not extra:
            return call("range", *bounds)
        return call(f"{t}.{_LOOPS.get(loop.kind, 'serial')}", *bounds, *extra)

    # Blocks

    def _block(self, block: stmt.Block, realize: stmt.BlockRealize | None) -> None:
        t, prim, writer = self.t, self.text.prim_doc, self.writer
        head: list[Doc] = [string_text(block.name_hint)]
        if realize is None:
            head.append("no_realize=True")
        writer.line("with ", call(f"{t}.block", *head), ":")
        with self._suite():
            values = realize.iter_values if realize is not None else [None] * len(block.iter_vars)
            self._axes(list(zip(block.iter_vars, values, strict=True)))
            if realize is not None and realize.predicate is not ops.const(True):
                writer.line(call(f"{t}.where", prim(realize.predicate)))
            for name, regions in (("reads", block.reads), ("writes", block.writes)):
                writer.line(call(f"{t}.{name}", *map(self.text.region_doc, regions)))
            if block.annotations:
                writer.line(call(f"{t}.block_attr", self.text.table_doc(block.annotations)))
            self._allocations(block)
            for match in block.match_buffers:
                self.matched(match)
            if block.init is not None:
                writer.line(f"with {t}.init():")
                self._suite_of(block.init)
            self.statement(block.body)

    def matched(self, match: stmt.MatchBufferRegion) -> None:
        """Write the buffer that views a region."""
        self._declare(_shape_variables(match.buffer))
        source = self.text.region_doc(match.source)
        spec = call(f"{self.t}.match_buffer", source, *self._buffer_args(match.buffer))
        self.writer.line(f"{self._define(match.buffer)} = ", spec)

    def _axes(self, axes: list[tuple[IterVar, PrimExpr | None]]) -> None:
        """Write the axes of a block; consecutive ones whose domains are loops by `remap`."""
        start = 0
        while start < len(axes):
            stop = start
            while stop < len(axes) and self._follows_loop(*axes[stop]):
                stop += 1
            if stop - start > 1:
                run = axes[start:stop]
                letters = "".join(_REMAPPED[axis.iter_type] for axis, _ in run)
                loops = Group("[", (self.text.prim_doc(v) for _, v in run if v is not None), "]")
                targets = ", ".join(self.names.bind(axis.var) for axis, _ in run)
                spec = call(f"{self.t}.axis.remap", f'"{letters}"', loops)
                self.writer.line(f"{targets} = ", spec)
                start = stop
            else:
                self._axis(*axes[start])
                start += 1

    def _follows_loop(self, axis: IterVar, value: PrimExpr | None) -> bool:
        loop = self._loops.get(id(value)) if self.syntax_sugar else None
        if loop is None or axis.iter_type not in _REMAPPED or axis.dom is None:
            return False
        return axis.dom.min is loop.min and axis.dom.extent is loop.extent

    def _axis(self, axis: IterVar, value: PrimExpr | None) -> None:
        domain: Doc = "None"
        if axis.dom is not None:
            start, stop = self.text.bounds_docs(axis.dom.min, axis.dom.extent)
            domain = tuple_doc((start, stop))
            if isinstance(axis.dom.min, tir.IntImm) and axis.dom.min.value == 0:
                domain = self.text.prim_doc(axis.dom.extent)
        args = [domain] if value is None else [domain, self.text.prim_doc(value)]
        spec = call(f"{self.t}.axis.{_AXES.get(axis.iter_type, 'opaque')}", *args)
        self.writer.line(f"{self.names.bind(axis.var)} = ", spec)


def _is_plain(loop: stmt.For) -> bool:
    """True if the loop is serial, starts at 0, and has no annotations."""
    return (
        loop.kind == stmt.ForKind.SERIAL
        and isinstance(loop.min, tir.IntImm)
        and loop.min.value == 0
        and not loop.annotations
        and loop.thread_binding is None
    )


def _is_implied_root(realize: stmt.BlockRealize) -> bool:
    """True if this is the root block that the parser would add."""
    block = realize.block
    fields = (block.iter_vars, block.reads, block.writes, block.annotations, block.match_buffers)
    if any(fields) or block.init is not None:
        return False
    if block.name_hint != "root" or realize.predicate is not ops.const(True):
        return False
    if block.alloc_buffers:
        return True
    body = block.body
    if isinstance(body, stmt.BlockRealize) and not body.iter_values:
        return False
    return any(isinstance(n, stmt.Block) for n in walk(body))


def _is_declaration(node: stmt.Allocate, inner: stmt.DeclBuffer) -> bool:
    """True if the two are one `T.decl_buffer` without data, which allocates."""
    buffer, kind = inner.buffer, node.buffer_var.type_annotation
    return (
        buffer.data is node.buffer_var
        and node.dtype == buffer.dtype
        and isinstance(kind, PointerType)
        and kind.element_type.dtype == buffer.dtype
        and node.condition is ops.const(True)
        and not node.annotations
        and len(node.extents) == len(buffer.shape)
        and all(a is b for a, b in zip(node.extents, buffer.shape, strict=True))
    )


def _buffer_variables(buffer: Buffer) -> Iterator[Var]:
    """The variables of `buffer`, including its data."""
    return (n for child in children(buffer) for n in walk(child) if isinstance(n, Var))


def _shape_variables(buffer: Buffer) -> Iterator[Var]:
    """The variables of `buffer` other than its data."""
    return (var for var in _buffer_variables(buffer) if var is not buffer.data)


def _launched(node: stmt.AttrStmt) -> IterVar | None:
    """The thread index if the statement is a `T.launch_thread`."""
    axis = node.node
    return axis if isinstance(axis, IterVar) and node.attr_key == "thread_extent" else None


def _used(nodes: Sequence[Node]) -> dict[Var, None]:
    """The variables among the nodes, except those of lambdas, and the memory that views name."""
    of_lambdas = {v for n in nodes for v in lambda_variables(n)}
    used = {n: None for n in nodes if isinstance(n, Var) and n not in of_lambdas}
    used.update((n.buffer.data, None) for n in nodes if isinstance(n, stmt.DeclBuffer))
    return used


def _defined_buffers(node: Node) -> Iterable[Buffer]:
    match node:
        case stmt.DeclBuffer(buffer=buffer) | stmt.MatchBufferRegion(buffer=buffer):
            return (buffer,)
        case stmt.Block(alloc_buffers=allocated):
            return allocated
        case _:
            return ()


def _free_variables(
    params: Iterable[Var], nodes: Sequence[Node], used: dict[Var, None]
) -> Iterator[Var]:
    """The variables of `used` that neither a parameter nor a statement defines."""
    defined: set[Node] = set(params)
    attrs = (node for node in nodes if isinstance(node, stmt.AttrStmt) and not _launched(node))
    mentioned = {node.node for node in attrs if isinstance(node.node, IterVar)}
    mentioned.update(axis for node in nodes if isinstance(node, Reduce) for axis in node.axis)
    views = {node.buffer for node in nodes if isinstance(node, stmt.DeclBuffer)}
    for node in nodes:
        match node:
            case IterVar() if node in mentioned:  # T.iter_var takes a variable that is defined
                pass
            case stmt.For(loop_var=var) | stmt.LetStmt(var=var) | IterVar(var=var):
                defined.add(var)
            case stmt.Allocate(buffer_var=var) | stmt.AllocateConst(buffer_var=var):
                defined.add(var)
            case Buffer():
                variables = _shape_variables if node in views else _buffer_variables
                defined.update(variables(node))
            case _:
                pass
    return (variable for variable in used if variable not in defined)
