"""Values of programs and executors, under the path of TVM."""

from relaxpy.exec.relay.executor import create_executor
from relaxpy.exec.relay.values import ConstructorValue, RefValue

__all__ = ["ConstructorValue", "RefValue", "create_executor"]
