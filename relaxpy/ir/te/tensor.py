"""Tensors of tensor expressions, the operations that define them, and their tags."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from dataclasses import field
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import FLOAT32, INT32, DataType
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs, Node, as_attrs
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.relax.nodes import ShapeExpr
from relaxpy.ir.tir import ops, stmt
from relaxpy.ir.tir.buffer import Buffer, decl_buffer
from relaxpy.ir.tir.expr import ExprLike, IterVarKind, PrimExpr, SizeVar, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.reduce import Reduce
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.errors import Span


_current: ContextVar[str] = ContextVar("tag", default="")


class TagScope(ContextDecorator):
    """A context manager and decorator that sets `tag` on operations without a tag."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._token: Token[str] | None = None

    @override
    def _recreate_cm(self) -> TagScope:
        return TagScope(self.tag)

    def __enter__(self) -> TagScope:
        if _current.get():
            raise MisuseError(f"tag {self.tag!r} is inside the scope of tag {_current.get()!r}")
        self._token = _current.set(self.tag)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _current.reset(self._token)


@user_facing
def tag_scope(tag: str) -> TagScope:
    """A context manager, or decorator, in which operations have `tag`.

    Errors:
        MisuseError: the tag is not a string, or is empty; scopes are nested.
    """
    if not isinstance(tag, str) or not tag:
        raise unexpected(tag, "a tag is a string")
    return TagScope(tag)


def tagged(tag: str) -> str:
    """`tag`, or the tag of the enclosing scope if it is empty.

    Errors:
        MisuseError: both are set.
    """
    enclosing = _current.get()
    if tag and enclosing:
        raise MisuseError(f"tag {tag!r} is inside the scope of tag {enclosing!r}", about=tag)
    return tag or enclosing


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Operation(Node):
    """The base class of operations, which define one or several tensors."""

    name: str
    tag: str = field(default="", kw_only=True)
    attrs: Attrs = field(default=EMPTY_ATTRS, kw_only=True)

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that are read, in the order of their first load."""
        return ()

    @property
    def num_outputs(self) -> int:
        """The number of outputs."""
        return 1

    def output(self, index: int) -> Tensor:
        """Output `index` as a tensor."""
        shape, dtype = self._output(index)
        return Tensor(shape, dtype, self, index)

    def _output(self, index: int) -> tuple[tuple[PrimExpr, ...], DataType]:
        raise MisuseError(f"operation {self.name} has no output {index}")

    @override
    def __str__(self) -> str:
        return f"{type(self).__name__}({self.name})"


def _operator(name: str, *, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """The method for a binary operator of tensors, or for its reflected form."""

    def apply(self: Tensor, other: object) -> Any:
        if not self.ndim and isinstance(other, (PrimExpr, TensorSlice)):
            return NotImplemented  # a tensor of rank 0 acts as a scalar in scalar arithmetic
        from relaxpy.ir.te.topi.elementwise import combine

        operands = (other, self) if reflected else (self, other)
        return combine(name, *operands)

    apply.__doc__ = f"{name}, element by element."
    return apply


@dataclass(frozen=True, slots=True, repr=False)
class Tensor(Node):
    """Output `value_index` of an operation: `t(i, j)` or `t[i, j]` is its element.

    Tensors are equal if they are the same output of the same operation. Arithmetic on whole
    tensors returns new tensors, as the functions of topi do.
    """

    _fields = ("shape", "dtype", "value_index")
    _variable = True
    shape: tuple[PrimExpr, ...] = field(compare=False)
    dtype: DataType = field(compare=False)
    op: Operation
    value_index: int = 0

    __add__, __radd__ = _operator("add"), _operator("add", reflected=True)
    __sub__, __rsub__ = _operator("subtract"), _operator("subtract", reflected=True)
    __mul__, __rmul__ = _operator("multiply"), _operator("multiply", reflected=True)
    __truediv__, __rtruediv__ = _operator("divide"), _operator("divide", reflected=True)

    def __neg__(self) -> Tensor:
        return self * -1  # type: ignore[no-any-return]

    def astype(self, dtype: str) -> Tensor:
        """Cast the elements to another datatype."""
        from relaxpy.ir.te.topi.elementwise import combine

        return combine("cast", self, dtype)  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def name(self) -> str:
        """The operation's name, with the suffix `.v0`, `.v1`, … if it has several outputs."""
        return self.op.name if self.op.num_outputs == 1 else f"{self.op.name}.v{self.value_index}"

    def __call__(self, *indices: ExprLike | IterVar) -> ProducerLoad:
        """The element at `indices`. Errors: MisuseError if their number is not the rank."""
        return ProducerLoad(self, indices)

    def __getitem__(
        self, index: ExprLike | IterVar | tuple[ExprLike | IterVar, ...]
    ) -> ProducerLoad | TensorSlice:
        """The element at a full index, or a slice of the tensor at a shorter index."""
        indices = index if isinstance(index, tuple) else (index,)
        return TensorSlice(self, ())[indices]

    def __iter__(self) -> Iterator[PrimExpr]:
        raise MisuseError(f"tensor {self.name} cannot be iterated over; compute over its indices")

    def __prim_expr__(self) -> PrimExpr:
        return ProducerLoad(self, ())

    @override
    def __str__(self) -> str:
        return f"Tensor({self.name}, [{', '.join(map(str, self.shape))}], {self.dtype})"


@dataclass(frozen=True, slots=True, eq=False)
class TensorSlice:
    """A tensor with its first indices fixed."""

    tensor: Tensor
    indices: tuple[ExprLike | IterVar, ...]

    def __getitem__(self, index: Any) -> ProducerLoad | TensorSlice:
        more = index if isinstance(index, tuple) else (index,)
        indices = (*self.indices, *more)
        if len(indices) >= self.tensor.ndim:
            return ProducerLoad(self.tensor, indices)
        return TensorSlice(self.tensor, indices)

    def __prim_expr__(self) -> PrimExpr:
        return ProducerLoad(self.tensor, self.indices)


class ProducerLoad(PrimExpr):
    """The element of a tensor at `indices`."""

    __slots__ = ("indices", "producer")
    __match_args__ = ("producer", "indices")
    _fields = ("producer", "indices")
    producer: Tensor
    indices: tuple[PrimExpr, ...]

    def __new__(
        cls, producer: Tensor, indices: Sequence[ExprLike | IterVar], span: Span | None = None
    ) -> Self:
        """Errors: MisuseError if the number of indices is wrong, or one is not an integer."""
        check_type(producer, Tensor, "a Tensor is read")
        check_type(indices, (list, tuple), "expected a list of indices")
        values = ops.convert_all(indices)
        if len(values) != producer.ndim:
            raise MisuseError(
                f"tensor {producer.name} has rank {producer.ndim}, found {len(values)} indices"
            )
        for value in values:
            if not value.dtype.is_int:
                raise MisuseError(
                    f"tensor {producer.name}: an index is an integer, found `{value}` "
                    f"of {value.dtype}"
                )
        return cls._make(producer.dtype, producer, values)

    @override
    def _may_stop(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PlaceholderOp(Operation):
    """An input tensor."""

    shape: tuple[PrimExpr, ...] = ()
    dtype: DataType = FLOAT32

    @override
    def _output(self, index: int) -> tuple[tuple[PrimExpr, ...], DataType]:
        return self.shape, self.dtype


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ComputeOp(Operation):
    """An elementwise computation: `body` over `axis`, with one expression per output."""

    axis: tuple[IterVar, ...] = ()
    body: tuple[PrimExpr, ...] = ()

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The reduction axes of the body."""
        first = self.body[0]
        return first.axis if isinstance(first, Reduce) else ()

    @property
    @override
    def input_tensors(self) -> tuple[Tensor, ...]:
        return loaded_tensors(self.body)

    @property
    @override
    def num_outputs(self) -> int:
        return len(self.body)

    @override
    def _output(self, index: int) -> tuple[tuple[PrimExpr, ...], DataType]:
        sizes = tuple(a.dom.extent for a in self.axis if a.dom is not None)
        return sizes, self.body[index].dtype


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ExternOp(Operation):
    """A computation by a statement over buffers."""

    inputs: tuple[Tensor, ...] = ()
    input_placeholders: tuple[Buffer, ...] = ()
    output_placeholders: tuple[Buffer, ...] = ()
    body: stmt.Stmt = field(default_factory=lambda: stmt.Evaluate(ops.const(0)))

    @property
    @override
    def input_tensors(self) -> tuple[Tensor, ...]:
        return self.inputs

    @property
    @override
    def num_outputs(self) -> int:
        return len(self.output_placeholders)

    @override
    def _output(self, index: int) -> tuple[tuple[PrimExpr, ...], DataType]:
        buffer = self.output_placeholders[index]
        return buffer.shape, buffer.dtype


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ScanOp(Operation):
    """States along an axis, where each element is computed from earlier ones.

    The elements of `update` are those after `init`; they load earlier ones from the placeholders of
    the states. A kernel computes one element of each after the other.
    """

    scan_axis: IterVar | None = None
    init: tuple[Tensor, ...] = ()
    update: tuple[Tensor, ...] = ()
    state_placeholder: tuple[Tensor, ...] = ()
    inputs: tuple[Tensor, ...] = ()

    @property
    @override
    def input_tensors(self) -> tuple[Tensor, ...]:
        return tuple(dict.fromkeys((*self.init, *self.update)))

    @property
    @override
    def num_outputs(self) -> int:
        return len(self.update)

    @override
    def _output(self, index: int) -> tuple[tuple[PrimExpr, ...], DataType]:
        state = self.state_placeholder[index]
        return state.shape, state.dtype


def loaded_tensors(exprs: Sequence[PrimExpr]) -> tuple[Tensor, ...]:
    """The tensors that `exprs` read, in the order of their first load."""
    tensors: dict[Tensor, None] = {}
    for expr in exprs:
        for load in occurrences(expr, ProducerLoad):
            tensors.setdefault(load.producer)
    return tuple(tensors)


Shape: TypeAlias = Sequence[ExprLike] | PrimExpr | ShapeExpr


def _shape(shape: Shape) -> tuple[PrimExpr, ...]:
    if isinstance(shape, PrimExpr):
        return (shape,)
    if isinstance(shape, ShapeExpr):
        return shape.values
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Sequence):
        raise unexpected(shape, "a shape is a sequence of dimensions")
    return tuple(ops.convert(int(s) if isinstance(s, float) else s) for s in shape)


@user_facing
def placeholder(shape: Shape, dtype: str | None = None, name: str = "placeholder") -> Tensor:
    """An input tensor, of float32 by default."""
    return PlaceholderOp(name, _shape(shape), DataType(dtype) if dtype else FLOAT32).output(0)


@user_facing
def compute(
    shape: Shape,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: dict[str, object] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """The tensor (or tuple of tensors) whose elements `fcompute` computes from indices.

    Axes have the names of the parameters of `fcompute`. A reduction must be the whole body.

    >>> a = placeholder((4,), name="A")
    >>> compute((4,), lambda i: a[i] * 2.0, name="B")
    Tensor(B, [4], float32)

    Errors:
        MisuseError: `fcompute` has parameters that are not positional, or returns no expression.
    """
    _calls_users = True
    if not callable(fcompute):
        raise unexpected(fcompute, "compute: fcompute is a function of the indices")
    sizes = _shape(shape)
    names = _axis_names(fcompute, len(sizes), varargs_names)
    axes = tuple(
        IterVar(Range.from_min_extent(0, size), Var(axis, size.dtype), IterVarKind.DataPar)
        for axis, size in zip(names, sizes, strict=False)
    )
    try:
        result = fcompute(*(axis.var for axis in axes))
    except TypeError as error:
        if "ufunc" not in str(error):
            raise
        raise MisuseError(
            "compute: functions of NumPy take arrays, not elements of a tensor",
            about=fcompute,
            hint="functions of te take elements, as in te.exp(A[i])",
        ) from None
    many = isinstance(result, (tuple, list))
    body = tuple(ops.convert(r) for r in (result if many else (result,)))
    if not body:
        raise MisuseError(f"{name}: fcompute does not return an element")
    _check_reductions(name, body)
    op = ComputeOp(name, axes, body, tag=tagged(tag), attrs=as_attrs(attrs))
    outputs = tuple(op.output(k) for k in range(len(body)))
    return outputs if many else outputs[0]


def _parameters(fcompute: Callable[..., Any]) -> tuple[list[str], bool]:
    """The names of the positional parameters, and whether any number of others may follow."""
    if type(fcompute) is FunctionType and not fcompute.__dict__ and not fcompute.__defaults__:
        code = fcompute.__code__
        if not code.co_kwonlyargcount and not code.co_flags & inspect.CO_VARKEYWORDS:
            return [*code.co_varnames[: code.co_argcount]], bool(code.co_flags & inspect.CO_VARARGS)
    named, varargs = [], False
    try:
        parameters = inspect.signature(fcompute).parameters.values()
    except ValueError:
        raise MisuseError(f"compute: the parameters of {fcompute!r:.60} are not known") from None
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            varargs = True
        elif parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD) or (
            parameter.default is not parameter.empty
        ):
            raise MisuseError(f"compute: {parameter} is not a plain positional parameter")
        else:
            named.append(parameter.name)
    return named, varargs


def _axis_names(
    fcompute: Callable[..., Any], ndim: int, varargs_names: Sequence[str] | None
) -> list[str]:
    named, varargs = _parameters(fcompute)
    if varargs:
        count = ndim - len(named)
        if varargs_names is not None and len(varargs_names) != count:
            raise MisuseError(
                f"compute: varargs_names has {len(varargs_names)} names for {count} axes"
            )
        named += varargs_names or [f"i{k}" for k in range(count)]
    elif not named:
        named = [f"i{k}" for k in range(ndim)]
    if len(named) > ndim:
        raise MisuseError(f"compute: {len(named)} index parameters for {ndim} dimensions")
    return named


def _check_reductions(name: str, body: tuple[PrimExpr, ...]) -> None:
    for expr in body:
        sources = expr.source if isinstance(expr, Reduce) else (expr,)
        if any(True for source in sources for _ in occurrences(source, Reduce)):
            raise MisuseError(f"{name}: Reductions are only allowed at the top level of compute")
    first = body[0]
    same = all(
        isinstance(e, Reduce)
        and isinstance(first, Reduce)
        and (e.combiner, e.source, e.axis, e.condition, e.init)
        == (first.combiner, first.source, first.axis, first.condition, first.init)
        for e in body
    )
    if any(isinstance(e, Reduce) for e in body) and not same:
        raise MisuseError(f"{name}: all outputs of a reduction come from one reducer")


@user_facing
def extern(
    shape: Any,
    inputs: Sequence[Tensor],
    fcompute: Callable[..., Any],
    name: str = "extern",
    dtype: str | Sequence[str] | None = None,
    in_buffers: Sequence[Buffer] | Buffer | None = None,
    out_buffers: Sequence[Buffer] | Buffer | None = None,
    tag: str = "",
    attrs: dict[str, object] | None = None,
) -> Any:
    """The tensors computed by the statement that `fcompute(ins, outs)` builds.

    Errors:
        MisuseError: the datatype is not known, the buffers do not match the tensors, or `fcompute`
            does not return a statement.
    """
    shapes = [_shape(s) for s in shape] if _is_nested(shape) else [_shape(shape)]
    if not isinstance(inputs, (list, tuple)) or not all(isinstance(t, Tensor) for t in inputs):
        raise unexpected(inputs, f"{name}: inputs are a list of tensors")
    if not callable(fcompute):
        raise unexpected(fcompute, f"{name}: fcompute is a function of buffers")
    if dtype is None:
        kinds = {t.dtype for t in inputs}
        if len(kinds) != 1:
            raise MisuseError(f"{name}: the datatype is needed unless all inputs share one")
        dtypes = [kinds.pop()] * len(shapes)
    else:
        dtype_list = [dtype] if isinstance(dtype, str) else list(dtype)
        dtypes = [
            DataType(d) for d in (dtype_list * len(shapes) if len(dtype_list) == 1 else dtype_list)
        ]
        if len(dtypes) != len(shapes):
            raise MisuseError(f"{name}: {len(dtypes)} datatypes for {len(shapes)} shapes")
    ins = _buffers(in_buffers) or [_offset_buffer(t.shape, t.dtype, t.name) for t in inputs]
    outs = _buffers(out_buffers) or [
        _offset_buffer(s, d, name) for s, d in zip(shapes, dtypes, strict=True)
    ]
    if len(ins) != len(inputs) or len(outs) != len(shapes):
        raise MisuseError(f"{name}: as many buffers as tensors are needed")
    wanted = [(t.shape, t.dtype) for t in inputs] + list(zip(shapes, dtypes, strict=True))
    for buffer, (sizes, kind) in zip((*ins, *outs), wanted, strict=True):
        pairs = zip(buffer.shape, sizes, strict=False)
        fits = buffer.ndim == len(sizes) and all(prove_equal(a, b) is not False for a, b in pairs)
        if not fits or buffer.dtype != kind:
            raise MisuseError(
                f"{name}: buffer {buffer.name} is {buffer.dtype}{list(buffer.shape)}, and its "
                f"tensor {kind}{list(sizes)}",
                about=buffer,
            )
    body = fcompute(ins, outs)
    if isinstance(body, PrimExpr):
        body = stmt.Evaluate(body)
    if not isinstance(body, stmt.Stmt):
        raise MisuseError(f"{name}: fcompute returns a statement, found {type(body).__name__}")
    op = ExternOp(
        name, tuple(inputs), tuple(ins), tuple(outs), body, tag=tagged(tag), attrs=as_attrs(attrs)
    )
    outputs = [op.output(k) for k in range(len(outs))]
    return outputs[0] if len(outputs) == 1 else outputs


@user_facing
def scan(
    init: Tensor | Sequence[Tensor],
    update: Tensor | Sequence[Tensor],
    state_placeholder: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor] | None = None,
    name: str = "scan",
    tag: str = "",
    attrs: dict[str, object] | None = None,
) -> Tensor | list[Tensor]:
    """The states along the first axis, each computed from earlier ones.

    Errors:
        MisuseError: there are not as many first elements and updates as states, or an update has
            another rank or datatype than its state.
    """
    first, later, states, read = (
        (tensors,) if isinstance(tensors, Tensor) else tuple(tensors or ())
        for tensors in (init, update, state_placeholder, inputs)
    )
    if not states or not len(first) == len(later) == len(states):
        raise MisuseError(
            f"{name}: as many first elements and updates as states are needed, found {len(first)}, "
            f"{len(later)} and {len(states)}"
        )
    for begin, step, state in zip(first, later, states, strict=True):
        if not state.ndim or any(
            (t.ndim, t.dtype) != (state.ndim, state.dtype) for t in (begin, step)
        ):
            raise MisuseError(
                f"{name}: first elements and updates have the rank and datatype of the state "
                f"{state.name}",
                about=state,
            )
    domain = Range(first[0].shape[0], later[0].shape[0])
    axis = IterVar(domain, Var(f"{name}.idx", domain.extent.dtype), IterVarKind.Ordered)
    op = ScanOp(name, axis, first, later, states, read, tag=tagged(tag), attrs=as_attrs(attrs))
    outputs = [op.output(k) for k in range(len(states))]
    return outputs[0] if len(outputs) == 1 else outputs


def _is_nested(shape: object) -> bool:
    return isinstance(shape, (list, tuple)) and bool(shape) and isinstance(shape[0], (list, tuple))


def _buffers(buffers: Sequence[Buffer] | Buffer | None) -> list[Buffer]:
    return [buffers] if isinstance(buffers, Buffer) else list(buffers or ())


def _offset_buffer(shape: Sequence[PrimExpr], dtype: DataType, name: str) -> Buffer:
    return decl_buffer(shape, dtype, name, elem_offset=Var("elem_offset", INT32))


@user_facing
def reduce_axis(dom: Range | Sequence[ExprLike], name: str = "rv", thread_tag: str = "") -> IterVar:
    """A reduction axis over a Range, or over a pair (begin, end).

    Errors:
        MisuseError: `dom` is neither.
    """
    if not isinstance(dom, Range) and not (isinstance(dom, (tuple, list)) and len(dom) == 2):
        raise unexpected(dom, "an axis is reduced over a Range or (begin, end)")
    rng = dom if isinstance(dom, Range) else Range(*dom)
    return IterVar(rng, Var(name, rng.extent.dtype), IterVarKind.CommReduce, thread_tag)


def var(name: str = "tindex", dtype: str = "int32") -> Var:
    """A scalar parameter."""
    return Var(name, dtype)


def size_var(name: str = "size", dtype: str = "int32") -> SizeVar:
    """A scalar parameter that is at least 0."""
    return SizeVar(name, dtype)


def const(value: ExprLike, dtype: str = "int32") -> PrimExpr:
    """A literal."""
    return ops.const(value, dtype)


#: A number of a kernel, as an expression.
Number: TypeAlias = Any


def whole(value: Any) -> Any:
    """An index: a Python int as a literal of int64."""
    return ops.const(value, "int64") if isinstance(value, int) else value
