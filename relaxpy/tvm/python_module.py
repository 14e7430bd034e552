"""Modules whose Relax functions, kernels and Python functions call each other, and conversion."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from types import MethodType
from typing import Any

import numpy as np

from relaxpy.errors import (
    MisuseError,
    UnknownAttributeError,
    UnknownNameError,
    close_names,
    unexpected,
)
from relaxpy.exec.api.compile import compile
from relaxpy.exec.api.executable import Executable
from relaxpy.exec.api.vm import VirtualMachine
from relaxpy.exec.runtime.python_functions import takes_self
from relaxpy.exec.runtime.registry import get_global_func
from relaxpy.exec.runtime.tensors import as_tensors
from relaxpy.exec.runtime.values import describe, empty
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.target import NAMES
from relaxpy.ir.core.tensor import as_numpy, as_torch, is_torch
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.python_function import is_python_function, python_function
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.entry import user_facing
from relaxpy.support.scopes import setting

#: The attributes of an instance other than its functions.
_STATE = frozenset(
    (
        *("ir_mod", "device", "target", "executable", "pyfuncs", "extern_funcs"),
        *("tir_func_names", "relax_func_names"),
    )
)

#: Whether the current call has tensors of torch as arguments, and so returns such tensors.
_returns_torch: ContextVar[bool] = ContextVar("_torch", default=False)


class BasePyModule:
    """Runs the functions of a module as methods: Relax functions, kernels and Python functions.

    A call with tensors of torch returns such tensors, and passes them to Python functions; other
    calls return NumPy arrays. All functions are compiled together on first use.

    Errors:
        MisuseError (also TypeError): `ir_mod` is not a module, or one of its functions has the name
            of an attribute of instances.
    """

    #: Marks a class from which modules may derive, for the parser.
    __python_module__ = True

    @user_facing
    def __init__(self, ir_mod: IRModule, device: object = None, target: object = None) -> None:
        if not isinstance(ir_mod, IRModule):
            raise MisuseError(f"expected an IRModule, found {type(ir_mod).__name__}", about=ir_mod)
        self.ir_mod = ir_mod
        self.device = device
        self.target = target if isinstance(target, str) and target in NAMES else None
        self.pyfuncs: dict[str, Callable[..., Any]] = dict(ir_mod.pyfuncs)
        self.extern_funcs: dict[str, Callable[..., Any]] = {}
        functions = ir_mod.functions_by_name
        for name in functions.keys() & _STATE:
            raise MisuseError(
                f"a function of a BasePyModule cannot be called {name}, since its instances have "
                "an attribute of that name",
                about=ir_mod,
            )
        self.tir_func_names = [n for n, f in functions.items() if isinstance(f, PrimFunc)]
        self.relax_func_names = [n for n, f in functions.items() if isinstance(f, rx.Function)]
        for name in (*self.relax_func_names, *self.tir_func_names):
            setattr(self, name, self._compiled_method(name))
        for name, function in self.pyfuncs.items():
            setattr(self, name, self._method(function))

    # --- compilation

    @late_property
    def executable(self) -> Executable:
        """The executable of all functions, including private ones."""
        module = self.ir_mod.clone()
        for name, function in self.pyfuncs.items():
            old = module.functions_by_name.get(name)
            if old is None or is_python_function(old):
                sinfo = None if old is None else old.struct_info
                module[name] = python_function(name, "", self._from_program(function), sinfo)
        for name in (*self.relax_func_names, *self.tir_func_names):
            if "global_symbol" not in module[name].attrs:
                module[name] = module[name].with_attr("global_symbol", name)
        return compile(module, self.target)

    @property
    def compiled_tir_funcs(self) -> dict[str, Callable[..., Any]]:
        """The kernels by name."""
        return {name: getattr(self, name) for name in self.tir_func_names}

    @property
    def relax_vm(self) -> VirtualMachine:
        """A VirtualMachine for the compiled functions."""
        return VirtualMachine(self.executable)

    def _compiled_method(self, name: str) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with _converted_args([*args, *kwargs.values()]) as values:
                kwargs_values = dict(zip(kwargs, values[len(args) :], strict=True))
                return _exported(self.executable[name](*values[: len(args)], **kwargs_values))

        run.__name__ = run.__qualname__ = name
        run.__doc__ = f"Function {name} of the module."
        return run

    def _method(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return MethodType(function, self) if takes_self(function) else function

    def _from_program(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function that programs call for a Python function."""
        method = self._method(function)

        @wraps(function)
        def run(*args: Any) -> Any:
            return method(*(_exported(arg) for arg in args))

        del run.__wrapped__  # unlike `function`, it does not take self
        return run

    # --- calls by name

    @user_facing
    def call_py_func(self, func_name: str, args: Sequence[Any]) -> Any:
        """Call the Python function of this name.

        Errors:
            UnknownNameError (also KeyError, ValueError): there is no such function.
        """
        _calls_users = True
        function = self.pyfuncs.get(func_name) if isinstance(func_name, str) else None
        if function is None:
            raise UnknownNameError(
                f"Python function {func_name!r} not found in the module",
                hint=close_names(str(func_name), self.pyfuncs),
                about=func_name,
            )
        return self._method(function)(*_inputs(args))

    @user_facing
    def call_tir(
        self,
        tir_func: str | Callable[..., Any] | PrimFunc,
        args: Sequence[Any],
        out_sinfo: Any = None,
        *,
        out_ty: Any = None,
    ) -> Any:
        """Call a kernel, or the kernel of a name, with the inputs `args`; return its outputs.

        Shapes:
            out_sinfo  the struct info or shape of the output, or a list of them; dimensions that it
                       leaves open are those of the kernel's buffers
            out_ty     its name after v0.22 of TVM
        Errors:
            UnknownNameError (also KeyError, ValueError): the module has no such kernel.
            MisuseError: the shape of an output cannot be inferred from the inputs.
            RuntimeCheckError: an argument does not match, or there is not enough memory.
        """
        name = self._kernel_name(tir_func)
        kernel = self.ir_mod[name]
        assert isinstance(kernel, PrimFunc)
        with _converted_args(_inputs(args)) as values:
            outputs = _outputs(kernel, values, out_ty if out_sinfo is None else out_sinfo)
            self.executable[name](*values, *outputs)
            results = [_exported(output) for output in outputs]
        return results[0] if len(results) == 1 else results

    @user_facing
    def call_dps_packed(
        self, func_name: str, args: Sequence[Any], out_sinfo: Any = None, *, out_ty: Any = None
    ) -> Any:
        """Call a method, or a packed function that writes its outputs; return the outputs.

        Errors:
            UnknownPackedFuncError (also KeyError, ValueError): there is neither.
        """
        _calls_users = True
        method = getattr(self, func_name, None) if isinstance(func_name, str) else None
        if callable(method):
            return method(*_inputs(args))
        function = self.extern_funcs[func_name] = get_global_func(func_name)
        with _converted_args(_inputs(args)) as values:
            outputs = _outputs(None, values, out_ty if out_sinfo is None else out_sinfo)
            function(*map(as_tensors, (*values, *outputs)))
            results = [_exported(output) for output in outputs]
        return results[0] if len(results) == 1 else results

    def _kernel_name(self, tir_func: object) -> str:
        for name in self.tir_func_names:
            kernel = self.ir_mod[name]
            if tir_func is kernel or tir_func == name or tir_func is getattr(self, name):
                return name
            if isinstance(tir_func, PrimFunc) and tir_func.attrs.get("global_symbol") == name:
                return name
        raise UnknownNameError(
            f"the module has no kernel {str(tir_func)[:60]!r}; it has "
            + (", ".join(self.tir_func_names) or "none"),
            hint=close_names(str(tir_func), self.tir_func_names),
            about=tir_func,
        )

    # --- functions and text

    @user_facing
    def add_python_function(self, name: str, func: Callable[..., Any]) -> None:
        """Add a Python function; if its first parameter is `self`, it becomes a method."""
        if not callable(func):
            raise unexpected(func, "a Python function is callable")
        if not isinstance(name, str) or name in _STATE:
            raise MisuseError(f"a function cannot be called {name!r:.60}", about=name)
        self.pyfuncs[name] = func
        setattr(self, name, self._method(func))
        self.__dict__.pop("executable", None)

    def get_function(self, name: str) -> Callable[..., Any] | None:
        """The compiled function of this name, or a packed function that was called, or None."""
        if name in self.tir_func_names or name in self.relax_func_names:
            function: Callable[..., Any] = getattr(self, name)
            return function
        return self.extern_funcs.get(name)

    def list_functions(self) -> dict[str, list[str]]:
        """The names of all functions, by kind."""
        return {
            "tir": list(self.tir_func_names),
            "relax": list(self.relax_func_names),
            "extern": list(self.extern_funcs),
            "python": list(self.pyfuncs),
        }

    def script(self, **options: Any) -> str:
        """The text of the module with its Python functions."""
        return self.ir_mod.script(**options)

    def show(self, *args: Any, **options: Any) -> None:
        """Print the text of the module, in colour if possible."""
        self.ir_mod.show(*args, **options)

    def __getitem__(self, name: rx.GlobalVar | str) -> Any:
        return self.ir_mod[name]

    @user_facing
    def __getattr__(self, name: str) -> Any:
        """Errors: UnknownAttributeError (also AttributeError), with the known names."""
        if name.startswith("__") or "ir_mod" not in self.__dict__:
            raise AttributeError(name)
        try:
            return getattr(self.ir_mod, name)
        except UnknownAttributeError:
            raise UnknownAttributeError(
                f"{type(self).__name__} has no attribute {name!r}",
                hint=close_names(name, (n for n in dir(self) if n[0] != "_")),
                about=name,
            ) from None

    def _infer_concrete_shape_from_args(
        self, shape: Sequence[Any], in_args: Sequence[Any]
    ) -> list[int]:
        """The shape of an output; open dimensions are those of the first input of its rank."""
        sizes = []
        for axis, size in enumerate(shape):
            known = _number(size, {})
            known = _size_along_axis(in_args, len(shape), axis) if known is None else known
            if known is None:
                raise _unknown_size(axis, size, shape)
            sizes.append(known)
        return sizes

    # --- tensors of torch, by TVM's names

    def _convert_pytorch_to_tvm(self, tensors: Any) -> Any:
        """Convert tensors to NumPy arrays."""
        if isinstance(tensors, (list, tuple)):
            return [self._convert_pytorch_to_tvm(tensor) for tensor in tensors]
        return as_numpy(tensors) if is_torch(tensors) else np.asarray(tensors)

    def _convert_tvm_to_pytorch(self, tensors: Any) -> Any:
        """Convert NumPy arrays to tensors of torch, if torch is loaded."""
        if isinstance(tensors, (list, tuple)):
            return [self._convert_tvm_to_pytorch(tensor) for tensor in tensors]
        return as_torch(tensors) if "torch" in sys.modules else tensors


class RelaxToPyFuncConverter:
    """Replaces Relax functions of a module by Python functions that do the same.

    They take and return arrays or tensors of torch, as the functions of a BasePyModule do.
    """

    @user_facing
    def __init__(self, ir_module: IRModule) -> None:
        """Errors: as BasePyModule."""
        self._instance = BasePyModule(ir_module)
        self.ir_module = ir_module

    @user_facing
    def convert(self, relax_function_names: str | Sequence[str]) -> IRModule:
        """The module with Python functions of these names, which its functions call.

        Errors:
            UnknownNameError (also KeyError, ValueError): there is no such Relax function.
        """
        given = relax_function_names
        names = [given] if isinstance(given, str) else _inputs(given)
        instance = self._instance
        converted = self.ir_module.clone()
        for name in names:
            if name not in instance.relax_func_names:
                raise UnknownNameError(
                    f"Relax function {name!r:.60} not found in the module",
                    hint=close_names(str(name), instance.relax_func_names),
                    about=name,
                )
            sinfo = self.ir_module[name].struct_info
            converted[name] = python_function(name, "", getattr(instance, name), sinfo)
        return converted


def _exported(value: Any) -> Any:
    """A result as an array or a tensor of torch, as the current call requires."""
    return as_torch(value) if _returns_torch.get() else value


@contextmanager
def _converted_args(args: Sequence[Any]) -> Iterator[list[Any]]:
    """Convert `args` to arrays; results in the context are tensors of torch if an argument is."""
    arrays = any(isinstance(arg, np.ndarray) for arg in args)
    is_torchs = any(map(is_torch, args)) or (_returns_torch.get() and not arrays)
    with setting(_returns_torch, is_torchs):
        yield [as_numpy(arg) for arg in args]


def _inputs(args: Sequence[Any]) -> Sequence[Any]:
    if isinstance(args, (list, tuple)):
        return args
    raise MisuseError(f"args is a list of inputs, found {describe(args)}", about=args)


def _outputs(kernel: PrimFunc | None, args: Sequence[Any], out_sinfo: Any) -> list[Any]:
    """New tensors for the outputs of a kernel or packed function."""
    sinfos = out_sinfo if isinstance(out_sinfo, list) else [out_sinfo]
    if isinstance(out_sinfo, (list, tuple)) and all(isinstance(s, int) for s in out_sinfo):
        sinfos = [tuple(out_sinfo)]
    sizes, shapes = _sizes(kernel, args)
    buffers = shapes[len(shapes) - len(sinfos) :] if len(shapes) >= len(sinfos) else []
    outputs = []
    for k, sinfo in enumerate(sinfos):
        shape, dtype = _shape_and_dtype(sinfo)
        buffer = buffers[k] if len(buffers) == len(sinfos) else None
        extents = []
        for axis, size in enumerate(shape):
            known = _number(size, sizes)
            if known is None and buffer is not None and axis < len(buffer[0]):
                known = _number(buffer[0][axis], sizes)
            if known is None:
                known = _size_along_axis(args, len(shape), axis)
            if known is None:
                raise _unknown_size(axis, size, out_sinfo)
            extents.append(known)
        kind = DataType(dtype or (buffer[1] if buffer is not None else "float32"))
        output = empty(tuple(extents), kind.numpy())
        output.fill(0)
        outputs.append(output)
    return outputs


def _unknown_size(axis: int, size: object, about: object) -> MisuseError:
    return MisuseError(
        f"Cannot infer concrete output shape: dimension {axis}, {size}, is not that of an input",
        hint="write the dimensions of the output as integers",
        about=about,
    )


def _shape_and_dtype(sinfo: Any) -> tuple[Sequence[Any], Any]:
    if isinstance(sinfo, (tuple, list)):
        return sinfo, None
    shape, dtype = getattr(sinfo, "shape", None), getattr(sinfo, "dtype", None)
    if isinstance(shape, rx.ShapeExpr):
        shape = shape.values
    if not isinstance(shape, (tuple, list)):
        raise MisuseError(
            f"expected the struct info of an output with a shape, found {str(sinfo)[:60]}",
            hint='write R.Tensor((4,), "float32")',
            about=sinfo,
        )
    return shape, dtype


_Shapes = list[tuple[Sequence[PrimExpr], DataType]]


def _sizes(kernel: PrimFunc | None, args: Sequence[Any]) -> tuple[Mapping[Var, PrimExpr], _Shapes]:
    """The shape variables of a kernel that its inputs determine, and the shapes of its buffers."""
    sizes: dict[Var, PrimExpr] = {}
    if kernel is None:
        return sizes, []
    buffers: _Shapes = []
    for k, param in enumerate(kernel.params):
        buffer = kernel.buffer_map.get(param)
        if buffer is None:
            if k < len(args) and isinstance(args[k], (int, np.integer)):
                sizes[param] = IntImm(param.dtype, int(args[k]))
            continue
        buffers.append((buffer.shape, buffer.dtype))
        shape = getattr(args[k], "shape", ()) if k < len(args) else ()
        for size, extent in zip(buffer.shape, shape, strict=False):
            if isinstance(size, Var):
                sizes.setdefault(size, IntImm(size.dtype, int(extent)))
    return sizes, buffers


def _number(size: Any, sizes: Mapping[Var, PrimExpr]) -> int | None:
    if isinstance(size, (int, np.integer)) and not isinstance(size, bool):
        return int(size)
    if isinstance(size, PrimExpr):
        named = {v.name: value for v, value in sizes.items()}
        size = simplify(substitute(size, sizes))
        if isinstance(size, Var) and size.name in named:
            size = named[size.name]
        return size.value if isinstance(size, IntImm) else None
    return None


def _size_along_axis(args: Sequence[Any], ndim: int, axis: int) -> int | None:
    """The size along this axis of the first input of this rank, as in TVM."""
    shapes = (getattr(arg, "shape", ()) for arg in args)
    return next((int(shape[axis]) for shape in shapes if len(shape) == ndim), None)
