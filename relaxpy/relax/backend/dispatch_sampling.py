"""The pass that chooses how samples are computed."""

from relaxpy.relax.backend import DispatchSampling as DispatchSampling
