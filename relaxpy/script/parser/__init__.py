"""From text to IR."""
