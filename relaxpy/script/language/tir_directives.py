"""The words of `T` that give records, and those that take their arguments in several ways."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from relaxpy.errors import MisuseError, counted
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs, freeze
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion, IterVar, Range
from relaxpy.ir.tir.expr import ExprLike, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.reduce import CommReducer
from relaxpy.ir.tir.stmt import ForKind, regions
from relaxpy.script.language import records
from relaxpy.script.language.eager import word
from relaxpy.script.language.records import BufferSpec, HandleWord, Word, as_dtype

_LANES = (2, 4, 8, 16, 32, 64)
_VECTOR = re.compile(r"[a-z]\w*x[1-9][0-9]*", re.ASCII)
_FLOATS = (
    *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
    *("float16", "float32", "float64", "bfloat16"),
)


def dtype_words() -> dict[str, Word | HandleWord]:
    """Every datatype by name, as `T.int32` and `T.float8_e4m3x4` name them."""
    integers = (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
    scalars = (*integers, *_FLOATS)
    names = (*scalars, *(f"{name}x{lanes}" for name in scalars for lanes in _LANES))
    words = {name: name for name in names} | {"bool": "bool", "boolean": "bool", "void": ""}
    return {name: Word(DataType(dtype)) for name, dtype in words.items()}


def vector_word(name: str) -> Word | None:
    """The datatype of vectors that a name such as `uint1x4` or `float32x3` means, if any."""
    if not _VECTOR.fullmatch(name):
        return None
    try:
        return Word(DataType(name))
    except MisuseError:
        return None


# --- loops


def _bounds(start: ExprLike, stop: ExprLike | None) -> tuple[PrimExpr, PrimExpr]:
    for end in (start, stop):
        value = ops.convert(0 if end is None else end)
        if not value.dtype.is_int or value.dtype.lanes != 1:
            raise MisuseError(
                f"a loop runs over integers, found `{value}` of {value.dtype}", about=end
            )
    span = Range(start) if stop is None else Range(start, stop)
    return span.min, span.extent


def _loop(kind: ForKind, name: str) -> Callable[..., records.LoopForm]:
    def loop(
        start: ExprLike,
        stop: ExprLike | None = None,
        *,
        annotations: Mapping[str, object] | None = None,
    ) -> records.LoopForm:
        return records.LoopForm((_bounds(start, stop),), kind, _annotations(annotations))

    loop.__name__ = loop.__qualname__ = name
    loop.__doc__ = (
        f"A {kind.name.lower()} loop from `start` (0 if it alone is given) to before `stop`."
    )
    return loop


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
    if not isinstance(thread, str):
        raise MisuseError(
            f"thread names a hardware index such as 'threadIdx.x', found {thread!r}", about=thread
        )
    return records.LoopForm(
        (_bounds(start, stop),), ForKind.THREAD_BINDING, _annotations(annotations), thread
    )


def grid(*extents: ExprLike) -> records.LoopForm:
    """Serial loops from 0, one inside the other."""
    return records.LoopForm(tuple(_bounds(extent, None) for extent in extents))


# --- blocks


def block(name: str = "", no_realize: bool = False) -> records.BlockForm:
    """A block: a computation over its own variables."""
    if not isinstance(no_realize, bool):
        raise MisuseError(
            f"no_realize is True or False, found {no_realize!r:.60}", about=no_realize
        )
    if not isinstance(name, str):
        raise MisuseError(f"a block is named by a string, found {name!r}", about=name)
    return records.BlockForm(name, no_realize)


def init() -> records.InitForm:
    """What a block does before the first step of its reductions."""
    return records.InitForm()


class Axis:
    """`T.axis`: the variables of a block."""

    __all__ = ("R", "S", "opaque", "reduce", "remap", "scan", "spatial")

    @staticmethod
    def _make(dom: Any, binding: ExprLike, kind: IterVarKind) -> records.AxisForm:
        value = ops.convert(binding)
        if not value.dtype.is_int or value.dtype.lanes != 1:
            raise MisuseError(
                f"a block variable stands for an integer, found `{value}` of {value.dtype}",
                about=binding,
            )
        if isinstance(dom, Range):
            return records.AxisForm(dom, value, kind)
        ends = tuple(dom) if isinstance(dom, (tuple, list)) else (0, dom)
        whole = (isinstance(e, (int, PrimExpr)) and not isinstance(e, bool) for e in ends)
        if len(ends) != 2 or not all(whole):
            raise MisuseError(f"a domain is an extent or (begin, end), found {dom!r}", about=dom)
        if not any(isinstance(end, PrimExpr) for end in ends):
            ends = tuple(ops.const(end, value.dtype) for end in ends)
        return records.AxisForm(Range(*ends), value, kind)

    @staticmethod
    @word
    def spatial(dom: object, binding: ExprLike, dtype: str = "int32") -> records.AxisForm:
        """A variable whose steps are independent of each other."""
        return Axis._make(dom, binding, IterVarKind.DataPar)

    @staticmethod
    @word
    def reduce(dom: object, binding: ExprLike, dtype: str = "int32") -> records.AxisForm:
        """A variable that is summed, or otherwise reduced, over."""
        return Axis._make(dom, binding, IterVarKind.CommReduce)

    @staticmethod
    @word
    def scan(dom: object, binding: ExprLike, dtype: str = "int32") -> records.AxisForm:
        """A variable whose steps run in order."""
        return Axis._make(dom, binding, IterVarKind.Ordered)

    @staticmethod
    @word
    def opaque(dom: object, binding: ExprLike, dtype: str = "int32") -> records.AxisForm:
        """A variable of which nothing is promised."""
        return Axis._make(dom, binding, IterVarKind.Opaque)

    @staticmethod
    @word
    def remap(
        kinds: str, bindings: Sequence[PrimExpr] | PrimExpr, dtype: str = "int32"
    ) -> records.RemapForm:
        """Variables for whole loops, each spatial (S) or reduced over (R)."""
        if not isinstance(kinds, str) or set(kinds) - set("SR"):
            raise MisuseError(
                f"the kinds of block variables are letters S and R, found {kinds!r}", about=kinds
            )
        if not isinstance(bindings, (tuple, list)):
            bindings = [bindings]  # type: ignore[list-item]
        if len(kinds) != len(bindings):
            raise MisuseError(
                f"{counted(len(kinds), 'kind')} for {counted(len(bindings), 'loop variable')}",
                about=kinds,
            )
        return records.RemapForm(kinds, tuple(bindings))

    S = spatial
    R = reduce


axis = Axis()


def reads(*regions: Any) -> records.AccessForm:
    """What the block reads."""
    return records.AccessForm("reads", _regions(regions))


def writes(*regions: Any) -> records.AccessForm:
    """What the block writes."""
    return records.AccessForm("writes", _regions(regions))


def _regions(given: tuple[Any, ...]) -> tuple[BufferRegion | BufferLoad | Buffer, ...]:
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = tuple(given[0])
    for region in given:
        if not isinstance(region, (BufferRegion, BufferLoad, Buffer)):
            raise MisuseError(
                f"expected a region of a buffer such as A[0:4], found {region!r:.60}", about=region
            )
        if isinstance(region, BufferLoad) and any(
            isinstance(index, tir.Ramp) for index in region.indices
        ):
            raise MisuseError("a region has no steps", about=region)
    return given


def where(condition: ExprLike) -> records.WhereForm:
    """The condition under which the block runs."""
    return records.WhereForm(ops.truth(condition))


def func_attr(attrs: Mapping[str, object]) -> records.AttrsForm:
    """Attributes of the function."""
    return records.AttrsForm("function", records.attributes(attrs))


def block_attr(attrs: Mapping[str, object]) -> records.AttrsForm:
    """Attributes of the block."""
    return records.AttrsForm("block", records.attributes(attrs))


def _annotations(given: Mapping[str, object] | None) -> Mapping[str, Any]:
    return {} if given is None else records.attributes(given)


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
    """The buffer behind handle `param`; inside a block, a view of a region.

    Errors: MisuseError if `param` is neither, or is a handle and no shape is given.
    """
    if isinstance(param, (BufferRegion, BufferLoad)):
        if shape is None:
            return records.MatchBufferForm(param, None)
    elif not isinstance(param, Var):
        raise MisuseError(
            f"match_buffer takes a handle parameter or a region, found {param!r:.60}", about=param
        )
    elif param.dtype != "handle":
        raise MisuseError(
            f"only a handle has a buffer behind it, {param.name} is {param.dtype}",
            about=param,
            hint=f"declare it as {param.name}: T.handle",
        )
    elif shape is None:
        raise MisuseError(f"match_buffer of {param.name} needs a shape")
    spec = BufferSpec(
        shape,  # type: ignore[arg-type]
        dtype,  # type: ignore[arg-type]
        data,
        strides,  # type: ignore[arg-type]
        elem_offset,
        scope,
        align,
        offset_factor,
        buffer_type,
        axis_separators,  # type: ignore[arg-type]
    )
    return records.MatchBufferForm(param, spec)


@wraps(BufferSpec, assigned=(), updated=())
def alloc_buffer(*args: Any, **kwargs: Any) -> records.AllocBufferForm:
    """A buffer that lives as long as the block around; arguments as T.Buffer takes them."""
    return records.AllocBufferForm(BufferSpec(*args, **kwargs))


@wraps(BufferSpec, assigned=(), updated=())
def decl_buffer(*args: Any, **kwargs: Any) -> records.DeclBufferForm:
    """A buffer over the memory `data`; arguments as T.Buffer takes them."""
    return records.DeclBufferForm(BufferSpec(*args, **kwargs))


def _extents(given: object) -> tuple[PrimExpr, ...]:
    if not isinstance(given, (tuple, list)):
        raise MisuseError(
            f"memory has a list of extents, found {given!r:.60}",
            about=given,
            hint="write one extent in a list, too: [4]",
        )
    return tuple(ops.convert(extent) for extent in given)


def allocate(
    extents: Sequence[ExprLike],
    dtype: str,
    scope: str = "global",
    condition: ExprLike | None = None,
    annotations: Mapping[str, object] | None = None,
) -> records.AllocateForm:
    """Memory of this many elements."""
    test = ops.const(True, "bool") if condition is None else ops.truth(condition)
    sizes = _extents(extents)
    return records.AllocateForm(sizes, as_dtype(dtype), scope, test, _annotations(annotations))


def allocate_const(
    data: object,
    dtype: str,
    extents: Sequence[ExprLike],
    annotations: Mapping[str, object] | None = None,
) -> records.AllocateForm:
    """Memory that holds the constant `data`, an array or nested lists of numbers.

    Errors: MisuseError if `data` does not fill the extents, or a member is none of the datatype.
    """
    sizes, kind = _extents(extents), as_dtype(dtype)
    try:
        array = np.asarray(data)
        array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.array("")
    if array.dtype.kind in "SUc" or not (kind.is_int or kind.is_float):
        raise MisuseError(f"the constant is of numbers, found {data!r:.60}", about=data)
    known = [size.value for size in sizes if isinstance(size, tir.IntImm)]
    if len(known) == len(sizes) and math.prod(known) != array.size:
        raise MisuseError(
            f"{math.prod(known)} elements are allocated, the constant has {array.size}", about=data
        )
    if kind.is_int:
        low, high = ops.int_range(kind)
        for member in array.ravel().tolist():
            if not (low <= member <= high and member == int(member)):
                raise MisuseError(f"the constant holds {member}, which is no {kind}", about=data)
    held = freeze(array.tolist())
    return records.AllocateForm(sizes, kind, "global", None, _annotations(annotations), held)


def comm_reducer(
    combiner: Callable[..., Any], identity: Any, name: str = "reduce"
) -> CommReducer | Callable[..., Any]:
    """A reducer: of a list of identities the node itself, else a function over axes."""
    if isinstance(identity, (list, tuple)):
        return reduce.make_reducer(combiner, identity)
    return reduce.comm_reducer(combiner, identity, name)


def attr(node: object, attr_key: str, value: ExprLike) -> records.AttrForm:
    """An annotation on the statements that follow."""
    if not isinstance(attr_key, str):
        raise MisuseError(f"a key is a string, found {attr_key!r:.60}", about=attr_key)
    return records.AttrForm(node, attr_key, ops.convert(value))


def env_thread(thread_tag: str, dtype: str = "int32") -> records.EnvThreadForm:
    """A variable for the hardware index `thread_tag`."""
    if not isinstance(thread_tag, str):
        raise MisuseError(
            f"a hardware index is named by a string, found {thread_tag!r:.60}", about=thread_tag
        )
    return records.EnvThreadForm(thread_tag, as_dtype(dtype))


def launch_thread(thread: str | Var, extent: ExprLike) -> records.LaunchThreadForm:
    """The hardware index `thread` running over `extent` values in what follows."""
    if not isinstance(thread, (str, Var)):
        raise MisuseError(
            f"a hardware index is named by a string or made by T.env_thread, found {thread!r:.60}",
            about=thread,
        )
    return records.LaunchThreadForm(thread, ops.convert(extent))


def realize(
    buffer_slice: BufferRegion, storage_scope: str, condition: ExprLike = True
) -> records.RealizeForm:
    """A region made real for the statements that follow; `""` leaves open in which memory."""
    if not isinstance(buffer_slice, (BufferRegion, BufferLoad)):
        raise MisuseError(
            f"expected a region of a buffer such as A[0:4], found {buffer_slice!r:.60}",
            about=buffer_slice,
        )
    if not isinstance(storage_scope, str):
        raise MisuseError(
            f"a scope is named by a string, found {storage_scope!r:.60}", about=storage_scope
        )
    [buffer_slice] = regions([buffer_slice])
    return records.RealizeForm(buffer_slice, storage_scope, ops.truth(condition))


def let(v: Var, value: ExprLike, body: ExprLike | None = None) -> records.LetForm | PrimExpr:
    """`v` standing for `value`: in `body` if there is one, else in what follows."""
    if not isinstance(v, Var):
        raise MisuseError(f"let binds a variable, found {v!r:.60}", about=v)
    if body is not None:
        return tir.Let(v, value, body)
    return records.LetForm(ops.convert(value), v)


def let_stmt(
    value: ExprLike, type_annotation: object = None, *, var: Var | None = None
) -> records.LetForm:
    """`var`, or a new variable, standing for `value` in what follows."""
    return records.LetForm(ops.convert(value), var)


def let_expr(expr: ExprLike, where: Mapping[Var, ExprLike]) -> PrimExpr:
    """`expr` where each variable of `where` stands for its value."""
    result = ops.convert(expr)
    if not isinstance(where, Mapping) or not all(isinstance(v, Var) for v in where):
        raise MisuseError(f"where is a dict keyed by variables, found {where!r:.60}", about=where)
    for var, value in reversed(list(where.items())):
        result = tir.Let(
            var, ops.const(value, var.dtype) if isinstance(value, (int, float)) else value, result
        )
    return result


def assert_(condition: ExprLike, message: str) -> records.AssertForm:
    """A check in front of the statements that follow."""
    return records.AssertForm(ops.truth(condition), ops.convert(message))


def while_(condition: ExprLike) -> records.WhileForm:
    """Statements again and again as long as the condition holds: `with T.While(condition):`."""
    return records.WhileForm(ops.truth(condition))


def if_(condition: ExprLike) -> records.IfForm:
    """Branches: `with T.If(condition):` around `with T.Then():` and `with T.Else():`."""
    return records.IfForm(ops.truth(condition))


def then() -> records.BranchForm:
    """What runs where the condition holds."""
    return records.BranchForm(taken=True)


def else_() -> records.BranchForm:
    """What runs where the condition does not hold."""
    return records.BranchForm(taken=False)


def evaluate(value: ExprLike) -> records.EvaluateForm:
    """An expression for its effect."""
    return records.EvaluateForm(ops.convert(value))


def buffer_store(
    buffer: Buffer,
    value: ExprLike,
    indices: Sequence[ExprLike] | ExprLike,
    predicate: ExprLike | None = None,
) -> records.StoreForm:
    """`value` written to an element of a buffer, as `buffer[indices] = value` does.

    With vectors, only in those lanes where `predicate` holds.
    """
    if not isinstance(buffer, Buffer):
        raise MisuseError(f"expected a buffer, found {buffer!r:.60}", about=buffer)
    listed = indices if isinstance(indices, (tuple, list)) else (indices,)
    held = None if predicate is None else ops.convert(predicate)
    return records.StoreForm(buffer, value, tuple(map(ops.convert, listed)), held)


def index_map(
    mapping: Callable[..., Any],
    *,
    inverse_index_map: Callable[..., Any] | None = None,
    index_dtype: str = "int64",
) -> IndexMap:
    """The map of indices that a function is: `T.index_map(lambda i, j: (j, i))`."""
    kind = as_dtype(index_dtype)
    return IndexMap.from_func(mapping, inverse_index_map=inverse_index_map, index_dtype=kind)


def meta_var(value: object) -> records.MetaVar:
    """`value` as a Python value, which becomes no statement."""
    return records.MetaVar(value)


def target(description: str | Mapping[str, object]) -> str | Attrs:
    """What a kernel is for, as an attribute: a kind of device, or a table whose "kind" it is."""
    if isinstance(description, Mapping):
        return Attrs(description)
    if not isinstance(description, str):
        raise MisuseError(
            f"a target is a string or a table, found {description!r:.60}", about=description
        )
    return description


def var(dtype: str = "int32", name: str = "", span: None = None) -> Var:
    """A new variable of this datatype, which its assignment names: the older `T.int64()`."""
    return Var(name, as_dtype(dtype))


def iter_var(
    v: Var | str, dom: Range | Sequence[ExprLike] | None, iter_type: str, thread_tag: str
) -> IterVar:
    """A variable of a loop over `dom`, of a kind such as "DataPar"."""
    if not isinstance(iter_type, str) or iter_type not in IterVarKind.__members__:
        raise MisuseError(
            f"no kind of loop variable is named {iter_type!r:.60}; there are "
            f"{', '.join(IterVarKind.__members__)}",
            about=iter_type,
        )
    if isinstance(dom, (tuple, list)):
        dom = Range(*dom)
    over = dom if isinstance(dom, Range) else None
    named = v if isinstance(v, Var) else Var(v, "int32" if over is None else over.extent.dtype)
    return IterVar(over, named, IterVarKind[iter_type], thread_tag)


# --- calls whose datatype may come by keyword


def intrinsic(name: str) -> Callable[..., PrimExpr]:
    """The intrinsic `name` as a function of its operands."""
    function: Callable[..., PrimExpr] | None = getattr(intrin, name, None)
    if function is not None:
        return function

    def word(x: ExprLike) -> PrimExpr:
        value = ops.convert(x)
        return tir.Call(value.dtype, f"tir.{name}", (value,))

    word.__name__ = word.__qualname__ = name
    word.__doc__ = f"{name} of x, in the datatype of x."
    return word


def bitwise(name: str) -> Callable[..., PrimExpr]:
    """The bit operation `name` as a function of its operands."""

    def binary(x: ExprLike, y: ExprLike) -> PrimExpr:
        return ops.bitwise(f"tir.{name}", x, y)

    def inverted(x: ExprLike) -> PrimExpr:
        return ~ops.convert(x)

    word: Callable[..., PrimExpr] = inverted if name == "bitwise_not" else binary
    word.__name__ = word.__qualname__ = name
    word.__doc__ = f"{name} of integers."
    return ignoring_dtype(word)


def ignoring_dtype(function: Callable[..., PrimExpr]) -> Callable[..., PrimExpr]:
    """`function` as TVM calls it: a `dtype=` is taken and has no effect."""

    @wraps(function)
    def word(*args: Any, dtype: object = None, **kwargs: Any) -> PrimExpr:
        return function(*args, **kwargs)

    return word


def leading_dtype(function: Callable[..., PrimExpr]) -> Callable[..., PrimExpr]:
    """`function` as TVM calls it: `dtype=` may stand for the first argument."""

    @wraps(function)
    def word(*args: Any, dtype: str | None = None, **kwargs: Any) -> PrimExpr:
        return function(*args, **kwargs) if dtype is None else function(dtype, *args, **kwargs)

    return word
