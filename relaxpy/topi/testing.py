"""The functions of topi on arrays of NumPy, with which tests compare results."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.tvm.topi_testing.arrange import batch_to_space_nd_python as batch_to_space_nd_python, depth_to_space_python as depth_to_space_python, gather_nd_python as gather_nd_python, gather_python as gather_python, matrix_set_diag as matrix_set_diag, one_hot as one_hot, searchsorted_ref as searchsorted_ref, sequence_mask as sequence_mask, slice_axis_python as slice_axis_python, space_to_batch_nd_python as space_to_batch_nd_python, space_to_depth_python as space_to_depth_python, strided_set_python as strided_set_python, strided_slice_python as strided_slice_python
    from relaxpy.tvm.topi_testing.images import affine_grid_python as affine_grid_python, crop_and_resize_python as crop_and_resize_python, grid_sample_python as grid_sample_python, resize1d_python as resize1d_python, resize2d_python as resize2d_python, resize3d_python as resize3d_python
    from relaxpy.tvm.topi_testing.normalize import attention_python as attention_python, batch_matmul as batch_matmul, batch_norm as batch_norm, dense as dense, group_norm_python as group_norm_python, instance_norm_python as instance_norm_python, l2_normalize_python as l2_normalize_python, layer_norm_python as layer_norm_python, log_softmax_python as log_softmax_python, lrn_python as lrn_python, nll_loss as nll_loss, rms_norm_python as rms_norm_python, softmax_python as softmax_python
    from relaxpy.tvm.topi_testing.regions import get_valid_counts_python as get_valid_counts_python, non_max_suppression_python as non_max_suppression_python, roi_align_nchw_python as roi_align_nchw_python, roi_align_nhwc_python as roi_align_nhwc_python, roi_pool_nchw_python as roi_pool_nchw_python
    from relaxpy.tvm.topi_testing.windows import adaptive_pool as adaptive_pool, conv1d_ncw_python as conv1d_ncw_python, conv1d_transpose_ncw_python as conv1d_transpose_ncw_python, conv2d_hwcn_python as conv2d_hwcn_python, conv2d_nchw_python as conv2d_nchw_python, conv2d_nhwc_python as conv2d_nhwc_python, conv2d_transpose_nchw_python as conv2d_transpose_nchw_python, conv2d_transpose_nhwc_python as conv2d_transpose_nhwc_python, conv3d_ncdhw_python as conv3d_ncdhw_python, conv3d_ndhwc_python as conv3d_ndhwc_python, conv3d_transpose_ncdhw_python as conv3d_transpose_ncdhw_python, depthwise_conv2d_python_nchw as depthwise_conv2d_python_nchw, depthwise_conv2d_python_nhwc as depthwise_conv2d_python_nhwc, dilate_python as dilate_python, group_conv1d_ncw_python as group_conv1d_ncw_python, group_conv1d_transpose_ncw_python as group_conv1d_transpose_ncw_python, poolnd_python as poolnd_python
else:
    _face(globals(), """
        relaxpy.tvm.topi_testing.arrange: batch_to_space_nd_python depth_to_space_python gather_nd_python gather_python matrix_set_diag one_hot searchsorted_ref sequence_mask slice_axis_python space_to_batch_nd_python space_to_depth_python strided_set_python strided_slice_python
        relaxpy.tvm.topi_testing.images: affine_grid_python crop_and_resize_python grid_sample_python resize1d_python resize2d_python resize3d_python
        relaxpy.tvm.topi_testing.normalize: attention_python batch_matmul batch_norm dense group_norm_python instance_norm_python l2_normalize_python layer_norm_python log_softmax_python lrn_python nll_loss rms_norm_python softmax_python
        relaxpy.tvm.topi_testing.regions: get_valid_counts_python non_max_suppression_python roi_align_nchw_python roi_align_nhwc_python roi_pool_nchw_python
        relaxpy.tvm.topi_testing.windows: adaptive_pool conv1d_ncw_python conv1d_transpose_ncw_python conv2d_hwcn_python conv2d_nchw_python conv2d_nhwc_python conv2d_transpose_nchw_python conv2d_transpose_nhwc_python conv3d_ncdhw_python conv3d_ndhwc_python conv3d_transpose_ncdhw_python depthwise_conv2d_python_nchw depthwise_conv2d_python_nhwc dilate_python group_conv1d_ncw_python group_conv1d_transpose_ncw_python poolnd_python
    """)
