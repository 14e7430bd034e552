"""Nodes and models of ONNX as short texts."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.rows import table


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


def model(
    nodes: Iterable[onnx.NodeProto],
    inputs: Iterable[onnx.ValueInfoProto],
    outputs: Iterable[str],
    constants: Mapping[str, Any] | None = None,
    *,
    opset: int = 21,
    functions: Sequence[Any] = (),
    domains: Sequence[tuple[str, int]] = (),
) -> onnx.ModelProto:
    """A model of these nodes."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        list(inputs),
        [onnx.ValueInfoProto(name=name) for name in outputs if name],
        [numpy_helper.from_array(np.asarray(x), name) for name, x in (constants or {}).items()],
    )
    imports = [helper.make_opsetid(d, v) for d, v in (("", opset), *domains)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


def one(
    op: str,
    operands: Mapping[str, Any],
    attributes: Mapping[str, Any],
    outputs: int | Sequence[str] = 1,
    sizes: Mapping[str, Any] | None = None,
    *,
    opset: int = 20,
    domain: str = "",
    version: int = 1,
) -> onnx.ModelProto:
    """A model of one node, whose operands are inputs, or constants if their names begin with "c_".

    Args:
        operands: arrays, and None for those that are left out.
        outputs: how many, or their names; those without a name are left out.
        sizes: those of inputs, if they are not those of the arrays.
    """
    names = [f"y{k}" for k in range(outputs)] if isinstance(outputs, int) else outputs
    arrays = {name: np.asarray(x) for name, x in operands.items() if x is not None}
    constants = {name: x for name, x in arrays.items() if name.startswith("c_")}
    given = [name if name in arrays else "" for name in operands]
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), (sizes or {}).get(name, x.shape)
        )
        for name, x in arrays.items()
        if name not in constants
    ]
    node = helper.make_node(op, given, names, domain=domain, **attributes)
    domains = [(domain, version)] if domain else []
    return model([node], inputs, names, constants, opset=opset, domains=domains)


class Row(NamedTuple):
    """A node, and what stands behind the arrow."""

    op: str
    opset: int
    operands: dict[str, Any]
    attributes: dict[str, Any]
    rest: str

    def model(self, **options: Any) -> onnx.ModelProto:
        """The model of the node in its opset."""
        return one(self.op, self.operands, self.attributes, opset=self.opset, **options)

    def feed(self) -> dict[str, Any]:
        """The inputs of this model."""
        return {
            name: np.asarray(x)
            for name, x in self.operands.items()
            if x is not None and not name.startswith("c_")
        }


def rows_of(text: str, names: Mapping[str, Any], opset: int = 20) -> list[Row]:
    """The rows of a table, each `Op-opset(attribute=1) <- operand=x, other=None => rest`.

    Args:
        names: those that values are written with.
        opset: of rows that state none.
    """
    found = []
    for head, operands, *rest in table(text):
        node = re.fullmatch(r"(\w+)(?:-(\d+))?(?:\((.*)\))?", head)
        assert node is not None, head
        op, own, attributes = node.groups()
        found.append(
            Row(
                op,
                int(own or opset),
                _keywords(operands, names),
                _keywords(attributes or "", names),
                *rest or [""],
            )
        )
    return found


def _keywords(text: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a call as a dictionary, in which a later one of a name replaces another."""
    call = ast.parse(f"dict({text})", mode="eval").body
    assert isinstance(call, ast.Call)
    found: dict[str, Any] = {}
    for keyword in call.keywords:
        value = eval(ast.unparse(keyword.value), dict(names))
        found |= {keyword.arg: value} if keyword.arg else value
    return found


def ids(rows: Sequence[Row]) -> list[str]:
    """Operators with the numbers of their rows."""
    return [f"{row.op}{k}" for k, row in enumerate(rows)]
