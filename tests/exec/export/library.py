"""Exported programs in this process: linked as shared libraries, and called through ctypes."""

import ctypes
from pathlib import Path

import ml_dtypes  # noqa: F401  the datatypes of bfloat16
import numpy as np

from relaxpy.exec.export.cpu import exporting_machine
from relaxpy.exec.export.exported import exported_program
from relaxpy.exec.export.files import finished
from relaxpy.exec.export.table import THREAD_FIELDS
from relaxpy.exec.runtime.scalar import ScalarEvaluator
from relaxpy.ir.core.dtype import DataType
from tests.exec.export.in_node import first
from tests.guard_pages import PAGE, guarded

C_TYPES = {"pointer": ctypes.c_void_p, "int64": ctypes.c_int64}
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
PARALLEL_FOR = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
)


def struct(fields):
    """The class of a struct with these fields."""
    types = [
        (f.name, C_TYPES[f.kind] if f.count == 1 else C_TYPES[f.kind] * f.count) for f in fields
    ]
    return type("Struct", (ctypes.Structure,), {"_fields_": types})


class Library:
    """The exported form of an executable, as a library in `folder`."""

    def __init__(self, executable, folder, name="model", weights_inside=True, machine=None):
        self.program = exported_program(
            executable.program.module,
            machine or exporting_machine(),
            name,
            weights_inside=weights_inside,
        )
        path = Path(folder, f"{name}.so")
        path.write_bytes(finished(self.program, path))
        self.code = ctypes.CDLL(str(path))
        self.weights = None
        if not weights_inside:
            self.weights = aligned(self.program.weights(), 64)
        self.error = self.code[f"{name}_error"]
        self.error.restype = ctypes.c_char_p

    def __getitem__(self, name):
        return next(Function(self, f) for f in self.program.functions if f.name == name)

    def text(self, status):
        return self.error(ctypes.c_int32(status)).decode()


def aligned(data, alignment):
    """A copy of bytes at a multiple of an alignment."""
    memory = np.zeros(len(data) + alignment, np.uint8)
    start = -memory.ctypes.data % alignment
    memory[start : start + len(data)] = np.frombuffer(data, np.uint8)
    return memory[start : start + len(data)]


class Function:
    """A function of a library, called with arrays; sizes are read from these as in Python."""

    def __init__(self, library, function):
        self.library, self.function = library, function
        code = library.code
        self.run = code[function.symbol]
        self.workspace = code[f"{function.symbol}_workspace"]
        self.workspace.restype = ctypes.c_int64
        self.result_sizes = code[f"{function.symbol}_result_sizes"]
        self.inputs = struct(function.input_fields())
        self.outputs = struct(function.output_fields())

    def prepared(self, arrays, threads=None, **sizes):
        """The struct of inputs, and what has to stay in memory."""
        given = self.inputs()
        found = dict(sizes)
        for tensor, array in zip(self.function.inputs, arrays, strict=True):
            assert array.dtype == DataType(tensor.dtype).numpy(), tensor.name
            setattr(given, tensor.name, array.ctypes.data)
            for size, actual in zip(tensor.shape, array.shape, strict=True):
                for name, var in self.function.sizes.items():
                    if size is var:
                        found.setdefault(name, actual)
        for name in self.function.sizes:
            setattr(given, name, found[name])
        if self.function.takes_weights:
            given.weights = self.library.weights.ctypes.data
        if threads is not None:
            given.threads = ctypes.addressof(threads)
        return given, found

    def results(self, found):
        """New arrays for the results, whose shapes are computed in Python."""
        values = {var: found[name] for name, var in self.function.sizes.items()}
        arrays = {}
        for tensor in self.function.outputs:
            if not tensor.same_as:
                shape = [int(ScalarEvaluator(values).value(size)) for size in tensor.shape]
                arrays[tensor.name] = np.zeros(shape, DataType(tensor.dtype).numpy())
        return arrays

    def __call__(self, *arrays, offset=0, at_end=True, guards=True, threads=None, **sizes):
        """The results, between guard pages, with a workspace of exactly the stated size.

        All of them begin `offset` bytes after a multiple of their element, or end before a page.
        """
        if guards:
            arrays = [guarded(array, at_end=at_end) for array in arrays]
        given, found = self.prepared(arrays, threads, **sizes)
        needed = self.workspace(ctypes.byref(given))
        assert needed >= 0, self.library.text(needed)
        given.workspace_bytes = needed
        memory = guarded(np.zeros(needed + offset, np.uint8), at_end=at_end)
        # At the end of a page the workspace ends, and at the start of one it begins.
        start = memory.ctypes.data + (offset if at_end else 0)
        wanted, results = self.outputs(), self.results(found)
        status = self.result_sizes(ctypes.byref(given), ctypes.byref(wanted))
        assert status == 0, self.library.text(status)
        for name, array in results.items():
            if hasattr(wanted, f"{name}_shape"):
                shape = np.atleast_1d(getattr(wanted, f"{name}_shape"))
                assert tuple(shape[: array.ndim]) == array.shape
            results[name] = guarded(array, at_end=at_end) if guards else array
            setattr(wanted, name, results[name].ctypes.data)
        self.status = self.run(ctypes.byref(given), ctypes.byref(wanted), ctypes.c_void_p(start))
        self.failed = wanted.failed_index, wanted.failed_size
        if self.status:
            raise StatusError(self.status, self.library.text(self.status))
        for tensor in self.function.outputs:
            if tensor.actual is not None and not tensor.same_as:
                shape = np.atleast_1d(getattr(wanted, f"{tensor.name}_shape"))
                results[tensor.name] = first(results[tensor.name], shape)
        known = {t.name: a for t, a in zip(self.function.inputs, arrays, strict=True)} | results
        return tuple(known[t.same_as or t.name] for t in self.function.outputs)


class StatusError(Exception):
    """A status of a call, with its text."""


def serial_threads(count):
    """A struct of threads whose tasks run one after the other, with all numbers of threads."""

    def parallel_for(owner, task, work, tasks):
        run = TASK(task)
        for number in range(tasks):
            run(work, tasks - 1 - number, number % count)

    function = PARALLEL_FOR(parallel_for)
    threads = struct(THREAD_FIELDS)()
    threads.parallel_for = ctypes.cast(function, ctypes.c_void_p).value
    threads.count = count
    threads.kept = function
    return threads


assert PAGE
