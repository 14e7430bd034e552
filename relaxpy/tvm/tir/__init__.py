"""Analyses and passes for kernels, under names of TVM."""
