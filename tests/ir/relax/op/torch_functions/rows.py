"""Rows of comparisons as calls of PyTorch's functions, and gradient programs of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.op.definition.registry import R, registered_ops
from relaxpy.ir.relax.transform.gradient.gradient import Gradient
from relaxpy.ir.tir import expr as tir
from tests.ir.relax.op.cases import Array, Case
from tests.ir.relax.op.comparison import doubles
from tests.ir.relax.op.test_gradients import constant_like, pairs
from tests.ir.relax.op.torch_functions import TABLE, torch


def parameters(case: Case, *, symbolic: bool = False) -> list[rx.Var]:
    sizes: dict[int, Any] = {}
    return [
        rx.Var(
            f"x{k}",
            rx.TensorStructInfo(
                tuple(
                    sizes.setdefault(n, tir.Var(f"n{n}", "int64"))
                    if symbolic and n > 1 and (k, axis) not in case.literal
                    else n
                    for axis, n in enumerate(array.shape)
                ),
                DataType(array.dtype),
            ),
        )
        for k, array in enumerate(case.inputs)
    ]


def _plain(value: Any) -> Any:
    """Literals of attributes and scalar operands as Python numbers."""
    if isinstance(value, (tir.IntImm, tir.FloatImm)):
        return value.value
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def torch_function(case: Case) -> Callable[..., Any]:
    """The call of a row, from tensors of PyTorch in place of the inputs."""
    params = parameters(case)
    call = case.call(*params)
    assert isinstance(call, rx.Call)
    function: Any = TABLE[case.operator.removeprefix("relax.")]

    def operand(expr: rx.Expr, tensors: Sequence[Any]) -> Any:
        match expr:
            case rx.Var():
                return tensors[params.index(expr)]
            case rx.Tuple(fields=fields):
                return tuple(operand(field, tensors) for field in fields) or None
            case rx.ShapeExpr(values=values):
                return _plain(values)
            case rx.PrimValue(value=value):
                return _plain(value)
            case rx.Constant(data=data):
                return torch.from_numpy(np.array(data))
        raise AssertionError(expr)

    attrs = {name: _plain(value) for name, value in call.attrs.items()}
    return lambda *tensors: function(*(operand(a, tensors) for a in call.args), **attrs)


def fields(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def definition(case: Case) -> Callable[..., Any]:
    """A row by PyTorch, from arrays to arrays, floats in float64."""
    function = torch_function(in_doubles(case))

    def of_arrays(*arrays: Array) -> Any:
        value = function(*(torch.from_numpy(np.array(doubles(np.asarray(x)))) for x in arrays))
        found = tuple(np.asarray(v.numpy(force=True)) for v in fields(value))
        return found if isinstance(value, (tuple, list)) else found[0]

    return of_arrays


def in_doubles(case: Case) -> Case:
    return replace(case, inputs=tuple(doubles(np.asarray(x)) for x in case.inputs))


def in_floats(case: Case, dtype: str) -> Case:
    """A row with its floats in one datatype."""
    inputs = (np.asarray(x) for x in case.inputs)
    return replace(
        case, inputs=tuple(x.astype(dtype) if x.dtype.kind == "f" else x for x in inputs)
    )


class Derivatives:
    """A row, weights of its results, and of its gradients."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.function = torch_function(case)
        random = np.random.default_rng(5)
        tensors = [torch.from_numpy(np.array(x)) for x in case.inputs]
        sinfo = case.call(*parameters(case)).struct_info
        infos = sinfo.fields if isinstance(sinfo, rx.TupleStructInfo) else (sinfo,)
        self.dtypes = [info.dtype for info in infos]  # type: ignore[union-attr]
        results = fields(self.function(*tensors))
        self.weights = [
            random.standard_normal(tuple(v.shape)).astype(dtype.numpy())
            for v, dtype in zip(results, self.dtypes, strict=True)
        ]
        self.moves = [
            random.standard_normal(x.shape).astype(x.dtype)
            for x in case.inputs
            if x.dtype.kind == "f"
        ]

    def by_torch(self, order: int) -> list[Array]:
        """The derivatives of a sum by the inputs, and by the weights of the results.

        The sum is that of the weighted results, or of the gradients in the direction of the moves.
        """
        tensors = [_leaf(x) for x in self.case.inputs]
        weights = [_leaf(x) for x in self.weights]
        floats = [x for x in tensors if x.is_floating_point()]
        results = fields(self.function(*tensors))
        terms = [
            (result * weight).sum()
            for result, weight in zip(results, weights, strict=True)
            if weight.is_floating_point()
        ]
        leaves = [*floats, *(x for x in weights if x.is_floating_point())]
        if order == 2:
            grads = _gradients(sum(terms), floats, more=True)
            terms = [
                (grad * torch.from_numpy(move)).sum()
                for grad, move in zip(grads, self.moves, strict=True)
            ]
        return [x.numpy(force=True) for x in _gradients(sum(terms), leaves)]

    def program(self, order: int, *, symbolic: bool) -> IRModule:
        """A module whose `main_adjoint` has these derivatives."""
        params = parameters(self.case, symbolic=symbolic)
        builder = BlockBuilder()
        call = self.case.call(*params)
        assert isinstance(call, rx.Call)
        assert isinstance(call.op, Op)
        given = constant_like(call.struct_info, "g")  # type: ignore[arg-type]
        floats = [p for p in params if _is_float(p)]
        moves = [rx.Var(f"v{k}", p.struct_info) for k, p in enumerate(floats)]
        is_tuple = isinstance(call.struct_info, rx.TupleStructInfo)
        with builder.function("main", [*params, *given, *moves]):
            with builder.dataflow():
                var: Any = builder.emit(call)
                terms: list[Any] = [builder.emit(rx.const(0.0, self.dtype))]
                if order == 1:
                    results = [var[k] for k in range(len(given))] if is_tuple else [var]
                    pairs_of = zip(results, given, strict=True)
                    terms += [R.sum(x * g) for x, g in pairs_of if _is_float(g)]
                else:
                    rule = registered_ops()[call.op.name].record.gradient
                    assert rule is not None
                    whole = rx.Tuple(given) if is_tuple else given[0]
                    for operand, grad in pairs(call.args, rule(var, call, whole, builder)):
                        if operand in floats:
                            terms.append(R.sum(moves[floats.index(operand)] * grad))
                total = terms[0]
                for term in terms[1:]:
                    total = builder.emit(total + builder.emit(term).astype(self.dtype))
                out = builder.emit_output(total)
            builder.emit_func_output(out)
        module = builder.finalize()
        own: Any = module["main"]
        leaves = [p for p in own.params[: len(params) + len(given)] if _is_float(p)]
        return Gradient("main", leaves)(module)

    @property
    def dtype(self) -> str:
        return next(str(x.dtype) for x in self.case.inputs if x.dtype.kind == "f")


def _is_float(var: rx.Var) -> bool:
    return var.struct_info.dtype.is_float  # type: ignore[union-attr]


def _leaf(array: Array) -> Any:
    tensor = torch.from_numpy(np.array(array))
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor


def _gradients(total: Any, leaves: list[Any], *, more: bool = False) -> list[Any]:
    """Zeros where the total does not depend on a leaf."""
    if not isinstance(total, torch.Tensor) or not total.requires_grad:
        return [torch.zeros_like(x) for x in leaves]
    found = torch.autograd.grad(total, leaves, create_graph=more, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]
