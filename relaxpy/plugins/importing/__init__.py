"""What importers share: names, integers known at import, the error that lists what is missing."""
