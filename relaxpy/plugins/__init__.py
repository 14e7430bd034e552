"""The plug-ins: each folder is one, and the core works without it."""
