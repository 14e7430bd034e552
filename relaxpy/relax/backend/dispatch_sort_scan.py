"""The pass that chooses how sorts and scans are computed."""

from relaxpy.relax.backend import DispatchSortScan as DispatchSortScan
