"""External functions that models call."""

from relaxpy.ir.relax.frontend.nn.extern import (
    ExternModule as ExternModule,
    ObjectModule as ObjectModule,
    SourceModule as SourceModule,
)
