"""The importer of PyTorch's programs."""

from relaxpy.frontend.torch.api import from_exported_program as from_exported_program
