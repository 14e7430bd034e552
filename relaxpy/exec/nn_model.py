"""Compiled models of `nn`: their methods as functions, with parameters and the state of effects."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, RuntimeCheckError, UnknownNameError, close_names
from relaxpy.exec.compile import compile
from relaxpy.exec.executable import Executable
from relaxpy.exec.runtime.values import Array, ShapeTuple
from relaxpy.exec.vm import VirtualMachine
from relaxpy.ir.core.device import Device, device as device_of
from relaxpy.ir.core.foreign_arrays import as_numpy, as_torch, has_torch
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.frontend.nn import spec as specs

_EFFECTS = "_initialize_effect"


class CompiledModel:
    """The methods of a model by their names, which take tensors, integers, and tuples of those.

    Results are tensors of torch if `out_format` is "torch", or if it is None and an argument is
    one; otherwise they are arrays. The state of effects is kept from each call to the next.
    """

    def __init__(
        self,
        spec: specs.ModuleSpec,
        vm: VirtualMachine,
        params: Sequence[Array],
        out_format: str | None,
    ) -> None:
        self.spec = spec
        self.vm = vm
        self.params = list(params)
        self.effects: tuple[Any, ...] | None = vm[_EFFECTS]() if _EFFECTS in vm else None
        self._out_format = out_format

    @user_facing
    def __getitem__(self, method_name: str) -> Callable[..., Any]:
        """The function of a method.

        Errors:
            UnknownNameError (also KeyError, ValueError): there is no such method.
        """
        methods = dict(zip(self.spec.method_names, self.spec.method_specs, strict=True))
        if method_name not in methods:
            raise UnknownNameError(
                f"the model has no method {method_name!r}",
                hint=close_names(str(method_name), methods),
                about=method_name,
            )
        method = methods[method_name]

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
        if len(args) != len(method.arg_names):
            raise RuntimeCheckError(
                f"{method.signature(name)} takes {len(method.arg_names)} arguments, "
                f"found {len(args)}"
            )
        triples = zip(method.arg_names, method.arg_specs, args, strict=True)
        values = [_input(arg, spec, value) for arg, spec, value in triples]
        values += _passed(method.effect_mode, self.effects or ())
        values += _passed(method.param_mode, self.params)
        result: Any = self.vm[name](*values)
        if self.effects is not None and method.effect_mode != "none":
            result, self.effects = result
        return _output(result, self._returns_torch(args))

    def _returns_torch(self, args: object) -> bool:
        return has_torch(args) if self._out_format is None else self._out_format == "torch"

    @override
    def __repr__(self) -> str:
        return f"<compiled {self.spec}>"


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
    """Compile an exported model whose parameters have values.

    Errors:
        MisuseError (also ValueError): the device is not a processor, the format is unknown, or
            torch is required and not installed.
    """
    found = device if isinstance(device, Device) else device_of(device)
    if found.kind != "cpu":
        raise MisuseError(f"models run on cpu:0, found device {found}", about=device)
    if out_format not in (None, "numpy", "torch"):
        raise MisuseError(
            f'out_format is "numpy" or "torch", found {out_format!r:.60}', about=out_format
        )
    if out_format == "torch":
        try:
            importlib.import_module("torch")
        except ImportError:
            raise MisuseError(
                'out_format="torch" needs torch, which is not installed',
                hint='out_format="numpy" returns arrays',
                about=out_format,
            ) from None
    executable: Executable = compile(mod, relax_pipeline=pipeline)
    return CompiledModel(spec, VirtualMachine(executable), params, out_format)
