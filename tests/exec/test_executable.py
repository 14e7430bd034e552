from pathlib import Path

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import (
    CompileError,
    MisuseError,
    RelaxpyError,
    UnknownNameError,
    WellFormedError,
)
from relaxpy.exec.api.compile import compile
from relaxpy.exec.api.executable import Executable
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir, stmt as st
from relaxpy.script import tir as T
from tests.counting import calls
from tests.exec.kernels import (
    buffer,
    call_tir,
    elementwise,
    function,
    matmul,
    module,
    prim_func,
    size_var,
    tensor,
)

N = size_var("n")
X = np.arange(6, dtype="float32").reshape(3, 2)


def dense() -> IRModule:
    gv, x, w = rx.GlobalVar("mm"), rx.Var("x", tensor((N, 2))), rx.Var("w", tensor((2, 4)))
    y = rx.Var("y", tensor((N, 4)))
    main = function([x, w], [(y, call_tir(gv, [x, w], tensor((N, 4))))], y, ret=tensor((N, 4)))
    return IRModule({gv: matmul(size_var("n"), 2, 4, "mm"), "main": main})


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_the_default_pipeline_runs_first(target: str) -> None:
    ex = relaxpy.compile(dense(), target)
    w = np.ones((2, 4), "float32")
    for count in (1, 3):
        np.testing.assert_allclose(ex["main"](X[:count], w), X[:count] @ w)
    assert ex.function_names == ("mm", "main")


@pytest.mark.rule("TOP-2", "TOP-3")
def test_main_is_the_entry_point_when_none_is_named() -> None:
    ex = compile(dense())
    w = np.ones((2, 4), "float32")
    np.testing.assert_array_equal(ex(X, w), ex["main"](X, w))
    assert ex.entry_name == "main"
    out = np.zeros((3, 4), "float32")
    ex["mm"](X, w, out)
    np.testing.assert_allclose(out, X @ w)


@pytest.mark.rule("TOP-2")
def test_the_only_function_is_the_entry_point_whatever_its_name() -> None:
    mod = dense()
    out = np.zeros((3, 4), "float32")
    w = np.ones((2, 4), "float32")
    ex = compile(IRModule({"mm": mod["mm"]}))
    ex(X, w, out)
    assert ex.entry_name == "mm"
    np.testing.assert_allclose(out, X @ w)
    with pytest.raises(UnknownNameError, match="has no function 'main'"):
        compile(
            IRModule({"mm": mod["mm"], "other": mod["mm"].with_attr("global_symbol", "other")})
        )(X, w, out)


@pytest.mark.rule("TOP-4", "RES-59")
def test_a_private_function_is_not_reachable() -> None:
    inner, x, y = rx.GlobalVar("inner"), rx.Var("x", tensor((2,))), rx.Var("x", tensor((2,)))
    mod = IRModule(
        {inner: function([y], [], y, name=None), "main": function([x], [], rx.Call(inner, (x,)))}
    )
    ex = compile(mod)
    value = np.zeros(2, "float32")
    assert ex["main"](value) is value
    with pytest.raises(UnknownNameError, match=r"function 'inner' is private: .*\[TOP-4\]"):
        ex["inner"]


def test_an_unknown_function_is_named_with_close_ones() -> None:
    ex = compile(dense())
    with pytest.raises(UnknownNameError, match="no function 'mian'; it has mm, main") as e:
        ex["mian"]
    assert "did you mean 'main'?" in str(e.value)
    assert isinstance(e.value, (KeyError, ValueError))
    assert "main" in ex
    assert "mian" not in ex
    with pytest.raises(UnknownNameError, match=r"no function \['main'\]"):
        ex[["main"]]  # type: ignore[index]
    assert ex.__call__ is ex["main"]  # without a frame in between


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_functions_by_themselves_are_compiled(target: str) -> None:
    x = rx.Var("x", tensor((N,)))
    assert compile(function([x], [], x, name=None), target).function_names == ("main",)
    assert compile(function([x], [], x, name="f"), target).function_names == ("f",)
    ex = compile(elementwise((N,), lambda v: v + 1.0), target)
    out = np.zeros(2, "float32")
    ex["main"](np.ones(2, "float32"), out)
    assert out.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((5,), "compile takes a model, a function or a path, found int"),
        (("model.gguf",), r"found the path 'model.gguf'\n(.*\n)*  hint: relaxpy.llm.load\(path\)"),
        ((Path("model"),), "found the path 'model'"),
        (("def f",), r"found a string\n(.*\n)*  hint: .*from_source\(text\)"),
        ((rx.ExternFunc("f"),), "compile takes a model, a function or a path, found ExternFunc"),
        ((IRModule(), "cuda"), "there is no target 'cuda'; targets are numpy, native, reference"),
    ],
)
def test_misuse_of_compile_is_named(args: tuple[object, ...], message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        compile(*args)  # type: ignore[arg-type]


def test_what_to_pass_in_place_of_a_path_or_of_swapped_bytes() -> None:
    with pytest.raises(MisuseError, match=r"hint: .*relaxpy\.load_executable\(path\)"):
        relaxpy.VirtualMachine("model.rxp")  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match=r"hint: .*relaxpy\.compile\(mod\)"):
        relaxpy.VirtualMachine(dense())  # type: ignore[arg-type]
    ex = compile(dense())
    x, *rest = relaxpy.testing.random_inputs(ex["main"], seed=1)
    with pytest.raises(ValueError, match=r"bytes(.*\n)*  hint: convert it with \.astype"):
        ex["main"](x.astype(">f4"), *rest)
    ex["main"](x.astype(">f4").astype("float32"), *rest)


def test_an_unknown_pipeline_is_named() -> None:
    with pytest.raises(UnknownNameError, match="defualt"):
        compile(dense(), relax_pipeline="defualt")


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (5, "relax_pipeline is a name or a pass, found 5"),
        ([], r"a pass, found \[\]\n.*hint: join passes: relaxpy.transform.Sequential"),
        (lambda mod: None, "relax_pipeline returns an IRModule, found NoneType"),
    ],
)
def test_what_is_not_a_pipeline_is_named(pipeline: object, message: str) -> None:
    with pytest.raises(MisuseError, match=f"(?s){message}"):
        compile(dense(), relax_pipeline=pipeline)  # type: ignore[arg-type]


@pytest.mark.rule("WF-24")
def test_an_ill_formed_module_is_refused_with_all_its_faults() -> None:
    x, gone, lost = rx.Var("x", tensor((N,))), rx.Var("gone"), rx.Var("lost")
    main = function([x], [], rx.Tuple((gone, x, lost)))
    with pytest.raises(WellFormedError) as caught:
        compile(main)
    text = str(caught.value)
    assert "gone" in text
    assert "lost" in text


def test_a_pipeline_may_be_a_pass() -> None:
    seen = []

    def note(mod: IRModule) -> IRModule:
        seen.append(mod)
        return mod

    mod = dense()
    compile(mod, relax_pipeline=note)
    assert seen == [mod]


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_a_hardware_intrinsic_is_named(target: str) -> None:
    a = buffer((1,), "A")
    wait = prim_func([a], st.Evaluate(tir.Call("void", "tir.ptx_wait_group", (0,))), "k")
    with pytest.raises(CompileError, match=r"tir\.ptx_wait_group"):
        compile(module(k=wait), target)


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_a_launched_thread_is_named_with_the_loop_to_write_instead(target: str) -> None:
    @T.prim_func
    def launch(A: T.Buffer((4,), "float32")):
        tx = T.launch_thread("threadIdx.x", 4)
        A[tx] = A[tx] + T.float32(1)

    with pytest.raises(CompileError, match=r"launch: T\.launch_thread\('threadIdx\.x', 4\)") as e:
        compile(module(launch=launch), target)
    assert "T.thread_binding(4, thread='threadIdx.x')" in str(e.value)
    assert e.value.diagnostics[0].span is not None


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_a_thread_that_nothing_asks_for_is_not_run_once_for_all(target: str) -> None:
    @T.prim_func
    def count(A: T.Buffer((1,), "int32")):
        T.launch_thread("threadIdx.x", 4)
        A[0] = A[0] + 1

    with pytest.raises(CompileError, match="launch_thread"):
        compile(module(count=count), target)


def test_the_report_says_how_each_kernel_runs() -> None:
    report = compile(dense()).report()
    [row] = report
    assert row.kernel == "mm"
    assert "contraction" in row.method
    text = str(report)
    assert " ".join(text.split("\n")[0].split()) == "kernel block back end runs as threads"
    assert "mm" in text
    reference = str(compile(dense(), "reference").report())
    assert "reference evaluator" in reference


def test_the_source_of_the_reference_target_is_the_program() -> None:
    assert "call_tir" in compile(dense(), "reference").source


def test_an_executable_shows_its_signatures() -> None:
    ex = compile(dense())
    assert 'main(x: R.Tensor((n, 2), dtype="float32")' in repr(ex)
    assert repr(ex["main"]).startswith("<function main(x: R.Tensor")


def test_calling_costs_little_more_than_what_is_called() -> None:
    x = rx.Var("x", tensor((N, 2)))
    main = compile(function([x], [], x, ret=tensor((N, 2))))["main"]
    main(X)
    assert calls(lambda: main(X)) < 12


def test_every_refusal_is_a_relaxpy_error() -> None:
    ex = compile(dense())
    assert isinstance(ex, Executable)
    for args in [(), (X,), (X, None), (X, X), (X.T, X), ([1], X), (X, X.astype(int)), ("x", {})]:
        with pytest.raises(RelaxpyError):
            ex["main"](*args)


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize("pipeline", [None, "default"])
def test_a_module_that_changes_later_leaves_its_executable_alone(target, pipeline, tmp_path):
    inner, x, y, z = rx.GlobalVar("inner"), rx.Var("x"), rx.Var("y"), rx.Var("z")
    a = rx.Var("a", rx.ObjectStructInfo())
    main = function([a], [(z, rx.Call(inner, (a,)))], z)
    mod = IRModule({inner: function([x], [], x, name="inner"), "main": main})
    ex = compile(mod, target, relax_pipeline=pipeline)
    mod["inner"] = function([y], [], rx.PrimValue(7), name="inner")
    assert ex["main"](3) == 3
    ex.save(tmp_path / "saved.json")
    assert relaxpy.load_executable(tmp_path / "saved.json")["main"](3) == 3


def test_params_are_a_table_and_a_file_has_a_path() -> None:
    with pytest.raises(MisuseError, match="mapping of values"):
        relaxpy.relax.build(IRModule({}), params=[1])  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="the path of a file"):
        relaxpy.load_executable(4)  # type: ignore[arg-type]


@pytest.mark.rule("DER-49")
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_a_handle_without_a_buffer_is_anything(target: str) -> None:
    kernel = relaxpy.script.from_source("""
        @T.prim_func
        def fill(anything: T.handle, B: T.Buffer((4,), "float32")):
            for i in range(4):
                B[i] = T.float32(1)
    """)
    run = relaxpy.compile(IRModule({"fill": kernel}), target)["fill"]
    for given in (None, "text", np.ones(3), object()):
        result = np.zeros(4, "float32")
        run(given, result)
        assert result.tolist() == [1, 1, 1, 1]


def test_an_executable_describes_itself_by_the_methods_of_tvm() -> None:
    ex = compile(dense(), "numpy")
    assert ex.jit() is ex
    assert ex.mod is ex
    assert ex.imports == []
    assert ex.as_python() == ex.source == ex["as_python"]()
    assert (ex["as_text"](), ex["stats"]()) == (ex.as_text(), ex.stats())
    assert relaxpy.script.from_source(ex.as_text()).functions_by_name.keys() == set(
        ex._program.module.functions_by_name
    )
    target, functions, kernels, constants = ex.stats().splitlines()
    assert (target, functions) == ("target: numpy", f"functions: {', '.join(ex)}")
    assert kernels == f"kernels: {len(ex.report().rows)}"
    assert constants == "constants: 0, 0 bytes"


def test_kernels_are_built_by_the_function_of_tir() -> None:
    @T.prim_func
    def twice(a: T.Buffer((3,), "float32")):
        for i in range(3):
            a[i] = a[i] * T.float32(2)

    ex = relaxpy.tir.build(twice, target="llvm")
    assert isinstance(ex, relaxpy.runtime.Module)
    a = np.array([1, 2, 3], "float32")
    ex(a)
    np.testing.assert_array_equal(a, [2, 4, 6])
