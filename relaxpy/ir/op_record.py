"""The record of an operator: all that is registered for it, in one frozen, typed value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from relaxpy.errors import MisuseError, close_names

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder
    from relaxpy.ir.relax.nodes import Call, Expr, Var
    from relaxpy.ir.relax.nodes.base import StructInfo
    from relaxpy.ir.relax.relations.context import Context

InferRule: TypeAlias = "Callable[[Call, Context], StructInfo]"
Legalization: TypeAlias = "Callable[[BlockBuilder, Call], Any]"
Gradient: TypeAlias = "Callable[[Var, Call, Expr, BlockBuilder], Sequence[Expr]]"
LayoutRule: TypeAlias = "Callable[[Call, Mapping[str, Sequence[str]], Mapping[Var, Any]], Any]"
MixedPrecisionRule: TypeAlias = "Callable[[Call, str], Expr]"
CallArguments: TypeAlias = tuple[list[object], dict[str, object]]
"""Positional and keyword arguments."""


class CallKind(Enum):
    """What an operator calls, and how; its first operand is the callee."""

    KERNEL = "a PrimFunc, on operands and on new tensors for its outputs"
    INPLACE_KERNEL = "a PrimFunc some of whose outputs are operands"
    LOCAL_KERNEL = "a PrimFunc, on the shards of each device"
    DYNAMIC_KERNEL = "a PrimFunc or packed function, on tensors and the members of a shape"
    DPS_PACKED = "a packed function, on operands and on new tensors for its outputs"
    PACKED = "a packed function, on the other operands"
    INPLACE_PACKED = "a packed function some of whose results are operands"
    PACKED_WITH_CONTEXT = "a packed function, on the context of the run and the fields of a tuple"
    PYTHON = "a Python function by its name, on the fields of a tuple"
    CLOSURE = "a closure, on the fields of a tuple"

    @property
    def operand_range(self) -> tuple[int, float]:
        """The least and the greatest number of operands."""
        if self in (CallKind.PACKED, CallKind.INPLACE_PACKED):
            return 1, inf
        return 2, 3 if self.has_outputs and self is not CallKind.DPS_PACKED else 2

    @property
    def callee_is_operand(self) -> bool:
        """NF-4: whether the callee is an expression that need not be bound to a variable."""
        return self not in (CallKind.PYTHON, CallKind.CLOSURE)

    @property
    def has_outputs(self) -> bool:
        """Whether `sinfo_args` describe outputs that the callee writes."""
        kernels = (CallKind.KERNEL, CallKind.INPLACE_KERNEL, CallKind.LOCAL_KERNEL)
        return self in kernels or self is CallKind.DPS_PACKED


@dataclass(frozen=True, slots=True)
class Allocation:
    """Which operands of an operator that allocates are the shape and the datatype.

    A new tensor lies in memory of its own, or in `planned` storage; `storage` is the memory itself,
    whose size `in_bytes` is one member of the shape.
    """

    shape: int
    dtype: int
    planned: bool = False
    storage: bool = False
    in_bytes: bool = False


class Columns(TypedDict, total=False):
    """What may be registered for an operator; the fields of `OpRecord` say what each is."""

    pure: bool | None
    infer: InferRule | None
    legalize: Legalization | None
    gradient: Gradient | None
    layout: LayoutRule | None
    mixed_precision: MixedPrecisionRule | None
    precision_policy: int | None
    data_dependent: bool | None
    commutative: bool
    ordering: bool
    sign: str
    literal: bool
    calls_out: bool
    calls: CallKind | None
    allocates: Allocation | None
    runtime: Callable[..., Any] | None
    adapt: Callable[[dict[str, Any]], None] | None
    unmake: Callable[[Call], CallArguments] | None


def check_columns(columns: Columns) -> None:
    """Refuse columns of unknown names.

    Errors:
        MisuseError (also TypeError): no column has such a name.
    """
    for name in columns:
        if name not in Columns.__annotations__:
            hint = close_names(name, Columns.__annotations__)
            raise MisuseError(f"an operator has no column {name!r}", hint=hint, about=name)


@dataclass(frozen=True, slots=True)
class OpRecord:
    """All that is registered for one operator; None where nothing is."""

    name: str = ""
    function: Callable[..., Any] | None = None
    """Its parameters are the operator's. It is the struct info rule, from the struct info of
    operands and the values of attributes to that of the result, or, beside a rule `infer`, it
    builds the call from what users write."""
    doc: str = ""
    pure: bool | None = None
    """PU-14: whether a call has no effect but its result."""
    infer: InferRule | None = None
    """DER-35: the struct info of a call."""
    legalize: Legalization | None = None
    """How a call becomes one of a kernel, or of simpler operators."""
    gradient: Gradient | None = None
    """From the gradient of the result to those of the operands."""
    layout: LayoutRule | None = None
    """The layouts of operands and results, from those that are desired and known."""
    mixed_precision: MixedPrecisionRule | None = None
    """The call in another datatype."""
    precision_policy: int | None = None
    """Whether it is computed in the narrower datatype: 0 always, 1 as its operands are, 2 never."""
    data_dependent: bool | None = None
    """Whether the shape of the result depends on the elements of operands."""
    commutative: bool = False
    """Whether patterns match both operands in either order."""
    ordering: bool = False
    """Whether it is a comparison by order, which Python's `max` would use as a condition."""
    sign: str = ""
    """The operator of Python that calls it."""
    literal: bool = False
    """Whether in normal form a call whose scalar is known is that scalar."""
    calls: CallKind | None = None
    """What it calls, of an operator whose first operand is a callee."""
    allocates: Allocation | None = None
    """Which operands describe the memory that it allocates."""
    runtime: Callable[..., Any] | None = None
    """The implementation on run-time values: operands by position, attributes by keyword."""
    calls_out: bool = False
    """Whether `runtime` may run code of the user's, and so with NumPy's settings of the caller."""
    adapt: Callable[[dict[str, Any]], None] | None = None
    """Changes the arguments by name, before they are read as operands and attributes."""
    unmake: Callable[[Call], CallArguments] | None = None
    """The arguments of `function` that build a call again."""


COLUMNS: Mapping[str, str] = {
    "FPurity": "pure",
    "FInferStructInfo": "infer",
    "FLegalize": "legalize",
    "FPrimalGradient": "gradient",
    "FRelaxInferLayout": "layout",
    "FInferMixedPrecision": "mixed_precision",
    "TMixedPrecisionPolicy": "precision_policy",
    "FDataDependent": "data_dependent",
}
"""The fields that TVM's operator attributes are."""
