import json
from pathlib import Path

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, WellFormedError
from relaxpy.ir.serialize import save_json
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Scaled:
    @T.prim_func(private=True)
    def scale(x: T.handle, y: T.handle):
        n = T.int64()
        X = T.match_buffer(x, (n,))
        Y = T.match_buffer(y, (n,))
        for i in range(n):
            with T.block("scale"):
                vi = T.axis.spatial(n, i)
                Y[vi] = X[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        y = R.call_tir(Scaled.scale, (x,), out_sinfo=R.Tensor((n,), "float32"))
        z = R.const([1.0, float("inf")], "float32")
        return (y, z)


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_a_saved_executable_runs_as_it_did(tmp_path: Path, target: str) -> None:
    path = tmp_path / "scaled.json"
    relaxpy.compile(Scaled, target).save(path)
    again = relaxpy.load_executable(path)
    assert again.target == target
    for size in (0, 1, 5):
        y, z = again["main"](np.arange(size, dtype="float32"))
        np.testing.assert_array_equal(y, 2 * np.arange(size))
        np.testing.assert_array_equal(z, [1.0, np.inf])


def test_tvms_names_for_saving_and_loading(tmp_path: Path) -> None:
    ex = relaxpy.compile(Scaled)
    ex.save(tmp_path / "one.json")
    ex.export_library(tmp_path / "two.so")
    texts = [(tmp_path / name).read_text(encoding="utf-8") for name in ("one.json", "two.so")]
    assert texts[0] == texts[1]
    y, _ = relaxpy.runtime.load_module(tmp_path / "two.so")["main"](np.ones(3, "float32"))
    np.testing.assert_array_equal(y, [2, 2, 2])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a saved executable"),
        ("[]", "not a saved executable"),
        ('{"a":' * 100_000, "not a saved executable"),
        (json.dumps({"format": "relaxpy-executable", "version": 2}), "version 2"),
        (json.dumps({"format": "relaxpy-executable", "version": 1}), "cannot be read"),
    ],
)
def test_a_file_that_holds_no_executable_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "forged.json"
    path.write_text(text)
    with pytest.raises(MisuseError, match=says):
        relaxpy.load_executable(path)


def test_a_forged_program_is_checked(tmp_path: Path) -> None:
    x = relaxpy.relax.Var("x", relaxpy.relax.ObjectStructInfo())
    body = relaxpy.relax.SeqExpr([], x)
    forged = relaxpy.IRModule({"main": relaxpy.relax.Function([], body)})
    path = tmp_path / "forged.json"
    table = {"format": "relaxpy-executable", "version": 1, "target": "numpy"}
    path.write_text(json.dumps({**table, "module": save_json(forged)}))
    with pytest.raises(WellFormedError, match="WF-2a"):
        relaxpy.load_executable(path)


def test_an_unwritable_path_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        relaxpy.compile(Scaled).save(tmp_path / "nowhere" / "x.json")
