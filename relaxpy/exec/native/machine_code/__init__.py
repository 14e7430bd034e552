"""Machine code: compiled for this processor, kept on disk, and loaded."""
