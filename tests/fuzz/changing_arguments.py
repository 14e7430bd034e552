"""Arguments that change while they are read, checked and used: `python -m ... [count] [seed]`.

What is varied, each by itself:

- functions of fixed and of symbolic sizes: elementwise, products, sums, windows, gathered rows,
  transposes, views, tuples, objects that are cast, ranks alone, kernels in place, and calls of
  packed functions in between;
- entries: executables, virtual machines, decorated functions, stored inputs, saved functions,
  executables that were saved, profiles; all targets;
- arguments: arrays, subclasses of them that report another shape, datatype or address, objects
  with `__dlpack__`, `__array__` or interfaces, those that look like tensors of other libraries,
  those that are other ones each time that they are read, or raise any error;
- changes: an array gets another shape, other strides, another datatype, or other memory in place;
- when: while another argument is converted, in a packed function that gets the array, in another
  thread on the target native, whose kernels check arrays while they hold the GIL.

Each result is the one of arguments as they were at some time, or there is an error of ours. The
arrays lie between others, whose elements are in no result and stay as they are.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.script import from_source
from tests.fuzz.batches import LongError, command_line, limited, run

FOREIGN = 3.0e7
"""The elements beside the arrays."""
SMALL = 8, 4
LARGE = 64, 1024
"""The shape of arrays whose memory the system takes back when they get other memory."""

Shape = tuple[int, ...]

HEADER = "from relaxpy.script import relax as R, tir as T, ir as I\n\n"

PROGRAMS: dict[str, tuple[str, str]] = {
    "elementwise": (
        """
@R.function
def main(x: R.Tensor(({N}, {M}), "float32"), y: R.Tensor(({N}, {M}), "float32")):
    return R.add(R.multiply(x, x), y)
""",
        "x * x + y",
    ),
    "one kernel": (
        """
@R.function
def main(x: R.Tensor(({N}, {M}), "float32"), y: R.Tensor(({N}, {M}), "float32")):
    return R.subtract(x, y)
""",
        "x - y",
    ),
    "product": (
        """
@R.function
def main(x: R.Tensor(({N}, {M}), "float32"), y: R.Tensor(({N}, {M}), "float32")):
    return R.matmul(x, R.permute_dims(y))
""",
        "x @ y.T",
    ),
    "sums": (
        """
@R.function
def main(x: R.Tensor(({N}, {M}), "float32"), y: R.Tensor(({N}, {M}), "float32")):
    return R.sum(x, axis=1), R.max(y, axis=0)
""",
        "x.sum(1), y.max(0)",
    ),
    "windows": (
        """
@R.function
def main(x: R.Tensor(({N}, {M}), "float32"), y: R.Tensor(({N}, {M}), "float32")):
    z = R.nn.max_pool2d(R.reshape(x, (1, 1, {n}, {m})), pool_size=[2, 2])
    return z, R.negative(y)
""",
        "np.lib.stride_tricks.sliding_window_view(x, (2, 2)).max((2, 3))[None, None], -y",
    ),
    "rows": (
        """
@R.function
def main(x: R.Tensor(({N}, {M}), "float32"), y: R.Tensor(({N}, {M}), "float32")):
    return R.take(x, R.astype(R.sum(y, axis=1) * R.const(0, "float32"), "int64"), axis=0)
""",
        "x[(0 * y.sum(1)).astype(int)]",
    ),
    "views": (
        """
@R.function
def main(x: R.Tensor(({N}, {M}), "float32"), y: R.Tensor(({N}, {M}), "float32")):
    return R.reshape(x, ({n} * {m},)), R.flip(y, axis=0)
""",
        "x.reshape(-1), y[::-1]",
    ),
    "tuple": (
        """
@R.function
def main(t: R.Tuple(R.Tensor(({N}, {M}), "float32"), R.Tensor(({N}, {M}), "float32"))):
    return R.divide(t[0], t[1])
""",
        "x / y",
    ),
    "object": (
        """
@R.function
def main(x: R.Object, y: R.Object):
    n, m = T.int64(), T.int64()
    v = R.match_cast(x, R.Tensor(({n}, {m}), "float32"))
    w = R.match_cast(y, R.Tensor(({n}, {m}), "float32"))
    return R.add(R.exp(v), w)
""",
        "np.exp(x) + y",
    ),
    "rank": (
        """
@R.function
def main(x: R.Tensor(ndim=2), y: R.Tensor(ndim=2)):
    return R.add(R.permute_dims(x), R.permute_dims(y))
""",
        "x.T + y.T",
    ),
    "packed": (
        """
@R.function(pure=False)
def main(x: R.Tensor(({N}, {M}), "float32"), y: R.Tensor(({N}, {M}), "float32")):
    z = R.add(x, y)
    _ = R.call_packed("test.change", x, y, sinfo_args=R.Object())
    v = R.nn.max_pool2d(R.reshape(y, (1, 1, {n}, {m})), pool_size=[2, 2])
    return R.multiply(R.exp(x), z), R.matmul(x, R.permute_dims(y)), v
""",
        "np.exp(v) * (x + y), v @ w.T, "
        "np.lib.stride_tricks.sliding_window_view(w, (2, 2)).max((2, 3))[None, None]",
    ),
    "gathered": (
        """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def reversed(a: T.handle, b: T.handle, c: T.handle):
        n, m = T.int64(), T.int64()
        A = T.match_buffer(a, (n, m), "float32")
        B = T.match_buffer(b, (n, m), "float32")
        C = T.match_buffer(c, (n, m), "float32")
        for i, j in T.grid(n, m):
            with T.block("C"):
                v, w = T.axis.remap("SS", [i, j])
                C[v, w] = A[n - 1 - v, w] + B[v, m - 1 - w]
    @R.function
    def main(x: R.Tensor(({N}, {M}), "float32"), y: R.Tensor(({N}, {M}), "float32")):
        cls = Module
        return R.call_tir(cls.reversed, (x, y), out_sinfo=R.Tensor(({n}, {m}), "float32"))
""",
        "x[::-1] + y[:, ::-1]",
    ),
    "in place": (
        """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def scale(a: T.handle, b: T.handle):
        n, m = T.int64(), T.int64()
        A = T.match_buffer(a, (n, m), "float32")
        B = T.match_buffer(b, (n, m), "float32")
        for i, j in T.grid(n, m):
            with T.block("C"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = B[v, w] + A[v, w]
    @R.function(pure=False)
    def main(x: R.Tensor(({N}, {M}), "float32"), y: R.Tensor(({N}, {M}), "float32")):
        cls = Module
        return R.call_tir_inplace(
            cls.scale, (x, y), out_sinfo=R.Tensor(({n}, {m}), "float32"), inplace_indices=[1]
        )
""",
        "x + y",
    ),
}
ENTRIES = (
    "executable",
    "machine",
    "inputs",
    "saved function",
    "loaded",
    "decorated",
    "by name",
    "profile",
)
CHANGES = ("shape", "strides", "datatype", "memory", "shape", "rank")
CARRIERS = (
    "dlpack",
    "array",
    "array interface",
    "cuda interface",
    "subclass",
    "tensor with offset",
    "torch",
    "fields",
    "buffer",
    "masked",
    "raises",
)


class Case:
    """A program with an entry, two arrays, and what changes one of them."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        draw = self.random.choice
        self.program = draw([*PROGRAMS])
        self.fixed = self.random.random() < 0.4
        self.entry, self.change, self.carrier = draw(ENTRIES), draw(CHANGES), draw(CARRIERS)
        self.target = draw(("native", "native", "numpy", "reference"))
        self.when = draw(("conversion", "conversion", "packed", "thread"))
        self.changed, self.carried = draw((0, 1)), draw((0, 1))
        if self.when == "packed":
            self.program = "packed"
        if self.when == "thread":
            self.target = "native"
        if self.when == "thread" and self.change == "memory":
            self.change = "shape"  # NumPy itself does not allow that
        if self.carrier in ("subclass", "tensor with offset") and self.change == "memory":
            self.change = "rank"  # NumPy does not notice that a view has the memory
        is_large = self.change == "memory" and self.target != "reference"
        self.rows, self.columns = LARGE if is_large else SMALL
        self.shape: Shape = (self.rows, self.columns)
        self.around: list[np.ndarray] = []
        self.arrays = [self.array(n) for n in range(2)]
        self.states = [[a.copy()] for a in self.arrays]

    def __str__(self) -> str:
        names = ["program", "fixed", "entry", "target", "when", "change", "changed"]
        names += ["carrier", "carried"]
        return ", ".join(f"{name} {getattr(self, name)}" for name in names)

    def array(self, number: int) -> np.ndarray:
        """An array between others, unless it has to own its memory."""
        count = self.rows * self.columns
        elements = np.arange(count, dtype="float32") % 13 / 8 + number + 1
        if self.change == "memory":
            return elements.reshape(self.shape).copy()
        whole = np.full(count + 2 * 4096, FOREIGN, "float32")
        self.around.append(whole)
        whole[4096 : 4096 + count] = elements
        return whole[4096 : 4096 + count].reshape(self.shape)

    def alter(self) -> None:
        """Change the array in place."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array = self.arrays[self.changed]
            match self.change:
                case "shape":
                    array.shape = array.shape[::-1]
                case "rank":
                    array.shape = (1, *self.shape) if array.ndim == 2 else self.shape
                case "strides":
                    array.strides = (4, 4 * self.rows) if array.strides[1] == 4 else (16, 4)
                case "datatype":
                    array.dtype = "int32" if array.dtype == "float32" else "float32"
                case "memory":
                    array.resize((1, self.columns), refcheck=False)

    def allowed(self) -> list[Any]:
        """The results for arrays as they were at some time."""
        results = []
        for values in product(*self.states, *self.states):
            x = values[0]
            if {v.dtype for v in values} != {np.dtype("float32")} or {*map(np.ndim, values)} != {2}:
                continue
            if self.program != "rank" and len({v.shape for v in values}) > 1:
                continue
            if self.fixed and self.program != "rank" and x.shape != self.shape:
                continue
            names = dict(zip("xyvw", values, strict=True))
            with np.errstate(all="ignore"), suppress(ValueError):
                results.append(eval(PROGRAMS[self.program][1], {"np": np, **names}))
        return results

    def note_states(self) -> None:
        """Add the states that the array has after a change, which a thread takes back."""
        self.alter()
        self.states[self.changed].append(self.arrays[self.changed].copy())
        if self.change != "memory":
            self.alter()

    def module(self) -> Any:
        text, _ = PROGRAMS[self.program]
        n, m = (str(self.rows), str(self.columns)) if self.fixed else ("n", "m")
        names = {"n": n, "m": m, "N": repr(n), "M": repr(m)}
        if self.fixed:
            names |= {"N": n, "M": m}
        for name, size in names.items():
            text = text.replace(f"{{{name}}}", size)
        return from_source(HEADER + text)

    def argument(self) -> Any:
        """The array at the carried position as what changes, or changes an array, when read."""
        array = self.arrays[self.carried]
        alter = self.alter_once
        match self.carrier:
            case "dlpack":

                class Carrier:
                    def __dlpack__(self, **options: Any) -> Any:
                        alter()
                        return array.__dlpack__(**options)

                    def __dlpack_device__(self) -> tuple[int, int]:
                        alter()
                        return 1, 0
            case "array":

                class Carrier:  # type: ignore[no-redef]
                    def __array__(self, *_: Any, **__: Any) -> Any:
                        alter()
                        return array
            case "array interface":

                class Carrier:  # type: ignore[no-redef]
                    @property
                    def __array_interface__(self) -> Any:
                        alter()
                        return array.__array_interface__
            case "cuda interface":

                class Carrier:  # type: ignore[no-redef]
                    @property
                    def __cuda_array_interface__(self) -> Any:
                        alter()
                        return array.__array_interface__
            case "raises":

                class Carrier:  # type: ignore[no-redef]
                    def __array__(self, *_: Any, **__: Any) -> Any:
                        alter()
                        raise ZeroDivisionError
            case "buffer":
                return memoryview(array)
            case "masked":
                return np.ma.masked_array(array)
            case "subclass" | "tensor with offset":
                base: Any = np.ndarray if self.carrier == "subclass" else relaxpy.runtime.Tensor

                class Carrier(base):  # type: ignore[no-redef]
                    shape = property(lambda self: alter() or (1 << 20, 4))  # type: ignore
                    strides = property(lambda self: alter() or (1 << 20, 4))  # type: ignore
                    dtype = property(lambda self: alter() or np.dtype("float32"))  # type: ignore
                    ndim = property(lambda self: alter() or 2)  # type: ignore
                    byte_offset = property(lambda self: alter() or 64)  # type: ignore

                return array.view(Carrier)
            case "torch":

                class Carrier:  # type: ignore[no-redef]
                    __module__ = "torch.fake"
                    shape, dtype, requires_grad = property(lambda _: alter()), "float32", False

                    def detach(self) -> Any:
                        alter()
                        return self

                    resolve_neg = detach

                    def numpy(self, **_: Any) -> Any:
                        return object()

                    def __array__(self, *_: Any, **__: Any) -> Any:
                        return array
            case _:

                class Carrier:  # type: ignore[no-redef]
                    shape = property(lambda _: alter() or array.shape)
                    dtype, ndim, strides = np.dtype("float32"), 2, (16, 4)

        return Carrier()

    def alter_once(self) -> None:
        if not self.has_altered:
            self.has_altered = True
            self.alter()

    has_altered = False

    def arguments(self) -> list[Any]:
        arguments: list[Any] = list(self.arrays)
        if self.when == "conversion":
            arguments[self.carried] = self.argument()
        return [tuple(arguments)] if self.program == "tuple" else arguments

    def calls(self) -> Callable[[], Any]:
        """A call of the function through the entry."""
        module, name = self.module(), "main"
        if not isinstance(module, relaxpy.IRModule):
            module = relaxpy.IRModule({"main": module})
        executable = relaxpy.compile(module, target=self.target)
        arguments = self.arguments()
        if self.entry == "loaded":
            with tempfile.TemporaryDirectory() as folder:
                executable.save(Path(folder) / "a.rxp")
                executable = relaxpy.load_executable(Path(folder) / "a.rxp")
        machine = relaxpy.VirtualMachine(executable)
        match self.entry:
            case "machine":
                return lambda: machine["main"](*arguments)
            case "inputs":
                machine.set_input("main", *arguments)

                def invoke() -> Any:
                    machine.invoke_stateful("main")
                    return machine.get_outputs("main")

                return invoke
            case "saved function":
                machine.save_function("main", "saved", *arguments)
                return lambda: machine["saved"]()
            case "decorated" if len(module.functions) == 1:
                function = module["main"]
                return lambda: function(*arguments)
            case "by name":
                names = [p.name_hint for p in module["main"].params]
                return lambda: executable["main"](**dict(zip(names, arguments, strict=True)))
            case "profile":

                def profiled() -> Any:
                    executable.profile(*arguments, repeat=1)
                    return executable["main"](*arguments)

                return profiled
        return lambda: executable["main"](*arguments)


@contextmanager
def altering(case: Case) -> Iterator[None]:
    """A scope in which another thread changes the array again and again."""
    is_over = threading.Event()

    def alter() -> None:
        while not is_over.is_set():
            case.alter()

    thread = threading.Thread(target=alter)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(interval)


def is_same(result: Any, expected: Any) -> bool:
    """Whether a result has the expected elements."""
    if isinstance(expected, tuple):
        return len(result) == len(expected) and all(map(is_same, result, expected))
    return result.shape == expected.shape and bool(np.allclose(result, expected, 1e-4, 1e-4))


def outcome(case: Case, call: Callable[[], Any], allowed: list[Any]) -> str:
    """What a call does: whether it is refused, and whether its result is one of those allowed."""
    try:
        with warnings.catch_warnings(), limited():
            warnings.simplefilter("ignore")
            result = call()
    except RelaxpyError:
        return "refused"
    except LongError:
        return "long"
    if case.program == "in place":  # it writes to the array, which stays as it is
        return "written"
    assert any(is_same(result, expected) for expected in allowed), f"wrong: {result}"
    return "right"


def check(seed: str) -> Counter[str]:
    """Run the case of a seed. Errors: AssertionError, or any error that is not ours."""
    case = Case(seed)
    try:
        return _check(case)
    except Exception as error:
        error.add_note(str(case))
        raise


def _check(case: Case) -> Counter[str]:
    relaxpy.register_func("test.change", lambda *_: case.alter_once(), override=True)
    if case.when != "packed":
        relaxpy.register_func("test.change", lambda *_: None, override=True)
    call = case.calls()
    if case.when == "thread":
        case.note_states()
        allowed = case.allowed()
        with altering(case):
            found = Counter(outcome(case, call, allowed) for _ in range(60))
    else:
        twin = Case.__new__(Case)
        vars(twin).update(vars(case))
        twin.arrays = [a.copy() for a in case.arrays]
        if case.change == "strides":
            twin.arrays = case.arrays
        twin.states = [[a] for a in map(np.copy, twin.arrays)]
        twin.note_states()
        found = Counter([outcome(case, call, twin.allowed())])
    for whole in case.around:
        assert (whole[:4096] == FOREIGN).all(), "it has written beside an array"
        assert (whole[4096 + case.rows * case.columns :] == FOREIGN).all(), "it has written beside"
    return found


def main(count: int, seed: str) -> int:
    """Try `count` cases; the number of faults."""
    return run("tests.fuzz.changing_arguments", "changing arguments", count, seed)


if __name__ == "__main__":
    command_line(check, main)
