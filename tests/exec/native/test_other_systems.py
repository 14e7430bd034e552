"""Code for macOS and Windows on x86-64 runs here, over functions of these systems written here.

LLVM calls functions of Windows' convention from code for Linux, too.
"""

import ctypes
import time
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from typing_extensions import override

from relaxpy.exec.machine.platforms import LINUX, PLATFORMS, X86_64, Platform
from relaxpy.exec.machine.process import Linux, own_platform
from relaxpy.exec.native.llvm.typed_values import Type
from relaxpy.exec.native.llvm.writer import I32, I64, POINTER
from relaxpy.exec.native.machine_code import loader
from relaxpy.exec.native.machine_code.machine import Machine, generating_for, host, machine_of
from relaxpy.exec.native.machine_code.objects import Library, compile_object, link_object
from relaxpy.exec.native.maths.by_name import emit_maths
from relaxpy.exec.native.threads import freed_memory as memory, pool
from relaxpy.exec.native.threads.jobs import Records
from relaxpy.exec.native.threads.systems import threads_of
from relaxpy.exec.runtime.threads import ring

here = own_platform()
pytestmark = pytest.mark.skipif(
    here is None or here.system is not LINUX or here.architecture is not X86_64,
    reason="the functions call Linux on x86-64",
)
OTHERS = [p for p in PLATFORMS if p.architecture is X86_64 and p.system is not LINUX]
HERE = """
declare i64 @syscall(i64, ...)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @sched_yield()
declare ptr @malloc(i64)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @clock_gettime(i32, ptr)
define internal void @wait(ptr %place, i32 %word) {
  call i64 (i64, ...) @syscall(i64 202, ptr %place, i64 128, i32 %word, ptr null)
  ret void
}
define internal void @wake(ptr %place) {
  call i64 (i64, ...) @syscall(i64 202, ptr %place, i64 129, i32 2147483647)
  ret void
}
define internal i64 @number() {
  %number = call i64 (i64, ...) @syscall(i64 186)
  ret i64 %number
}
"""
APPLE = """
define i32 @os_sync_wait_on_address(ptr %place, i64 %value, i64 %size, i32 %flags) {
  %word = trunc i64 %value to i32
  call void @wait(ptr %place, i32 %word)
  ret i32 0
}
define i32 @os_sync_wake_by_address_all(ptr %place, i64 %size, i32 %flags) {
  call void @wake(ptr %place)
  ret i32 0
}
define i32 @pthread_threadid_np(ptr %thread, ptr %out) {
  %number = call i64 @number()
  store i64 %number, ptr %out
  ret i32 0
}
define ptr @mmap_there(ptr %place, i64 %size, i32 %access, i32 %flags, i32 %file, i64 %at) {
  %rest = xor i32 %flags, 4096
  %here = or i32 %rest, 32
  %memory = call ptr @mmap(ptr %place, i64 %size, i32 %access, i32 %here, i32 %file, i64 %at)
  ret ptr %memory
}
define i32 @call(ptr %run, ptr %body, ptr %context, i64 %tasks, i64 %bytes) {
  %status = call i32 %run(ptr %body, ptr %context, i64 %tasks, i64 %bytes)
  ret i32 %status
}
"""
WINDOWS = """
define internal ptr @start(ptr %both) {
  %run = load ptr, ptr %both
  %second = getelementptr ptr, ptr %both, i64 1
  %argument = load ptr, ptr %second
  call win64cc i32 %run(ptr %argument)
  ret ptr null
}
define win64cc ptr @CreateThread(ptr %s, i64 %z, ptr %run, ptr %argument, i32 %f, ptr %n) {
  %thread = alloca i64
  %both = call ptr @malloc(i64 16)
  store ptr %run, ptr %both
  %second = getelementptr ptr, ptr %both, i64 1
  store ptr %argument, ptr %second
  call i32 @pthread_create(ptr %thread, ptr null, ptr @start, ptr %both)
  ret ptr %both
}
define win64cc i32 @GetCurrentThreadId() {
  %number = call i64 @number()
  %word = trunc i64 %number to i32
  ret i32 %word
}
define win64cc i32 @SwitchToThread() {
  %status = call i32 @sched_yield()
  ret i32 %status
}
define win64cc i32 @WaitOnAddress(ptr %place, ptr %expected, i64 %size, i32 %milliseconds) {
  %word = load i32, ptr %expected
  call void @wait(ptr %place, i32 %word)
  ret i32 1
}
define win64cc void @WakeByAddressAll(ptr %place) {
  call void @wake(ptr %place)
  ret void
}
define win64cc i32 @QueryPerformanceCounter(ptr %out) {
  %time = alloca [2 x i64]
  call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %second = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %second
  %whole = mul i64 %seconds, 10000000
  %ticks = udiv i64 %rest, 100
  %sum = add i64 %whole, %ticks
  store i64 %sum, ptr %out
  ret i32 1
}
define win64cc i32 @QueryPerformanceFrequency(ptr %out) {
  store i64 10000000, ptr %out
  ret i32 1
}
define win64cc ptr @VirtualAlloc(ptr %place, i64 %size, i32 %kind, i32 %access) {
  %memory = call ptr @mmap(ptr null, i64 %size, i32 3, i32 34, i32 -1, i64 0)
  ret ptr %memory
}
define win64cc i32 @VirtualFree(ptr %place, i64 %size, i32 %kind) {
  %status = call i32 @munmap(ptr %place, i64 4096)
  ret i32 1
}
define win64cc i64 @_time64(ptr %out) {
  ret i64 7
}
declare ptr @memmove(ptr, ptr, i64)
define win64cc ptr @memmove_there(ptr %to, ptr %from, i64 %size) {
  %end = call ptr @memmove(ptr %to, ptr %from, i64 %size)
  ret ptr %end
}
define void @__chkstk() {
  ret void
}
define i32 @call(ptr %run, ptr %body, ptr %context, i64 %tasks, i64 %bytes) {
  %status = call win64cc i32 %run(ptr %body, ptr %context, i64 %tasks, i64 %bytes)
  ret i32 %status
}
"""
TEXTS = {"macos": APPLE, "windows": WINDOWS}


class Functions(Linux):
    """This system with functions of another one."""

    def __init__(self, others: Mapping[str, int]) -> None:
        super().__init__(LINUX)
        self.others = others

    @override
    def address(self, name: str) -> int:
        other = "_time64" if name == "time" else f"{name}_there"
        return self.others.get(name) or self.others.get(other) or super().address(name)


@pytest.fixture(params=OTHERS, ids=[platform.name for platform in OTHERS])
def other(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Machine, Library]]:
    """A machine of another system, whose code runs here, and the functions of the system."""
    platform: Platform = request.param
    text = HERE + TEXTS[platform.system.name]
    names = [
        line.partition("(")[0].split("@")[1]
        for line in text.splitlines()
        if line.startswith("define ") and "internal" not in line
    ]
    code = compile_object(f'target triple = "{host().triple}"\n{text}')
    functions = link_object(code, names)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(functions))  # workers may run it until the end
    monkeypatch.setattr(loader, "process", lambda: Functions(functions))
    machine = machine_of(platform, "x86-64-v3")
    with generating_for(machine, runs_here=True):
        yield machine, functions


def test_functions_of_maths_are_those_of_this_system(other: tuple[Machine, Library]) -> None:
    machine, functions = other

    def library(machine: Machine) -> Library:
        module = machine.module()
        type = Type("float", 16)
        f = module.function("run", [(POINTER, "x"), (POINTER, "out"), (I64, "a"), (I64, "b")], I32)
        x, out, *_ = f.params
        value = f.load(type, x)
        for n, name in enumerate(("exp", "sin", "erf", "log")):
            f.store(emit_maths(f, name, value), f.element(out, 16 * n, type))
        f.ret(f.const(I32, 5))
        return link_object(compile_object(module.text(), machine=machine), ["run"])

    x, found, expected = np.linspace(0.1, 3, 16, dtype="f4"), *np.zeros((2, 4, 16), "f4")
    address = functions["call"]
    params = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 2
    call = ctypes.CFUNCTYPE(ctypes.c_int32, *params)(address)
    there = library(machine)
    assert call(there["run"], x.ctypes.data, found.ctypes.data, 0, 0) == 5
    own = machine_of(here, "x86-64-v3") if here else host()
    usual = library(own)
    run = ctypes.CFUNCTYPE(ctypes.c_int32, *params[:2], *params[3:])(usual["run"])
    assert run(x.ctypes.data, expected.ctypes.data, 0, 0) == 5
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(found[0], np.exp(x), rtol=1e-6)


def test_threads_share_the_tasks_of_loops(other: tuple[Machine, Library]) -> None:
    machine, functions = other
    kinds = threads_of(machine.platform.system).functions
    here = Functions(functions)
    library = pool.CODE.linked(["run"])
    cache = memory.CODE.linked(["take", "give"])
    memory.CODE.set(cache, "yield", here.address(kinds["yield"]))
    memory.CODE.set(cache, "limit", 1 << 30)
    places = (ctypes.c_int32 * 12)()
    values = {name: here.address(function) for name, function in kinds.items()}
    values |= {"workers": 3, "main": 0, "places": ctypes.addressof(places)}
    values |= {"times": ctypes.addressof(ring()), "take": cache["take"], "give": cache["give"]}
    jobs = Records(threads=4)
    values |= jobs.variables
    for name, value in values.items():
        pool.CODE.set(library, name, value)
    for kept in (library, cache, places, jobs):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))

    module = machine.module()
    params = [(POINTER, "context"), (I64, "task"), (I64, "slot"), (POINTER, "scratch")]
    f = module.function("body", params)
    context, task, slot, scratch = f.params
    f.store(task, scratch)  # each thread has its own memory
    [total] = f.loop(0, 3000, 1, [f.index(0)], lambda n, sum: [sum + f.load(I64, scratch)])
    f.store(total, f.element(context, task * 2, I64))
    f.store(slot, f.element(context, task * 2 + 1, I64))
    f.ret()
    body = link_object(compile_object(module.text(), machine=machine), ["body"])
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(body))
    call = ctypes.CFUNCTYPE(
        *(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
        *(ctypes.c_int64, ctypes.c_int64),
    )(functions["call"])

    slots, end, runs = set[int](), time.monotonic() + 60, 0
    while time.monotonic() < end and (len(slots) < 2 or runs < 50):
        out = np.zeros((400, 2), np.int64)
        assert call(library["run"], body["body"], out.ctypes.data, 400, 1 << 18) == 0
        assert (out[:, 0] == 3000 * np.arange(400)).all()
        slots.update(out[:, 1].tolist())
        runs += 1
        if runs % 10 == 0:
            time.sleep(0.01)  # the workers fall asleep
    assert slots <= {0, 1, 2, 3}
    assert len(slots) > 1
