"""Values of programs and executors, under the path of TVM."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relay.backend.interpreter")
if TYPE_CHECKING:
    from relaxpy.plugins.relay.run.executor import create_executor as create_executor
    from relaxpy.plugins.relay.run.values import ConstructorValue as ConstructorValue, RefValue as RefValue
