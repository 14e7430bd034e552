"""The importer of PyTorch's programs: exported, traced, or captured while they run."""

try:
    import torch as _torch
except ImportError:
    raise ImportError(
        "PyTorch models need the package torch, which is missing: pip install 'relaxpy[torch]'",
        name="torch",
    ) from None

del _torch
