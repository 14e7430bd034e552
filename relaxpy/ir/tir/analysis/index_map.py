"""IndexMap: a map from the indices of one layout to those of another, and its inverse.

Also the axes of buffers and loops of a kernel that can be split, and those split together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError, check_type, unexpected
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.iter_map import detected_map, inverse_affine_iter_map, values_of_marks
from relaxpy.ir.arith.tvm.iter_reader import IterMapLevel, IterSumExpr
from relaxpy.ir.core.dtype import BOOL, INT64, DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.tensor import Tensor
from relaxpy.ir.core.traverse import Groups, children, rewrite, walk
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion
from relaxpy.ir.tir.expr import ExprLike, FloatImm, IntImm, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, MatchBufferRegion
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing

MapFunction: TypeAlias = Callable[..., Any]
Array: TypeAlias = npt.NDArray[Any]


class AxisSeparator:
    """Marks the boundary between the indices of two physical axes."""

    @override
    def __repr__(self) -> str:
        return "IndexMap.AXIS_SEPARATOR"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IndexMap(Node):
    """A function from the variables `initial_indices` to the expressions `final_indices`.

    `inverse_index_map` is an explicit inverse, if there is one.
    """

    AXIS_SEPARATOR: ClassVar[AxisSeparator] = AxisSeparator()
    _fields = ("initial_indices", "final_indices", "inverse_index_map")
    _binds = frozenset(("initial_indices",))
    _scope = True
    initial_indices: tuple[Var, ...]
    final_indices: tuple[PrimExpr, ...]
    inverse_index_map: IndexMap | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "initial_indices", ops.convert_all(self.initial_indices))
        object.__setattr__(self, "final_indices", ops.convert_all(self.final_indices))
        for var in self.initial_indices:
            ops.check_variable(var, "an index map")
        inverse = self.inverse_index_map
        if inverse is not None and not isinstance(inverse, IndexMap):
            raise unexpected(inverse, "the inverse is an IndexMap")

    @override
    def __str__(self) -> str:
        names = ", ".join(var.name for var in self.initial_indices)
        return f"IndexMap(lambda {names}: ({', '.join(map(str, self.final_indices))}))"

    @staticmethod
    @user_facing
    def from_func(
        mapping_function: MapFunction,
        ndim: int | None = None,
        inverse_index_map: MapFunction | IndexMap | None = None,
        *,
        index_dtype: str = "int64",
    ) -> IndexMap:
        """Build the map from a Python function from indices to an index or a list of indices.

        For a function with `*args`, `ndim` is the number of all indices; those of its keyword-only
        parameters are the last.

        Errors:
            MisuseError (also TypeError): the function takes other arguments, or returns axis
                separators.
        """
        index_map, separators = IndexMap.from_func_with_separators(
            mapping_function, ndim, inverse_index_map, index_dtype=index_dtype
        )
        if separators:
            raise MisuseError(
                "the function returns axis separators",
                hint="use IndexMap.from_func_with_separators",
            )
        return index_map

    @staticmethod
    @user_facing
    def from_func_with_separators(
        mapping_function: MapFunction,
        ndim: int | None = None,
        inverse_index_map: MapFunction | IndexMap | None = None,
        *,
        index_dtype: str = "int64",
    ) -> tuple[IndexMap, list[int]]:
        """Build the map from a function, and return the positions of its axis separators."""
        names, keywords = _parameters(mapping_function, ndim)
        dtype = DataType(index_dtype)
        variables = tuple(Var(name, dtype) for name in names)
        table = {name: Var(name, dtype) for name in keywords}
        results = mapping_function(*variables, **table)
        variables += tuple(table.values())
        final: list[PrimExpr] = []
        separators: list[int] = []
        for value in results if isinstance(results, (list, tuple)) else (results,):
            if isinstance(value, AxisSeparator):
                separators.append(len(final))
            elif isinstance(value, int):
                final.append(ops.const(value, index_dtype))
            else:
                final.append(ops.convert(value))
        if inverse_index_map is not None and not isinstance(inverse_index_map, IndexMap):
            inverse_index_map = IndexMap.from_func(
                inverse_index_map, len(final), index_dtype=index_dtype
            )
        return IndexMap(variables, tuple(final), inverse_index_map), separators

    @user_facing
    def map_indices(
        self, indices: Sequence[ExprLike], analyzer: Analyzer | None = None
    ) -> list[PrimExpr]:
        """Return the simplified final indices for these initial indices.

        The facts of `analyzer` about the variables are used, here and by the other methods.

        Errors:
            MisuseError (also ValueError): the number of indices is wrong.
        """
        return list(map(analyzer.simplify if analyzer else simplify, self._at(indices)))

    def _at(self, indices: Sequence[ExprLike]) -> list[PrimExpr]:
        self._check_count(indices, "indices")
        values = [
            ops.const(i, var.dtype) if isinstance(i, int) else ops.convert(i)
            for i, var in zip(indices, self.initial_indices, strict=True)
        ]
        table = dict(zip(self.initial_indices, values, strict=True))
        return [_substituted(index, table) for index in self.final_indices]

    def _check_count(self, values: Sequence[object], noun: str) -> None:
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise unexpected(values, f"expected a list of {noun}")
        if len(values) != len(self.initial_indices):
            raise MisuseError(
                f"the map takes {len(self.initial_indices)} {noun}, found {len(values)}",
                about=values,
            )

    @user_facing
    def map_shape(
        self, shape: Sequence[ExprLike | Range], analyzer: Analyzer | None = None
    ) -> list[PrimExpr]:
        """Return the shape that contains all final indices of an array with this shape.

        It is of int64 if a dimension is, also where the indices are of a narrower datatype.

        Errors:
            MisuseError (also ValueError): the rank differs, or an index is not bounded.
        """
        self._check_count(shape, "sizes")
        extents = [size.extent if isinstance(size, Range) else size for size in shape]
        if not any(isinstance(size, PrimExpr) and size.dtype == INT64 for size in extents):
            return shape_of(self, shape, analyzer)
        indices = tuple(Var(var.name, INT64) for var in self.initial_indices)
        return shape_of(IndexMap(indices, tuple(self._at(indices))), shape, analyzer)

    def iters(self, shape: Sequence[ExprLike | Range]) -> dict[Var, Range]:
        """Return the range of each initial index in an array with this shape.

        Errors:
            MisuseError: the rank differs.
        """
        self._check_count(shape, "sizes")
        iters = {}
        for var, size in zip(self.initial_indices, shape, strict=True):
            dom = size if isinstance(size, Range) else Range(size)
            iters[var] = Range.from_min_extent(
                ops.cast_to(dom.min, var.dtype), ops.cast_to(dom.extent, var.dtype)
            )
        return iters

    @user_facing
    def map_ndarray(self, source: npt.ArrayLike) -> Array:
        """Return the array with the elements of `source` at their final indices, and 0 elsewhere.

        Errors:
            MisuseError (also ValueError): the rank differs, or an index is negative or cannot be
                computed.
        """
        data = np.asarray(source)
        self._check_count(data.shape, "sizes")
        grids: list[Array] = list(np.indices(data.shape, dtype=np.int64))
        table = dict(zip(self.initial_indices, grids, strict=True))
        positions = tuple(
            np.broadcast_to(_values(index, table), data.shape) for index in self.final_indices
        )
        for index, position in zip(self.final_indices, positions, strict=True):
            if position.size and position.min() < 0:
                raise MisuseError(f"the index `{index}` is negative for some elements")
        # The shape is constant, since the indices could be computed.
        shape = [cast("IntImm", size).value for size in self.map_shape(data.shape)]
        mapped = np.zeros(shape, data.dtype)
        mapped[positions] = data
        return mapped

    @user_facing
    def map_tensor(self, source: npt.ArrayLike) -> Tensor:
        """Return the result of `map_ndarray` as a tensor. Errors: as `map_ndarray`."""
        return self.map_ndarray(source).view(Tensor)

    @user_facing
    def inverse(
        self, shape: Sequence[ExprLike | Range], analyzer: Analyzer | None = None
    ) -> IndexMap:
        """Return the inverse map for an array with this shape.

        Errors:
            MisuseError (also ValueError): the map is not bijective.
        """
        if self.inverse_index_map is not None:
            return self.inverse_index_map

        return inverse_of(self, shape, analyzer, padded=False)[0]

    @user_facing
    def non_surjective_inverse(
        self, shape: Sequence[ExprLike | Range], analyzer: Analyzer | None = None
    ) -> tuple[IndexMap, PrimExpr]:
        """Return the inverse map, and the predicate over its indices that is true on padding.

        Errors:
            MisuseError (also ValueError): the map is not injective.
        """
        return inverse_of(self, shape, analyzer, padded=True)

    @user_facing
    def is_equivalent_to(self, other: IndexMap, analyzer: Analyzer | None = None) -> bool:
        """Return whether the two maps provably have the same final indices."""
        check_type(other, IndexMap, "expected an IndexMap")
        if len(self.initial_indices) != len(other.initial_indices):
            return False
        if len(self.final_indices) != len(other.final_indices):
            return False

        return are_equal(self.final_indices, other._at(self.initial_indices), analyzer)


def _parameters(function: MapFunction, ndim: int | None) -> tuple[list[str], list[str]]:
    """Return a name for each index that a function takes, by position and by keyword."""
    if not callable(function):
        raise unexpected(function, "an index map is a function")
    names: list[str] = []
    keywords: list[str] = []
    varargs: str | None = None
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        raise MisuseError(f"the parameters of {function!r:.60} are not known") from None
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(name)
        elif parameter.kind == parameter.VAR_POSITIONAL:
            varargs = name
        elif parameter.kind == parameter.KEYWORD_ONLY:
            keywords.append(name)
        else:
            raise MisuseError(f"an index map takes no arguments of any name, as **{name}")
    if varargs is not None:
        if ndim is None:
            raise MisuseError(
                f"ndim is required as the number of indices, since there is *{varargs}"
            )
        names += [f"{varargs}_{k}" for k in range(ops.as_int(ndim) - len(names) - len(keywords))]
    count = len(names) + len(keywords)
    if ndim is not None and count != ops.as_int(ndim):
        raise MisuseError(f"the function takes {count} indices, ndim is {ndim}", about=ndim)
    return names, keywords


def _substituted(expr: PrimExpr, values: Mapping[Var, PrimExpr]) -> PrimExpr:
    """Substitute `values` in `expr`; literals take the datatype of the other operand."""
    if all(var.dtype == value.dtype for var, value in values.items()):
        return substitute(expr, values)
    match expr:
        case Var():
            return values.get(expr, expr)
        case tir.Cast(value=value):
            return _substituted(value, values)
        case tir.BinaryOpExpr(a=a, b=b):
            left, right = (
                side.value if isinstance(side, IntImm) else _substituted(side, values)
                for side in (a, b)
            )
            return type(expr)(*ops.match_dtypes(left, right))
        case _:
            return substitute(expr, {v: ops.cast_to(x, v.dtype) for v, x in values.items()})


_NUMPY: dict[type[tir.BinaryOpExpr], Callable[[Any, Any], Any]] = {
    tir.Add: np.add,
    tir.Sub: np.subtract,
    tir.Mul: np.multiply,
    tir.FloorDiv: np.floor_divide,
    tir.FloorMod: np.mod,
    tir.Div: lambda a, b: np.trunc(a / b).astype(np.int64),
    tir.Mod: np.fmod,
    tir.Min: np.minimum,
    tir.Max: np.maximum,
}


def _values(expr: PrimExpr, table: Mapping[Var, Array]) -> Any:
    """Evaluate an index for all elements at once."""
    match expr:
        case IntImm(value=value):
            return value
        case Var() if expr in table:
            return table[expr]
        case tir.Cast(value=value):
            return _values(value, table)
        case tir.BinaryOpExpr(a=a, b=b) if type(expr) in _NUMPY:
            return _NUMPY[type(expr)](_values(a, table), _values(b, table))
        case _:
            raise MisuseError(f"the index `{expr}` cannot be computed for arrays", about=expr)


def shape_of(
    index_map: IndexMap, shape: Sequence[ExprLike | Range], analyzer: Analyzer | None = None
) -> list[PrimExpr]:
    """Return the shape that contains all final indices of an array with this shape.

    Errors:
        MisuseError: the rank differs, or an index is not bounded.
    """
    iters = index_map.iters(shape)
    empty = {var: Var(var.name, var.dtype) for var, dom in iters.items() if _is_empty(dom)}
    if empty:  # a variable stands for the extent 0, which is substituted at the end
        domains = [
            Range.from_min_extent(dom.min, empty.get(var, dom.extent)) for var, dom in iters.items()
        ]
        none = {size: ops.const(0, size.dtype) for size in empty.values()}
        sizes = shape_of(index_map, domains, analyzer)
        return [Analyzer().simplify(substitute(size, none)) for size in sizes]
    detected = detected_map(
        index_map.final_indices, iters, True, IterMapLevel.Surjective, False, analyzer
    )
    analyzer = analyzer or Analyzer()
    if not detected.errors:
        return [analyzer.simplify(stop_of(index)) for index in detected.indices]
    sizes = []
    for index in index_map.final_indices:
        covered = analyzer.int_set(index, iters)
        if not covered.has_upper_bound():
            raise MisuseError(f"the index `{index}` has no bound", about=shape)
        sizes.append(analyzer.simplify(ops.add(covered.max_value, 1)))
    return sizes


def inverse_of(
    index_map: IndexMap,
    shape: Sequence[ExprLike | Range],
    analyzer: Analyzer | None,
    *,
    padded: bool,
) -> tuple[IndexMap, PrimExpr]:
    """Return the inverse map, and the predicate over its indices that is true on padding.

    Errors:
        MisuseError: the map is not injective, or it is not surjective and `padded` is false.
    """
    level = IterMapLevel.Surjective if padded else IterMapLevel.Bijective
    iters = index_map.iters(shape)
    detected = detected_map(index_map.final_indices, iters, True, level, False, analyzer)
    if detected.errors:
        raise MisuseError(f"{index_map} cannot be inverted: {detected.errors[0]}", about=shape)
    dtype = index_map.final_indices[0].dtype if index_map.final_indices else INT64
    names = [f"axis{k}" for k in range(len(index_map.final_indices))]
    outputs = tuple(
        Var(i.name if isinstance(i, Var) and i.name not in names else name, dtype)
        for i, name in zip(index_map.final_indices, names, strict=True)
    )
    values = inverse_affine_iter_map(detected.indices, outputs)
    analyzer = analyzer.clone() if analyzer else Analyzer()
    final = tuple(analyzer.simplify(values.get(var, domain.min)) for var, domain in iters.items())
    for output, index in zip(outputs, detected.indices, strict=True):
        analyzer.bind(output, Range(minimum_of(index), stop_of(index)))
    if padded and not detected.one_to_one:
        raise MisuseError(f"{index_map} cannot be inverted: it loses indices", about=shape)
    marks = values_of_marks(detected.indices, outputs)
    conditions = [
        side for p in detected.padded for side in p.sides(marks[p.mark], analyzer.simplify)
    ]
    padding = ops.any_of(*conditions) if conditions else ops.const(False, BOOL)
    return IndexMap(outputs, final), padding


def are_equal(
    first: Sequence[PrimExpr], second: Sequence[PrimExpr], analyzer: Analyzer | None
) -> bool:
    """Return whether all indices are provably equal."""
    return all(map((analyzer or Analyzer()).can_prove_equal, first, second))


def _is_empty(domain: Range) -> bool:
    return isinstance(domain.extent, IntImm) and not domain.extent.value


def minimum_of(index: IterSumExpr) -> PrimExpr:
    """Return the minimum of a detected index."""
    least: PrimExpr = index.base
    for arg in index.args:
        if isinstance(arg.scale, IntImm) and arg.scale.value < 0:
            least = ops.add(least, ops.mul(arg.scale, ops.sub(arg.extent, 1)))
    return least


def stop_of(index: IterSumExpr) -> PrimExpr:
    """Return one more than the maximum of a detected index."""
    greatest: PrimExpr = index.base
    for arg in index.args:
        if not (isinstance(arg.scale, IntImm) and arg.scale.value < 0):
            greatest = ops.add(greatest, ops.mul(arg.scale, ops.sub(arg.extent, 1)))
    return ops.add(greatest, 1)


Axis: TypeAlias = tuple[Buffer, int] | Var
"""An axis of a buffer, a loop, or an iteration variable of a block."""

_COMBINATIONS: dict[type[tir.BinaryOpExpr], str] = {
    tir.Add: "sum",
    tir.Mul: "prod",
    tir.Max: "max",
    tir.Min: "min",
}


class AxisGroups:
    """The axes of a kernel in groups: one is split only together with the others of its group.

    An axis is in a group with the variables that index it. It has to be whole if it is indexed in
    another way, and so does a loop whose variable is used other than as an index, or that stores to
    one element several times without a block that declares its reduction. An axis whose size is a
    variable is split only if nothing else depends on that variable.
    """

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self._groups: Groups[Axis] = Groups()
        self._whole: list[Axis] = []
        self._mentions: list[Var] = []
        self._buffers: dict[Buffer, None] = dict.fromkeys(func.buffer_map.values())
        self._reductions: list[tuple[Var, Block]] = []
        for node in walk(func.body):
            self._enter(node)
        self._enter_stores(func.body, ())
        self._enter_sizes()
        for buffer in self._buffers:
            if buffer.strides:
                self._whole += [(buffer, axis) for axis in range(len(buffer.shape))]
        self._has_to_be_whole = {self._groups.find(axis) for axis in self._whole}

    def group(self, buffer: Buffer, axis: int) -> Axis | None:
        """The representative of the group of a buffer's axis; None if it has to be whole."""
        group = self._groups.find((buffer, axis))
        return None if group in self._has_to_be_whole else group

    def reductions(self, groups: Container[Axis]) -> dict[tuple[Buffer, str], list[Axis]]:
        """The buffers that hold partial results if these groups are split, and how to combine them.

        Beside them are the groups over which each is reduced.

        Errors:
            TransformError: a reduction is not a sum, product, min or max, or its result is used
                in the kernel.
        """
        found: dict[tuple[Buffer, str], list[Axis]] = {}
        for var, block in self._reductions:
            group = self._groups.find(var)
            if group in groups:
                found.setdefault(self._combination(block), []).append(group)
        return found

    def _combination(self, block: Block) -> tuple[Buffer, str]:
        store = block.body
        value = store.value if isinstance(store, BufferStore) else None
        if (
            isinstance(store, BufferStore)
            and isinstance(value, tir.BinaryOpExpr)
            and type(value) in _COMBINATIONS
        ):
            first = value.a
            if isinstance(first, BufferLoad) and first.buffer is store.buffer:
                reads = [
                    node
                    for node in walk(self.func.body)
                    if isinstance(node, BufferLoad) and node.buffer is store.buffer
                ]
                if (
                    store.buffer in self.func.buffer_map.values()
                    and all(read is first for read in reads)
                    and _starts_neutral(block, type(value))
                ):
                    return store.buffer, _COMBINATIONS[type(value)]
        raise TransformError(
            f"block {block.name_hint} reduces along an axis that is split over several devices, "
            "and its partial results are not the result of the kernel",
            span=block.span,
            hint="split another axis, or legalise the operator to several kernels",
        )

    def split(self, groups: Mapping[Axis, int]) -> PrimFunc:
        """The kernel on one shard; each group's axes are split into the given number of shards.

        Errors:
            TransformError: a size is neither a variable nor a constant that the number divides.
        """

        def part(axis: Axis, size: PrimExpr) -> PrimExpr:
            count = groups.get(self._groups.find(axis), 1)
            if count == 1:
                return size
            if isinstance(size, Var):
                return size
            if not isinstance(size, IntImm) or size.value % count:
                raise TransformError(
                    f"an axis of size {size} cannot be divided in {count} equal parts",
                    span=self.func.span,
                )
            return ops.const(size.value // count, size.dtype)

        buffers = {
            buffer: replace(
                buffer, shape=tuple(part((buffer, k), size) for k, size in enumerate(buffer.shape))
            )
            for buffer in self._buffers
            if any(self._groups.find((buffer, k)) in groups for k in range(len(buffer.shape)))
        }

        def step(node: Node) -> Node | None:
            match node:
                case Buffer():
                    return buffers.get(node)
                case For(loop_var=var, extent=size) | IterVar(var=var, dom=Range(extent=size)) if (
                    self._groups.find(var) in groups
                ):
                    extent = part(var, size)
                    if isinstance(node, For):
                        return replace(node, extent=extent)
                    assert node.dom is not None
                    return replace(node, dom=Range.from_min_extent(node.dom.min, extent))
                case _:
                    return None

        result = rewrite(self.func, step)
        assert isinstance(result, PrimFunc)
        return result

    # --- analysis of the kernel

    def _enter(self, node: Node) -> None:
        match node:
            case BufferLoad(buffer=buffer, indices=indices):
                self._access(buffer, indices)
            case BufferStore(buffer=buffer, indices=indices, value=value):
                self._access(buffer, indices)
                self._mentioned(value)
            case BufferRegion(buffer=buffer, region=region):
                self._access(buffer, [dom.min if _is_point(dom) else None for dom in region])
            case BlockRealize(block=block, iter_values=values, predicate=predicate):
                self._mentioned(predicate)
                for iter_var, value in zip(block.iter_vars, values, strict=True):
                    if isinstance(value, Var):
                        self._groups.join(iter_var.var, value)
                    else:
                        self._whole.append(iter_var.var)
                    if iter_var.iter_type == IterVarKind.CommReduce:
                        self._reductions.append((iter_var.var, block))
            case Block(alloc_buffers=buffers):
                self._buffers |= dict.fromkeys(buffers)
            case MatchBufferRegion(source=source, buffer=buffer):
                for one in (source.buffer, buffer):
                    self._whole += [(one, axis) for axis in range(len(one.shape))]
            case For(min=start, loop_var=var):
                if not isinstance(start, IntImm) or start.value:
                    self._whole.append(var)
            case IterVar() | Range() | Buffer():
                pass
            case _:
                for child in children(node):
                    self._mentioned(child)

    def _enter_stores(self, node: Node, repeated: tuple[Var, ...]) -> None:
        """Note the loops that store to one element several times; `repeated` enclose them."""
        match node:
            case For(loop_var=var):
                repeated = (*repeated, var)
            case Block(iter_vars=iter_vars):
                reduced = {
                    self._groups.find(iter_var.var)
                    for iter_var in iter_vars
                    if iter_var.iter_type == IterVarKind.CommReduce
                }
                repeated = tuple(v for v in repeated if self._groups.find(v) not in reduced)
            case BufferStore(indices=indices):
                stored = {self._groups.find(i) for i in indices if isinstance(i, Var)}
                self._whole += [v for v in repeated if self._groups.find(v) not in stored]
            case _:
                pass
        for child in children(node):
            self._enter_stores(child, repeated)

    def _enter_sizes(self) -> None:
        """Note the axes on whose size something else depends."""
        owners: dict[Var, set[Axis]] = {}
        own: list[tuple[Axis, PrimExpr]] = [
            ((b, k), size) for b in self._buffers for k, size in enumerate(b.shape)
        ]
        for node in walk(self.func.body):
            match node:
                case For(loop_var=var, extent=size) | IterVar(var=var, dom=Range(extent=size)):
                    own.append((var, size))
                case _:
                    pass
        for axis, size in own:
            if isinstance(size, Var):
                owners.setdefault(size, set()).add(self._groups.find(axis))
        whole = set(self._mentions)
        whole |= {
            node
            for _, size in own
            if not isinstance(size, Var)
            for node in walk(size)
            if isinstance(node, Var)
        }
        for size, groups in owners.items():
            if size in whole or len(groups) > 1 or size in self.func.params:
                self._whole += groups

    def _access(self, buffer: Buffer, indices: Sequence[PrimExpr | None]) -> None:
        self._buffers.setdefault(buffer)
        for axis, index in enumerate(indices):
            if isinstance(index, Var):
                self._groups.join((buffer, axis), index)
            else:
                self._whole.append((buffer, axis))

    def _mentioned(self, node: Node) -> None:
        if isinstance(node, Var):
            self._whole.append(node)
            self._mentions.append(node)


def _starts_neutral(block: Block, combination: type[tir.BinaryOpExpr]) -> bool:
    """Return whether all devices may start with the init value without changing the total."""
    if combination in (tir.Max, tir.Min):
        return True
    start = block.init.value if isinstance(block.init, BufferStore) else None
    neutral = 1 if combination is tir.Mul else 0
    return isinstance(start, (IntImm, FloatImm)) and start.value == neutral


def _is_point(dom: Range) -> bool:
    return isinstance(dom.extent, IntImm) and dom.extent.value == 1
