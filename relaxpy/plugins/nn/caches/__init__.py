"""The caches of language models, and the packed functions on them and on samples."""
