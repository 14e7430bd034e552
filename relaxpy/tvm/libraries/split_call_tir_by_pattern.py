"""SplitCallTIRByPattern: a back end computes the first part of kernels.

FuseTransposeMatmul: a matmul with a transposed matrix becomes one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from typing_extensions import override

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition.rules import te_kernel
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.algebra.matmuls import is_transposition
from relaxpy.ir.passes.cleanup.dead_code_elimination import DeadCodeElimination
from relaxpy.ir.passes.legalize import is_known
from relaxpy.ir.passes.rewrite_pass import FusionPass
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.known import called_kernel, shape_of, tensor_sinfo
from relaxpy.ir.relax.nodes.python_function import compiled_function
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten, map_with_builder
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import as_dtype
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.analysis.regions import loaded_buffers, stored_buffers
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Add, FloatImm, IntImm, Mul, PrimExpr, Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block, BlockRealize, For, ForKind, SeqStmt, Stmt, stmt_seq
from relaxpy.support.dataclass import dataclass, replace

_IGNORED: Final = frozenset(("span", "name_hint", "annotations"))
"""Fields of statements in which a match may differ from the pattern."""
_OF_BUFFERS: Final = ("dtype", "shape", "strides", "axis_separators")
"""Fields of buffers in which a match does not differ."""
_NEUTRAL: Final = {Mul: 1, Add: 0}


@dataclass(frozen=True, slots=True)
class MatchResult:
    """A match of a pattern: the values of its scalar parameters, and the buffers of the others."""

    pattern: PrimFunc
    symbol_values: tuple[PrimExpr, ...]
    matched_buffers: tuple[Buffer, ...]


def statements_of(func: PrimFunc) -> tuple[Stmt, ...]:
    """The statements in the root block of a PrimFunc, or none if it has no root block."""
    if not isinstance(func.body, BlockRealize) or func.body.block.iter_vars:
        return ()
    body = func.body.block.body
    return body.seq if isinstance(body, SeqStmt) else (body,)


def match_statement(stmt: Stmt, patterns: Sequence[PrimFunc]) -> MatchResult | None:
    """The match of the first pattern whose loop nest is that of the statement.

    Variables and buffers may have other names, and the operands of sums and products another order.
    Scalar parameters of a pattern stand for literals. If one is a factor that the statement does
    not have, it is 1; if it is such a term, it is 0. Shape variables stand for any sizes.
    """
    for pattern in patterns:
        [nest] = statements_of(pattern)
        matcher = _Matcher(pattern)
        if matcher.nodes(stmt, nest):
            return matcher.result()
    return None


class _Matcher:
    """The comparison with one pattern: the bindings of its variables and buffers so far."""

    def __init__(self, pattern: PrimFunc) -> None:
        self.pattern = pattern
        self.symbols = [p for p in pattern.params if p not in pattern.buffer_map]
        self.values: dict[Var, PrimExpr] = {}
        self.buffers: dict[Buffer, Buffer] = {}

    def result(self) -> MatchResult | None:
        """The match, if every parameter is bound."""
        buffers = [b for b in self.pattern.buffer_map_items if b is not None]
        if not all(s in self.values for s in self.symbols) or not set(buffers) <= set(self.buffers):
            return None
        return MatchResult(
            self.pattern,
            tuple(self.values[symbol] for symbol in self.symbols),
            tuple(self.buffers[buffer] for buffer in buffers),
        )

    def nodes(self, node: object, pattern: object) -> bool:
        """True if two fields match: nodes, sequences of them, or other values."""
        if isinstance(pattern, Var):
            return isinstance(node, PrimExpr) and self._variable(node, pattern)
        if isinstance(pattern, Buffer):
            return isinstance(node, Buffer) and self._buffer(node, pattern)
        if isinstance(pattern, (Add, Mul)):
            return isinstance(node, PrimExpr) and self._commutative(node, pattern)
        if isinstance(pattern, (tuple, list)):
            return (
                isinstance(node, (tuple, list))
                and len(node) == len(pattern)
                and all(map(self.nodes, node, pattern))
            )
        if isinstance(pattern, (IntImm, FloatImm)):
            if not isinstance(node, (IntImm, FloatImm)):
                return False
            return node.dtype == pattern.dtype and node.value == pattern.value
        if not isinstance(pattern, Node):
            return bool(node == pattern)
        if not isinstance(node, Node) or type(node) is not type(pattern):
            return False
        return _is_plain(pattern) and self._fields(node, pattern, pattern._fields)

    def _fields(self, node: Node, pattern: Node, names: Sequence[str]) -> bool:
        return _is_plain(node) and all(
            self.nodes(getattr(node, name), getattr(pattern, name))
            for name in names
            if name not in _IGNORED
        )

    def _variable(self, value: PrimExpr, var: Var) -> bool:
        if var in self.symbols and not isinstance(value, (IntImm, FloatImm)):
            return False
        if var.dtype != value.dtype and var not in self.symbols:
            return False
        known = self.values.setdefault(var, value)
        return known is value or (known.dtype == value.dtype and bool(known == value))

    def _buffer(self, buffer: Buffer, pattern: Buffer) -> bool:
        known = self.buffers.get(pattern)
        if known is not None:
            return known is buffer
        if buffer in self.buffers.values() or buffer.scope() != pattern.scope():
            return False
        self.buffers[pattern] = buffer
        return self._fields(buffer, pattern, _OF_BUFFERS)

    def _commutative(self, value: PrimExpr, pattern: Add | Mul) -> bool:
        """True if a sum or product matches, or a value that lacks a symbol as term or factor."""
        for symbol, other in ((pattern.a, pattern.b), (pattern.b, pattern.a)):
            if isinstance(symbol, Var) and symbol in self.symbols:
                neutral = ops.const(_NEUTRAL[type(pattern)], other.dtype)
                if self._all((neutral, symbol), (value, other)):
                    return True
        if not isinstance(value, type(pattern)):
            return False
        a, b = value.a, value.b
        return any(self._all((x, pattern.a), (y, pattern.b)) for x, y in ((a, b), (b, a)))

    def _all(self, *pairs: tuple[PrimExpr, PrimExpr]) -> bool:
        """True if all of these match; a failed attempt is rolled back."""
        values, buffers = dict(self.values), dict(self.buffers)
        if all(self.nodes(value, pattern) for value, pattern in pairs):
            return True
        self.values, self.buffers = values, buffers
        return False


def _is_plain(node: Node) -> bool:
    """True if loops are serial and begin at 0, and blocks are evaluated for each iteration."""
    match node:
        case For():
            is_zero = isinstance(node.min, IntImm) and node.min.value == 0
            serial = node.kind == ForKind.SERIAL and node.thread_binding is None
            return is_zero and serial and not node.annotations
        case BlockRealize(predicate=predicate):
            return isinstance(predicate, IntImm) and bool(predicate.value)
        case Block():
            return not node.alloc_buffers and not node.match_buffers
        case _:
            return True


FCodegen = Callable[[list[MatchResult]], Any]


@dataclass(frozen=True)
class SplitCallTIRByPattern(Pass):
    """Splits kernels into a part that a back end computes, and a kernel of the rest.

    Each pattern is a PrimFunc with one loop nest, and is compared with the loop nests of a kernel
    from the first one on; see `match_statement`. `fcodegen` receives the non-empty list of matches,
    and returns a Python function, the number of nests that it computes, and the buffers of its
    arguments. The function takes their arrays, returns the result of these nests, and has no
    visible effect. It belongs to the calls that replace those of the kernel. The rest of the kernel
    is `unfused_epilogue`. A kernel whose nests exchange more than this result stays unchanged.

    Errors:
        MisuseError (also TypeError): a pattern is not a PrimFunc with one loop nest, or `fcodegen`
            is not a function or returns something else.
    """

    patterns: Sequence[PrimFunc]
    fcodegen: FCodegen

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        for pattern in self.patterns:
            statements = statements_of(pattern)
            if len(statements) != 1 or not isinstance(statements[0], For):
                raise unexpected(pattern, "a pattern is a PrimFunc with one loop nest")

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        kernels: dict[str, _Kernels] = {}
        for name, func in mod.functions_by_name.items():
            kernel = self._divided(name, func) if isinstance(func, PrimFunc) else None
            if kernel is not None:
                kernels[name] = kernel
        if not kernels:
            return mod

        def split(func: rx.Function, builder: BlockBuilder) -> rx.Function:
            return _Splitting(kernels, builder).expr(func)

        result = map_with_builder(mod, split)
        return mod if result is mod else DeadCodeElimination().transform(result, ctx)

    def _divided(self, name: str, func: PrimFunc) -> _Kernels | None:
        """The two parts of a kernel; None if it cannot be divided."""
        statements = statements_of(func)
        matches: list[MatchResult] = []
        for stmt in statements:
            match = match_statement(stmt, self.patterns)
            if match is None:
                break
            matches.append(match)
        if not matches:
            return None
        function, count, arguments = _generated(self.fcodegen(matches), len(matches))
        first, rest = statements[:count], statements[count:]
        if not first:
            return None
        buffers = func.buffer_map_items
        written = stored_buffers(*first)
        [result] = stored_buffers(*first[-1:]) or (None,)
        exchanged = (
            (written & loaded_buffers(*rest))
            | (written & set(buffers))
            | (written & stored_buffers(*rest))
        )
        expected = {result} if rest else {buffers[-1]}
        constant = result is not None and all(isinstance(n, tir.IntImm) for n in result.shape)
        if result is None or not constant or exchanged != expected or result not in expected:
            return None
        if rest and (result in buffers or result in stored_buffers(*rest)):
            return None
        for argument in arguments:
            if argument not in buffers[:-1]:
                raise MisuseError(
                    f"{argument.name} is not the buffer of an input of {name}", about=argument
                )
        inputs = [buffers.index(argument) for argument in arguments]
        epilogue = _epilogue(func, result, rest) if rest else None
        return _Kernels(compiled_function(name, function), inputs, result, epilogue)


@dataclass(frozen=True, slots=True)
class _Epilogue:
    """The kernel of the rest, and the positions of its operands after the first one."""

    func: PrimFunc
    operands: list[int]


@dataclass(frozen=True, slots=True)
class _Kernels:
    """A function of a back end, the positions of its operands, its result, and the rest."""

    function: rx.ExternFunc
    operands: list[int]
    result: Buffer
    epilogue: _Epilogue | None


def _generated(result: Any, most: int) -> tuple[Callable[..., Any], int, list[Buffer]]:
    """The result of a code generator: a function, the number of loop nests, and buffers."""
    match result:
        case [function, int() as count, [*buffers]] if (
            callable(function)
            and 0 <= count <= most
            and all(isinstance(buffer, Buffer) for buffer in buffers)
        ):
            return function, count, buffers
        case _:
            raise unexpected(
                result,
                f"fcodegen returns a Python function, a number of nests from 0 to {most}, and a "
                "list of buffers",
                hint="source text cannot be compiled: write the function in Python",
            )


def _epilogue(func: PrimFunc, result: Buffer, rest: Sequence[Stmt]) -> _Epilogue | None:
    """The kernel of the last statements, whose first operand is the result of the others."""
    assert isinstance(func.body, BlockRealize)
    used = loaded_buffers(*rest) | stored_buffers(*rest)
    buffers = func.buffer_map_items
    operands = [k for k, buffer in enumerate(buffers[:-1]) if buffer in used]
    pairs: list[tuple[tir.Var, Buffer]] = [(tir.Var(result.name, "handle"), result)]
    pairs += [(func.params[k], cast("Buffer", buffers[k])) for k in (*operands, -1)]
    root = func.body.block
    left = tuple(b for b in root.alloc_buffers if b is not result and b in used)
    block = replace(root, body=stmt_seq(*rest), alloc_buffers=left, reads=(), writes=())
    new = PrimFunc(
        tuple(param for param, _ in pairs),
        replace(func.body, block=block),
        None,
        dict(pairs),
        func.without_attr("global_symbol").attrs,
        span=func.span,
    )
    return _Epilogue(new, operands)


class _Splitting(BindingRewriter):
    """Replaces the calls of one function."""

    def __init__(self, kernels: dict[str, _Kernels], builder: BlockBuilder) -> None:
        super().__init__()
        self.kernels, self.builder = kernels, builder

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        called = called_kernel(call)
        if called is None or not isinstance(call, rx.Call) or len(call.args) > 2:
            return None
        kernel, fields = self.kernels.get(called[0]), called[1]
        if kernel is None or not isinstance(call.sinfo_args[0], rx.TensorStructInfo):
            return None
        sinfo = rx.TensorStructInfo(rx.ShapeExpr(kernel.result.shape), kernel.result.dtype)
        args = (kernel.function, *(fields[k] for k in kernel.operands))
        packed = rx.Call(
            Op.get("relax.call_pure_packed"), args, sinfo_args=(sinfo,), span=call.span
        )
        if kernel.epilogue is None:
            return replace(binding, value=packed)
        first = rx.VarBinding(block.var_type(kernel.result.name), packed, call.span)
        epilogue = self.builder.add_func(kernel.epilogue.func, "unfused_epilogue")
        inputs = rx.Tuple((first.var, *(fields[k] for k in kernel.epilogue.operands)))
        return [first, replace(binding, value=rebuild(call, args=(epilogue, inputs)))]


_NAME = "NT_matmul"


@dataclass(frozen=True)
class FuseTransposeMatmul(FusionPass):
    """Computes `x @ permute_dims(w)` of a dataflow block by a kernel that reads `w` in its order.

    It is applied before LegalizeOps, to matmuls of tensors of known shape and datatype. The
    transposed matrix is removed if nothing else uses it.
    """

    @override
    def rewriter(self, builder: BlockBuilder) -> BindingRewriter:
        return _Fusing(builder)


class _Fusing(BindingRewriter):
    """Replaces the matmuls of one function."""

    def __init__(self, builder: BlockBuilder) -> None:
        super().__init__()
        self._builder = builder

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = _call_of("relax.matmul", binding.value)
        if call is None or not isinstance(block, rx.DataflowBlock):
            return None
        x, second = call.args
        turned = _call_of("relax.permute_dims", self.value_of(second))
        if turned is None or not isinstance(second, rx.DataflowVar) or not is_transposition(turned):
            return None
        [w] = turned.args
        sinfo = tensor_sinfo(call)
        if sinfo is None or not all(map(is_known, map(self._builder.struct_info_of, (x, w, call)))):
            return None
        if not prove_equal(_last_size(x), _last_size(w)):
            return None
        wide = call.attrs["out_dtype"]
        kernel = te_kernel(
            self._builder, _product, _NAME, x, w, out_dtype=wide, dtype=str(sinfo.dtype)
        )
        return replace(kernel, span=call.span)


def _last_size(tensor: rx.Expr) -> PrimExpr:
    shape = shape_of(tensor)
    assert shape is not None
    return shape[-1]


def _call_of(name: str, value: rx.Expr | None) -> rx.Call | None:
    """The value if it is a call of an operator."""
    return value if rx.is_call_of(value, name) else None


def _product(x: Tensor, w: Tensor, out_dtype: str | None, dtype: str) -> Tensor:
    product = topi.matmul(x, w, transp_b=True, out_dtype=out_dtype, name=_NAME)
    return as_dtype(product, DataType(dtype))
