import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {
    "astor",
    "rich",
    "sklearn",
    "matplotlib",
    "IPython",
    "llvmlite",
    "relaxpy.relax",
    "relaxpy.script",
    "relaxpy.exec",
}


def loaded_by(program: str) -> set[str]:
    """The names of all modules in a fresh interpreter that has run `program`."""
    report = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(report.stdout.split())


def test_import_relaxpy_loads_nothing_heavy() -> None:
    loaded = loaded_by("import relaxpy")
    assert "relaxpy" in loaded
    assert not loaded & HEAVY


def test_the_language_loads_neither_front_end_nor_executor() -> None:
    loaded = loaded_by("import relaxpy.ir, relaxpy.ir.relax, relaxpy.ir.tir")
    assert not loaded & HEAVY


def test_the_namespaces_load_no_functions_of_topi_and_use_light_dataclasses() -> None:
    loaded = loaded_by("from relaxpy.script import ir, relax, tir")
    assert not loaded & {"relaxpy.ir.te.topi.functions", "relaxpy.ir.arith.tvm", "html", "astor"}
    for module in sorted(name for name in loaded if name.startswith("relaxpy.")):
        path = ROOT / module.replace(".", "/")
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        text = file.read_text(encoding="utf-8")
        decorated = "\n@dataclass" in text and module != "relaxpy.support.dataclass"
        assert not decorated or "from relaxpy.support.dataclass import dataclass" in text, module


def test_a_program_is_compiled_without_slow_modules_of_python() -> None:
    text = """
@R.function
def main(x: R.Tensor((4, 4), "float32")):
    return R.nn.softmax(x)
"""
    loaded = loaded_by(
        f"import relaxpy; from relaxpy.script import from_source; "
        f"relaxpy.compile(from_source({text!r}), 'numpy')"
    )
    assert "relaxpy.exec.loops" in loaded
    assert not loaded & {"importlib.metadata", "subprocess", "statistics", "email"}


def test_transposed_weights_are_known_without_a_compiler() -> None:
    text = """
@R.function
def main():
    with R.dataflow():
        y = R.permute_dims(R.const([[1, 2], [3, 4]]))
        R.output(y)
    return y
"""
    loaded = loaded_by(
        f"import relaxpy; from relaxpy.script import from_source; "
        f"mod = relaxpy.IRModule({{'main': from_source({text!r})}}); "
        f"mod = relaxpy.relax.transform.FoldConstant()(mod); "
        f"assert 'permute_dims' not in mod.script()"
    )
    assert not {name for name in loaded if name.startswith(("relaxpy.exec", "astor"))}


PROGRAM = """
from relaxpy.script import relax as R
import numpy as np
import relaxpy

@R.function
def main(x: R.Tensor((4, 4), "float32")):
    return R.nn.relu(R.matmul(x, x))

x = relaxpy.runtime.tensor(np.ones((4, 4), np.float32))
relaxpy.compile(main, "native")["main"](x)
print(*sys.modules)
"""


def test_a_program_from_the_disk_loads_no_compiler(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(f"import sys{PROGRAM}", encoding="utf-8")
    env = {
        **os.environ,
        "RELAXPY_CACHE": "1",
        "RELAXPY_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": str(ROOT),
    }
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(file)], env=env, capture_output=True, text=True, check=True
        )
    loaded = {name for name in done.stdout.split() if name.startswith("relaxpy.")}
    assert "relaxpy.ir.ops.nn.activation" in loaded
    rooms = (
        "ir.te.tensor",
        "ir.passes",
        "exec.loops",
        "exec.numpy",
        "exec.program.lower",
        "script.tir",
    )
    others = "ir.ops.image", "ir.ops.nn.convolution", "ir.arith.canonical"
    only_for_some = (
        *("ir.short_text.nodes", "ir.pass_infra.reproducer", "ir.ops.manipulate"),
        *("exec.runtime.scalar", "exec.runtime.instrument", "exec.native.maths"),
    )
    unused = (*rooms, *others, *only_for_some)
    assert not {name for name in loaded if name[8:].startswith(unused)}
    assert "numpy.ma" not in set(done.stdout.split()) - loaded_by("import numpy")


def test_onnx_loads_converters_when_a_model_needs_them() -> None:
    pytest.importorskip("onnx")
    ops = "relaxpy.plugins.onnx.ops"
    program = "from relaxpy.plugins.onnx.{} import {}; {}".format
    loaded = loaded_by(program("importer", "find", "find('', 'HardSwish', 14)"))
    assert f"{ops}.elementwise" in loaded
    assert not loaded & {f"{ops}.{name}" for name in ("conv", "images", "microsoft", "trees")}
    assert "relaxpy.ir.arith.canonical" not in loaded
    loaded = loaded_by(program("importer", "find", "assert find('', 'Resize', 13)"))
    assert f"{ops}.images" in loaded
    assert f"{ops}.microsoft" not in loaded


def test_a_saved_program_decodes_images_without_onnx() -> None:
    name = "relaxpy.onnx.decode_image"
    assert "onnx" not in loaded_by(f"import relaxpy; assert relaxpy.get_global_func({name!r})")


def test_the_virtual_machine_loads_no_planner() -> None:
    loaded = loaded_by("import relaxpy; relaxpy.VirtualMachine")
    assert "relaxpy.exec.api.vm" in loaded
    assert not {name for name in loaded if name.startswith("relaxpy.exec.loops")}


def test_an_operator_is_found_before_its_family_is_loaded() -> None:
    loaded = loaded_by(
        "from relaxpy.ir import ops as op; from relaxpy.ir.op import Op; "
        "assert 'image.resize2d' not in dir(op) and 'nn' in dir(op) and 'add' in dir(op); "
        "assert Op('relax.image.resize2d').record.pure; assert op.add.pure"
    )
    assert {"relaxpy.ir.ops.image", "relaxpy.ir.ops.elementwise"} <= loaded
    assert "relaxpy.ir.ops.sorting" not in loaded


def test_a_name_of_an_operator_that_is_not_loaded_is_taken() -> None:
    loaded = loaded_by(
        "import pytest; from relaxpy.errors import MisuseError; from relaxpy.ir import ops as op\n"
        "with pytest.raises(MisuseError, match='registered already, by relaxpy'):\n"
        "    op.register('relax.sort')(lambda x: x)\n"
    )
    assert "relaxpy.ir.ops.sorting" in loaded


def test_an_operator_may_be_the_first_name_of_a_program() -> None:
    loaded_by("from relaxpy.ir.op import Op; assert Op.get('relax.add').record.pure")
    loaded_by("from relaxpy.ir.op import Op; assert 'relax.sort' in Op.list_op_names()")
    pickled = rb"crelaxpy.ir.op\nOp\n(Vrelax.sort\ntR."
    loaded_by(f"import pickle; assert pickle.loads(b'{pickled.decode()}').record.pure")
    loaded_by(
        "import relaxpy; relaxpy.ir.Op('relax.add').extend(legalize=None)\n"
        "assert relaxpy.relax.op.add.legalize is None"
    )


def test_a_family_can_be_loaded_after_an_interruption() -> None:
    loaded_by("""
import sys
from relaxpy.ir.op import Op

def interrupted(frame, event, arg):
    if event == "call" and frame.f_globals["__name__"] == "relaxpy.ir.ops.elementwise":
        return at_the_end
    return None

def at_the_end(frame, event, arg):
    if "wrap_param" in frame.f_locals:
        sys.settrace(None)
        raise KeyboardInterrupt
    return at_the_end

sys.settrace(interrupted)
try:
    Op("relax.add")
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("nothing was interrupted")
assert Op("relax.add").record.pure and Op("relax.wrap_param").record.pure
from relaxpy.ir import ops as op
assert op.add.op is Op("relax.add")
""")


@pytest.mark.parametrize(
    ("library", "name"), [("onnx", "from_onnx"), ("torch", "from_exported_program")]
)
def test_importers_load_no_operators_that_a_model_may_not_have(library: str, name: str) -> None:
    pytest.importorskip(library)
    loaded = loaded_by(f"from relaxpy.relax.frontend.{library} import {name}")
    assert f"relaxpy.plugins.{library}.ops" in loaded
    assert not loaded & {f"relaxpy.ir.ops.nn.{kind}" for kind in ("convolution", "pooling")}
