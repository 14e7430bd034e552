"""Nodes of ONNX as short texts."""

import re
from typing import Any

import onnx
from onnx import TensorProto, helper


def nodes_of(text: str, **values: Any) -> list[onnx.NodeProto]:
    """The nodes of a text such as `y, z = Split(x, sizes, axis=1); t = own::Op(y)`.

    Attributes are Python's literals, element types (`to=INT64`), or names of `values`.
    """
    return [node_of(part, **values) for part in text.split(";")]


def node_of(text: str, **values: Any) -> onnx.NodeProto:
    """The node of such a text."""
    found = re.fullmatch(r"\s*(.*?) = (?:(.*)::)?(\w+)\((.*)\)\s*", text)
    assert found is not None, text
    outputs, domain, op, operands = found.groups()
    parts = re.split(r", (?![^\[(]*[\])])", operands) if operands else []
    attributes = [part for part in parts if "=" in part]
    return helper.make_node(
        op,
        [part.strip() for part in parts if "=" not in part],
        outputs.split(", "),
        domain=domain,
        **eval(f"dict({', '.join(attributes)})", dict(TensorProto.DataType.items()), values),
    )
