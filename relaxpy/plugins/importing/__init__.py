"""Shared by importers: names, integers known at import, the error listing unsupported nodes."""
