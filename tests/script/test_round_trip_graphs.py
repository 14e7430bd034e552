"""Relax programs read back as they were: generated modules, and corners written by hand."""

# ruff: noqa: E731 (choices are drawn lazily, and each is a line)

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from relaxpy.ir.module import IRModule
from relaxpy.ir.node import Node
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import TensorStructInfo as Tensor
from relaxpy.ir.structural import assert_structural_equal
from relaxpy.ir.tir import expr as tir, ops, stmt
from relaxpy.ir.tir.buffer import decl_buffer
from relaxpy.ir.tir.function import PrimFunc
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from relaxpy.script.printer import metadata

HINTS = [
    *("x", "y", "lv", "gv", "R", "T", "I", "cls", "class", "sum", "None", "_", "__x", "x_1"),
    *("é", "1st", "a b", "metadata", "Module", "", "ﬁ", "self", "match", "n", "m"),
]
hints = st.sampled_from(HINTS)
UNIT = rx.TupleStructInfo(())
DTYPES = ["float32", "int8", "float16", "bool", "bfloat16"]


def round_trip(node: Node, **options: Any) -> Any:
    """`node` printed and read again, checked to be the same program and the same text."""
    text = node.script(**options)
    names = {
        options.get("ir_prefix", "I"): I,
        options.get("relax_prefix", "R"): R,
        options.get("tir_prefix", "T"): T,
        "metadata": metadata(node, **options),
    }
    again = from_source(text, names, check_well_formed=False)
    assert_structural_equal(node, again)
    assert again.script(**options).split("\n") == text.split("\n")
    return again


class Graphs:
    """Draws a module of one graph function and the kernels that it calls."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.module = IRModule()
        self.sizes: list[tir.Var] = []
        self.known: list[rx.Var] = []
        self.pure = True

    def size(self) -> tir.PrimExpr:
        number = ops.const(self.draw(st.integers(1, 8)), "int64")
        if not self.sizes:
            return number
        some = self.draw(st.sampled_from(self.sizes))
        choices = [number, some, some * 2, some + number, ops.maximum(some, 4), tir.Add(some, 0)]
        return self.draw(
            st.sampled_from([*choices, ops.floordiv(some, 3), tir.FloorDiv(7, number)])
        )

    def tensor(self) -> Tensor:
        dtype = self.draw(st.sampled_from(DTYPES))
        return Tensor([self.size() for _ in range(self.draw(st.integers(0, 3)))], dtype)

    def info(self, depth: int = 1) -> rx.StructInfo:
        choices: list[Callable[[], rx.StructInfo]] = [
            self.tensor,
            lambda: Tensor(None, self.draw(st.sampled_from(["", *DTYPES]))),
            lambda: Tensor(None, "", ndim=self.draw(st.integers(0, 3))),
            lambda: rx.ShapeStructInfo([self.size(), self.size()]),
            lambda: rx.ShapeStructInfo(ndim=self.draw(st.integers(-1, 2))),
            lambda: rx.PrimStructInfo("float32"),
            lambda: rx.PrimStructInfo(value=self.size()),
            lambda: rx.ObjectStructInfo(),
            lambda: rx.FuncStructInfo.opaque_func(),
        ]
        if depth:
            inner = lambda: [self.info(depth - 1) for _ in range(self.draw(st.integers(0, 3)))]
            choices += [
                lambda: rx.TupleStructInfo(inner()),
                lambda: rx.FuncStructInfo(inner(), self.info(depth - 1), self.draw(st.booleans())),
            ]
        return self.draw(st.sampled_from(choices))()

    def pick(self, kind: type[rx.StructInfo]) -> rx.Var | None:
        found = [v for v in self.known if isinstance(v.struct_info, kind)]
        return self.draw(st.sampled_from(found)) if found else None

    def leaf(self) -> rx.Expr:
        values = st.floats(width=32)
        literals: list[Callable[[], rx.Expr]] = [
            lambda: rx.const(self.draw(st.lists(values, max_size=3)), "float32"),
            lambda: rx.const(self.draw(st.floats(width=16)), "float16"),
            lambda: rx.const(np.arange(24).reshape(2, 3, 4), "int16"),
            lambda: rx.PrimValue(ops.const(self.draw(st.integers(-5, 5)), "int64")),
            lambda: rx.PrimValue(ops.const(1.5, "float64")),
            lambda: rx.StringImm(self.draw(st.sampled_from(["", "it's", 'a "b"\n', "é"]))),
            lambda: rx.DataTypeImm("float16"),
            lambda: rx.ShapeExpr([self.size()]),
        ]
        variables = [lambda: self.draw(st.sampled_from(self.known))] * 4
        return self.draw(st.sampled_from(literals + (variables if self.known else [])))()

    # Values

    def call_tir(self) -> rx.Expr | None:
        args = [v for v in (self.pick(Tensor), self.pick(Tensor)) if v and v.struct_info.ndim >= 0]
        outs = [self.tensor() for _ in range(self.draw(st.integers(1, 2)))]
        buffers = [
            decl_buffer([tir.Var("d", "int64") for _ in range(i.ndim)], i.dtype or "int8", "b")
            for i in (*(a.struct_info for a in args), *outs)
        ]
        if any(not a.struct_info.dtype for a in args):
            return None
        kernel = PrimFunc(buffers, stmt.Evaluate(0))
        name = self.draw(st.sampled_from(["k", "kernel"])) + str(len(self.module))
        self.module[name] = kernel
        out = outs[0] if len(outs) == 1 else rx.TupleStructInfo(outs)
        return rx.Call(
            Op("relax.call_tir"),
            (self.module.get_global_var(name), rx.Tuple(args)),
            sinfo_args=(out,),
            struct_info=out,
        )

    def value(self, *, pure: bool) -> rx.Expr | None:
        makers: list[Callable[[], rx.Expr | None]] = [
            self.call_tir,
            self.call_tir,
            lambda: rx.Tuple([self.leaf() for _ in range(self.draw(st.integers(0, 3)))]),
            self.projection,
            self.shape_of,
            lambda: rx.Call(Op("relax.null_value"), (), struct_info=rx.ObjectStructInfo()),
            self.pure_packed,
            self.leaf,
        ]
        if not pure:
            makers += [self.packed, self.packed]
        return self.draw(st.sampled_from(makers))()

    def projection(self) -> rx.Expr | None:
        found = self.pick(rx.TupleStructInfo)
        if found is None or not found.struct_info.fields:
            return None
        return rx.TupleGetItem(found, self.draw(st.integers(0, len(found.struct_info.fields) - 1)))

    def shape_of(self) -> rx.Expr | None:
        found = self.pick(Tensor)
        if found is None:
            return None
        values, ndim = found.struct_info.get_shape(), found.struct_info.ndim
        info = rx.ShapeStructInfo(ndim=ndim) if values is None else rx.ShapeStructInfo(values)
        return rx.Call(Op("relax.shape_of"), (found,), struct_info=info)

    def packed(self) -> rx.Expr:
        self.pure = False
        infos = [self.info() for _ in range(self.draw(st.integers(0, 2)))]
        attrs = self.draw(st.sampled_from([{}, {"axis": 1}, {"how": ["a", 1.5], "keep": True}]))
        info = infos[0] if len(infos) == 1 else rx.TupleStructInfo(infos)
        return rx.Call(
            rx.ExternFunc("my.func"),
            [self.leaf() for _ in range(self.draw(st.integers(0, 2)))],
            attrs,
            infos,
            struct_info=info if infos else rx.ObjectStructInfo(),
        )

    def pure_packed(self) -> rx.Expr:
        info = self.info()
        args = (rx.ExternFunc("my.pure"), self.leaf())
        return rx.Call(Op("relax.call_pure_packed"), args, {}, [info], struct_info=info)

    # Bindings

    def binding(self, kind: type[rx.Var], *, flow: bool, depth: int) -> list[rx.Binding]:
        if not flow and depth and self.draw(st.integers(0, 5)) == 0:
            return self.conditional(depth)
        if not flow and self.draw(st.integers(0, 6)) == 0:
            self.pure = False
            call = rx.Call(Op("relax.print"), (self.leaf(),), {"format": ""}, struct_info=UNIT)
            return [rx.VarBinding(rx.Var("_", UNIT), call)]
        if not flow and depth == 2 and self.draw(st.integers(0, 8)) == 0:
            return self.local_function()
        if depth == 2 and self.known and self.draw(st.integers(0, 5)) == 0:
            return self.cast(kind)
        value = self.value(pure=flow)
        if value is None or value.struct_info is None:
            return []
        var = kind(self.draw(hints), value.struct_info)
        return [rx.VarBinding(var, value)]

    def cast(self, kind: type[rx.Var]) -> list[rx.Binding]:
        source = self.draw(st.sampled_from(self.known))
        size = tir.Var(self.draw(hints), "int64")
        rank = getattr(source.struct_info, "ndim", -1)
        if not isinstance(source.struct_info, (Tensor, rx.ObjectStructInfo)) or rank not in (-1, 2):
            return []
        dtype = getattr(source.struct_info, "dtype", "") or "float32"
        info = Tensor((size, self.size()), dtype)
        self.sizes.append(size)
        if self.draw(st.booleans()):
            return [rx.MatchCast(None, source, info)]
        return [rx.MatchCast(kind(self.draw(hints), info), source, info)]

    def conditional(self, depth: int) -> list[rx.Binding]:
        info = self.info()
        branches = []
        for _ in range(2):
            before = len(self.known)
            blocks = self.blocks(depth - 1)
            attrs = rx.Call(
                Op("relax.call_pure_packed"), (rx.ExternFunc("f"),), {}, [info], struct_info=info
            )
            result: rx.Expr = rx.Var(self.draw(hints), info)
            last = rx.VarBinding(result, attrs)
            if blocks and not isinstance(blocks[-1], rx.DataflowBlock):
                blocks[-1] = rx.BindingBlock([*blocks[-1].bindings, last])
            else:
                blocks.append(rx.BindingBlock([last]))
            if self.draw(st.integers(0, 3)) == 0:
                other = rx.Var("_", UNIT)
                call = rx.Call(Op("relax.print"), (), {"format": "x"}, struct_info=UNIT)
                self.pure = False
                blocks[-1] = rx.BindingBlock([*blocks[-1].bindings, rx.VarBinding(other, call)])
            branches.append(rx.SeqExpr(blocks, result, struct_info=info))
            del self.known[before:]
        condition = rx.const(True, "bool")
        flags = [v for v in self.known if v.struct_info == Tensor((), "bool")]
        test = self.draw(st.sampled_from([condition, *flags]))
        var = rx.Var(self.draw(hints), info)
        return [rx.VarBinding(var, rx.If(test, *branches, struct_info=info))]

    def local_function(self) -> list[rx.Binding]:
        param = rx.Var(self.draw(hints), self.info())
        outer, self.known = self.known, [*self.known, param]
        sizes, pure, self.pure = list(self.sizes), self.pure, True
        blocks = self.blocks(1)
        func = rx.Function([param], rx.SeqExpr(blocks, param), param.struct_info, self.pure)
        self.known, self.sizes, self.pure = outer, sizes, pure
        info = rx.FuncStructInfo([param.struct_info], param.struct_info, func.is_pure)
        return [rx.VarBinding(rx.Var(self.draw(hints), info), func)]

    def blocks(self, depth: int) -> list[rx.BindingBlock]:
        out: list[rx.BindingBlock] = []
        for _ in range(self.draw(st.integers(0, 2))):
            flow = self.draw(st.booleans())
            bindings: list[rx.Binding] = []
            before = len(self.known)
            for _ in range(self.draw(st.integers(1, 4))):
                inner = flow and self.draw(st.booleans())
                made = self.binding(rx.DataflowVar if inner else rx.Var, flow=flow, depth=depth)
                bindings += made
                self.known += [
                    b.var for b in made if b.var is not None and b.var.struct_info != UNIT
                ]
            self.known[before:] = [
                v for v in self.known[before:] if not isinstance(v, rx.DataflowVar)
            ]
            kind = rx.DataflowBlock if flow else rx.BindingBlock
            if bindings and out and type(out[-1]) is kind:  # normal form has no such neighbours
                out[-1] = kind([*out[-1].bindings, *bindings])
            elif bindings:
                out.append(kind(bindings))
        return out

    def function(self) -> rx.Function:
        n, m = tir.Var("n", "int64"), tir.Var(self.draw(hints), "int64")
        self.sizes = [n, m]
        params = [rx.Var(self.draw(hints), Tensor((n, m), "float32"))]
        params += [
            rx.Var(self.draw(hints), self.info()) for _ in range(self.draw(st.integers(0, 2)))
        ]
        params.append(rx.Var(self.draw(hints), Tensor((), "bool")))
        self.known = list(params)
        blocks = self.blocks(2)
        result = self.draw(st.sampled_from([v for v in self.known if v in params]))
        attrs = self.draw(st.sampled_from([{}, {"a": [1, "b"], "relax.x": {"c": None}}]))
        symbol = {"global_symbol": self.draw(st.sampled_from(["main", "other"]))}
        return rx.Function(
            params,
            rx.SeqExpr(blocks, result),
            result.struct_info,
            self.pure,
            {**symbol, **attrs},
        )


@st.composite
def modules(draw: st.DrawFn) -> IRModule:
    graphs = Graphs(draw)
    func = graphs.function()
    graphs.module["main"] = func
    return graphs.module


@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
@settings(max_examples=150)
@given(modules())
def test_modules_read_back(module: IRModule):
    round_trip(module)
