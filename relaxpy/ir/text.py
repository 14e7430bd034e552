"""The short form of PrimExprs, infos and leaves, as messages and the printer write them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from relaxpy.ir.dtype import BOOL, INT32, DataType
from relaxpy.ir.node import Node
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion, IterVar, Range

_INFIX: dict[type[tir.PrimExpr], tuple[str, int]] = {
    tir.Or: ("or", 1),
    tir.And: ("and", 2),
    tir.EQ: ("==", 4),
    tir.NE: ("!=", 4),
    tir.LT: ("<", 4),
    tir.LE: ("<=", 4),
    tir.GT: (">", 4),
    tir.GE: (">=", 4),
    tir.Add: ("+", 9),
    tir.Sub: ("-", 9),
    tir.Mul: ("*", 10),
    tir.FloorDiv: ("//", 10),
    tir.FloorMod: ("%", 10),
}
_ATOM = 20
_CALL_NAMES = {
    tir.Min: "min",
    tir.Max: "max",
    tir.Mod: "truncmod",
    tir.Select: "Select",
}


def _variable_name(variable: Node) -> str:
    if isinstance(variable, (tir.Var, Buffer)):
        return variable.name
    return getattr(variable, "name_hint", "?")


class ShortText:
    """Writes leaves of the IR; `name_of` gives a variable's name, `int_dtype` what ints read as.

    `int_dtype` is the datatype that a bare integer has where the text is read: int32 in a kernel,
    int64 among dimensions.
    """

    def __init__(
        self,
        name_of: Callable[[Node], str] = _variable_name,
        *,
        tir_prefix: str = "T",
        relax_prefix: str = "R",
    ) -> None:
        self.name_of = name_of
        self.tir_prefix = tir_prefix
        self.relax_prefix = relax_prefix

    def prim(self, expr: tir.PrimExpr, int_dtype: DataType = INT32) -> str:
        """A PrimExpr as TVMScript."""
        return self._prim(expr, int_dtype)[0]

    def _prim(self, expr: tir.PrimExpr, int_dtype: DataType) -> tuple[str, int]:
        """The text, and how tightly its outermost operator binds."""
        t = self.tir_prefix

        def plain(e: tir.PrimExpr) -> str:
            return self._prim(e, int_dtype)[0]

        def call(name: str, *args: str) -> tuple[str, int]:
            return f"{t}.{name}({', '.join(args)})", _ATOM

        match expr:
            case tir.Var():
                return self.name_of(expr), _ATOM
            case tir.IntImm(dtype=dtype, value=value):
                if dtype == BOOL:
                    return call("bool", str(bool(value)))
                if dtype == int_dtype:
                    return str(value), _ATOM if value >= 0 else 11
                return call(str(dtype), str(value))
            case tir.FloatImm(dtype=dtype, value=value):
                return call(str(dtype), float_text(value))
            case tir.StringImm(value=text):
                return repr(text).replace("'", '"') if '"' not in text else repr(text), _ATOM
            case tir.Cast(dtype=dtype, value=inner):
                return call("Cast", f'"{dtype}"', plain(inner))
            case tir.Select(condition=c, true_value=a, false_value=b):
                return call("Select", plain(c), plain(a), plain(b))
            case tir.Not(a=a):
                text, level = self._prim(a, int_dtype)
                return f"not {text if level > 3 else f'({text})'}", 3
            case tir.Div(a=a, b=b):
                if a.dtype.is_int:
                    return call("Div", plain(a), plain(b))
                return self._infix("/", 10, a, b, int_dtype)
            case tir.And() | tir.BinaryOpExpr():
                found = _INFIX.get(type(expr))
                literal = isinstance(expr.a, tir.ConstExpr) and isinstance(expr.b, tir.ConstExpr)
                if found is None or (literal and not isinstance(expr, tir.And)):
                    return call(
                        _CALL_NAMES.get(type(expr), type(expr).__name__),
                        plain(expr.a),
                        plain(expr.b),
                    )
                return self._infix(*found, expr.a, expr.b, int_dtype)
            case tir.Ramp(base=base, stride=stride, lanes=lanes):
                return call("Ramp", plain(base), plain(stride), str(lanes))
            case tir.Broadcast(value=value, lanes=lanes):
                return call("Broadcast", plain(value), str(lanes))
            case tir.Shuffle(vectors=vectors, indices=indices):
                parts = (", ".join(map(plain, group)) for group in (vectors, indices))
                return call("Shuffle", *(f"[{part}]" for part in parts))
            case tir.Let(var=var, value=value, body=body):
                return call("Let", plain(body), f"where={{{self.name_of(var)}: {plain(value)}}}")
            case BufferLoad(buffer=buffer, indices=indices):
                return f"{self.name_of(buffer)}[{self.indices(indices)}]", _ATOM
            case tir.Call(dtype=dtype, op=op, args=args):
                return self._call(dtype, op, args), _ATOM
            case _:
                return f"<{type(expr).__name__}>", _ATOM

    def _infix(
        self, sign: str, level: int, a: tir.PrimExpr, b: tir.PrimExpr, int_dtype: DataType
    ) -> tuple[str, int]:
        left, left_level = self._prim(a, int_dtype)
        right, right_level = self._prim(b, int_dtype)
        chained = level == 4
        if left_level < level or (chained and left_level == level):
            left = f"({left})"
        if right_level <= level:
            right = f"({right})"
        return f"{left} {sign} {right}", level

    def _call(self, dtype: DataType, op: Node, args: tuple[tir.PrimExpr, ...]) -> str:
        t, texts = (
            self.tir_prefix,
            [self.prim(a) if isinstance(a, tir.PrimExpr) else str(a) for a in args],
        )
        if not isinstance(op, Op):
            return f"{self.name_of(op)}({', '.join(texts)})"
        name = op.name.removeprefix("tir.")
        names = {
            "fabs": "fabs",
            "tvm_call_packed": "call_packed",
            "tvm_call_cpacked": "call_cpacked",
        }
        if name in ("call_extern", "call_pure_extern", "reinterpret"):
            texts.insert(0, f'"{dtype}"')
        return f"{t}.{names.get(name, name)}({', '.join(texts)})"

    def indices(self, indices: Iterable[tir.PrimExpr]) -> str:
        """Indices between brackets; a vector index is a slice."""
        out = []
        for index in indices:
            if isinstance(index, tir.Ramp):
                stop = index.base + index.stride * index.lanes
                step = (
                    ""
                    if tir.IntImm(index.stride.dtype, 1) is index.stride
                    else f":{self.prim(index.stride)}"
                )
                out.append(f"{self.prim(index.base)}:{self.prim(stop)}{step or ':1'}")
            else:
                out.append(self.prim(index))
        return ", ".join(out) or "()"

    def range(self, found: Range) -> str:
        """A range between brackets: a point, or a slice."""
        if isinstance(found.extent, tir.IntImm) and found.extent.value == 1:
            return self.prim(found.min)
        return f"{self.prim(found.min)}:{self.prim(found.stop)}"

    def region(self, found: BufferRegion) -> str:
        """A region as slices of its buffer."""
        inside = ", ".join(self.range(r) for r in found.region) or "()"
        return f"{self.name_of(found.buffer)}[{inside}]"

    def dims(
        self, values: Iterable[tir.PrimExpr], *, quoted: frozenset[tir.Var] | None = None
    ) -> list[str]:
        """Dimensions; with `quoted`, symbolic ones are strings, as signatures have them."""
        return [self._dim(v, quoted) for v in values]

    def _dim(self, value: tir.PrimExpr, quoted: frozenset[tir.Var] | None) -> str:
        text = self.prim(value, DataType("int64"))
        if quoted is None or isinstance(value, tir.IntImm):
            return text
        return f'"{text}"'

    def info(self, info: rx.StructInfo, *, quoted: frozenset[tir.Var] | None = None) -> str:
        """An info as TVMScript; with `quoted`, symbolic dimensions are strings."""
        r = self.relax_prefix
        match info:
            case rx.ObjectStructInfo():
                return f"{r}.Object"
            case rx.PrimStructInfo(dtype=dtype, value=value):
                if value is None:
                    return f'{r}.Prim("{dtype}")'
                return f"{r}.Prim(value={self._dim(value, quoted)})"
            case rx.ShapeStructInfo(values=values, ndim=ndim):
                if values is not None:
                    return f"{r}.Shape([{', '.join(self.dims(values, quoted=quoted))}])"
                return f"{r}.Shape" if ndim < 0 else f"{r}.Shape(ndim={ndim})"
            case rx.TensorStructInfo():
                return self._tensor(info, quoted)
            case rx.TupleStructInfo(fields=fields):
                return f"{r}.Tuple({', '.join(self.info(f, quoted=quoted) for f in fields)})"
            case rx.FuncStructInfo(params=params, ret=ret, purity=purity, derive_func=derive):
                if params is None:
                    how = (
                        ""
                        if derive is rx.EMPTY_DERIVE or derive is None
                        else f'derive_func="{derive.name}"'
                    )
                    pure = f"purity={purity}" if purity else ""
                    inside = ", ".join(part for part in (how, pure) if part)
                    return f"{r}.Callable({inside})" if inside else f"{r}.Callable"
                texts = [self.info(p, quoted=quoted) for p in params]
                inner = ", ".join(texts) + ("," if len(texts) == 1 else "")
                return f"{r}.Callable(({inner}), {self.info(ret, quoted=quoted)}, {purity})"
            case _:
                return f"<{type(info).__name__}>"

    def _tensor(self, info: rx.TensorStructInfo, quoted: frozenset[tir.Var] | None) -> str:
        parts = []
        if isinstance(info.shape, rx.ShapeExpr):
            dims = self.dims(info.shape.values, quoted=quoted)
            parts.append(f"({', '.join(dims)}{',' if len(dims) == 1 else ''})")
        elif info.shape is not None:
            parts.append(self.leaf(info.shape))
        if not info.dtype.is_void:
            parts.append(f'dtype="{info.dtype}"')
        if info.shape is None and info.ndim >= 0:
            parts.append(f"ndim={info.ndim}")
        if info.vdevice is not None:
            parts.append(f'vdevice="{info.vdevice}"')
        return (
            f"{self.relax_prefix}.Tensor({', '.join(parts)})"
            if parts
            else f"{self.relax_prefix}.Tensor"
        )

    def leaf(self, expr: Node) -> str:
        """A variable, literal, or tuple of such, on one line."""
        r = self.relax_prefix
        match expr:
            case rx.Var() | rx.GlobalVar():
                return self.name_of(expr)
            case rx.PrimValue(value=value):
                return f"{r}.prim_value({self.prim(value, DataType('int64'))})"
            case rx.StringImm(value=value):
                return f"{r}.str({value!r})"
            case rx.DataTypeImm(value=value):
                return f'{r}.dtype("{value}")'
            case rx.ShapeExpr(values=values):
                return f"{r}.shape([{', '.join(self.dims(values))}])"
            case rx.Tuple(fields=fields):
                inside = ", ".join(self.leaf(f) for f in fields)
                return f"({inside}{',' if len(fields) == 1 else ''})"
            case rx.ExternFunc(global_symbol=name):
                return f'{r}.ExternFunc("{name}")'
            case rx.Constant(data=data):
                return constant_text(data, r)
            case Op(name=name):
                return name
            case _:
                return f"<{type(expr).__name__}>"


def float_text(value: float) -> str:
    """A float as an argument: infinities and NaN as strings."""
    return repr(value) if math.isfinite(value) else f'"{value}"'


def constant_text(
    data: np.ndarray[tuple[int, ...], np.dtype[np.generic]], prefix: str = "R"
) -> str:
    """A tensor literal, cut short where it is long."""
    if data.size > 16:
        return f"<{data.dtype.name} constant of shape {data.shape}>"
    return f'{prefix}.const({data.tolist()!r}, "{DataType(data.dtype)}")'


def short_text(node: Node) -> str:
    """The short form of one node, for messages."""
    writer = ShortText()
    if isinstance(node, tir.PrimExpr):
        return writer.prim(node)
    if isinstance(node, rx.StructInfo):
        return writer.info(node)
    if isinstance(node, BufferRegion):
        return writer.region(node)
    if isinstance(node, IterVar):
        return writer.name_of(node.var)
    if isinstance(node, Range):
        return f"{writer.tir_prefix}.Range({writer.prim(node.min)}, {writer.prim(node.stop)})"
    return writer.leaf(node)
