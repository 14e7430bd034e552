"""Models as Python classes, in the manner of PyTorch, which become modules of Relax."""

from typing import TYPE_CHECKING

from relaxpy.absent import instead_of as _instead_of
from relaxpy.ir.relax.frontend.nn.core import Object as Object
from relaxpy.ir.relax.frontend.nn.exporter import add_extern as add_extern
from relaxpy.ir.relax.frontend.nn.extern import (
    ExternModule as ExternModule,
    ObjectModule as ObjectModule,
    SourceModule as SourceModule,
)
from relaxpy.ir.relax.frontend.nn.image_layers import (
    AdaptiveAvgPool2D as AdaptiveAvgPool2D,
    AvgPool2D as AvgPool2D,
    BatchNorm1D as BatchNorm1D,
    BatchNorm2D as BatchNorm2D,
    Dropout as Dropout,
    Flatten as Flatten,
    MaxPool2D as MaxPool2D,
    Sequential as Sequential,
)
from relaxpy.ir.relax.frontend.nn.module import (
    Module as Module,
    ModuleDict as ModuleDict,
    ModuleList as ModuleList,
    ParameterDict as ParameterDict,
    ParameterList as ParameterList,
)
from relaxpy.ir.relax.frontend.nn.names import missing_names as _missing_names
from relaxpy.ir.relax.frontend.nn.subroutine import SubroutineMixin as SubroutineMixin
from relaxpy.ir.relax.frontend.nn.visitor import Mutator as Mutator
from relaxpy.lazy import lister as _lister
from relaxpy.missing import from_import_error as _from_import_error
from relaxpy.relax.frontend.nn import (
    core as core,
    exporter as exporter,
    modules as modules,
    op as op,
    quantization as quantization,
    spec as spec,
    subroutine as subroutine,
    visitor as visitor,
)
from relaxpy.relax.frontend.nn.modules import *
from relaxpy.relax.frontend.nn.op import *

if not TYPE_CHECKING:
    __getattr__ = _missing_names(globals(), _instead_of, _from_import_error)
    __dir__ = _lister(globals(), {})
