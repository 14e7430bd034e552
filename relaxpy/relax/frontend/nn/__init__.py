"""Models as Python classes, in the manner of PyTorch, which become modules of Relax."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

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
else:
    _face(globals(), """
        relaxpy.plugins.nn.core: Object
        relaxpy.plugins.nn.exporter: add_extern
        relaxpy.plugins.nn.module: Module ModuleDict ModuleList ParameterDict ParameterList
        relaxpy.plugins.nn.modules: AdaptiveAvgPool2D AvgPool2D BatchNorm1D BatchNorm2D Dropout Flatten MaxPool2D Sequential
        relaxpy.plugins.nn.quantization: Mutator
        relaxpy.plugins.nn.session: ExternModule ObjectModule SourceModule
        relaxpy.plugins.nn.subroutine: SubroutineMixin
        relaxpy.relax.frontend.nn.: core exporter modules op quantization spec subroutine visitor
        relaxpy.relax.frontend.nn.modules: *
        relaxpy.relax.frontend.nn.op: *
    """, "relaxpy.plugins.nn.methods:missing_name")
