"""Reads a Relax function as a straight program of native kernels, if it is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from relaxpy.exec.graph.program import Constant, Graph, KernelCall, Memory, Tensor, Value
from relaxpy.exec.lower.proof import Sizes, matching_sizes
from relaxpy.exec.lower.scope import GlobalCallee
from relaxpy.exec.native.calls.entry import Array, Integer, Param, size_names
from relaxpy.exec.native.calls.interpreter import DTYPES
from relaxpy.exec.native.signature import KernelSignature
from relaxpy.exec.native.values.frame import RefusedError
from relaxpy.exec.native.values.packing import Packing
from relaxpy.exec.runtime.signatures import output_sinfos
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.substitution import substitute

_LIMITS = (1 << 31, 1 << 20, 1 << 15)
"""What shape variables may be limited to, so that no computed size overflows."""


class GraphReader:
    """Reads the function `func`; `signatures` has the native kernels by Python name.

    `packings` says how these may take constants, by the numbers of their parameters.
    """

    def __init__(
        self,
        func: rx.Function,
        callee_of: Callable[[rx.GlobalVar], object],
        signatures: Mapping[str, KernelSignature],
        is_reshape: Callable[[GlobalCallee], bool],
        packings: Mapping[str, Mapping[int, Packing]],
    ) -> None:
        self._func = func
        self._callee_of, self._signatures, self._is_reshape = callee_of, signatures, is_reshape
        self._packings = packings
        self._values: dict[rx.Var, Value] = {}
        self._variables: dict[tir.Var, str] = {}
        self._declared: dict[str, tir.PrimExpr] = {}
        self._literals: dict[Memory, rx.Constant] = {}
        self._constants: dict[tuple[rx.Constant, Packing | None], Memory] = {}
        self._calls: list[KernelCall] = []
        self._sizes: set[tir.PrimExpr] = set()

    def read(self) -> Graph:
        """The program.

        Errors:
            RefusedError: something in the function has no native form.
        """
        func = self._func
        params: list[Param] = []
        tensors: dict[int, Tensor] = {}
        for index, var in enumerate(func.params):
            sinfo = var.struct_info
            if isinstance(sinfo, rx.PrimStructInfo):
                params.append(self._integer(f"number{index}", sinfo))
                continue
            tensor = self._tensor(Memory("parameter", index), sinfo)
            params.append(Array(str(tensor.sinfo.dtype), tuple(map(self._size, tensor.shape))))
            self._values[var] = tensors[index] = tensor
        self._sizes.update(self._declared.values())
        if not isinstance(func.body, rx.SeqExpr):
            raise RefusedError("the function has no bindings")
        for block in func.body.blocks:
            for binding in block.bindings:
                if not isinstance(binding, rx.VarBinding):
                    raise RefusedError("it casts a value")
                self._values[binding.var] = self._value(binding.value)
        result = self._read(self._value(func.body.body))
        ret = func.ret_struct_info
        if ret is not None and not is_base_of(ret, _sinfo(result), self._variables):
            raise RefusedError("the struct info of its result is checked when it runs")
        return Graph(
            params,
            self._variables,
            self._declared,
            self._variables_limit(),
            tensors,
            [Constant(*constant) for constant in self._constants],
            self._calls,
            result,
        )

    # ---- parameters

    def _tensor(self, memory: Memory, sinfo: rx.StructInfo | None) -> Tensor:
        if not isinstance(sinfo, rx.TensorStructInfo) or not isinstance(sinfo.shape, rx.ShapeExpr):
            raise RefusedError("a parameter is not a tensor of known rank")
        if str(sinfo.dtype) not in DTYPES:
            raise RefusedError(f"the datatype {sinfo.dtype}")
        return Tensor(memory, sinfo)

    def _integer(self, name: str, sinfo: rx.PrimStructInfo) -> Integer:
        if sinfo.dtype != "int64" or not isinstance(sinfo.value, tir.Var):
            raise RefusedError("a parameter is a number, or not a variable of 64 bits")
        if sinfo.value in self._variables:
            raise RefusedError("two parameters are the same variable")
        self._variables[sinfo.value] = name
        return Integer(name)

    def _size(self, size: tir.PrimExpr) -> int | str:
        match size:
            case tir.IntImm(value=value):
                return value
            case tir.Var():
                return self._variables.setdefault(size, f"size{len(self._variables)}")
            case _:
                name = f"declared{len(self._declared)}"
                self._declared[name] = size
                return name

    def _variables_limit(self) -> int:
        """What the absolute values of shape variables have to be less than.

        Errors:
            RefusedError: a size may overflow or divide by 0, or a variable is unknown.
        """
        for limit in _LIMITS:
            if all(self._limit(size, limit) <= 1 << 62 for size in self._sizes):
                return limit
        raise RefusedError("a size may overflow")

    def _limit(self, size: tir.PrimExpr, limit: int) -> int:
        """The absolute value that a size does not exceed, if variables do not exceed `limit`."""
        match size:
            case tir.IntImm(value=value):
                return abs(value)
            case tir.Var() if size in self._variables:
                return limit
            case tir.Add(a=a, b=b) | tir.Sub(a=a, b=b):
                return self._limit(a, limit) + self._limit(b, limit)
            case tir.Mul(a=a, b=b):
                return self._limit(a, limit) * self._limit(b, limit)
            case tir.FloorDiv(a=a, b=tir.IntImm(value=divisor)) if divisor > 0:
                return self._limit(a, limit)
            case tir.FloorMod(a=a, b=tir.IntImm(value=divisor)) if divisor > 0:
                return max(self._limit(a, limit), divisor)
            case tir.Min(a=a, b=b) | tir.Max(a=a, b=b):
                return max(self._limit(a, limit), self._limit(b, limit))
            case _:
                raise RefusedError(f"the size {size} is computed when it runs")

    # ---- expressions

    def _value(self, expr: rx.Expr) -> Value:
        match expr:
            case rx.Var() if expr in self._values:
                return self._values[expr]
            case rx.Constant():
                memory = Memory("constant")
                self._literals[memory] = expr
                return self._tensor(memory, expr.data_sinfo)
            case rx.Tuple(fields=fields):
                return tuple(map(self._value, fields))
            case rx.TupleGetItem(tuple_value=value, index=index):
                whole = self._value(value)
                if isinstance(whole, Tensor) or index >= len(whole):
                    raise RefusedError("it selects a field of a value that is not a tuple")
                return whole[index]
            case rx.Call(op=Op() as op) if op.record.calls is CallKind.KERNEL:
                return self._kernel(expr)
            case rx.Call(op=op):
                raise RefusedError(f"it calls {getattr(op, 'name', None) or op}")
            case _:
                raise RefusedError(f"it has a {type(expr).__name__}")

    def _read(self, value: Value, packing: Packing | None = None) -> Value:
        """A value that the program reads, whose constants get numbers."""
        if not isinstance(value, Tensor):
            return tuple(map(self._read, value))
        literal = self._literals.get(value.memory)
        if literal is None:
            return value
        memory = Memory("constant", len(self._constants))
        return Tensor(self._constants.setdefault((literal, packing), memory), value.sinfo)

    def _kernel(self, call: rx.Call) -> Value:
        callee = self._callee_of(call.args[0]) if isinstance(call.args[0], rx.GlobalVar) else None
        if not isinstance(callee, GlobalCallee) or callee.name not in self._signatures:
            raise RefusedError("it calls a kernel that is not native")
        inputs = call.args[1]
        if not isinstance(inputs, rx.Tuple) or "inplace_indices" in call.attrs:
            raise RefusedError("the arguments of a kernel are not tensors")
        if not all(isinstance(shape, rx.ShapeExpr) for shape in call.args[2:]):
            raise RefusedError("the scalars of a kernel are not known")
        scalars = [v for shape in call.args[2:] for v in shape.values]  # type: ignore[attr-defined]
        tensors = [self._value(field) for field in inputs.fields]
        if not all(isinstance(tensor, Tensor) for tensor in tensors):
            raise RefusedError("the arguments of a kernel are not tensors")
        sinfos = [tensor.sinfo for tensor in tensors if isinstance(tensor, Tensor)]
        outputs = output_sinfos(call)
        sizes = matching_sizes(callee, sinfos, outputs, scalars)
        if sizes is None:
            raise RefusedError("the arguments of a kernel are checked when it runs")
        for sinfo in outputs:
            self._sizes.update(self._tensor(Memory("new"), sinfo).shape)
        is_tuple = isinstance(call.sinfo_args[0], rx.TupleStructInfo)
        if len(tensors) == 1 and not is_tuple and not scalars and self._is_reshape(callee):
            [source] = tensors
            assert isinstance(source, Tensor)
            return Tensor(source.memory, outputs[0])
        new = [Tensor(Memory("new"), sinfo) for sinfo in outputs]
        self._calls.append(self._call(callee, [*tensors, *new], new, scalars, sizes))  # type: ignore[list-item]
        return tuple(new) if is_tuple else new[0]

    def _call(
        self,
        callee: GlobalCallee,
        tensors: Iterable[Tensor],
        new: list[Tensor],
        scalars: Iterable[tir.PrimExpr],
        sizes: Sizes,
    ) -> KernelCall:
        signature = self._signatures[callee.name]
        arrays, numbers = iter(tensors), iter(scalars)
        arguments: list[Tensor | tir.PrimExpr] = []
        packings = self._packings.get(callee.name, {})
        for number, param in enumerate(signature.params):
            if isinstance(param, Array) and param.strides is None:
                tensor = self._read(next(arrays), packings.get(number))
                assert isinstance(tensor, Tensor)
                arguments.append(tensor)
            elif isinstance(param, Integer):
                scalar = next(numbers)
                self._sizes.add(scalar)
                arguments.append(scalar)
            else:
                raise RefusedError("a kernel takes strides or numbers")
        passed = []
        for name in size_names(signature.params):
            size = substitute(signature.sizes[name], sizes)
            self._sizes.add(size)
            passed.append(size)
        return KernelCall(callee.name, arguments, passed, new)


def _sinfo(value: Value) -> rx.StructInfo:
    if isinstance(value, Tensor):
        return value.sinfo
    return rx.TupleStructInfo(tuple(map(_sinfo, value)))
