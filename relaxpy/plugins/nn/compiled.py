"""Compiled models of `nn`: their methods as functions, with parameters and the state of effects."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from relaxpy.errors import (
    MisuseError,
    RuntimeCheckError,
    UnknownNameError,
    close_names,
    counted,
    unexpected,
    unknown_attribute,
)
from relaxpy.exec.api.compile import compile
from relaxpy.exec.api.executable import Executable
from relaxpy.exec.api.vm import VirtualMachine
from relaxpy.exec.inspect.profile import Profile
from relaxpy.exec.runtime.report import ExecutionReport
from relaxpy.exec.runtime.values import Array, ShapeTuple
from relaxpy.ir.core.device import Device, device as device_of
from relaxpy.ir.core.tensor import as_numpy, as_torch, has_torch
from relaxpy.ir.module import IRModule
from relaxpy.ir.passes.bind_params import BindParams
from relaxpy.ir.relax import nodes as rx
from relaxpy.plugins.nn import spec as specs
from relaxpy.support.entry import user_facing

_EFFECTS = "_initialize_effect"


class CompiledModel:
    """The methods of a model by their names, which take tensors, integers, and tuples of those.

    The weights are constants of its program. Results are tensors of torch if `out_format` is
    "torch", or if it is None and an argument is one; otherwise they are arrays. The state of
    effects is kept from each call to the next, until `reset`. The model itself is called as its
    method `forward`, or as its only one.
    """

    def __init__(
        self,
        spec: specs.ModuleSpec,
        vm: VirtualMachine,
        params: Sequence[rx.Constant],
        out_format: str | None,
    ) -> None:
        self.spec = spec
        self.vm = vm
        self.params = tuple(params)
        self.effects: tuple[Any, ...] | None = None
        self._out_format = out_format
        self.reset()

    def reset(self) -> None:
        """Begin again with the initial state, such as empty caches."""
        self.effects = self.vm[_EFFECTS]() if _EFFECTS in self.vm else None

    @property
    def executable(self) -> Executable:
        """The executable, whose functions take states after the inputs."""
        return self.vm.module

    @property
    def source(self) -> str:
        """The generated Python text."""
        return self.executable.source

    def report(self) -> ExecutionReport:
        """The method by which each kernel runs, and the reasons for slow methods."""
        return self.executable.report()

    @user_facing
    def profile(self, *args: Any, function: str | None = None, repeat: int = 5) -> Profile:
        """The time of a call of a method by kernel, without a change of the state.

        Errors:
            UnknownNameError (also KeyError, ValueError): there is no such method.
            RuntimeCheckError: an argument does not fit, or a check of the program failed.
        """
        name = self._name(function)
        values = self._values(name, self._method(name), args)
        return self.executable.profile(*values, function=name, repeat=repeat)

    @user_facing
    def save(self, path: str | PathLike[str]) -> None:
        """Write the program with its weights, without state, as `Executable.save` does.

        Errors:
            MisuseError (also TypeError, ValueError): `path` is not a path.
            OSError: the file cannot be written.
        """
        self.executable.save(path)

    @user_facing
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method `forward`, or the only one."""
        return self[self._name(None)](*args, **kwargs)

    def __iter__(self) -> Iterator[str]:
        """The names of the methods."""
        return iter(self.spec.method_names)

    def __contains__(self, name: object) -> bool:
        return name in self.spec.method_names

    def __len__(self) -> int:
        return len(self.spec.method_names)

    if not TYPE_CHECKING:  # it would make a type checker accept every name

        @user_facing
        def __getattr__(self, name):
            """Errors: UnknownAttributeError (also AttributeError), with the known names."""
            methods = () if name.startswith("_") else self.spec.method_names
            raise unknown_attribute(self, name, "model", methods)

    def _name(self, name: str | None) -> str:
        """The name of a method, by default `forward` or the only one."""
        if name is not None:
            return name
        return self.spec.method_names[0] if len(self) == 1 else "forward"

    def _method(self, name: str) -> specs.MethodSpec:
        methods = dict(zip(self.spec.method_names, self.spec.method_specs, strict=True))
        if name not in methods:
            raise UnknownNameError(
                f"the model has no method {name!r}",
                hint=close_names(str(name), methods),
                about=name,
            )
        return methods[name]

    @user_facing
    def __getitem__(self, method_name: str) -> Callable[..., Any]:
        """The function of a method.

        Errors:
            UnknownNameError (also KeyError, ValueError): there is no such method.
        """
        method = self._method(method_name)

        @user_facing
        def call(*args: Any, **kwargs: Any) -> Any:
            remaining = method.arg_names[len(args) :]
            for name in kwargs:
                if name not in remaining:
                    raise RuntimeCheckError(
                        f"{method.signature(method_name)} has no parameter {name!r} that is not "
                        "passed by position",
                        hint=close_names(name, remaining),
                    )
            named = (kwargs[name] for name in remaining if name in kwargs)
            return self._call(method_name, method, (*args, *named))

        call.__name__ = method_name
        return call

    def _call(self, name: str, method: specs.MethodSpec, args: tuple[Any, ...]) -> Any:
        result: Any = self.vm[name](*self._values(name, method, args))
        if self.effects is not None and method.effect_mode != "none":
            result, self.effects = result
        return _output(result, self._returns_torch(args))

    def _values(self, name: str, method: specs.MethodSpec, args: tuple[Any, ...]) -> list[Any]:
        """The arguments of the compiled function: inputs and states."""
        if len(args) != len(method.arg_names):
            raise RuntimeCheckError(
                f"{method.signature(name)} takes {len(method.arg_names)} arguments, "
                f"found {len(args)}"
            )
        triples = zip(method.arg_names, method.arg_specs, args, strict=True)
        values = [_input(arg, spec, value) for arg, spec, value in triples]
        return values + _passed(method.effect_mode, self.effects or ())

    def _returns_torch(self, args: object) -> bool:
        return has_torch(args) if self._out_format is None else self._out_format == "torch"

    @override
    def __repr__(self) -> str:
        methods = zip(self.spec.method_names, self.spec.method_specs, strict=True)
        lines = (f"\n  {method.signature(name)}" for name, method in methods)
        state = "" if self.effects is None else ", with a state"
        target = self.executable.target
        return (
            f"<Model for {target} with {counted(len(self.params), 'parameter')}{state}>"
            + "".join(lines)
        )


def _passed(mode: specs.Mode, values: Sequence[Any]) -> list[Any]:
    """The arguments for weights or for the state of effects."""
    if mode == "packed":
        return [tuple(values)]
    return list(values) if mode == "plain" else []


def _input(name: str, spec: specs.ArgSpec, value: Any) -> Any:
    """The value of an input. Errors: RuntimeCheckError if it does not fit its specification."""
    match spec:
        case specs.Int():
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise RuntimeCheckError(f"argument {name} is an integer, found {value!r:.60}")
            return ShapeTuple([int(value)])
        case specs.Tuple(elements=elements):
            if not isinstance(value, (tuple, list)) or len(value) != len(elements):
                raise RuntimeCheckError(
                    f"argument {name} is a sequence of {len(elements)} values, found {value!r:.60}"
                )
            pairs = zip(elements, value, strict=True)
            return tuple(_input(f"{name}[{i}]", e, v) for i, (e, v) in enumerate(pairs))
        case specs.Tensor() | specs.Object():
            try:
                return as_numpy(value)
            except RuntimeCheckError as error:
                raise RuntimeCheckError(f"argument {name}: {error.diagnostic.message}") from None


def _output(value: Any, torch: bool) -> Any:
    if isinstance(value, ShapeTuple):
        return list(value)
    if isinstance(value, tuple):
        return tuple(_output(field, torch) for field in value)
    return as_torch(value) if torch else value


def jit(
    mod: IRModule,
    spec: specs.ModuleSpec,
    params: Sequence[Array],
    *,
    device: Device | str,
    pipeline: str | Callable[[IRModule], IRModule] | None,
    out_format: str | None,
) -> CompiledModel:
    """Compile an exported model whose parameters have values, which become constants.

    Errors:
        MisuseError (also ValueError): the device is not a CPU, the format is unknown, or
            torch is required and not installed.
    """
    found = device if isinstance(device, Device) else device_of(device)
    if found.kind != "cpu":
        raise MisuseError(f"models run on cpu:0, found device {found}", about=device)
    if out_format not in (None, "numpy", "torch"):
        raise unexpected(out_format, 'out_format is "numpy" or "torch"')
    if out_format == "torch":
        try:
            importlib.import_module("torch")
        except ImportError:
            raise MisuseError(
                'out_format="torch" needs torch, which is not installed',
                hint='out_format="numpy" returns arrays',
                about=out_format,
            ) from None
    weights = [*map(rx.Constant, params)]
    executable: Executable = compile(_bound(mod, spec, weights), relax_pipeline=pipeline)
    return CompiledModel(spec, VirtualMachine(executable), weights, out_format)


def _bound(mod: IRModule, spec: specs.ModuleSpec, weights: Sequence[rx.Constant]) -> IRModule:
    """The module whose methods have the weights instead of their last parameters."""
    for name, method in zip(spec.method_names, spec.method_specs, strict=True):
        values, params = _passed(method.param_mode, weights), mod[name].params
        last = params[len(params) - len(values) :]
        mod = BindParams(name, dict(zip(last, values, strict=True)))(mod)
    return mod
