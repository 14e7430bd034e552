import json
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MisuseError, RuntimeCheckError, UnknownNameError
from relaxpy.exec.api.compile import compile
from relaxpy.exec.api.vm import VirtualMachine
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax import VMInstrumentReturnKind
from relaxpy.script import ir as I, relax as R, tir as T
from tests.exec.kernels import function, module, size_var, tensor

N, M = size_var("n"), size_var("m")
X = np.ones(2, "float32")


@pytest.fixture
def vm() -> VirtualMachine:
    x, y, f = rx.Var("x", tensor((N,))), rx.Var("y", tensor((N,))), rx.Var("f")
    inner = function([y], [], rx.Tuple((y,)), name=None)
    made = function([x], [(f, inner)], f, name="make")
    a, b = rx.Var("x", tensor((M,))), rx.Var("z", tensor((M,)))
    pair = function([a, b], [], rx.Tuple((a, a)), name="pair")
    return relaxpy.VirtualMachine(compile(module(make=made, pair=pair)), "cpu")


def test_functions_are_called_by_name(vm: VirtualMachine) -> None:
    assert vm["pair"](X, X) == (X, X)
    with pytest.raises(UnknownNameError, match="no function 'pear'"):
        vm["pear"]


def test_closures_are_invoked(vm: VirtualMachine) -> None:
    closure = vm["make"](X)
    assert vm.invoke_closure(closure, X) == (X,)
    with pytest.raises(RuntimeCheckError, match="takes 1 argument, found 0"):
        vm.invoke_closure(closure)
    with pytest.raises(MisuseError, match="invoke_closure takes a closure, found the int64 prim"):
        vm.invoke_closure(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("on_executable", [False, True])
def test_inputs_and_outputs_are_kept_between_calls(vm: VirtualMachine, on_executable: bool) -> None:
    machine, vm = vm, vm.module if on_executable else vm  # type: ignore[assignment]
    with pytest.raises(RuntimeCheckError, match="no input was set for pair"):
        vm.invoke_stateful("pair")
    vm.set_input("pair", X, z=X)
    with pytest.raises(UnknownNameError, match="pair has no outputs yet"):
        vm.get_outputs("pair")
    vm.invoke_stateful("pair")
    for output in vm.get_outputs("pair"):
        assert isinstance(output, relaxpy.runtime.Tensor)
        assert np.shares_memory(output, X)
    with pytest.raises(RuntimeCheckError, match="takes 2 arguments, found 1"):
        vm.set_input("pair", X)
    with pytest.raises(UnknownNameError):
        vm.set_input("pear", X)
    assert len(vm.time_evaluator("invoke_stateful", "cpu", repeat=2)("pair").results) == 2
    assert len(vm.time_evaluator("pair", number=1, repeat=3)(X, X).results) == 3
    if on_executable:  # what is set there is not set in its machines
        with pytest.raises(RuntimeCheckError, match="no input was set for pair"):
            machine.invoke_stateful("pair")


@pytest.mark.parametrize("device", ["cuda", [relaxpy.cpu(), relaxpy.cuda(1)], 2])
def test_a_machine_is_on_the_processor(vm: VirtualMachine, device: Any) -> None:
    for processor in ("cpu", relaxpy.cpu(), [relaxpy.cpu()], 1, None):
        assert relaxpy.VirtualMachine(vm.module, processor)["pair"](X, X) == (X, X)
    with pytest.raises(
        MisuseError, match=r"arrays on cpu:0, found device cuda:[01]\n.*\n.*\n.*omit"
    ):
        relaxpy.VirtualMachine(vm.module, device)


def test_a_function_is_saved_with_its_arguments(vm: VirtualMachine) -> None:
    vm.save_function("pair", "pair_of_x", X, X)
    assert vm["pair_of_x"]() == (X, X)
    vm.save_function("pair", "quiet", X, X, include_return=False)
    assert vm["quiet"]() is None
    with pytest.raises(MisuseError, match="already a function 'pair_of_x'"):
        vm.save_function("pair", "pair_of_x", X, X)
    with pytest.raises(MisuseError, match="a name is a string, found 5"):
        vm.save_function("pair", 5, X, X)  # type: ignore[arg-type]
    with pytest.raises(RuntimeCheckError, match="takes 2 arguments, found 1"):
        vm.save_function("pair", "short", X)


def test_a_module_is_not_an_executable() -> None:
    with pytest.raises(MisuseError, match=r"found IRModule[\s\S]*relaxpy\.compile\(mod\)"):
        VirtualMachine(module())  # type: ignore[arg-type]


def test_calls_are_timed(vm: VirtualMachine) -> None:
    vm.save_function("pair", "saved", X, X)
    found = vm.time_evaluator("saved", "cpu", number=3, repeat=4)()
    assert len(found.results) == 4
    assert 0 < found.min <= found.median <= found.max
    assert found.min <= found.mean <= found.max
    assert found.std <= found.max - found.min
    assert str(found).startswith("mean ")
    long = vm.time_evaluator("pair", number=1, min_repeat_ms=2)(X, X)
    assert long.mean > 0
    with pytest.raises(UnknownNameError, match="no function 'pear'"):
        vm.time_evaluator("pear")
    for wrong in ({"number": 0}, {"repeat": 1.5}, {"repeats_to_cooldown": 0}):
        with pytest.raises(MisuseError, match=f"{next(iter(wrong))} is a positive integer"):
            vm.time_evaluator("pair", **wrong)  # type: ignore[arg-type]
    for name, time in (("min_repeat_ms", "2"), ("cooldown_interval_ms", -1)):
        with pytest.raises(MisuseError, match=f"{name} is a time in ms"):
            vm.time_evaluator("pair", **{name: time})  # type: ignore[arg-type]
    with pytest.raises(RuntimeCheckError, match="takes 2 arguments"):
        vm.time_evaluator("pair")(X)
    assert vm.module["pair"](X, X) == (X, X)


def test_rounds_are_prepared_and_cooled_down(vm, monkeypatch) -> None:
    steps: list[object] = []
    monkeypatch.setattr("relaxpy.exec.api.stateful.sleep", steps.append)
    relaxpy.register_func("test.prepare", lambda *args: steps.append(len(args)))
    try:
        found = vm.time_evaluator("pair", "cpu", 1, 4, 0, 20, 2, "test.prepare")(X, X)
    finally:
        relaxpy.runtime.remove_global_func("test.prepare")
    assert len(found.results) == 4
    assert steps == [2, 2, 0.02, 2, 2]
    with pytest.raises(UnknownNameError, match=r"'test\.prepare'"):
        vm.time_evaluator("pair", f_preproc="test.prepare")


@I.ir_module
class Chain:
    @T.prim_func(private=True)
    def double(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.block("double"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] * T.float32(2)

    @R.function(private=True)
    def inner(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        return R.call_tir(Chain.double, (x,), out_sinfo=R.Tensor((n,), "float32"))

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32")) -> R.Object:
        y = Chain.inner(x)
        f = R.ExternFunc("test.same")
        z = R.call_packed("test.same", y, sinfo_args=R.Tensor(ndim=1))
        w = f(z)
        return R.add(z, z), w


@pytest.fixture(params=["native", "numpy", "reference"])
def chain(request: pytest.FixtureRequest) -> Iterator[VirtualMachine]:
    def same(value: object) -> object:
        return value

    relaxpy.register_func("test.same", same)
    yield VirtualMachine(relaxpy.compile(Chain, request.param), memory_cfg="naive", profile=True)
    relaxpy.runtime.remove_global_func("test.same")


def test_an_instrument_sees_every_call_before_and_after(chain: VirtualMachine) -> None:
    seen: list[tuple[object, ...]] = []
    function = chain["main"]
    chain.set_instrument(lambda function, *call: seen.append((callable(function), *call)))
    chain.save_function("main", "saved", X)
    for run in (lambda: chain["main"](X), chain["saved"]):
        total, same = run()
        assert total.tolist() == [4, 4]
        assert same.tolist() == [2, 2]
        before, after = ([c for c in seen if c[2] is when] for when in (True, False))
        assert [c[1] for c in before] == ["inner", "double", "test.same", "same", "relax.add"]
        assert [c[1] for c in after] == ["double", "inner", "test.same", "same", "relax.add"]
        assert all(c[0] is True for c in seen)
        assert all(c[3] is None for c in (*before, after[0]))
        assert np.shares_memory(after[1][3], same)
        assert [len(c) - 4 for c in before] == [1, 2, 1, 1, 2]
        assert np.shares_memory(before[0][4], X)
        seen.clear()
    function(X)
    chain.set_instrument(None)
    chain["main"](X)
    assert seen == []


def test_functions_of_its_module_are_those_of_the_machine(chain: VirtualMachine) -> None:
    seen: list[object] = []
    chain.set_instrument(lambda function, name, before, *rest: seen.extend(rest))
    module = chain.module
    results = module.get_function("main")(X)
    arrays = [value for value in (*results, *seen) if isinstance(value, np.ndarray)]
    assert len(arrays) > len(results)
    assert {type(array) for array in arrays} == {relaxpy.runtime.Tensor}
    seen.clear()
    module(X)
    assert seen
    assert module.implements_function("main")
    assert not module.implements_function("pear")
    for lookup in (module.get_function, module.__getitem__, chain.__getitem__):
        with pytest.raises(AttributeError, match="no function 'pear'"):
            lookup("pear")
    assert relaxpy.VirtualMachine(module)["main"](X)[0].shape == X.shape


def test_an_instrument_may_skip_a_call(chain: VirtualMachine) -> None:
    def instrument(function: object, name: str, before: bool, *rest: object) -> int:
        assert before or name != "double"
        kinds = VMInstrumentReturnKind
        return kinds.SKIP_RUN if name == "double" else kinds.NO_OP

    chain.set_instrument(instrument)
    assert chain["main"](X)[1].shape == (2,)
    chain.set_instrument(lambda function, name, *rest: int(name == "inner"))
    with pytest.raises(RuntimeCheckError, match=r"the result of packed function test\.same"):
        chain["main"](X)
    with pytest.raises(MisuseError, match="an instrument is a function, found the int64 prim"):
        chain.set_instrument(5)  # type: ignore[arg-type]


def test_an_error_of_an_instrument_is_the_users(chain: VirtualMachine) -> None:
    def instrument(*call: object) -> None:
        raise OSError("full")

    chain.set_instrument(instrument)
    with pytest.raises(OSError, match="full") as caught:
        chain["main"](X)
    assert not any("relaxpy/exec" in str(entry.path) for entry in caught.traceback)


def test_a_profile_says_where_the_time_goes(chain: VirtualMachine) -> None:
    report = chain.profile("main", X)
    names = {"main", "inner", "double", "test.same", "same", "relax.add"}
    assert {row.name: row.count for row in report.rows} == dict.fromkeys(names, 1)
    durations = [row.duration for row in report.rows]
    assert durations == sorted(durations, reverse=True)
    assert sum(durations) == pytest.approx(report.duration)
    assert type(report) is type(chain.module.profile(X))
    assert report.table() == str(report)
    assert {line.split(",")[0] for line in report.csv().splitlines()[1:]} == names
    assert {row["Name"] for row in json.loads(report.json())} == names
    seen: list[object] = []
    chain.set_instrument(lambda *call: seen.append(call))
    chain.profile("main", X)
    assert seen == []
    chain["main"](X)
    assert seen
    with pytest.raises(UnknownNameError, match="no function 'mian'"):
        chain.profile("mian", X)
    with pytest.raises(RuntimeCheckError, match="takes 1 argument, found 0"):
        chain.profile("main")


def test_a_profile_is_of_its_own_thread(chain: VirtualMachine) -> None:
    def run() -> None:
        chain.profile("main", X)
        chain["main"](X)

    def same(value: object) -> object:
        if threading.current_thread() is threading.main_thread():
            other = threading.Thread(target=run)
            other.start()
            other.join()
        return value

    relaxpy.register_func("test.same", same, override=True)
    assert {row.count for row in chain.profile("main", X).rows} == {1}
    assert chain["main"].entry is chain._executable["main"]  # type: ignore[attr-defined]


def test_what_was_set_is_timed_too(vm: VirtualMachine) -> None:
    vm.set_input("pair", X, X)
    assert "pair" in str(vm.profile("pair"))


def test_build_takes_the_parameters_of_compilers() -> None:
    @R.function
    def main(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")) -> R.Tensor:
        return R.add(x, w)

    built = relax.build(main, None, {"w": X}, "default", "default", "compiled", system_lib=False)
    assert built["main"](X).tolist() == [2, 2]
    for wrong in ({"exec_mode": "fast"}, {"tir_pipeline": "none"}, {"system_lib": 3}):
        with pytest.raises(MisuseError, match=rf"{next(iter(wrong))} is"):
            relax.build(main, **wrong)  # type: ignore[arg-type]
    compiled = relaxpy.compile(main, tir_pipeline="default")
    assert compiled["main"](X, X).tolist() == [2, 2]
    with pytest.raises(MisuseError, match="tir_pipeline is 'default' or None"):
        relaxpy.compile(main, tir_pipeline="zero")
    with pytest.raises(MisuseError, match="params belong to function main"):
        relax.build(main.with_attr("global_symbol", "f"), params={"w": X})


@pytest.mark.parametrize("weights", [(X, 2 * X), [X, 2 * X]])
def test_a_field_of_an_object_is_that_of_a_tuple_or_list(weights: Any) -> None:
    @I.ir_module
    class Second:
        @R.function
        def main(w: R.Object, k: R.Prim("int64")):  # type: ignore[valid-type]
            out = R.Tensor((2,), "float32")
            return R.call_pure_packed("vm.builtin.tuple_getitem", w, k, sinfo_args=out)

    second = compile(Second)["main"]
    np.testing.assert_array_equal(second(weights, 1), weights[1])
    with pytest.raises(RuntimeCheckError, match="there is no field 2 in "):
        second(weights, 2)
