"""The backend in ONNX's own convention, `onnx.backend.base`, for which it has a test runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep
from typing_extensions import override

from relaxpy.exec.api.compile import compile as compile_module
from relaxpy.exec.api.executable import Executable
from relaxpy.plugins.onnx.importer import from_onnx
from relaxpy.plugins.onnx.view import NARROW


class RelaxpyRep(BackendRep):
    """A model that is compiled; `run` takes its inputs in order, or by name."""

    def __init__(self, executable: Executable, graph: onnx.GraphProto) -> None:
        super().__init__()
        self.executable = executable
        values = {tensor.name for tensor in graph.initializer}
        self._names = [value.name for value in graph.input if value.name not in values]
        self._types = [value.type for value in graph.output]

    @override
    def run(self, inputs: Sequence[Any] | Mapping[str, Any], **kwargs: Any) -> tuple[Any, ...]:
        """The outputs of the graph."""
        if isinstance(inputs, Mapping):
            inputs = [inputs[name] for name in self._names]
        result = self.executable["main"](*(_tensor(value) for value in inputs))
        results = (result,) if len(self._types) == 1 else tuple(result)
        return tuple(map(_declared, results, self._types))


def _tensor(value: Any) -> Any:
    """A value as an argument: elements of less than a byte are in bytes, lists are tuples."""
    if value is None or isinstance(value, (list, tuple)):
        return None if value is None else tuple(map(_tensor, value))
    array = np.asarray(value)
    narrow = {"int4": "int8", "uint4": "uint8", "int2": "int8", "uint2": "uint8"}
    return array.astype(narrow.get(array.dtype.name, array.dtype), copy=False)


def _declared(value: Any, kind: onnx.TypeProto) -> Any:
    """A result in the type that the graph declares: a list for a sequence, narrow elements."""
    if isinstance(value, tuple):
        return list(value)
    if kind.tensor_type.elem_type in NARROW:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
        return np.asarray(value).astype(dtype)
    return value


class RelaxpyBackend(Backend):
    """relaxpy as a backend of ONNX."""

    @classmethod
    @override
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> RelaxpyRep:
        """The model, imported and compiled; `target` chooses how."""
        mod = from_onnx(model)
        return RelaxpyRep(compile_module(mod, **kwargs), model.graph)

    @classmethod
    @override
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """The outputs of the model on these inputs."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    @override
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node on these inputs."""
        make = onnx.helper.make_tensor_value_info
        arrays = [np.asarray(value) for value in inputs]
        code = onnx.helper.np_dtype_to_tensor_dtype
        graph = onnx.helper.make_graph(
            [node],
            node.op_type,
            [
                make(name, code(a.dtype), a.shape)
                for name, a in zip(filter(None, node.input), arrays, strict=True)
            ],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid(node.domain, version)]
        )
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    @override
    def supports_device(cls, device: str) -> bool:
        """True if the device is the CPU."""
        return device.split(":")[0] == "CPU"


prepare = RelaxpyBackend.prepare
run_model = RelaxpyBackend.run_model
run_node = RelaxpyBackend.run_node
supports_device = RelaxpyBackend.supports_device
