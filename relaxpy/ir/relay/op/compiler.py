"""Operators that TVM's compiler inserts: calls of kernels, memory, layouts of its tuners.

They have types and texts. Those that only direct another machine cannot run: `refusal` says why.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relay.op.define import define, dims, known_shape
from relaxpy.ir.relay.op.registry import REQUIRED, Op, OpRecord, Translate
from relaxpy.ir.relay.op.relations import RELATIONS, Relation, RelationError, Solver
from relaxpy.ir.relay.ty import FuncType, IncompleteType, TensorType, TupleType, Type, TypeCall
from relaxpy.ir.tir.analysis.index_map import IndexMap

_UNIT: Final = TupleType(())
_NUMBER: Final = TensorType((), DataType("int64"))


def _enter(
    name: str,
    operands: str,
    relation: Relation,
    attributes: Mapping[str, object],
    *,
    translate: Translate | None = None,
    refusal: str = "",
    is_call: bool = False,
    is_variadic: bool = False,
) -> None:
    record = OpRecord(
        name,
        tuple(operands.split()),
        attributes=attributes,
        relation=relation,
        translate=translate,
        refusal=refusal,
        is_call=is_call,
        is_variadic=is_variadic,
        is_stateful=True,
    )
    Op.enter(record)


def _enter_refused(name: str, operands: str, attributes: Mapping[str, object], reason: str) -> None:
    """Register an operator that no program may contain, for a reason."""

    def relation(solver: Solver, args: tuple[Type, ...], attrs: Attrs) -> bool:
        raise RelationError(reason)

    _enter(name, operands, relation, attributes, refusal=reason, is_variadic=bool(operands))


# Calls of kernels


def _function(solver: Solver, ty: Type) -> FuncType | None:
    """Return the type of a function, or None if it is not known yet.

    Errors:
        RelationError: it is the type of something else.
    """
    known = solver.resolve(ty)
    if isinstance(known, IncompleteType):
        return None
    if not isinstance(known, FuncType):
        raise RelationError(f"expected a function, found {known}")
    return known


def _call_lowered(solver: Solver, args: tuple[Type, ...], attrs: Attrs) -> bool:
    function = _function(solver, args[0])
    if function is None:
        return False
    solver.unify(args[1], TupleType(function.arg_types))
    solver.unify(args[2], function.ret_type)
    return True


def _invoke(solver: Solver, args: tuple[Type, ...], attrs: Attrs) -> bool:
    function = _function(solver, args[0])
    if function is None:
        return False
    result = solver.resolve(function.ret_type)
    if isinstance(result, IncompleteType):
        return False
    solver.unify(args[1], TupleType(function.arg_types))
    solver.unify(args[2], result if isinstance(result, TupleType) else TupleType((result,)))
    solver.unify(args[3], _UNIT)
    return True


def _tensors(ty: Any) -> list[TensorType]:
    """Return the tensors in a type without holes."""
    if isinstance(ty, TupleType):
        return [part for field in ty.fields for part in _tensors(field)]
    if not isinstance(ty, TensorType):
        raise RelationError(f"expected tensors, found {ty}")
    return [ty]


def _shape_type(ty: TensorType) -> TensorType:
    if not isinstance(ty.shape, tuple):
        raise RelationError(f"the rank of {ty} is not known")
    return TensorType((len(ty.shape),) if ty.shape else (), DataType("int64"))


def _shape_func(solver: Solver, args: tuple[Type, ...], attrs: Attrs) -> bool:
    function: Any = solver.complete(args[0])
    if solver.holes(function):
        return False
    if not isinstance(function, FuncType):
        raise RelationError(f"expected a function, found {function}")
    given: Any = attrs["is_input"]
    flags = given if isinstance(given, tuple) else (given,)
    if len(flags) != len(function.arg_types):
        raise RelationError(
            f"is_input has {len(function.arg_types)} members, one for each parameter, "
            f"found {len(flags)}"
        )
    inputs = [
        part if flag else _shape_type(part)
        for flag, arg in zip(flags, function.arg_types, strict=True)
        for part in _tensors(arg)
    ]
    solver.unify(args[1], TupleType(tuple(inputs)))
    solver.unify(args[2], TupleType(tuple(map(_shape_type, _tensors(function.ret_type)))))
    solver.unify(args[3], _UNIT)
    return True


_WRITES: Final = (
    "it writes its results into tensors that exist already, but tensors here are values; "
    "write a call of the function"
)
_enter("call_lowered", "func call_args", _call_lowered, {"metadata": None}, is_call=True)
_enter("vm.invoke_tvm_op", "op ins outs", _invoke, {}, refusal=_WRITES)
_enter("vm.shape_func", "func ins outs", _shape_func, {"is_input": REQUIRED}, refusal=_WRITES)


# Memory


def _storage(solver: Solver) -> TypeCall:
    header = solver.named_type("Storage")
    if header is None:
        raise RelationError(
            'the module has no type Storage: import it by import_from_std("core.rly")'
        )
    return TypeCall(header, ())


def _alloc_storage(solver: Solver, args: tuple[Type, ...], attrs: Attrs) -> bool:
    shape = solver.resolve(args[1])
    if isinstance(shape, IncompleteType):
        return False
    for arg in (args[0], args[2]):
        solver.unify(arg, _NUMBER)
    if not isinstance(shape, TensorType):
        raise RelationError(f"expected a tensor, found {shape}")
    solver.unify(args[3], _storage(solver))
    return True


def _alloc_tensor(solver: Solver, args: tuple[Type, ...], attrs: Attrs) -> bool:
    solver.unify(args[0], _storage(solver))
    given: Any = attrs["assert_shape"] if attrs["const_shape"] is None else attrs["const_shape"]
    if given is None:
        raise RelationError("const_shape or assert_shape is given")
    shape = tuple(np.asarray(given, "int64").reshape(-1).tolist())
    solver.unify(args[3], TensorType(shape, DataType(str(attrs["dtype"]))))
    return True


def _kill(solver: Solver, args: tuple[Type, ...], attrs: Attrs) -> bool:
    solver.unify(args[1], _UNIT)
    return True


_ALLOCATED: Final = (
    "memory is not a value of a program here: tensors are allocated where they are computed"
)
_enter(
    "memory.alloc_storage",
    "size shape alignment",
    _alloc_storage,
    {"dtype": "uint8", "virtual_device": None},
    refusal=_ALLOCATED,
)
_enter(
    "memory.alloc_tensor",
    "storage offset shape",
    _alloc_tensor,
    {"const_shape": None, "assert_shape": None, "dtype": "float32"},
    refusal=_ALLOCATED,
)
_enter("memory.kill", "to_free", _kill, {}, translate=lambda args, attrs: rx.Tuple(()))
_enter(
    "debug",
    "expr",
    RELATIONS["Identity"],
    {"debug_func": None},
    translate=lambda args, attrs: args[0],
)


# Operators of other systems

_enter_refused(
    "torch_op",
    "inputs",
    {"serialized_function": "", "len": 0},
    "its attribute is a pickled function of PyTorch, which is not loaded, so that its type is "
    "not known; import the model that it comes from",
)
_enter_refused(
    "parser.MetaRef",
    "",
    {"node_type_key": "", "node_index": 0},
    "it stands for an entry of the metadata; write meta[kind][index]",
)


# Layouts of tuners


def _axes(layout: str) -> list[tuple[str, int]]:
    """Return the axes of a layout such as `1N4C8H8W`: the name and the size of each."""
    axes: list[tuple[str, int]] = []
    size, name = "", ""
    for sign in f"{layout}0":
        if sign.isalpha() and size:
            name += sign
        elif sign.isdecimal():
            if name:
                axes.append((name, int(size)))
                size = name = ""
            size += sign
        else:
            raise RelationError(f"a layout is sizes and names in turn, as 1N4C, found {layout!r}")
    if size != "0":
        raise RelationError(f"a layout ends in a name, found {layout!r}")
    return axes


def _auto_scheduler(args: tuple[rx.Expr, ...], attrs: Any) -> rx.Expr:
    """Axes that are split, and their parts in another order; equal names belong together."""
    source, target = (_axes(str(attrs[name])) for name in ("src_layout", "dst_layout"))
    sizes = dict(source)
    if len(sizes) != len(source):
        raise RelationError(f"src_layout has each name once, found {attrs['src_layout']!r}")
    if known_shape(args[0]) != [size for _, size in source]:
        raise RelationError(
            f"src_layout has the sizes of data, found {attrs['src_layout']!r} and "
            f"{args[0].struct_info}"
        )
    names = {name.upper(): name for name in sizes}
    parts = [(names.get(name.upper(), name), size) for name, size in target]
    places = [k for axis in sizes for k, (name, _) in enumerate(parts) if name == axis]
    products = dict.fromkeys(sizes, 1)
    for name, size in parts:
        products[name] = products.get(name, 1) * size
    if products != sizes:
        raise RelationError(
            f"dst_layout splits the axes of src_layout, found {attrs['dst_layout']!r} for "
            f"{attrs['src_layout']!r}"
        )
    split = R.reshape(args[0], [parts[k][1] for k in places])
    return R.permute_dims(split, [places.index(k) for k in range(len(parts))])


define(
    "auto_scheduler_layout_transform",
    "data",
    _auto_scheduler,
    {"src_layout": REQUIRED, "dst_layout": REQUIRED},
)
_SIGNS: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def _index_map(text: str, rank: int) -> IndexMap:
    """Return the map of a text such as `lambda i, j: (j, i // 4, i % 4)`.

    Errors:
        RelationError: it is not such a text, or it has not so many indices.
    """
    try:
        function = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        function = ast.Constant(None)
    if not isinstance(function, ast.Lambda) or len(function.args.args) != rank:
        raise RelationError(
            f"index_map is a text such as 'lambda i, j: (j, i)' of {rank} indices, "
            f"found {text!r:.60}"
        )
    names = [arg.arg for arg in function.args.args]
    body = function.body
    results = body.elts if isinstance(body, ast.Tuple) else [body]

    def value(node: ast.expr, table: Mapping[str, Any]) -> Any:
        match node:
            case ast.Name(id=name) if name in table:
                return table[name]
            case ast.Constant(value=int() as number) if type(number) is int:
                return number
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _SIGNS:
                return _SIGNS[type(sign)](value(left, table), value(right, table))
            case _:
                raise RelationError(
                    f"an index is computed by + - * // %, found {ast.unparse(node):.60}"
                )

    def mapped(*indices: Any) -> list[Any]:
        table = dict(zip(names, indices, strict=True))
        return [value(node, table) for node in results]

    return IndexMap.from_func(mapped, rank)


def _meta_schedule(args: tuple[rx.Expr, ...], attrs: Any) -> rx.Expr:
    given: Any = attrs["index_map"]
    known = _index_map(given, len(dims(args[0]))) if isinstance(given, str) else given
    return R.layout_transform(args[0], known)


define("meta_schedule_layout_transform", "data", _meta_schedule, {"index_map": REQUIRED})
