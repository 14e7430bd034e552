"""Programs that several processes run together, which MPI has started."""

from relaxpy.distributed.communication import communication as communication
from relaxpy.distributed.parts import own_part as own_part, own_parts as own_parts
from relaxpy.distributed.start import use as use
from relaxpy.ir.relax.op.workers import Workers as Workers, current_workers as current_workers
