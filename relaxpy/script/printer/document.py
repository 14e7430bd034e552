"""The text of any printable node, from a module to a single variable."""

from __future__ import annotations

from relaxpy.errors import MisuseError
from relaxpy.ir.core.device import Device
from relaxpy.ir.core.node import Node
from relaxpy.ir.global_info import GlobalInfo
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.nodes.distributed import Placement
from relaxpy.ir.relax.nodes.python_function import is_python_function, text_of
from relaxpy.ir.relax.nodes.static_type import Type, wrap_type
from relaxpy.ir.short_text.document import Concat, Doc, Group, call, constant_literal, string_text
from relaxpy.ir.short_text.nodes import short_text
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer, BufferRegion
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import MatchBufferRegion, SeqStmt, Stmt
from relaxpy.script.printer.graphs import GraphWriter
from relaxpy.script.printer.kernels import KernelWriter
from relaxpy.script.printer.writer import (
    METADATA,
    ListedInfos,
    Marks,
    Metadata,
    Names,
    Options,
    ScriptText,
    Writer,
    function_names,
)

OMITTED = "# Metadata omitted. Use show_meta=True in script() method to show it."
_GRAPH_NODES = (rx.Expr, rx.BindingBlock, rx.VarBinding, rx.MatchCast, rx.StructInfo)


class Document:
    """One printed text, and the metadata that it mentions."""

    def __init__(self, node: Node, options: Options, marks: Marks | None = None) -> None:
        self.options = options
        self.marks = marks
        self.metadata = Metadata()
        self.writer = Writer(options, node, marks)
        self._title = options.name or "Module"
        self._listed = ListedInfos.of(node) if isinstance(node, IRModule) else ListedInfos()
        self._reserved = {
            options.ir_prefix,
            options.tir_prefix,
            options.relax_prefix,
            options.module_alias,
            self._title,
            METADATA,
        }
        match node:
            case IRModule():
                self._module(node)
            case rx.Function() | PrimFunc():
                self._lone_function(node)
            case _:
                self._fragment(node)

    def text(self) -> str:
        """The complete text, with metadata as requested by the options."""
        lines = self.writer.lines
        if self.marks is not None:
            lines = self.marks.finished(lines, self.options)
        if not self.metadata.table:
            return "\n".join(lines)
        if not self.options.show_meta:
            return "\n".join([*lines, "", OMITTED])
        start = 0
        while start < len(lines) and (not lines[start] or lines[start].startswith("#")):
            start += 1
        return "\n".join([*lines[:start], *self._metadata_lines(), "", *lines[start:]])

    def _metadata_lines(self) -> list[str]:
        """The assignment of the metadata, in which constants are literals."""
        writer = Writer(self.options, IRModule())
        tables: list[Doc] = []
        for key, values in self.metadata.table.items():
            docs = (
                call(f"{self.options.relax_prefix}.const", *constant_literal(value.data))
                if isinstance(value, rx.Constant)
                else repr(value)
                for value in values
            )
            tables.append(Concat(f"{string_text(key)}: ", Group("[", docs, "]")))
        writer.line(f"{METADATA} = ", Group("{", tables, "}"))
        return writer.lines

    # Programs

    def _text(self, names: Names) -> ScriptText:
        names.marks = self.marks
        names.show_address = self.options.show_object_address
        return ScriptText(names, self.options, self.metadata, self._listed)

    def _writers(self, names: Names) -> tuple[GraphWriter, KernelWriter]:
        text = self._text(names)
        graphs = GraphWriter(self.writer, text, names, self.options)
        return graphs, KernelWriter(
            self.writer, text, names, syntax_sugar=self.options.syntax_sugar
        )

    def _function(
        self,
        func: rx.Function | PrimFunc,
        hint: str,
        name: str,
        names: Names,
        module: str | None = None,
    ) -> None:
        """Write the function `hint` under the name `name`; `module` assigns the module's alias."""
        symbol = func.attrs.get("global_symbol")
        attrs = func.attrs.without("global_symbol") if symbol == hint else func.attrs
        graphs, kernels = self._writers(names)
        options = ["private=True"] if symbol is None else []
        options += [] if name == hint else [f"name={string_text(hint)}"]
        with self.writer.marked(func):
            if isinstance(func, PrimFunc):
                kernels.function(func, name, options=options, attrs=attrs, module=module)
            else:
                graphs.function(func, name, options=options, attrs=attrs, module=module)

    def _lone_function(self, func: rx.Function | PrimFunc) -> None:
        relax = isinstance(func, rx.Function)
        relax = relax or any(isinstance(value, rx.Expr) for value in func.attrs.values())
        self._header(ir=False, relax=relax, tir=True)
        hint = self.options.name or str(func.attrs.get("global_symbol") or "main")
        callees = getattr(func, "callees", {})
        if hint in callees:
            raise MisuseError(f"{hint!r} is the name of a function that this one calls")
        names = function_names([hint, *callees], self._reserved - {self._title})
        if not callees:
            self._function(func, hint, names[hint], Names(self._reserved))
            return
        for symbol, definition in {**callees, hint: func}.items():
            if self.writer.lines[-1]:
                self.writer.blank()
            mentioned = {names[name] for name in mentioned_globals(definition) if name in names}
            variables = Names(self._reserved | mentioned, names)
            self._function(definition, symbol, names[symbol], variables)

    def _module(self, module: IRModule) -> None:
        functions = module.functions
        kernels = any(isinstance(f, PrimFunc) for f in functions.values())
        graphs = any(not isinstance(f, PrimFunc) for f in functions.values())
        python = any(map(is_python_function, functions.values())) or module.is_python_class
        self._header(ir=True, relax=graphs, tir=kernels or graphs, python=python)
        options, writer = self.options, self.writer
        with writer.marked(module):
            writer.line(f"@{options.ir_prefix}.ir_module")
            header = f"class {self._title}(BasePyModule):" if python else f"class {self._title}:"
            writer.line(header)
            prefix = options.module_alias or self._title
            members = function_names(
                (var.name_hint for var in functions), self._reserved - {options.module_alias}
            )
            qualified = {hint: f"{prefix}.{name}" for hint, name in members.items()}
            alias = f"{prefix} = {self._title}" if options.module_alias else None
            with writer.indented():
                self._module_tables(module)
                for var, func in functions.items():
                    if writer.lines[-1] != header:
                        writer.blank()
                    name, names = members[var.name_hint], Names(self._reserved, qualified)
                    if isinstance(func, (rx.Function, PrimFunc)):
                        self._function(func, var.name_hint, name, names, alias)
                    elif is_python_function(func):
                        writer.line(f"@{options.ir_prefix}.pyfunc")
                        text = text_of(func) or f"def {name}(self, *args): ...  # text unknown"
                        writer.verbatim(text)
                    else:
                        writer.line(f"{name} = ", self._text(names).leaf_doc(func))
                if writer.lines[-1] == header:
                    writer.line("pass")

    def _module_tables(self, module: IRModule) -> None:
        # Here a device is written in full: its name in the list is known only after this line.
        text = ScriptText(Names(self._reserved), self.options, self.metadata, ListedInfos({}))
        prefix = self.options.ir_prefix
        if module.attrs:
            self.writer.line(call(f"{prefix}.module_attrs", text.function_attrs_doc(module.attrs)))
        if module.global_infos:
            table = text.table_doc(module.global_infos)
            self.writer.line(call(f"{prefix}.module_global_infos", table))

    def _header(self, *, ir: bool, relax: bool, tir: bool, python: bool = False) -> None:
        """Write a comment with the imports that the text needs."""
        options = self.options
        namespaces = [
            ("ir", options.ir_prefix, ir),
            ("relax", options.relax_prefix, relax),
            ("tir", options.tir_prefix, tir),
        ]
        names = (f"{name} as {prefix}" for name, prefix, is_used in namespaces if is_used)
        self.writer.line(f"# from relaxpy.script import {', '.join(names)}")
        if python:
            self.writer.line("# from relaxpy.relax import BasePyModule")
        self.writer.blank()

    # Fragments

    def _fragment(self, node: Node) -> None:
        """Write a part of a program."""
        graphs, kernels = self._writers(Names(self._reserved))
        text = graphs.text
        if isinstance(node, Type):
            node = wrap_type(node)
        if self.options.verbose_expr:
            (graphs if isinstance(node, _GRAPH_NODES) else kernels).declare_free(node)
        match node:
            case rx.BindingBlock() | rx.VarBinding() | rx.MatchCast() | rx.Expr():
                graphs.fragment(node)
            case MatchBufferRegion():
                kernels.matched(node)
            case Stmt():  # a `with` shows where the scope of a definition ends
                kernels.statement(node, last=isinstance(node, SeqStmt))
            case rx.StructInfo():
                self.writer.line(text.struct_info_doc(node))
            case tir.PrimExpr():
                self.writer.line(text.prim_doc(node))
            case Buffer():
                self.writer.line(text.name_of(node))
            case BufferRegion():
                self.writer.line(text.region_doc(node))
            case GlobalInfo() | Device() | Placement() | IterVar():
                self.writer.line(text.attr_doc(node))
            case _:
                self.writer.line(short_text(node))
