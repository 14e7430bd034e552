"""The frames of modules, of graph functions, which build with a BlockBuilder, and of kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

from typing_extensions import override

from relaxpy.errors import BuilderStateError, check_type
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.function_table import known_signature
from relaxpy.ir.relax.block_builder.normalize import is_leaf
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.nodes.base_classes import check_name
from relaxpy.ir.relax.relations import is_base_of, struct_info_lca
from relaxpy.ir.relax.rewrite.map_bindings import replace_variables
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script.ir_builder.base import IRBuilder, IRBuilderFrame, TIRFrame as TIRFrame
from relaxpy.script.language.annotations import Devices
from relaxpy.script.language.kernel_builder import KernelBuilder


class IRModuleFrame(IRBuilderFrame):
    """A module: functions are added when their frames end, or by `I.def_function`."""

    display_name = "I.ir_module"

    def __init__(self) -> None:
        super().__init__()
        self.block_builder = BlockBuilder()
        self.global_vars: dict[str, rx.GlobalVar] = {}
        self.functions: dict[rx.GlobalVar, rx.BaseFunc] = {}
        self.called: set[str] = set()
        self.attrs: dict[str, object] = {}
        self.global_infos: dict[str, Sequence[object]] = {}
        self.devices = Devices()
        self.devices.global_infos = self.global_infos

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
        builder.set_result(IRModule({**self.functions, **added}, self.attrs, self.global_infos))

    def declare(self, name: str, signature: rx.BaseFunc) -> rx.GlobalVar:
        """Declare a function of this name, with the signature that its callers use.

        Errors:
            BuilderStateError: the module has a function of this name, perhaps a kernel of R.emit_te
                or a function that another one calls.
        """
        check_name(name, "the name of a function")
        check_type(signature, rx.BaseFunc, "expected a function")
        if name in self.global_vars:
            raise BuilderStateError(
                f"the module has two functions named {name!r}", rule="TOP-1", about=name
            )
        present = self.block_builder.get().find_function(name) if name in self.called else None
        if present is not None:
            is_kernel = isinstance(present, PrimFunc)
            raise BuilderStateError(
                f"R.emit_te has already created a kernel {name!r}"
                if is_kernel
                else f"the module already has another function {name!r}, which is called",
                rule="TOP-1",
                about=name,
                hint="name the kernel with primfunc_name_hint, or declare this function before it"
                if is_kernel
                else "declare this function before the call, with I.decl_function",
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
            raise BuilderStateError(
                f"the module has two functions named {name!r}", rule="TOP-1", about=name
            )
        check_type(func, rx.BaseFunc, "expected a function")
        self.called.update(mentioned_globals(func))
        var = self.declare(name, func) if declared is None else declared
        self.functions[var] = func
        self.block_builder.update_func(var, func)
        return var


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
    """Base of the frames of graph functions; `bound` has their variables with annotations.

    `params` are those of the function, or those that were added in this frame.
    """

    block_builder: BlockBuilder

    def __init__(self) -> None:
        super().__init__()
        self.bound: dict[rx.Var, rx.StructInfo | None] = {}
        self.params: list[rx.Var] = []

    def pass_params(self, enclosing: RelaxFrame) -> None:
        """Pass the parameters that were added in this frame to the enclosing one."""
        self.block_builder.add_params(self.params)
        if not isinstance(enclosing, FunctionFrame):
            enclosing.params += self.params

    def join(self, builder: IRBuilder) -> RelaxFrame:
        """The enclosing frame, whose builder this one uses.

        Errors:
            BuilderStateError: no binding can be added there.
        """
        enclosing = builder.innermost(RelaxFrame)
        if enclosing is None:
            raise BuilderStateError(
                f"{self} belongs in a graph function", hint="open one: with R.function():"
            )
        enclosing.check_position(str(self))
        self.block_builder = enclosing.block_builder
        return enclosing

    def check_position(self, directive: str) -> None:
        """Errors: BuilderStateError if `directive` cannot be directly in this frame."""


@contextmanager
def scope(builder: BlockBuilder) -> Iterator[None]:
    """Open a SeqExpr, which the body of the context ends; on an error it is dropped."""
    builder.begin_scope()
    try:
        yield
    except BaseException:
        builder.end_scope()
        raise


class Rebinding:
    """Copies the bindings of a scope into the enclosing one.

    `outputs` of dataflow blocks become ordinary variables. `table` maps variables to their copies.
    """

    def __init__(self, builder: BlockBuilder, outputs: tuple[rx.Var, ...] = ()) -> None:
        self.builder = builder
        self.outputs = outputs
        self.table: dict[rx.Var, rx.Var] = {}

    def blocks(self, blocks: tuple[rx.BindingBlock, ...], *, inside: bool = False) -> None:
        """Copy blocks; those `inside` a dataflow block become part of it."""
        for block in blocks:
            is_dataflow = isinstance(block, rx.DataflowBlock) and not inside
            if is_dataflow:
                self.builder.begin_dataflow()
            for binding in block.bindings:
                self.binding(binding)
            if is_dataflow:
                self.builder.end_dataflow()

    def binding(self, binding: rx.Binding) -> None:
        """Copy a binding."""
        var, new = binding.var, binding.var
        if var is not None and var in self.outputs and isinstance(var, rx.DataflowVar):
            new = rx.Var(var.name_hint, var.struct_info, var.span)
        value = replace_variables(binding.value, self.table)
        if isinstance(binding, rx.MatchCast):
            sinfo = replace_variables(binding.struct_info, self.table)
            copy = self.builder.match_cast(value, sinfo, bind=new is not None, var=new)
        else:
            copy = self.builder.emit(value, var=new)
        if var is not None and copy is not None and copy is not var:
            self.table[var] = copy


class SeqExprFrame(RelaxFrame):
    """A sequence, whose bindings are added to the enclosing frame (NF-14)."""

    display_name = "R.SeqExpr"

    @override
    @contextmanager
    def open_context(self, builder: IRBuilder) -> Iterator[None]:
        enclosing, inner = self.join(builder), self.block_builder
        in_dataflow = inner.current_block_is_dataflow()
        with scope(inner):
            if in_dataflow:
                inner.begin_dataflow()
            yield
            if in_dataflow:
                inner.end_dataflow()
            blocks = inner.end_scope(rx.Tuple(())).blocks
        self.pass_params(enclosing)
        Rebinding(inner).blocks(blocks, inside=in_dataflow)
        if blocks and not self.bound:  # the last block is a dataflow block
            enclosing.bound.clear()
        enclosing.bound |= self.bound


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
        self.block_builder = BlockBuilder() if module is None else module.block_builder
        with scope(self.block_builder):
            yield
            display_name = "the function" if self.name is None else f"function {self.name!r}"
            if self.output is None:
                raise BuilderStateError(
                    f"{display_name} returns nothing",
                    rule="AST-11",
                    hint="end it with R.func_ret_value",
                )
            body = self.block_builder.end_scope(self.output)
        if self.is_private and "global_symbol" in self.attrs:
            raise BuilderStateError(
                f"private {display_name.removeprefix('the ')} has a global_symbol"
            )
        if self.name is not None and not self.is_private:
            self.attrs.setdefault("global_symbol", self.name)
        params, attrs = tuple(self.params), Attrs(self.attrs)
        func = rx.Function(params, body, self.ret_struct_info, self.is_pure, attrs)
        add_function(builder, self.block_builder.normalize_function(func), self.name)

    @override
    def check_position(self, directive: str) -> None:
        if self.output is not None:
            raise BuilderStateError(f"{directive} follows R.func_ret_value", rule="AST-11")


class BlockFrame(RelaxFrame):
    """A dataflow block. `output_vars` are its outputs, known after it has ended."""

    display_name = "R.dataflow"

    def __init__(self) -> None:
        super().__init__()
        self.outputs: tuple[rx.Var, ...] | None = None
        self.output_vars: tuple[rx.Var, ...] = ()

    @override
    @contextmanager
    def open_context(self, builder: IRBuilder) -> Iterator[None]:
        enclosing, inner = self.join(builder), self.block_builder
        if inner.current_block_is_dataflow():
            raise BuilderStateError("a dataflow block cannot be inside another one")
        with scope(inner):
            inner.begin_dataflow()
            yield
            inner.end_dataflow()
            blocks = inner.end_scope(rx.Tuple(())).blocks
        self.pass_params(enclosing)
        rebinding = Rebinding(inner, self.outputs or ())
        rebinding.blocks(blocks)
        self.output_vars = tuple(rebinding.table.get(var, var) for var in rebinding.outputs)
        enclosing.bound.clear()  # the result of a branch is bound directly in it

    @override
    def check_position(self, directive: str) -> None:
        if self.outputs is not None:
            raise BuilderStateError(f"{directive} follows R.output of its block", rule="SC-7")


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
        enclosing = self.join(builder)
        if self.block_builder.current_block_is_dataflow():
            raise BuilderStateError("an if cannot be inside a dataflow block", rule="WF-7c")
        yield
        then, orelse = self.branches.get(True), self.branches.get(False)
        if then is None or orelse is None:
            branch = "Then" if then is None else "Else"
            raise BuilderStateError(f"with R.If contains no with R.{branch}():", rule="AST-13")
        annotations = [*then.annotations, *orelse.annotations]
        self.var = self.block_builder.emit(
            rx.If(self.condition, then.value, orelse.value),
            self.result_name(builder, then, orelse),
            annotation=reduce(struct_info_lca, annotations) if annotations else None,
        )
        enclosing.bound[self.var] = None

    def result_name(self, builder: IRBuilder, then: BranchFrame, orelse: BranchFrame) -> str:
        """The name of the result; if it is empty, the builder chooses one."""
        names = {f.result.name_hint for f in (then, orelse) if f.result in builder.named}
        if len(names) > 1:
            raise BuilderStateError(
                f"the branches bind {then.result.name_hint!r} and {orelse.result.name_hint!r} "
                "last, they must agree",
                rule="AST-13",
            )
        return names.pop() if names else ""

    @override
    def check_position(self, directive: str) -> None:
        raise BuilderStateError("with R.If contains with R.Then(): and with R.Else():")


class BranchFrame(RelaxFrame):
    """A branch, whose value is the variable that is bound last."""

    result: rx.Var
    value: rx.SeqExpr

    def __init__(self, *, taken: bool) -> None:
        self.taken = taken
        self.display_name = "R.Then" if taken else "R.Else"
        super().__init__()
        self.annotations: list[rx.StructInfo] = []

    @override
    @contextmanager
    def open_context(self, builder: IRBuilder) -> Iterator[None]:
        enclosing = builder.innermost(IfFrame)
        if enclosing is None:
            raise BuilderStateError(f"{self} belongs directly in with R.If(condition):")
        if self.taken in enclosing.branches:
            raise BuilderStateError(f"with R.If contains with {self.display_name}() twice")
        self.block_builder = enclosing.block_builder
        with scope(self.block_builder):
            yield
            if not self.bound:
                raise BuilderStateError(
                    "a branch must end by binding its result", rule="AST-13", hint="R.emit(value)"
                )
            self.result, annotation = self.bound.popitem()
            self.value = self.block_builder.end_scope(self.result)
        self.take_leaf(annotation)
        enclosing.branches[self.taken] = self

    def take_leaf(self, annotation: rx.StructInfo | None) -> None:
        """A leaf that is bound last instead of its variable."""
        *blocks, block = self.value.blocks
        *first, last = block.bindings
        if not isinstance(last, rx.VarBinding) or not is_leaf(last.value):
            return
        if annotation is not None:
            if not is_base_of(annotation, self.block_builder.struct_info_of(last.value)):
                return
            self.annotations.append(annotation)
        blocks += [rx.BindingBlock(tuple(first))] if first else []
        value = self.block_builder.normalize(rx.SeqExpr(tuple(blocks), last.value))
        assert isinstance(value, rx.SeqExpr)
        self.value = value


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
        symbol = None if self.is_private else self.name
        private_as = self.name or "" if self.is_private else None
        func = kernel.finish(body, symbol, private_as=private_as, at=None)
        add_function(builder, func, self.name)
