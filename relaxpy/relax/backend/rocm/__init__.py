"""What AMD's library computes: patterns, and a function that partitions modules by them."""

from relaxpy.relax.backend.rocm import hipblas as hipblas
