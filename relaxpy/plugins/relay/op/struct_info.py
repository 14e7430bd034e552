"""Relations that follow from the struct info of the Relax operators that compute them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from relaxpy.errors import RelaxpyError, RuntimeCheckError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir import expr as tir
from relaxpy.plugins.relay import ty as types
from relaxpy.plugins.relay.op.registry import Op, OpRecord, is_op_name
from relaxpy.plugins.relay.op.relations import RELATIONS, Relation, RelationError

if TYPE_CHECKING:
    from relaxpy.plugins.relay.infer.solver import Solver


def translated(
    builder: BlockBuilder,
    record: OpRecord,
    args: tuple[rx.Expr, ...],
    attrs: Attrs,
    ty: types.Type | None,
) -> rx.Expr:
    """The Relax expression of a call of an operator, whose attributes are complete.

    Errors:
        RuntimeCheckError: the operator has neither a translation nor a computation.
    """
    if record.translate is not None:
        return record.translate(args, attrs)
    compute = record.compute
    if compute is None:
        raise RuntimeCheckError(
            f"the operator {record.name} has no implementation",
            rule="RLY-28",
            hint=f'register one: relay.op.register_compute("{record.name}", function)',
        )

    def tensors(*operands: Any) -> Any:
        results = list(compute(attrs, operands, ty))
        return results[0] if len(results) == 1 else results

    return builder.call_te(tensors, *args)


_UNKNOWN = DataType("")
#: Exceptions of a translation whose operands or attributes do not fit.
_UNFIT = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)


def struct_info_relation(record: OpRecord) -> Relation:
    """The relation of an operator that is defined by its Relax expression."""

    def relation(solver: Solver, args: tuple[types.Type, ...], attrs: Attrs) -> bool:
        operands: list[types.Type] = []
        for arg in args[:-1]:
            known = _known(solver, arg)
            if known is None:
                return False
            operands.append(known)
        names = Names()
        variables = [
            rx.Var(name, names.struct_info(ty))
            for name, ty in zip(record.operands, operands, strict=True)
        ]
        builder = BlockBuilder()
        try:
            with builder.testing_scope(_shape_vars(variables)):
                expr = builder.normalize(translated(builder, record, tuple(variables), attrs, None))
        except RelaxpyError as error:
            raise RelationError(error.diagnostic.message) from None
        except _UNFIT:
            raise RelationError(
                "the operator does not take operands of these ranks with these attributes"
            ) from None
        if expr.struct_info is None:
            raise RelationError("the type of the result is not known")
        result = names.type(expr.struct_info)
        if record.known_dims is not None:
            result = names.with_dims(result, record.known_dims(tuple(variables), attrs))
        solver.unify(args[-1], result)
        return True

    return relation


def _known(solver: Solver, ty: types.Type) -> types.Type | None:
    """A type without holes, or None if it has some."""
    ty = solver.resolve(ty)
    match ty:
        case types.IncompleteType():
            return None
        case types.TupleType(fields=fields):
            known = [_known(solver, field) for field in fields]
            return None if any(k is None for k in known) else types.TupleType(known)  # type: ignore[arg-type]
        case types.TensorType():
            shape: Any = solver.resolve(ty.shape)
            dtype: Any = solver.resolve(ty.dtype)
            if isinstance(shape, tuple):
                shape = tuple(map(solver.resolve, shape))
            parts = (*shape, dtype) if isinstance(shape, tuple) else (shape, dtype)
            if any(isinstance(part, types.IncompleteType) for part in parts):
                return None
            return types.TensorType(shape, dtype)
        case _:
            raise RelationError(f"expected a tensor, found {ty}")


def _shape_vars(variables: list[rx.Var]) -> list[tir.Var]:
    """The shape variables in the struct info of variables."""
    found: dict[tir.Var, None] = {}
    stack: list[Any] = [v.struct_info for v in variables]
    while stack:
        sinfo = stack.pop()
        if isinstance(sinfo, rx.TupleStructInfo):
            stack += sinfo.fields
        elif isinstance(sinfo, rx.TensorStructInfo):
            found.update(
                dict.fromkeys(d for d in sinfo.get_shape() or () if isinstance(d, tir.Var))
            )
    return list(found)


class Names:
    """The shape variables that stand for the dimensions of Relay types."""

    def __init__(self) -> None:
        self.variables: dict[types.TypeVar, tir.Var] = {}
        self.dtypes: list[types.TypeVar] = []
        self.unknown = 0

    def struct_info(self, ty: types.Type) -> rx.StructInfo:
        """The struct info of a type without holes.

        Errors:
            RelationError: it is neither a tensor nor a tuple of tensors.
        """
        match ty:
            case types.TupleType(fields=fields):
                return rx.TupleStructInfo([self.struct_info(field) for field in fields])
            case types.TensorType(shape=shape, dtype=dtype):
                if isinstance(dtype, types.TypeVar):
                    self.dtypes.append(dtype)
                known: Any = dtype if isinstance(dtype, DataType) else _UNKNOWN
                if isinstance(shape, tuple):
                    dims = [self._dim(dim) for dim in shape]
                    return rx.TensorStructInfo(dims, known)
                return rx.TensorStructInfo(dtype=known)
            case _:
                raise RelationError(f"expected a tensor, found {ty}")

    def _dim(self, dim: object) -> tir.PrimExpr:
        if isinstance(dim, types.UnknownDim):
            self.unknown += 1
            return tir.Var(f"d{self.unknown}", "int64")
        if isinstance(dim, types.TypeVar):
            if dim not in self.variables:
                self.variables[dim] = tir.Var(dim.name_hint, "int64")
            return self.variables[dim]
        assert isinstance(dim, int)
        return tir.IntImm("int64", dim)

    def type(self, sinfo: rx.StructInfo) -> types.Type:
        """The type of a result; a dimension that Relay cannot express is `?`.

        Errors:
            RelationError: the rank or the datatype is not known.
        """
        match sinfo:
            case rx.TupleStructInfo(fields=fields):
                return types.TupleType([self.type(field) for field in fields])  # type: ignore[arg-type]
            case rx.TensorStructInfo():
                shape: Any = sinfo.get_shape()
                if shape is None and sinfo.ndim >= 0:
                    shape = (None,) * sinfo.ndim
                if shape is None:
                    raise RelationError("the rank of the result is not known")
                params = {variable: param for param, variable in self.variables.items()}
                dims = [_as_dim(dim, params) for dim in shape]
                dtype: Any = sinfo.dtype
                if not dtype and len(set(self.dtypes)) == 1:
                    dtype = self.dtypes[0]
                if not dtype:
                    raise RelationError("the datatype of the result is not known")
                return types.TensorType(dims, dtype)  # type: ignore[arg-type]
            case _:
                raise RelationError(f"the result is {sinfo}, which is not a tensor")

    def with_dims(self, ty: types.Type, known: Sequence[Sequence[object]]) -> types.Type:
        """The type of a tensor, or of a tuple of them, with these dimensions for `?`."""
        if isinstance(ty, types.TupleType):
            fields = zip(ty.fields, known, strict=True)
            return types.TupleType([self.with_dims(field, [dims]) for field, dims in fields])  # type: ignore[arg-type]
        assert isinstance(ty, types.TensorType)
        assert isinstance(ty.shape, tuple)
        params = {variable: param for param, variable in self.variables.items()}
        pairs = zip(ty.shape, known[0], strict=True)
        dims = [_as_dim(dim, params) if old is types.ANY else old for old, dim in pairs]
        return types.TensorType(dims, ty.dtype)  # type: ignore[arg-type]


def _as_dim(dim: object, params: dict[tir.Var, types.TypeVar]) -> object:
    if isinstance(dim, tir.IntImm):
        return dim.value
    return params.get(dim, types.ANY) if isinstance(dim, tir.Var) else types.ANY


def relation_named(name: str) -> Relation | None:
    """The relation that is registered under a name, or that of the operator; or None."""
    relation = RELATIONS.get(name)
    if relation is not None or not is_op_name(name):
        return relation
    record = Op.get(name).record
    if record.relation is None and record.translate is None:
        return _missing
    return struct_info_relation(record) if record.relation is None else record.relation


def _missing(solver: Solver, args: tuple[types.Type, ...], attrs: Attrs) -> bool:
    """The relation of a user's operator that has none."""
    raise RelationError("the operator has no type relation")
