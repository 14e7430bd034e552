"""What NVIDIA's libraries compute: patterns, and functions that partition modules by them."""

from relaxpy.relax.backend.cuda import cublas as cublas, cudnn as cudnn, cutlass as cutlass
