"""Reads a Relax function as a program of native kernels, if it is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from relaxpy.exec.graph.program import (
    Branch,
    Check,
    Constant,
    Element,
    Filling,
    Graph,
    KernelCall,
    Memory,
    Region,
    Shape,
    Step,
    Tensor,
    Value,
    leaves,
)
from relaxpy.exec.lower.proof import Sizes, sizes_if_equal
from relaxpy.exec.lower.scope import GlobalCallee
from relaxpy.exec.native.calls.entry import Array, Integer, Param, size_names
from relaxpy.exec.native.calls.interpreter import DTYPES
from relaxpy.exec.native.signature import EntrySignature
from relaxpy.exec.native.values.frame import RefusedError
from relaxpy.exec.native.values.packing import Packing
from relaxpy.exec.runtime.signatures import output_sinfos
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.shape_vars import substitute_info
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.substitution import substitute

_LIMITS = (1 << 31, 1 << 20, 1 << 15)
"""What shape variables may be limited to, so that no computed size overflows."""


_ANY = rx.ObjectStructInfo()


class GraphReader:
    """Reads the function `func`; `signatures` has the native kernels by Python name.

    `packings` says how these may take constants, by the numbers of their parameters.
    """

    def __init__(
        self,
        func: rx.Function,
        callee_of: Callable[[rx.GlobalVar], object],
        signatures: Mapping[str, EntrySignature],
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
        self._steps: list[Step] = []
        """Those of the innermost region."""
        self._passed: set[Memory] = set()
        """What a branch returns as it was before, so that two names may be one tensor."""
        self._originals: dict[Tensor, Tensor] = {}
        """What casts gave another shape."""
        self._known: dict[tir.Var, tir.PrimExpr] = {}
        """The values of shape variables that casts define."""
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
        result = self._body(func.body)
        ret = func.ret_struct_info
        if ret is not None and not is_base_of(ret, _sinfo(result), self._variables):
            raise RefusedError("the struct info of its result is checked when it runs")
        result = self._read(self._original(result))
        arguments = set(tensors.values())
        results = [t for t in dict.fromkeys(leaves(result)) if t not in arguments]
        return Graph(
            params,
            self._variables,
            self._declared,
            self._variables_limit(),
            tensors,
            [Constant(*constant) for constant in self._constants],
            self._region(results),
            result,
        )

    def _region(self, results: Sequence[Tensor]) -> Region:
        """The steps that were read, with these results."""
        if any(tensor.memory in self._passed for tensor in results):
            raise RefusedError("results may be the same tensor")
        return Region(self._steps, results)

    def _body(self, body: rx.Expr) -> Value:
        """The value of a body, whose steps are added."""
        if not isinstance(body, rx.SeqExpr):
            raise RefusedError("the function has no bindings")
        for block in body.blocks:
            for binding in block.bindings:
                value = self._value(binding.value)
                if isinstance(binding, rx.MatchCast):
                    value = self._cast(value, binding.struct_info)
                if binding.var is not None:
                    self._values[binding.var] = value
        return self._value(body.body)

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
            case rx.ShapeExpr(values=sizes):
                return Shape(self._replaced(sizes))
            case rx.Tuple(fields=fields):
                return tuple(map(self._value, fields))
            case rx.If():
                return self._branch(expr)
            case rx.TupleGetItem(tuple_value=value, index=index):
                whole = self._value(value)
                if not isinstance(whole, tuple) or index >= len(whole):
                    raise RefusedError("it selects a field of a value that is not a tuple")
                return whole[index]
            case rx.Call(op=Op() as op) if op.record.calls is CallKind.KERNEL:
                return self._kernel(expr)
            case rx.Call(op=Op(name="relax.shape_of"), args=[arg]):
                tensor = self._value(arg)
                if not isinstance(tensor, Tensor):
                    raise RefusedError("it takes the shape of a value that is not a tensor")
                return Shape(tensor.shape)
            case rx.Call(op=Op(name="relax.shape_to_tensor"), args=[shape]):
                return self._filling(self._value(shape))
            case rx.Call(op=Op(name="relax.tensor_to_shape"), args=[arg]):
                return _elements(self._read(self._value(arg)))
            case rx.Call(op=op):
                raise RefusedError(f"it calls {getattr(op, 'name', None) or op}")
            case _:
                raise RefusedError(f"it has a {type(expr).__name__}")

    def _read(self, value: Value, packing: Packing | None = None) -> Value:
        """A value that the program reads, whose constants get numbers."""
        if isinstance(value, tuple):
            return tuple(map(self._read, value))
        if isinstance(value, Shape):
            return value
        literal = self._literals.get(value.memory)
        if literal is None:
            return value
        memory = Memory("constant", len(self._constants))
        return Tensor(self._constants.setdefault((literal, packing), memory), value.sinfo)

    def _new(self, sinfo: rx.StructInfo) -> Tensor:
        tensor = self._tensor(Memory("new"), sinfo)
        self._sizes.update(tensor.shape)
        return tensor

    # ---- sizes

    def _replaced(self, sizes: Iterable[tir.PrimExpr]) -> list[tir.PrimExpr]:
        """The sizes over variables of parameters."""
        return [substitute(size, self._known) for size in sizes] if self._known else list(sizes)

    def _check(self, found: tir.PrimExpr | Element, expected: tir.PrimExpr) -> None:
        """Go on if these are equal."""
        self._sizes.update(size for size in (found, expected) if isinstance(size, tir.PrimExpr))
        self._steps.append(Check(found, expected))

    def _cast(self, value: Value, sinfo: rx.StructInfo) -> Value:
        """The value with the sizes that a cast says it has, some of which may be variables."""
        match value, sinfo:
            case Tensor(), rx.TensorStructInfo(shape=rx.ShapeExpr(values=expected)):
                same = value.sinfo.dtype == sinfo.dtype and len(value.shape) == len(expected)
                sizes: Sequence[tir.PrimExpr | Element] = value.shape
            case Shape(sizes=sizes), rx.ShapeStructInfo(values=expected) if expected is not None:
                same = len(sizes) == len(expected)
            case _:
                raise RefusedError("it casts a value to something that is checked when it runs")
        if not same:
            raise RefusedError("a cast fails")
        for found, size in zip(sizes, expected, strict=True):
            if isinstance(size, tir.Var) and size not in {*self._known, *self._variables}:
                if isinstance(found, Element):
                    raise RefusedError("a size depends on data")
                self._known[size] = found
            else:
                [size] = self._replaced([size])
                if isinstance(found, Element) or prove_equal(found, size) is not True:
                    self._check(found, size)
        sizes = self._replaced(expected)
        if isinstance(value, Shape):
            return Shape(sizes)
        cast = Tensor(
            value.memory, rx.TensorStructInfo(rx.ShapeExpr(tuple(sizes)), value.sinfo.dtype)
        )
        self._originals[cast] = self._originals.get(value, value)
        return cast

    def _original(self, value: Value) -> Value:
        """The value with the tensors that casts were given."""
        if isinstance(value, tuple):
            return tuple(map(self._original, value))
        return self._originals.get(value, value) if isinstance(value, Tensor) else value

    def _filling(self, shape: Value) -> Tensor:
        if not isinstance(shape, Shape) or any(isinstance(size, Element) for size in shape.sizes):
            raise RefusedError("a shape is not known")
        sizes = [size for size in shape.sizes if isinstance(size, tir.PrimExpr)]
        self._sizes.update(sizes)
        tensor = self._new(
            rx.TensorStructInfo(rx.ShapeExpr((tir.IntImm("int64", len(sizes)),)), DataType("int64"))
        )
        self._steps.append(Filling(tensor, sizes))
        return tensor

    # ---- branches

    def _branch(self, expr: rx.If) -> Value:
        condition = self._read(self._value(expr.cond))
        if not isinstance(condition, Tensor) or condition.sinfo.dtype != "bool" or condition.shape:
            raise RefusedError("a condition is not a tensor")
        ways = [self._way(way) for way in (expr.true_branch, expr.false_branch)]
        (first, then), (second, otherwise) = ways
        outputs: list[Tensor] = []
        value = self._joined(first, second, outputs)
        self._steps.append(Branch(condition, (then, otherwise), outputs))
        return value

    def _way(self, body: rx.Expr) -> tuple[Value, Region]:
        """The value of one way, and its region."""
        around, self._steps = self._steps, []
        value = self._read(self._body(body))
        results = list(leaves(value))
        if len({tensor.memory for tensor in results}) < len(results):
            raise RefusedError("results of a branch are one tensor")
        region = self._region(results)
        new = {tensor.memory for tensor in region.new_tensors()}
        for tensor in results:
            if tensor.memory.origin == "parameter":
                raise RefusedError("a branch returns a parameter")
            if tensor.memory.origin == "new" and tensor.memory not in new:
                self._passed.add(tensor.memory)
        self._steps = around
        return value, region

    def _joined(self, first: Value, second: Value, outputs: list[Tensor]) -> Value:
        """What is one of two values, with new tensors, which are added to the outputs."""
        if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
            return tuple(self._joined(a, b, outputs) for a, b in zip(first, second, strict=True))
        if isinstance(first, Tensor) and isinstance(second, Tensor):
            same = first.sinfo.dtype == second.sinfo.dtype and len(first.shape) == len(second.shape)
            pairs = zip(first.shape, second.shape, strict=False)
            if same and all(prove_equal(a, b) for a, b in pairs):
                outputs.append(Tensor(Memory("new"), first.sinfo))
                return outputs[-1]
        raise RefusedError("the kind of a result depends on a branch")

    # ---- kernels

    def _kernel(self, call: rx.Call) -> Value:
        callee = self._callee_of(call.args[0]) if isinstance(call.args[0], rx.GlobalVar) else None
        if not isinstance(callee, GlobalCallee) or callee.name not in self._signatures:
            raise RefusedError("it calls a kernel that is not native")
        inputs = call.args[1]
        if not isinstance(inputs, rx.Tuple) or "inplace_indices" in call.attrs:
            raise RefusedError("the arguments of a kernel are not tensors")
        if not all(isinstance(shape, rx.ShapeExpr) for shape in call.args[2:]):
            raise RefusedError("the scalars of a kernel are not known")
        written = [v for shape in call.args[2:] for v in shape.values]  # type: ignore[attr-defined]
        scalars = self._replaced(written)
        tensors = [self._value(field) for field in inputs.fields]
        if not all(isinstance(tensor, Tensor) for tensor in tensors):
            raise RefusedError("the arguments of a kernel are not tensors")
        sinfos = [tensor.sinfo for tensor in tensors if isinstance(tensor, Tensor)]
        outputs = [substitute_info(sinfo, self._known) for sinfo in output_sinfos(call)]
        found = sizes_if_equal(callee, sinfos, outputs, scalars)
        if found is None:
            raise RefusedError("the arguments of a kernel do not match")
        sizes, compared = found
        for expected, actual in compared:
            self._check(actual, expected)
        new = [self._new(sinfo) for sinfo in outputs]
        is_tuple = isinstance(call.sinfo_args[0], rx.TupleStructInfo)
        if len(tensors) == 1 and not is_tuple and not scalars and self._is_reshape(callee):
            [source] = tensors
            assert isinstance(source, Tensor)
            return Tensor(source.memory, outputs[0])
        self._steps.append(self._call(callee, [*tensors, *new], new, scalars, sizes))  # type: ignore[list-item]
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


def _elements(tensor: Value) -> Shape:
    """The elements of a tensor as a shape."""
    if isinstance(tensor, Tensor) and tensor.sinfo.dtype == "int64" and len(tensor.shape) == 1:
        [count] = tensor.shape
        if isinstance(count, tir.IntImm):
            return Shape([Element(tensor, position) for position in range(count.value)])
    raise RefusedError("a shape is not known")


def _sinfo(value: Value) -> rx.StructInfo:
    if isinstance(value, Tensor):
        return value.sinfo
    return rx.TupleStructInfo(tuple(map(_sinfo, value))) if isinstance(value, tuple) else _ANY
