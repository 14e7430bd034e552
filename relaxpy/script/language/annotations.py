"""`R.Tensor` and its siblings: annotations whose dimensions may be strings, and devices."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, close_names, unexpected
from relaxpy.ir.core.device import split_device
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.types import PrimType
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import static_type as ty
from relaxpy.ir.relax.nodes.base_classes import checked_node_count
from relaxpy.ir.relax.nodes.distributed import DeviceMesh, DTensorStructInfo, Placement
from relaxpy.ir.relax.nodes.struct_info import check_sizes, integer_hint, scalar_value
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.script.language.records import DatatypeName, DeviceForm, UnknownShape, as_dtype
from relaxpy.support.entry import user_facing

#: The name under which a module lists its devices.
KEY = "vdevice"


class Devices:
    """The devices and meshes in a module's global infos."""

    def __init__(self) -> None:
        self.global_infos: Mapping[str, Sequence[object]] = {}

    @property
    def listed(self) -> Sequence[object] | None:
        """The module's devices, or None if it has no list of them."""
        return self.global_infos.get(KEY)

    def mesh(self, text: str) -> DeviceMesh:
        """The mesh called `text`: "mesh[0]" is the first in the module's list "mesh".

        Errors:
            MisuseError (also ValueError): the module lists no such mesh.
        """
        matched = re.fullmatch(r"(\w+)(?:\[([0-9]{1,6})\])?", text)
        listed = self.global_infos.get(matched[1], ()) if matched else ()
        number = int(matched[2] or 0) if matched else 0
        if number < len(listed):
            mesh = listed[number]
            if isinstance(mesh, DeviceMesh):
                return mesh
        raise MisuseError(
            f"the module lists no mesh {text!r:.60}",
            about=text,
            hint='list it: I.module_global_infos({"mesh": [R.dist.device_mesh((2,), [0, 1])]})',
        )

    def find(self, text: str) -> VDevice:
        """Device `text`: "cuda:1" is the second of its kind, "vdevice:3" the fourth of all.

        A memory scope may follow, as in "cuda:1:global". Without a list, the number is the physical
        number of the device.

        Errors:
            MisuseError (also ValueError): there is no such device, it has another memory scope, or
                its number is not a number.
        """
        name, scope = text, ""
        if isinstance(text, str) and text.count(":") == 2:
            name, _, scope = text.rpartition(":")
        kind, number = split_device(name)
        if self.listed is None:
            return VDevice(kind, number, scope or "global")
        devices = [device for device in self.listed if isinstance(device, VDevice)]
        candidates = devices if kind == KEY else [d for d in devices if d.kind == kind]
        if number < len(candidates):
            found = candidates[number]
            if scope and scope != found.memory_scope:
                raise MisuseError(
                    f"the memory of device {name!r} is {found.memory_scope!r}, found {scope!r}",
                    about=text,
                )
            return found
        kinds = [device.kind for device in devices]
        raise MisuseError(
            f"the module lists no device {text!r}; it lists {', '.join(kinds) or 'none'}",
            about=text,
            hint=close_names(kind, kinds),
        )


Dim = Callable[[str], PrimExpr]

#: NumPy's arrays have at most 64 axes; values that are only passed through may have more.
MAX_RANK = 1024


def _no_string_dims(text: str) -> PrimExpr:
    raise MisuseError(
        f"the string dimension {text!r} has a meaning only in a signature",
        about=text,
        hint=f"declare the variable, as in {_first_name(text)} = T.int64(), and write it unquoted",
    )


def _first_name(text: str) -> str:
    tokens = "".join(c if c.isidentifier() or c.isdigit() else " " for c in text).split()
    return next((t for t in tokens if t.isidentifier()), "n")


class _StructInfoGetter:
    """`__struct_info__` of an annotation; a bare class is called without arguments first."""

    def __get__(self, owner: Annotation | None, kind: type[Annotation]) -> Callable[[], Any]:
        return (kind() if owner is None else owner).as_struct_info


if TYPE_CHECKING:  # so that type checkers accept an annotation in place of a struct info
    _Base = rx.StructInfo
else:
    _Base = object


class Annotation(_Base):
    """Base of the struct info annotations of a program."""

    __struct_info__: ClassVar[_StructInfoGetter] = _StructInfoGetter()
    node_count = 1

    @override
    def __init_subclass__(cls) -> None:
        # Python itself evaluates annotations, and so calls these, before any decorator runs.
        cls.__init__ = user_facing(cls.__init__)  # type: ignore[method-assign]

    @user_facing
    def __class_getitem__(cls, item: object) -> NoReturn:
        """Refuse `R.Tensor[(4,), "float32"]`, as types of Python are written."""
        name = f"R.{cls.__name__.strip('_')}"
        raise MisuseError(
            f"{name} is called, found {name}[...]", about=item, hint=f"write {name}(...)"
        )

    def to_struct_info(self, dim: Dim) -> rx.StructInfo:
        """The struct info; `dim` maps string dimensions to expressions."""
        raise AssertionError("every subclass overrides this")

    def as_struct_info(self) -> rx.StructInfo:
        """The struct info of an annotation without string dimensions.

        Errors:
            MisuseError (also TypeError): it has one.
        """
        return self.to_struct_info(_no_string_dims)

    def strings(self, *, in_functions: bool) -> Iterator[str]:
        """The string dimensions, from left to right."""
        yield from ()

    @property
    def display_name(self) -> str:
        """The description in messages."""
        return f"struct info, {self!r}"

    @override
    def __repr__(self) -> str:
        return str(self.to_struct_info(lambda name: Var(name, INT64)))


def resolve(value: object, dim: Dim = _no_string_dims) -> rx.StructInfo:
    """The struct info of `value`: a struct info, annotation, bare class, or None for unit.

    Errors:
        MisuseError (also TypeError): it is not an annotation, or has a string dimension where
            none is allowed.
    """
    value = _plain(value)
    if isinstance(value, Annotation):
        return value.to_struct_info(dim)
    if value is None:
        return rx.TupleStructInfo(())
    return rx.as_struct_info(value)


def string_dims(value: object, *, in_functions: bool) -> Iterator[str]:
    """The string dimensions in `value`; those of Callables only with `in_functions`."""
    value = _plain(value)
    if isinstance(value, Annotation) and (in_functions or not isinstance(value, Callable_)):
        yield from value.strings(in_functions=in_functions)


def is_annotation(value: object) -> bool:
    """True if `value` is a struct info or an annotation."""
    return isinstance(_plain(value), (Annotation, rx.StructInfo))


def _plain(value: object) -> object:
    """Normalize an annotation: unwrap `Annotated[R.Tensor, (4,)]`, instantiate a bare class."""
    if typing.get_origin(value) is typing.Annotated:
        kind, *arguments = typing.get_args(value)
        is_constructor = isinstance(kind, TypeName) or (
            isinstance(kind, type) and issubclass(kind, Annotation)
        )
        return kind(*arguments) if is_constructor else value
    if isinstance(value, type) and issubclass(value, Annotation):
        return value()
    if isinstance(value, (Annotation, rx.StructInfo)) or value is None:
        return value
    if isinstance(value, DatatypeName):  # `n: T.int64`, as in TVM after v0.27
        return rx.PrimStructInfo(value.dtype) if value.dtype else value
    legacy = _from_legacy(value)
    return value if legacy is None else legacy


def _checked_dims(values: Sequence[object]) -> tuple[object, ...]:
    return tuple(_checked_dim(value, values) for value in values)


def _checked_dim(value: object, siblings: object = None) -> object:
    if isinstance(value, TypeVar):  # `def f[n](x: R.Tensor((n, 4)))`, which Python evaluates
        return value.__name__
    if isinstance(value, rx.Expr):
        value = scalar_value(value)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer, str, PrimExpr)):
        raise unexpected(
            value,
            "a dimension is an integer expression or a name",
            rule="PX-9",
            about=siblings if value is None else value,
            hint=integer_hint(value),
        )
    if not isinstance(value, str):
        rx.as_shape((value,))
    return value


def _dims(values: Sequence[object], dim: Dim) -> tuple[Any, ...]:
    return tuple(dim(v) if isinstance(v, str) else v for v in values)


def checked_ndim(ndim: object) -> int:
    """Check that `ndim` is the rank of an annotation, or -1 if unknown, and return it.

    Errors: MisuseError about `ndim` if it is not a rank.
    """
    if isinstance(ndim, bool) or not isinstance(ndim, int) or ndim < -1:
        raise unexpected(ndim, "ndim is -1 (unknown) or a rank", rule="SI-11")
    if ndim > MAX_RANK:
        raise MisuseError(f"a rank is at most {MAX_RANK}, found {ndim}", about=ndim)
    return ndim


class Tensor(Annotation):
    """A tensor: `R.Tensor(("n", 4), "float32")`, `R.Tensor(ndim=2)`, `R.Tensor("int8")`.

    Errors:
        MisuseError (also TypeError, ValueError): shape and ndim are both present, or invalid.
    """

    def __init__(
        self,
        shape: Sequence[object] | rx.Expr | UnknownShape | str | None = None,
        dtype: str | None = None,
        vdevice: object = None,
        ndim: int = -1,
    ) -> None:
        if isinstance(shape, str):
            if dtype is not None:
                raise unexpected(
                    shape,
                    "a shape is a sequence of dimensions",
                    hint=f"a tuple of one has a comma: ({shape!r},)"
                    if shape.isidentifier() and isinstance(dtype, str)
                    else "the shape comes first, the dtype second",
                )
            shape, dtype = None, shape
        if isinstance(shape, UnknownShape):
            shape = None
        if isinstance(shape, (rx.Call, rx.TupleGetItem)):
            raise MisuseError(
                "the shape of an annotation is not computed in it",
                rule="LEG-8",
                about=shape,
                hint="bind the shape to a variable first and write that: s = ...; R.Tensor(s)",
            )
        if shape is not None and not isinstance(shape, (tuple, list, rx.ShapeExpr, rx.Var)):
            raise unexpected(
                shape,
                "a shape is a sequence of dimensions or a shape variable",
                rule="SI-3",
                hint=f"write the dimensions in a tuple: ({shape!r},)"
                if isinstance(shape, (int, PrimExpr))
                else None,
            )
        self.ndim = checked_ndim(ndim)
        if shape is not None and self.ndim != -1:
            raise MisuseError("give the shape or ndim, not both", about=ndim)
        if isinstance(shape, (tuple, list)):
            shape = _checked_dims(shape)
            check_sizes(shape)
            self.node_count = 1 + len(shape)
        self.shape = shape
        self.dtype = None if dtype is None else as_dtype(dtype)
        if not (vdevice is None or isinstance(vdevice, (str, VDevice, DeviceForm))):
            raise unexpected(
                vdevice, "a device is a string or I.vdevice(...)", hint='write vdevice="cuda:0"'
            )
        self.vdevice = vdevice

    @override
    def to_struct_info(self, dim: Dim) -> rx.StructInfo:
        shape: Any = self.shape
        if isinstance(shape, tuple):
            shape = _dims(shape, dim)
        ndim: Any = None if shape is not None else self.ndim
        device = self.vdevice
        if isinstance(device, str):  # the parser has resolved strings that the module defines
            device = Devices().find(device)
        return rx.TensorStructInfo(shape, self.dtype, device, ndim)

    @override
    def strings(self, *, in_functions: bool) -> Iterator[str]:
        if isinstance(self.shape, tuple):
            yield from (s for s in self.shape if isinstance(s, str))


class DTensor(Annotation):
    """A tensor over several devices: `R.DTensor((4, 8), "float32", "mesh[0]", "S[0]")`.

    Errors:
        MisuseError (also TypeError, ValueError): mesh or placement is invalid, or they differ.
    """

    def __init__(
        self,
        shape: Sequence[object] | rx.Expr | UnknownShape | None = None,
        dtype: str | None = None,
        device_mesh: DeviceMesh | str | None = None,
        placement: Placement | str | None = None,
        *,
        ndim: int = -1,
    ) -> None:
        self.tensor = Tensor(shape, dtype, ndim=ndim)
        self.node_count = self.tensor.node_count
        if not isinstance(device_mesh, (DeviceMesh, str)):
            raise unexpected(
                device_mesh,
                "a distributed tensor has a mesh of devices",
                hint='write R.dist.device_mesh((2,), [0, 1]), or "mesh[0]" if the module lists it',
            )
        if not isinstance(placement, (Placement, str)):
            raise unexpected(
                placement,
                "a distributed tensor has a placement",
                hint='write "S[0]" to split it along axis 0, "R" for copies',
            )
        self.device_mesh = device_mesh
        self.placement = Placement.from_text(placement) if isinstance(placement, str) else placement

    @override
    def to_struct_info(self, dim: Dim) -> rx.StructInfo:
        mesh = self.device_mesh
        if isinstance(mesh, str):
            mesh = Devices().mesh(mesh)
        tensor = self.tensor.to_struct_info(dim)
        assert isinstance(tensor, rx.TensorStructInfo)
        return DTensorStructInfo(tensor, mesh, self.placement)

    @override
    def strings(self, *, in_functions: bool) -> Iterator[str]:
        yield from self.tensor.strings(in_functions=in_functions)


class Shape(Annotation):
    """A shape value: `R.Shape(["n", 4])`, `R.Shape(ndim=2)`."""

    def __init__(
        self, values: Sequence[object] | UnknownShape | None = None, ndim: int = -1
    ) -> None:
        if isinstance(values, UnknownShape):
            values = None
        if values is not None and not isinstance(values, (tuple, list)):
            raise unexpected(values, "a shape is a list of dimensions")
        self.values = None if values is None else _checked_dims(values)
        self.node_count = 1 + len(self.values or ())
        self.ndim = checked_ndim(ndim)
        if values is not None and self.ndim != -1:
            raise MisuseError("give the dimensions or ndim, not both", about=ndim)

    @override
    def to_struct_info(self, dim: Dim) -> rx.StructInfo:
        if self.values is None:
            return rx.ShapeStructInfo(ndim=self.ndim)
        return rx.ShapeStructInfo(_dims(self.values, dim))

    @override
    def strings(self, *, in_functions: bool) -> Iterator[str]:
        yield from (v for v in self.values or () if isinstance(v, str))


class Prim(Annotation):
    """A scalar: `R.Prim("int64")`, or a scalar of known value: `R.Prim(value="n")`."""

    def __init__(self, dtype: str | None = None, value: object = None) -> None:
        if dtype is None and value is None:
            raise MisuseError("R.Prim has a dtype or a value")
        self.dtype = None if dtype is None else as_dtype(dtype)
        self.value = value

    @override
    def to_struct_info(self, dim: Dim) -> rx.StructInfo:
        value: Any = dim(self.value) if isinstance(self.value, str) else self.value
        if isinstance(value, PrimExpr):
            return rx.PrimStructInfo(self.dtype or value.dtype, value)
        return rx.PrimStructInfo(self.dtype, value)

    @override
    def strings(self, *, in_functions: bool) -> Iterator[str]:
        if isinstance(self.value, str):
            yield self.value


class Object(Annotation):
    """Any value."""

    @override
    def to_struct_info(self, dim: Dim) -> rx.StructInfo:
        return rx.ObjectStructInfo()


class Tuple(Annotation):
    """A tuple: `R.Tuple(R.Tensor, R.Shape)`; `R.Tuple()` is unit."""

    def __init__(self, *fields: object) -> None:
        if len(fields) == 1 and isinstance(fields[0], (tuple, list)):
            fields = tuple(fields[0])
        self.fields = tuple(_checked_sinfo(field) for field in fields)
        self.node_count = checked_node_count(self.fields)

    @override
    def to_struct_info(self, dim: Dim) -> rx.StructInfo:
        return rx.TupleStructInfo(tuple(resolve(field, dim) for field in self.fields))

    @override
    def strings(self, *, in_functions: bool) -> Iterator[str]:
        for field in self.fields:
            yield from string_dims(field, in_functions=in_functions)


def _checked_sinfo(value: object) -> object:
    if value is not None and not is_annotation(value):
        raise unexpected(value, "expected a struct info such as R.Tensor")
    return value


class Callable_(Annotation):  # noqa: N801
    """A function: `R.Callable((R.Tensor,), R.Tensor)`; without parameters any packed function."""

    def __init__(
        self,
        params: Sequence[object] | object | None = None,
        ret: object = None,
        purity: bool | None = None,
        derive_func: str | rx.EnvFunc | None = None,
    ) -> None:
        if params is not None and not isinstance(params, (tuple, list)):
            params = (params,)
        if isinstance(params, (tuple, list)):
            params = tuple(_checked_sinfo(param) for param in params)
        self.params = params
        self.ret = _checked_sinfo(ret)
        self.node_count = checked_node_count((*(params or ()), ret))
        self.purity = (params is not None) if purity is None else bool(purity)
        if isinstance(derive_func, str):
            derive_func = rx.known_derivation(derive_func)
        if params is not None and derive_func is not None:
            raise MisuseError("a function has parameters or a derive_func, not both", rule="WF-17a")
        self.derive_func = derive_func

    @override
    def to_struct_info(self, dim: Dim) -> rx.StructInfo:
        ret = None if self.ret is None else resolve(self.ret, dim)
        if not isinstance(self.params, tuple):
            return rx.FuncStructInfo.opaque_func(
                ret=ret, derive_func=self.derive_func, purity=self.purity
            )
        params = tuple(resolve(param, dim) for param in self.params)
        return rx.FuncStructInfo(params, ret or rx.ObjectStructInfo(), self.purity)

    @override
    def strings(self, *, in_functions: bool) -> Iterator[str]:
        params = self.params if isinstance(self.params, tuple) else ()
        for annotation in (*params, self.ret):
            yield from string_dims(annotation, in_functions=in_functions)


class TypeName:
    """The name of a type: a call returns what `constructor` returns; bare, it takes no arguments.

    Newer versions use the names that older versions gave to types for struct infos.
    """

    def __init__(self, name: str, constructor: Callable[..., object]) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = constructor.__doc__
        self.__wrapped__ = constructor
        parameters = inspect.signature(constructor).parameters.values()
        self.takes_arguments = any(
            p.default is p.empty and p.kind != p.VAR_POSITIONAL for p in parameters
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The type, or the struct info of the same name in newer versions."""
        return self.__wrapped__(*args, **kwargs)

    def __struct_info__(self) -> rx.StructInfo:
        """The struct info of the bare name."""
        return resolve(self)


def as_type(value: object) -> ty.Type | None:
    """Convert `value` to a type; it may be a bare type name. None if it is not a type."""
    if (isinstance(value, TypeName) and not value.takes_arguments) or (
        isinstance(value, type) and issubclass(value, ty.Type) and value is not ty.FuncType
    ):
        value = value()
    return value if isinstance(value, ty.Type) else None


class Pair(Annotation):
    """A type and a shape, combined into one struct info (LEG-14, LEG-29)."""

    def __init__(self, kind: ty.Type, shape: object) -> None:
        self._annotation = _combined(kind, shape)
        self.node_count = self._annotation.node_count

    @override
    def to_struct_info(self, dim: Dim) -> rx.StructInfo:
        return resolve(self._annotation, dim)

    @override
    def strings(self, *, in_functions: bool) -> Iterator[str]:
        yield from string_dims(self._annotation, in_functions=in_functions)


def _combined(kind: ty.Type | PrimType, shape: object) -> Annotation | rx.StructInfo:
    """Combine a type and a shape."""
    if isinstance(shape, UnknownShape):
        return ty.wrap_type(kind)
    fields = shape if isinstance(shape, (tuple, list)) else None
    match kind:
        case ty.DynTensorType(ndim=ndim, dtype=dtype) if _is_shape(shape):
            tensor = Tensor(shape, None if dtype.is_void else dtype)  # type: ignore[arg-type]
            if fields is None or ndim in (-1, len(fields)):
                return tensor
            raise _mismatch(f"a tensor type of rank {ndim}", f"a shape of {len(fields)}", shape)
        case ty.TupleType(fields=types) if fields is not None:
            if len(types) == len(fields):
                return Tuple(*(_combined(t, s) for t, s in zip(types, fields, strict=True)))
            tuple_type = f"a tuple type of {len(types)} fields"
            raise _mismatch(tuple_type, f"a tuple of {len(fields)} shapes", shape)
        case _:
            raise _mismatch(f"{ty.wrap_type(kind)}", "this shape", shape)


def _mismatch(kind: str, shape: str, about: object) -> MisuseError:
    return MisuseError(f"{kind} and {shape} do not match", rule="LEG-29", about=about)


def _is_shape(value: object) -> bool:
    """True if `value` is a shape in an older annotation: a list of dimensions."""
    if isinstance(value, (rx.ShapeExpr, rx.Var, rx.Call, rx.TupleGetItem)):
        return True
    return isinstance(value, (tuple, list)) and not any(
        isinstance(member, (tuple, list, UnknownShape, rx.Expr)) for member in value
    )


def _from_shape(value: object) -> Annotation | None:
    """The annotation for a shape or a tuple of shapes; None if `value` is neither."""
    if isinstance(value, UnknownShape):
        return Tensor()
    if isinstance(value, (Annotation, rx.StructInfo, ty.Type, type, TypeName)):
        return None
    if isinstance(value, (tuple, list)) and not value:
        return Tensor(())
    if isinstance(value, (tuple, list)) and not _is_shape(value):
        fields = [_from_shape(member) for member in value]
        return None if None in fields else Tuple(*fields)
    return Tensor(value) if _is_shape(value) and not _has_annotations(value) else None  # type: ignore[arg-type]


def _has_annotations(value: object) -> bool:
    kinds = (Annotation, rx.StructInfo, ty.Type, type, TypeName)
    return isinstance(value, (tuple, list)) and any(isinstance(v, kinds) for v in value)


def _from_legacy(value: object) -> Annotation | rx.StructInfo | None:
    """Translate an annotation of older versions; None if `value` is not one."""
    kind = as_type(value)
    if kind is not None:
        return ty.wrap_type(kind)
    if isinstance(value, TypeName):
        return None
    if not isinstance(value, tuple) or not value:
        return None
    kind = as_type(value[0])
    if kind is not None and len(value) == 2 and as_type(value[1]) is None:
        return Pair(kind, value[1])
    # One flat tuple would be a single shape: only a tuple of shapes is an annotation (LEG-7).
    return None if _is_shape(value) else _from_shape(value)
