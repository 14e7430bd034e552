"""The products, convolutions, attention and normalisations that CUTLASS computes."""

from relaxpy.ir.relax.transform.fusion.cutlass import partition_for_cutlass as partition_for_cutlass
