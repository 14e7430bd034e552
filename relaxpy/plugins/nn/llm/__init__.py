"""Models of language: rotary embeddings and paged caches of keys and values."""
