"""Facts that certainly hold: struct info that was checked or created, kernel calls that match."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from relaxpy.exec.program.lower.scope import GlobalCallee
from relaxpy.exec.runtime.checks import declared_result, may_be_null, output_sinfos
from relaxpy.exec.runtime.registry import is_own
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import Allocation, CallKind, is_of_relaxpy
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.shape_vars import free_shape_vars, variables_of
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.exec.program.lower.python_module import ModuleLowering

OBJECT = rx.ObjectStructInfo()
_DECLARED = (CallKind.KERNEL, CallKind.INPLACE_KERNEL, CallKind.DPS_PACKED)
"""Their results are new tensors, or operands whose struct info was compared with it (DER-36)."""


class Known:
    """The struct info that values of `func` certainly have; `R.Object` if nothing is known.

    Fields:
        separate: the variables of storage that need not exist.
        sizes: returns the shape variables that have values at the current position.
    """

    def __init__(
        self,
        module: ModuleLowering,
        func: rx.Function,
        separate: Collection[rx.Expr],
        sizes: Callable[[], Container[tir.Var]],
    ) -> None:
        self._module, self._func, self.separate, self.sizes = module, func, separate, sizes
        self._variables: dict[rx.Var, rx.StructInfo] = {}
        self._branches: dict[rx.If, rx.StructInfo] = {}

    def __call__(self, expr: rx.Expr | Op) -> rx.StructInfo:
        """Struct info that the value of `expr` certainly has."""
        match expr:
            case rx.Var():
                return self._variables.get(expr, OBJECT)
            case rx.Tuple(fields=fields):
                return rx.TupleStructInfo(tuple(map(self, fields)))
            case rx.TupleGetItem(tuple_value=tuple_value, index=index):
                known = self(tuple_value)
                if isinstance(known, rx.TupleStructInfo) and index < len(known.fields):
                    return known.fields[index]
                return OBJECT
            case rx.Constant():
                return expr.data_sinfo
            case rx.ShapeExpr(values=values):
                return rx.ShapeStructInfo(values)
            case rx.PrimValue(value=value):
                return rx.PrimStructInfo(value.dtype, value)
            case rx.SeqExpr(body=body):
                return self(body)
            case rx.If():
                return self._branches.get(expr, OBJECT)
            case rx.Call(op=Op() as op, sinfo_args=[sinfo, *_]) if op.record.calls in _DECLARED:
                return sinfo
            case rx.Call() if certainly_succeeds(expr, self):
                return rx.TupleStructInfo(())
            case rx.Call(op=rx.GlobalVar() as name) if self._is_function(name):
                return expr.struct_info or OBJECT
            case rx.Call() if self.is_own(expr):
                return self.allocated(expr)
            case rx.Call(args=[tensor, shape]) if is_reshape(expr):
                return self.reshaped(self(tensor), self(shape)) or OBJECT
            case _:
                return OBJECT

    def _is_function(self, name: rx.GlobalVar) -> bool:
        """True if a name is that of a Relax function, which checks its result."""
        callee = self._module.callee(name)
        return isinstance(callee, GlobalCallee) and callee.prim_func is None

    def add_parameters(self, func: rx.Function) -> None:
        """Note the parameters of a function, which it has checked."""
        self._variables.update((p, p.struct_info or OBJECT) for p in func.params)

    def add(self, binding: rx.Binding) -> None:
        """Note the variable of a binding, whose value was computed and checked."""
        if binding.var is None:
            return
        known = self(binding.value)
        if isinstance(binding, rx.MatchCast):
            known = binding.struct_info
        elif self.is_checked(binding):
            sinfo = binding.value.struct_info
            known = sinfo if sinfo is not None and self._has_sizes_of(sinfo) else known
        self._variables[binding.var] = known

    def add_branch(self, branch: rx.If, arms: Sequence[rx.StructInfo]) -> None:
        """Note the result of a branch; `arms` are known of those that have one."""
        first, second = arms[0], arms[-1]
        for general, special in ((first, second), (second, first)):
            if self._has_sizes_of(general) and is_base_of(general, special, self.sizes()):
                self._branches[branch] = general
                return

    def is_checked(self, binding: rx.Binding) -> bool:
        """True if a result of a user's function is compared with its declared struct info.

        Others may be the null object, which then passes.
        """
        declared = declared_result(binding.value)
        if declared is None or self(binding.value) is not OBJECT:
            return False
        is_shape = isinstance(declared[0], rx.ShapeStructInfo)
        if is_shape and is_runtime_function(binding.value):
            return True
        return not may_be_null(binding.value)

    def are_bound(self, exprs: Iterable[tir.PrimExpr]) -> bool:
        """True if the shape variables in these expressions have values here."""
        sizes = self.sizes()
        return all(v in sizes for expr in exprs for v in variables_of(expr))

    def _has_sizes_of(self, sinfo: rx.StructInfo) -> bool:
        sizes = self.sizes()
        return all(v in sizes for v in free_shape_vars(sinfo))

    def is_own(self, value: rx.Expr | Op) -> bool:
        """True if a call allocates a tensor in private memory."""
        allocation = allocation_of(value)
        if allocation is None or allocation.storage:
            return False
        assert isinstance(value, rx.Call)
        return not allocation.planned or value.args[0] in self.separate

    def allocated(self, call: rx.Call) -> rx.TensorStructInfo:
        """The struct info of a tensor that a call allocates."""
        allocation, sinfo = allocation_of(call), call.struct_info
        assert allocation is not None
        assert isinstance(sinfo, rx.TensorStructInfo)
        shape = call.args[allocation.shape]
        known = self(shape)
        dims = known.values if isinstance(known, rx.ShapeStructInfo) else None
        if dims is not None and self.are_bound(dims):
            shape = rx.ShapeExpr(dims)
        return rx.TensorStructInfo(shape, sinfo.dtype)

    def reshaped(self, tensor: rx.StructInfo, shape: rx.StructInfo) -> rx.TensorStructInfo | None:
        """The struct info of a reshaped tensor, if the number of elements is provably the same."""
        if not isinstance(tensor, rx.TensorStructInfo) or not isinstance(shape, rx.ShapeStructInfo):
            return None
        before, after = tensor.shape, shape.values
        if not isinstance(before, rx.ShapeExpr) or after is None or tensor.dtype.is_void:
            return None
        if not self.are_bound(after):
            return None
        same = prove_equal(product(before.values), product(after)) is True
        return rx.TensorStructInfo(rx.ShapeExpr(after), tensor.dtype) if same else None


def allocation_of(value: rx.Expr | Op) -> Allocation | None:
    """The kind of allocation of a call, if relaxpy's implementation of the operator is used."""
    if not isinstance(value, rx.Call) or not isinstance(value.op, Op):
        return None
    record = value.op.record
    is_own = record.runtime is not None and is_of_relaxpy(record.runtime)
    return record.allocates if is_own else None


def is_release(value: rx.Expr | Op) -> bool:
    """True if a call only marks a value as dead, which Python's reference counts do."""
    from relaxpy.exec.runtime.operators import released  # which native code does not need

    if not isinstance(value, rx.Call) or not isinstance(value.op, Op):
        return False
    return value.op.record.runtime is released


def is_reshape(value: rx.Expr | Op) -> bool:
    """True if a call is a reshape, whose result is a copy."""
    return rx.is_call_of(value, "relax.reshape") or is_runtime_function(value, "reshape")


Sizes = Mapping[tir.Var, tir.PrimExpr]
Comparisons = Sequence[tuple[tir.PrimExpr, tir.PrimExpr]]


@dataclass(frozen=True, slots=True, eq=False)
class KernelUse:
    """The operands of `call_tir`, and its results; `inplace` has the input of each, or -1."""

    callee: GlobalCallee
    inputs: Sequence[rx.Expr]
    scalars: Sequence[tir.PrimExpr]
    outputs: Sequence[rx.TensorStructInfo]
    inplace: Sequence[int]
    is_tuple: bool

    @property
    def is_unary(self) -> bool:
        """True if there is one tensor, and one result, which is not in a tuple."""
        return len(self.inputs) == 1 and not self.scalars and not self.is_tuple


def kernel_use(
    call: rx.Expr, kernel_of: Callable[[rx.Expr], GlobalCallee | None]
) -> KernelUse | None:
    """The operands of a kernel of the module, or None if they are not written out."""
    match call:
        case rx.Call(op=Op() as op, args=[rx.GlobalVar() as name, rx.Tuple() as inputs, *shapes]):
            kind, callee = op.record.calls, kernel_of(name)
            members = [shape.values for shape in shapes if isinstance(shape, rx.ShapeExpr)]
            is_kernel = kind is not None and kind.is_kernel
            if not is_kernel or callee is None or len(members) < len(shapes):
                return None
            outputs = output_sinfos(call)
            inplace = call.attrs.get("inplace_indices", (-1,) * len(outputs))
            assert isinstance(inplace, tuple)
            scalars = [*chain.from_iterable(members)]
            is_tuple = isinstance(call.sinfo_args[0], rx.TupleStructInfo)
            return KernelUse(callee, inputs.fields, scalars, outputs, inplace, is_tuple)
        case _:
            return None


def sizes_if_equal(
    callee: GlobalCallee,
    inputs: Sequence[rx.StructInfo],
    outputs: Sequence[rx.StructInfo],
    scalars: Sequence[tir.PrimExpr],
    inplace: Container[int] = (),
) -> tuple[Sizes, Comparisons] | None:
    """The values of the kernel's size variables, unless these arguments certainly do not match.

    The second result has the sizes that have to be equal but are not provably so. The outputs are
    new tensors; the kernel may write the inputs whose numbers are `inplace`.
    """
    kernel, sinfos = callee.prim_func, (*inputs, *outputs)
    assert kernel is not None
    if len(sinfos) + len(scalars) != len(kernel.params):
        return None
    if any(index < len(inputs) and index not in inplace for index in callee.written):
        return None
    sizes: dict[tir.Var, tir.PrimExpr] = {}
    signature_values: dict[tir.Var, tir.PrimExpr] = {}
    for param, scalar in zip(kernel.params[len(sinfos) :], scalars, strict=True):
        if kernel.buffer_of(param) is not None or param.dtype != scalar.dtype:
            return None
        sizes[param] = signature_values[param] = scalar
    comparisons: list[tuple[tir.PrimExpr, tir.PrimExpr]] = []
    buffers = [kernel.buffer_of(param) for param in kernel.params[: len(sinfos)]]
    expected_sinfos = [param.struct_info for param in callee.signature.params[: len(sinfos)]]
    for buffer, expected_sinfo, actual_sinfo in zip(buffers, expected_sinfos, sinfos, strict=True):
        pairs = _paired_dimensions(expected_sinfo, actual_sinfo)
        if buffer is None or pairs is None:
            return None
        for size, (expected, actual) in zip(buffer.shape, pairs, strict=True):
            if isinstance(size, tir.Var) and isinstance(expected, tir.Var) and size not in sizes:
                sizes[size] = signature_values[expected] = actual
            else:
                comparisons.append((expected, actual))
    open_pairs = []
    for expected, actual in comparisons:
        value = substitute(expected, signature_values)
        is_equal = prove_equal(value, actual)
        if is_equal is False:
            return None
        if is_equal is None:
            open_pairs.append((value, actual))
    return sizes, open_pairs


def signature_sizes(callee: GlobalCallee) -> Mapping[tir.Var, tir.Var]:
    """The signature's variable for each variable that is a dimension of the kernel's buffers."""
    assert callee.prim_func is not None
    variables: dict[tir.Var, tir.Var] = {}
    for param, wide_param in zip(callee.prim_func.params, callee.signature.params, strict=True):
        buffer, sinfo = callee.prim_func.buffer_of(param), wide_param.struct_info
        if buffer is None:
            variables[param] = param
        elif isinstance(sinfo, rx.TensorStructInfo) and isinstance(sinfo.shape, rx.ShapeExpr):
            pairs = zip(buffer.shape, sinfo.shape.values, strict=True)
            variables.update(
                (a, b) for a, b in pairs if isinstance(a, tir.Var) and isinstance(b, tir.Var)
            )
    return variables


def _paired_dimensions(
    expected: rx.StructInfo | None, actual: rx.StructInfo
) -> list[tuple[tir.PrimExpr, tir.PrimExpr]] | None:
    """The pairs of dimensions of two tensors, if they have the same datatype and rank."""
    if not isinstance(expected, rx.TensorStructInfo) or not isinstance(actual, rx.TensorStructInfo):
        return None
    if not isinstance(expected.shape, rx.ShapeExpr) or not isinstance(actual.shape, rx.ShapeExpr):
        return None
    if expected.dtype != actual.dtype or expected.ndim != actual.ndim:
        return None
    return list(zip(expected.shape.values, actual.shape.values, strict=True))


def certainly_succeeds(call: rx.Call, known: Callable[[rx.Expr], rx.StructInfo]) -> bool:
    """True if a call is a run-time check that the `known` struct info implies.

    Such a check stores no dimensions.
    """
    match call.args:
        case [value, rx.PrimValue(value=tir.IntImm(value=ndim)), rx.DataTypeImm(value=dtype), _]:
            if not is_runtime_function(call, "check_tensor_info"):
                return False
            return is_base_of(rx.TensorStructInfo(None, dtype, ndim=ndim), known(value))
        case [value, _, rx.PrimValue(value=tir.IntImm(value=ndim)), *codes, _]:
            if not is_runtime_function(call, "match_shape"):
                return False
            sinfo = known(value)
            shape = sinfo.shape if isinstance(sinfo, rx.TensorStructInfo) else None
            dims = shape.values if isinstance(shape, rx.ShapeExpr) else ()
            return len(dims) == ndim and _literals(dims) == _asserted(codes)
        case _:
            return False


def is_runtime_function(value: rx.Expr | Op, name: str = "") -> bool:
    """True if a call is of `vm.builtin.name`, or any, which no user has replaced."""
    callee = value.op if isinstance(value, rx.Call) else None
    if not isinstance(callee, rx.ExternFunc):
        return False
    symbol = callee.global_symbol
    if symbol != f"vm.builtin.{name}" if name else not symbol.startswith("vm.builtin."):
        return False
    return is_own(symbol)


def _literals(dims: Sequence[tir.PrimExpr]) -> list[int | None]:
    return [dim.value if isinstance(dim, tir.IntImm) else None for dim in dims]


def _asserted(codes: Sequence[rx.Expr]) -> list[int] | None:
    """The integers that dimensions are compared with; None if they are used otherwise."""
    from relaxpy.ir.ops.vm import MatchShapeCode  # which few programs need

    numbers = [code.value.value for code in codes if _is_literal(code)]  # type: ignore[attr-defined]
    asserts = all(code == MatchShapeCode.ASSERT_EQUAL_TO_IMM for code in numbers[::2])
    return numbers[1::2] if asserts and len(numbers) == len(codes) else None


def _is_literal(code: rx.Expr) -> bool:
    return isinstance(code, rx.PrimValue) and isinstance(code.value, tir.IntImm)
