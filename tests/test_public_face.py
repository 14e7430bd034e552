"""The names that users import, and that the two places which list them agree."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import relaxpy
import relaxpy.ir
from relaxpy.errors import RelaxpyError
from relaxpy.exec.inspect.profile import Profile
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.passes.legalize import register_legalize
from relaxpy.script import relax as script
from relaxpy.script.ir_builder import frames
from relaxpy.support import lazy
from relaxpy.support.absent import ABSENT, ABSENT_MODULES, EXPECTED

PACKAGE = Path(relaxpy.__file__).parent
FACES = ["relaxpy", "relaxpy.ir"]


@script.function
def negative(x: script.Tensor((2,), "float32")) -> script.Tensor((2,), "float32"):
    return script.negative(x)


EX = relaxpy.compile(negative, "numpy")


TABLE = tomllib.loads((PACKAGE / "names.toml").read_text(encoding="utf-8"))
"""What each module of public names has."""


def test_the_modules_of_public_names_are_those_of_the_table() -> None:
    tool = [sys.executable, str(PACKAGE.parent / "tools" / "faces.py"), "--check"]
    assert subprocess.run(tool, check=False).returncode == 0, "run tools/faces.py"


@pytest.mark.parametrize("face", TABLE)
def test_every_public_name_is_there(face: str) -> None:
    if face.endswith(".torch"):
        pytest.importorskip("torch")
    module = import_module(face)
    missing = [name for name in dir(module) if not hasattr(module, name)]
    assert missing == []
    if "names" in TABLE[face]:
        assert {name for name in dir(module) if name[0] != "_"} >= set(module.__all__)
        found: dict[str, Any] = {}
        exec(f"from {face} import *", found)
        assert found.keys() >= set(module.__all__)


def test_the_table_may_have_the_line_ends_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (PACKAGE / "names.toml").read_text(encoding="utf-8").replace("\n", "\r\n")
    monkeypatch.setattr(lazy, "names_toml", lambda: text)
    namespace: dict[str, Any] = {"__name__": "test"}
    lazy.face(namespace, "relaxpy.target")
    assert namespace["__getattr__"]("Target") is relaxpy.target.Target


def test_front_ends_that_need_an_extra_are_found_and_not_listed() -> None:
    program = """
import sys, relaxpy
sys.modules["onnx"] = None
from relaxpy.relax.frontend import *
assert "onnx" not in dir(relaxpy.relax.frontend) and "torch" not in dir(relaxpy.relax.frontend)
print(relaxpy.relax.frontend.onnx.__name__, relaxpy.relax.frontend.weights.__name__)
relaxpy.relax.frontend.nothing
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "relaxpy.relax.frontend.onnx relaxpy.relax.frontend.weights\n"
    assert "module 'relaxpy.relax.frontend' has no attribute 'nothing'" in done.stderr


def test_a_package_of_public_names_imports_none_of_them() -> None:
    packages = ("relaxpy.relax", "relaxpy.relax.transform", "relaxpy.tir", "relaxpy.topi")
    program = f"import sys, {', '.join(packages)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded = {name for name in done.stdout.split() if name.startswith("relaxpy.")}
    helpers = {
        "relaxpy.support",
        "relaxpy.support.absent",
        "relaxpy.support.gc_pause",
        "relaxpy.support.imported",
        "relaxpy.support.lazy",
        "relaxpy.support.missing",
    }
    assert loaded == {*packages, *helpers}


@pytest.mark.parametrize("face", FACES)
def test_a_name_that_is_not_there_is_an_attribute_error(face: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{face}' has no attribute 'nothing'"):
        _ = import_module(face).nothing


def test_names_that_programs_of_tvm_import() -> None:
    relax, tir = relaxpy.relax, relaxpy.tir
    assert relax.call_tir is relax.op.call_tir
    assert relax.call_dps_packed is relax.op.call_dps_packed
    assert relax.DynTensorType is relax.TensorType
    assert import_module("relaxpy.ir.base").structural_equal is relaxpy.ir.structural_equal
    parser = import_module("relaxpy.script.parser")
    assert (parser.ir, parser.relax) == (relaxpy.script.ir, relaxpy.script.relax)
    assert parser.tir is parser.tirx is relaxpy.script.tir
    builder = import_module("relaxpy.script.ir_builder")
    assert builder.tirx is builder.tir
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = parser.nothing
    assert isinstance(parser.relax.Tensor((2,)), parser.relax.entry.StructInfoProxy)
    assert parser.relax.Tensor((2,)).as_struct_info() == relax.TensorStructInfo((2,), None)
    with pytest.raises(relaxpy.errors.MisuseError, match="'n' has a meaning only in a signature"):
        parser.relax.Tensor(("n",)).as_struct_info()
    assert import_module("relaxpy.tirx") is relaxpy.tirx is relaxpy.tir
    assert import_module("relaxpy.sym") is relaxpy.sym is relaxpy.arith
    assert import_module("relaxpy.sym.analyzer").CompareResult is relaxpy.arith.CompareResult
    assert relaxpy.tirx.transform.StmtSimplify is tir.transform.Simplify
    assert import_module("relaxpy.tirx.stmt_functor").substitute is tir.stmt_functor.substitute
    assert relaxpy.s_tir.Schedule is tir.Schedule
    assert import_module("relaxpy.s_tir.schedule") is tir.schedule
    assert import_module("relaxpy.s_tir.schedule").SBlockRV is tir.schedule.BlockRV
    assert relaxpy.s_tir.sbijective_layout is tir.bijective_layout
    assert relaxpy.s_tir.SBlock is tir.Block
    assert relaxpy.s_tir.analysis.get_sblock_access_region is tir.analysis.get_block_access_region
    assert relaxpy.error.OpNotImplemented is relaxpy.TVMError
    assert relaxpy.s_tir.renew_defs is tir.stmt_functor.renew_defs
    assert callable(import_module("relaxpy.s_tir.schedule.testing").verify_trace_roundtrip)
    assert relaxpy.s_tir.dlight is relaxpy.dlight
    with pytest.raises(AttributeError, match="nothing is tuned"):
        _ = relaxpy.s_tir.meta_schedule
    assert str(relax.prim_value(3)) == str(relax.PrimValue(3))
    llm = import_module("relaxpy.relax.frontend.nn.llm")
    assert llm.llama_rope is llm.position_embedding.llama_rope
    assert str(relaxpy.cpu()) == "cpu:0"
    assert relaxpy.device("cuda:1") == relaxpy.cuda(1)


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        ("tir.function", "PrimFunc", relaxpy.tir.PrimFunc),
        ("tir.function", "IndexMap", relaxpy.tir.IndexMap),
        ("tir.buffer", "Buffer", relaxpy.tir.Buffer),
        ("arith.analyzer", "Analyzer", relaxpy.arith.Analyzer),
        ("arith.analyzer", "Extension", relaxpy.arith.Extension),
        ("arith.int_set", "IntSet", relaxpy.arith.IntSet),
        ("relax.ir.instrument", "WellFormedInstrument", relaxpy.transform.WellFormedInstrument),
        ("relax.transform.legalize_ops.common", "register_legalize", register_legalize),
        ("base", "TVMError", relaxpy.TVMError),
        ("arith.iter_affine_map", "detect_iter_map", relaxpy.arith.detect_iter_map),
        ("relax.analysis.analysis", "well_formed", relaxpy.relax.analysis.well_formed),
        (
            "relax.backend.dispatch_sampling",
            "DispatchSampling",
            relaxpy.relax.backend.DispatchSampling,
        ),
        ("relax.distributed.global_info", "DeviceMesh", relaxpy.relax.distributed.DeviceMesh),
        ("relax.op.base", "call_pure_packed", relaxpy.relax.call_pure_packed),
        ("relax.op.ccl", "allreduce", relaxpy.relax.op.ccl.allreduce),
        ("relax.op.nn", "gelu", relaxpy.relax.op.nn.gelu),
        ("relax.op.statistical", "cumsum", relaxpy.relax.op.cumsum),
        ("relax.training.trainer", "Trainer", relaxpy.relax.training.Trainer),
        ("relax.transform.transform", "LegalizeOps", relaxpy.relax.transform.LegalizeOps),
        ("relax.vm_build", "build", relaxpy.relax.build),
        ("runtime.vm", "VirtualMachine", relaxpy.VirtualMachine),
        ("script.ir_builder.relax.ir", "py_print", print),
        ("script.ir_builder.ir.frame", "IRModuleFrame", frames.IRModuleFrame),
        ("script.ir_builder.relax.frame", "FunctionFrame", frames.FunctionFrame),
        ("script.ir_builder.tir.frame", "PrimFuncFrame", frames.PrimFuncFrame),
        ("runtime", "container", relaxpy.runtime.container),
        ("te.operation", "create_prim_func", relaxpy.te.create_prim_func),
        ("testing.utils", "check_numerical_grads", relaxpy.testing.check_numerical_grads),
        ("relax.frontend.nn.op", "IntExpr", relaxpy.relax.frontend.nn.IntExpr),
        ("tir.expr", "Add", relaxpy.tir.Add),
        ("tir.generic", "floordiv", relaxpy.tir.floordiv),
        ("tir.stmt", "SBlockRealize", relaxpy.tir.BlockRealize),
        ("topi.nn", "relu", relaxpy.topi.nn.relu),
        ("topi.reduction", "sum", relaxpy.topi.sum),
    ],
)
def test_modules_that_programs_of_tvm_import(path: str, name: str, value: object) -> None:
    assert getattr(import_module(f"relaxpy.{path}"), name) is value


def test_both_spellings_name_one_function() -> None:
    assert relaxpy.build is relaxpy.compile
    assert relaxpy.register_global_func is relaxpy.register_func


def test_operators_of_a_family_are_found_in_the_module_of_the_family() -> None:
    op = relaxpy.relax.op
    for family in ("builtin", "ccl", "grad", "image", "inspect", "memory", "vision", "vm"):
        module = import_module(f"relaxpy.relax.op.{family}")
        names = dir(getattr(R, family))
        assert [getattr(module, name) for name in names] == [
            getattr(getattr(op, family), name) for name in names
        ]
        assert names


PATHS = """
    ir.transform.Sequential ir.instrument.PassTimingInstrument ir.base.structural_equal
    ir.module.IRModule ir.op.Op tir.expr.ProducerLoad tir.function.PrimFunc tir.stmt.For
    te.tensor.Tensor te.tag.tag_scope topi.transform.reshape arith.iter_affine_map.detect_iter_map
    relax.transform.transform.FuseOps tir.schedule.schedule.ScheduleError
    relax.transform.legalize_ops.common.register_legalize
    relax.backend.cuda.cublas.partition_for_cublas relax.backend.utils
    relax.training.trainer.Trainer relax.distributed.struct_info.DTensorStructInfo
    relax.analysis.analysis.well_formed relax.ir.instrument.WellFormedInstrument
"""


def test_modules_are_attributes_of_their_packages() -> None:
    program = "import relaxpy\n" + "\n".join(f"relaxpy.{path}" for path in PATHS.split())
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert found.stderr == ""


#: What refuses names that are neither attributes nor modules.
REFUSALS: dict[str, Callable[[str], object]] = {
    "PassContext": lambda name: relaxpy.transform.PassContext(config={name: True}),
    "get_pipeline": relaxpy.get_pipeline,
}


@pytest.mark.parametrize(
    ("module", "path"),
    [
        ("relaxpy", "relaxpy.relax.frontend.onnx.from_onnx"),
        ("relaxpy", "relaxpy.relax.frontend.torch.from_fx"),
        ("relaxpy.transform", "relaxpy.relax.transform.LegalizeOps"),
        ("relaxpy.relax.transform", "relaxpy.tir.transform.Simplify"),
        ("relaxpy.tir.transform", "relaxpy.transform.PassContext"),
    ],
)
def test_a_name_of_another_module_is_found_there(module, path) -> None:
    name = path.rpartition(".")[2]
    with pytest.raises(AttributeError, match=f"hint: it is {path}$"):
        getattr(import_module(module), name)
    with pytest.raises(ImportError, match=f"hint: it is {path}$"):
        exec(f"from {module} import {name}")


@pytest.mark.parametrize(("parent", "names", "instead"), [*ABSENT, *EXPECTED])
def test_an_absent_name_of_tvm_says_what_to_use_instead(parent, names, instead) -> None:
    objects: dict[str, object] = {
        "Executable": EX,
        "IRModule": relaxpy.IRModule({}),
        "Profile": Profile((), 0.0),
        "Schedule": relaxpy.tir.Schedule(relaxpy.IRModule({})),
    }
    if parent in REFUSALS:
        for name in names.split():
            with pytest.raises(RelaxpyError, match=re.escape(f"{name}'")) as error:
                REFUSALS[parent](name)
            assert f"hint: {instead}" in str(error.value)
        return
    if parent not in objects:
        objects[parent] = import_module(f"relaxpy.{parent}".rstrip("."))
    owner = objects[parent]
    for name in names.split():
        if f"{parent}.{name}".removeprefix(".") in ABSENT_MODULES:
            continue
        assert name not in dir(owner)
        assert not hasattr(owner, name)
        with pytest.raises(AttributeError, match=f"no attribute '{name}'") as caught:
            getattr(owner, name)
        assert f"hint: {instead}" in str(caught.value)
        if isinstance(owner, ModuleType):
            with pytest.raises(ImportError, match=f"cannot import name '{name}'") as refused:
                exec(f"from relaxpy.{parent} import {name}".replace(". ", " "))
            assert f"hint: {instead}" in str(refused.value)


def test_an_attribute_that_no_row_lists_says_where_functions_are() -> None:
    hint = r'hint: functions are items, as ex\["negative"\]; dir\(\) lists the attributes'
    with pytest.raises(AttributeError, match=hint):
        str(EX.warmup)


@pytest.mark.parametrize(("parent", "names", "instead"), [*ABSENT, *EXPECTED])
def test_importing_an_absent_module_says_what_to_use_instead(parent, names, instead) -> None:
    """Whatever is listed, also below a package: TVM's modules and classes share one table."""
    owner = f"relaxpy.{parent}".rstrip(".")
    if hasattr(sys.modules.get(owner), "__path__"):
        for module in (f"{owner}.{name}" for name in names.split()):
            if module.removeprefix("relaxpy.") in ABSENT_MODULES:
                continue
            for statement in (
                f"import {module}",
                f"import {module}.deeper",
                f"from {module} import anything",
            ):
                with pytest.raises(ModuleNotFoundError) as caught:
                    exec(statement)
                assert str(caught.value).startswith(f"no module named '{module}")
                assert str(caught.value).endswith(instead)


def test_absent_modules_that_programs_need_in_some_branches_only_are_imported() -> None:
    """What is used of them is the error."""
    hints = {f"{p}.{n}".removeprefix("."): hint for p, ns, hint in ABSENT for n in ns.split()}
    for path in ABSENT_MODULES:
        parent, _, name = f"relaxpy.{path}".rpartition(".")
        found: dict[str, Any] = {}
        exec(f"import {parent}.{name}; from {parent} import {name} as module", found)
        for error, start, statement in (
            (AttributeError, "module .* has no attribute 'call'", "module.call"),
            (ImportError, "cannot import name 'call'", f"from {parent}.{name} import call"),
            (ModuleNotFoundError, "no module named", f"import {parent}.{name}.deeper"),
        ):
            with pytest.raises(error, match=start) as caught:
                exec(statement, found)
            assert str(caught.value).endswith(hints[path])


@pytest.mark.parametrize(
    ("module", "name", "right"),
    [
        ("relaxpy", "compil", "compile"),
        ("relaxpy.script", "realx", "relax"),
        ("relaxpy.relax.transform", "LegaliseOps", "LegalizeOps"),
        ("relaxpy.tir", "PrimFun", "PrimFunc"),
    ],
)
def test_a_misspelt_name_of_a_module_has_a_suggestion(module: str, name: str, right: str) -> None:
    script = f"def look():\n    import {module}\n    {module}.{name}\nlook()\n"
    for text in (script, f"from {module} import {name}\n"):
        ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
        assert f"\n  hint: did you mean '{right}'" in ended.stderr
        assert "Did you mean" not in ended.stderr
        assert str(PACKAGE) not in ended.stderr  # no frame of relaxpy
    owner = import_module(module)
    assert not hasattr(owner, name)
    assert not hasattr(owner, f"_{name}")
    with pytest.raises(ImportError, match="_nothing"):
        exec(f"from {module} import _nothing")


def test_a_module_that_tvm_does_not_have_either_is_not_found_as_python_says_it() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'relaxpy\.nothing'$"):
        import_module("relaxpy.nothing")


def test_names_of_older_versions_of_tvm() -> None:
    array = relaxpy.nd.array(np.ones((2, 3), "float32"))
    assert isinstance(array, relaxpy.runtime.NDArray)
    assert type(array.asnumpy()) is np.ndarray
    capsule = array.to_dlpack()
    assert type(capsule).__name__ == "PyCapsule"
    assert relaxpy.runtime.relax_vm.VirtualMachine is relaxpy.VirtualMachine
    parser = import_module("relaxpy.script.parser")
    assert parser.from_source is relaxpy.script.from_source
    module = relaxpy.IRModule({"main": negative})
    assert module.astext() == module.script() == module.astext(show_meta_data=False)


def test_names_of_newer_versions_of_tvm() -> None:
    """Types of TVM after v0.22 are struct info, and so are the values of its attributes `ty`."""
    relax, n = relaxpy.relax, relaxpy.tir.Var("n", "int64")
    kernel = relaxpy.script.from_source(
        "@R.function(pure=False)\n"
        "def main(x: R.Tensor((2,), 'float32'), y: R.Any) -> R.Any:\n"
        "    z = R.match_cast(y, R.Tensor((2,), 'float32'))\n"
        "    return R.call_packed('f', x, z, ty_args=R.Any)\n"
    )
    assert kernel.ret_ty is kernel.ret_struct_info
    assert kernel.ret_ty == relax.ObjectStructInfo()
    assert kernel.ty is kernel.struct_info
    cast, call = kernel.body.blocks[0].bindings
    assert cast.ty is cast.struct_info
    assert call.value.ty_args is call.value.sinfo_args
    x = relax.TensorType([2, n], "float32")
    assert relax.Var("x", x).ty == relax.TensorStructInfo([2, n], "float32")
    assert relax.ShapeType([n, 1]) == relax.ShapeStructInfo([n, 1])
    fields = relax.TupleType([x, relax.ObjectType()])
    assert fields == relax.TupleStructInfo([x, relax.ObjectStructInfo()])
    func = relax.FuncType([x], relaxpy.ir.PrimType("int64"))
    assert func == relax.FuncStructInfo([x], relax.PrimStructInfo("int64"))
    assert relax.TensorType(shape=[2, n], dtype="float32") == x
    scalar = relax.Var("k", relaxpy.ir.PrimType("int64"))
    assert scalar.ty == relax.PrimStructInfo("int64")
    kinds = (relax.TensorType, relax.ShapeType, relax.TupleType, relax.FuncType, relax.AnyType)
    infos = (x, relax.ShapeType([n]), fields, func, kernel.ret_ty)
    table = [[isinstance(info, kind) for kind in kinds] for info in infos]
    assert table == [[i == j for j in range(5)] for i in range(5)]
    assert not isinstance(relax.TensorType(2), relax.ShapeType)
    assert relax.dpl.wildcard().has_ty(x).match(relax.Var("x", x))
    assert isinstance(relax.dpl.wildcard().has_type(x), relax.dpl.TypePattern)
    assert relax.analysis.type_lca(x, fields) == relax.AnyType().__struct_info__()
    assert relaxpy.te.indexdiv(n, 2) == n // 2


def test_dir_lists_public_names_alone() -> None:
    """In a new process, as other tests import modules."""
    program = (
        "import relaxpy, relaxpy.plugins, relaxpy.exec.api.compile\n"
        "names = {name for name in dir(relaxpy) if not name.startswith('_')}\n"
        "print(*names ^ {*relaxpy.__all__})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("", 0)


def test_names_for_programs_of_tvm_say_that_they_are_no_features() -> None:
    text = "relaxpy has none, so it is skipped"
    assert text in (relaxpy.testing.requires_cuda.__doc__ or "")
    assert text not in (relaxpy.testing.requires_llvm.__doc__ or "")
    assert "no program runs there" in (relaxpy.cuda.__doc__ or "")
    assert "no program runs there" not in (relaxpy.cpu.__doc__ or "")
    for name in ("dlight", "dlight.gpu"):
        text = import_module(f"relaxpy.{name}").__doc__ or ""
        assert "programs run unchanged" in " ".join(text.split()), name
