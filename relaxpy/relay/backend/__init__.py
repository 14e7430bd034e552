"""What runs programs, under the path of TVM."""

from relaxpy.relay.backend import interpreter as interpreter
