"""Passes, pipelines and instruments."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.transform")
if TYPE_CHECKING:
    from relaxpy.exec.inspect.explain import Explanation as Explanation, explain as explain
    from relaxpy.ir.transform import ApplyPassToFunction as ApplyPassToFunction, DumpIR as DumpIR, ModulePass as ModulePass, Pass as Pass, PassContext as PassContext, PassInfo as PassInfo, PassInstrument as PassInstrument, PassPrintingInstrument as PassPrintingInstrument, PassTimingInstrument as PassTimingInstrument, PrintAfterAll as PrintAfterAll, PrintBeforeAll as PrintBeforeAll, PrintIR as PrintIR, Sequential as Sequential, StructuralInstrument as StructuralInstrument, WellFormedInstrument as WellFormedInstrument, get_pipeline as get_pipeline, list_pipelines as list_pipelines, module_pass as module_pass, pass_instrument as pass_instrument, register_pipeline as register_pipeline
    from relaxpy.plugins.testing.bisect import Bisection as Bisection, bisect as bisect
