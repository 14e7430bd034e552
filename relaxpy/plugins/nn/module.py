"""Models and their layers: trees of modules with parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from itertools import groupby
from reprlib import recursive_repr
from typing import Any, ClassVar, Final, Generic, NoReturn, TypeVar

import numpy as np
from typing_extensions import override

from relaxpy.errors import (
    Diagnostic,
    MisuseError,
    UnknownAttributeError,
    UnknownNameError,
    check_type,
    close_names,
    counted,
    unexpected,
)
from relaxpy.ir import hooks
from relaxpy.plugins.nn.core import Array, Parameter, items_of
from relaxpy.plugins.nn.exporter import Branch, export, named_items, unique_items
from relaxpy.plugins.nn.methods import MODULE_INSTEAD
from relaxpy.plugins.nn.spec import ModuleSpec
from relaxpy.plugins.nn.subroutine import SubroutineMixin
from relaxpy.support.entry import user_facing

Item = TypeVar("Item")
_MAX_NOTES: Final = 20
#: The end of the paths of counters that PyTorch models have, and that running does not read.
_COUNTER: Final = "num_batches_tracked"
"""The number of parameters that an error names after the first."""


class Module(SubroutineMixin, Branch):
    """A part of a model: parameters and other modules as attributes, and methods on tensors.

    Calling a module calls its method `forward`.
    """

    @override
    @recursive_repr("...")
    def __repr__(self) -> str:
        items = [
            (name, repr(item).replace("\n", "\n  "))
            for name, item in self.items_by_name()
            if isinstance(item, (Branch, Parameter))
        ]
        lines: list[str] = []
        for text, group in groupby(items, lambda item: item[1]):
            first, *others = (name for name, _ in group)
            several = f"({first} to {others[-1]}): {len(others) + 1} x" if others else f"({first}):"
            lines.append(f"  {several} {text}")
        body = "\n".join(["", *lines, ""]) if lines else ""
        return f"{type(self).__name__}({body})"

    @user_facing
    def __getattr__(self, name: str) -> NoReturn:
        """Errors: UnknownAttributeError (also AttributeError), with what to write instead."""
        message = f"the module {type(self).__name__} has no attribute {name!r}"
        if name.startswith("_"):
            raise AttributeError(message, name=name, obj=self)
        known = (other for other in dir(self) if not other.startswith("_"))
        hint = MODULE_INSTEAD.get(name) or close_names(name, known)
        raise UnknownAttributeError(message, hint=hint, about=name)

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """The parameters in the order of attributes, with paths such as `layers.0.weight`.

        A parameter at several paths, such as a tied weight, has the first one.
        """
        yield from unique_items(self, Parameter, prefix)

    @override
    def parameters(self) -> Iterator[Parameter]:
        """The parameters in the order of attributes."""
        for _, param in self.named_parameters():
            yield param

    @user_facing
    def state_dict(
        self, *, prefix: str = "", destination: MutableMapping[str, Parameter] | None = None
    ) -> MutableMapping[str, Parameter]:
        """The parameters by all their paths, entered into `destination` if it is passed."""
        result = {} if destination is None else destination
        result.update(named_items(self, Parameter, prefix))
        return result

    @user_facing
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True
    ) -> tuple[list[str], list[str]]:
        """Set values by the paths of parameters; return missing and unexpected paths.

        `state_dict` has parameters, or what may be the value of one, such as the tensors of torch.
        Counters of batch normalisations of PyTorch are left out. Of a parameter at several paths,
        one suffices. The values are not copied. If one does not fit, none is set, and the error has
        all of them.

        Errors:
            UnknownNameError (also KeyError): there are such paths, and `strict` is set.
            MisuseError (also TypeError, ValueError): `state_dict` is not a mapping, or a value
                in it is missing, or has another shape or datatype, or the paths of one parameter
                have different values.
        """
        check_type(state_dict, Mapping, "expected a table of parameters by their paths")
        params = self.state_dict()
        present = {id(param) for path, param in params.items() if path in state_dict}
        missing = [path for path, param in params.items() if id(param) not in present]
        unexpected = [p for p in state_dict if p not in params and not p.endswith(_COUNTER)]
        if strict and (missing or unexpected):
            raise UnknownNameError(
                f"the parameters differ: missing {missing}, unexpected {unexpected}",
                hint="strict=False loads what is there",
            )
        arrays: dict[str, Array] = {}
        first_paths: dict[int, str] = {}
        wrong: list[Diagnostic] = []
        for path in (path for path in params if path in state_dict):
            value = state_dict[path]
            data = value.data if isinstance(value, Parameter) else value
            if data is None:
                wrong.append(Diagnostic(f"parameter {path} of the state has no value"))
                continue
            try:
                arrays[path] = params[path].checked(data)
            except MisuseError as error:
                found = error.diagnostic
                wrong.append(replace(found, message=f"parameter {path}: {found.message}"))
                continue
            other = first_paths.setdefault(id(params[path]), path)
            if other != path and not np.array_equal(arrays[other], arrays[path]):
                message = f"{other} and {path} are one parameter, and their values differ"
                wrong.append(Diagnostic(message))
        if wrong:
            first, *others = wrong
            notes = [problem.message for problem in others[:_MAX_NOTES]]
            if len(others) > _MAX_NOTES:
                notes.append(f"and {counted(len(others) - _MAX_NOTES, 'other parameter')}")
            raise MisuseError(replace(first, notes=tuple(notes)), about=state_dict)
        for path, array in arrays.items():
            params[path].data = array
        return missing, unexpected

    @user_facing
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call `forward`. Errors: MisuseError (also TypeError) if there is no such method."""
        if (forward := getattr(self, "forward", None)) is None:
            raise MisuseError(
                f"module {type(self).__name__} has no method forward",
                hint="define forward, or call another method of the module",
            )
        return forward(*args, **kwargs)

    def to(self, dtype: str | None = None) -> None:
        """Change the datatype of all parameters and effects, if one is passed.

        Errors:
            MisuseError (also ValueError): a parameter has a value already.
        """
        for item in vars(self).values():
            if callable(convert := getattr(item, "to", None)):
                convert(dtype=dtype)
        own = vars(self).get("dtype", getattr(type(self), "dtype", None))
        if dtype is not None and isinstance(own, str):
            self.dtype = dtype

    @user_facing
    def export_tvm(self, spec: Any, debug: bool = False, allow_extern: bool = False) -> Any:
        """The module of Relax functions for the methods in `spec`, and the parameters by name.

        `spec` is a `spec.ModuleSpec`, or a table from the name of a method to a table from the name
        of each parameter to a `spec.Tensor`, `spec.Object`, `int`, or a tuple or list of those.
        There, "$" may be {"param_mode": ..., "effect_mode": ...}, each "plain" (parameters of the
        function), "packed" (one tuple) or "none". With `debug`, the methods may print. With
        `allow_extern`, the third result are the external modules that methods added.

        Errors:
            MisuseError (also TypeError, ValueError): the specification does not fit the methods, a
                method returns what is not tensors, or there are external modules.
        """
        mod, params, externs = export(ModuleSpec.from_raw(spec, self), debug=debug)
        if allow_extern:
            return mod, params, externs
        if externs:
            raise MisuseError(
                "the model has external modules",
                hint="export_tvm(..., allow_extern=True) returns them too",
            )
        return mod, params

    @user_facing
    def jit(
        self,
        spec: Any,
        device: object = "cpu",
        pipeline: object = "default",
        out_format: str | None = None,
        debug: bool = False,
    ) -> Any:
        """The model as functions by the names of methods, which take and return tensors.

        All parameters must have values, which are copied unless nobody can write them: the weights
        are constants, packed for the kernels. Effects, such as caches, keep their state between
        calls.
        `out_format` is "numpy" or "torch"; without it, results are tensors of torch if arguments
        are, and arrays of NumPy otherwise. `pipeline` is that of `relaxpy.compile`.

        Errors:
            MisuseError (also TypeError, ValueError): as for `export_tvm`, or a parameter has no
                value, or the format is unknown or its library is not installed.
        """
        from relaxpy.ir.passes.append_in_place import AttachExternModules

        full = ModuleSpec.from_raw(spec, self)
        mod, params, externs = export(full, debug=debug)
        if missing := [path for path, param in params if param.data is None]:
            raise MisuseError(
                f"parameters have no value: {', '.join(missing)}",
                hint="set parameter.data, or call load_state_dict",
            )
        mod = AttachExternModules(externs)(mod)
        weights = [param.data for _, param in params]
        return hooks.call(
            "nn_jit", mod, full, weights, device=device, pipeline=pipeline, out_format=out_format
        )


class _List(Module, Generic[Item]):
    """Items in order; their paths are their numbers."""

    _kind: ClassVar[type[Any]]
    _items: list[Item]

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    @user_facing
    def __getitem__(self, idx: int) -> Item:
        return self._items[idx]

    @user_facing
    def __setitem__(self, idx: int, item: Item) -> None:
        self._items[idx] = _checked(item, self._kind)

    def __len__(self) -> int:
        return len(self._items)

    @user_facing
    def append(self, item: Item) -> None:
        """Add an item at the end. Errors: MisuseError (also TypeError) if it is another kind."""
        self._items.append(_checked(item, self._kind))

    @user_facing
    def extend(self, items: Iterable[Item]) -> None:
        """Add items at the end. Errors: as for `append`."""
        for item in items_of(items, f"nn.{self._kind.__name__}"):
            self.append(item)

    @override
    def items_by_name(self) -> Iterable[tuple[str, Any]]:
        return [(str(i), item) for i, item in enumerate(self._items)]

    @override
    def replace_item(self, name: str, item: Any) -> None:
        self[int(name)] = item

    @override
    def to(self, dtype: str | None = None) -> None:
        _convert_all(self, dtype)


class _Dict(Module, Generic[Item]):
    """Items by names, which are the components of their paths."""

    _kind: ClassVar[type[Any]]
    _items: dict[str, Item]

    @user_facing
    def __getitem__(self, key: str) -> Item:
        """The item under a name. Errors: UnknownNameError (also KeyError) if there is none."""
        if key not in self._items:
            raise UnknownNameError(f"there is no item {key!r}", hint=close_names(key, self._items))
        return self._items[key]

    @user_facing
    def __setitem__(self, key: str, item: Item) -> None:
        """Enter an item. Errors: MisuseError (also TypeError) if it is another kind."""
        check_type(key, str, "the names of items are strings")
        self._items[key] = _checked(item, self._kind)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._items.keys()

    def values(self) -> Iterable[Item]:
        """The items."""
        return self._items.values()

    def items(self) -> Iterable[tuple[str, Item]]:
        """The names and the items."""
        return self._items.items()

    def get(self, key: str, default: Item | None = None) -> Item | None:
        """The item under a name, or the default."""
        return self._items.get(key, default)

    @user_facing
    def update(self, items: Mapping[str, Item]) -> None:
        """Enter items. Errors: MisuseError (also TypeError) if one is another kind."""
        if not isinstance(items, (Mapping, _Dict)):
            raise unexpected(items, f"expected a table of nn.{self._kind.__name__} by name")
        for key, item in items.items():
            self[key] = item

    def clear(self) -> None:
        """Remove all items."""
        self._items.clear()

    @user_facing
    def pop(self, key: str) -> Item:
        """Remove an item and return it. Errors: UnknownNameError (also KeyError)."""
        item = self[key]
        del self._items[key]
        return item

    @override
    def items_by_name(self) -> Iterable[tuple[str, Any]]:
        return list(self._items.items())

    @override
    def replace_item(self, name: str, item: Any) -> None:
        self[name] = item

    @override
    def to(self, dtype: str | None = None) -> None:
        _convert_all(self, dtype)


class ModuleList(_List[Module]):
    """Modules in order. Calling the list calls one after the other."""

    _kind = Module

    @user_facing
    def __init__(self, modules: Iterable[Module]) -> None:
        """Errors: MisuseError (also TypeError) if an item is not a module."""
        self._items = []
        self.extend(modules)

    @property
    def modules(self) -> list[Module]:
        """The modules."""
        return self._items

    def forward(self, x: Any) -> Any:
        """The result of the last module, which gets that of the one before it, and so on."""
        for module in self:
            x = module(x)
        return x


class ModuleDict(_Dict[Module]):
    """Modules by name. Its iterator yields the modules."""

    _kind = Module

    @user_facing
    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        """Errors: MisuseError (also TypeError) if an item is not a module."""
        self._items = {}
        self.update(modules or {})

    @property
    def modules(self) -> dict[str, Module]:
        """The modules by name."""
        return self._items

    def __iter__(self) -> Iterator[Module]:
        return iter(self._items.values())


class ParameterList(_List[Parameter]):
    """Parameters in order."""

    _kind = Parameter

    @user_facing
    def __init__(self, params: Iterable[Parameter] | None = None) -> None:
        """Errors: MisuseError (also TypeError) if an item is not a parameter."""
        self._items = []
        self.extend(() if params is None else params)

    @property
    def params(self) -> list[Parameter]:
        """The parameters."""
        return self._items


class ParameterDict(_Dict[Parameter]):
    """Parameters by name. Its iterator yields the names."""

    _kind = Parameter

    @user_facing
    def __init__(self, params: Mapping[str, Parameter] | None = None) -> None:
        """Errors: MisuseError (also TypeError) if an item is not a parameter."""
        self._items = {}
        self.update(params or {})

    @property
    def params(self) -> dict[str, Parameter]:
        """The parameters by name."""
        return self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)


def _checked(item: Any, kind: type[Any]) -> Any:
    if not isinstance(item, kind):
        raise unexpected(item, f"expected an nn.{kind.__name__}")
    return item


def _convert_all(collection: Branch, dtype: str | None) -> None:
    for _, item in collection.items_by_name():
        item.to(dtype=dtype)
