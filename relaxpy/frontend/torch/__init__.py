"""The importer of PyTorch's programs: exported, traced, or captured while they run."""

from relaxpy.frontend.torch.api import from_exported_program as from_exported_program
