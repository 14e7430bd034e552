"""Specifications: the methods of a model to export, and their parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

from typing_extensions import override

from relaxpy.errors import MisuseError, UnknownNameError, check_type, close_names, unexpected
from relaxpy.ir.core.dtype import DataType
from relaxpy.plugins.nn import core
from relaxpy.plugins.nn.core import Dim

Mode: TypeAlias = Literal["plain", "packed", "none"]
"""How parameters or effects are passed: as parameters, as one tuple, or not at all."""


class Int:
    """A dimension: an int of the caller, and a scalar expression in the method."""

    @override
    def __repr__(self) -> str:
        return "int"


class Tensor:
    """A tensor. A dimension is an integer, a scalar expression, or a name."""

    def __init__(self, shape: Sequence[Dim], dtype: str) -> None:
        """Errors: MisuseError if the shape is not a sequence, or there is no such datatype."""
        if isinstance(shape, str) or not isinstance(shape, Sequence):
            raise unexpected(shape, "a shape is a sequence")
        self.shape = list(shape)
        self.dtype: str = DataType(dtype)

    @override
    def __repr__(self) -> str:
        return f"Tensor([{', '.join(map(str, self.shape))}], '{self.dtype}')"


class Object:
    """A value that is not a tensor; the method receives it as an `object_type`."""

    def __init__(self, object_type: type[core.Object]) -> None:
        """Errors: MisuseError (also TypeError) if the class is not a subclass of `nn.Object`."""
        if not isinstance(object_type, type) or not issubclass(object_type, core.Object):
            raise unexpected(object_type, "the class of an object is nn.Object or a subclass")
        self.object_type = object_type

    @override
    def __repr__(self) -> str:
        return "object"


class Tuple:
    """A tuple or a list of values; the method receives the same."""

    def __init__(self, name: str, elements: list[ArgSpec] | tuple[ArgSpec, ...]) -> None:
        """Errors: MisuseError (also TypeError) if the elements are in another collection."""
        check_type(elements, (list, tuple), "expected a tuple or a list")
        self.name = name
        self.elements = elements

    @override
    def __repr__(self) -> str:
        return repr(self.elements)


ArgSpec: TypeAlias = Int | Tensor | Object | Tuple


class MethodSpec:
    """A method and its parameters by name; the method is called with one value for each.

    Errors:
        MisuseError (also ValueError): a mode is unknown.
    """

    def __init__(
        self,
        method: Callable[..., Any],
        arg_names: Sequence[str],
        arg_specs: Sequence[ArgSpec],
        param_mode: str,
        effect_mode: str,
    ) -> None:
        for kind, mode in (("param_mode", param_mode), ("effect_mode", effect_mode)):
            if mode not in get_args(Mode):
                raise unexpected(mode, f"{kind} is plain, packed or none")
        self.method = method
        self.arg_names = list(arg_names)
        self.arg_specs = list(arg_specs)
        self.param_mode = cast("Mode", param_mode)
        self.effect_mode = cast("Mode", effect_mode)

    def signature(self, name: str) -> str:
        """The text of the parameters after a name."""
        pairs = zip(self.arg_names, self.arg_specs, strict=True)
        return f"{name}({', '.join(f'{arg}: {spec}' for arg, spec in pairs)})"

    @override
    def __repr__(self) -> str:
        return self.signature("MethodSpec")

    @staticmethod
    def from_raw(spec: MethodSpec | Mapping[str, Any], method: Callable[..., Any]) -> MethodSpec:
        """The specification that a table from parameters to their kinds describes.

        Parameters with defaults may be missing at the end; "$" has the modes.

        Errors:
            MisuseError (also TypeError, ValueError): a kind or a mode is unknown, or parameters are
                missing or unknown.
        """
        if isinstance(spec, MethodSpec):
            return spec
        check_type(
            spec,
            Mapping,
            "a method is specified by a table of its parameters",
            hint='write {"x": spec.Tensor(["n", 4], "float32")}',
        )
        modes: Mapping[str, str] = spec.get("$", {})
        if not isinstance(modes, Mapping) or not modes.keys() <= {"param_mode", "effect_mode"}:
            raise unexpected(modes, '"$" is a table with param_mode and effect_mode')
        known = inspect.signature(method).parameters
        names = [name for name in known if name in spec]
        if unknown := sorted(spec.keys() - known.keys() - {"$"}):
            raise UnknownNameError(
                f"method {method.__name__} has no parameter {unknown[0]!r}",
                hint=close_names(unknown[0], known)
                or f"its parameters are {', '.join(n for n in known)}",
                about=spec,
            )
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        required = [
            name
            for name, param in known.items()
            if param.default is param.empty and param.kind not in variadic
        ]
        if names != list(known)[: len(names)] or not set(required) <= set(names):
            raise MisuseError(
                f"method {method.__name__} has parameters {list(known)}, "
                f"but the specification has {names}",
                hint="only parameters with defaults, at the end, may be missing",
                about=spec,
            )
        return MethodSpec(
            method,
            names,
            [_arg_spec(spec[name], name) for name in names],
            modes.get("param_mode", "plain"),
            modes.get("effect_mode", "plain"),
        )

    @staticmethod
    def from_torch(args: Sequence[Any], method: Callable[..., Any]) -> MethodSpec:
        """The specification of a call with these tensors of torch, or arrays, and integers.

        Errors:
            MisuseError (also TypeError): their number is wrong, or an argument is something else.
        """
        names = list(inspect.signature(method).parameters)
        if len(names) != len(args):
            raise MisuseError(f"expected {len(names)} arguments, found {len(args)}", about=args)
        specs = [_spec_of_value(arg) for arg in args]
        return MethodSpec(method, names, specs, "plain", "plain")


def _arg_spec(spec: object, name: str) -> ArgSpec:
    """The specification of a parameter from what users write for it."""
    if spec is Int or spec is int or (isinstance(spec, str) and spec == "int"):
        return Int()
    if isinstance(spec, (Int, Tensor, Object)):
        return spec
    elements = spec.elements if isinstance(spec, Tuple) else spec
    if isinstance(elements, (tuple, list)):
        specs = [_arg_spec(element, f"{name}_{i}") for i, element in enumerate(elements)]
        return Tuple(name, type(elements)(specs))
    raise MisuseError(
        f"parameter {name} is specified by {spec!r:.60}",
        hint='write spec.Tensor(["n", 4], "float32"), spec.Object(...), int, or a tuple of these',
        about=spec,
    )


def _spec_of_value(value: Any) -> ArgSpec:
    if isinstance(value, int):
        return Int()
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return Tensor(list(value.shape), str(value.dtype).rpartition(".")[2])
    raise unexpected(value, "expected a tensor or an integer")


class ModuleSpec:
    """The methods of a module that are exported, and their specifications."""

    def __init__(
        self, module: Any, method_names: Sequence[str], method_specs: Sequence[MethodSpec]
    ) -> None:
        self.module = module
        self.method_names = list(method_names)
        self.method_specs = list(method_specs)

    @staticmethod
    def from_raw(spec: ModuleSpec | Mapping[str, Any], module: Any) -> ModuleSpec:
        """The specification that a table from the names of methods describes.

        Errors:
            MisuseError (also TypeError, ValueError): there is no such method, or as for
                `MethodSpec.from_raw`.
        """
        if isinstance(spec, ModuleSpec):
            return spec
        check_type(spec, Mapping, "a specification is a table by the names of methods")
        if missing := [name for name in spec if not callable(getattr(module, name, None))]:
            raise UnknownNameError(
                f"module {type(module).__name__} has no method {missing[0]!r}",
                hint=close_names(missing[0], dir(module)),
                about=spec,
            )
        specs = [MethodSpec.from_raw(spec[name], getattr(module, name)) for name in spec]
        return ModuleSpec(module, list(spec), specs)

    @override
    def __repr__(self) -> str:
        pairs = zip(self.method_names, self.method_specs, strict=True)
        return "\n".join(["ModuleSpec:", *(f"  {spec.signature(name)}" for name, spec in pairs)])
