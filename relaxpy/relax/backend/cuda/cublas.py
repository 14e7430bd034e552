"""The products of matrices that cuBLAS computes."""

from relaxpy.ir.relax.transform.fusion.cublas import partition_for_cublas as partition_for_cublas
