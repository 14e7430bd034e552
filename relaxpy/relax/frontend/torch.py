"""The importer of PyTorch's programs: exported, traced, or captured while they run."""

from relaxpy.frontend.torch.api import from_exported_program as from_exported_program
from relaxpy.frontend.torch.dynamo import (
    dynamo_capture_subgraphs as dynamo_capture_subgraphs,
    relax_dynamo as relax_dynamo,
)
from relaxpy.frontend.torch.fx import from_fx as from_fx
