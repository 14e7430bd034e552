"""The short text of PrimExprs, struct info and leaves, for messages and for the printer.

The text parses to the same nodes: where an operator of the language would fold its operands, the
constructor of the node is written instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from keyword import kwlist

from relaxpy.errors import MisuseError
from relaxpy.ir.core.device import Device
from relaxpy.ir.core.dtype import BOOL, INT32, INT64, DataType
from relaxpy.ir.core.node import Attrs, Node, too_deep
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.global_info import DummyGlobalInfo, VDevice
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DeviceMesh, DTensorStructInfo, Placement
from relaxpy.ir.relax.nodes.static_type import Type, wrap_type
from relaxpy.ir.short_text.document import (
    Concat,
    Doc,
    Group,
    Infix,
    call,
    constant_literal,
    flat,
    float_text,
    keyword,
    python_float_text,
    string_text,
    tuple_doc,
)
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion, vector_index
from relaxpy.ir.tir.intrinsics import BITWISE
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import call_kernel, kernel_call
from relaxpy.ir.tir.reduce import CommReducer, Reduce

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
        self.done: dict[tir.PrimExpr, tuple[Doc, int]] = {}

    def write(self, root: tir.PrimExpr) -> tuple[Doc, int]:
        """The document and the precedence of its outermost operator."""
        for node in walk(root):
            if not isinstance(node, tir.PrimExpr) or isinstance(node, tir.ConstExpr):
                continue
            if node not in self.done:
                doc, level = self._node(node)
                self.done[node] = self.text.written(node, doc), level
        return self.done[root]

    def _operand(self, expr: tir.PrimExpr, bare: DataType = INT32) -> tuple[Doc, int]:
        if isinstance(expr, tir.ConstExpr):
            return self.text.literal(expr, bare)
        return self.done[expr]

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
                return self.text.access_doc(buffer, indices, predicate, self._index_doc), ATOM
            case tir.Call(op=op, args=args):
                return self._intrinsic(expr, op, args)
            case tir.PrimExpr(_fields=("producer", "indices")):  # an element of a tensor
                producer, indices = (getattr(expr, field) for field in expr._fields)
                written = self.text.index_docs(indices, self._index_doc)
                return Group(f"{producer.name}[", written, "]"), ATOM
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

    def _index_doc(self, index: tir.PrimExpr) -> Doc:
        """An index, or the end of a slice, whose subexpressions are written once."""
        if isinstance(index, tir.ConstExpr):
            return self.text.prim_doc(index)
        return self.write(index)[0]

    def _option(self, value: object) -> Doc:
        if isinstance(value, list):
            return Group("[", map(self._option, value), "]")
        return self._field(tir.StringImm(value) if isinstance(value, str) else value)

    def _field(self, value: object) -> Doc:
        if isinstance(value, tir.PrimExpr):
            return self._operand_doc(value) if value in self.done else self.text.prim_doc(value)
        if isinstance(value, tuple):
            return Group("[", map(self._field, value), "]")
        if isinstance(value, (CommReducer, IterVar)):
            return self.text.attr_doc(value)
        return repr(value)


def _rebuilds(function: Callable[..., tir.PrimExpr], expr: tir.PrimExpr, *args: object) -> bool:
    """True if `function(*args)` is `expr` itself, so that nothing was folded."""
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


_INLINE_CONSTANT = 16


def _variable_name(variable: Node) -> str:
    if isinstance(variable, (tir.Var, Buffer)):
        return variable.name
    return getattr(variable, "name_hint", "?")


class ShortText:
    """Writes leaves of the IR, as documents or, with `prim`, `struct_info` and `leaf`, as text.

    `name_of` returns a variable's name. `int_dtype` is the datatype of an integer without a
    datatype: int32 in a kernel, int64 in the dimensions of Relax.
    """

    def __init__(
        self,
        name_of: Callable[[Node], str] = _variable_name,
        *,
        tir_prefix: str = "T",
        relax_prefix: str = "R",
        ir_prefix: str = "I",
    ) -> None:
        self.name_of = name_of
        self.ir_prefix = ir_prefix
        self.tir_prefix = tir_prefix
        self.relax_prefix = relax_prefix
        self._tensors: dict[tuple[object, ...], Doc] = {}

    @property
    def intrinsics(self) -> Mapping[str, Callable[..., tir.PrimExpr]]:
        """Functions of the language that build calls of intrinsics, besides those of `intrin`."""
        return {}

    def prim(self, expr: tir.PrimExpr, int_dtype: DataType = INT32) -> str:
        """A PrimExpr as TVMScript on one line."""
        return flat(self.prim_doc(expr, int_dtype))

    def struct_info(self, sinfo: rx.StructInfo, *, quoted: frozenset[tir.Var] = frozenset()) -> str:
        """Struct info as TVMScript on one line."""
        return flat(self.struct_info_doc(sinfo, quoted))

    def leaf(self, expr: Node) -> str:
        """A variable, a literal, or a tuple of them on one line."""
        return flat(self.leaf_doc(expr))

    def written(self, node: Node, doc: Doc) -> Doc:
        """The document of `node` at its use; `doc` is its text."""
        return doc

    # PrimExprs: operands first, so that depth is not limited by the stack.

    def prim_doc(self, expr: tir.PrimExpr, int_dtype: DataType = INT32) -> Doc:
        """A PrimExpr as TVMScript."""
        if isinstance(expr, tir.Var):
            return self.name_of(expr)
        if isinstance(expr, tir.ConstExpr):
            return self.written(expr, self.literal(expr, int_dtype)[0])
        return ScalarText(self, int_dtype).write(expr)[0]

    def literal(self, expr: tir.ConstExpr, bare: DataType) -> tuple[Doc, int]:
        """A literal where an integer without a datatype would be parsed as `bare`."""
        match expr:
            case tir.IntImm(dtype=dtype, value=value):
                if dtype == bare and not dtype.is_bool:
                    return str(value), ATOM if value >= 0 else UNARY
                text = str(bool(value)) if dtype == BOOL else str(value)
                return f"{self.tir_prefix}.{dtype}({text})", ATOM
            case tir.FloatImm(dtype=dtype, value=value):
                return f"{self.tir_prefix}.{dtype}({float_text(value)})", ATOM
            case _:
                return string_text(str(expr.value)), ATOM

    def index_docs(
        self, indices: Iterable[tir.PrimExpr], doc: Callable[[tir.PrimExpr], Doc] | None = None
    ) -> list[Doc]:
        """The indices of an access: a Ramp is a slice, with its step if that is not 1.

        `doc` writes an expression.
        """
        doc = doc or self.prim_doc
        out: list[Doc] = []
        for index in indices:
            slice_doc = self._slice_doc(index, doc)
            out.append(doc(index) if slice_doc is None else slice_doc)
        return out or ["()"]

    def _slice_doc(self, index: tir.PrimExpr, doc: Callable[[tir.PrimExpr], Doc]) -> Doc | None:
        match index:
            case tir.Ramp(base=base, stride=tir.IntImm(value=step), lanes=lanes):
                stop = ops.add(base, step * lanes)
                if step < 1 or vector_index(slice(base, stop, step), stop) is not index:
                    return None
                bounds = Concat(doc(base), ":", doc(stop))
                return bounds if step == 1 else Concat(bounds, f":{step}")
            case _:
                return None

    def access_doc(
        self,
        buffer: Buffer,
        indices: Iterable[tir.PrimExpr],
        predicate: tir.PrimExpr | None = None,
        doc: Callable[[tir.PrimExpr], Doc] | None = None,
    ) -> Doc:
        """`buffer[indices]`, in which `doc` writes an expression."""
        doc = doc or self.prim_doc
        if predicate is not None:
            begin, mask = Group("[", map(doc, indices), "]"), keyword("predicate", doc(predicate))
            return call(f"{self.name_of(buffer)}.vload", begin, mask)
        return Group(f"{self.name_of(buffer)}[", self.index_docs(indices, doc), "]")

    def bounds_docs(self, start: tir.PrimExpr, extent: tir.PrimExpr) -> tuple[Doc, Doc]:
        """The begin and the end of a range, such that `Range(begin, end)` equals it."""
        stop = ops.add(start, extent)
        if isinstance(extent, tir.Sub) and extent.b is start:
            parsed = Range(start, extent.a)
            stop = extent.a if parsed.extent is extent else stop
        return self.prim_doc(start), self.prim_doc(stop)

    def range_doc(self, rng: Range) -> Doc:
        """A range as an index: a point, or a slice."""
        if isinstance(rng.extent, tir.IntImm) and rng.extent.value == 1:
            return self.prim_doc(rng.min)
        start, stop = self.bounds_docs(rng.min, rng.extent)
        return Concat(start, ":", stop)

    def region_doc(self, region: BufferRegion) -> Doc:
        """A region as slices of its buffer."""
        indices = [self.range_doc(r) for r in region.region] or ["()"]
        return Group(f"{self.name_of(region.buffer)}[", indices, "]")

    # Struct info

    def dim_docs(
        self, values: Iterable[tir.PrimExpr], quoted: frozenset[tir.Var] = frozenset()
    ) -> list[Doc]:
        """Dimensions; those over variables in `quoted` are strings, as in signatures."""
        return [self._dim(v, quoted) for v in values]

    def _dim(self, value: tir.PrimExpr, quoted: frozenset[tir.Var]) -> Doc:
        doc = self.prim_doc(value, INT64)
        if not quoted or isinstance(value, tir.ConstExpr):
            return doc
        if isinstance(value, tir.Var) and value in quoted and value.dtype != INT64:
            return string_text(f"{flat(doc)}: {value.dtype}")
        if any(v in quoted for v in walk(value) if isinstance(v, tir.Var)):
            return string_text(flat(doc))
        return doc

    def struct_info_doc(
        self, sinfo: rx.StructInfo, quoted: frozenset[tir.Var] = frozenset()
    ) -> Doc:
        """Struct info as TVMScript; dimensions over variables in `quoted` are strings."""
        r = self.relax_prefix
        match sinfo:
            case rx.ObjectStructInfo():
                return f"{r}.Object"
            case rx.PrimStructInfo(dtype=dtype, value=None):
                return f'{r}.Prim("{dtype}")'
            case rx.PrimStructInfo(value=tir.PrimExpr() as value):
                return call(f"{r}.Prim", keyword("value", self._dim(value, quoted)))
            case rx.ShapeStructInfo(values=None, ndim=ndim):
                return f"{r}.Shape" if ndim < 0 else f"{r}.Shape(ndim={ndim})"
            case rx.ShapeStructInfo(values=tuple() as values):
                return call(f"{r}.Shape", Group("[", self.dim_docs(values, quoted), "]"))
            case rx.TensorStructInfo():
                return self._tensor(sinfo, quoted)
            case rx.TupleStructInfo(fields=fields):
                return call(f"{r}.Tuple", *(self.struct_info_doc(f, quoted) for f in fields))
            case rx.FuncStructInfo():
                return self._callable(sinfo, quoted)
            case DTensorStructInfo():
                return self._distributed_tensor(sinfo, quoted)
            case _:
                return f"<{type(sinfo).__name__}>"

    def _tensor(self, sinfo: rx.TensorStructInfo, quoted: frozenset[tir.Var]) -> Doc:
        """The struct info of a tensor; the texts are cached by the fields."""
        shape = sinfo.shape.values if isinstance(sinfo.shape, rx.ShapeExpr) else sinfo.shape
        key = (shape, sinfo.dtype, sinfo.ndim, sinfo.vdevice, quoted)
        doc = self._tensors.get(key)
        if doc is None:
            doc = self._tensors[key] = self._tensor_doc(sinfo, quoted)
            if isinstance(doc, Group):
                doc.text = flat(doc)
        return doc

    def _tensor_doc(self, sinfo: rx.TensorStructInfo, quoted: frozenset[tir.Var]) -> Doc:
        args: list[Doc] = []
        if isinstance(sinfo.shape, rx.ShapeExpr):
            args.append(tuple_doc(self.dim_docs(sinfo.shape.values, quoted)))
        elif sinfo.shape is not None:
            args.append(self.leaf_doc(sinfo.shape))
        if not sinfo.dtype.is_void:
            args.append(f'dtype="{sinfo.dtype}"')
        if sinfo.shape is None and sinfo.ndim >= 0:
            args.append(f"ndim={sinfo.ndim}")
        if sinfo.vdevice is not None:
            args.append(keyword("vdevice", self.device_doc(sinfo.vdevice)))
        name = f"{self.relax_prefix}.Tensor"
        return call(name, *args) if args else name

    def _distributed_tensor(self, sinfo: DTensorStructInfo, quoted: frozenset[tir.Var]) -> Doc:
        tensor = sinfo.tensor_sinfo
        shape: Doc = "None"
        if isinstance(tensor.shape, rx.ShapeExpr):
            shape = tuple_doc(self.dim_docs(tensor.shape.values, quoted))
        elif tensor.shape is not None:
            shape = self.leaf_doc(tensor.shape)
        dtype = "None" if tensor.dtype.is_void else string_text(str(tensor.dtype))
        args = [shape, dtype, self.attr_doc(sinfo.device_mesh), string_text(str(sinfo.placement))]
        if tensor.shape is None and tensor.ndim >= 0:
            args.append(f"ndim={tensor.ndim}")
        return call(f"{self.relax_prefix}.DTensor", *args)

    def _callable(self, sinfo: rx.FuncStructInfo, quoted: frozenset[tir.Var]) -> Doc:
        name = f"{self.relax_prefix}.Callable"
        if sinfo.params is not None:
            params = tuple_doc(self.struct_info_doc(p, quoted) for p in sinfo.params)
            return call(name, params, self.struct_info_doc(sinfo.ret, quoted), str(sinfo.purity))
        args: list[Doc] = []
        derive = sinfo.derive_func
        if derive is not None and derive is not rx.EMPTY_DERIVE:
            if derive == rx.FuncStructInfo.opaque_func(ret=sinfo.ret).derive_func:
                args.append(keyword("ret", self.struct_info_doc(sinfo.ret, quoted)))
            else:
                args.append(f"derive_func={string_text(derive.name)}")
        if sinfo.purity:
            args.append("purity=True")
        return call(name, *args) if args else name

    # Leaves of Relax, and attributes

    def leaf_doc(self, expr: Node) -> Doc:
        """A variable, a literal, or a tuple of them."""
        return self.written(expr, self._leaf(expr))

    def _leaf(self, expr: Node) -> Doc:
        r = self.relax_prefix
        match expr:
            case rx.Var() | rx.GlobalVar():
                return self.name_of(expr)
            case rx.PrimValue(value=value):
                return call(f"{r}.prim_value", self.prim_doc(value, INT64))
            case rx.StringImm(value=value):
                return f"{r}.str({string_text(value)})"
            case rx.DataTypeImm(value=value):
                return f'{r}.dtype("{value}")'
            case rx.ShapeExpr(values=values):
                return call(f"{r}.shape", Group("[", self.dim_docs(values), "]"))
            case rx.Tuple(fields=fields):
                return tuple_doc(self.leaf_doc(f) for f in fields) if fields else f"{r}.tuple()"
            case rx.TupleGetItem(tuple_value=value, index=index):
                return Concat(self.leaf_doc(value), f"[{index}]")
            case rx.ExternFunc(global_symbol=name, struct_info=sinfo):
                extern_args: list[Doc] = [string_text(name)]
                if sinfo is not None and sinfo != rx.ExternFunc(name).struct_info:
                    extern_args.append(self.struct_info_doc(sinfo))
                return call(f"{r}.ExternFunc", *extern_args)
            case rx.Constant():
                return self.constant_doc(expr)
            case Op(name=name):
                return name
            case _:
                return self.opaque_doc(expr)

    def constant_doc(self, expr: rx.Constant) -> Doc:
        """A tensor literal in full, or a summary of a large one."""
        inline = self.small_constant(expr)
        if inline is not None:
            return inline
        sinfo = expr.data_sinfo
        return f"<{sinfo.dtype} constant of shape {sinfo.get_shape()}>"

    def small_constant(self, expr: rx.Constant) -> Doc | None:
        """A small tensor literal in full, or None if it is large."""
        if expr.size > _INLINE_CONSTANT:
            return None
        return call(f"{self.relax_prefix}.const", *constant_literal(expr.data))

    def attr_doc(self, value: object) -> Doc:
        """The value of an attribute or annotation."""
        match value:
            case bool() | None:
                return repr(value)
            case int():
                return int.__repr__(value)
            case float():
                return python_float_text(value)
            case str():
                return string_text(value)
            case tuple() | list():
                return Group("[", map(self.attr_doc, value), "]")
            case Attrs() | Mapping():
                return self.table_doc(value)
            case tir.PrimExpr():
                return self.prim_doc(value)
            case rx.StructInfo():
                return self.struct_info_doc(value)
            case Type():
                return self.struct_info_doc(wrap_type(value))
            case VDevice():
                return self.listed_device_doc(value)
            case Device(kind=kind, index=index):
                return call(f"{self.relax_prefix}.{kind}", str(index))
            case DeviceMesh():
                return self.mesh_doc(value)
            case Placement():
                return string_text(str(value))
            case IterVar(dom=dom, var=var, iter_type=kind, thread_tag=tag):
                dom_doc: Doc = "None"
                if dom is not None:
                    bounds = self.bounds_docs(dom.min, dom.extent)
                    dom_doc = call(f"{self.tir_prefix}.Range", *bounds)
                name = f"{self.tir_prefix}.iter_var"
                return call(name, self.prim_doc(var), dom_doc, f'"{kind.name}"', string_text(tag))
            case IndexMap():
                return self._index_map(value)
            case CommReducer():
                return self._reducer(value)
            case DummyGlobalInfo():
                return f"{self.ir_prefix}.dummy_global_info()"
            case rx.Tuple(fields=(_, *_) as fields):  # brackets would make a list
                return call(f"{self.relax_prefix}.tuple", *map(self.attr_doc, fields))
            case rx.Expr():
                return self.leaf_doc(value)
            case Buffer():
                return self.name_of(value)
            case _:
                return self.opaque_doc(value)

    def _index_map(self, value: IndexMap) -> Doc:
        """An index map as a lambda expression, where its variables allow that."""
        dtypes = {var.dtype for var in value.initial_indices}
        if len(dtypes) != 1:
            return self.opaque_doc(value)
        [dtype] = dtypes
        args = [self._lambda(value.initial_indices, value.final_indices, dtype)]
        inverse = value.inverse_index_map
        if inverse is not None:
            shown = self._lambda(inverse.initial_indices, inverse.final_indices, dtype)
            args.append(keyword("inverse_index_map", shown))
        if dtype != INT64:
            args.append(keyword("index_dtype", f'"{dtype}"'))
        return call(f"{self.tir_prefix}.index_map", *args)

    def _reducer(self, value: CommReducer) -> Doc:
        """A reducer as a lambda expression, where that determines all its fields."""
        operands = value.lhs + value.rhs
        triples = zip(value.lhs, value.rhs, value.identity_element, strict=True)
        if any(x.dtype != e.dtype or y.dtype != e.dtype for x, y, e in triples) or any(
            isinstance(v, tir.Var) and v not in operands for r in value.result for v in walk(r)
        ):
            return self.opaque_doc(value)
        return call(
            f"{self.tir_prefix}.comm_reducer",
            self._lambda(operands, value.result, scalar=len(value.result) == 1),
            Group("[", map(self.prim_doc, value.identity_element), "]"),
        )

    def _lambda(
        self,
        variables: tuple[tir.Var, ...],
        results: tuple[tir.PrimExpr, ...],
        int_dtype: DataType = INT32,
        *,
        scalar: bool = False,
    ) -> Doc:
        """A lambda expression, in which no variable hides another name."""
        taken = {self.tir_prefix, *kwlist}
        taken |= {
            self.name_of(v)
            for result in results
            for v in walk(result)
            if isinstance(v, tir.Var) and v not in variables
        }
        names = [var.name for var in variables]
        plain = all(n.isidentifier() and n.isascii() and n[:2] != "__" for n in names)
        if not plain or len({*names} - taken) < len(names):
            names = [f"v{k}" for k in range(len(names))]
            while not taken.isdisjoint(names):
                names = [f"{name}_" for name in names]
        table: dict[Node, str] = dict(zip(variables, names, strict=True))
        inner = ShortText(
            lambda node: table[node] if node in table else self.name_of(node),
            tir_prefix=self.tir_prefix,
            relax_prefix=self.relax_prefix,
            ir_prefix=self.ir_prefix,
        )
        docs = [inner.prim_doc(result, int_dtype) for result in results]
        body = docs[0] if scalar else tuple_doc(docs)
        return Concat(f"lambda {', '.join(names)}: ", body)

    def device_doc(self, device: object) -> Doc:
        """The device of a tensor: "cuda:1" where that determines all fields."""
        if not isinstance(device, VDevice):
            return string_text(str(device))
        if device == VDevice(device.kind, device.vdevice_id) and device.kind:
            return string_text(str(device))
        return self.listed_device_doc(device)

    def listed_device_doc(self, device: VDevice) -> Doc:
        """A device with all its fields, as in the global infos of a module."""
        args = [self.attr_doc(device.target)]
        if device.vdevice_id or device.memory_scope != "global":
            args.append(str(device.vdevice_id))
        if device.memory_scope != "global":
            args.append(string_text(device.memory_scope))
        return call(f"{self.ir_prefix}.vdevice", *args)

    def mesh_doc(self, mesh: DeviceMesh) -> Doc:
        """A mesh with the numbers of its devices."""
        devices = Group("[", map(str, mesh.device_ids), "]")
        name = f"{self.relax_prefix}.dist.device_mesh"
        return call(name, tuple_doc(map(str, mesh.shape)), devices)

    def table_doc(self, items: Mapping[str, object]) -> Doc:
        """A dictionary of attributes."""
        entries = (
            Concat(f"{string_text(str(key))}: ", self.attr_doc(value))
            for key, value in items.items()
        )
        return Group("{", entries, "}")

    def opaque_doc(self, value: object) -> Doc:
        """A placeholder for a value without syntax in the language."""
        return f"<{type(value).__name__}>"


def short_text(node: Node) -> str:
    """The short text of a node, for messages."""
    try:
        return _short_text(node)
    except (RecursionError, MisuseError):
        return too_deep(node)


def _short_text(node: Node) -> str:
    writer = ShortText()
    if isinstance(node, tir.PrimExpr):
        return writer.prim(node)
    if isinstance(node, rx.StructInfo):
        return writer.struct_info(node)
    if isinstance(node, Type):
        return writer.struct_info(wrap_type(node))
    if isinstance(node, BufferRegion):
        return flat(writer.region_doc(node))
    if isinstance(node, IterVar):
        return writer.name_of(node.var)
    if isinstance(node, (CommReducer, IndexMap)):
        return flat(writer.attr_doc(node))
    if isinstance(node, Range):
        start, stop = writer.bounds_docs(node.min, node.extent)
        return flat(call(f"{writer.ir_prefix}.Range", start, stop))
    return writer.leaf(node)


def lambda_variables(node: Node) -> tuple[tir.Var, ...]:
    """The variables that a node binds in the lambda expression it is written as."""
    match node:
        case IndexMap():
            return node.initial_indices
        case CommReducer():
            return node.lhs + node.rhs
        case _:
            return ()
