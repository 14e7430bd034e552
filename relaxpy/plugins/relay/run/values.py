"""Values of Relay programs, and their checks against types (RLY-34, RLY-88, RLY-107)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, RuntimeCheckError, Span, check_type
from relaxpy.exec.runtime.values import as_tensor
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.plugins.relay.expr import Constant, Constructor
from relaxpy.plugins.relay.infer.solver import substitute
from relaxpy.plugins.relay.ty import (
    FuncType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    UnknownDim,
)
from relaxpy.plugins.relay.variables import all_type_vars
from relaxpy.support.dataclass import dataclass

_MAX_SHOWN = 1_000
TypeArgs: TypeAlias = dict[TypeVar, Any]
"""Type parameters with their arguments: a datatype, shape or size; or a value of the type."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ConstructorValue:
    """An instance of a data type: the tag of its constructor, and its fields (RLY-34)."""

    tag: int
    fields: tuple[Any, ...]
    constructor: Constructor

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, index: int) -> Any:
        return self.fields[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fields)

    @override
    def __repr__(self) -> str:
        return value_text(self)


class RefValue:
    """A reference cell with its present content (RLY-107)."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @override
    def __repr__(self) -> str:
        return f"ref({value_text(self.value)})"


class FunctionValue:
    """A function as a value: a closure, a constructor or an operator, callable from Python."""

    __slots__ = ("call", "name", "type")

    def __init__(self, name: str, ty: Type | None, call: Callable[[Sequence[Any]], Any]) -> None:
        self.name = name
        self.type = ty
        self.call = call

    def __call__(self, *args: Any) -> Any:
        """The value of a call; Python numbers take the datatypes of the parameters."""
        return self.call(args)

    @override
    def __repr__(self) -> str:
        return f"<{self.name}: {self.type}>"


def value_text(value: Any) -> str:
    """The text of a value, shortened where it is large."""
    pieces: list[str] = []
    stack: list[Any] = [value]
    while stack and len(pieces) < _MAX_SHOWN:
        part = stack.pop()
        if isinstance(part, _Text):
            pieces.append(part)
        elif isinstance(part, ConstructorValue):
            pieces.append(part.constructor.name_hint)
            if part.fields:
                stack += reversed([_Text("("), *_listed(part.fields), _Text(")")])
        elif isinstance(part, tuple):
            end = _Text(",)" if len(part) == 1 else ")")
            stack += reversed([_Text("("), *_listed(part), end])
        elif isinstance(part, np.ndarray):
            shown = str(part[()]) if part.ndim == 0 else f"{part.dtype}{list(part.shape)}"
            pieces.append(shown)
        else:
            pieces.append(f"{part!r:.60}")
    return "".join(pieces) + ("…" if stack else "")


class _Text(str):
    """Text in the representation of a value, as opposed to a string that is a value."""

    __slots__ = ()


def _listed(values: Sequence[Any]) -> list[Any]:
    """Values with commas between them."""
    listed: list[Any] = []
    for value in values:
        listed += (_Text(", "), value) if listed else (value,)
    return listed


def mismatch(value: Any, ty: Type, type_args: TypeArgs | None = None) -> str | None:
    """The reason why a value is not of a type, or None; sizes of `?` are free (RLY-88).

    The fields of instances and the contents of cells are checked too, shared ones once. Parameters
    of the type are those of `type_args`, which receives those that it does not have.
    """
    type_args = {} if type_args is None else type_args
    fields_of = FieldTypes()
    visited: set[tuple[int, int]] = set()
    stack: list[tuple[Any, Type]] = [(value, ty)]
    while stack:
        part, expected = stack.pop()
        if (id(part), id(expected)) in visited:
            continue
        visited.add((id(part), id(expected)))
        fits = True
        match expected:
            case TensorType():
                error = _tensor_mismatch(part, expected, type_args)
                if error is not None:
                    return error
            case TupleType(fields=fields):
                fits = isinstance(part, tuple) and len(part) == len(fields)
                stack += zip(part, fields, strict=True) if fits else ()
            case TypeCall(func=func):
                fits = isinstance(part, ConstructorValue) and part.constructor.belong_to == func
                if fits:
                    stack += zip(part.fields, fields_of(part.constructor, expected), strict=False)
            case RefType(value=content):
                fits = isinstance(part, RefValue)
                stack += [(part.value, content)] if fits else ()
            case FuncType():
                fits = isinstance(part, FunctionValue)
            case TypeVar(name_hint=name) if _differ(type_args.setdefault(expected, part), part):
                known = value_text(type_args[expected])
                return f"expected the type of {known}, which is {name}, found {value_text(part)}"
            case _:
                pass
        if not fits:
            return f"expected {expected}, found {value_text(part)}"
    return None


class FieldTypes:
    """The types of the fields of instances; equal types are one object, so that this ends."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[Type, tuple[Type, ...]]] = {}
        self._unique: dict[Type, Type] = {}

    def __call__(self, constructor: Constructor, ty: TypeCall) -> tuple[Type, ...]:
        """The types of the fields of a constructor whose instances are of this type."""
        key = id(constructor), id(ty)
        if key not in self._known:
            whole = self._unique.setdefault(ty, ty)
            function = constructor.checked_type_
            fields: tuple[Type, ...] = ()
            if isinstance(function, FuncType) and isinstance(whole, TypeCall):
                args = dict(zip(function.type_params, whole.args, strict=False))
                fields = tuple(substitute(field, args) for field in function.arg_types)
            self._known[key] = ty, tuple(self._unique.setdefault(f, f) for f in fields)
        return self._known[key][1]


def _differ(one: Any, other: Any) -> bool:
    """True if no type has both values, as far as values show their types."""
    visited: set[tuple[int, int]] = set()
    stack = [(one, other)]
    while stack:
        a, b = stack.pop()
        if a is b or (id(a), id(b)) in visited:
            continue
        visited.add((id(a), id(b)))
        match a, b:
            case np.ndarray(), np.ndarray():
                if (a.dtype, a.shape) != (b.dtype, b.shape):
                    return True
            case tuple(), tuple() if len(a) == len(b):
                stack += zip(a, b, strict=True)
            case ConstructorValue(), ConstructorValue() if a.constructor is b.constructor:
                stack += zip(a.fields, b.fields, strict=True)
            case ConstructorValue(), ConstructorValue():
                if a.constructor.belong_to != b.constructor.belong_to:
                    return True
            case RefValue(), RefValue():
                stack.append((a.value, b.value))
            case FunctionValue(), FunctionValue():
                continue
            case _:
                return True
    return False


def _tensor_mismatch(value: Any, ty: TensorType, type_args: TypeArgs) -> str | None:
    if not isinstance(value, np.ndarray):
        return f"expected {ty}, found {value_text(value)}"

    def is_free(expected: Any, actual: object) -> bool:
        """True if a component of the type is free to be `actual`."""
        if isinstance(expected, TypeVar):
            return bool(type_args.setdefault(expected, actual) == actual)
        return bool(expected == actual) or isinstance(expected, UnknownDim)

    found = TensorType(value.shape, DataType(value.dtype))
    components: list[tuple[Any, Any]] = [(ty.dtype, found.dtype), (ty.shape, found.shape)]
    if isinstance(ty.shape, tuple) and len(ty.shape) == value.ndim:
        components[1:] = zip(ty.shape, value.shape, strict=True)
    if all(is_free(*component) for component in components):
        return None
    known = {p: a for p, a in type_args.items() if p in all_type_vars(ty)}
    where = ", ".join(f"{param.name_hint} = {value}" for param, value in known.items())
    return f"expected {ty}{f' with {where}' if where else ''}, found {found}"


def check_value(
    value: Any, ty: Type, what: str, rule: str, span: Span | None, type_args: TypeArgs | None = None
) -> None:
    """Check that a value has a type, whose parameters are those of `type_args`.

    Errors:
        RuntimeCheckError: it has not.
    """
    error = mismatch(value, ty, type_args)
    if error is not None:
        raise RuntimeCheckError(f"{what}: {error}", rule=rule, span=span)


def from_python(value: Any, ty: Type | None) -> Any:
    """An argument as a value: a number, a list or an array becomes a tensor.

    Numbers take the datatype of the type (a Python integer is int32 and a float float32 without
    one); lists and tuples become tuples where the type is one.
    """
    if isinstance(value, (ConstructorValue, RefValue, FunctionValue)):
        return value
    if isinstance(ty, TupleType) and isinstance(value, (tuple, list)):
        if len(value) == len(ty.fields):
            return tuple(from_python(v, t) for v, t in zip(value, ty.fields, strict=True))
        return tuple(from_python(v, None) for v in value)
    if isinstance(value, tuple) and not isinstance(ty, TensorType):
        return tuple(from_python(v, None) for v in value)
    return _tensor(value, ty)


def _tensor(value: Any, ty: Type | None) -> Array:
    dtype = ty.dtype if isinstance(ty, TensorType) and isinstance(ty.dtype, DataType) else None
    if isinstance(value, Constant):
        return value.data
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.generic):
        return np.asarray(value)
    if not isinstance(value, (bool, int, float)) and hasattr(value, "__array__"):
        return np.asarray(as_tensor(value))
    check_type(
        value, (bool, int, float, list, tuple), "expected a tensor, a tuple or a value of Relay"
    )
    try:
        data = np.array(value)
        narrow = {"int64": "int32", "float64": "float32"}.get(data.dtype.name)
        target = str(dtype) if dtype is not None else narrow or data.dtype.name
        with np.errstate(over="ignore", invalid="ignore"):
            converted = np.array(value, target)
        exact = data.dtype.kind == "f" or bool(np.all(converted == data))
        if data.dtype.kind == "f" and converted.dtype.kind not in "fV":
            exact = False
    except (TypeError, ValueError, OverflowError) as error:
        raise MisuseError(f"cannot make a tensor of {value!r:.60}: {error}", about=value) from None
    if not exact:
        raise MisuseError(f"{value!r:.60} does not fit {target}", about=value)
    return converted
