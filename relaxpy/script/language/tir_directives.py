"""The directives of `T` that return records, and its datatypes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar

import numpy as np

from relaxpy.errors import MisuseError, check_type, counted, unexpected
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs, freeze
from relaxpy.ir.core.target import Target, target_attr
from relaxpy.ir.tir import expr as tir, ops, reduce
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion
from relaxpy.ir.tir.expr import ExprLike, IntImm, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.reduce import CommReducer
from relaxpy.ir.tir.stmt import ForKind, regions
from relaxpy.script.language import records
from relaxpy.script.language.records import (
    BufferSpec,
    DatatypeName,
    HandleName,
    as_dtype,
    directive,
)

_LANES = (2, 4, 8, 16, 32, 64)
_UNLISTED = re.compile(r"[a-z]\w*x[1-9][0-9]*|u?int[124]", re.ASCII)
_FLOATS = (
    *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
    *("float16", "float32", "float64", "bfloat16"),
)


def datatypes() -> dict[str, DatatypeName | HandleName]:
    """The datatypes by name, such as `T.int32` and `T.float8_e4m3x4`."""
    integers = (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
    scalars = (*integers, *_FLOATS)
    names = (*scalars, *(f"{name}x{lanes}" for name in scalars for lanes in _LANES))
    spellings = {name: name for name in names} | {"bool": "bool", "boolean": "bool", "void": ""}
    return {name: DatatypeName(DataType(dtype)) for name, dtype in spellings.items()}


def unlisted_datatype(name: str) -> DatatypeName | None:
    """The datatype of a vector or small integer, such as `float32x3` and `int4`, or None."""
    if not _UNLISTED.fullmatch(name):
        return None
    try:
        return DatatypeName(DataType(name))
    except MisuseError:
        return None


# --- loops


def _integer(argument: ExprLike, rule: str) -> PrimExpr:
    value = ops.convert(argument)
    if not value.dtype.is_int or value.dtype.is_bool or value.dtype.vector:
        hint = (
            'convert it by T.Cast("int32", ...), or divide by //' if value.dtype.is_float else None
        )
        raise MisuseError(f"{rule}, found `{value}` of {value.dtype}", about=argument, hint=hint)
    return value


def _bounds(start: ExprLike, stop: ExprLike | None) -> tuple[PrimExpr, PrimExpr]:
    for end in (start, stop):
        _integer(0 if end is None else end, "a loop runs over integers")
    domain = Range(start) if stop is None else Range(start, stop)
    return domain.min, domain.extent


def _loop(kind: ForKind, name: str) -> Callable[..., records.LoopForm]:
    def loop(
        start: ExprLike,
        stop: ExprLike | None = None,
        *,
        annotations: Mapping[str, object] | None = None,
        step: int = 1,
    ) -> records.LoopForm:
        bounds, first = _bounds(start, stop), None
        by = ops.convert(step)
        if not isinstance(by, IntImm) or not by.dtype.is_int or by.value == 0:
            raise unexpected(step, "a step is an integer other than 0")
        if by.value != 1:
            first, bounds = bounds[0], _iterations(*bounds, by.value)
        return records.LoopForm(
            (bounds,), kind, _annotations(annotations), first=first, step=by.value
        )

    loop.__name__ = loop.__qualname__ = name
    loop.__doc__ = (
        f"A {kind.name.lower()} loop from `start` to before `stop`; from 0 with one argument.\n\n"
        "With another `step` than 1, the loop counts its iterations, and its name is computed from "
        "their number."
    )
    return loop


def _iterations(start: PrimExpr, extent: PrimExpr, step: int) -> tuple[PrimExpr, PrimExpr]:
    """The bounds of a loop over the numbers of iterations of one with a step."""
    count = ops.ceildiv(extent if step > 0 else 0 - extent, abs(step))
    if isinstance(count, IntImm):
        count = ops.maximum(count, 0)
    return ops.const(0, start.dtype), count


serial = _loop(ForKind.SERIAL, "serial")
parallel = _loop(ForKind.PARALLEL, "parallel")
vectorized = _loop(ForKind.VECTORIZED, "vectorized")
unroll = _loop(ForKind.UNROLLED, "unroll")


def thread_binding(
    start: ExprLike,
    stop: ExprLike | str | None = None,
    thread: str | None = None,
    *,
    annotations: Mapping[str, object] | None = None,
) -> records.LoopForm:
    """A loop bound to the hardware index `thread`, which may also be the second argument.

    Errors: MisuseError if no index is named.
    """
    if thread is None:
        start, stop, thread = 0, start, stop  # type: ignore[assignment]
    elif stop is None:
        start, stop = 0, start
    check_type(thread, str, "thread names a hardware index such as 'threadIdx.x'")
    return records.LoopForm(
        (_bounds(start, stop),), ForKind.THREAD_BINDING, _annotations(annotations), thread
    )


def grid(*extents: ExprLike) -> records.LoopForm:
    """Nested serial loops from 0."""
    return records.LoopForm(tuple(_bounds(extent, None) for extent in extents))


# --- blocks


def block(name: str = "", no_realize: bool = False) -> records.BlockForm:
    """A block: a computation over the iteration variables that it declares."""
    check_type(no_realize, bool, "no_realize is True or False")
    check_type(name, str, "a block is named by a string")
    return records.BlockForm(name, no_realize)


def init() -> records.InitForm:
    """The initialisation of a block, before the first iteration of its reductions."""
    return records.InitForm()


class Axis:
    """`T.axis`: the iteration variables of a block."""

    display_name: ClassVar[str] = "T.axis"
    __all__ = ("R", "S", "opaque", "reduce", "remap", "scan", "spatial")

    @staticmethod
    def _form(dom: Any, binding: ExprLike, kind: IterVarKind) -> records.AxisForm:
        value = _integer(binding, "a block variable is bound to an integer")
        if isinstance(dom, Range):
            return records.AxisForm(dom, value, kind)
        ends = tuple(dom) if isinstance(dom, (tuple, list)) else (0, dom)
        integers = (isinstance(e, (int, PrimExpr)) and not isinstance(e, bool) for e in ends)
        if len(ends) != 2 or not all(integers):
            raise unexpected(dom, "a domain is an extent or (begin, end)")
        if not any(isinstance(end, PrimExpr) for end in ends):
            ends = tuple(ops.const(end, value.dtype) for end in ends)
        return records.AxisForm(Range(*ends), value, kind)

    @staticmethod
    @directive
    def spatial(dom: object, binding: ExprLike, dtype: str = "int32") -> records.AxisForm:
        """An iteration variable whose iterations are independent."""
        return Axis._form(dom, binding, IterVarKind.DataPar)

    @staticmethod
    @directive
    def reduce(dom: object, binding: ExprLike, dtype: str = "int32") -> records.AxisForm:
        """An iteration variable of a reduction."""
        return Axis._form(dom, binding, IterVarKind.CommReduce)

    @staticmethod
    @directive
    def scan(dom: object, binding: ExprLike, dtype: str = "int32") -> records.AxisForm:
        """An iteration variable whose iterations run in order."""
        return Axis._form(dom, binding, IterVarKind.Ordered)

    @staticmethod
    @directive
    def opaque(dom: object, binding: ExprLike, dtype: str = "int32") -> records.AxisForm:
        """An iteration variable without any guarantee."""
        return Axis._form(dom, binding, IterVarKind.Opaque)

    @staticmethod
    @directive
    def remap(
        kinds: str, bindings: Sequence[PrimExpr] | PrimExpr, dtype: str = "int32"
    ) -> records.RemapForm:
        """Iteration variables bound to loops, each spatial (S) or of a reduction (R)."""
        if not isinstance(kinds, str) or set(kinds) - set("SR"):
            raise unexpected(kinds, "the kinds of block variables are letters S and R")
        if not isinstance(bindings, (tuple, list)):
            bindings = [bindings]  # type: ignore[list-item]
        if len(kinds) != len(bindings):
            raise MisuseError(
                f"{counted(len(kinds), 'kind')} for {counted(len(bindings), 'loop variable')}",
                about=kinds,
                hint='write a letter for each, as in T.axis.remap("SR", [i, j])',
            )
        return records.RemapForm(kinds, tuple(bindings))

    S = spatial
    R = reduce


axis = Axis()


def reads(*regions: Any) -> records.AccessForm:
    """The regions that the block reads."""
    return records.AccessForm("reads", _regions(regions))


def writes(*regions: Any) -> records.AccessForm:
    """The regions that the block writes."""
    return records.AccessForm("writes", _regions(regions))


def _regions(argument: tuple[Any, ...]) -> tuple[BufferRegion | BufferLoad | Buffer, ...]:
    if len(argument) == 1 and isinstance(argument[0], (tuple, list)):
        argument = tuple(argument[0])
    for region in argument:
        check_type(
            region,
            (BufferRegion, BufferLoad, Buffer),
            "expected a region of a buffer such as A[0:4]",
        )
        if isinstance(region, BufferLoad) and any(
            isinstance(index, tir.Ramp) for index in region.indices
        ):
            raise MisuseError("the slices of a region have no steps", about=region)
    return argument


def where(condition: ExprLike) -> records.WhereForm:
    """The condition under which the block runs."""
    return records.WhereForm(ops.truth(condition))


def func_attr(attrs: Mapping[str, object]) -> records.AttrsForm:
    """Attributes of the function."""
    return records.AttrsForm("function", records.attributes(attrs))


def block_attr(attrs: Mapping[str, object]) -> records.AttrsForm:
    """Attributes of the block."""
    return records.AttrsForm("block", records.attributes(attrs))


def _annotations(argument: Mapping[str, object] | None) -> Mapping[str, Any]:
    return {} if argument is None else records.attributes(argument)


# --- buffers and memory


def match_buffer(
    param: Var | BufferRegion | BufferLoad,
    shape: Sequence[ExprLike] | ExprLike | None = None,
    dtype: str = "float32",
    data: Var | None = None,
    strides: Sequence[ExprLike] | None = None,
    elem_offset: ExprLike | None = None,
    scope: str = "global",
    align: int = 0,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Sequence[int] | None = None,
) -> records.MatchBufferForm:
    """The buffer of the handle `param`; inside a block, a view of a region.

    Without a shape, a view has the shape and the datatype of its region.

    Errors: MisuseError if `param` is neither, or is a handle and there is no shape.
    """
    if isinstance(param, (BufferRegion, BufferLoad)):
        if shape is None:
            region = regions([param])[0]
            shape, dtype = [dim.extent for dim in region.region], str(region.buffer.dtype)
    elif not isinstance(param, Var):
        raise unexpected(param, "match_buffer takes a handle parameter or a region")
    elif param.dtype != "handle":
        raise MisuseError(
            f"only a handle is matched with a buffer, {param.name} is {param.dtype}",
            about=param,
            hint=f"declare it as {param.name}: T.handle",
        )
    elif shape is None:
        raise MisuseError(
            f"match_buffer of {param.name} needs a shape",
            hint=f'write T.match_buffer({param.name}, (4, 4), "float32")',
        )
    spec = BufferSpec(
        shape,
        dtype,
        data,
        strides,
        elem_offset,
        scope,
        align,
        offset_factor,
        buffer_type,
        axis_separators,
    )
    return records.MatchBufferForm(param, spec)


@wraps(BufferSpec, assigned=(), updated=())
def alloc_buffer(*args: Any, **kwargs: Any) -> records.AllocBufferForm:
    """A buffer allocated by the enclosing block; the arguments are those of T.Buffer."""
    return records.AllocBufferForm(BufferSpec(*args, **kwargs))


@wraps(BufferSpec, assigned=(), updated=())
def decl_buffer(*args: Any, **kwargs: Any) -> records.DeclBufferForm:
    """A buffer over the memory `data`; the arguments are those of T.Buffer."""
    return records.DeclBufferForm(BufferSpec(*args, **kwargs))


def _extents(argument: object) -> tuple[PrimExpr, ...]:
    if not isinstance(argument, (tuple, list)):
        raise unexpected(
            argument, "expected a list of extents", hint="write one extent in a list, too: [4]"
        )
    return tuple(ops.convert(extent) for extent in argument)


def allocate(
    extents: Sequence[ExprLike],
    dtype: str,
    scope: str = "global",
    condition: ExprLike | None = None,
    annotations: Mapping[str, object] | None = None,
) -> records.AllocateForm:
    """Allocated memory of these extents."""
    test = ops.const(True, "bool") if condition is None else ops.truth(condition)
    dims = _extents(extents)
    return records.AllocateForm(dims, as_dtype(dtype), scope, test, _annotations(annotations))


def allocate_const(
    data: object,
    dtype: str,
    extents: Sequence[ExprLike],
    annotations: Mapping[str, object] | None = None,
) -> records.AllocateForm:
    """Memory with the constant `data`, an array or nested lists of numbers.

    Errors: MisuseError if `data` does not fill the extents, or an element is not of the datatype.
    """
    dims, kind = _extents(extents), as_dtype(dtype)
    try:
        array = np.asarray(data)
        array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.array("")
    if array.dtype.kind in "SUc" or not (kind.is_int or kind.is_float):
        raise unexpected(data, "expected an array of numbers")
    known = [dim.value for dim in dims if isinstance(dim, tir.IntImm)]
    if len(known) == len(dims) and math.prod(known) != array.size:
        raise MisuseError(
            f"{math.prod(known)} elements are allocated, the constant has {array.size}", about=data
        )
    if kind.is_int:
        low, high = ops.int_range(kind)
        for element in array.ravel().tolist():
            if not (low <= element <= high and element == int(element)):
                raise MisuseError(
                    f"element {element} of the constant is not a value of {kind}", about=data
                )
    stored = freeze(array.tolist())
    return records.AllocateForm(dims, kind, "global", None, _annotations(annotations), stored)


def comm_reducer(
    combiner: Callable[..., Any], identity: Any, name: str = "reduce"
) -> CommReducer | Callable[..., Any]:
    """A reducer: with a list of identities a CommReducer, otherwise a function over axes."""
    if isinstance(identity, (list, tuple)):
        return reduce.make_reducer(combiner, identity)
    return reduce.comm_reducer(combiner, identity, name)


def attr(node: object, attr_key: str, value: ExprLike) -> records.AttrForm:
    """An annotation on the statements that follow."""
    check_type(attr_key, str, "a key is a string")
    return records.AttrForm(node, attr_key, ops.convert(value))


def env_thread(thread_tag: str, dtype: str = "int32") -> records.EnvThreadForm:
    """A variable for the hardware index `thread_tag`."""
    check_type(thread_tag, str, "a hardware index is named by a string")
    return records.EnvThreadForm(thread_tag, as_dtype(dtype))


def launch_thread(thread: str | Var, extent: ExprLike) -> records.LaunchThreadForm:
    """Run the statements that follow for `extent` values of the hardware index `thread`."""
    check_type(
        thread, (str, Var), "a hardware index is named by a string or returned by T.env_thread"
    )
    return records.LaunchThreadForm(thread, ops.convert(extent))


def realize(
    buffer_slice: BufferRegion, storage_scope: str, condition: ExprLike = True
) -> records.RealizeForm:
    """A region realized for the statements that follow; the scope `""` is unspecified memory."""
    check_type(
        buffer_slice, (BufferRegion, BufferLoad), "expected a region of a buffer such as A[0:4]"
    )
    check_type(storage_scope, str, "a scope is named by a string")
    [buffer_slice] = regions([buffer_slice])
    return records.RealizeForm(buffer_slice, storage_scope, ops.truth(condition))


def let(v: Var, value: ExprLike, body: ExprLike | None = None) -> records.LetForm | PrimExpr:
    """Bind `v` to `value`: in `body` if there is one, otherwise in the statements that follow."""
    check_type(v, Var, "let binds a variable")
    if body is not None:
        return tir.Let(v, value, body)
    return records.LetForm(ops.convert(value), v)


class LetName:
    """`T.let`: it binds a variable when called; `T.let[T.int32]` in an annotation is `T.int32`."""

    display_name: ClassVar[str] = "function"
    __call__ = staticmethod(directive(let))

    def __getitem__(self, annotation: object) -> object:
        return annotation


def let_stmt(
    value: ExprLike, type_annotation: object = None, *, var: Var | None = None
) -> records.LetForm:
    """Bind `var`, or a new variable, to `value` in the statements that follow."""
    return records.LetForm(ops.convert(value), var)


def let_expr(expr: ExprLike, where: Mapping[Var, ExprLike]) -> PrimExpr:
    """`expr` with each variable of `where` bound to its value."""
    result = ops.convert(expr)
    if not isinstance(where, Mapping) or not all(isinstance(v, Var) for v in where):
        raise unexpected(where, "where is a dict keyed by variables")
    for var, value in reversed(list(where.items())):
        result = tir.Let(
            var, ops.const(value, var.dtype) if isinstance(value, (int, float)) else value, result
        )
    return result


def assert_(condition: ExprLike, message: object) -> records.AssertForm:
    """An assertion before the statements that follow; the message may be `(kind, [part, ...])`."""
    if isinstance(message, tuple):
        match message:
            case (str() as kind, [*parts]) if all(isinstance(part, str) for part in parts):
                text = "".join(parts)
                message = text if kind == "RuntimeError" else f"{kind}: {text}"
            case _:
                raise unexpected(message, 'a message is a string or ("ValueError", ["part", ...])')
    return records.AssertForm(ops.truth(condition), ops.convert(message))


def while_(condition: ExprLike) -> records.WhileForm:
    """A while loop: `with T.While(condition):`."""
    return records.WhileForm(ops.truth(condition))


def if_(condition: ExprLike) -> records.IfForm:
    """Branches: `with T.If(condition):` around `with T.Then():` and `with T.Else():`."""
    return records.IfForm(ops.truth(condition))


def then() -> records.BranchForm:
    """The branch that runs if the condition is true."""
    return records.BranchForm(taken=True)


def else_() -> records.BranchForm:
    """The branch that runs if the condition is false."""
    return records.BranchForm(taken=False)


def evaluate(value: ExprLike) -> records.EvaluateForm:
    """Evaluate an expression for its side effect."""
    return records.EvaluateForm(ops.convert(value))


def buffer_store(
    buffer: Buffer,
    value: ExprLike,
    indices: Sequence[ExprLike] | ExprLike,
    predicate: ExprLike | None = None,
) -> records.StoreForm:
    """Store `value` to an element of a buffer, as `buffer[indices] = value` does.

    For vectors, only the lanes where `predicate` is true are stored.
    """
    check_type(buffer, Buffer, "expected a buffer")
    listed = indices if isinstance(indices, (tuple, list)) else (indices,)
    mask = None if predicate is None else ops.convert(predicate)
    return records.StoreForm(buffer, value, tuple(map(ops.convert, listed)), mask)


def index_map(
    mapping: Callable[..., Any],
    *,
    inverse_index_map: Callable[..., Any] | None = None,
    index_dtype: str = "int64",
) -> IndexMap:
    """The index map of a function: `T.index_map(lambda i, j: (j, i))`."""
    kind = as_dtype(index_dtype)
    return IndexMap.from_func(mapping, inverse_index_map=inverse_index_map, index_dtype=kind)


def target(
    description: str | Mapping[str, object] | Target,
    host: str | Mapping[str, object] | Target | None = None,
) -> str | Attrs:
    """The target of a kernel, as an attribute: a kind of device, or a table with a "kind".

    With a `host`, it is a table that has the host too.
    """
    return target_attr(description, host)


def var(dtype: str = "int32", name: str = "", span: None = None) -> Var:
    """A new variable named by its assignment, as in older versions; now `T.int64()`."""
    return Var(name, as_dtype(dtype))


def iter_var(
    v: Var | str, dom: Range | Sequence[ExprLike] | None, iter_type: str, thread_tag: str
) -> IterVar:
    """An iteration variable over `dom`, of a kind such as "DataPar"."""
    if not isinstance(iter_type, str) or iter_type not in IterVarKind.__members__:
        raise MisuseError(
            f"no kind of iteration variable is named {iter_type!r:.60}; there are "
            f"{', '.join(IterVarKind.__members__)}",
            about=iter_type,
        )
    if isinstance(dom, (tuple, list)):
        dom = Range(*dom)
    domain = dom if isinstance(dom, Range) else None
    var = v if isinstance(v, Var) else Var(v, "int32" if domain is None else domain.extent.dtype)
    return IterVar(domain, var, IterVarKind[iter_type], thread_tag)
