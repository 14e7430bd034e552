"""SplitCallTIRByPattern: a back end computes the first part of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from typing_extensions import override

from relaxpy.dataclass import dataclass, replace
from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core.traverse import rebuild, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes.python_function import compiled_function
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.rewrite.map_with_builder import map_with_builder
from relaxpy.ir.relax.transform.cleanup.dead_code_elimination import DeadCodeElimination
from relaxpy.ir.relax.transform.fusion.tir_pattern import (
    MatchResult,
    match_statement,
    statements_of,
)
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.stmt import BlockRealize, BufferStore, For, SeqStmt, Stmt

FCodegen = Callable[[list[MatchResult]], Any]


@dataclass(frozen=True)
class SplitCallTIRByPattern(Pass):
    """Divides kernels into what a back end computes, and a kernel of the rest.

    Each pattern is a PrimFunc with one loop nest, and is compared with the loop nests of a kernel
    from the first one on; see `match_statement`. `fcodegen` receives the list of matches, of which
    there is at least one, and returns a Python function, the number of nests that it computes, and
    the buffers of its arguments. The function takes their arrays, returns the result of these
    nests, and has no visible effect. It belongs to the calls that replace those of the kernel. What
    is left of the kernel is `unfused_epilogue`. A kernel whose nests exchange more than this result
    stays as it is.

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
        written = _stored(first)
        [result] = _stored(first[-1:]) or (None,)
        exchanged = (written & _loaded(rest)) | (written & set(buffers)) | (written & _stored(rest))
        expected = {result} if rest else {buffers[-1]}
        constant = result is not None and all(isinstance(n, tir.IntImm) for n in result.shape)
        if result is None or not constant or exchanged != expected or result not in expected:
            return None
        if rest and (result in buffers or result in _stored(rest)):
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
    """The kernel of what is left, and the positions of its operands after the first one."""

    func: PrimFunc
    operands: list[int]


@dataclass(frozen=True, slots=True)
class _Kernels:
    """A function of a back end, the positions of its operands, its result, and what is left."""

    function: rx.ExternFunc
    operands: list[int]
    result: Buffer
    epilogue: _Epilogue | None


def _generated(result: Any, most: int) -> tuple[Callable[..., Any], int, list[Buffer]]:
    """What a code generator returned: a function, the number of nests, and buffers.

    Errors:
        MisuseError: it returned something else.
    """
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
    """The kernel of the last statements, whose first operand is what the others computed."""
    assert isinstance(func.body, BlockRealize)
    used = _loaded(rest) | _stored(rest)
    buffers = func.buffer_map_items
    operands = [k for k, buffer in enumerate(buffers[:-1]) if buffer in used]
    pairs: list[tuple[tir.Var, Buffer]] = [(tir.Var(result.name, "handle"), result)]
    pairs += [(func.params[k], cast("Buffer", buffers[k])) for k in (*operands, -1)]
    root = func.body.block
    left = tuple(b for b in root.alloc_buffers if b is not result and b in used)
    body = rest[0] if len(rest) == 1 else SeqStmt(tuple(rest))
    block = replace(root, body=body, alloc_buffers=left, reads=(), writes=())
    new = PrimFunc(
        tuple(param for param, _ in pairs),
        replace(func.body, block=block),
        None,
        dict(pairs),
        func.without_attr("global_symbol").attrs,
        span=func.span,
    )
    return _Epilogue(new, operands)


def _stored(statements: Iterable[Stmt]) -> set[Buffer | None]:
    """The buffers that statements store to."""
    return {n.buffer for s in statements for n in walk(s) if isinstance(n, BufferStore)}


def _loaded(statements: Iterable[Stmt]) -> set[Buffer | None]:
    """The buffers that statements load from."""
    return {n.buffer for s in statements for n in walk(s) if isinstance(n, BufferLoad)}


class _Splitting(BindingRewriter):
    """Replaces the calls of one function."""

    def __init__(self, kernels: dict[str, _Kernels], builder: BlockBuilder) -> None:
        super().__init__()
        self.kernels, self.builder = kernels, builder

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not rx.is_call_of(call, "relax.call_tir"):
            return None
        callee, operands, *scalars = call.args
        kernel = self.kernels.get(callee.name_hint) if isinstance(callee, rx.GlobalVar) else None
        if kernel is None or scalars or not isinstance(call.sinfo_args[0], rx.TensorStructInfo):
            return None
        fields = cast("rx.Tuple", operands).fields
        sinfo = rx.TensorStructInfo(rx.ShapeExpr(kernel.result.shape), kernel.result.dtype)
        args = (kernel.function, *(fields[k] for k in kernel.operands))
        packed = rx.Call(
            Op.get("relax.call_pure_packed"), args, sinfo_args=(sinfo,), span=call.span
        )
        if kernel.epilogue is None:
            return replace(binding, value=packed)
        kind = rx.DataflowVar if isinstance(block, rx.DataflowBlock) else rx.Var
        first = rx.VarBinding(kind(kernel.result.name), packed, call.span)
        epilogue = self.builder.add_func(kernel.epilogue.func, "unfused_epilogue")
        inputs = rx.Tuple((first.var, *(fields[k] for k in kernel.epilogue.operands)))
        return [first, replace(binding, value=rebuild(call, args=(epilogue, inputs)))]
