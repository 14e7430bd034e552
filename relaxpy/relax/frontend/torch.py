"""The importer of PyTorch's programs: exported, traced, or captured while they run."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.torch")
if TYPE_CHECKING:
    from relaxpy.plugins.torch.api import from_exported_program as from_exported_program, from_fx as from_fx
    from relaxpy.plugins.torch.dynamo import dynamo_capture_subgraphs as dynamo_capture_subgraphs, relax_dynamo as relax_dynamo
