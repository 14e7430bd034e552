"""The importer of PyTorch's programs: exported, traced, or captured while they run."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.frontend.torch.api import from_exported_program as from_exported_program
    from relaxpy.frontend.torch.dynamo import dynamo_capture_subgraphs as dynamo_capture_subgraphs, relax_dynamo as relax_dynamo
    from relaxpy.frontend.torch.fx import from_fx as from_fx
else:
    _face(globals(), """
        relaxpy.frontend.torch.api: from_exported_program
        relaxpy.frontend.torch.dynamo: dynamo_capture_subgraphs relax_dynamo
        relaxpy.frontend.torch.fx: from_fx
    """)
