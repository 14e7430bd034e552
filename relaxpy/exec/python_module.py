"""BasePyModule: a module whose graph functions, kernels and Python functions call each other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, wraps
from types import MethodType
from typing import Any

import numpy as np

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, UnknownAttributeError, UnknownNameError, close_names
from relaxpy.exec.compile import compile
from relaxpy.exec.executable import Executable
from relaxpy.exec.runtime.python_functions import takes_self
from relaxpy.exec.runtime.registry import get_global_func
from relaxpy.exec.runtime.values import describe, empty
from relaxpy.exec.vm import VirtualMachine
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.python_function import is_python_function, python_function
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.substitution import substitute

_TARGETS = ("numpy", "reference")

#: What an instance keeps, beside its functions.
_STATE = frozenset(
    (
        *("ir_mod", "device", "target", "executable", "pyfuncs", "extern_funcs"),
        *("tir_func_names", "relax_func_names"),
    )
)

#: Whether the call that is running came with tensors of torch, so that its results are such.
_torch: ContextVar[bool] = ContextVar("_torch", default=False)


class BasePyModule:
    """Runs the functions of a module as methods: graph functions, kernels and Python functions.

    What is called with tensors of torch gives such, and hands such to Python functions; anything
    else gives NumPy's arrays. Everything is compiled together, when it is first needed.

    Errors:
        MisuseError (also TypeError): `ir_mod` is no module, or has a function of a name that its
            instances need themselves.
    """

    #: Tells the parser which classes a module may derive from.
    __python_module__ = True

    @user_facing
    def __init__(self, ir_mod: IRModule, device: object = None, target: object = None) -> None:
        if not isinstance(ir_mod, IRModule):
            raise MisuseError(f"expected an IRModule, found {type(ir_mod).__name__}", about=ir_mod)
        self.ir_mod = ir_mod
        self.device = device
        self.target = target if isinstance(target, str) and target in _TARGETS else "numpy"
        self.pyfuncs: dict[str, Callable[..., Any]] = dict(ir_mod.pyfuncs)
        self.extern_funcs: dict[str, Callable[..., Any]] = {}
        functions = ir_mod.functions_by_name
        for name in functions.keys() & _STATE:
            raise MisuseError(
                f"a function of a BasePyModule cannot be called {name}: its objects keep something "
                "of their own there",
                about=ir_mod,
            )
        self.tir_func_names = [n for n, f in functions.items() if isinstance(f, PrimFunc)]
        self.relax_func_names = [n for n, f in functions.items() if isinstance(f, rx.Function)]
        for name in (*self.relax_func_names, *self.tir_func_names):
            setattr(self, name, self._runs(name))
        for name, function in self.pyfuncs.items():
            setattr(self, name, self._method(function))

    # --- what is compiled

    @cached_property
    def executable(self) -> Executable:
        """All functions, private ones included, compiled together."""
        module = self.ir_mod.clone()
        for name, function in self.pyfuncs.items():
            if name not in module or is_python_function(module[name]):
                module[name] = python_function(name, "", self._from_program(function))
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
        """A VirtualMachine over the compiled functions."""
        return VirtualMachine(self.executable)

    def _runs(self, name: str) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with _like([*args, *kwargs.values()]) as given:
                named = dict(zip(kwargs, given[len(args) :], strict=True))
                return _exported(self.executable[name](*given[: len(args)], **named))

        run.__name__ = run.__qualname__ = name
        run.__doc__ = f"Function {name} of the module."
        return run

    def _method(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return MethodType(function, self) if takes_self(function) else function

    def _from_program(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A Python function as programs call it."""
        method = self._method(function)

        @wraps(function)
        def run(*args: Any) -> Any:
            return method(*(_exported(arg) for arg in args))

        del run.__wrapped__  # its signature is its own: it takes no self
        return run

    # --- calls by name

    @user_facing
    def call_py_func(self, func_name: str, args: Sequence[Any]) -> Any:
        """What the Python function of this name gives for `args`.

        Errors:
            UnknownNameError (also KeyError, ValueError): there is none.
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
        self, tir_func: str | Callable[..., Any] | PrimFunc, args: Sequence[Any], out_sinfo: Any
    ) -> Any:
        """What a kernel, named or given, writes into new tensors, `args` being its inputs.

        Shapes:
            out_sinfo  an info or a shape of the output, or a list of them; sizes that it leaves
                       open are those of the kernel
        Errors:
            UnknownNameError (also KeyError, ValueError): the module has no such kernel.
            MisuseError: the sizes of an output cannot be told from the inputs.
            RuntimeCheckError: an argument does not fit, or there is no memory for an output.
        """
        name = self._kernel_name(tir_func)
        kernel = self.ir_mod[name]
        assert isinstance(kernel, PrimFunc)
        with _like(_inputs(args)) as given:
            outputs = _outputs(kernel, given, out_sinfo)
            self.executable[name](*given, *outputs)
            found = [_exported(output) for output in outputs]
        return found[0] if len(found) == 1 else found

    @user_facing
    def call_dps_packed(self, func_name: str, args: Sequence[Any], out_sinfo: Any) -> Any:
        """What a function gives for `args`: a method, or a packed function that writes its outputs.

        Errors:
            UnknownPackedFuncError (also KeyError, ValueError): there is neither.
        """
        _calls_users = True
        own = getattr(self, func_name, None) if isinstance(func_name, str) else None
        if callable(own):
            return own(*_inputs(args))
        function = self.extern_funcs[func_name] = get_global_func(func_name)
        with _like(_inputs(args)) as given:
            outputs = _outputs(None, given, out_sinfo)
            function(*given, *outputs)
            found = [_exported(output) for output in outputs]
        return found[0] if len(found) == 1 else found

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

    # --- what there is

    @user_facing
    def add_python_function(self, name: str, func: Callable[..., Any]) -> None:
        """Enter a Python function under `name`; one whose first parameter is `self` is a method."""
        if not callable(func):
            raise MisuseError(f"a Python function is callable, found {func!r:.60}", about=func)
        if not isinstance(name, str) or name in _STATE:
            raise MisuseError(f"a function cannot be called {name!r:.60}", about=name)
        self.pyfuncs[name] = func
        setattr(self, name, self._method(func))
        self.__dict__.pop("executable", None)

    def get_function(self, name: str) -> Callable[..., Any] | None:
        """The compiled function of this name, or a packed one called before, if there is one."""
        if name in self.tir_func_names or name in self.relax_func_names:
            found: Callable[..., Any] = getattr(self, name)
            return found
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
        """The text of the module, that of its Python functions included."""
        return self.ir_mod.script(**options)

    def show(self, *args: Any, **options: Any) -> None:
        """Print the text of the module, in colour where that can be shown."""
        self.ir_mod.show(*args, **options)

    def __getitem__(self, name: rx.GlobalVar | str) -> rx.BaseFunc:
        return self.ir_mod[name]

    @user_facing
    def __getattr__(self, name: str) -> Any:
        """Errors: UnknownAttributeError (also AttributeError), which says what there is."""
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
        """The sizes of an output; those that are open are taken of the first input of its rank.

        Errors:
            MisuseError (also ValueError): there is no such input.
        """
        found = []
        for axis, size in enumerate(shape):
            known = _number(size, {})
            known = _same_axis(in_args, len(shape), axis) if known is None else known
            if known is None:
                raise _unknown_size(axis, size, shape)
            found.append(known)
        return found

    # --- tensors of torch, by the names that TVM's programs use

    def _convert_pytorch_to_tvm(self, tensors: Any) -> Any:
        """Tensors as NumPy's arrays."""
        if isinstance(tensors, (list, tuple)):
            return [self._convert_pytorch_to_tvm(tensor) for tensor in tensors]
        return _plain(tensors) if _is_torch(tensors) else np.asarray(tensors)

    def _convert_tvm_to_pytorch(self, tensors: Any) -> Any:
        """NumPy's arrays as tensors of torch, where torch is in use."""
        if isinstance(tensors, (list, tuple)):
            return [self._convert_tvm_to_pytorch(tensor) for tensor in tensors]
        return _as_torch(tensors) if "torch" in sys.modules else tensors


def _is_torch(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def _plain(value: Any) -> Any:
    """A tensor of torch as an array over the same memory where that is possible."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return value.detach().cpu().numpy() if _is_torch(value) else value


def _as_torch(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return sys.modules["torch"].from_numpy(value)


def _exported(value: Any) -> Any:
    """A result as the caller of the running call wants it."""
    if not _torch.get():
        return value
    if isinstance(value, tuple):
        return tuple(map(_exported, value))
    return _as_torch(value)


@contextmanager
def _like(args: Sequence[Any]) -> Iterator[list[Any]]:
    """`args` as arrays; results are tensors of torch meanwhile if one of these is."""
    arrays = any(isinstance(arg, np.ndarray) for arg in args)
    token = _torch.set(any(map(_is_torch, args)) or (_torch.get() and not arrays))
    try:
        yield [_plain(arg) for arg in args]
    finally:
        _torch.reset(token)


def _inputs(args: Sequence[Any]) -> Sequence[Any]:
    if isinstance(args, (list, tuple)):
        return args
    raise MisuseError(f"args is a list of inputs, found {describe(args)}", about=args)


def _outputs(kernel: PrimFunc | None, args: Sequence[Any], out_sinfo: Any) -> list[Any]:
    """New tensors for the outputs of a kernel or packed function."""
    wanted = out_sinfo if isinstance(out_sinfo, list) else [out_sinfo]
    if isinstance(out_sinfo, (list, tuple)) and all(isinstance(s, int) for s in out_sinfo):
        wanted = [tuple(out_sinfo)]
    sizes, own = _sizes(kernel, args)
    buffers = own[len(own) - len(wanted) :] if len(own) >= len(wanted) else []
    made = []
    for k, info in enumerate(wanted):
        shape, dtype = _shape_and_dtype(info)
        buffer = buffers[k] if len(buffers) == len(wanted) else None
        extents = []
        for axis, size in enumerate(shape):
            known = _number(size, sizes)
            if known is None and buffer is not None and axis < len(buffer[0]):
                known = _number(buffer[0][axis], sizes)
            if known is None:
                known = _same_axis(args, len(shape), axis)
            if known is None:
                raise _unknown_size(axis, size, out_sinfo)
            extents.append(known)
        kind = DataType(dtype or (buffer[1] if buffer is not None else "float32"))
        output = empty(tuple(extents), kind.numpy())
        output.fill(0)
        made.append(output)
    return made


def _unknown_size(axis: int, size: object, about: object) -> MisuseError:
    return MisuseError(
        f"Cannot infer concrete output shape: size {axis}, {size}, cannot be told from the inputs",
        hint="give the sizes of the output as integers",
        about=about,
    )


def _shape_and_dtype(info: Any) -> tuple[Sequence[Any], Any]:
    if isinstance(info, (tuple, list)):
        return info, None
    shape, dtype = getattr(info, "shape", None), getattr(info, "dtype", None)
    if isinstance(shape, rx.ShapeExpr):
        shape = shape.values
    if not isinstance(shape, (tuple, list)):
        raise MisuseError(
            f"an output is described by an info with a shape, found {str(info)[:60]}",
            hint='write R.Tensor((4,), "float32")',
            about=info,
        )
    return shape, dtype


_Shapes = list[tuple[Sequence[PrimExpr], DataType]]


def _sizes(kernel: PrimFunc | None, args: Sequence[Any]) -> tuple[Mapping[Var, PrimExpr], _Shapes]:
    """The sizes that a kernel reads off its inputs, and the shapes of its buffers."""
    found: dict[Var, PrimExpr] = {}
    if kernel is None:
        return found, []
    buffers: _Shapes = []
    for k, param in enumerate(kernel.params):
        buffer = kernel.buffer_map.get(param)
        if buffer is None:
            if k < len(args) and isinstance(args[k], (int, np.integer)):
                found[param] = IntImm(param.dtype, int(args[k]))
            continue
        buffers.append((buffer.shape, buffer.dtype))
        shape = getattr(args[k], "shape", ()) if k < len(args) else ()
        for size, extent in zip(buffer.shape, shape, strict=False):
            if isinstance(size, Var):
                found.setdefault(size, IntImm(size.dtype, int(extent)))
    return found, buffers


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


def _same_axis(args: Sequence[Any], ndim: int, axis: int) -> int | None:
    """The size of the first input of this rank along this axis, as TVM takes it."""
    shapes = (getattr(arg, "shape", ()) for arg in args)
    return next((int(shape[axis]) for shape in shapes if len(shape) == ndim), None)
