"""IndexMap: a map from the indices of one layout to those of another."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.arith.prove import in_order, simplify
from relaxpy.ir.core.dtype import INT64, Array, DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.tensor import Tensor
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import ExprLike, IntImm, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    import numpy.typing as npt

    from relaxpy.ir.arith.tvm.analyzer import Analyzer

MapFunction: TypeAlias = Callable[..., Any]


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
        """The simplified final indices for these initial indices.

        The facts of `analyzer` about the variables are used, here and by the other methods.

        Errors:
            MisuseError (also ValueError): the number of indices is wrong.
        """
        simple = analyzer.simplify if analyzer else simplify
        return [in_order(index, simple) for index in self._at(indices)]

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
        """The shape that contains all final indices of an array with this shape.

        It is of int64 if a dimension is, also where the indices are of a narrower datatype.

        Errors:
            MisuseError (also ValueError): the rank differs, or an index is not bounded.
        """
        from relaxpy.ir.tir.analysis import index_inverse

        self._check_count(shape, "sizes")
        extents = [size.extent if isinstance(size, Range) else size for size in shape]
        if not any(isinstance(size, PrimExpr) and size.dtype == INT64 for size in extents):
            return index_inverse.shape_of(self, shape, analyzer)
        indices = tuple(Var(var.name, INT64) for var in self.initial_indices)
        return index_inverse.shape_of(IndexMap(indices, tuple(self._at(indices))), shape, analyzer)

    def iters(self, shape: Sequence[ExprLike | Range]) -> dict[Var, Range]:
        """The range of each initial index in an array with this shape.

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
    def map_ndarray(self, arr_src: npt.ArrayLike) -> Array:
        """The array with the elements of `arr_src` at their final indices, and 0 elsewhere.

        Errors:
            MisuseError (also ValueError): the rank differs, or an index is negative or cannot be
                computed.
        """
        data = np.asarray(arr_src)
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
    def map_tensor(self, arr_src: npt.ArrayLike) -> Tensor:
        """The result of `map_ndarray` as a tensor. Errors: as `map_ndarray`."""
        return self.map_ndarray(arr_src).view(Tensor)

    @user_facing
    def inverse(
        self, shape: Sequence[ExprLike | Range], analyzer: Analyzer | None = None
    ) -> IndexMap:
        """The inverse map for an array with this shape.

        Errors:
            MisuseError (also ValueError): the map is not bijective.
        """
        from relaxpy.ir.tir.analysis import index_inverse

        if self.inverse_index_map is not None:
            return self.inverse_index_map

        return index_inverse.inverse_of(self, shape, analyzer, padded=False)[0]

    @user_facing
    def non_surjective_inverse(
        self, shape: Sequence[ExprLike | Range], analyzer: Analyzer | None = None
    ) -> tuple[IndexMap, PrimExpr]:
        """The inverse map, and the predicate over its indices that is true on padding.

        Errors:
            MisuseError (also ValueError): the map is not injective.
        """
        from relaxpy.ir.tir.analysis import index_inverse

        return index_inverse.inverse_of(self, shape, analyzer, padded=True)

    @user_facing
    def is_equivalent_to(self, other_map: IndexMap, analyzer: Analyzer | None = None) -> bool:
        """True if the two maps provably have the same final indices."""
        from relaxpy.ir.tir.analysis import index_inverse

        check_type(other_map, IndexMap, "expected an IndexMap")
        if len(self.initial_indices) != len(other_map.initial_indices):
            return False
        if len(self.final_indices) != len(other_map.final_indices):
            return False

        return index_inverse.are_equal(
            self.final_indices, other_map._at(self.initial_indices), analyzer
        )


def _parameters(function: MapFunction, ndim: int | None) -> tuple[list[str], list[str]]:
    """A name for each index that a function takes, by position and by keyword."""
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
