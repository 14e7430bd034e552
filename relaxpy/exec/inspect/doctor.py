"""Diagnoses how fast programs run here: CPU, libraries, threads, cache, targets."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import numpy as np
from typing_extensions import override

from relaxpy.errors import CompileError, MisuseError
from relaxpy.exec.machine.blas import numpy_blas
from relaxpy.exec.machine.platforms import TILE
from relaxpy.exec.machine.process import own_platform, process
from relaxpy.exec.machine.tuning import Kept
from relaxpy.exec.native.calls.interpreter import fits_interpreter
from relaxpy.exec.native.machine_code import disk_cache
from relaxpy.exec.native.machine_code.machine import Machine, host, llvm, tiles_are_confirmed
from relaxpy.exec.native.threads.pool import native_threads
from relaxpy.exec.runtime.threads import THREADS, thread_count
from relaxpy.ir.core.target import default_target
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.support.screen import ShownAsTable, Table

_CORE_TYPE = "OPENBLAS_CORETYPE"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact about this process, with its problem or a possible improvement."""

    topic: str
    value: str
    advice: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis(ShownAsTable):
    """The findings; `str` is a table, and an interactive prompt shows it."""

    findings: tuple[Finding, ...]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __getitem__(self, topic: str) -> Finding:
        """The finding on a topic. Errors: KeyError if there is none."""
        return {finding.topic: finding for finding in self.findings}[topic]

    @property
    @override
    def _table(self) -> Table:
        rows = tuple((finding.topic, finding.value, finding.advice) for finding in self.findings)
        count = 3 if any(finding.advice for finding in self.findings) else 2
        header = ("topic", "found", "advice")
        return Table(header[:count], tuple(row[:count] for row in rows), text_columns=count)


@user_facing
def doctor() -> Diagnosis:
    """The settings and hardware that determine performance, to attach to bug reports.

    The topics are versions, CPU, vectors, BLAS, llvmlite, threads, calls, cache and targets.
    A setting with an invalid value is a finding too, and not an error.
    """
    machine, reason = _machine()
    return Diagnosis(
        (
            _versions(),
            _processor(),
            _vectors(machine, reason),
            _blas(),
            _llvmlite(),
            _threads(),
            _calls(),
            _cache(),
            _targets(reason),
        )
    )


def _machine() -> tuple[Machine | None, str]:
    """The machine that native code is for, or the reason why there is none."""
    try:
        return host(), ""
    except (CompileError, MisuseError) as error:
        return None, error.diagnostic.message


def _versions() -> Finding:
    words = (
        f"relaxpy {sys.modules['relaxpy'].__version__}",
        f"{platform.python_implementation()} {platform.python_version()}",
        f"NumPy {np.__version__}",
        f"{platform.system()} {platform.machine()}",
    )
    return Finding("versions", ", ".join(words))


def _processor() -> Finding:
    name, count, usable = process().processor(), os.cpu_count() or 1, process().cpus()
    number = f"{usable} of {count}" if usable != count else f"{count}"
    excluded = process().system.has_affinity and usable != count
    advice = "the affinity or the container of this process excludes the others" if excluded else ""
    return Finding("CPU", f"{name}, {number} logical", advice)


def _vectors(machine: Machine | None, reason: str) -> Finding:
    if machine is None:
        return Finding("vectors", "unknown", reason)
    registers = f"{machine.vector_registers} registers of {machine.vector_bits} bits"
    if not any(name.startswith(TILE) for name in machine.instructions):
        return Finding("vectors", f"{registers}, {machine.cpu}")
    state = "their self-test passed"
    if not tiles_are_confirmed():
        state = "not used: the system does not permit them, or their self-test failed"
    advice = f"matrix tiles: built, not yet confirmed on any CPU; {state}"
    return Finding("vectors", f"{registers}, matrix tiles, {machine.cpu}", advice)


def _blas() -> Finding:
    blas = numpy_blas()
    words = [blas.name or "unknown"]
    if blas.core:
        words.append(f"kernels for {blas.core}")
    if blas.threads:
        words.append(_plural(blas.threads, "thread"))
    pinned = os.environ.get(_CORE_TYPE)
    advice = f"{_CORE_TYPE}={pinned} selects these kernels; unset it" if pinned else ""
    return Finding("BLAS", ", ".join(words), advice)


def _llvmlite() -> Finding:
    try:
        installed = version("llvmlite")
    except PackageNotFoundError:
        return Finding("llvmlite", "not installed", "pip install 'relaxpy[native]'")
    try:
        words = f"{installed}, LLVM {'.'.join(map(str, llvm().llvm_version_info))}"
    except CompileError as error:
        return Finding("llvmlite", installed, error.diagnostic.message)
    return Finding("llvmlite", words)


def _threads() -> Finding:
    try:
        number = native_threads()
    except MisuseError as error:
        return Finding("threads", "unknown", error.diagnostic.message)
    origin = f"{THREADS}={number}" if THREADS in os.environ else "one for each usable CPU"
    if number == 1 != thread_count():
        origin = "more need another version of this system"
    return Finding("threads", f"{_plural(number, 'thread')} of native code, {origin}")


def _calls() -> Finding:
    advice = "the objects of this Python or NumPy are not those that native code reads"
    try:
        if fits_interpreter():
            return Finding("calls", "native code checks arguments")
    except CompileError as error:  # no native code can be generated that tries it
        advice = error.diagnostic.message
    return Finding("calls", "kernels run on NumPy", advice)


def _cache() -> Finding:
    try:
        usage = disk_cache.usage()
    except MisuseError as error:
        return Finding("cache", "unknown", error.diagnostic.message)
    if not usage.path:
        return Finding("cache", "none", usage.problem)
    size = f"{_plural(usage.files, 'file')}, {usage.size / 2**20:.1f} of at most"
    words = f"{usage.path}, {size} {Kept.DISK >> 20} MiB"
    return Finding("cache", words, f"not used: {usage.problem}" if usage.problem else "")


def _targets(reason: str) -> Finding:
    names = ("numpy", "reference") if reason else ("native", "numpy", "reference")
    try:
        default, obstacle = default_target()
    except MisuseError as error:
        return Finding("targets", ", ".join(names), error.diagnostic.message)
    marked = [f"{name} (default)" if name == default else name for name in names]
    advice = reason or obstacle
    platform = own_platform()
    if not advice and platform is not None and not platform.is_confirmed:
        advice = "built, not yet confirmed on this system; its self-test passed"
    return Finding("targets", ", ".join(marked), advice and f"native: {advice}")


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
