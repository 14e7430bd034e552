"""Building of programs, under the path of TVM."""

from relaxpy.exec.relay.build import build
from relaxpy.exec.relay.executor import create_executor
from relaxpy.ir.relay.bind import bind_params_by_name

__all__ = ["bind_params_by_name", "build", "create_executor"]
