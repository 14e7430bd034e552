"""The Analyzer, and the kinds of facts that it knows."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.arith.analyzer")
if TYPE_CHECKING:
    from relaxpy.ir.arith.tvm.analyzer import Analyzer as Analyzer, CompareResult as CompareResult, ConstIntBound as ConstIntBound, Extension as Extension, ModularSet as ModularSet, ProofStrength as ProofStrength
