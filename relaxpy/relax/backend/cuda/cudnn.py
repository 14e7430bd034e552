"""The convolutions and the attention that cuDNN computes."""

from relaxpy.ir.relax.transform.fusion.cudnn import partition_for_cudnn as partition_for_cudnn
