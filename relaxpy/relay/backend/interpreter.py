"""Values of programs and executors, under the path of TVM."""

from relaxpy.exec.relay.executor import create_executor as create_executor
from relaxpy.exec.relay.values import ConstructorValue as ConstructorValue, RefValue as RefValue
