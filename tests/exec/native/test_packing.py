"""Constant operands of contractions are packed once, and results have the same bits."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from weakref import WeakValueDictionary

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import FunctionSignatureError
from relaxpy.exec.machine import tuning
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.narrow_floats import IN_BFLOAT16
from relaxpy.exec.native.machine_code import machine
from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.native.values import packing
from relaxpy.exec.native.values.packing import Joined, Packing
from relaxpy.exec.program.graph.whole_modules import GraphBackend
from relaxpy.ir import structural_hash
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.serialize import save_json
from relaxpy.script import from_source
from tests.exec.native.test_contract import graph, numbers
from tests.guard_pages import guarded


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[Packing]:
    """How constants were packed in a test; a page after the copies must not be read."""
    found: list[Packing] = []
    plain = Packing.packed

    def record(how: Packing, data: np.ndarray) -> np.ndarray:
        found.append(how)
        return guarded(plain(how, data), at_end=True)

    monkeypatch.setattr(Packing, "packed", record)
    monkeypatch.setattr(packing, "_SHARED", WeakValueDictionary())
    return found


def bound(text: str, **values: np.ndarray) -> relaxpy.IRModule:
    """The program with constants in place of parameters."""
    module = from_source(text)
    module["main"] = module["main"].bind_params(values)
    return module


LAST = "data_layout='NHWC', kernel_layout='HWIO'"
"""Channels last, as convolutions of constant filters are computed."""


def parameters(**shapes: tuple[int, ...]) -> str:
    return ", ".join(f'{n}: R.Tensor({s}, "float32")' for n, s in shapes.items())


@pytest.mark.parametrize(
    ("body", "x", "w"),
    [
        ("R.linear(x, w)", (20, 70), (1100, 70)),
        ("R.nn.relu(R.matmul(x, w))", (9, 2500), (2500, 70)),
        ("R.linear(x, w)", (130, 1030), (97, 1030)),
        (f"R.nn.conv2d(x, w, 1, 1, {LAST})", (2, 9, 9, 30), (3, 3, 30, 200)),
        (f"R.nn.conv2d(x, w, 2, {LAST})", (1, 13, 13, 130), (3, 3, 130, 70)),
        (f"R.nn.conv2d(x, w, 1, 1, {LAST})", (1, 4, 4, 40), (3, 3, 40, 70)),
        ("R.nn.conv2d(x, w, 2)", (1, 270, 13, 13), (70, 270, 1, 1)),
    ],
)
def test_same_bits(packed, body, x, w) -> None:
    text = graph(parameters(x=x, w=w), body)
    values, weight = numbers(x), numbers(w)
    expected = relaxpy.compile(from_source(text), target="native")["main"](values, weight)
    assert not packed
    executable = relaxpy.compile(bound(text, w=weight), target="native")
    assert len(packed) == 1
    assert (executable["main"](values) == expected).all()
    # Without the function of the whole graph, the kernel reads the constant as it is.
    executable.profile(values, repeat=1)
    assert len(packed) == 1


DTYPES = {
    "host": {"float16": "", "bfloat16": "", "float8_e4m3fn": "bfloat16", "int16": ""},
    "AVX2": {"float16": "", "bfloat16": "", "float8_e5m2": "bfloat16"},
    "integers": {"float16": None},  # no instruction converts float16
}
"""What short weights are packed as, "" for their own datatype, by the CPU and this."""


def limit_cpu(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Compile kernels for a part of this CPU, until a test ends."""
    part = host() if name == "host" else machine.narrow()
    for module in [m for n, m in sys.modules.items() if n.startswith("relaxpy.exec")]:
        if getattr(module, "host", None) is host:
            monkeypatch.setattr(module, "host", lambda: part)
    if name == "integers":
        architecture = replace(part.platform.architecture, has_half=False)
        platform = replace(part.platform, architecture=architecture)
        monkeypatch.setattr(Module, "platform", platform)


@pytest.mark.each_choice
@pytest.mark.parametrize(("cpu", "dtype"), [(c, d) for c in DTYPES for d in DTYPES[c]])
@pytest.mark.parametrize(
    ("body", "x", "w"),
    [
        (f"R.nn.conv2d(x, w, 1, 1, {LAST})", (2, "h", 9, 30), (3, 3, 30, 70)),
        ("R.nn.conv2d(x, w, 1, 1, data_layout='NHWC')", (1, 5, "w", 30), (70, 30, 3, 3)),
        ("R.linear(x, w)", (130, 70), (97, 70)),
        ("R.linear(x, w)", (9, 70), (97, 70)),
        ("R.linear(x, w)", ("n", 70), (97, 70)),
    ],
)
def test_short_weights_are_packed_as_what_tiles_convert_in_an_instruction(
    packed: list[Packing], monkeypatch, cpu: str, dtype: str, body: str, x, w
) -> None:
    limit_cpu(monkeypatch, cpu)
    body = body.replace(")", ", out_dtype='int32')") if dtype == "int16" else body
    text = graph(f'x: R.Tensor({x}, "{dtype}"), w: R.Tensor({w}, "{dtype}")', body)
    known = tuple(n if isinstance(n, int) else 7 for n in x)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    scale = 99 if dtype == "int16" else 1
    values, weight = ((numbers(shape) * scale).astype(kind) for shape in (known, w))
    expected = relaxpy.compile(from_source(text), target="native")["main"](values, weight)
    executable = relaxpy.compile(bound(text, w=weight), target="native")
    found = executable["main"](values)
    kept = DTYPES[cpu][dtype]
    if "conv2d" in body or (x[0] == 130 and (kept is None or dtype == "int16")):
        kept = None if dtype == "int16" else "float32"
    if dtype in IN_BFLOAT16 and cpu == "host" and "+avx512bf16" in host().features:
        assert [how.joined is not None for how in packed] == [True]  # for dot products
    else:
        assert [how.dtype for how in packed] == [kept] * (kept is not None)
    assert found.dtype == expected.dtype
    # A filter in another order, and a few rows in place, are added in another order.
    is_other_order = ("conv2d" in body and LAST not in body) or x[0] == "n"
    limit = {"float16": 2**-10, "bfloat16": 2**-7, "int16": 0}.get(dtype, 2**-2) * is_other_order
    np.testing.assert_allclose(found.astype("float32"), expected.astype("float32"), rtol=limit)
    assert (executable["main"](values) == found).all()
    for how in [*packed]:
        np.testing.assert_array_equal(how.unpacked(how.packed(weight), w, weight.dtype), weight)


BYTES = {
    "R.matmul(x, w, out_dtype='int32')": [
        *[((m, 70), (70, 200)) for m in range(1, 9)],
        *[((m, 2500), (2500, 37)) for m in (1, 8, 33)],
        ((20, 1026), (1026, 200)),
        ((3, 2053), (2053, 9)),
    ],
    "R.linear(x, w, out_dtype='int32')": [((9, 70), (1100, 70)), ((130, 1030), (97, 1030))],
    "R.nn.conv2d(x, w, 2, out_dtype='int32')": [((2, 31, 9, 9), (200, 31, 3, 3))],
}


def extremes(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Bytes, most of which are the least or the greatest."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    return rng.choice(np.array([info.min, info.max, info.max, 1], dtype), shape)


@pytest.mark.each_choice
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize(("body", "x", "w"), [(b, *s) for b in BYTES for s in BYTES[b]])
def test_sums_of_products_of_bytes(packed, body, x, w, dtypes) -> None:
    names = zip("xw", (x, w), dtypes, strict=True)
    text = graph(", ".join(f'{n}: R.Tensor({s}, "{t}")' for n, s, t in names), body)
    values, weight = extremes(x, dtypes[0], 9), extremes(w, dtypes[1], 0)
    expected = relaxpy.compile(from_source(text), target="numpy")["main"](values, weight)
    found = [relaxpy.compile(from_source(text), target="native")["main"](values, weight)]
    packed.clear()
    executable = relaxpy.compile(bound(text, w=weight), target="native")
    # Stretches of unequal length are not packed.
    assert len(packed) == (x != (3, 2053))
    found.append(executable["main"](values))
    for result in found:
        np.testing.assert_array_equal(result, expected)


def test_a_constant_with_several_uses(packed: list[Packing]) -> None:
    shapes = parameters(x=(60, 600), y=(600, 600), w=(600, 600))
    text = graph(shapes, "(R.linear(x, w), R.matmul(y, w), R.multiply(w, y))")
    x, y, w = numbers((60, 600)), numbers((600, 600), seed=1), numbers((600, 600), seed=2)
    expected = relaxpy.compile(from_source(text), target="native")["main"](x, y, w)
    found = relaxpy.compile(bound(text, w=w), target="native")["main"](x, y)
    assert len(packed) == 2
    assert all((a == b).all() for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("rows", "body"),
    [(2, "linear(x, w)"), (3, "matmul(x, R.permute_dims(w))"), (8, "linear(x, w)")],
)
def test_weights_of_several_rows_are_packed_or_read_in_place(packed, rows: int, body: str) -> None:
    x, w = numbers((rows, 300)), numbers((300, 300), seed=1)
    text = graph(parameters(x=x.shape, w=w.shape), f"R.nn.relu(R.{body})")
    for module, args in ((from_source(text), (x, w)), (bound(text, w=w), (x,))):
        found = relaxpy.compile(module, target="native")["main"](*args)
        np.testing.assert_allclose(found, np.maximum(x @ w.T, 0), rtol=1e-4, atol=1e-4)
    assert len(packed) == 1


def test_what_is_read_twice_or_has_few_rows_is_not_packed(packed: list[Packing]) -> None:
    w = numbers((300, 300))
    for rows, body in ((1, "R.linear(x, w)"), (300, "R.linear(w, w)")):
        x = numbers((rows, 300), seed=1)
        text = graph(parameters(x=(rows, 300), w=(300, 300)), body)
        found = relaxpy.compile(bound(text, w=w), target="native")["main"](x)
        np.testing.assert_allclose(found, (w if "w, w" in body else x) @ w.T, atol=1e-3)
    assert not packed


ROWS = (0, 1, 2, 3, 7, 8, 9, 31, 130)
"""Numbers of rows that are found when values arrive."""


@pytest.mark.each_choice
@pytest.mark.parametrize("form", ['("n", {})', '(2, "n", {})'])
@pytest.mark.parametrize(
    ("body", "w"),
    [
        ("R.linear(x, w)", (110, 70)),
        ("R.nn.relu(R.matmul(x, w))", (2500, 70)),
        ("R.nn.gelu(R.linear(x, w))", (97, 1030)),
    ],
)
def test_any_number_of_rows(packed, body, w, form) -> None:
    depth = w["linear" in body]
    shape, weight = form.format(depth), numbers(w, seed=3)
    text = graph(f'x: R.Tensor({shape}, "float32"), w: R.Tensor({w}, "float32")', body)
    plain = relaxpy.compile(from_source(text), target="native")["main"]
    assert not packed
    main = relaxpy.compile(bound(text, w=weight), target="native")["main"]
    assert len(packed) == 1
    for rows in ROWS:
        values = numbers((*((2,) if "2" in form[:2] else ()), rows, depth), seed=rows)
        found = main(guarded(values, at_end=True))
        # What reads the sums of a few rows in place adds in another order than tiles.
        if rows > (8 if "linear" in body else 1):
            assert (found == plain(values, weight)).all()
        np.testing.assert_allclose(found, plain(values, weight), rtol=1e-4, atol=1e-3)
        if "relu" not in body and "gelu" not in body:
            np.testing.assert_allclose(found, values @ weight.T, rtol=1e-4, atol=1e-3)
        # A row does not depend on the number of rows.
        for n in range(min(rows, 3)):
            assert (main(values[..., n : n + 1, :]) == found[..., n : n + 1, :]).all()


@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_any_number_of_rows_of_bytes(packed: list[Packing], dtypes: tuple[str, str]) -> None:
    for columns in (37, 200):
        args = f'x: R.Tensor(("n", 70), "{dtypes[0]}"), w: R.Tensor((70, {columns}), "{dtypes[1]}")'
        text, weight = graph(args, "R.matmul(x, w, 'int32')"), extremes((70, columns), dtypes[1], 2)
        main = relaxpy.compile(bound(text, w=weight), target="native")["main"]
        for rows in ROWS:
            values = extremes((rows, 70), dtypes[0], rows)
            wanted = values.astype("int32") @ weight.astype("int32")
            np.testing.assert_array_equal(main(guarded(values, at_end=True)), wanted)
    assert len(packed) == 2


def test_equal_constants_are_packed_once(packed: list[Packing], tmp_path: Path) -> None:
    text = graph(parameters(x=(60, 300), w=(70, 300)), "R.linear(x, w)")
    x, w = numbers((60, 300)), numbers((70, 300), seed=1)
    executables = [relaxpy.compile(bound(text, w=w.copy()), target="native") for _ in range(2)]
    executables[0].save(tmp_path / "model.rxp")
    executables.append(relaxpy.load_executable(tmp_path / "model.rxp"))
    assert len(packed) == 1
    relaxpy.compile(bound(text, w=w + 1), target="native")
    assert len(packed) == 2
    results = [executable["main"](x) for executable in executables]
    assert all((result == results[0]).all() for result in results)
    del executables, results
    gc.collect()
    assert not packing._SHARED


def test_constants_that_differ_in_one_element_have_copies_of_their_own(packed) -> None:
    text = graph(parameters(x=(60, 300), w=(70, 300)), "R.linear(x, w)")
    x, weights = numbers((60, 300)), [numbers((70, 300), seed=1) for _ in range(3)]
    for number, weight in enumerate(weights):
        weight[0, 1] += number
        weight[69, 298] = -0.0 if number == 2 else 0.0
    mains = []
    for weight in (*weights, *weights):
        mains.append(relaxpy.compile(bound(text, w=weight.copy()), target="native")["main"])
        np.testing.assert_allclose(mains[-1](x), x @ weight.T, rtol=1e-4, atol=1e-4)
    assert len(packed) == 3


def test_large_constants_are_packed_by_the_first_call(packed, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tuning.Kept, "PACKED_LAZILY", 300 * 70 * 4)
    text = graph(parameters(x=(60, 300), w=(70, 300)), "R.linear(x, w)")
    x, w = numbers((60, 300)), numbers((70, 300), seed=1)
    first = relaxpy.compile(bound(text, w=w), target="native")
    first.save(tmp_path / "model.rxp")
    second = relaxpy.load_executable(tmp_path / "model.rxp", native_code=True)
    assert not packed
    for executable in (first, second):
        np.testing.assert_allclose(executable["main"](x), x @ w.T, rtol=1e-4, atol=1e-4)
        strided = np.asfortranarray(x)
        assert (executable["main"](strided) == executable["main"](x)).all()
        with pytest.raises(FunctionSignatureError, match=r"main.*x"):
            executable["main"](x[1:])
    assert len(packed) == 1
    with ThreadPoolExecutor(4) as pool:
        third = relaxpy.compile(bound(text, w=w + 1), target="native")["main"]
        results = list(pool.map(lambda _: third(x), range(4)))
    assert len(packed) == 2
    assert all((result == results[0]).all() for result in results)


@pytest.mark.parametrize(
    ("x", "w", "body", "dtype"),
    [
        ('(60, 300), "float32"', '(70, 300), "float32"', "R.linear(x, w)", "u4"),
        ('("n", 2500), "float32"', '(2500, 70), "float32"', "R.matmul(x, w)", "u4"),
        ('(9, 70), "uint8"', '(70, 200), "int8"', "R.matmul(x, w, 'int32')", "u1"),
        ('(9, 70), "uint8"', '(70, 200), "uint8"', "R.matmul(x, w, 'int32')", "u1"),
    ],
)
def test_literals_let_go_of_what_is_packed(packed, monkeypatch, tmp_path, x, w, body, dtype):
    """Of which nothing can be seen: any bits are read again, by any number of threads at once."""
    monkeypatch.setattr(tuning.Kept, "PACKED_LAZILY", 1)
    function = from_source(graph(f"x: R.Tensor({x}), w: R.Tensor({w})", body))["main"]
    dims = [tuple(getattr(n, "value", 60) for n in p.struct_info.shape) for p in function.params]
    kind = str(function.params[1].struct_info.dtype)
    bits = np.random.default_rng(5).integers(0, np.iinfo(dtype).max, dims[1], dtype, endpoint=True)
    mine = bits.view(kind)
    one = 2.0**-20 if kind == "float32" else 1  # sums of any floats are then finite, in any order
    values = np.full(dims[0], one, str(function.params[0].struct_info.dtype))
    module = relaxpy.IRModule({"main": function.bind_params({"w": mine})})
    before = structural_hash(module), module.script(show_meta=True), save_json(module)
    main = relaxpy.compile(module, target="native")
    expected = relaxpy.compile(module, target="numpy")["main"](values)
    [literal] = (node for node in walk(module["main"]) if isinstance(node, relax.Constant))
    kept = weakref.ref(literal.data)
    with np.errstate(all="ignore"):
        first = main["main"](values)
    gc.collect()  # the program that runs on NumPy has the literal, too
    assert len(packed) == 1
    assert kept() is None
    assert (*literal.data_sinfo.get_shape(), literal.nbytes) == (*dims[1], mine.nbytes)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: literal.data, range(8)):
            assert (found.view(dtype) == bits).all()
            assert not found.flags.writeable
            assert found.flags.c_contiguous
    assert (mine.view(dtype) == bits).all()
    assert mine.flags.writeable
    assert before == (structural_hash(module), module.script(show_meta=True), save_json(module))
    main.save(tmp_path / "model.rxp")
    again = (
        relaxpy.compile(module, target="native"),
        relaxpy.load_executable(tmp_path / "model.rxp"),
    )
    for executable in again:
        np.testing.assert_array_equal(executable["main"](values), first)
    np.testing.assert_allclose(first, expected, rtol=1e-3)


def test_literals_keep_what_is_read_in_place_too(packed, monkeypatch) -> None:
    monkeypatch.setattr(tuning.Kept, "PACKED_LAZILY", 1)
    shapes = parameters(x=(60, 600), w=(600, 600))
    module = bound(graph(shapes, "(R.matmul(x, w), w)"), w=numbers((600, 600)))
    [literal] = {node for node in walk(module["main"]) if isinstance(node, relax.Constant)}
    kept = weakref.ref(literal.data)
    relaxpy.compile(module, target="native")["main"](numbers((60, 600)))
    assert len(packed) == 1
    assert kept() is literal.data


MEMORY = r"""
import sys
import numpy as np
import relaxpy
from relaxpy.script import from_source

def rows(field):
    with open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith(field)).split()[1]) << 10

def bound(count, n):
    params = "".join(f", w{i}: R.Tensor(({n}, {n}), 'float32')" for i in range(count))
    lines = "".join(f"    x = R.matmul(x, w{i})\n" for i in range(count))
    head = f"@R.function\ndef main(x: R.Tensor(('m', {n}), 'float32'){params}):\n"
    function = from_source(f"{head}{lines}    return x")
    for i in range(count):
        function = function.bind_params({f"w{i}": np.full((n, n), i, "float32")})
    return relaxpy.IRModule({"main": function})

def run(count, n):
    executable = relaxpy.compile(bound(count, n), target="native")
    executable["main"](np.zeros((64, n), "float32"))
    return executable

run(1, 128)
before = rows("VmRSS")
executable = run(20, 1280)
after = rows("VmRSS")
executable.save(sys.argv[1])
assert executable.source
print((after - before) >> 20, (rows("VmHWM") - before) >> 20)
"""


def test_memory_of_weights(tmp_path: Path) -> None:
    """125 MiB of weights need as much after the first call, and before it a tenth more."""
    environment = os.environ | {"RELAXPY_CACHE": "0", "RELAXPY_NUM_THREADS": "2"}
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "model.rxp")]
    child = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    after, peak = map(int, child.stdout.split())
    assert 100 < after < 1.1 * 125
    assert peak < 1.25 * 125


def test_order_of_the_elements() -> None:
    data = np.arange(3 * 2 * 5, dtype="float32").reshape(5, 3, 2)
    how = Packing(4, ((2, 1), (3, 2)), (5, 6))
    packed = how.packed(data)
    assert how.has_all(data)
    assert not how.has_all(data[:, :2])
    assert not Packing(4, ((2, 1), (3, 1)), (5, 6)).has_all(data)
    assert (how.unpacked(packed, data.shape, data.dtype) == data).all()
    assert packed.shape == (2, 2, 3, 4)
    assert packed.ctypes.data % 64 == 0
    for block, a, b, n in np.ndindex(*packed.shape):
        column = 4 * block + n
        assert packed[block, a, b, n] == (data[column, b, a] if column < 5 else 0)


@pytest.mark.parametrize(
    ("count", "dtype", "moved", "swaps"),
    [(4, "int8", -128, False), (2, "int16", 0, False), (2, "bfloat16", 0, True)],
)
@pytest.mark.parametrize("depth", [6, 3])
def test_order_of_joined_elements(
    count: int, dtype: str, moved: int, swaps: bool, depth: int
) -> None:
    data = np.arange(-60, 60, dtype="int8").reshape(5, 24)[::-1].T
    how = Joined(count, dtype, depth, moved, swaps)
    packing = Packing(4, ((24, 1),), (5, 24), how)
    packed = packing.packed(np.ascontiguousarray(data.T))
    assert (packing.unpacked(packed, (5, 24), data.dtype) == data.T).all()
    groups, stretches = -(-depth // count), 24 // depth
    assert packed.shape == (2, stretches, groups + bool(moved), 4, count)
    for block, stretch, group, n, k in np.ndindex(2, stretches, groups, 4, count):
        column, row = 4 * block + n, count * group + k
        inside = column < 5 and row < depth
        place = count - 1 - k if swaps else k
        assert packed[block, stretch, group, n, place] == (
            data[depth * stretch + row, column] if inside else 0
        )
    if moved:
        starts = packed[:, :, groups].copy().view("int32")[..., 0]
        for block, stretch, n in np.ndindex(*starts.shape):
            sums = data[depth * stretch : depth * stretch + depth].sum(0, dtype="int32")
            assert starts[block, stretch, n] == (moved * [*sums, 0, 0, 0][4 * block + n])


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="only Linux lists pages")
def test_large_packed_constants_have_huge_pages() -> None:
    """Other pages take twice the time to read: each one is looked up."""
    data = np.zeros((1 << 10, tuning.Allocations.HUGE >> 12), "float32")
    copy = Packing(16, ((data.shape[0], data.shape[1]),), (data.shape[1], 1)).packed(data)
    middle, flags, is_here = copy.ctypes.data + copy.nbytes // 2, "", False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in (head := line.split()[0]) and ":" not in head:
            start, stop = (int(n, 16) for n in head.split("-"))
            is_here = start <= middle < stop
        elif is_here and head == "VmFlags:":
            flags = line
    assert "hg" in flags.split()


def test_programs_from_the_disk(packed, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RELAXPY_CACHE", "1")
    monkeypatch.setenv("RELAXPY_CACHE_DIR", str(tmp_path))
    text = graph(parameters(x=(20, 300), w=(300, 300)), "R.linear(x, w)")
    x, w = numbers((20, 300)), numbers((300, 300), seed=1)
    first = relaxpy.compile(bound(text, w=w), target="native")["main"](x)
    gc.collect()  # the packed copy, which the second program would share
    second = relaxpy.compile(bound(text, w=w), target="native")["main"](x)
    assert (first == second).all()
    assert len(packed) == 2
    assert packed[0] == packed[1]


FILTER = f"R.nn.conv2d(x, w, 1, 1, {LAST})"
"""A product that packed weights have a form of their own for: folded rows."""
TWO_CALLERS = """
@R.function
def main(x: R.Tensor((1, 6, 6, 40), "float32"), w: R.Tensor((3, 3, 40, 70), "float32")):
    return {body}

@R.function(pure=False)
def other(x: R.Tensor((1, 6, 6, 40), "float32"), w: R.Tensor((3, 3, 40, 70), "float32")):
    {before}y = {body}
    return y
"""


@pytest.mark.parametrize(
    ("before", "is_bound", "has_both"),
    [
        ("", True, False),  # both functions pass constants
        ("", False, True),
        ("R.print('called')\n    ", True, False),  # this one runs in Python
        ("R.print('called')\n    ", False, True),
    ],
)
def test_kernels_have_code_for_the_weights_that_they_get(
    packed: list[Packing],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    before: str,
    is_bound: bool,
    has_both: bool,
) -> None:
    only_packed: list[bool] = []
    compile_graph = GraphBackend.compile_graph

    def noted(self: GraphBackend, *args: object) -> bool:
        only_packed[:] = [
            bool(packed) for kernel in self.claimed.values() for packed in kernel.forms
        ]
        return compile_graph(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(GraphBackend, "compile_graph", noted)
    module = from_source(TWO_CALLERS.format(body=FILTER, before=before))
    x, w = numbers((1, 6, 6, 40)), numbers((3, 3, 40, 70), seed=1)
    expected = relaxpy.compile(module, target="native")["main"](x, w)
    assert not packed
    assert only_packed == [False]
    module["main"] = module["main"].bind_params({"w": w})
    if is_bound:
        module["other"] = module["other"].bind_params({"w": w})
    executable = relaxpy.compile(module, target="native")
    assert only_packed == ([False, True] if has_both else [True])
    executable.save(tmp_path / "model.exe")
    for each in (executable, relaxpy.load_executable(tmp_path / "model.exe")):
        arguments = (x,) if is_bound else (x, w)
        with pytest.raises(FunctionSignatureError, match="x of main: expected"):
            each["main"](x[:, 1:])
        for name, values in (("main", (x,)), ("other", arguments)):
            assert (each[name](*values) == expected).all()
            each.profile(*values, repeat=1, function=name)


def test_a_kernel_gets_a_constant_in_one_call_and_a_parameter_in_another(
    packed: list[Packing],
) -> None:
    """The kernel has a form for each, and none of them asks an address what it is."""
    x, w, p = numbers((64, 256)), numbers((256, 256), seed=1), numbers((256, 256), seed=2)
    module = relaxpy.IRModule({"main": from_source(TWO_PRODUCTS)})
    expected = relaxpy.compile(module, target="native")["main"](x, p, w)
    assert not packed
    module["main"] = module["main"].bind_params({"w": w})
    executable = relaxpy.compile(module, target="native")
    assert (executable["main"](x, p) == expected).all()
    assert len(packed) == 1
    np.testing.assert_allclose(expected, x @ w @ p, rtol=1e-3, atol=1e-3)


TWO_PRODUCTS = """
@R.function
def main(
    x: R.Tensor((64, 256), "float32"),
    p: R.Tensor((256, 256), "float32"),
    w: R.Tensor((256, 256), "float32"),
):
    return R.matmul(R.matmul(x, w), p)
"""
