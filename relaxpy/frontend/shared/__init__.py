"""What importers share: names, integers known at import, and the error that lists what is missing."""
