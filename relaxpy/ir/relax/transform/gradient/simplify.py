"""What makes an adjoint simpler: fewer transpositions, and kernels without gradients."""

from __future__ import annotations

from typing import cast

from typing_extensions import override

from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.call import call_tir_with_grad, without_gradient
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten

_PERMUTE = Op("relax.permute_dims")
_MATMUL = Op("relax.matmul")


def simplified(func: rx.Function) -> rx.Function:
    """The function with x in place of (x')', and with b @ a' in place of (a @ b')'.

    Calls of kernels with gradients become `call_tir`. What this leaves unused stays.
    """
    return _Simplifier().expr(func)


class _Simplifier(BindingRewriter):
    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        if isinstance(binding.value, rx.Call) and binding.value.op == call_tir_with_grad.op:
            return without_gradient(None, binding.value)
        source = _transposed(binding.value)
        value = None if source is None else self.value_of(source)
        if value is None or not isinstance(binding, rx.VarBinding):
            return None
        inner = _transposed(value)
        if inner is not None:
            return inner
        if not (isinstance(value, rx.Call) and value.op == _MATMUL):
            return None
        a, b = value.args
        if not (_is_matrix(a) and _is_matrix(b)):
            return None
        out_dtype = value.attrs["out_dtype"]
        return cast("rx.Expr", R.matmul(self._transpose(b), self._transpose(a), out_dtype))

    def _transpose(self, matrix: rx.Expr) -> rx.Expr:
        source = _transposed(self.value_of(matrix))
        return cast("rx.Expr", R.permute_dims(matrix, [1, 0])) if source is None else source


def _is_matrix(expr: rx.Expr) -> bool:
    return isinstance(expr.struct_info, rx.TensorStructInfo) and expr.struct_info.ndim == 2


def _transposed(expr: rx.Expr | None) -> rx.Expr | None:
    """The matrix that `expr` transposes."""
    if isinstance(expr, rx.Call) and expr.op == _PERMUTE and _is_matrix(expr.args[0]):
        axes = cast("tuple[int, ...] | None", expr.attrs["axes"])
        if axes is None or tuple(a % 2 for a in axes) == (1, 0):
            return expr.args[0]
    return None
