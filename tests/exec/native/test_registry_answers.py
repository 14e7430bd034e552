"""Programs compiled before are used only if the registry of functions answers the same."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.script import from_source

ROOT = Path(__file__).parents[3]
X = np.ones(4, "float32")
RESHAPE = """
@I.ir_module
class M:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        y = R.call_packed(
            "vm.builtin.reshape", x, R.shape([2, 2]), sinfo_args=R.Tensor((2, 2), "float32")
        )
        return R.add(y, y)
"""
CHECK = """
@I.ir_module
class M:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        _ = R.call_packed(
            "vm.builtin.check_tensor_info",
            *(x, R.prim_value(1), R.dtype("float32"), R.str("x")),
            sinfo_args=R.Tuple(),
        )
        return R.add(x, x)
"""
NOTE = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.call_dps_packed("t.note", (x,), out_sinfo=R.Tensor((4,), "float32"))
            z = R.add(x, x)
            R.output(z)
        return z
"""

pytestmark = pytest.mark.usefixtures("lowered")


def zeros(array: Any, shape: Any) -> Any:
    return np.zeros(tuple(shape), array.dtype)


def refuse(*args: object) -> None:
    raise ValueError("the user's check ran")


def outcome(module: Any, way: str) -> object:
    """The result of a program, or the error."""
    try:
        if way == "called":
            return module["main"](X).tolist()
        return relaxpy.compile(module, way)["main"](X).tolist()
    except RelaxpyError as error:
        return str(error).splitlines()[0]


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize(
    ("text", "name", "function"),
    [(RESHAPE, "vm.builtin.reshape", zeros), (CHECK, "vm.builtin.check_tensor_info", refuse)],
)
def test_a_builtin_that_a_user_replaces_is_the_users(text, name, function, is_kept) -> None:
    module, own = from_source(text), relaxpy.get_global_func(name)
    kept = relaxpy.compile(module, "native")
    before = kept["main"](X).tolist()
    if not is_kept:
        del kept
    relaxpy.register_func(name, function, override=True)
    users = outcome(module, "reference")
    assert users != before
    assert outcome(module, "native") == users
    assert outcome(from_source(text), "native") == users
    relaxpy.register_func(name, own, override=True)
    for program in (module, from_source(text)):
        assert outcome(program, "native") == before


@pytest.mark.rule("PU-5")
def test_a_function_that_is_no_longer_pure_is_refused_again() -> None:
    relaxpy.register_func("t.note", lambda a, out: None, pure=True)
    module = from_source(NOTE)
    kept = relaxpy.compile(module, "native")
    relaxpy.register_func("t.note", lambda a, out: None, override=True)
    for program in (module, module.clone()):
        assert "is impure" in str(outcome(program, "native"))
    relaxpy.register_func("t.note", lambda a, out: None, override=True, pure=True)
    assert outcome(module, "native") == kept["main"](X).tolist()


EAGER = """
@R.function(pure=False)
def main(x: R.Tensor((4,), "float32")):
    y = R.call_packed(
        "vm.builtin.reshape", x, R.shape([2, 2]), sinfo_args=R.Tensor((2, 2), "float32")
    )
    return R.add(y, y)
"""


def test_a_decorated_function_is_compiled_again() -> None:
    function, own = from_source(EAGER), relaxpy.get_global_func("vm.builtin.reshape")
    assert function(X).tolist() == [[2, 2], [2, 2]]
    relaxpy.register_func("vm.builtin.reshape", zeros, override=True)
    assert function(X).tolist() == [[0, 0], [0, 0]]
    relaxpy.register_func("vm.builtin.reshape", own, override=True)
    assert function(X).tolist() == [[2, 2], [2, 2]]


def test_the_code_of_a_file_is_not_used_if_a_user_has_replaced_a_builtin(lowered, tmp_path) -> None:
    relaxpy.compile(from_source(RESHAPE), "native").save(tmp_path / "model.rxp")
    relaxpy.load_executable(tmp_path / "model.rxp", native_code=True)
    assert len(lowered) == 1
    # An impure one is refused: the program in the file has the call in a dataflow block.
    relaxpy.register_func("vm.builtin.reshape", zeros, override=True, pure=True)
    loaded = relaxpy.load_executable(tmp_path / "model.rxp", native_code=True)
    assert loaded["main"](X).tolist() == [[0, 0], [0, 0]]
    assert len(lowered) == 2


PROGRAM = """
import json, sys
import numpy as np, relaxpy
from relaxpy.errors import RelaxpyError
text, answers = sys.argv[1:]
if answers == "pure":
    relaxpy.register_func("t.note", lambda a, out: None, pure=True)
elif answers == "impure":
    relaxpy.register_func("t.note", lambda a, out: None)
elif answers == "replaced":
    zeros = lambda a, shape: np.zeros(tuple(shape), a.dtype)
    relaxpy.register_func("vm.builtin.reshape", zeros, override=True)
try:
    module = relaxpy.ir.load_json(open(text).read())
    print(json.dumps(relaxpy.compile(module, "native")["main"](np.ones(4, "float32")).tolist()))
except RelaxpyError as error:
    print(json.dumps(str(error).splitlines()[0]))
"""


@pytest.mark.parametrize(
    ("text", "answers"),
    [(NOTE, ("pure", "impure")), (RESHAPE, ("own", "replaced")), (RESHAPE, ("replaced", "own"))],
)
def test_programs_of_another_process_are_compared(text, answers, tmp_path) -> None:
    relaxpy.register_func("t.note", lambda a, out: None, pure=True)
    saved = tmp_path / "model.json"
    saved.write_text(relaxpy.ir.save_json(from_source(text)), encoding="utf-8")

    def run(registered: str, cache: str) -> Any:
        environment = {**os.environ, "RELAXPY_CACHE": cache, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", PROGRAM, str(saved), registered]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    first, second = (run(registered, "1") for registered in answers)
    assert first != second
    assert [first, second] == [run(registered, "0") for registered in answers]
