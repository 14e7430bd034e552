"""The frames of modules, of graph functions, which build with a BlockBuilder, and of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import override

from relaxpy.errors import BuilderStateError, check_type
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.function_table import known_signature
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.nodes.base_classes import check_name
from relaxpy.ir.relax.rewrite.map_bindings import replace_variables
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script.ir_builder.base import IRBuilder, IRBuilderFrame, TIRFrame as TIRFrame
from relaxpy.script.language.graph_builder import Branch, GraphBuilder, ModuleBuilder
from relaxpy.script.language.kernel_builder import KernelBuilder


class IRModuleFrame(IRBuilderFrame, ModuleBuilder):
    """A module: functions are added when their frames end, or by `I.def_function`."""

    display_name = "I.ir_module"

    def __init__(self) -> None:
        IRBuilderFrame.__init__(self)
        ModuleBuilder.__init__(self)
        self.block_builder = BlockBuilder()
        self.global_vars: dict[str, rx.GlobalVar] = {}
        self.functions: dict[rx.GlobalVar, rx.BaseFunc] = {}
        self.called: set[str] = set()

    @override
    @contextmanager
    def open_context(self, builder: IRBuilder) -> Iterator[None]:
        if builder.frames:
            raise BuilderStateError(f"a module cannot be inside {builder.frames[-1]}")
        yield
        missing = [name for name, var in self.global_vars.items() if var not in self.functions]
        if missing:
            raise BuilderStateError(
                f"function {missing[0]!r} is declared and never defined", rule="TOP-1"
            )
        added = {
            var: func
            for var, func in self.block_builder.get().items()
            if var.name_hint in self.called - self.global_vars.keys()
        }
        functions, global_infos = {**self.functions, **added}, self.devices.global_infos
        builder.set_result(IRModule(functions, self.attrs, global_infos))

    def declare(self, name: str, signature: rx.BaseFunc) -> rx.GlobalVar:
        """Declare a function of this name, with the signature that its callers use.

        Errors:
            BuilderStateError: the module has a function of this name, perhaps a kernel of R.emit_te
                or a function that another one calls.
        """
        check_name(name, "the name of a function")
        check_type(signature, rx.BaseFunc, "expected a function")
        if name in self.global_vars:
            raise _taken(f"the module has two functions named {name!r}", name)
        present = self.block_builder.get().find_function(name) if name in self.called else None
        if isinstance(present, PrimFunc):
            raise _taken(
                f"R.emit_te has already created a kernel {name!r}",
                name,
                "name the kernel with primfunc_name_hint, or declare this function before it",
            )
        if present is not None:
            raise _taken(
                f"the module already has another function {name!r}, which is called",
                name,
                "declare this function before the call, with I.decl_function",
            )
        var = self.global_vars[name] = rx.GlobalVar(name)
        self.block_builder.declare_global(var, known_signature(signature))
        return var

    def define(self, name: str, func: rx.BaseFunc) -> rx.GlobalVar:
        """Add a function, which may have been declared.

        Errors:
            BuilderStateError: the module has a definition of this name.
        """
        check_name(name, "the name of a function")
        declared = self.global_vars.get(name)
        if declared in self.functions:
            raise _taken(f"the module has two functions named {name!r}", name)
        check_type(func, rx.BaseFunc, "expected a function")
        self.called.update(mentioned_globals(func))
        var = self.declare(name, func) if declared is None else declared
        self.functions[var] = func
        self.block_builder.update_func(var, func)
        return var


def _taken(message: str, name: str, hint: str | None = None) -> BuilderStateError:
    """The error that a module has a function of this name."""
    return BuilderStateError(message, rule="TOP-1", about=name, hint=hint)


def add_function(builder: IRBuilder, func: rx.BaseFunc, name: str | None) -> None:
    """Add a function whose frame has ended to the module, or set it as the result.

    Errors:
        BuilderStateError: functions of a module have names.
    """
    module = builder.innermost(IRModuleFrame)
    if module is None:
        builder.set_result(func)
    elif name is None:
        raise BuilderStateError(
            "a function of a module needs a name", hint='R.func_name("main"), or T.func_name in T'
        )
    else:
        module.define(name, func)


class RelaxFrame(IRBuilderFrame):
    """Base of the frames of graph functions."""

    graph: GraphBuilder

    def join(self, builder: IRBuilder) -> None:
        """Use the builder of the enclosing frame.

        Errors:
            BuilderStateError: no binding can be added there.
        """
        enclosing = builder.innermost(RelaxFrame)
        if enclosing is None:
            raise BuilderStateError(
                f"{self} belongs in a graph function", hint="open one: with R.function():"
            )
        enclosing.check_position(str(self))
        self.graph = enclosing.graph

    def check_position(self, directive: str) -> None:
        """Errors: BuilderStateError if `directive` cannot be directly in this frame."""


class SeqExprFrame(RelaxFrame):
    """A sequence, whose bindings are added to the enclosing frame when it ends (NF-14)."""

    display_name = "R.SeqExpr"

    def __init__(self) -> None:
        super().__init__()
        self.outputs: tuple[rx.Var, ...] | None = None
        self.output_vars: tuple[rx.Var, ...] = ()

    @override
    @contextmanager
    def open_context(self, builder: IRBuilder) -> Iterator[None]:
        self.join(builder)
        with self.bindings(is_dataflow=self.graph.builder.current_block_is_dataflow()):
            yield

    @contextmanager
    def bindings(self, *, is_dataflow: bool) -> Iterator[None]:
        """A context whose bindings are added to the enclosing frame, perhaps a dataflow block."""
        inner, count = self.graph.builder, len(self.graph.params)
        with inner.inner_scope():
            if is_dataflow:
                inner.begin_dataflow()
            yield
            if is_dataflow:
                inner.end_dataflow()
            blocks = inner.end_scope(()).blocks
        inner.add_params(self.graph.params[count:])
        outputs = self.outputs or ()
        ordinary = {
            var: rx.Var(var.name_hint, var.struct_info, var.span)
            for var in outputs
            if isinstance(var, rx.DataflowVar)
        }
        seq = rx.SeqExpr(blocks, rx.Tuple(outputs))
        value = inner.splice(replace_variables(seq, ordinary) if ordinary else seq)
        self.output_vars = value.fields  # type: ignore[attr-defined]


class BlockFrame(SeqExprFrame):
    """A dataflow block. `output_vars` are its outputs, known after it has ended."""

    display_name = "R.dataflow"

    @override
    @contextmanager
    def open_context(self, builder: IRBuilder) -> Iterator[None]:
        self.join(builder)
        self.graph.check_block(None)
        with self.bindings(is_dataflow=True):
            yield

    @override
    def check_position(self, directive: str) -> None:
        if self.outputs is not None:
            raise BuilderStateError(f"{directive} follows R.output of its block", rule="SC-7")


class FunctionFrame(RelaxFrame):
    """A graph function."""

    display_name = "R.function"

    def __init__(self, *, is_pure: bool = True, is_private: bool = False) -> None:
        super().__init__()
        self.is_pure = is_pure
        self.is_private = is_private
        self.name: str | None = None
        self.attrs: dict[str, object] = {}
        self.ret_struct_info: rx.StructInfo | None = None
        self.output: rx.Expr | None = None

    @override
    @contextmanager
    def open_context(self, builder: IRBuilder) -> Iterator[None]:
        module = builder.innermost(IRModuleFrame)
        if builder.frames and module is None:
            raise BuilderStateError(
                f"a graph function cannot be inside {builder.frames[-1]}",
                hint="build it with a separate IRBuilder, and R.emit the result",
            )
        names = None if module is None else module.global_vars
        inner = BlockBuilder() if module is None else module.block_builder
        graph = self.graph = GraphBuilder(inner, names)
        with inner.inner_scope():
            yield
            if self.output is None:
                called = "the function" if self.name is None else f"function {self.name!r}"
                raise BuilderStateError(
                    f"{called} returns nothing", rule="AST-11", hint="end it with R.func_ret_value"
                )
            body = inner.end_scope(self.output)
        func = graph.finish(
            graph.params,
            body,
            self.ret_struct_info,
            pure=self.is_pure,
            attrs=self.attrs,
            name=self.name,
            private=self.is_private,
            at=None,
        )
        add_function(builder, func, self.name)

    @override
    def check_position(self, directive: str) -> None:
        if self.output is not None:
            raise BuilderStateError(f"{directive} follows R.func_ret_value", rule="AST-11")


class IfFrame(RelaxFrame):
    """An if with two branches. `var` is its result, known after it has ended."""

    display_name = "R.If"

    def __init__(self, condition: rx.Expr) -> None:
        super().__init__()
        self.condition = condition
        self.branches: dict[bool, BranchFrame] = {}
        self.var: rx.Var | None = None

    @override
    @contextmanager
    def open_context(self, builder: IRBuilder) -> Iterator[None]:
        self.join(builder)
        self.graph.check_if(None)
        yield
        frames = self.branches
        for taken in (True, False):
            if taken not in frames:
                branch = "Then" if taken else "Else"
                raise BuilderStateError(f"with R.If contains no with R.{branch}():", rule="AST-13")
        results = frames[True].result, frames[False].result
        names = [result.name_hint for result in results if result in builder.named]
        then, orelse = frames[True].branch, frames[False].branch
        inner = self.graph.builder
        with inner.inner_scope():  # of the condition, which may be refused
            var = self.graph.emit(
                rx.If(self.condition, then.value, orelse.value),
                None,
                self.graph.common_name(names, None),
                annotation=self.graph.annotation_of((then, orelse)),
            )
            result = inner.end_scope(var)
        self.var = inner.splice(result)  # type: ignore[assignment]

    @override
    def check_position(self, directive: str) -> None:
        raise BuilderStateError("with R.If contains with R.Then(): and with R.Else():")


class BranchFrame(RelaxFrame):
    """A branch, whose value is the variable that is bound last."""

    result: rx.Var
    branch: Branch

    def __init__(self, *, taken: bool) -> None:
        self.taken = taken
        self.display_name = "R.Then" if taken else "R.Else"
        super().__init__()

    @override
    @contextmanager
    def open_context(self, builder: IRBuilder) -> Iterator[None]:
        enclosing = builder.innermost(IfFrame)
        if enclosing is None:
            raise BuilderStateError(f"{self} belongs directly in with R.If(condition):")
        if self.taken in enclosing.branches:
            raise BuilderStateError(f"with R.If contains with {self.display_name}() twice")
        self.graph = enclosing.graph
        with self.graph.builder.inner_scope():
            yield
            last = self.graph.builder.last_binding()
            if last is None or last.var is None:
                raise BuilderStateError(
                    "a branch must end by binding its result", rule="AST-13", hint="R.emit(value)"
                )
            self.result = last.var
            self.branch = self.graph.end_branch(last.var, None)
        enclosing.branches[self.taken] = self


class PrimFuncFrame(IRBuilderFrame):
    """A kernel."""

    display_name = "T.prim_func"

    def __init__(self, *, is_private: bool = False) -> None:
        super().__init__()
        self.name: str | None = None
        self.is_private = is_private

    @override
    @contextmanager
    def open_context(self, builder: IRBuilder) -> Iterator[None]:
        if builder.frames and builder.innermost(IRModuleFrame) is None:
            raise BuilderStateError(f"a kernel cannot be inside {builder.frames[-1]}")
        kernel = self.kernel = KernelBuilder()
        with kernel.body("function") as body:
            yield
        func = kernel.finish(body, self.name, private=self.is_private, at=None)
        add_function(builder, func, self.name)
