"""Modules become functions in this process; machines that cannot run them are refused."""

import ctypes
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import CompileError
from relaxpy.exec.machine import tuning
from relaxpy.exec.native.calls import jit
from relaxpy.exec.native.calls.jit import compile_module
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import F32, I64, POINTER, Function, Type, Value
from relaxpy.exec.native.machine_code import machine
from relaxpy.exec.native.machine_code.machine import host, narrow
from relaxpy.exec.native.machine_code.objects import compile_assembly, compile_object
from relaxpy.script import from_source


def adder(number: int) -> Module:
    module = Module(host().triple, host().vector_bits)
    function = module.function("add", [(I64, "x")], I64)
    function.ret(function.params[0] + number)
    return module


def call(address: int, argument: int) -> int:
    result: int = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(argument)
    return result


def test_functions_have_addresses_that_can_be_called() -> None:
    library = compile_module(adder(3), ["add"])
    assert list(library) == ["add"]
    assert call(library["add"], 4) == 7


def test_libraries_with_functions_of_the_same_name_are_independent() -> None:
    one, two = compile_module(adder(1), ["add"]), compile_module(adder(2), ["add"])
    assert (call(one["add"], 0), call(two["add"], 0)) == (1, 2)


def test_several_threads_compile_at_a_time() -> None:
    found: list[int] = []

    def work(number: int) -> None:
        libraries = [compile_module(adder(number), ["add"]) for _ in range(10)]
        found.extend(call(library["add"], 0) for library in libraries)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))  # raises what a thread does
    assert sorted(found) == sorted([0, 1, 2, 3] * 10)


def test_a_block_computes_a_value_once() -> None:
    module = Module(host().triple, host().vector_bits)
    function = module.function("sums", [(I64, "x"), (I64, "n")], I64)
    x, n = function.params
    first = (x + 3) * n + (x + 3) * n + (x + 0) * 1
    (total,) = function.loop(0, n, 1, [first], lambda i, sum_: [sum_ + (x + 3) * n + i])
    function.ret(total)
    assert module.text().count("add i64 %x, 3") == 2  # once in each of two blocks
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    library = compile_module(module, ["sums"])
    assert run(library["sums"])(5, 4) == 2 * 8 * 4 + 5 + sum(8 * 4 + i for i in range(4))


def test_functions_that_need_not_be_fast_are_a_part_of_their_own(monkeypatch) -> None:
    module = Module(host().triple, host().vector_bits)
    module.words("state", 2)
    place = Value(None, POINTER, "@state")  # type: ignore[arg-type]
    inner = module.function("inner", [(I64, "n")], I64)
    inner.ret(inner.loop(0, inner.params[0], 1, [inner.load(I64, place)], lambda i, s: [s + i])[0])
    outer = module.function("outer", [(I64, "n")], I64, optimised=False)
    outer.store(outer.params[0], place)
    total = outer.call("inner", I64, outer.params[0])
    assert not module.parts(module.functions)[1].functions  # since they are short
    for _ in range(100):
        total = outer.load(I64, place) + total
    outer.ret(total)
    fast, slow = module.parts(module.functions)
    assert (list(fast.functions), list(slow.functions)) == (["inner"], ["outer"])
    expected = 5 + sum(range(5)) + 100 * 5
    library = compile_module(module, ["outer"])
    assert call(library["outer"], 5) == expected
    monkeypatch.setattr(tuning.CodeSize, "PART", 1)
    for names in (["inner"], ["outer"], ["outer", "inner"]):
        ahead = jit.PartsAhead()
        ahead.add(module, names)
        assert ahead.functions == set(names)
        library = compile_module(module, ["outer"], ahead=ahead)
        assert call(library["outer"], 5) == expected


def test_functions_stay_as_they_are_while_a_thread_compiles_them(monkeypatch) -> None:
    passed: set[str] = set()
    changed: list[str] = []
    add, close, rename = jit.PartsAhead.add, Function.close, Function.rename

    def noted_add(ahead: jit.PartsAhead, module: Module, names: Iterable[str]) -> None:
        passed.update(names)
        add(ahead, module, names)

    def noted_close(function: Function) -> None:
        changed.extend({function.name} & passed)
        close(function)

    def noted_rename(function: Function, old: str, new: str) -> None:
        changed.extend({function.name} & passed)
        rename(function, old, new)

    monkeypatch.setattr(jit.PartsAhead, "add", noted_add)
    monkeypatch.setattr(Function, "close", noted_close)
    monkeypatch.setattr(Function, "rename", noted_rename)
    params = 'x: R.Tensor((20, 30), "float32")'
    text = f"@R.function\ndef main({params}):\n    return R.sum(R.exp(x), axis=1)\n"
    relaxpy.compile(from_source(text), "native")
    assert passed
    assert not changed


def test_what_follows_from_constants_is_not_emitted() -> None:
    module = Module(host().triple, host().vector_bits)
    function = module.function("f", [(I64, "x")], I64)
    (x,) = function.params
    total = 0 + x
    for stop in (-5, 0, 1):  # no iteration, but for the last loop
        (total,) = function.loop(0, stop, 4, [total], lambda i, sum_: [sum_ + i + 7])
    large = function.compare("sgt", function.index(1 << 62), 3)
    (total,) = function.branch(large, lambda: [total * 3], lambda: [total * 5])
    twice = function.index(1 << 62)
    function.ret(total + (twice + twice) + (twice + twice))  # 2**63 is no i64
    text = module.text()
    assert "br " not in text
    assert text.count(" = ") == 7  # also the triple and the attributes
    library = compile_module(module, ["f"])
    assert call(library["f"], 2) == 27


def test_a_rest_that_is_known_to_be_none_is_not_computed() -> None:
    module = Module(host().triple, host().vector_bits)
    function = module.function("f", [(I64, "x")], I64)
    (x,) = function.params
    last = function.intrinsic("smin", x * 48 + 32, 96)

    def rests(index: Value, total: Value) -> list[Value]:
        known = function.remainder(last - index, 16) + function.remainder(96, 32)
        return [total + known + function.remainder(index * x, 32)]

    (total,) = function.loop(16, last, 16, [function.index(0)], rests)
    function.ret(total)
    assert module.text().count("urem") == 1
    library = compile_module(module, ["f"])
    assert [call(library["f"], n) for n in (0, 1, 3)] == [0, 16 + 16, 16 + 16 + 16]


def test_the_narrow_machine_has_no_registers_of_512_bits() -> None:
    module = Module(narrow().triple, narrow().vector_bits)
    function = module.function("twice", [(POINTER, "x")])
    (x,) = function.params
    value = function.load(Type("float", 16), x)
    function.store(value + value, x)
    function.ret()
    assembly = compile_assembly(module.text(), narrow())
    assert "ymm" in assembly
    assert "zmm" not in assembly


def test_a_vector_register_holds_a_number_of_elements() -> None:
    assert host().lanes(F32.bits) * F32.bits == host().vector_bits


def test_invalid_ir_is_an_error_of_ours() -> None:
    with pytest.raises(RuntimeError, match="expected type"):
        compile_object("define")


def test_processors_without_fma_are_refused() -> None:
    with pytest.raises(CompileError, match="requires AVX2 and FMA, or NEON; found x86-64-v2"):
        machine._machine("x86_64-unknown-linux-gnu", "x86-64-v2", "+sse4.2")


def test_features_of_avx512_are_complete_or_not_used() -> None:
    part = machine._machine("x86_64-linux", "knl", "+avx2,+fma,+avx512f,+avx512cd")
    assert (part.vector_bits, part.vector_registers) == (256, 16)
    assert machine._machine("aarch64-linux", "neoverse-n1", "").vector_bits == 128
    assert replace(part, features="+avx2,-fma").has("avx2")
    assert not replace(part, features="+avx2,-fma").has("fma")


def test_a_missing_llvmlite_is_reported_with_the_command_that_installs_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    with pytest.raises(CompileError, match="with llvmlite: it is not installed") as caught:
        machine.llvm.__wrapped__()
    assert "pip install 'relaxpy[native]'" in str(caught.value)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 24])
def test_the_lanes_of_several_vectors_are_folded_at_once_in_the_order_of_each(count: int) -> None:
    lanes = 16
    module = Module(host().triple, host().vector_bits)
    function = module.function("fold", [(POINTER, "x"), (POINTER, "y")])
    x, y = function.params
    vector = Type("float", lanes)
    vectors = [function.load(vector, function.element(x, n * lanes, F32)) for n in range(count)]
    for n, total in enumerate(function.fold_lanes(vectors, lambda a, b: a + b)):
        function.store(total, function.element(y, n, F32))
    function.ret()
    values = np.random.default_rng(count).standard_normal((count, lanes), np.float32)
    found, expected = np.zeros(count, np.float32), values
    library = compile_module(module, ["fold"])
    fold = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library["fold"])
    fold(values.ctypes.data, found.ctypes.data)
    while (half := expected.shape[1] // 2) > 0:
        expected = expected[:, :half] + expected[:, half:]
    assert found.tolist() == expected[:, 0].tolist()
    assert module.text().count("fadd") < count + 4 * 3
