"""Random modules of a graph function, put together from nodes: not all run, all can be printed.

What is varied, each by itself:

- names: those of `hard_texts`, several variables of one name among them; attributes of any values;
- struct info: tensors of any rank and datatype with known, symbolic and unknown dimensions, shapes,
  scalars, tuples, functions of both kinds, objects; in parameters, results, casts, packed calls;
- dimensions: literals, shape variables, sums, products, quotients and extrema, some unfolded;
- blocks: of bindings and of dataflow, none to two to a body, with variables that leave them or not;
- bindings: leaves, tuples, fields, calls of kernels with one result or several, of packed
  functions, of functions of the module that call each other and themselves; prints; casts with and
  without a variable; conditionals two deep; local functions, which capture values and dimensions;
- constants: of any datatype, bits and shape, without elements too; values of all literals;
- the module: attributes, virtual devices and other global infos, or none.

No array is passed and nothing is aliased: `graphs.py` draws programs to be run.
"""

# ruff: noqa: E731 (choices are drawn lazily, and each is a line)

import math
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.global_info import DummyGlobalInfo, VDevice
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import TensorStructInfo as Tensor
from relaxpy.ir.tir import expr as tir, ops, stmt
from relaxpy.ir.tir.buffer import decl_buffer
from relaxpy.ir.tir.prim_func import PrimFunc
from tests.fuzz.hard_texts import attributes, hints, strings

UNIT = rx.TupleStructInfo(())
DTYPES = ["float32", "int8", "float16", "bool", "bfloat16", "float8_e4m3fn", "uint64", "float64"]


class Graphs:
    """Draws a module of one graph function and the kernels that it calls."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.module = IRModule()
        self.sizes: list[tir.Var] = []
        self.known: list[rx.Var] = []
        self.helpers: list[rx.GlobalVar] = []
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

    def sinfo(self, depth: int = 1) -> rx.StructInfo:
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
            inner = lambda: [self.sinfo(depth - 1) for _ in range(self.draw(st.integers(0, 3)))]
            choices += [
                lambda: rx.TupleStructInfo(inner()),
                lambda: rx.FuncStructInfo(inner(), self.sinfo(depth - 1), self.draw(st.booleans())),
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
            self.bits,
            lambda: rx.PrimValue(ops.const(self.draw(st.integers(-5, 5)), "int64")),
            lambda: rx.PrimValue(ops.const(1.5, "float64")),
            lambda: rx.PrimValue(tir.FloatImm("float64", self.draw(st.floats()))),
            lambda: rx.StringImm(self.draw(strings | st.text(max_size=5))),
            lambda: rx.DataTypeImm(self.draw(st.sampled_from(DTYPES))),
            lambda: rx.ShapeExpr([self.size() for _ in range(self.draw(st.integers(0, 2)))]),
        ]
        variables = [lambda: self.draw(st.sampled_from(self.known))] * 4
        return self.draw(st.sampled_from(literals + (variables if self.known else [])))()

    def bits(self) -> rx.Expr:
        """A constant of any datatype and any bits, small or large, with or without elements."""
        dtype = self.draw(st.sampled_from([d for d in DTYPES if d != "bool"]))
        shape = self.draw(st.sampled_from([(), (0,), (2, 0), (3,), (2, 3, 4), (1, 1)]))
        kind = DataType(dtype).numpy()
        size = math.prod(shape) * kind.itemsize
        data = self.draw(st.binary(min_size=size, max_size=size))
        return rx.Constant(np.frombuffer(data, kind).reshape(shape))

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
            self.call_global,
            self.leaf,
        ]
        if not pure:
            makers += [self.packed, self.packed]
        return self.draw(st.sampled_from(makers))()

    def projection(self) -> rx.Expr | None:
        if self.known and self.draw(st.integers(0, 2)) == 0:
            fields = [self.draw(st.sampled_from(self.known)) for _ in range(2)]
            return rx.TupleGetItem(rx.Tuple(fields), self.draw(st.integers(0, 1)))
        found = self.pick(rx.TupleStructInfo)
        if found is None or not found.struct_info.fields:
            return None
        return rx.TupleGetItem(found, self.draw(st.integers(0, len(found.struct_info.fields) - 1)))

    def shape_of(self) -> rx.Expr | None:
        found = self.pick(Tensor)
        if found is None:
            return None
        values, ndim = found.struct_info.get_shape(), found.struct_info.ndim
        sinfo = rx.ShapeStructInfo(ndim=ndim) if values is None else rx.ShapeStructInfo(values)
        return rx.Call(Op("relax.shape_of"), (found,), struct_info=sinfo)

    def packed(self) -> rx.Expr:
        self.pure = False
        sinfos = [self.sinfo() for _ in range(self.draw(st.integers(0, 2)))]
        attrs = self.draw(attributes)
        sinfo = sinfos[0] if len(sinfos) == 1 else rx.TupleStructInfo(sinfos)
        return rx.Call(
            rx.ExternFunc(self.draw(strings)),
            [self.leaf() for _ in range(self.draw(st.integers(0, 2)))],
            attrs,
            sinfos,
            struct_info=sinfo if sinfos else rx.ObjectStructInfo(),
        )

    def pure_packed(self) -> rx.Expr:
        sinfo = self.sinfo()
        args = (rx.ExternFunc("my.pure"), self.leaf())
        return rx.Call(Op("relax.call_pure_packed"), args, {}, [sinfo], struct_info=sinfo)

    def call_global(self) -> rx.Expr | None:
        """A call of one of the helpers."""
        if not self.helpers:
            return None
        func = self.draw(st.sampled_from(self.helpers))
        return rx.Call(func, [self.leaf()], struct_info=rx.ObjectStructInfo())

    def add_helpers(self) -> None:
        """Functions, private and public, that call each other and themselves."""
        plain = ["helper", "sum", "_inner", "cls", "match", "é", "x"]
        names = st.sampled_from([*plain, "class", "R", "a b", "a_b", "range", "__x", ""])
        drawn = self.draw(st.lists(names, max_size=3, unique=True))
        self.helpers = [rx.GlobalVar(name) for name in drawn]
        anything = rx.ObjectStructInfo()
        for var in self.helpers:
            x, y = rx.Var(self.draw(hints), anything), rx.Var(self.draw(hints), anything)
            call = rx.Call(self.draw(st.sampled_from(self.helpers)), [x], struct_info=anything)
            body = rx.SeqExpr([rx.BindingBlock([rx.VarBinding(y, call)])], y)
            attrs = self.draw(st.sampled_from([{}, {"global_symbol": var.name_hint}]))
            self.module[var] = rx.Function([x], body, anything, attrs=attrs)

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
        sinfo = Tensor((size, self.size()), dtype)
        self.sizes.append(size)
        if self.draw(st.booleans()):
            return [rx.MatchCast(None, source, sinfo)]
        return [rx.MatchCast(kind(self.draw(hints), sinfo), source, sinfo)]

    def conditional(self, depth: int) -> list[rx.Binding]:
        sinfo = self.sinfo()
        branches = []
        for _ in range(2):
            before = len(self.known)
            blocks = self.blocks(depth - 1)
            attrs = rx.Call(
                Op("relax.call_pure_packed"), (rx.ExternFunc("f"),), {}, [sinfo], struct_info=sinfo
            )
            result: rx.Expr = rx.Var(self.draw(hints), sinfo)
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
            branches.append(rx.SeqExpr(blocks, result, struct_info=sinfo))
            del self.known[before:]
        condition = rx.const(True, "bool")
        flags = [v for v in self.known if v.struct_info == Tensor((), "bool")]
        test = self.draw(st.sampled_from([condition, *flags]))
        return [self.bound(rx.If(test, *branches, struct_info=sinfo), sinfo)]

    def bound(self, value: rx.If | rx.Function, sinfo: rx.StructInfo) -> rx.Binding:
        """What takes statements to write: bound as it is, or to less, or cast, or cast to less."""
        anything = rx.ObjectStructInfo()
        said = rx.Var(self.draw(hints), self.draw(st.sampled_from([sinfo, sinfo, anything])))
        if self.draw(st.integers(0, 2)):
            return rx.VarBinding(said, value)
        return rx.MatchCast(self.draw(st.sampled_from([said, said, None])), value, sinfo)

    def local_function(self) -> list[rx.Binding]:
        param = rx.Var(self.draw(hints), self.sinfo())
        outer, self.known = self.known, [*self.known, param]
        sizes, pure, self.pure = list(self.sizes), self.pure, True
        blocks = self.blocks(1)
        func = rx.Function([param], rx.SeqExpr(blocks, param), param.struct_info, self.pure)
        self.known, self.sizes, self.pure = outer, sizes, pure
        sinfo = rx.FuncStructInfo([param.struct_info], param.struct_info, func.is_pure)
        return [self.bound(func, sinfo)]

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
            rx.Var(self.draw(hints), self.sinfo()) for _ in range(self.draw(st.integers(0, 2)))
        ]
        params.append(rx.Var(self.draw(hints), Tensor((), "bool")))
        self.known = list(params)
        blocks = self.blocks(2)
        result = self.draw(st.sampled_from([v for v in self.known if v in params]))
        attrs = self.draw(attributes)
        symbol = {"global_symbol": self.draw(st.sampled_from(["main", "other"]))}
        return rx.Function(
            params, rx.SeqExpr(blocks, result), result.struct_info, self.pure, {**attrs, **symbol}
        )


@st.composite
def modules(draw: st.DrawFn) -> IRModule:
    graphs = Graphs(draw)
    graphs.add_helpers()
    func = graphs.function()
    graphs.module["main"] = func
    infos = draw(st.sampled_from([{}, {"vdevice": [VDevice("cuda", 1)], "d": [DummyGlobalInfo()]}]))
    return IRModule(graphs.module.functions, attrs=draw(attributes), global_infos=infos)
