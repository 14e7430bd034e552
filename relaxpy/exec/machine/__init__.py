"""Facts about this machine and process, and the constants that speed depends on."""
