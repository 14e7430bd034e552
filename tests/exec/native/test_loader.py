"""Objects are loaded without llvmlite: relocations, variables, functions of libc, and memory."""

import ctypes
import gc
import struct

import numpy as np
import pytest

from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import I64, POINTER
from relaxpy.exec.native.machine_code.loader import LoadedObject
from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.native.machine_code.objects import compile_object, link_object

TEXT = """
@counter = global i64 40
@zeros = global [1000 x i64] zeroinitializer, align 64
@table = internal constant [4 x double] [double 1.0, double 2.0, double 4.0, double 8.0]
@pointer = global ptr @table
declare ptr @memset(ptr, i32, i64)
define internal i64 @twice(i64 %x) noinline {
  %y = mul i64 %x, 2
  ret i64 %y
}
define i64 @count(i64 %x) {
  %n = load i64, ptr @counter
  %t = call i64 @twice(i64 %x)
  %m = add i64 %n, %t
  store i64 %m, ptr @counter
  ret i64 %m
}
define double @look(i64 %x) {
  %p = load ptr, ptr @pointer
  %q = getelementptr double, ptr %p, i64 %x
  %a = load double, ptr %q
  %r = getelementptr double, ptr @table, i64 %x
  %b = load double, ptr %r
  %s = fadd double %a, %b
  ret double %s
}
define i64 @choose(i64 %x) {
  switch i64 %x, label %o [ i64 0, label %a  i64 1, label %b  i64 2, label %c  i64 3, label %d
                            i64 4, label %e ]
a: ret i64 7
b: ret i64 -3
c: ret i64 19
d: ret i64 1
e: ret i64 100
o: ret i64 0
}
define void @fill(ptr %p, i64 %n) {
  %r = call ptr @memset(ptr %p, i32 1, i64 %n)
  ret void
}
"""
NAMES = ["count", "look", "choose", "fill", "counter", "zeros"]


@pytest.fixture(scope="module")
def code() -> bytes:
    return compile_object(f'target triple = "{host().triple}"\n{TEXT}')


def integer(address: int, argument: int) -> int:
    result: int = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(argument)
    return result


def test_functions_see_variables_constants_and_libc(code: bytes) -> None:
    library = link_object(code, NAMES)
    assert [integer(library["count"], n) for n in (1, 2)] == [42, 46]
    assert ctypes.c_int64.from_address(library["counter"]).value == 46
    look = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(library["look"])
    assert [look(n) for n in range(4)] == [2, 4, 8, 16]
    assert [integer(library["choose"], n) for n in range(6)] == [7, -3, 19, 1, 100, 0]
    zeros = (ctypes.c_int64 * 1000).from_address(library["zeros"])
    assert not any(zeros)
    assert library["zeros"] % 64 == 0
    out = np.zeros(100, np.uint8)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library["fill"])(out.ctypes.data, 90)
    assert out.sum() == 90


def test_each_load_has_its_own_variables(code: bytes) -> None:
    first, second = link_object(code, NAMES), link_object(code, NAMES)
    assert integer(first["count"], 1) == integer(second["count"], 1) == 42


def test_objects_that_follow_each_other_see_what_each_defines() -> None:
    triple = f'target triple = "{host().triple}"\n'
    first = """
@shared = global i64 5
declare i64 @second(i64)
define i64 @first(i64 %x) {
  %y = call i64 @second(i64 %x)
  %z = add i64 %y, 1
  ret i64 %z
}
"""
    second = """
@shared = external global i64
@one = internal global i64 1
declare i64 @first(i64)
define i64 @second(i64 %x) {
  %y = load i64, ptr @shared
  %z = add i64 %y, %x
  ret i64 %z
}
define i64 @third(i64 %x) {
  %y = load i64, ptr @one
  %z = call i64 @first(i64 %y)
  ret i64 %z
}
"""
    library = link_object(compile_object(triple + first, triple + second), ["first", "third"])
    assert integer(library["first"], 10) == 16
    assert integer(library["third"], 0) == 7


def protection(address: int) -> str | None:
    """The protection of the page of this process at an address; None if there is none."""
    with open("/proc/self/maps", encoding="ascii") as file:
        for line in file:
            span, flags, *_ = line.split()
            first, last = (int(end, 16) for end in span.split("-"))
            if first <= address < last:
                return flags
    return None


def test_code_cannot_be_written_and_variables_cannot_be_executed(code: bytes) -> None:
    library = link_object(code, NAMES)
    assert protection(library["count"]) == "r-xp"
    assert protection(library["counter"]) == protection(library["zeros"]) == "rw-p"


def test_memory_is_unmapped_with_the_library(code: bytes) -> None:
    libraries = [link_object(code, NAMES) for _ in range(50)]
    places = [library["count"] for library in libraries]
    del libraries
    gc.collect()
    assert sum(protection(place) == "r-xp" for place in places) < 5


def test_what_is_not_an_object_for_this_machine_is_refused(code: bytes) -> None:
    for other in (b"", b"MZ" + code[2:], code[:16] + struct.pack("<HH", 1, 183) + code[20:]):
        with pytest.raises(ValueError, match="expected a relocatable ELF object"):
            LoadedObject(other)


def test_functions_that_do_not_exist_are_reported() -> None:
    module = Module(host().triple, host().vector_bits)
    function = module.function("f", [(POINTER, "x")], I64)
    function.ret(function.call("no_such_function_at_all", I64, *function.params))
    with pytest.raises(ValueError, match="no function 'no_such_function_at_all'"):
        LoadedObject(compile_object(module.text()))
    with pytest.raises(KeyError):
        LoadedObject(compile_object(TEXT)).addresses(["missing"])
