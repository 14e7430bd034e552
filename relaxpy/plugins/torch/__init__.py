"""The importer of PyTorch's programs: exported, traced, or captured while they run."""

try:
    import torch as _torch
except ImportError:
    raise ImportError(
        "the importer reads programs by the package torch: pip install 'relaxpy[torch]'",
        name="torch",
    ) from None

del _torch
