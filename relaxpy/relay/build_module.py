"""Building of programs, under the path of TVM."""

from relaxpy.exec.relay.build import build as build
from relaxpy.exec.relay.executor import create_executor as create_executor
from relaxpy.ir.relay.bind import bind_params_by_name as bind_params_by_name
