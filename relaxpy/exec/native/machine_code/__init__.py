"""Machine code: compiled for this CPU, cached on disk, and loaded."""
