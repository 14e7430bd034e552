"""The bodies that schemas of ONNX have, in simpler operators.

Some depend on the types of the operands. The package onnx builds these in native code, which trusts
its arguments: it is called only for operands and attributes that the schema admits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set as AbstractSet
from functools import lru_cache
from pathlib import Path
from typing import Any

import onnx
from onnx import TypeProto, helper

from relaxpy.ir.relax.nodes import Expr, TensorStructInfo
from relaxpy.plugins.importing.tensors import Contents, shape_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.onnx import view as views
from relaxpy.plugins.onnx.context import MICROSOFT, Value
from relaxpy.plugins.onnx.view import Graph, Node


def schema_body(
    node: Node,
    operands: Sequence[Value],
    version: int,
    items: Mapping[Expr, TensorStructInfo],
    strings: Collection[Value],
) -> tuple[Graph, Mapping[str, int]] | None:
    """The body of an operator and the versions of the domains that it uses.

    None if its schema has no body, or there is no schema. Where the first body of the schema is of
    a later opset, the operator means that, too.

    `items` are the types of the values of sequences, `strings` the values that have strings.

    Errors:
        UnsupportedError: the schema does not admit the operands or the attributes.
    """
    schema = _schema(node, version)
    if schema is None:
        return None
    if schema.has_function:
        chosen = _version_of(schema.function_opset_versions, version)
        data = schema.get_function_with_opset_version(chosen)
    elif schema.has_context_dependent_function:
        types = [_type_of(value, items, strings) for value in operands]
        _require_operands(schema, types)
        _require_attributes(schema, node)
        stated_attributes(node, version)
        chosen = _version_of(schema.context_dependent_function_opset_versions, version)
        try:
            data = schema.get_context_dependent_function_with_opset_version(
                chosen,
                node.proto.SerializeToString(),
                [(kind or TypeProto()).SerializeToString() for kind in types],
            )
        except RuntimeError as error:  # the attribute is a graph whose text ONNX cannot read again
            raise UnsupportedError(f"ONNX builds no body for it: {error}") from None
    else:
        return None
    if not data:
        return None
    proto = onnx.FunctionProto()
    proto.ParseFromString(data)
    defaults = {
        name: views.attribute_value(attribute.default_value, Path(), 0)
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }
    function = views.LocalFunction(proto, views.opset_versions(proto.opset_import))
    body = function.instance({**defaults, **node.attributes})
    return body, function.opsets if chosen > version else {}


def _version_of(versions: Sequence[int], version: int) -> int:
    """The newest of the versions up to this one, or else the oldest."""
    return max((v for v in versions if v <= version), default=min(versions))


_NEWEST = onnx.defs.onnx_opset_version()
_POSITIONS = {"tensor(int32)", "tensor(int64)"}
#: Operators of com.microsoft that ONNX has since opset 27, with the same operands.
_ADOPTED = ("CausalConvWithState", "LinearAttention")


def _schema(node: Node, version: int) -> Any:
    domain = node.domain
    if domain == MICROSOFT and node.op in _ADOPTED:
        domain, version = "", 27
    try:
        return _found(node.op, version, domain)
    except onnx.defs.SchemaError:
        return None


_found = lru_cache(maxsize=1 << 10)(onnx.defs.get_schema)


@lru_cache(maxsize=1 << 10)
def _attribute_types(schema: Any) -> Mapping[str, int]:
    return {name: attribute.type.value for name, attribute in schema.attributes.items()}


@lru_cache(maxsize=1 << 10)
def _inputs(schema: Any) -> Sequence[tuple[str, AbstractSet[str]]]:
    """The names of the inputs, and their types."""
    return [(parameter.name, parameter.types) for parameter in schema.inputs]


def stated_attributes(node: Node, version: int) -> Mapping[str, Any]:
    """The attributes, which have the types that the schema states, if there is one.

    An integer where a float is expected is converted.

    Errors:
        UnsupportedError: one is of another type.
    """
    schema = _schema(node, version) or _schema(node, _NEWEST)
    result = dict(node.attributes)
    types = _attribute_types(schema) if schema else {}
    for proto in node.proto.attribute:
        known = types.get(proto.name)
        if known is None or proto.ref_attr_name or proto.type == known:
            continue
        if (_kind(proto.type), _kind(known)) != ("INT", "FLOAT"):
            raise UnsupportedError(
                f"attribute {proto.name!r} has the type {_kind(proto.type)}, "
                f"expected {_kind(known)}"
            )
        result[proto.name] = float(proto.i)
    return result


def require_positions(node: Node, operands: Sequence[Value], version: int) -> None:
    """Check that operands which the schema says are indices, axes or sizes are integers.

    Errors:
        UnsupportedError: one has another datatype.
    """
    schema = _schema(node, version) or _schema(node, _NEWEST)
    if schema is None:
        return
    for value, (name, types) in zip(operands, _inputs(schema), strict=False):
        if not types <= _POSITIONS:
            continue
        dtype = value.dtype if isinstance(value, Contents) else None
        if isinstance(value, Expr) and isinstance(value.struct_info, TensorStructInfo):
            dtype = value.struct_info.dtype
        if dtype is not None and "int" not in dtype:
            expected = " or ".join(sorted(kind[7:-1] for kind in types))
            raise UnsupportedError(f"operand {name} is {dtype}, expected {expected}")


def string_outputs(
    node: Node, operands: Sequence[Value], version: int, strings: Collection[Value]
) -> list[bool]:
    """For each output, whether it has the type of operands with strings; empty without a schema.

    Errors:
        UnsupportedError: the schema does not admit strings there, or not with these operands.
    """
    schema = _schema(node, _NEWEST) or _schema(node, version)
    if schema is None:
        return []
    bound: dict[str, bool] = {}
    for k, value in enumerate(operands):
        parameter = schema.inputs[min(k, len(schema.inputs) - 1)]
        has = value in strings
        if has and not any("string" in kind for kind in parameter.types):
            raise UnsupportedError(f"operand {parameter.name} has strings, which it does not admit")
        if value is None or not parameter.is_homogeneous:
            continue
        if bound.setdefault(parameter.type_str, has) != has:
            found, expected = ("strings", "numbers") if has else ("numbers", "strings")
            raise UnsupportedError(f"operand {parameter.name} has {found}, expected {expected}")
    last = len(schema.outputs) - 1
    parameters = [schema.outputs[min(k, last)] for k in range(len(node.outputs))]
    return [p.is_homogeneous and bound.get(p.type_str, False) for p in parameters]


def types_of_results(node: Node, count: int, version: int) -> Sequence[int | None]:
    """For each result the first of `count` operands that has its type, if one has."""
    schema = _schema(node, version) or _schema(node, _NEWEST)
    if schema is None:
        return []
    variables = [
        parameter.type_str if parameter.is_homogeneous else None
        for parameter in (*schema.inputs, *schema.inputs[-1:] * count)
    ][:count]
    return [
        variables.index(result.type_str) if result.type_str in variables else None
        for result in schema.outputs
    ]


def _kind(number: int) -> str:
    return str(onnx.AttributeProto.AttributeType.Name(number))


def _require_operands(schema: Any, types: Sequence[TypeProto | None]) -> None:
    """Check operands by the schema's parameters."""
    if not schema.min_input <= len(types) <= schema.max_input:
        raise UnsupportedError(
            f"it has {len(types)} operands, expected {schema.min_input} to {schema.max_input}"
        )
    bound: dict[str, str] = {}
    options = onnx.defs.OpSchema.FormalParameterOption
    for k, kind in enumerate(types):
        parameter = schema.inputs[min(k, len(schema.inputs) - 1)]
        if kind is None:
            if parameter.option != options.Optional:
                raise UnsupportedError(f"operand {parameter.name} is missing")
            continue
        name = _name_of(kind)
        if name not in parameter.types:
            raise UnsupportedError(f"operand {parameter.name} is {name}, which it does not admit")
        if parameter.is_homogeneous and bound.setdefault(parameter.type_str, name) != name:
            raise UnsupportedError(
                f"operand {parameter.name} is {name}, expected {bound[parameter.type_str]}"
            )


def _require_attributes(schema: Any, node: Node) -> None:
    """Check attributes by the schema's."""
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in node.attributes:
            raise UnsupportedError(f"attribute {name!r} is missing")
    for proto in node.proto.attribute:
        known = schema.attributes.get(proto.name)
        if known is None:
            raise UnsupportedError(f"attribute {proto.name!r} is not known")
        if proto.ref_attr_name:
            raise UnsupportedError(f"attribute {proto.name!r} is one of the function's call")


def _name_of(kind: TypeProto) -> str:
    """The type as schemas name it: `seq(tensor(float))`."""
    if kind.HasField("sequence_type"):
        return f"seq({_name_of(kind.sequence_type.elem_type)})"
    return f"tensor({onnx.TensorProto.DataType.Name(kind.tensor_type.elem_type).lower()})"


def _type_of(
    value: Value, items: Mapping[Expr, TensorStructInfo], strings: Collection[Value]
) -> TypeProto | None:
    match value:
        case None:
            return None
        case Contents():
            shape = list(value.array.shape)
            return helper.make_tensor_type_proto(views.code_of(value.dtype), shape)
        case _ if isinstance(value.struct_info, TensorStructInfo):
            return _tensor_type(value.struct_info, value, is_string=value in strings)
        case _ if value in items:
            item = _tensor_type(items[value], None, is_string=value in strings)
            return helper.make_sequence_type_proto(item)
        case _:
            raise UnsupportedError(f"an operand is {value.struct_info}, which ONNX has no type for")


def _tensor_type(sinfo: TensorStructInfo, value: Expr | None, *, is_string: bool) -> TypeProto:
    sizes: list[Any] | None = None
    if sinfo.ndim >= 0:
        try:
            known = [] if value is None else shape_of(value)
            sizes = [s if isinstance(s, int) else str(s) for s in known]
        except UnsupportedError:
            sizes = []
        sizes = sizes or [None] * sinfo.ndim
    code = onnx.TensorProto.STRING if is_string else views.code_of(str(sinfo.dtype))
    return helper.make_tensor_type_proto(code, sizes)
