"""The modules of operators, each with the operators of `relax` that it registers.

Written by tools/stubs.py.
"""

from typing import Final

FAMILIES: Final = """
array_order:
builtin: builtin.alloc_tensor builtin.stop_lift_params
call: call_dps_packed call_pure_packed call_tir call_tir_inplace call_tir_with_grad
ccl: ccl.allgather ccl.allreduce ccl.broadcast_from_worker0 ccl.gather_to_worker0
    ccl.reduce_scatter ccl.reduce_to_worker0 ccl.scatter_from_worker0
creation: arange eye eye_like full full_like hamming_window ones ones_like zeros zeros_like
decision_trees: tree_leaves
distributed: dist.annotate_sharding dist.call_tir_local_view dist.redistribute
    dist.redistribute_replica_to_shard
elementwise: abs acos acosh add asin asinh astype atan atan2 atanh bitwise_and bitwise_not
    bitwise_or bitwise_xor ceil clip cos cosh divide equal erf ewise_fma exp floor floor_divide
    floor_mod greater greater_equal isfinite isinf isnan left_shift less less_equal log log10
    log2 log_add_exp logical_and logical_not logical_or logical_xor maximum minimum mod multiply
    negative not_equal power right_shift round rsqrt sigmoid sign sin sinh sqrt square subtract
    tan tanh trunc wrap_param
found_sizes:
grad: grad.cumprod_backward grad.end_checkpoint grad.linear_recurrence grad.no_grad
    grad.start_checkpoint grad.take_backward
image: grad.grid_sample_backward grad.resize2d_backward grad.resize3d_backward image.affine_grid
    image.grid_sample image.resize2d image.resize3d
indexing: dynamic_strided_slice gather_elements gather_nd index_tensor strided_slice take
layouts: layout_transform
linear_algebra: einsum matmul outer
manipulate: broadcast_to collapse_sum_like collapse_sum_to concat expand_dims flatten
    nn.batch_flatten permute_dims reshape split squeeze stack
memory: memory.alloc_storage memory.alloc_tensor memory.ensure_zero_offset memory.kill_storage
    memory.kill_tensor memory.view
misc: assert_op hint_on_device null_value print shape_of shape_to_tensor size tensor_to_shape
    to_vdevice
nn.activation: nn.dropout nn.gelu nn.gelu_tanh nn.leakyrelu nn.prelu nn.relu nn.selu nn.silu
    nn.softplus
nn.convolution: grad.conv1d_backward_data grad.conv1d_backward_weight grad.conv2d_backward_data
    grad.conv2d_backward_weight grad.conv3d_backward_data grad.conv3d_backward_weight nn.conv1d
    nn.conv1d_transpose nn.conv2d nn.conv2d_transpose nn.conv3d nn.conv3d_transpose
nn.dot_product_attention: grad.attention_var_len_backward nn.attention nn.attention_bias
    nn.attention_var_len
nn.losses: grad.nll_loss_backward nn.cross_entropy_with_logits nn.nll_loss
nn.normalization: nn.batch_norm nn.group_norm nn.instance_norm nn.layer_norm nn.log_softmax
    nn.rms_norm nn.softmax
nn.padding: nn.pad nn.pixel_shuffle
nn.pooling: grad.adaptive_avg_pool1d_backward grad.adaptive_avg_pool2d_backward
    grad.adaptive_avg_pool3d_backward grad.avg_pool1d_backward grad.avg_pool2d_backward
    grad.avg_pool3d_backward grad.max_pool1d_backward grad.max_pool1d_selected
    grad.max_pool2d_backward grad.max_pool2d_selected grad.max_pool3d_backward
    grad.max_pool3d_selected nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d
    nn.adaptive_avg_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.max_pool1d nn.max_pool2d
    nn.max_pool3d
packed: call_builtin_with_ctx call_inplace_packed call_py_func invoke_closure
    invoke_pure_closure make_closure
python_syntax: inspect.tensor_byte_offset inspect.tensor_dtype_bits inspect.tensor_dtype_code
    inspect.tensor_dtype_lanes inspect.tensor_elem_offset inspect.tensor_ndim
    inspect.tensor_shape_i inspect.tensor_stride_i
quantization: dequantize quantize
reduction: cumprod cumsum max mean min prod std sum variance
regions: vision.non_max_suppression vision.roi_align vision.roi_pool
repetition: flip meshgrid one_hot repeat reverse_sequence roll tile tril triu
scatter: index_put scatter_elements scatter_nd slice_scatter
selection:
sorting: argmax argmin argsort bucketize median multinomial_from_uniform nonzero nth_index sort
    topk unique where
vision: vision.all_class_non_max_suppression vision.get_valid_counts
    vision.multibox_transform_loc
vm: vm.alloc_storage vm.alloc_tensor vm.call_tir_dyn vm.kill_object
"""
