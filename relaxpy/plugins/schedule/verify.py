"""Checks of schedules: a trace that is applied to the same kernels gives the same result."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import unexpected
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.module import IRModule
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.plugins.schedule.schedule import Schedule
from relaxpy.plugins.schedule.trace import Trace


def verify_trace_roundtrip(
    sch: Schedule,
    mod: PrimFunc | IRModule,
    *,
    debug_mask: str | int = "all",
    text_format: str | Sequence[str] = ("python", "json"),
) -> Schedule:
    """The schedule of `mod` to which the trace of `sch` has been applied.

    The format "json" applies the trace that `as_json` writes, "python" the trace itself.

    Errors:
        StructuralMismatch (also AssertionError): its kernels are not those of `sch`.
        AssertionError: the text of its trace is not that of `sch`.
        MisuseError (also ValueError): there is no such format.
    """
    again = Schedule(mod, debug_mask=debug_mask)
    for form in [text_format] if isinstance(text_format, str) else text_format:
        again = Schedule(mod, debug_mask=debug_mask)
        if form == "json":
            Trace.apply_json_to_schedule(sch.trace.as_json(), again)
        elif form == "python":
            sch.trace.apply_to_schedule(again)
        else:
            raise unexpected(form, "the format of a trace is 'python' or 'json'")
        assert_structural_equal(again.mod, sch.mod)
        if again.trace.as_python() != sch.trace.as_python():
            raise AssertionError(f"the trace becomes another one:\n{sch.trace}\n\n{again.trace}")
    return again
