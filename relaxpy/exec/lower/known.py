"""The struct info that values of a Relax function certainly have: it was checked, or created."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence

from relaxpy.exec.lower.proof import certainly_succeeds, is_runtime_function
from relaxpy.exec.lower.reuse import allocation_of, is_reshape
from relaxpy.exec.lower.scope import GlobalCallee, ModuleContext
from relaxpy.exec.runtime.checks import declared_result, may_be_null
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import used_vars
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.shape_vars import free_shape_vars, variables_of
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import expr as tir

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
        module: ModuleContext,
        func: rx.Function,
        separate: Collection[rx.Var],
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
        return not may_be_null(declared[0], binding.var in self._used)

    @late_property
    def _used(self) -> frozenset[rx.Var]:
        """The variables that the function uses."""
        return frozenset(used_vars(self._func))

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
