"""Values of programs and executors, under the path of TVM."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relay.backend.interpreter")
if TYPE_CHECKING:
    from relaxpy.plugins.relay.run.executor import create_executor as create_executor
    from relaxpy.plugins.relay.run.values import ConstructorValue as ConstructorValue, RefValue as RefValue
