"""What runs programs, under the path of TVM."""

from relaxpy.relay.backend import interpreter

__all__ = ["interpreter"]
