"""Programs on disk: the file format, and the cache."""
