"""Int8 products in matrix tiles: no CPU with them is needed.

The instructions run in a model. Whole products run here with a portable function in their place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.exec import self_test as child
from relaxpy.exec.native.contraction import dots, matrix_tiles
from relaxpy.exec.native.contraction.dots import Dots
from relaxpy.exec.native.llvm.function import I8, I32, I64, POINTER, Value
from relaxpy.exec.native.llvm.module import Module
from relaxpy.exec.native.machine_code import loader, machine, self_test
from relaxpy.exec.native.machine_code.machine import Machine, generating_for, host, machine_of
from relaxpy.exec.native.machine_code.objects import compile_assembly, compile_object
from relaxpy.exec.platforms import LINUX, X86_64, platform_of_words
from relaxpy.exec.process import Linux, Process, process
from relaxpy.script import from_source
from tests.exec.native.amx_model import Processor

KINDS = ("tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud")
linux = platform_of_words("x86_64", "linux")
assert linux is not None


def tiled() -> Machine:
    """A CPU with AVX-512 and matrix tiles."""
    level = machine_of(linux, "znver4")
    return replace(level, features=f"{level.features},+amx-tile,+amx-int8")


def text_of(kind: str, rows: int, lanes: Sequence[int]) -> str:
    """The instructions of the function that adds products."""
    module = tiled().module()
    matrix_tiles._define(module, "tiles", kind, rows, lanes)
    assembly = compile_assembly(module.text(), tiled())
    return assembly.partition("\ntiles:")[2].partition("retq")[0] + "retq"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "lanes"), [(16, (16, 16)), (1, (4,)), (5, (16, 8)), (16, (16,))])
@pytest.mark.parametrize("groups", [0, 1, 15, 16, 17, 32, 45])
def test_the_instructions_add_products(kind, rows, lanes, groups) -> None:
    draw = np.random.default_rng(groups * 100 + rows)
    pitch, width = 4 * groups + 64, 4 * sum(lanes) + 64
    first = draw.integers(0, 256, (rows, pitch), "uint8")
    second = draw.integers(0, 256, (groups, width), "uint8")
    sums = draw.integers(-(2**31), 2**31, (rows, sum(lanes)), "int32")
    memory = bytearray(sums.tobytes() + first.tobytes() + second.tobytes() + bytes(4096))
    places = 0, sums.nbytes, sums.nbytes + first.nbytes
    model = Processor(memory)
    model.run(text_of(kind, rows, lanes), places[0], places[1], pitch, places[2], width, groups)
    kinds = [np.int8 if letter == "s" else np.uint8 for letter in kind[4:6]]
    a = first[:, : 4 * groups].view(kinds[0]).astype(np.int64)
    b = second[:, : 4 * sum(lanes)].view(kinds[1]).astype(np.int64)
    b = b.reshape(groups, sum(lanes), 4).transpose(0, 2, 1).reshape(4 * groups, sum(lanes))
    expected = (sums + a @ b).astype(np.int32)
    found = np.frombuffer(bytes(memory[: sums.nbytes]), np.int32).reshape(sums.shape)
    np.testing.assert_array_equal(found, expected)
    assert bytes(memory[sums.nbytes :]).startswith(first.tobytes() + second.tobytes())
    assert model.products == -(-groups // 16) * len(lanes)


def test_the_model_refuses_what_the_processor_does() -> None:
    memory = bytearray(4096)
    memory[0], memory[48], memory[16] = 1, 16, 64
    text = "ldtilecfg\t(%rdi)\ntilerelease\nretq"
    Processor(bytearray(memory)).run(text, 0)
    memory[49] = 4  # rows without a width
    with pytest.raises(AssertionError, match="both or none"):
        Processor(memory).run(text, 0)
    with pytest.raises(AssertionError, match="does not know"):
        Processor(memory).run("vaddps\t%zmm0, %zmm0, %zmm0\nretq")


def portable(module: Module, name: str, kind: str, rows: int, lanes: Sequence[int]) -> None:
    """The same function without tiles."""
    types = POINTER, POINTER, I64, POINTER, I64, I64
    f = module.function(name, [(type, f"p{n}") for n, type in enumerate(types)])
    sums, a, pitch, b, width, groups = f.params
    columns = sum(lanes)

    def byte(place: Value, sign: str) -> Value:
        return f.cast("sext" if sign == "s" else "zext", f.load(I8, place), "i32")

    def element(row: Value, column: Value) -> None:
        place = f.element(sums, row * columns + column, I32)

        def group(k: Value, total: Value) -> list[Value]:
            for n in range(4):
                left = f.element(a, row * pitch + k * 4 + n, I8)
                right = f.element(b, k * width + column * 4 + n, I8)
                total = total + byte(left, kind[4]) * byte(right, kind[5])
            return [total]

        f.store(*f.loop(0, groups, 1, [f.load(I32, place)], group), place)

    f.loop(0, rows, 1, [], lambda r: f.loop(0, columns, 1, [], lambda c: element(r, c)) and None)
    f.ret()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """This CPU, as if it had matrix tiles."""
    if host().platform.architecture is not X86_64:
        pytest.skip("the copies are those of x86-64")
    monkeypatch.setenv("RELAXPY_CACHE", "0")
    monkeypatch.setattr(matrix_tiles, "_define", portable)
    monkeypatch.setattr(dots, "tiles_are_confirmed", lambda: True)
    monkeypatch.setattr(type(process()), "allow_tiles", lambda self: True)
    monkeypatch.setattr(Machine, "instructions", property(lambda self: {"vpdpbusd", "tdpb"}))
    return host()


PRODUCT = """
@R.function
def main(x: R.Tensor(({rows}, {depth}), "{a}"), y: R.Tensor(({depth}, {columns}), "{b}")):
    return R.matmul(x, y, out_dtype="int32")
"""


@pytest.mark.parametrize("rows", [17, 64, 37, "n"])
@pytest.mark.parametrize(("depth", "columns"), [(64, 64), (100, 70), (3, 33), (1500, 20), (7, "m")])
def test_products_are_those_of_numpy(rows, depth, columns, here, monkeypatch) -> None:
    used: list[str] = []
    define = matrix_tiles._define

    def recorded(module: Module, name: str, *shape: object) -> None:
        used.append(name)
        define(module, name, *shape)

    monkeypatch.setattr(matrix_tiles, "_define", recorded)
    draw = np.random.default_rng(5)
    for a, b in (("int8", "int8"), ("uint8", "uint8")):
        text = PRODUCT.format(rows=repr(rows), depth=depth, columns=repr(columns), a=a, b=b)
        with generating_for(here, runs_here=True):
            main = relaxpy.compile(from_source(text), target="native")["main"]
            for n in (1, 16, 50) if isinstance(rows, str) else (rows,):
                m = columns if isinstance(columns, int) else 45
                x, y = (draw.integers(0, 256, s, "uint8") for s in ((n, depth), (depth, m)))
                x, y = x.view(a), y.view(b)
                np.testing.assert_array_equal(main(x, y), x.astype("int32") @ y.astype("int32"))
    assert {name.split(".")[2] for name in used} == {"tdpbssd", "tdpbuud"}


def test_tiles_are_used_only_where_they_are_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen() -> Dots | None:
        operand = dots.Matrix(Value(None, POINTER, "%a"), I8)
        return dots.dots_of(tiled().module(), I32, operand, operand, in_tiles=True)

    monkeypatch.setattr(dots, "tiles_are_confirmed", lambda: False)
    with generating_for(tiled(), runs_here=True):
        found = chosen()
        assert found is not None
        assert found.instruction == "vpdpbusd"
    with generating_for(tiled()):  # for reading
        found = chosen()
        assert found is not None
        assert found.instruction == "tdpbssd"


@pytest.mark.parametrize(("permits", "problem"), [(False, ""), (True, ""), (True, "wrong")])
def test_the_self_test_confirms_them(permits, problem, monkeypatch) -> None:
    kinds: list[str] = []
    monkeypatch.setattr(type(process()), "allow_tiles", lambda self: permits)
    monkeypatch.setattr(machine, "self_test", lambda kind: kinds.append(kind) or problem)
    confirmed = machine.tiles_are_confirmed.__wrapped__
    assert confirmed() == (permits and not problem)
    assert kinds == ["matrix tiles"] * permits
    monkeypatch.setenv("RELAXPY_SELF_TEST", self_test.TILED)  # the child that tests them
    assert confirmed() == permits
    assert len(kinds) == permits


def test_the_child_multiplies_bytes_of_all_tiles() -> None:
    shapes = [c.operands[0].shape for c in child.cases() if c.operands[0].dtype == "int8"]
    assert any(rows > 16 and depth > 64 for rows, depth in shapes)


def test_code_with_tiles_is_linked_where_the_system_permits_them(monkeypatch) -> None:
    module = host().module()
    portable(module, f"{loader.TILES}any", "tdpbssd", 16, (16,))
    code = compile_object(module.text())
    monkeypatch.setattr(type(process()), "allow_tiles", lambda self: True)
    assert loader.LoadedObject(code).addresses([f"{loader.TILES}any"])
    monkeypatch.setattr(type(process()), "allow_tiles", lambda self: False)
    with pytest.raises(OSError, match="does not permit the matrix tiles"):
        loader.LoadedObject(code)


def test_linux_is_asked_for_the_state_of_tiles() -> None:
    assert linux.calls["arch_prctl"] == 158
    assert not Process(LINUX).allow_tiles()
    flags = re.search("flags: (.*)", Linux(LINUX).description())
    if (
        flags is not None
        and "amx_tile" not in flags[1]
        and "model name" in Linux(LINUX).description()
    ):
        assert not Linux(LINUX).allow_tiles()


def test_constant_weights_are_packed_for_tiles(here: Machine) -> None:
    draw = np.random.default_rng(6)
    text = PRODUCT.format(rows="'n'", depth=200, columns=96, a="int8", b="int8")
    module = IRModule({"main": from_source(text)})
    x, y = (draw.integers(-128, 128, shape).astype("int8") for shape in ((40, 200), (200, 96)))
    module = relax.transform.BindParams("main", {"y": y})(module)
    with generating_for(here, runs_here=True):
        main = relaxpy.compile(module, target="native")["main"]
        np.testing.assert_array_equal(main(x), x.astype("int32") @ y.astype("int32"))


def test_windows_of_images_are_products_too(here: Machine) -> None:
    text = """
@R.function
def main(x: R.Tensor((1, 9, 14, 14), "int8"), y: R.Tensor((33, 9, 3, 3), "int8")):
    return R.nn.conv2d(x, y, padding=1, out_dtype="int32")
"""
    draw = np.random.default_rng(7)
    x, y = (draw.integers(-128, 128, s).astype("int8") for s in ((1, 9, 14, 14), (33, 9, 3, 3)))
    padded = np.pad(x.astype("int32"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    with generating_for(here, runs_here=True):
        main = relaxpy.compile(from_source(text), target="native")["main"]
        np.testing.assert_array_equal(
            main(x, y), np.einsum("bchwij,ocij->bohw", windows, y.astype("int32"))
        )
