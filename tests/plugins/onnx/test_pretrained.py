"""Pretrained models of packages: equal to ONNX Runtime at several sizes, by one executable."""

import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import relaxpy
from relaxpy.relax.frontend.onnx import from_onnx
from tests.rows import targets

FOLDER = Path(sys.prefix) / "pretrained"
MODELS = [
    *("silero_vad", "silero_vad_16k_op15", "silero_vad_half", "silero_vad_op18_ifless"),
    *("silero_vad_16k_sequence", "silero_vad_openvino_16k", "model"),
]
#: Samples of a call and of the context before it, by the sampling rate.
_SAMPLES = {16000: 512 + 64, 8000: 256 + 32}


@cache
def _file(name: str) -> bytes:
    for wheel in sorted(FOLDER.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.endswith(f"/{name}.onnx"):
                    return archive.read(member)
    pytest.skip(f"no {name}.onnx: run `make pretrained`")


def _inputs(model: Any, batch: int, rate: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    names = {value.name: value.type.tensor_type for value in model.graph.input}
    if "bytes" in names:
        return {"bytes": rng.integers(0, 257, (batch, 2048)).astype("int32")}
    if "h" in names:
        state = {name: rng.standard_normal((1, 1, 128)).astype("float32") for name in "hc"}
        return {"input": rng.standard_normal((batch, 576)).astype("float32") * 0.1, **state}
    if names["input"].shape.dim[1].dim_value == 576:
        batch = 1
    values = {
        "input": rng.standard_normal((batch, _SAMPLES[rate])).astype("float32") * 0.1,
        "state": rng.standard_normal((2, batch, 128)).astype("float32"),
        "sr": np.array(rate),
    }
    return {name: values[name] for name in names}


@pytest.mark.parametrize("name", MODELS)
def test_values_are_those_of_onnx_runtime(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    data = _file(name)
    model = onnx.load_model_from_string(data)
    module = from_onnx(data)
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    rates = [16000, 8000] if name in ("silero_vad", "silero_vad_op18_ifless") else [16000]
    executables = [relaxpy.compile(module, target) for target in targets(name)]
    for seed, (batch, rate) in enumerate((b, r) for r in rates for b in (1, 3)):
        inputs = _inputs(model, batch, rate, seed)
        expected = session.run(None, inputs)
        for executable in executables:
            found = executable["main"](**_parameters(executable, inputs))
            for a, b in zip(found if len(expected) > 1 else [found], expected, strict=True):
                tolerance = 2e-3 if name == "silero_vad_half" else 1e-4
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def _parameters(executable: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    names = [param.name_hint for param in executable["main"].signature.params]
    return dict(zip(names, inputs.values(), strict=True))
