"""The short form of PrimExprs, infos and leaves, as messages and the printer write them.

What is written reads back to the very same nodes: where an operator of the language would fold what
stands there, the constructor of the node is written in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

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
from relaxpy.ir.short_text.document import Concat, Doc, Group, call, flat, keyword, tuple_doc
from relaxpy.ir.short_text.literals import (
    constant_literal,
    float_text,
    python_float_text,
    string_text,
)
from relaxpy.ir.short_text.scalars import ATOM, UNARY, ScalarText
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.buffer import (
    Buffer,
    BufferRegion,
    IterVar,
    Range,
    vector_index,
)
from relaxpy.ir.tir.reduce import CommReducer

_INLINE_CONSTANT = 16


def _variable_name(variable: Node) -> str:
    if isinstance(variable, (tir.Var, Buffer)):
        return variable.name
    return getattr(variable, "name_hint", "?")


class ShortText:
    """Writes leaves of the IR, as documents or (`prim`, `info`, `leaf`) on one line.

    `name_of` gives a variable's name. A bare integer is int32 in a kernel and int64 among the
    dimensions of Relax; `int_dtype` says which of the two is being written.
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

    def prim(self, expr: tir.PrimExpr, int_dtype: DataType = INT32) -> str:
        """A PrimExpr as TVMScript, on one line."""
        return flat(self.prim_doc(expr, int_dtype))

    def info(self, info: rx.StructInfo, *, quoted: frozenset[tir.Var] = frozenset()) -> str:
        """An info as TVMScript, on one line."""
        return flat(self.info_doc(info, quoted))

    def leaf(self, expr: Node) -> str:
        """A variable, literal, or tuple of such, on one line."""
        return flat(self.leaf_doc(expr))

    # PrimExprs: documents of the parts first, so that no depth is too deep.

    def prim_doc(self, expr: tir.PrimExpr, int_dtype: DataType = INT32) -> Doc:
        """A PrimExpr as TVMScript."""
        if isinstance(expr, tir.Var):
            return self.name_of(expr)
        if isinstance(expr, tir.ConstExpr):
            return self.literal(expr, int_dtype)[0]
        return ScalarText(self, int_dtype).write(expr)[0]

    def literal(self, expr: tir.ConstExpr, bare: DataType) -> tuple[Doc, int]:
        """A literal where a bare integer would be read as `bare`."""
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

    def index_docs(self, indices: Iterable[tir.PrimExpr]) -> list[Doc]:
        """Indices between brackets: a vector of steps is a slice with a step."""
        out: list[Doc] = []
        for index in indices:
            found = self._slice_doc(index)
            out.append(self.prim_doc(index) if found is None else found)
        return out or ["()"]

    def _slice_doc(self, index: tir.PrimExpr) -> Doc | None:
        match index:
            case tir.Ramp(base=base, stride=tir.IntImm(value=step), lanes=int() as lanes):
                stop = ops.add(base, step * lanes)
                if vector_index(slice(base, stop, step)) is not index:
                    return None
                bounds = Concat(self.prim_doc(base), ":", self.prim_doc(stop))
                return Concat(bounds, f":{step}")
            case _:
                return None

    def access_doc(
        self,
        buffer: Buffer,
        indices: Iterable[tir.PrimExpr],
        predicate: tir.PrimExpr | None = None,
    ) -> Doc:
        """`buffer[indices]`."""
        if predicate is not None:
            places = Group("[", (self.prim_doc(i) for i in indices), "]")
            mask = keyword("predicate", self.prim_doc(predicate))
            return call(f"{self.name_of(buffer)}.vload", places, mask)
        return Group(f"{self.name_of(buffer)}[", self.index_docs(indices), "]")

    def bounds_docs(self, start: tir.PrimExpr, extent: tir.PrimExpr) -> tuple[Doc, Doc]:
        """First and one past the last of a stretch, such that Range() of them gives it back."""
        stop = ops.add(start, extent)
        if isinstance(extent, tir.Sub) and extent.b is start:
            again = Range(start, extent.a)
            stop = extent.a if again.extent is extent else stop
        return self.prim_doc(start), self.prim_doc(stop)

    def range_doc(self, found: Range) -> Doc:
        """A range between brackets: a point, or a slice."""
        if isinstance(found.extent, tir.IntImm) and found.extent.value == 1:
            return self.prim_doc(found.min)
        start, stop = self.bounds_docs(found.min, found.extent)
        return Concat(start, ":", stop)

    def region_doc(self, found: BufferRegion) -> Doc:
        """A region as slices of its buffer."""
        inside = [self.range_doc(r) for r in found.region] or ["()"]
        return Group(f"{self.name_of(found.buffer)}[", inside, "]")

    # Infos

    def dim_docs(
        self, values: Iterable[tir.PrimExpr], quoted: frozenset[tir.Var] = frozenset()
    ) -> list[Doc]:
        """Dimensions; those over variables in `quoted` are strings, as signatures have them."""
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

    def info_doc(self, info: rx.StructInfo, quoted: frozenset[tir.Var] = frozenset()) -> Doc:
        """An info as TVMScript; dimensions over variables in `quoted` are strings."""
        r = self.relax_prefix
        match info:
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
                return self._tensor(info, quoted)
            case rx.TupleStructInfo(fields=fields):
                rx.within_size_limit(info)
                return call(f"{r}.Tuple", *(self.info_doc(f, quoted) for f in fields))
            case rx.FuncStructInfo():
                return self._callable(rx.within_size_limit(info), quoted)
            case DTensorStructInfo():
                return self._spread_tensor(info, quoted)
            case _:
                return f"<{type(info).__name__}>"

    def _tensor(self, info: rx.TensorStructInfo, quoted: frozenset[tir.Var]) -> Doc:
        """A tensor; many are alike, and PrimExprs that are alike are one."""
        shape = info.shape.values if isinstance(info.shape, rx.ShapeExpr) else info.shape
        key = (shape, info.dtype, info.ndim, info.vdevice, quoted)
        found = self._tensors.get(key)
        if found is None:
            found = self._tensors[key] = self._tensor_doc(info, quoted)
            if isinstance(found, Group):
                found.text = flat(found)
        return found

    def _tensor_doc(self, info: rx.TensorStructInfo, quoted: frozenset[tir.Var]) -> Doc:
        parts: list[Doc] = []
        if isinstance(info.shape, rx.ShapeExpr):
            parts.append(tuple_doc(self.dim_docs(info.shape.values, quoted)))
        elif info.shape is not None:
            parts.append(self.leaf_doc(info.shape))
        if not info.dtype.is_void:
            parts.append(f'dtype="{info.dtype}"')
        if info.shape is None and info.ndim >= 0:
            parts.append(f"ndim={info.ndim}")
        if info.vdevice is not None:
            parts.append(keyword("vdevice", self.device_doc(info.vdevice)))
        name = f"{self.relax_prefix}.Tensor"
        return call(name, *parts) if parts else name

    def _spread_tensor(self, info: DTensorStructInfo, quoted: frozenset[tir.Var]) -> Doc:
        whole = info.tensor_sinfo
        shape: Doc = "None"
        if isinstance(whole.shape, rx.ShapeExpr):
            shape = tuple_doc(self.dim_docs(whole.shape.values, quoted))
        elif whole.shape is not None:
            shape = self.leaf_doc(whole.shape)
        dtype = "None" if whole.dtype.is_void else string_text(str(whole.dtype))
        parts = [shape, dtype, self.attr_doc(info.device_mesh), string_text(str(info.placement))]
        if whole.shape is None and whole.ndim >= 0:
            parts.append(f"ndim={whole.ndim}")
        return call(f"{self.relax_prefix}.DTensor", *parts)

    def _callable(self, info: rx.FuncStructInfo, quoted: frozenset[tir.Var]) -> Doc:
        name = f"{self.relax_prefix}.Callable"
        if info.params is not None:
            params = tuple_doc(self.info_doc(p, quoted) for p in info.params)
            return call(name, params, self.info_doc(info.ret, quoted), str(info.purity))
        parts: list[Doc] = []
        derive = info.derive_func
        if derive is not None and derive is not rx.EMPTY_DERIVE:
            if derive == rx.FuncStructInfo.opaque_func(ret=info.ret).derive_func:
                parts.append(keyword("ret", self.info_doc(info.ret, quoted)))
            else:
                parts.append(f"derive_func={string_text(derive.name)}")
        if info.purity:
            parts.append("purity=True")
        return call(name, *parts) if parts else name

    # Leaves of Relax, and attributes

    def leaf_doc(self, expr: Node) -> Doc:
        """A variable, literal, or tuple of such."""
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
            case rx.ExternFunc(global_symbol=name, struct_info=info):
                given: list[Doc] = [string_text(name)]
                if info is not None and info != rx.ExternFunc(name).struct_info:
                    given.append(self.info_doc(info))
                return call(f"{r}.ExternFunc", *given)
            case rx.Constant():
                return self.constant_doc(expr)
            case Op(name=name):
                return name
            case _:
                return f"<{type(expr).__name__}>"

    def constant_doc(self, expr: rx.Constant) -> Doc:
        """A tensor literal: written out where it is small."""
        inline = self.small_constant(expr)
        if inline is not None:
            return inline
        return f"<{expr.data.dtype.name} constant of shape {expr.data.shape}>"

    def small_constant(self, expr: rx.Constant) -> Doc | None:
        """A tensor literal written out, or None where it is large."""
        if expr.data.size > _INLINE_CONSTANT:
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
                return self.info_doc(value)
            case Type():
                return self.info_doc(wrap_type(value))
            case VDevice():
                return self.listed_device_doc(value)
            case Device(kind=kind, index=index):
                return call(f"{self.relax_prefix}.{kind}", str(index))
            case DeviceMesh(shape=shape, device_ids=ids):
                mesh = f"{self.relax_prefix}.dist.device_mesh"
                return call(mesh, tuple_doc(map(str, shape)), Group("[", map(str, ids), "]"))
            case Placement():
                return string_text(str(value))
            case IterVar(dom=dom, var=var, iter_type=kind, thread_tag=tag):
                over: Doc = "None"
                if dom is not None:
                    over = tuple_doc(self.bounds_docs(dom.min, dom.extent))
                name = f"{self.tir_prefix}.iter_var"
                return call(name, self.prim_doc(var), over, f'"{kind.name}"', string_text(tag))
            case IndexMap():
                return self._index_map(value)
            case CommReducer():
                return self._reducer(value)
            case DummyGlobalInfo():
                return f"{self.ir_prefix}.dummy_global_info()"
            case Buffer() | rx.Expr():
                return self.leaf_doc(value) if isinstance(value, rx.Expr) else self.name_of(value)
            case _:
                return self.opaque_doc(value)

    def _index_map(self, value: IndexMap) -> Doc:
        """A map of indices as the function it was made of, where that can be written."""
        names = [var.name for var in value.initial_indices]
        dtypes = {str(var.dtype) for var in value.initial_indices}
        if (
            len(dtypes) != 1
            or len(set(names)) != len(names)
            or not all(map(str.isidentifier, names))
        ):
            return self.opaque_doc(value)
        parts: list[Doc] = [_as_lambda(value)]
        if value.inverse_index_map is not None:
            parts.append(keyword("inverse_index_map", _as_lambda(value.inverse_index_map)))
        if dtypes != {"int64"}:
            parts.append(keyword("index_dtype", string_text(dtypes.pop())))
        return call(f"{self.tir_prefix}.index_map", *parts)

    def _reducer(self, value: CommReducer) -> Doc:
        """A reducer as the function that combines, where that says all."""
        operands = (*value.lhs, *value.rhs)
        names = [var.name for var in operands]
        known = zip(operands[: len(value.lhs)], value.rhs, value.identity_element, strict=True)
        if (
            len(set(names)) != len(names)
            or not all(map(str.isidentifier, names))
            or any(x.dtype != e.dtype or y.dtype != e.dtype for x, y, e in known)
            or not all(
                v in operands for r in value.result for v in walk(r) if isinstance(v, tir.Var)
            )
        ):
            return self.opaque_doc(value)
        inner = ShortText(tir_prefix=self.tir_prefix)
        results = ", ".join(map(inner.prim, value.result))
        combined = f"({results})" if len(value.result) > 1 else results
        return call(
            f"{self.tir_prefix}.comm_reducer",
            f"lambda {', '.join(names)}: {combined}",
            Group("[", map(self.prim_doc, value.identity_element), "]"),
        )

    def device_doc(self, device: object) -> Doc:
        """The device of a tensor: "cuda:1" where that says all."""
        if not isinstance(device, VDevice):
            return string_text(str(device))
        if device == VDevice(device.kind, device.vdevice_id) and device.kind:
            return string_text(str(device))
        return self.listed_device_doc(device)

    def listed_device_doc(self, device: VDevice) -> Doc:
        """A device in full, as the module lists it."""
        parts = [self.attr_doc(device.target)]
        if device.vdevice_id or device.memory_scope != "global":
            parts.append(str(device.vdevice_id))
        if device.memory_scope != "global":
            parts.append(string_text(device.memory_scope))
        return call(f"{self.ir_prefix}.vdevice", *parts)

    def table_doc(self, items: Mapping[str, object]) -> Doc:
        """A table of attributes."""
        entries = (
            Concat(f"{string_text(str(key))}: ", self.attr_doc(value))
            for key, value in items.items()
        )
        return Group("{", entries, "}")

    def opaque_doc(self, value: object) -> Doc:
        """What has no form in the language."""
        return f"<{type(value).__name__}>"


def short_text(node: Node) -> str:
    """The short form of one node, for messages."""
    try:
        return _short_text(node)
    except (RecursionError, MisuseError):
        return too_deep(node)


def _short_text(node: Node) -> str:
    writer = ShortText()
    if isinstance(node, tir.PrimExpr):
        return writer.prim(node)
    if isinstance(node, rx.StructInfo):
        return writer.info(node)
    if isinstance(node, Type):
        return writer.info(wrap_type(node))
    if isinstance(node, BufferRegion):
        return flat(writer.region_doc(node))
    if isinstance(node, IterVar):
        return writer.name_of(node.var)
    if isinstance(node, (CommReducer, IndexMap)):
        return flat(writer.attr_doc(node))
    if isinstance(node, Range):
        start, stop = writer.bounds_docs(node.min, node.extent)
        return flat(call(f"{writer.tir_prefix}.Range", start, stop))
    return writer.leaf(node)


def _as_lambda(value: IndexMap) -> str:
    names = ", ".join(var.name for var in value.initial_indices)
    results = ", ".join(map(str, value.final_indices))
    return f"lambda {names}: ({results}{',' if len(value.final_indices) == 1 else ''})"
