"""Analyses, visitors and helpers for Relax programs, under names of TVM."""
