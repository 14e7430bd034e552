"""Register-tiled contractions: right, within their arrays, and the same on every processor."""

import ctypes
import platform
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from relaxpy.exec.machine.platforms import LINE_BYTES, WASM32
from relaxpy.exec.machine.process import process
from relaxpy.exec.machine.tuning import Tiles
from relaxpy.exec.native.contraction.blocking import column_blocks, up
from relaxpy.exec.native.contraction.geometry import RegisterTile, tile_of
from relaxpy.exec.native.contraction.operands import Gemm, Initial, Matrix
from relaxpy.exec.native.contraction.tiles import TileEmitter
from relaxpy.exec.native.llvm.writer import F32, I8, I32, I64, Function, Value
from relaxpy.exec.native.machine_code.machine import Machine, host, narrow
from relaxpy.exec.native.values.packing import Packing
from relaxpy.target import Native
from tests.exec.native.contractions import Kernel, check, expected
from tests.guard_pages import guarded

SIZES = [(1, 1, 1), (13, 100, 33), (131, 51, 17), (5, 16, 1100)]
ORDERS = ["mk,kn->mn", "km,kn->mn", "mk,nk->mn", "km,nk->mn"]


def numbers(shape: Sequence[int], dtype: str, seed: int = 0) -> np.ndarray:
    """Numbers of both signs; small ones for narrow integers."""
    values = np.random.default_rng(seed).standard_normal(shape)
    if np.dtype(dtype).kind in "iu":
        return np.round(values * 40).astype(dtype)
    return values.astype(dtype)


def shapes(subscripts: str, extents: dict[str, int]) -> list[tuple[int, ...]]:
    left, result = subscripts.split("->")
    return [tuple(extents[x] for x in names) for names in (*left.split(","), result)]


def run(
    subscripts: str, extents: dict[str, int], dtype: str, out: str = "", **options
) -> np.ndarray:
    """The result of a kernel on arrays at the ends, and then at the beginnings of pages."""
    a, b, c = shapes(subscripts, extents)
    arrays = [numbers(a, dtype, 1), numbers(b, dtype, 2), np.full(c, 77, out or dtype)]
    kernel = Kernel(subscripts, arrays, **options)
    found = []
    for at_end in (True, False):
        placed = [guarded(x, at_end=at_end) for x in arrays]
        kernel(*placed)
        check(subscripts, placed[0], placed[1], placed[2])
        found.append(placed[2])
    assert found[0].tobytes() == found[1].tobytes()
    return found[0]


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("subscripts", ORDERS)
def test_products_of_all_layouts_and_edges(subscripts: str, m: int, n: int, k: int) -> None:
    run(subscripts, {"m": m, "n": n, "k": k}, "float32")


@pytest.mark.parametrize("subscripts", ORDERS)
def test_one_kernel_serves_all_sizes(subscripts: str) -> None:
    """Also sizes without an element: no iteration of the sum, no row, or no column."""
    a, b, c = shapes(subscripts, {"m": 2, "n": 2, "k": 2})
    arrays = [np.zeros(s, "float32") for s in (a, b, c)]
    kernel = Kernel(subscripts, arrays, symbolic="mnk")
    for m, n, k in [*SIZES, (7, 3, 0), (0, 3, 5), (9, 0, 5), (300, 49, 2100)]:
        extents = {"m": m, "n": n, "k": k}
        a, b, c = shapes(subscripts, extents)
        placed = [guarded(x, at_end=True) for x in (numbers(a, "float32"), numbers(b, "float32"))]
        result = guarded(np.full(c, 77, "float32"), at_end=True)
        kernel(*placed, result)
        check(subscripts, *placed, result)


def reads_subnormals(kernel: Kernel, *arrays: np.ndarray) -> bool:
    """True if a call computes with subnormal numbers: the processor's flag of these is set."""
    environment = (ctypes.c_uint32 * 8)()
    libm = ctypes.CDLL("libm.so.6")
    libm.fegetenv(environment)
    environment[7] &= ~0x3F  # MXCSR
    libm.fesetenv(environment)
    kernel(*arrays)
    libm.fegetenv(environment)
    return bool(environment[7] & 2)


@pytest.mark.skipif(
    (process().system.name, platform.machine()) != ("linux", "x86_64"),
    reason="the environment has another form here",
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("machine", [host, narrow])
@pytest.mark.parametrize("subscripts", ORDERS)
def test_old_contents_of_memory_are_not_multiplied(subscripts, machine, dtype) -> None:
    """Each operation on a subnormal number takes an assist of microcode on many processors."""
    rows = numbers(shapes(subscripts, {"m": 9, "n": 1, "k": 70})[0], dtype)
    kernel = None
    for n, tiny in ((130, True), (1, False), (17, False), (70, False)):
        _, b, c = shapes(subscripts, {"m": 9, "n": n, "k": 70})
        columns = np.full(b, np.finfo(dtype).tiny / 4) if tiny else numbers(b, dtype)
        arrays = [rows, columns.astype(dtype), np.zeros(c, dtype)]
        kernel = kernel or Kernel(subscripts, arrays, symbolic="mnk", machine=machine(), packs=True)
        assert reads_subnormals(kernel, *arrays) == tiny


@pytest.mark.parametrize(
    ("dtype", "out"),
    [
        ("float64", "float64"),
        ("float16", "float16"),
        ("float16", "float32"),
        (ml_dtypes.bfloat16, ml_dtypes.bfloat16),
        (ml_dtypes.bfloat16, "float32"),
        ("int32", "int32"),
    ],
)
@pytest.mark.parametrize("subscripts", ["mk,kn->mn", "mk,nk->mn", "km,kn->mn"])
def test_datatypes(subscripts: str, dtype: str, out: str) -> None:
    run(subscripts, {"m": 21, "n": 37, "k": 1030}, dtype, out)


@pytest.mark.parametrize("symbolic", ["", "mk"])
@pytest.mark.parametrize(("dtype", "out"), [("float16", "float16"), ("int8", "int32")])
def test_a_copy_of_rows_serves_several_blocks_of_columns(dtype, out, symbolic) -> None:
    wide = I32 if out == "int32" else None
    extents = {"m": 131, "n": 1000, "k": 1030}
    run("mk,nk->mn", extents, dtype, out, accumulator=wide, symbolic=symbolic)


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize(("rows", "k", "window"), [("m", 2048, 1), ("rm", 128, 9)])
def test_tiles_prefetch_the_block_that_is_read_next(
    rows, k, window, is_packed, monkeypatch
) -> None:
    """All cache lines but those of the first k-block that is copied: no tile runs before it."""
    columns, height = 192, (56,) if rows == "m" else (7, 8)
    a = numbers((*height, k, window + 1), "float32", 1)[..., :window]
    b, c = numbers((columns, k, window), "float32", 2), np.zeros((*height, columns), "float32")
    memory, lines, blocks = b.copy(), np.zeros(b.nbytes // LINE_BYTES, "uint8"), []

    def emitter(f: Function, contraction: Gemm, tile: RegisterTile) -> TileEmitter:
        b = replace(contraction.b, is_packed=is_packed)
        found = TileEmitter(f, replace(contraction, b=b), tile)
        blocks.append((found.width, found.depth))
        return found

    def mark(f: Function, pointer: Value, *, level: int = 1) -> None:
        if f.name == "kernel":  # not those in the copy of columns
            place = f.cast("ptrtoint", pointer, "i64") - memory.ctypes.data
            line = f.arithmetic("sdiv", place, LINE_BYTES)
            is_inside = f.compare("ult", line, lines.size)
            at = f.select(is_inside, line + lines.ctypes.data, sink.ctypes.data)
            f.store(f.const(I8, 1), f.cast("inttoptr", at, "ptr"))

    sink = np.zeros(1, "uint8")
    monkeypatch.setattr(Function, "prefetch", mark)
    subscripts = f"{rows}kx,nkx->{rows}n"
    kernel, [(width, depth)] = Kernel(subscripts, (a, b, c), emitter=emitter), blocks
    if is_packed:
        packing = Packing(width, ((k, window), (window, 1)), (columns, k * window))
        memory[...] = packing.packed(b).reshape(b.shape)
    kernel(a, memory, c)
    check(subscripts, a, b, c)
    left = np.argwhere(lines.reshape(1 if is_packed else columns, -1) == 0)
    # After the last block, the next tasks read the first one of packed columns again.
    assert bool(len(left)) is not is_packed
    assert (left * [1, LINE_BYTES // b.itemsize] < [width, depth]).all()


@pytest.mark.parametrize("n", [1, 33, 49])
def test_only_the_last_column_of_narrow_integers_is_stored(n: int) -> None:
    a, b = (numbers(s, "float32") for s in ((6, 30), (30, n)))
    whole = np.full((6, n + 1), 77, "int16")
    c = whole[:, :n]

    def upper(value: Value) -> Value:
        f = value.function
        return f.cast("trunc", f.arithmetic("lshr", f.cast("bitcast", value, "i32"), 16), "i16")

    Kernel("mk,kn->mn", (a, b, c), finish=upper)(a, b, c)
    assert (whole[:, n] == 77).all()
    assert (c != 77).all()
    run("mk,kn->mn", {"m": 6, "n": n, "k": 30}, "int8", "int32", accumulator=I32)


@pytest.mark.each_choice
@pytest.mark.parametrize("subscripts", ORDERS)
@pytest.mark.parametrize("k", [1, 70, 1101])
def test_bytes_are_accumulated_in_wide_integers(subscripts: str, k: int) -> None:
    extents = {"m": 5, "n": 37, "k": k}
    run(subscripts, extents, "int8", "int32", accumulator=I32)
    run(subscripts, extents, "int8", "int32", accumulator=I32, symbolic="mnk", machine=narrow())


def test_sums_of_bytes_over_several_axes() -> None:
    extents = {"m": 9, "n": 20, "k": 3, "j": 3, "i": 21}
    run("ijkm,kjin->mn", extents, "int8", "int64", accumulator=I64)
    run("ijkm,kjin->mn", extents, "int8", "int32", accumulator=I32)


def extreme_bytes(shape: Sequence[int], dtype: str, rng: np.random.Generator) -> np.ndarray:
    """Bytes, half of which are the least, the greatest, or next to zero."""
    values = rng.integers(-128, 128, shape).astype(dtype)
    values[rng.random(shape) < 0.5] = rng.choice(np.array([-128, -1, 127], "int8").view(dtype))
    return values


def avx_vnni() -> Machine:
    """Vectors of 256 bits with the instruction for bytes, as far as this processor has them."""
    if "vpdpbusd" not in host().instructions:
        pytest.skip("the processor has no VNNI")
    found = [x for x in ("avx512f", "avx512vl", "avx512vnni", "avxvnni") if host().has(x)]
    features = ",".join((narrow().features, *(f"+{x}" for x in found)))
    return Machine(host().platform, "x86-64-v3", features, 256, 16)


MACHINES = {"host": host, "AVX2": narrow, "VNNI of 256 bits": avx_vnni}
BYTES = [
    (left, right, machine)
    for left, right, machine in product(("int8", "uint8"), ("int8", "uint8"), MACHINES)
    if machine != "AVX2" or left < right
]


@pytest.mark.parametrize(("left", "right", "machine"), BYTES)
def test_products_of_all_bytes_are_exact(left: str, right: str, machine: str) -> None:
    """The extremes, which saturate in some instructions, and all that lies between them."""
    rng = np.random.default_rng(3)
    kernels: dict[str, Kernel] = {}
    for (m, n, k), subscripts in product(
        [(130, 49, 2050), *SIZES, (2, 8, 0)], ("mk,kn->mn", "km,nk->mn")
    ):
        a, b, c = shapes(subscripts, {"m": m, "n": n, "k": k})
        arrays = [
            guarded(extreme_bytes(shape, dtype, rng), at_end=bool(m % 2))
            for shape, dtype in ((a, left), (b, right))
        ]
        arrays.append(guarded(np.full(c, 77, "int32"), at_end=True))
        options = {"accumulator": I32, "machine": MACHINES[machine]()}
        if k in (2050, 33):
            Kernel(subscripts, arrays, **options)(*arrays)
            np.testing.assert_array_equal(arrays[2], expected(subscripts, *arrays[:2]))
            arrays[2][...] = 77
        if subscripts not in kernels:
            kernels[subscripts] = Kernel(subscripts, arrays, symbolic="mnk", **options)
        kernels[subscripts](*arrays)
        np.testing.assert_array_equal(arrays[2], expected(subscripts, *arrays[:2]))


@pytest.mark.each_choice
@pytest.mark.parametrize("subscripts", [*ORDERS, "bmk,kn->bmn", "ijkm,kjin->mn"])
@pytest.mark.parametrize("symbolic", ["", "mnkij"])
@pytest.mark.parametrize("out", ["float32", "bfloat16", "float8_e5m2"])
@pytest.mark.parametrize("dtypes", [("bfloat16", "bfloat16"), ("float8_e4m3fn", "float8_e5m2")])
@pytest.mark.parametrize("k", [1, 2, 77, 2050])
def test_dot_products_of_bfloat16_are_added_in_order(subscripts, symbolic, out, dtypes, k) -> None:
    """The bits are those of multiply-adds one after the other, also of NaN and infinities."""
    without = [re.sub(r"\+(?=amx-bf16)", "-", host().features)]
    without.append(without[0].replace("+avx512bf16", "-avx512bf16"))
    if without[0] == without[1]:
        pytest.skip("the processor has no dot products of bfloat16")
    a, b, c = shapes(subscripts, {"m": 37, "n": 49, "k": k, "b": 3, "i": 3, "j": 3})
    arrays = [numbers(a, dtypes[0], 1), numbers(b, dtypes[1], 2), np.zeros(c, out)]
    # Of the first float of 8 bits, infinity is NaN.
    arrays[0].flat[:: max(7, arrays[0].size // 3)] = np.inf
    arrays[1].flat[:: max(5, arrays[1].size // 2)] = -np.inf
    found = []
    for features in without:
        machine = replace(host(), features=features)
        kernel = Kernel(subscripts, arrays, symbolic=symbolic, machine=machine)
        assert ("dpbf16ps" in kernel.text) == (features == without[0])
        kernel(*arrays)
        found.append(arrays[2].astype("float32"))
    np.testing.assert_array_equal(*found)


def test_sums_of_bytes_wrap_around() -> None:
    a, b = np.full((5, 1030), 255, "uint8"), np.full((1030, 17), 255, "uint8")
    c = np.full((5, 17), 2**31 - 1, "int32")

    def initial(f: Function) -> Initial:
        return Initial(0, Matrix(f.params[2], I32), (17, 1))

    Kernel("mk,kn->mn", (a, b, c), accumulator=I32, initial=initial)(a, b, c)
    assert (c == 2**31 - 1 + 1030 * 255 * 255 - 2**32).all()


@pytest.mark.parametrize("symbolic", ["", "bmnk"])
def test_batches_broadcasts_and_several_axes_of_the_sum(symbolic: str) -> None:
    run("bmk,kn->bmn", {"b": 3, "m": 9, "n": 20, "k": 6}, "float32", symbolic=symbolic)
    run("hbmk,bnk->hbmn", {"h": 2, "b": 3, "m": 9, "n": 20, "k": 6}, "float32", symbolic=symbolic)
    run("mjk,kjn->mn", {"m": 9, "n": 20, "k": 40, "j": 50}, "float32", over="kj", symbolic=symbolic)
    run("ijkm,kjin->mn", {"m": 9, "n": 20, "k": 3, "j": 2, "i": 300}, "float32", symbolic=symbolic)
    run("mk,kn->nm", {"m": 9, "n": 20, "k": 6}, "float32", symbolic=symbolic)


@pytest.mark.each_choice
@pytest.mark.parametrize("k", [1, 300, 2500])
@pytest.mark.parametrize("y", [1, 2, 40])
def test_strips_of_few_rows_share_a_copy_of_the_columns(y: int, k: int) -> None:
    for symbolic in ("", "y", "yk"):
        extents = {"y": y, "x": 7, "n": 50, "k": k}
        run("ykx,nk->ynx", extents, "float32", symbolic=symbolic, fixed="nx")
        run("kyx,nk->nyx", extents, "float32", symbolic=symbolic, fixed="nx")
    run("ykx,nk->ynx", {"y": y, "x": 7, "n": 50, "k": k}, "float16")


@pytest.mark.parametrize("lanes", [0, 1, 2, 17])
@pytest.mark.parametrize("symbolic", ["", "n"])
def test_every_other_element_of_an_operand(lanes: int, symbolic: str) -> None:
    """No element after the last one is read."""
    n, k = 16 + lanes, 5
    whole = guarded(numbers((k, 2 * n - 1), "float32"), at_end=True)
    a, b = numbers((9, k), "float32"), whole[:, ::2]
    c = guarded(np.full((9, n), 77, "float32"), at_end=True)
    Kernel("mk,kn->mn", (a, b, c), symbolic=symbolic, fixed="n" if not symbolic else "")(a, b, c)
    check("mk,kn->mn", a, b, c)


@pytest.mark.parametrize("packs", [True, False])
def test_windows_of_a_padded_image(*, packs: bool) -> None:
    """A convolution is a contraction whose rows and windows have strides of the image."""
    image = guarded(numbers((5, 10, 22), "float32"), at_end=True)
    weight = guarded(numbers((6, 5, 3, 3), "float32"), at_end=True)
    result = guarded(np.zeros((6, 8, 20), "float32"), at_end=True)
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(1, 2))
    arrays = (weight, windows, result)
    kernel = Kernel("ocij,chwij->ohw", arrays, over="cij", packs=packs)
    kernel(*arrays)
    check("ocij,chwij->ohw", weight, windows, result)


@pytest.mark.parametrize("symbolic", ["", "mnk"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_the_width_of_vectors_does_not_change_a_bit(dtype: str, symbolic: str) -> None:
    extents = {"m": 21, "n": 37, "k": 1100}
    one = run("mk,kn->mn", extents, dtype, symbolic=symbolic)
    two = run("mk,kn->mn", extents, dtype, symbolic=symbolic, machine=narrow())
    assert one.tobytes() == two.tobytes()


def test_sums_start_from_values_and_end_in_an_epilogue() -> None:
    a, b = numbers((9, 1100), "float32"), numbers((1100, 21), "float32")
    c = numbers((9, 21), "float32", 5)
    started = c.copy()

    def initial(f: Function) -> Initial:
        return Initial(0, Matrix(f.params[2], F32), (21, 1))

    def finish(value: Value) -> Value:
        return value.function.intrinsic("maxnum", value, 0.0)

    Kernel("mk,kn->mn", (a, b, c), initial=initial, finish=finish)(a, b, c)
    wanted = np.maximum(started + a.astype("float64") @ b, 0)
    bound = 1101 * 2.0**-24 * (abs(a.astype("float64")) @ abs(b) + abs(started))
    assert (abs(c - wanted) <= bound).all()


def test_infinities_and_nans_stay_in_their_rows_and_columns() -> None:
    a, b = numbers((10, 6), "float32"), numbers((6, 20), "float32")
    a[3, 2], b[4, 17] = np.inf, np.nan
    c = np.zeros((10, 20), "float32")
    Kernel("mk,kn->mn", (a, b, c))(a, b, c)
    with np.errstate(invalid="ignore"):
        wanted = a.astype("float64") @ b
    np.testing.assert_array_equal(np.isnan(c), np.isnan(wanted))
    np.testing.assert_array_equal(np.isposinf(c), np.isposinf(wanted))


@pytest.mark.parametrize(
    ("rows", "height"),
    [(12, 6), (13, 8), (14, 7), (16, 8), (20, 5), (49, 7), (100, 5), (130, 8), (196, 7), (625, 8)],
)
def test_tiles_of_one_height_are_all_rows(rows: int, height: int) -> None:
    """The rest of a few rows would have a tile, and code, of its own."""
    assert tile_of(F32, rows, 64, 512, 32).rows == height
    run("mk,kn->mn", {"m": rows, "n": 37, "k": 19}, "float32")


def test_engines_of_webassembly_have_the_same_blocks_of_columns() -> None:
    """So that they share a file of weights, though tiles of plain SIMD have fewer rows."""
    fused, plain = (Native("wasm32", cpu).machine_or_host() for cpu in WASM32.levels)
    assert fused is not None
    assert plain is not None
    registers = [each.module().vector_registers for each in (fused, plain)]
    assert registers == [15, 14]
    for rows, columns in product((*range(1, 14), 131, 150, 151, 301), (*range(1, 34), 64, 100)):
        blocks = []
        for count in registers:
            tile = tile_of(F32, rows, columns, 128, count)
            repeats = -(-rows // up(Tiles.ROWS, Tiles.BANDS[count]))
            blocks.append(column_blocks(columns, tile, repeats, scalars=True))
        assert blocks[0] == blocks[1]
