"""The records that the directives of `T`, and some of `R` and `I`, return to the parser.

A record has no effect by itself, so that a namespace can be used outside of a program. Where
directives are eager, it takes effect at once instead of being returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import FrozenInstanceError, fields
from functools import wraps
from numbers import Integral
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar, dataclass_transform

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.core.dtype import INT32, DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.target import Target
from relaxpy.ir.core.types import PointerType, PrimType
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion, decl_buffer
from relaxpy.ir.tir.expr import ExprLike, IterVarKind, PrimExpr, SizeVar, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.stmt import ForKind
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_constructed, user_facing

if TYPE_CHECKING:
    from relaxpy.errors import Span
    from relaxpy.ir.core.node import Attr
    from relaxpy.ir.module import IRModule
    from relaxpy.ir.relax.nodes import StructInfo


def dimensions(shape: Any) -> tuple[ExprLike, ...]:
    """The dimensions of a shape; a single dimension need not be in a list.

    Errors:
        MisuseError: a dimension is not an integer.
    """
    return integers(shape if isinstance(shape, (tuple, list)) else (shape,), "a dimension")


def integers(values: Any, field: str) -> tuple[ExprLike, ...]:
    """Check that `values` are integers or integer expressions, and return them as a tuple."""
    check_type(values, (tuple, list), "expected a list of integers", hint=f"each member is {field}")
    for value in values:
        if isinstance(value, TypeVar):  # in an annotation, which Python evaluates
            continue
        kind = value.dtype if isinstance(value, PrimExpr) else None
        is_int = isinstance(value, Integral) if kind is None else kind.is_int and not kind.is_bool
        if not is_int or isinstance(value, bool):
            raise unexpected(
                value,
                f"{field} of a buffer is an integer",
                hint=None
                if not isinstance(value, str) or field != "a dimension"
                else "the shape comes first, the dtype second"
                if value in np.sctypeDict
                else "declare a variable, as in n = T.int32(), and use T.match_buffer",
            )
    return tuple(values)


def strides(arguments: Any, shape: tuple[ExprLike, ...]) -> tuple[ExprLike, ...]:
    """The strides; a string becomes a new variable of the datatype of the dimensions."""
    first = shape[0] if shape else 0
    dtype = first.dtype if isinstance(first, PrimExpr) else INT32
    if isinstance(arguments, (tuple, list)):
        arguments = [
            Var(s, dtype) if isinstance(s, str) and s.isidentifier() else s for s in arguments
        ]
    return integers(arguments, "a stride")


_NONE: Mapping[str, object] = MappingProxyType({})


@dataclass_transform(frozen_default=True)
class Form:
    """Base of the records; `display_name`, or `name` of a class, is the name in messages.

    The annotations of a subclass are its fields, as in a frozen dataclass. It is not one, because
    Python would generate code for each of the many subclasses whenever relaxpy is imported.
    """

    display_name: ClassVar[str]
    __match_args__: ClassVar[tuple[str, ...]] = ()

    @override
    def __init_subclass__(cls, name: str | None = None) -> None:
        if name is not None:
            cls.display_name = name
        kinds = cls.__annotations__.items()
        fields = (name for name, kind in kinds if not kind.startswith("ClassVar"))
        cls.__match_args__ = tuple(fields)  # type: ignore[misc]

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = self.__match_args__
        arguments = dict(zip(fields, values, strict=False)) | named
        for name in fields:
            object.__setattr__(
                self, name, arguments.pop(name) if name in arguments else getattr(self, name)
            )
        if arguments or len(values) > len(fields):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(fields)}")

    @override
    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __prim_expr__(self) -> PrimExpr:
        raise MisuseError(
            f"{self.display_name} is a directive, which has no value in an expression",
            about=self,
            hint="write it on a line of its own, and name what it defines",
        )

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Form) or type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    @override
    def __hash__(self) -> int:
        return hash(self._values())

    @override
    def __repr__(self) -> str:
        fields = (f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__name__}({', '.join(fields)})"


@dataclass(frozen=True, slots=True)
class FunctionOptions:
    """The options of a function's decorator; `name` need not be a Python identifier."""

    dialect: Literal["relax", "tir"]
    name: str | None = None
    private: bool = False
    pure: bool = True
    check_well_formed: bool = True

    @property
    def display_name(self) -> str:
        """The name of the decorator."""
        return "R.function" if self.dialect == "relax" else "T.prim_func"


@dataclass(frozen=True, slots=True)
class ModuleOptions:
    """The options of a module's decorator."""

    display_name: ClassVar[str] = "I.ir_module"
    check_well_formed: bool = True

    def finish(self, module: IRModule) -> Any:
        """The object that replaces the decorated class."""
        return module


@dataclass(frozen=True, slots=True)
class PythonOptions:
    """`I.pyfunc`: a Python function that the module keeps unchanged."""

    def __call__(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        """`function` itself; the enclosing class adds it to its module."""
        if not callable(function):
            raise unexpected(function, "I.pyfunc decorates a function")
        return function


@dataclass(frozen=True, slots=True)
class DatatypeName:
    """A datatype: `T.int32` in an annotation, `T.int32(x)` a value, `T.int32()` a variable."""

    display_name: ClassVar[str] = "datatype"
    dtype: DataType

    @override
    def __repr__(self) -> str:
        return f"T.{self.dtype or 'void'}"

    def __prim_expr__(self) -> PrimExpr:
        raise MisuseError(
            f"T.{self.dtype or 'void'} is a datatype, expected a scalar expression",
            about=self,
            hint=f"T.{self.dtype}(x) is a value of it" if self.dtype else None,
        )

    def __call__(
        self, value: ExprLike | None = None, dtype: str | None = None, is_size_var: bool = False
    ) -> PrimExpr:
        """`value` cast to this datatype; by default a new variable, named when assigned."""
        if value is None:
            return SizeVar("", self.dtype) if is_size_var else Var("", self.dtype)
        if isinstance(value, str):
            try:
                return ops.const(float(value), self.dtype)
            except ValueError:
                raise MisuseError(
                    f"{value!r} is not a value of {self.dtype}", about=value
                ) from None
        if isinstance(value, (bool, int, float)):
            return ops.const(value, self.dtype)
        return ops.cast_to(value, self.dtype)


@dataclass(frozen=True, slots=True)
class UnknownShape:
    """`RuntimeDepShape`, and `_` in an annotation: an unknown shape."""

    display_name: ClassVar[str] = "unknown shape"

    def __call__(self) -> UnknownShape:
        """This object, so that programs may write it with parentheses."""
        return self


def as_dtype(value: object) -> DataType:
    """Convert `value` to a datatype; `T.int32` is the same as "int32".

    Errors: MisuseError about `value` if it is not a datatype.
    """
    try:
        return DataType(value.dtype if isinstance(value, (DatatypeName, HandleName)) else value)  # type: ignore[arg-type]
    except MisuseError as error:
        error.about = value
        raise


@dataclass(frozen=True, slots=True)
class HandleName:
    """`T.handle`: in an annotation an untyped pointer, when called a pointer variable."""

    display_name: ClassVar[str] = "datatype"
    dtype: DataType = DataType("handle")

    @override
    def __repr__(self) -> str:
        return f"T.{self.dtype or 'void'}"

    def __call__(self, dtype: str | None = None, storage_scope: str = "global") -> Var:
        """A new pointer variable; with `dtype`, a pointer to elements of this datatype."""
        if dtype is None:
            return Var("", "handle")
        return Var("", PointerType(PrimType(as_dtype(dtype)), storage_scope))

    def __getitem__(self, arguments: Any) -> Var:
        """The variable of `T.Ptr[T.float32]` or `T.Ptr[T.float32, "shared"]`."""
        return self(*arguments) if isinstance(arguments, tuple) else self(arguments)


_DATA = (bool, int, float, str, Node, np.ndarray, np.generic, Target)


def attributes(table: object) -> dict[str, Any]:
    """Copy a table of attributes, checking that its values are data at every depth.

    Errors: MisuseError about the table if a value in it cannot be an attribute.
    """
    worklist: list[object] = [table]
    while worklist:
        value = worklist.pop()
        if value is table or isinstance(value, Mapping):
            if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
                raise MisuseError(
                    f"attributes are a dict keyed by strings, found {value!r:.60}", about=table
                )
            worklist += value.values()
        elif isinstance(value, (tuple, list)):
            worklist += value
        elif not (value is None or isinstance(value, _DATA) or hasattr(value, "__struct_info__")):
            raise MisuseError(
                "an attribute is a number, a string, a node, or a list or dict of them, "
                f"found {type(value).__name__}",
                about=table,
            )
    return dict(table)  # type: ignore[call-overload,no-any-return]


def check_added_attributes(present: Mapping[str, object], attrs: Mapping[str, object]) -> None:
    """Check that `attrs` can be added to a function with the attributes `present`.

    Errors: MisuseError if an attribute is already present, or global_symbol is not a string.
    """
    repeated = sorted(present.keys() & attrs.keys())
    if repeated:
        raise MisuseError(f"attribute {', '.join(repeated)} is set twice")
    symbol = attrs.get("global_symbol", "")
    check_type(symbol, str, "global_symbol is a string")


@user_constructed
@dataclass(frozen=True, slots=True)
class BufferSpec(Form):
    """The description of a buffer, without its name: `T.Buffer((4, 4), "float32")`.

    Units:
        align  bytes
    """

    display_name: ClassVar[str] = "T.Buffer"
    shape: tuple[ExprLike, ...]
    dtype: DataType = DataType("float32")
    data: Var | None = None
    strides: tuple[ExprLike, ...] | None = None
    elem_offset: ExprLike | None = None
    scope: str = "global"
    align: int = 0
    offset_factor: int = 0
    buffer_type: str = ""
    axis_separators: tuple[int, ...] | None = None

    if TYPE_CHECKING:  # what is converted

        def __init__(
            self,
            shape: Sequence[ExprLike] | ExprLike,
            dtype: str = ...,
            data: Var | None = ...,
            strides: Sequence[ExprLike] | None = ...,
            elem_offset: ExprLike | None = ...,
            scope: str = ...,
            align: int = ...,
            offset_factor: int = ...,
            buffer_type: str = ...,
            axis_separators: Sequence[int] | None = ...,
        ) -> None: ...

    def __class_getitem__(cls, arguments: Any) -> BufferSpec:
        """`T.Buffer[(4, 4), "float32"]`, the form of older programs, or `T.Buffer[4, 4]`."""
        has_dtype = (
            isinstance(arguments, tuple)
            and len(arguments) > 1
            and isinstance(arguments[1], (str, DatatypeName))
        )
        return cls(*arguments) if has_dtype else cls(arguments)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", dimensions(self.shape))
        object.__setattr__(self, "dtype", as_dtype(self.dtype or "float32"))
        if self.strides is not None:
            object.__setattr__(self, "strides", strides(self.strides, self.shape))
        if self.elem_offset is not None:
            integers((self.elem_offset,), "the offset")
        if self.axis_separators is not None:
            separators = integers(self.axis_separators, "an axis separator")
            object.__setattr__(self, "axis_separators", separators)
        if not (self.data is None or isinstance(self.data, Var)):
            raise unexpected(self.data, "data of a buffer is a pointer variable")
        check_type(self.scope, str, "a scope is named by a string")
        for name in ("align", "offset_factor"):
            integers((getattr(self, name),), name)

    @override
    def __repr__(self) -> str:
        """The call in a program, without the defaults, as the signatures of kernels show it."""
        found = [(field, getattr(self, field.name)) for field in fields(self)]
        options = [f"{f.name}={value!r}" for f, value in found if value is not f.default]
        return f"T.Buffer({', '.join(options)})"

    def create(self, name: str, span: Span | None = None) -> Buffer:
        """Create a buffer from this description."""
        buffer = decl_buffer(
            self.shape,
            self.dtype,
            name,
            data=self.data,
            strides=self.strides,
            elem_offset=self.elem_offset,
            scope=self.scope,
            data_alignment=self.align or -1,
            offset_factor=self.offset_factor,
            buffer_type=self.buffer_type,
            axis_separators=self.axis_separators,
        )
        return buffer if span is None else replace(buffer, span=span)


class LoopForm(Form, name="loop of a kernel"):
    """Nested loops, one for each pair (start, extent) of `bounds`.

    A loop with a `step` counts its iterations from 0; its name is `first` + iteration * `step`.
    """

    bounds: tuple[tuple[PrimExpr, PrimExpr], ...]
    kind: ForKind = ForKind.SERIAL
    annotations: Mapping[str, object] = _NONE
    thread: str | None = None
    first: PrimExpr | None = None
    step: int = 1


class BlockForm(Form, name="T.block"):
    """`with T.block(name)`."""

    name: str
    no_realize: bool = False


class InitForm(Form, name="T.init"):
    """`with T.init()`."""


class AxisForm(Form, name="T.axis"):
    """A block iteration variable over `dom`, bound to the value `binding`."""

    dom: Range
    binding: PrimExpr
    kind: IterVarKind


class RemapForm(Form, name="T.axis.remap"):
    """Block iteration variables bound to loop variables, one letter (S or R) each."""

    kinds: str
    bindings: tuple[PrimExpr, ...]


class AccessForm(Form, name="list of regions"):
    """The regions that a block reads or writes."""

    kind: Literal["reads", "writes"]
    regions: tuple[BufferRegion | BufferLoad | Buffer, ...]


class WhereForm(Form, name="T.where"):
    """The condition under which a block runs."""

    condition: PrimExpr


class AttrsForm(Form, name="table of attributes"):
    """Attributes of the enclosing block, function or module; a module's may be overwritten."""

    owner: Literal["block", "function", "module"]
    attrs: Mapping[str, Attr]
    overwrite: bool = False


class GlobalInfosForm(Form, name="I.module_global_infos"):
    """Global infos of the enclosing module."""

    infos: Mapping[str, tuple[object, ...]]


class DeviceForm(Form, name="device"):
    """A device of the enclosing module, by its kind and number."""

    kind: str
    number: int


class MatchBufferForm(Form, name="T.match_buffer"):
    """The buffer of a handle parameter, or a view of a region."""

    source: Var | BufferRegion | BufferLoad
    spec: BufferSpec


class AllocBufferForm(Form, name="T.alloc_buffer"):
    """A buffer allocated by the enclosing block."""

    spec: BufferSpec


class DeclBufferForm(Form, name="T.decl_buffer"):
    """A buffer over existing memory, or over new memory where `spec.data` is None."""

    spec: BufferSpec


class AllocateForm(Form, name="T.allocate"):
    """Memory allocated for the statements that follow; `data` is the value of a constant."""

    extents: tuple[PrimExpr, ...]
    dtype: DataType
    scope: str = "global"
    condition: PrimExpr | None = None
    annotations: Mapping[str, object] = _NONE
    data: object = None


class AttrForm(Form, name="T.attr"):
    """An annotation on the statements that follow."""

    node: object
    key: str
    value: PrimExpr


class EnvThreadForm(Form, name="T.env_thread"):
    """A variable for a hardware index."""

    tag: str
    dtype: DataType


class LaunchThreadForm(Form, name="T.launch_thread"):
    """The hardware index `thread`, by tag or variable, running over `extent` values."""

    thread: str | Var
    extent: PrimExpr


class RealizeForm(Form, name="T.realize"):
    """A region realized in memory for the statements that follow."""

    region: BufferRegion
    scope: str
    condition: PrimExpr


class LetForm(Form, name="T.let"):
    """`var`, or a new variable, bound to `value` in the statements that follow."""

    value: PrimExpr
    var: Var | None = None


class AssertForm(Form, name="T.Assert"):
    """An assertion before the statements that follow."""

    condition: PrimExpr
    message: PrimExpr


class WhileForm(Form, name="T.While"):
    """`with T.While(condition)`."""

    condition: PrimExpr


class IfForm(Form, name="T.If"):
    """`with T.If(condition)`."""

    condition: PrimExpr


class BranchForm(Form, name="branch of T.If"):
    """`with T.Then()` and `with T.Else()`."""

    taken: bool


class StoreForm(Form, name="T.buffer_store"):
    """`value` written to one element of a buffer."""

    buffer: Buffer
    value: object
    indices: tuple[PrimExpr, ...]
    predicate: PrimExpr | None = None


class EvaluateForm(Form, name="T.evaluate"):
    """An expression evaluated for its side effect."""

    value: PrimExpr


class MetaVar(Form, name="T.meta_var"):
    """A Python value that keeps its name without becoming a statement."""

    value: Any

    @override
    def __prim_expr__(self) -> PrimExpr:
        return ops.convert(self.value)

    def __iter__(self) -> Iterator[MetaVar]:
        """Its members, each as a Python value."""
        return map(MetaVar, self.value)


def meta_var(value: object) -> MetaVar:
    """Keep `value` as a Python value, for which no statement is created."""
    return MetaVar(value)


def dynamic(name: str, dtype: str = "int64") -> Var:
    """A new variable for annotations, outside of a program, by TVM's name after v0.22."""
    return Var(name, as_dtype(dtype))


class DataflowForm(Form, name="R.dataflow"):
    """`with R.dataflow()`."""


class SeqForm(Form, name="R.SeqExpr"):
    """`with R.SeqExpr()`."""


class OutputForm(Form, name="R.output"):
    """The variables that remain visible after a dataflow block."""

    variables: tuple[object, ...]


class MatchCastForm(Form, name="R.match_cast"):
    """A run-time check of `value` against a struct info."""

    value: object
    annotation: object


class MatchShapeForm(Form, name="R.match_shape"):
    """A run-time check of `value` against a shape, as in older versions."""

    value: object
    pattern: object


class EmitForm(Form, name="R.emit"):
    """A value of any kind, for the binding of a name."""

    value: object
    annotation: StructInfo | None = None


class TeForm(Form, name="R.emit_te"):
    """A call of the kernel that computes the tensor expressions that `function` returns."""

    function: Callable[..., Any]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]


class BuilderForm(Form, name="directive of an IRBuilder"):
    """A directive that only an IRBuilder applies, such as `R.func_name("main")`."""

    name: str
    args: tuple[object, ...]


Handler: TypeAlias = Callable[[Form], Any]

_handler: ContextVar[Handler | None] = ContextVar("relaxpy_eager_handler", default=None)


@contextmanager
def handling(handler: Handler | None) -> Iterator[None]:
    """Pass each new record to `handler`; with None, directives return their records."""
    outer = _handler.get()
    _handler.set(handler)
    try:
        yield
    finally:
        _handler.set(outer)


def is_eager() -> bool:
    """True if directives are eager in the current context."""
    return _handler.get() is not None


def is_helper(function: object) -> bool:
    """True if `function` is the user's, neither relaxpy's nor built in."""
    module = getattr(function, "__module__", None)
    return not isinstance(module, str) or not module.startswith(("relaxpy.", "builtins"))


def not_iterable(form: Form) -> MisuseError:
    """Create the error for a Python loop over a frame."""
    return MisuseError(
        f"Python cannot iterate over a {form.display_name}: it is a context",
        hint="write `with T.serial(...) as i:`, or move the loop into the program",
    )


class PendingFrame:
    """A frame that a Python function enters while a program is parsed: `with T.block():`.

    `opened` lists the open frames of the same call, the innermost last.
    """

    def __init__(
        self, form: Form, scope: AbstractContextManager[object], opened: list[PendingFrame]
    ) -> None:
        self.form = form
        self.scope = scope
        self.opened = opened
        self.is_used = False

    def __enter__(self) -> Any:
        if self.is_used:
            raise MisuseError(
                f"a {self.form.display_name} can be entered only once, in the call that creates it",
                hint="create another one",
            )
        self.is_used = True
        entered = self.scope.__enter__()
        self.opened.append(self)
        return entered

    def __iter__(self) -> Iterator[Any]:
        raise not_iterable(self.form)

    def __exit__(self, *raised: Any) -> bool | None:
        if self not in self.opened:  # a generator may outlive its call, which has closed it
            return None
        if self.opened[-1] is not self:
            raise MisuseError(f"a {self.form.display_name} is left before the frame inside it")
        self.opened.pop()
        return self.scope.__exit__(*raised)


def directive(function: Callable[..., Any], default: Handler | None = None) -> Callable[..., Any]:
    """Wrap a function that returns a record; in an eager context the record is applied at once."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        handler = _handler.get() or default
        if handler is None:
            return function(*args, **kwargs)
        return _call_eagerly(handler, function, args, kwargs)

    return call


@user_facing
def _call_eagerly(
    handler: Handler, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    with handling(None):
        form = function(*args, **kwargs)
        return handler(form) if isinstance(form, Form) and not isinstance(form, MetaVar) else form
