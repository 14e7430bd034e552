"""Products in matrix tiles: no CPU with them is needed.

The instructions run in a model. Whole products run here with a portable function in their place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.exec.inspect import self_test as child
from relaxpy.exec.machine import tuning
from relaxpy.exec.machine.platforms import LINUX, X86_64, platform_of_words
from relaxpy.exec.machine.process import Linux, Process, process
from relaxpy.exec.native.contraction import dots, matrix_tiles
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import F32, I8, I16, I32, I64, POINTER, Type, Value
from relaxpy.exec.native.machine_code import loader, machine, self_test
from relaxpy.exec.native.machine_code.machine import Machine, generating_for, host, machine_of
from relaxpy.exec.native.machine_code.objects import compile_assembly, compile_object
from relaxpy.script import from_source
from tests.exec.native.amx_model import Processor

BF16 = np.dtype("bfloat16")
KINDS = {
    "tdpbssd": ("int8", "int8", "int32"),
    "tdpbsud": ("int8", "uint8", "int32"),
    "tdpbusd": ("uint8", "int8", "int32"),
    "tdpbuud": ("uint8", "uint8", "int32"),
    "tdpbf16ps": ("bfloat16", "bfloat16", "float32"),
}
"""The datatypes of the operands and of the sums."""
linux = platform_of_words("x86_64", "linux")
assert linux is not None


def tiled() -> Machine:
    """A CPU with AVX-512 and matrix tiles."""
    level = machine_of(linux, "znver4")
    return replace(level, features=f"{level.features},+amx-tile,+amx-int8,+amx-bf16")


def text_of(kind: str, rows: int, lanes: Sequence[int]) -> str:
    """The instructions of the function that adds products."""
    module = tiled().module()
    matrix_tiles._define(module, "tiles", kind, rows, lanes)
    assembly = compile_assembly(module.text(), tiled())
    return assembly.partition("\ntiles:")[2].partition("retq")[0] + "retq"


def drawn(draw: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Integers, of which some thousand products have an exact sum."""
    low, high = (-12, 12) if dtype == "bfloat16" else (0, 256)
    return draw.integers(low, high, shape).astype("uint8" if high == 256 else "f4").astype(dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "lanes"), [(16, (16, 16)), (1, (4,)), (5, (16, 8)), (16, (16,))])
@pytest.mark.parametrize("groups", [0, 1, 15, 16, 17, 32, 45])
def test_the_instructions_add_products(kind, rows, lanes, groups) -> None:
    draw = np.random.default_rng(groups * 100 + rows)
    left, right, total = KINDS[kind]
    count, high = 4 // np.dtype(left).itemsize, 2**31 if total == "int32" else 2**20
    pitch, width = 4 * groups + 64, 4 * sum(lanes) + 64
    first = drawn(draw, (rows, pitch // 4 * count), left)
    second = drawn(draw, (groups, width // 4 * count), right)
    sums = draw.integers(-high, high, (rows, sum(lanes))).astype(total)
    memory = bytearray(sums.tobytes() + first.tobytes() + second.tobytes() + bytes(4096))
    places = 0, sums.nbytes, sums.nbytes + first.nbytes
    model = Processor(memory)
    model.run(text_of(kind, rows, lanes), places[0], places[1], pitch, places[2], width, groups)
    a = first[:, : count * groups].astype(np.int64)
    b = second[:, : count * sum(lanes)].astype(np.int64)
    b = b.reshape(groups, sum(lanes), count).transpose(0, 2, 1).reshape(-1, sum(lanes))
    expected = (sums.astype(np.int64) + a @ b).astype(total)
    found = np.frombuffer(bytes(memory[: sums.nbytes]), total).reshape(sums.shape)
    np.testing.assert_array_equal(found, expected)
    assert bytes(memory[sums.nbytes :]).startswith(first.tobytes() + second.tobytes())
    assert model.products == -(-groups // 16) * len(lanes)


@pytest.mark.parametrize(
    ("first", "second", "sum_", "expected"),
    [
        # Even and odd elements are added apart, and then to the sum: each time a 1 is lost.
        ((2**24, 1, 1, 1), (1, 1, 1, 1), 0, 2**24 + 2),
        ((1, 1), (1, 1), 2**24, 2**24 + 2),
        # Subnormal numbers are zeros: as operands, and as sums.
        ((2**-130, 1), (2**100, 1), 0, 1),
        ((2**-70, 0), (2**-70, 0), 0, 0),
        ((1, 0), (1, 0), 2**-130, 1),
    ],
)
def test_sums_of_bfloat16_are_rounded_as_the_manual_says(first, second, sum_, expected) -> None:
    groups = len(first) // 2
    a, b = (np.array(x, "f4").astype(BF16) for x in (first, second))
    memory = bytearray(np.float32(sum_).tobytes() + a.tobytes() + b.tobytes() + bytes(4096))
    Processor(memory).run(text_of("tdpbf16ps", 1, (1,)), 0, 4, 64, 4 + a.nbytes, 4, groups)
    assert np.frombuffer(bytes(memory[:4]), np.float32).tolist() == [expected]


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
    columns, dtypes = sum(lanes), KINDS[kind]
    sum_, size = F32 if kind == "tdpbf16ps" else I32, np.dtype(dtypes[0]).itemsize

    def number(place: Value, dtype: str) -> Value:
        if dtype == "bfloat16":
            return f.cast("fpext", f.load(Type("bfloat"), place), "float")
        return f.cast("sext" if dtype == "int8" else "zext", f.load(I8, place), "i32")

    def element(row: Value, column: Value) -> None:
        place = f.element(sums, row * columns + column, sum_)

        def group(k: Value, total: Value) -> list[Value]:
            for n in range(0, 4, size):
                left = f.element(a, row * pitch + k * 4 + n, I8)
                right = f.element(b, k * width + column * 4 + n, I8)
                total = total + number(left, dtypes[0]) * number(right, dtypes[1])
            return [total]

        f.store(*f.loop(0, groups, 1, [f.load(sum_, place)], group), place)

    f.loop(0, rows, 1, [], lambda r: f.loop(0, columns, 1, [], lambda c: element(r, c)) and None)
    f.ret()


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The instructions of the functions that are defined, which are portable ones."""
    kinds: set[str] = set()

    def recorded(module: Module, name: str, kind: str, *shape: Any) -> None:
        kinds.add(kind)
        portable(module, name, kind, *shape)

    monkeypatch.setattr(matrix_tiles, "_define", recorded)
    return kinds


@pytest.fixture
def here(used: set[str], monkeypatch: pytest.MonkeyPatch) -> Machine:
    """This CPU, as if it had matrix tiles."""
    if host().platform.architecture is not X86_64:
        pytest.skip("the copies are those of x86-64")
    monkeypatch.setenv("RELAXPY_CACHE", "0")
    monkeypatch.setattr(dots, "tiles_are_confirmed", lambda: True)
    monkeypatch.setattr(type(process()), "allow_tiles", lambda self: True)
    monkeypatch.setattr(Machine, "instructions", property(lambda self: {"vpdpbusd", *KINDS}))
    return host()


PRODUCT = """
@R.function
def main(x: R.Tensor(({rows}, {depth}), "{a}"), y: R.Tensor(({depth}, {columns}), "{a}")):
    return R.matmul(x, y, out_dtype="{out}")
"""


@pytest.mark.parametrize("rows", [17, 64, 37, "n"])
@pytest.mark.parametrize(("depth", "columns"), [(64, 64), (100, 70), (3, 33), (1500, 20), (7, "m")])
def test_products_are_those_of_numpy(rows, depth, columns, here, used) -> None:
    draw = np.random.default_rng(5)
    kinds = [KINDS[kind][1:] for kind in ("tdpbssd", "tdpbuud", "tdpbf16ps")]
    for a, out in [*kinds, ("bfloat16", "bfloat16")]:
        sum_ = "float32" if a == "bfloat16" else out
        text = PRODUCT.format(rows=repr(rows), depth=depth, columns=repr(columns), a=a, out=out)
        with generating_for(here, runs_here=True):
            main = relaxpy.compile(from_source(text), target="native")["main"]
            for n in (1, 16, 50) if isinstance(rows, str) else (rows,):
                m = columns if isinstance(columns, int) else 45
                x, y = (drawn(draw, s, a) for s in ((n, depth), (depth, m)))
                expected = (x.astype(sum_) @ y.astype(sum_)).astype(out)
                np.testing.assert_array_equal(main(x, y), expected)
    assert used == {"tdpbssd", "tdpbuud", "tdpbf16ps"}


def test_tiles_are_used_only_where_they_are_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen() -> list[str]:
        pointer = Value(None, POINTER, "%a")
        byte, half = dots.Matrix(pointer, I8), dots.Matrix(pointer, I16, dtype="bfloat16")
        found = [
            dots.dots_of(tiled().module(), type, operand, operand, in_tiles=True)
            for type, operand in ((I32, byte), (F32, half), (I32, replace(half, dtype="int16")))
        ]
        return [dots.instruction if dots else "" for dots in found]

    monkeypatch.setattr(dots, "tiles_are_confirmed", lambda: False)
    with generating_for(tiled(), runs_here=True):
        assert chosen() == ["vpdpbusd", "dpbf16ps", ""]
    with generating_for(tiled()):  # for reading
        assert chosen() == ["tdpbssd", "tdpbf16ps", ""]


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


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_the_child_multiplies_numbers_of_all_tiles(dtype: str) -> None:
    shapes = [c.operands[0].shape for c in child.cases() if c.operands[0].dtype == dtype]
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


@pytest.mark.parametrize("kind", ["tdpbssd", "tdpbf16ps"])
@pytest.mark.parametrize("depth", [200, 2 * tuning.Tiles.DEPTH, 77])
def test_constant_weights_are_packed_for_tiles(kind, depth, here, used) -> None:
    draw = np.random.default_rng(6)
    dtype, _, out = KINDS[kind]
    text = PRODUCT.format(rows="'n'", depth=depth, columns=96, a=dtype, out=out)
    module = IRModule({"main": from_source(text)})
    x, y = (drawn(draw, shape, dtype) for shape in ((40, depth), (depth, 96)))
    module = relax.transform.BindParams("main", {"y": y})(module)
    with generating_for(here, runs_here=True):
        main = relaxpy.compile(module, target="native")["main"]
        np.testing.assert_array_equal(main(x), x.astype(out) @ y.astype(out))
    assert used == {kind}


def test_windows_of_images_are_products_too(here, used) -> None:
    text = """
@R.function
def main(x: R.Tensor((1, 9, 14, 14), "int8"), y: R.Tensor((33, 9, 3, 3), "int8")):
    return R.nn.conv2d(x, y, padding=1, out_dtype="int32")
"""
    draw = np.random.default_rng(7)
    x, y = (drawn(draw, s, "int8") for s in ((1, 9, 14, 14), (33, 9, 3, 3)))
    padded = np.pad(x.astype("int32"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    with generating_for(here, runs_here=True):
        main = relaxpy.compile(from_source(text), target="native")["main"]
        np.testing.assert_array_equal(
            main(x, y), np.einsum("bchwij,ocij->bohw", windows, y.astype("int32"))
        )
    assert used == {"tdpbssd"}
