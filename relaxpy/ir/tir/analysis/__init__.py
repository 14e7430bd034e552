"""Index arithmetic of buffers and loops: regions, addresses, index maps."""
