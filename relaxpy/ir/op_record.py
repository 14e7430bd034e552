"""The record of an operator: all its registered properties in one frozen dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from relaxpy.errors import MisuseError, close_names, unexpected
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder
    from relaxpy.ir.relax.nodes import Call, Expr, Var
    from relaxpy.ir.relax.nodes.base_classes import StructInfo
    from relaxpy.ir.relax.relations.derivation import Context
    from relaxpy.ir.relax.rewrite.map_bindings import PrecedingBindings

InferRule: TypeAlias = "Callable[[Call, Context], StructInfo]"
Normalization: TypeAlias = "Callable[[BlockBuilder, Call], Expr]"
Legalization: TypeAlias = "Callable[[BlockBuilder, Call], Any]"
Gradient: TypeAlias = "Callable[[Var, Call, Expr, BlockBuilder], Sequence[Expr]]"
LayoutRule: TypeAlias = "Callable[[Call, Mapping[str, Sequence[str]], Mapping[Var, Any]], Any]"
AxesRule: TypeAlias = "Callable[[Call, Sequence[StructInfo], Any], Sequence[Sequence[int | None]]]"
PartialRule: TypeAlias = "Callable[[Call, Callable[[Expr], Expr]], Expr | None]"
Decomposition: TypeAlias = "Callable[[PrecedingBindings, Call, bool], Expr | None]"
MixedPrecisionRule: TypeAlias = "Callable[[Call, str], Expr]"
CallArguments: TypeAlias = tuple[list[object], dict[str, object]]
"""Positional and keyword arguments."""


class CallKind(Enum):
    """The kind of callee of an operator whose first operand is a callee."""

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
    def is_kernel(self) -> bool:
        """True if the callee is a PrimFunc on tensors whose outputs are declared."""
        return self in (CallKind.KERNEL, CallKind.INPLACE_KERNEL)

    @property
    def operand_range(self) -> tuple[int, float]:
        """The minimal and the maximal number of operands."""
        if self in (CallKind.PACKED, CallKind.INPLACE_PACKED):
            return 1, inf
        return 2, 3 if self.has_outputs and self is not CallKind.DPS_PACKED else 2

    @property
    def callee_is_operand(self) -> bool:
        """True if the callee need not be bound to a variable (NF-4)."""
        return self not in (CallKind.PYTHON, CallKind.CLOSURE)

    @property
    def takes_packed(self) -> bool:
        """True if only a packed function can be the callee."""
        packed = (CallKind.PACKED, CallKind.INPLACE_PACKED, CallKind.PACKED_WITH_CONTEXT)
        return self in packed or self is CallKind.DPS_PACKED

    @property
    def mutates(self) -> bool:
        """True if the callee stores results in operands."""
        return self in (CallKind.INPLACE_KERNEL, CallKind.INPLACE_PACKED)

    @property
    def has_outputs(self) -> bool:
        """True if `sinfo_args` describe outputs that the callee writes."""
        kernels = (CallKind.KERNEL, CallKind.INPLACE_KERNEL, CallKind.LOCAL_KERNEL)
        return self in kernels or self is CallKind.DPS_PACKED


class Memory(Enum):
    """The memory of the result of a call, or of each field if it is a tuple."""

    NEW = "new"
    COPY = "new, with the elements of the first operand, in any order; a back end may share it"
    VIEW = "that of the first operand, as another tensor"
    SAME = "that of the first operand, which is the result"
    ANY = "new, or any that an operand refers to"

    @property
    def is_new(self) -> bool:
        """True if the result aliases no operand: no mutation of one changes the other."""
        return self in (Memory.NEW, Memory.COPY)

    @property
    def is_of_operand(self) -> bool:
        """True if the result may alias the first operand, and no other."""
        return self in (Memory.COPY, Memory.VIEW, Memory.SAME)


@dataclass(frozen=True, slots=True)
class Allocation:
    """The operands of an allocating operator that are the shape and the datatype.

    A new tensor has its own memory, or is placed in `planned` storage. With `storage`, the result
    is the memory itself, which the operator `killer` releases; with `in_bytes`, the shape is its
    size.
    """

    shape: int
    dtype: int
    planned: bool = False
    storage: bool = False
    in_bytes: bool = False
    killer: str = ""


class AxisColumns(TypedDict):
    """The columns by which an operator relates axes of operands and of its result."""

    axes: AxesRule
    layout: LayoutRule


class Columns(TypedDict, total=False):
    """The properties that can be registered for an operator; see the fields of `OpRecord`."""

    pure: bool | None
    infer: InferRule | None
    normalize: Normalization | None
    legalize: Legalization | None
    legalize_in_loops: Legalization | None
    legalize_alone: Legalization | None
    gradient: Gradient | None
    decompose: Decomposition | None
    layout: LayoutRule | None
    axes: AxesRule | None
    partial: PartialRule | None
    mixed_precision: MixedPrecisionRule | None
    precision_policy: int | None
    data_dependent: bool | None
    commutative: bool
    ordering: bool
    sign: str
    literal: bool
    calls_out: bool
    sends: tuple[int, int] | None
    calls: CallKind | None
    allocates: Allocation | None
    memory: Memory | Callable[[Call], Memory] | None
    releases: bool
    in_place: bool
    activation: bool
    takes_twice: bool
    runtime: Callable[..., Any] | None
    adapt: Callable[[dict[str, Any]], None] | None
    variant: Callable[[dict[str, Any]], str | None] | None
    unmake: Callable[[Call], CallArguments] | None


_FUNCTIONS = frozenset(
    (
        "infer",
        "normalize",
        "legalize",
        "legalize_in_loops",
        "legalize_alone",
        "gradient",
        "decompose",
        "layout",
        "axes",
        "partial",
        "mixed_precision",
        "runtime",
        "adapt",
        "unmake",
        "variant",
    )
)
"""The columns that are functions."""


def check_columns(columns: Columns) -> None:
    """Check the names of columns, and that functions are functions.

    Errors:
        MisuseError (also TypeError): a column does not exist, or has another type.
    """
    for name, value in columns.items():
        if name not in Columns.__annotations__:
            hint = close_names(name, Columns.__annotations__)
            raise MisuseError(f"an operator has no column {name!r}", hint=hint, about=name)
        if name in _FUNCTIONS and value is not None and not callable(value):
            raise unexpected(value, f"column {name} is a function")
        if name == "memory" and not (value is None or isinstance(value, Memory) or callable(value)):
            raise unexpected(value, "column memory is a Memory or a function")


def apply_column(
    operator: str, column: str, function: Callable[..., Any], **arguments: object
) -> Any:
    """Call the function in a column of an operator with `arguments` by position.

    Errors:
        MisuseError (also TypeError): it takes other arguments.
    """
    try:
        return function(*arguments.values())
    except TypeError:
        _require_arguments(operator, column, function, arguments)
        raise


def _require_arguments(
    operator: str, column: str, function: Callable[..., Any], arguments: Mapping[str, object]
) -> None:
    """Errors: MisuseError if a function does not take so many arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function in C may have no signature
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        raise MisuseError(
            f"the {column} of {operator} takes ({', '.join(arguments)}), found {signature}",
            about=function,
        ) from None


@dataclass(frozen=True, slots=True)
class OpRecord:
    """The registered properties of one operator; None if a property is not registered."""

    name: str = ""
    function: Callable[..., Any] | None = None
    """Its parameters are the operator's. It is the struct info rule: it maps the struct info of
    operands and the values of attributes to the struct info of the result. If there is a rule
    `infer`, it builds the call from the arguments that users write instead."""
    doc: str = ""
    pure: bool | None = None
    """True if a call has no side effects (PU-14)."""
    infer: InferRule | None = None
    """The struct info rule of a call (DER-35)."""
    normalize: Normalization | None = None
    """Returns the replacement of a call in normal form (FNormalize); itself, to keep it."""
    legalize: Legalization | None = None
    """Lowers a call to a call of a kernel, or to simpler operators."""
    legalize_in_loops: Legalization | None = None
    """As `legalize`, for targets of machine code: lowers the calls that take less time in loops
    than by `runtime`, and returns others."""
    legalize_alone: Legalization | None = None
    """As `legalize`, for programs in which there is no `runtime`: those that are exported."""
    gradient: Gradient | None = None
    """Returns the gradients of the operands for the gradient of the result."""
    decompose: Decomposition | None = None
    """Returns the value of a call by simpler operators, in inference or in training (True), whose
    operands it binds; None if the call stays."""
    layout: LayoutRule | None = None
    """Infers the layouts of operands and results from desired and known layouts."""
    axes: AxesRule | None = None
    """Labels the axes of operands by those of the result along which the same elements lie. Only
    with it does an operator compute parts of tensors that are distributed over devices."""
    partial: PartialRule | None = None
    """Returns a call by operators whose results on parts of a reduced axis can be combined, and
    binds their operands; None if there are none."""
    mixed_precision: MixedPrecisionRule | None = None
    """Rewrites the call for another datatype."""
    precision_policy: int | None = None
    """Use of the narrower datatype: 0 always, 1 if the operands have it, 2 never."""
    data_dependent: bool | None = None
    """True if the shape of the result depends on the elements of operands."""
    commutative: bool = False
    """True if patterns match the two operands in either order."""
    ordering: bool = False
    """True if this is an order comparison, whose result Python's `max` would use as a condition."""
    sign: str = ""
    """The Python operator that builds a call."""
    literal: bool = False
    """True if normalisation replaces a call with a known scalar result by the scalar."""
    calls: CallKind | None = None
    """The kind of callee, if the first operand is a callee."""
    allocates: Allocation | None = None
    """The operands that describe the allocated memory, if the operator allocates."""
    memory: Memory | Callable[[Call], Memory] | None = None
    """The memory of the result, or a function of the call that returns it. Without one, it is new
    if relaxpy implements the operator, and any if a user does (EV-16)."""
    releases: bool = False
    """True if a call declares that its operand is not used any more."""
    in_place: bool = False
    """True if passes may write the result into an operand: the operator is elementwise."""
    activation: bool = False
    """True if passes fuse the operator with the matmul or convolution before it."""
    takes_twice: bool = False
    """True if a call on (x, x) is valid for every tensor x, and never fails."""
    runtime: Callable[..., Any] | None = None
    """The implementation on run-time values: operands by position, attributes by keyword."""
    calls_out: bool = False
    """True if `runtime` may run user code, which needs the NumPy settings of the caller."""
    sends: tuple[int, int] | None = None
    """The communication volume of a collective operator of p workers: the maximum over workers.

    It is the first number times (p - 1) / p of its tensor, or for a second number 1 of the tensors
    of all, each time in log2(p) steps: scattering, gathering and reducing parts, or two of them
    after each other (Thakur, Rabenseifner & Gropp, Int. J. High Perform. Comput. Appl. 19(1),
    2005).
    """
    adapt: Callable[[dict[str, Any]], None] | None = None
    """Adapts the arguments by name, before they are bound to operands and attributes."""
    variant: Callable[[dict[str, Any]], str | None] | None = None
    """Returns the name of another operator, if the arguments build a call of that one."""
    unmake: Callable[[Call], CallArguments] | None = None
    """Returns the arguments of `function` that rebuild a call."""

    def result_memory(self, call: Call) -> Memory:
        """The memory of the result of a call of this operator."""
        if self.calls is not None:
            is_new = self.calls.has_outputs and not self.calls.mutates
            return Memory.NEW if is_new else Memory.ANY
        if isinstance(self.memory, Memory):
            return self.memory
        if self.memory is not None:
            result = apply_column(self.name, "memory", self.memory, call=call)
            assert isinstance(result, Memory)
            return result
        implementations = (self.function, self.legalize, self.runtime)
        if all(f is None or is_of_relaxpy(f) for f in implementations) and self.function:
            return Memory.NEW
        return Memory.ANY

    @property
    def is_of_relaxpy(self) -> bool:
        """True if relaxpy registered the operator."""
        return is_of_relaxpy(self.function)


def is_of_relaxpy(function: object) -> bool:
    """True if a function is part of relaxpy, not of a user's program.

    A user's function that `functools.wraps` one of relaxpy has its module, and other globals.
    """
    named = str(getattr(function, "__module__", None))
    defined = str(getattr(function, "__globals__", {}).get("__name__", named))
    return named.startswith("relaxpy.") and defined.startswith("relaxpy.")


COLUMNS: Mapping[str, str] = {
    "FPurity": "pure",
    "FInferStructInfo": "infer",
    "FNormalize": "normalize",
    "FLegalize": "legalize",
    "FPrimalGradient": "gradient",
    "FRelaxInferLayout": "layout",
    "FInferMixedPrecision": "mixed_precision",
    "TMixedPrecisionPolicy": "precision_policy",
    "FDataDependent": "data_dependent",
}
"""The fields by TVM's names of operator attributes."""
