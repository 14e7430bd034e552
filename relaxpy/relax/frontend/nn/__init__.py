"""Models as Python classes, in the manner of PyTorch, which become modules of Relax."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import Any as _Any

from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.nn", "relaxpy.plugins.nn.methods:missing_name")
if TYPE_CHECKING:
    from relaxpy.plugins.nn.core import Object as Object
    from relaxpy.plugins.nn.exporter import add_extern as add_extern
    from relaxpy.plugins.nn.module import Module as Module, ModuleDict as ModuleDict, ModuleList as ModuleList, ParameterDict as ParameterDict, ParameterList as ParameterList
    from relaxpy.plugins.nn.modules import AdaptiveAvgPool2D as AdaptiveAvgPool2D, AvgPool2D as AvgPool2D, BatchNorm1D as BatchNorm1D, BatchNorm2D as BatchNorm2D, Dropout as Dropout, Flatten as Flatten, MaxPool2D as MaxPool2D, Sequential as Sequential
    from relaxpy.plugins.nn.quantization import Mutator as Mutator
    from relaxpy.plugins.nn.session import ExternModule as ExternModule, ObjectModule as ObjectModule, SourceModule as SourceModule
    from relaxpy.plugins.nn.subroutine import SubroutineMixin as SubroutineMixin
    from relaxpy.relax.frontend.nn import core as core, exporter as exporter, modules as modules, op as op, quantization as quantization, spec as spec, subroutine as subroutine, visitor as visitor
    from relaxpy.relax.frontend.nn.modules import *
    from relaxpy.relax.frontend.nn.op import *

    def __getattr__(name: str) -> _Any: ...
