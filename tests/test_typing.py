"""What type checkers see: the stub of the operators is what the registry has."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_stub_of_operators_is_up_to_date() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "stubs.py"), "--check"]
    assert subprocess.run(tool, check=False, cwd=ROOT).returncode == 0, "run tools/stubs.py"


USES = """
from typing import Annotated

import numpy as np

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.script import ir as I, relax as R, tir as T

x = relax.Var("x", R.Tensor(("n", 4), "float32"))
bb = relax.BlockBuilder()


@R.function
def double(x: Annotated[R.Tensor, ("n", 4), "float32"]) -> R.Tensor:
    y = R.nn.relu(x) + x
    return R.add(y, R.const(1.0))


@R.function(private=True, pure=False)
def effect(x: R.Tensor) -> R.Tensor:
    R.print(x)
    return x


@T.prim_func
def copy(a: T.handle, n: T.int64, b: T.handle) -> None:
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in T.serial(n):
        B[i] = A[i]


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return R.add(x, x)


Model.show()
assert relaxpy.relax.analysis.well_formed(Model)
lowered = relax.transform.LegalizeOps()(Model)
sinfo = relax.TensorStructInfo((2, 2), "float32")
call = relax.op.add(relax.Var("a", sinfo), relax.Var("b", sinfo))
scalar = relax.PrimStructInfo("int64")
shape = relax.ShapeExpr([relaxpy.tir.Var("n", "int64"), 4])
body = relax.Function([x], call)
sizes = lowered["main"].params
compiled: relaxpy.Executable = relaxpy.compile(Model)
executable: relaxpy.Executable = relaxpy.compile(double)
found = double(np.ones((2, 4), "float32"))
module: IRModule = IRModule({"double": double, "copy": copy})
"""
WRONG = """
from relaxpy import relax
from relaxpy.script import ir as I, relax as R

R.nn.rleu(R.const(1.0))
R.add(R.const(1.0))
relax.op.ad(R.const(1.0))


@I.ir_module
class Model:
    pass


Model.nothing
"""


#: Beside the project's own configuration, so that what `make types` has kept of relaxpy is used.
OF_USERS = """
[[tool.mypy.overrides]]
module = {modules}
disable_error_code = ["valid-type", "no-untyped-def"]
warn_return_any = false
"""


def checked(folder: Path, **texts: str) -> list[str]:
    """The errors that mypy finds in users' modules."""
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    config = folder / "pyproject.toml"
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    text = text.replace("[tool.mypy]\n", '[tool.mypy]\nplugins = ["relaxpy.testing.mypy_plugin"]\n')
    config.write_text(f"{text}\n{OF_USERS.format(modules=[*texts])}", encoding="utf-8")
    files = [str(folder / f"{name}.py") for name in texts]
    command = [sys.executable, "-m", "mypy", "--strict", f"--config-file={config}", *files]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert f"checked {len(texts)} source files" in run.stdout
    return [line for line in run.stdout.splitlines() if " error: " in line]


@pytest.mark.timeout(600)  # mypy reads all of relaxpy where it has no cache
def test_mypy_accepts_what_users_write_and_finds_what_is_wrong(tmp_path: Path) -> None:
    rleu, add, ad, nothing = checked(tmp_path, right=USES, wrong=WRONG)
    assert "wrong.py:5: " in rleu
    assert 'has no attribute "rleu"' in rleu
    assert "wrong.py:6: " in add
    assert 'Missing positional argument "x2"' in add
    assert "wrong.py:7: " in ad
    assert 'has no attribute "ad"' in ad
    assert 'has no attribute "nothing"' in nothing
