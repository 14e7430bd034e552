"""Parallel loops of native code, and the pool of threads that runs them."""
