"""Checks module arguments of public functions; a function becomes a module."""

from __future__ import annotations

import os
from os import PathLike
from typing import Final

from relaxpy.errors import MisuseError
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.prim_func import PrimFunc

#: Hints how to convert objects to modules, by the package and the name of their class.
_IMPORTERS: Final = {
    ("torch", "ExportedProgram"): "relaxpy.relax.frontend.torch.from_exported_program(program) "
    "makes a module of it",
    ("torch", "GraphModule"): "relaxpy.relax.frontend.torch.from_fx(model, inputs) makes a module "
    "of it",
    ("torch", "Module"): "relaxpy.relax.frontend.torch.from_exported_program(torch.export.export("
    "model, example_args)) makes a module of it",
    ("onnx", "ModelProto"): "relaxpy.relax.frontend.onnx.from_onnx(model) makes a module of it",
    ("relaxpy", "Module"): "model.jit(spec) compiles it, and model.export_tvm(spec) makes a module "
    "of it",
}
#: Hints how to read files, by suffix.
_READERS: Final = {
    ".onnx": "relaxpy.relax.frontend.onnx.from_onnx(path) makes a module of it",
    ".pt2": "torch.export.load(path) reads it, and from_exported_program makes a module of that",
    ".py": "import the program, or read its text by relaxpy.script.from_source",
    ".json": "relaxpy.ir.load_json(text) reads a module",
}


def as_module(mod: object, taker: str) -> IRModule:
    """The module, or one with the function `mod`.

    Errors:
        MisuseError (also TypeError): it is neither; `taker` is the function that takes it.
    """
    if isinstance(mod, IRModule):
        return mod
    if isinstance(mod, (rx.Function, PrimFunc)):
        if "global_symbol" not in mod.attrs:
            mod = mod.with_attr("global_symbol", "main")
        return IRModule.from_expr(mod)
    found, hint = type(mod).__name__, None
    if isinstance(mod, type):
        found, hint = (
            f"the class {mod.__name__}",
            f"decorate it: @I.ir_module class {mod.__name__}",
        )
    elif callable(mod) and hasattr(mod, "__code__"):
        found, hint = ("a plain Python function", "decorate it with @R.function or @T.prim_func")
    elif isinstance(mod, str) and not mod.endswith(tuple(_READERS)):
        found, hint = "a string", "relaxpy.script.from_source(text) reads a program"
    elif isinstance(mod, (str, PathLike)):
        found, hint = f"the path {str(mod)!r:.60}", _READERS.get(os.path.splitext(mod)[1])
    else:
        names = ((cls.__module__.partition(".")[0], cls.__name__) for cls in type(mod).__mro__)
        hint = next((_IMPORTERS[name] for name in names if name in _IMPORTERS), None)
    raise MisuseError(
        f"{taker} takes an IRModule or a function, found {found}", about=mod, hint=hint
    )
