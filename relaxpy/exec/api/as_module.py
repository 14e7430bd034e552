"""The modules of models: programs, objects of other packages, and files.

Plug-ins read what is not a program of relaxpy: `Plugin.models` lists it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from typing import Any, Final, TypeGuard

from relaxpy import plugin
from relaxpy.errors import MisuseError, UnknownNameError
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.entry import user_facing

#: Hints for objects, by the package and the name of their class, and for suffixes of files.
_HINTS: Final = {
    "relaxpy.Module": "model.jit(spec) compiles it, and model.export_tvm(spec) makes a module of "
    "it",
    "builtins.bytes": "relaxpy.load(path) reads a file, and onnx.load_model_from_string(data) "
    "the bytes of one",
    "sklearn.BaseEstimator": "skl2onnx.to_onnx(model, X) makes an ONNX model of it, which is "
    'taken; with options={"zipmap": False}, probabilities of a classifier are an array',
    "builtins.dict": "weights are not a program: pass the torch module that has them, or load them "
    "into one",
    ".gguf": "relaxpy.llm.load(path) reads a language model",
    ".safetensors": "relaxpy.llm.load(folder) reads a language model, and "
    "relaxpy.relax.open_weights(path) the weights alone",
    **dict.fromkeys(
        (".pt", ".pth"),
        "a model and example inputs are compiled: relaxpy.compile(model, args=(x,)); load the "
        "model with PyTorch first",
    ),
}


@user_facing
def load(
    model: object,
    *,
    args: object = None,
    kwargs: Mapping[str, object] | None = None,
    dynamic: object = None,
) -> IRModule:
    """The module of a model, as `relaxpy.compile` compiles it.

    A model is a module or a function of relaxpy; an `ExportedProgram` of torch, or one of its
    modules with example arguments; a `ModelProto` of onnx; or the path of a file with the suffix
    `.onnx`, `.pt2`, `.rxp`, `.json` or `.py`. The text of a `.py` file is read, not executed.

    `args` and `kwargs` are example arguments of a torch module. `dynamic` names its sizes that are
    not fixed, for each argument by axis: `{"x": {0: "batch"}}`; it is also what `dynamic_shapes` of
    `torch.export.export` may be. The module is exported for inference, as by `model.eval()`.

    Errors:
        MisuseError (also TypeError, ValueError): it is not a model, or `args`, `kwargs` or
            `dynamic` do not fit.
        FrontendError (also ValueError): the model cannot be imported.
        ParseError, StructInfoError, WellFormedError: the program in the file is wrong.
        OSError: the file cannot be read.
    """
    return loaded(model, "load", {"args": args, "kwargs": kwargs, "dynamic": dynamic})


def loaded(model: object, taker: str, examples: Mapping[str, object]) -> IRModule:
    """The module of a model for the function `taker`; examples that are None are not passed.

    Errors: as for `load`.
    """
    passed = {name: value for name, value in examples.items() if value is not None}
    key = _key(model)
    if key is None:
        module = as_module(model, taker, "a model, a function or a path")
        if passed:
            raise _unwanted(next(iter(passed)), "a program of relaxpy")
        return module
    place, _, function = plugin.models()[key].partition(":")
    read: Any = getattr(import_module(place), function)
    for name in passed:
        if name not in inspect.signature(read).parameters:
            raise _unwanted(name, f"a {key.removeprefix('.')} file" if key[0] == "." else key)
    return as_module(read(model, **passed), taker)


def is_saved(model: object) -> TypeGuard[str | PathLike[str]]:
    """True if a model is the path of a saved executable."""
    return _keys(model)[0] == SAVED


SAVED: Final = ".rxp"
"""The suffix of the names of saved executables."""


def _unwanted(name: str, kind: str) -> MisuseError:
    return MisuseError(
        f"{name} describes the inputs of a torch module, but {kind} declares its own",
        hint=f"omit {name}",
    )


def _key(model: object) -> str | None:
    """The key of `Plugin.models` by which a plug-in reads `model`, if there is one."""
    if isinstance(model, (IRModule, rx.BaseFunc)):
        return None  # to look for plug-ins takes time
    return next((key for key in _keys(model) if key in plugin.models()), None)


def _keys(model: object) -> list[str]:
    """The keys of an object in tables: the suffix of a path, or the names of its classes."""
    if isinstance(model, (str, PathLike)):
        return [os.path.splitext(os.fspath(model))[1].lower()]
    return [_key_of(c) for c in type(model).__mro__]


def _key_of(cls: type) -> str:
    return f"{cls.__module__.partition('.')[0]}.{cls.__name__}"


def as_module(mod: object, taker: str, kinds: str = "an IRModule or a function") -> IRModule:
    """The module, or one with the function `mod`.

    Errors:
        MisuseError (also TypeError): it is neither; the function `taker` takes these `kinds`.
    """
    if isinstance(mod, IRModule):
        return mod
    if isinstance(mod, (rx.Function, PrimFunc)):
        if "global_symbol" not in mod.attrs:
            mod = mod.with_attr("global_symbol", "main")
        return IRModule.from_expr(mod)
    keys = _keys(mod)
    found, hint = type(mod).__name__, next((_HINTS[key] for key in keys if key in _HINTS), None)
    if isinstance(mod, type):
        found = f"the class {mod.__name__}"
        is_model = any(_key_of(c) in plugin.models() for c in mod.__mro__)
        hint = f"decorate it: @I.ir_module class {mod.__name__}"
        if is_model:
            hint = f"make an object of it: {mod.__name__}(...)"
    elif inspect.isbuiltin(mod):
        found, hint = f"the function {mod.__name__}", "call it in a torch module or an @R.function"
    elif callable(mod) and hasattr(mod, "__code__"):
        found = "a plain Python function"
        hint = "decorate it with @R.function or @T.prim_func; a function of PyTorch is the forward "
        hint += "of a torch module"
    elif _key(mod) is not None:
        found = f"the path {str(mod)!r:.60}" if keys[0][:1] == "." else found
        hint = f"relaxpy.load({'path' if keys[0][:1] == '.' else 'model'}) makes a module of it"
    elif isinstance(mod, (str, PathLike)):
        is_line = isinstance(mod, str) and "\n" not in mod
        is_path = not isinstance(mod, str) or (is_line and bool(keys[0] or os.path.exists(mod)))
        if not hint and is_path and os.path.isdir(mod):
            hint = "relaxpy.llm.load(folder) reads a language model"
        elif not hint and is_path:
            suffixes = sorted(key for key in plugin.models() if key[0] == ".")
            hint = f"its name has to end in one of {', '.join(suffixes)}"
        elif not hint:
            hint = "relaxpy.script.from_source(text) reads a program"
        found = f"the path {str(mod)!r:.60}" if is_path else "a string"
    raise MisuseError(f"{taker} takes {kinds}, found {found}", about=mod, hint=hint)


def named(module: IRModule, name: str) -> IRModule:
    """The module with the function `main`, or its only public function, called `name`.

    Errors:
        UnknownNameError (also KeyError, ValueError): no function is the one to rename.
        MisuseError (also ValueError): another function has the name, or it is not an identifier.
    """
    if not (isinstance(name, str) and name.isidentifier()):
        raise MisuseError(f"the name of a function is an identifier, found {name!r:.60}")
    functions = module.functions_by_name
    public = [old for old, func in functions.items() if "global_symbol" in func.attrs]
    old = public[0] if len(public) == 1 else "main"
    if old not in public:
        raise UnknownNameError(
            f"name is for function main, or the only public one, found {', '.join(public)}"
        )
    if old == name:
        return module
    return module.replace_global_vars({old: name})
