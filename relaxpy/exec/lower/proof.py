"""Kernel calls whose arguments provably match, and checks that provably succeed (OPT-13)."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from itertools import chain

from relaxpy.exec.lower.scope import GlobalCallee
from relaxpy.exec.runtime.checks import output_sinfos
from relaxpy.exec.runtime.registry import get_global_func
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import is_of_relaxpy
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass

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
    call: rx.Expr, callee_of: Callable[[rx.GlobalVar], GlobalCallee | rx.ExternFunc]
) -> KernelUse | None:
    """The operands of a kernel of the module, or None if they are not written out."""
    match call:
        case rx.Call(op=Op() as op, args=[rx.GlobalVar() as name, rx.Tuple() as inputs, *shapes]):
            kind, callee = op.record.calls, callee_of(name)
            members = [shape.values for shape in shapes if isinstance(shape, rx.ShapeExpr)]
            if kind is None or not kind.is_kernel or len(members) < len(shapes):
                return None
            if not isinstance(callee, GlobalCallee) or callee.prim_func is None:
                return None
            outputs = output_sinfos(call)
            inplace = call.attrs.get("inplace_indices", (-1,) * len(outputs))
            assert isinstance(inplace, tuple)
            scalars = [*chain.from_iterable(members)]
            is_tuple = isinstance(call.sinfo_args[0], rx.TupleStructInfo)
            return KernelUse(callee, inputs.fields, scalars, outputs, inplace, is_tuple)
        case _:
            return None


def matching_sizes(
    callee: GlobalCallee,
    inputs: Sequence[rx.StructInfo],
    outputs: Sequence[rx.StructInfo],
    scalars: Sequence[tir.PrimExpr],
) -> Sizes | None:
    """The values of the kernel's size variables, if these arguments provably match, or else None.

    The outputs are new tensors. Inputs that the kernel may write do not provably match.
    """
    found = sizes_if_equal(callee, inputs, outputs, scalars)
    return found[0] if found is not None and not found[1] else None


def sizes_if_equal(
    callee: GlobalCallee,
    inputs: Sequence[rx.StructInfo],
    outputs: Sequence[rx.StructInfo],
    scalars: Sequence[tir.PrimExpr],
    inplace: Container[int] = (),
) -> tuple[Sizes, Comparisons] | None:
    """As `matching_sizes`, with the sizes that have to be equal but are not provably so.

    The kernel may write the inputs whose numbers are `inplace`.
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
    return is_of_relaxpy(get_global_func(symbol, allow_missing=True))


def _literals(dims: Sequence[tir.PrimExpr]) -> list[int | None]:
    return [dim.value if isinstance(dim, tir.IntImm) else None for dim in dims]


def _asserted(codes: Sequence[rx.Expr]) -> list[int] | None:
    """The integers that dimensions are compared with; None if they are used otherwise."""
    from relaxpy.ir.relax.op.vm import MatchShapeCode  # which few programs need

    numbers = [code.value.value for code in codes if _is_literal(code)]  # type: ignore[attr-defined]
    asserts = all(code == MatchShapeCode.ASSERT_EQUAL_TO_IMM for code in numbers[::2])
    return numbers[1::2] if asserts and len(numbers) == len(codes) else None


def _is_literal(code: rx.Expr) -> bool:
    return isinstance(code, rx.PrimValue) and isinstance(code.value, tir.IntImm)
