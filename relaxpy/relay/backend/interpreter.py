"""Values of programs and executors, under the path of TVM."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.exec.relay.executor import create_executor as create_executor
    from relaxpy.exec.relay.values import ConstructorValue as ConstructorValue, RefValue as RefValue
else:
    _face(globals(), """
        relaxpy.exec.relay.executor: create_executor
        relaxpy.exec.relay.values: ConstructorValue RefValue
    """)
