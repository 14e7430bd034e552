"""The products of matrices that hipBLAS computes."""

from relaxpy.ir.relax.transform.fusion.hipblas import partition_for_hipblas as partition_for_hipblas
