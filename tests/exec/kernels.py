"""Kernels and modules built node by node, for tests of running them."""

from collections.abc import Callable, Sequence

from relaxpy.ir import IRModule, Op
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir, stmt as st
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc

Size = tir.ExprLike


def size_var(name: str) -> tir.Var:
    return tir.Var(name, "int64")


def nest(
    extents: Sequence[Size],
    body: Callable[..., st.Stmt],
    *,
    reduce: int = 0,
    init: Callable[..., st.Stmt] | None = None,
    name: str = "block",
) -> st.Stmt:
    """Loops around one block with the axes `extents`, the last `reduce` of which are reduced."""
    kinds = [e.dtype if isinstance(e, tir.PrimExpr) else "int64" for e in extents]
    loops = [tir.Var(f"i{k}", kind) for k, kind in enumerate(kinds)]
    axes = [tir.Var(f"v{k}", kind) for k, kind in enumerate(kinds)]
    spatial = len(extents) - reduce
    iters = tuple(
        IterVar(
            Range(e), axis, tir.IterVarKind.DataPar if k < spatial else tir.IterVarKind.CommReduce
        )
        for k, (e, axis) in enumerate(zip(extents, axes, strict=True))
    )
    first = None if init is None else init(*axes[:spatial])
    block = st.Block(iters, (), (), name, body(*axes), first)
    stmt: st.Stmt = st.BlockRealize(tuple(loops), tir.IntImm("bool", 1), block)
    for loop, extent in reversed(list(zip(loops, extents, strict=True))):
        stmt = st.For(loop, tir.IntImm(loop.dtype, 0), extent, st.ForKind.SERIAL, stmt)
    return stmt


def rooted(body: st.Stmt, allocs: Sequence[Buffer] = ()) -> st.Stmt:
    block = st.Block((), (), (), "root", body, alloc_buffers=tuple(allocs))
    return st.BlockRealize((), tir.IntImm("bool", 1), block)


def buffer(shape: Sequence[Size], name: str, dtype: str = "float32") -> Buffer:
    return decl_buffer(
        [s if isinstance(s, tir.PrimExpr) else tir.IntImm("int64", s) for s in shape], dtype, name
    )


def prim_func(
    params: Sequence[Buffer | tir.Var], body: st.Stmt, name: str | None = None, **fields: object
) -> PrimFunc:
    attrs = {"global_symbol": name} if name else {}
    return PrimFunc(tuple(params), body, attrs=attrs, **fields)


def elementwise(
    shape: Sequence[Size],
    function: Callable[..., tir.PrimExpr],
    name: str | None = None,
    *,
    inputs: int = 1,
    dtype: str = "float32",
    out_dtype: str | None = None,
) -> PrimFunc:
    """out[...] = function(in0[...], in1[...], ...)"""
    ins = [buffer(shape, f"A{k}", dtype) for k in range(inputs)]
    out = buffer(shape, "O", out_dtype or dtype)

    def body(*axes: tir.Var) -> st.Stmt:
        return st.BufferStore(out, function(*(BufferLoad(b, axes) for b in ins)), axes)

    return prim_func([*ins, out], rooted(nest(shape, body)), name)


def matmul(n: Size, k: Size, m: Size, name: str | None = None, dtype: str = "float32") -> PrimFunc:
    a, b, c = buffer((n, k), "A", dtype), buffer((k, m), "B", dtype), buffer((n, m), "C", dtype)

    def update(i: tir.Var, j: tir.Var, r: tir.Var) -> st.Stmt:
        return st.BufferStore(c, c[i, j] + a[i, r] * b[r, j], (i, j))

    def init(i: tir.Var, j: tir.Var) -> st.Stmt:
        return st.BufferStore(c, tir.FloatImm(dtype, 0.0), (i, j))

    return prim_func([a, b, c], rooted(nest((n, m, k), update, reduce=1, init=init)), name)


def tensor(shape: Sequence[Size] | None, dtype: str = "float32") -> rx.TensorStructInfo:
    return rx.TensorStructInfo(shape, dtype)


def call_tir(
    callee: rx.GlobalVar,
    args: Sequence[rx.Expr],
    out: rx.StructInfo,
    tir_vars: Sequence[Size] | None = None,
) -> rx.Call:
    extra = () if tir_vars is None else (rx.ShapeExpr(tuple(tir_vars)),)
    return rx.Call(
        Op("relax.call_tir"),
        (callee, rx.Tuple(tuple(args)), *extra),
        sinfo_args=(out,),
        struct_info=out,
    )


def function(
    params: Sequence[rx.Var],
    bindings: Sequence[tuple[rx.Var | None, object] | rx.MatchCast],
    result: rx.Expr,
    *,
    ret: rx.StructInfo | None = None,
    pure: bool = True,
    dataflow: bool = False,
    name: str | None = "main",
) -> rx.Function:
    made = [b if isinstance(b, rx.MatchCast) else rx.VarBinding(*b) for b in bindings]
    kind = rx.DataflowBlock if dataflow else rx.BindingBlock
    body = rx.SeqExpr((kind(tuple(made)),) if made else (), result)
    attrs = {"global_symbol": name} if name else {}
    return rx.Function(tuple(params), body, ret, pure, attrs)


def module(**functions: rx.BaseFunc) -> IRModule:
    return IRModule(functions)


def sizes(*names: str) -> tuple[tir.Var, ...]:
    return tuple(tir.Var(name, INT64) for name in names)
