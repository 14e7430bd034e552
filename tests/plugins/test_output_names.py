"""The names of the outputs of imported models: in the module, its texts, and executables."""

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.ir.relax.outputs import output_names
from relaxpy.relax.transform import FoldConstant, FuseOps, LegalizeOps
from relaxpy.script import from_source


def _checked(mod: IRModule, names: tuple[str, ...], path: Path, *args: Any) -> None:
    """The names are in the module and in all that is made of it, and the results are as before."""
    passed = FuseOps()(LegalizeOps()(FoldConstant()(mod)))
    texts = [from_source(mod.script()), relaxpy.ir.load_json(relaxpy.ir.save_json(mod))]
    for form in (mod, passed, *texts):
        assert output_names(form["main"]) == names
    executable = relaxpy.compile(mod)
    executable.save(path / "model.rxp")
    results = executable["main"](*args)
    count = len(results) if isinstance(results, (tuple, list)) else 1
    for ran in (
        executable,
        relaxpy.load_executable(path / "model.rxp"),
        *(relaxpy.compile(mod, target) for target in ("numpy", "reference")),
    ):
        assert ran["main"].output_names == names
        assert len(names) in (0, count)


@pytest.mark.parametrize("outputs", ["float[n] the/sum", "float[n] the/sum, float[n] b"])
def test_outputs_of_onnx_graphs(outputs: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from relaxpy.relax.frontend.onnx import from_onnx

    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n] x) => ({outputs.replace("the/sum", "a")}) {{ a = Add (x, x) b = Neg (a) }}"""
    )
    model.graph.output[0].name = model.graph.node[0].output[0] = "the/sum"
    model.graph.node[1].input[0] = "the/sum"
    names = ("the/sum", "b")[: len(model.graph.output)]
    _checked(from_onnx(model), names, tmp_path, np.ones(3, "float32"))


Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Output:
    """What a model returns, as those of transformers do."""

    loss: Any = None
    logits: Any = None


FORMS: dict[str, Any] = {
    "a": lambda x, y: {"a": x + 1},
    "a,b": lambda x, y: OrderedDict(a=x + 1, b=y),
    "c,b": lambda x, y: defaultdict(int, c=y * 2, b=x),
    "left,right": lambda x, y: Pair(x + 1, y),
    "logits": lambda x, y: Output(logits=x + y),
    "loss,logits": lambda x, y: Output(x.sum(), y),
    "h.0,h.1.z,k.7": lambda x, y: {"h": [x + 1, {"z": y, "n": None}], "k": {7: x - 1}},
    "0,1.a": lambda x, y: (x + y, {"a": y}),
    ",a": lambda x, y: {"a": x.add_(1)},
    "": lambda x, y: (x + 1, [y]),
}


@pytest.mark.parametrize("names", FORMS)
def test_outputs_of_torch_programs(names: str, tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    from relaxpy.relax.frontend.torch import from_exported_program

    if Output not in torch.utils._pytree.SUPPORTED_NODES:
        torch.export.register_dataclass(Output, serialized_type_name="test.Output")

    class Module(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            return FORMS[names](x, y)

    args = np.ones(3, "float32"), np.zeros(3, "float32")
    program = torch.export.export(Module(), tuple(map(torch.from_numpy, args)))
    expected = tuple(names.split(",")) if names else ()
    _checked(from_exported_program(program), expected, tmp_path, *args)
