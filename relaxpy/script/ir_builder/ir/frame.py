"""The frame of a module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from typing_extensions import override

from relaxpy.errors import BuilderStateError, check_type
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.function_table import known_signature
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.nodes import BaseFunc, GlobalVar
from relaxpy.ir.relax.nodes.base import check_name
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script.ir_builder.base import IRBuilder, IRBuilderFrame
from relaxpy.script.language.annotations import Devices


class IRModuleFrame(IRBuilderFrame):
    """A module: functions are added when their frames end, or by `I.def_function`."""

    display_name = "I.ir_module"

    def __init__(self) -> None:
        super().__init__()
        self.block_builder = BlockBuilder()
        self.global_vars: dict[str, GlobalVar] = {}
        self.functions: dict[GlobalVar, BaseFunc] = {}
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

    def declare(self, name: str, signature: BaseFunc) -> GlobalVar:
        """Declare a function of this name, with the signature that its callers use.

        Errors:
            BuilderStateError: the module has a function of this name, perhaps a kernel of R.emit_te
                or a function that another one calls.
        """
        check_name(name, "the name of a function")
        check_type(signature, BaseFunc, "expected a function")
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
        var = self.global_vars[name] = GlobalVar(name)
        self.block_builder.declare_global(var, known_signature(signature))
        return var

    def define(self, name: str, func: BaseFunc) -> GlobalVar:
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
        check_type(func, BaseFunc, "expected a function")
        self.called.update(mentioned_globals(func))
        var = self.declare(name, func) if declared is None else declared
        self.functions[var] = func
        self.block_builder.update_func(var, func)
        return var


def add_function(builder: IRBuilder, func: BaseFunc, name: str | None) -> None:
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
