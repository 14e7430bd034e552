"""PrimExprs as TVMScript, with Python operators where these build exactly the same node."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from relaxpy.ir.core.dtype import INT32, DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.op import Op
from relaxpy.ir.short_text.document import Concat, Doc, Group, Infix, call, keyword
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.intrinsics import BITWISE
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.ir.tir.prim_func import call_kernel, kernel_call
from relaxpy.ir.tir.reduce import CommReducer, Reduce

if TYPE_CHECKING:
    from relaxpy.ir.short_text.nodes import ShortText

Fold = Callable[[tir.PrimExpr, tir.PrimExpr], tir.PrimExpr]

_INFIX: dict[type[tir.PrimExpr], tuple[str, int, Fold]] = {
    tir.Or: ("or", 1, ops.any_of),
    tir.And: ("and", 2, ops.all_of),
    tir.EQ: ("==", 4, lambda a, b: ops.compare(tir.EQ, a, b)),
    tir.NE: ("!=", 4, lambda a, b: ops.compare(tir.NE, a, b)),
    tir.LT: ("<", 4, lambda a, b: ops.compare(tir.LT, a, b)),
    tir.LE: ("<=", 4, lambda a, b: ops.compare(tir.LE, a, b)),
    tir.GT: (">", 4, lambda a, b: ops.compare(tir.GT, a, b)),
    tir.GE: (">=", 4, lambda a, b: ops.compare(tir.GE, a, b)),
    tir.Add: ("+", 9, ops.add),
    tir.Sub: ("-", 9, ops.sub),
    tir.Mul: ("*", 10, ops.mul),
    tir.Div: ("/", 10, ops.true_div),
    tir.FloorDiv: ("//", 10, ops.floordiv),
    tir.FloorMod: ("%", 10, ops.floormod),
}
_FUNCTIONS: dict[type[tir.PrimExpr], tuple[str, Fold]] = {
    tir.Min: ("min", ops.minimum),
    tir.Max: ("max", ops.maximum),
    tir.Mod: ("truncmod", ops.truncmod),
}
# Intrinsics whose name in a program differs from the operator's name.
_SPELLINGS = {"fabs": "abs", "tvm_call_packed": "call_packed"}
_DTYPE_FIRST = ("call_extern", "call_pure_extern", "reinterpret")
_NOT = 3
_COMPARISON = 4
UNARY = 11
ATOM = 20


class ScalarText:
    """Writes one PrimExpr, operands first."""

    def __init__(self, text: ShortText, int_dtype: DataType) -> None:
        self.text = text
        self.int_dtype = int_dtype
        self.done: dict[int, tuple[Doc, int]] = {}

    def write(self, root: tir.PrimExpr) -> tuple[Doc, int]:
        """Return the document and the precedence of its outermost operator."""
        for node in walk(root):
            if isinstance(node, tir.PrimExpr) and not isinstance(node, tir.ConstExpr):
                doc, level = self._node(node)
                self.done[id(node)] = self.text.written(node, doc), level
        return self.done[id(root)]

    def _operand(self, expr: tir.PrimExpr, bare: DataType = INT32) -> tuple[Doc, int]:
        if isinstance(expr, tir.ConstExpr):
            return self.text.literal(expr, bare)
        return self.done[id(expr)]

    def _operand_doc(self, expr: tir.PrimExpr) -> Doc:
        return self._operand(expr)[0]

    def _call(self, name: str, *args: Doc) -> tuple[Doc, int]:
        return call(f"{self.text.tir_prefix}.{name}", *args), ATOM

    def _node(self, expr: tir.PrimExpr) -> tuple[Doc, int]:
        match expr:
            case tir.Var():
                return self.text.name_of(expr), ATOM
            case tir.Junction() | tir.BinaryOpExpr():
                return self._binary(expr)
            case tir.Not(a=a):
                if isinstance(a, tir.ConstExpr):
                    return self._call("Not", self._operand_doc(a))
                doc, level = self._operand(a)
                return Concat("not ", doc if level > _NOT else _parenthesised(doc)), _NOT
            case tir.Cast(dtype=dtype, value=inner):
                return self._call("Cast", f'"{dtype}"', self._operand_doc(inner))
            case tir.Select(condition=c, true_value=a, false_value=b):
                return self._call("Select", *map(self._operand_doc, (c, a, b)))
            case tir.Ramp(base=base, stride=stride, lanes=lanes):
                docs = (self._operand_doc(base), self._operand_doc(stride), self._field(lanes))
                return self._call("Ramp", *docs)
            case tir.Broadcast(value=value, lanes=lanes):
                return self._call("Broadcast", self._operand_doc(value), self._field(lanes))
            case tir.Shuffle(vectors=vectors, indices=indices):
                groups = (Group("[", map(self._operand_doc, g), "]") for g in (vectors, indices))
                return self._call("Shuffle", *groups)
            case tir.Let(var=var, value=value, body=body):
                entry = Concat(f"{self.text.name_of(var)}: ", self._operand_doc(value))
                where = keyword("where", Group("{", [entry], "}"))
                return self._call("Let", self._operand_doc(body), where)
            case BufferLoad(buffer=buffer, indices=indices, predicate=predicate):
                return self.text.access_doc(buffer, indices, predicate), ATOM
            case tir.Call(op=op, args=args):
                return self._intrinsic(expr, op, args)
            case _:
                names = Reduce.__match_args__ if isinstance(expr, Reduce) else expr._fields
                fields = (self._field(getattr(expr, name)) for name in names)
                return self._call(type(expr).__name__, *fields)

    def _binary(self, expr: tir.Junction | tir.BinaryOpExpr) -> tuple[Doc, int]:
        a, b = expr.a, expr.b
        # An integer without a datatype takes the datatype of the operand that is not a literal.
        left = self._operand(a, INT32 if isinstance(b, tir.ConstExpr) else self.int_dtype)
        right = self._operand(b, INT32 if isinstance(a, tir.ConstExpr) else self.int_dtype)
        kind = type(expr)
        if kind in _INFIX:
            sign, level, fold = _INFIX[kind]
            if _rebuilds(fold, expr, a, b):
                return self._infix(sign, level, left, right)
        elif kind in _FUNCTIONS:
            name, fold = _FUNCTIONS[kind]
            if _rebuilds(fold, expr, a, b):
                return self._call(name, left[0], right[0])
        return self._call(kind.__name__, left[0], right[0])

    def _infix(
        self, sign: str, level: int, a: tuple[Doc, int], b: tuple[Doc, int]
    ) -> tuple[Doc, int]:
        (left, left_level), (right, right_level) = a, b
        if left_level < level or left_level == level == _COMPARISON:
            left = _parenthesised(left)
        if right_level <= level:
            right = _parenthesised(right)
        return Infix(left, sign, right, level), level

    def _intrinsic(
        self, expr: tir.Call, op: Node, args: tuple[tir.PrimExpr, ...]
    ) -> tuple[Doc, int]:
        docs = [self._field(a) for a in args]
        if not isinstance(op, Op):
            return call(self.text.name_of(op), *docs), ATOM
        name = op.name.removeprefix("tir.")
        external = kernel_call(expr)
        if external is not None:
            kernel, launch, options = external
            if _rebuilds(partial(call_kernel, kernel, launch, **options), expr, *args[3:]):
                keywords = [keyword(k, self._option(v)) for k, v in options.items()]
                return self._call(name, docs[0], self._option(launch), *docs[3:], *keywords)
        spelling = _SPELLINGS.get(name, name)
        if name in BITWISE:
            if name == "bitwise_not" or _rebuilds(
                lambda a, b: ops.bitwise(op.name, a, b), expr, *args
            ):
                return self._call(name, *docs)
        elif op.has_attr("TCallEffectKind") and hasattr(intrin, spelling):
            dtype = (expr.dtype,) if name in _DTYPE_FIRST else ()
            values = (a.value if isinstance(a, tir.StringImm) else a for a in args)
            if _rebuilds(getattr(intrin, spelling), expr, *dtype, *values):
                shown = name if name == "fabs" else spelling
                return self._call(shown, *(f'"{d}"' for d in dtype), *docs)
        elif name in self.text.intrinsics:
            function = self.text.intrinsics[name]
            plain = [a.value if isinstance(a, tir.StringImm) else a for a in args]
            for lead in ((), (expr.dtype,)):
                if _rebuilds(function, expr, *lead, *plain):
                    return self._call(name, *(f'"{d}"' for d in lead), *docs)
        return self._call("call_intrin", f'"{expr.dtype}"', f'"{op.name}"', *docs)

    def _option(self, value: object) -> Doc:
        if isinstance(value, list):
            return Group("[", map(self._option, value), "]")
        return self._field(tir.StringImm(value) if isinstance(value, str) else value)

    def _field(self, value: object) -> Doc:
        if isinstance(value, tir.PrimExpr):
            return self._operand_doc(value) if id(value) in self.done else self.text.prim_doc(value)
        if isinstance(value, tuple):
            return Group("[", map(self._field, value), "]")
        if isinstance(value, (CommReducer, IterVar)):
            return self.text.attr_doc(value)
        return repr(value)


def _rebuilds(function: Callable[..., tir.PrimExpr], expr: tir.PrimExpr, *args: object) -> bool:
    """Return whether `function(*args)` is `expr` itself, so that nothing was folded."""
    if isinstance(expr, tir.BinaryOpExpr) and not any(isinstance(a, tir.ConstExpr) for a in args):
        match expr:
            case tir.Div():
                return not expr.dtype.is_int
            case tir.FloorDiv() | tir.FloorMod():
                return expr.dtype.is_int
            case tir.Min() | tir.Max():
                return expr.a is not expr.b
            case _:
                return True
    try:
        return function(*args) is expr
    except (TypeError, ValueError):  # MisuseError is both; the call is malformed
        return False


def _parenthesised(doc: Doc) -> Doc:
    return Concat("(", doc, ")")
