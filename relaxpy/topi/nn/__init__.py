"""Layers of neural networks as tensor expressions."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.topi.nn")
if TYPE_CHECKING:
    from relaxpy.ir.te.topi.nn import *
    from relaxpy.tvm.topi import batch_to_space_nd as batch_to_space_nd, conv1d_ncw as conv1d_ncw, conv1d_nwc as conv1d_nwc, conv1d_transpose_ncw as conv1d_transpose_ncw, conv2d_hwcn as conv2d_hwcn, conv2d_nchw as conv2d_nchw, conv2d_nhwc as conv2d_nhwc, conv2d_transpose_nchw as conv2d_transpose_nchw, conv3d_ncdhw as conv3d_ncdhw, conv3d_ndhwc as conv3d_ndhwc, conv3d_transpose_ncdhw as conv3d_transpose_ncdhw, depthwise_conv2d_nchw as depthwise_conv2d_nchw, depthwise_conv2d_nhwc as depthwise_conv2d_nhwc, group_conv1d_ncw as group_conv1d_ncw, group_conv1d_nwc as group_conv1d_nwc, group_conv1d_transpose_ncw as group_conv1d_transpose_ncw, group_conv2d_nchw as group_conv2d_nchw, group_conv2d_nhwc as group_conv2d_nhwc, group_conv2d_transpose_nchw as group_conv2d_transpose_nchw, group_conv3d_transpose_ncdhw as group_conv3d_transpose_ncdhw, space_to_batch_nd as space_to_batch_nd
