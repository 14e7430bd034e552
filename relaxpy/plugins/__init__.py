"""What relaxpy has beside its core: each folder is a plug-in, and can be left out."""
