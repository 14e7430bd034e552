"""Operators of gradients."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.op.grad")
if TYPE_CHECKING:
    from relaxpy.ir.ops.grad import adaptive_avg_pool1d_backward as adaptive_avg_pool1d_backward, adaptive_avg_pool2d_backward as adaptive_avg_pool2d_backward, adaptive_avg_pool3d_backward as adaptive_avg_pool3d_backward, attention_var_len_backward as attention_var_len_backward, avg_pool1d_backward as avg_pool1d_backward, avg_pool2d_backward as avg_pool2d_backward, avg_pool3d_backward as avg_pool3d_backward, conv1d_backward_data as conv1d_backward_data, conv1d_backward_weight as conv1d_backward_weight, conv2d_backward_data as conv2d_backward_data, conv2d_backward_weight as conv2d_backward_weight, conv3d_backward_data as conv3d_backward_data, conv3d_backward_weight as conv3d_backward_weight, cumprod_backward as cumprod_backward, end_checkpoint as end_checkpoint, grid_sample_backward as grid_sample_backward, linear_recurrence as linear_recurrence, max_pool1d_backward as max_pool1d_backward, max_pool1d_selected as max_pool1d_selected, max_pool2d_backward as max_pool2d_backward, max_pool2d_selected as max_pool2d_selected, max_pool3d_backward as max_pool3d_backward, max_pool3d_selected as max_pool3d_selected, nll_loss_backward as nll_loss_backward, no_grad as no_grad, resize2d_backward as resize2d_backward, resize3d_backward as resize3d_backward, start_checkpoint as start_checkpoint, take_backward as take_backward
