"""The operators of `R` as type checkers see them; written by tools/stubs.py."""

from typing import Any

def abs(x: Any) -> Any: ...
def acos(x: Any) -> Any: ...
def acosh(x: Any) -> Any: ...
def add(x1: Any, x2: Any) -> Any: ...
def arange(start: Any, end: Any = ..., step: Any = ..., dtype: Any = ...) -> Any: ...
def argmax(x: Any, axis: Any = ..., keepdims: Any = ...) -> Any: ...
def argmin(x: Any, axis: Any = ..., keepdims: Any = ...) -> Any: ...
def argsort(data: Any, axis: Any = ..., descending: Any = ..., dtype: Any = ...) -> Any: ...
def asin(x: Any) -> Any: ...
def asinh(x: Any) -> Any: ...
def assert_op(condition: Any, format_args: Any = ..., format: Any = ...) -> Any: ...
def astype(x: Any, dtype: Any) -> Any: ...
def atan(x: Any) -> Any: ...
def atan2(x1: Any, x2: Any) -> Any: ...
def atanh(x: Any) -> Any: ...
def bitwise_and(x1: Any, x2: Any) -> Any: ...
def bitwise_not(x: Any) -> Any: ...
def bitwise_or(x1: Any, x2: Any) -> Any: ...
def bitwise_xor(x1: Any, x2: Any) -> Any: ...
def broadcast_to(x: Any, shape: Any) -> Any: ...
def bucketize(
    input_tensor: Any, boundaries: Any, out_int32: Any = ..., right: Any = ...
) -> Any: ...

class builtin:
    @staticmethod
    def alloc_tensor(
        shape: Any,
        dtype: Any,
        runtime_device_index: Any,
        storage_scope: Any = ...,
        vdevice: Any = ...,
    ) -> Any: ...
    @staticmethod
    def stop_lift_params(x: Any) -> Any: ...

def call_builtin_with_ctx(func: Any, args: Any, *, sinfo_args: Any = ...) -> Any: ...
def call_dps_packed(
    func: Any,
    args: Any,
    out_sinfo: Any = ...,
    *others: Any,
    shape: Any = ...,
    sinfo_args: Any = ...,
) -> Any: ...
def call_inplace_packed(
    func: Any, *args: Any, inplace_indices: Any, sinfo_args: Any = ...
) -> Any: ...
def call_pure_packed(func: Any, *args: Any, sinfo_args: Any = ..., **attrs: Any) -> Any: ...
def call_py_func(py_func_name: Any, *args: Any, out_sinfo: Any) -> Any: ...
def call_tir(
    gvar: Any,
    args: Any,
    out_sinfo: Any = ...,
    tir_vars: Any = ...,
    *others: Any,
    shape: Any = ...,
    sinfo_args: Any = ...,
) -> Any: ...
def call_tir_inplace(
    gvar: Any, args: Any, inplace_indices: Any, out_sinfo: Any, tir_vars: Any = ...
) -> Any: ...
def call_tir_with_grad(
    gvar: Any,
    args: Any,
    out_sinfo: Any,
    te_grad_name: Any,
    te_grad_kwargs: Any = ...,
    tir_vars: Any = ...,
) -> Any: ...

class ccl:
    @staticmethod
    def allgather(
        x: Any, num_workers: Any, in_group: Any = ..., among: Any = ..., axis: Any = ...
    ) -> Any: ...
    @staticmethod
    def allreduce(x: Any, op_type: Any = ..., in_group: Any = ..., among: Any = ...) -> Any: ...
    @staticmethod
    def broadcast_from_worker0(x: Any) -> Any: ...
    @staticmethod
    def gather_to_worker0(x: Any, num_workers: Any, axis: Any = ...) -> Any: ...
    @staticmethod
    def reduce_scatter(
        x: Any, num_workers: Any, in_group: Any = ..., among: Any = ..., axis: Any = ...
    ) -> Any: ...
    @staticmethod
    def reduce_to_worker0(x: Any) -> Any: ...
    @staticmethod
    def scatter_from_worker0(x: Any, num_workers: Any, axis: Any = ...) -> Any: ...

def ceil(x: Any) -> Any: ...
def clip(x: Any, min: Any, max: Any) -> Any: ...
def collapse_sum_like(data: Any, collapse_target: Any) -> Any: ...
def collapse_sum_to(data: Any, shape: Any) -> Any: ...
def concat(tensors: Any, axis: Any = ...) -> Any: ...
def cos(x: Any) -> Any: ...
def cosh(x: Any) -> Any: ...
def cumprod(data: Any, axis: Any = ..., dtype: Any = ..., exclusive: Any = ...) -> Any: ...
def cumsum(data: Any, axis: Any = ..., dtype: Any = ..., exclusive: Any = ...) -> Any: ...
def dequantize(
    data: Any, scale: Any, zero_point: Any, axis: Any = ..., out_dtype: Any = ...
) -> Any: ...
def divide(x1: Any, x2: Any) -> Any: ...
def dynamic_strided_slice(x: Any, begin: Any, end: Any, strides: Any) -> Any: ...
def einsum(operands: Any, subscripts: Any) -> Any: ...
def equal(x1: Any, x2: Any) -> Any: ...
def erf(x: Any) -> Any: ...
def ewise_fma(x1: Any, x2: Any, x3: Any) -> Any: ...
def exp(x: Any) -> Any: ...
def expand_dims(x: Any, axis: Any) -> Any: ...
def eye(n: Any, m: Any = ..., k: Any = ..., dtype: Any = ...) -> Any: ...
def eye_like(x: Any, k: Any = ..., dtype: Any = ...) -> Any: ...
def flatten(x: Any) -> Any: ...
def flip(data: Any, axis: Any) -> Any: ...
def floor(x: Any) -> Any: ...
def floor_divide(x1: Any, x2: Any) -> Any: ...
def floor_mod(x1: Any, x2: Any) -> Any: ...
def full(shape: Any, fill_value: Any, dtype: Any = ...) -> Any: ...
def full_like(x: Any, fill_value: Any, dtype: Any = ...) -> Any: ...
def gather_elements(data: Any, indices: Any, axis: Any = ...) -> Any: ...
def gather_nd(data: Any, indices: Any, batch_dims: Any = ...) -> Any: ...

class grad:
    @staticmethod
    def adaptive_avg_pool1d_backward(
        output_grad: Any,
        shape: Any,
        output_size: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def adaptive_avg_pool2d_backward(
        output_grad: Any,
        shape: Any,
        output_size: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def adaptive_avg_pool3d_backward(
        output_grad: Any,
        shape: Any,
        output_size: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def attention_var_len_backward(
        output_grad: Any,
        queries: Any,
        keys: Any,
        values: Any,
        seqstart_q: Any,
        seqstart_k: Any = ...,
        scale: Any = ...,
        causal_mask: Any = ...,
        window_size: Any = ...,
    ) -> Any: ...
    @staticmethod
    def avg_pool1d_backward(
        output_grad: Any,
        data: Any,
        pool_size: Any = ...,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        ceil_mode: Any = ...,
        count_include_pad: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def avg_pool2d_backward(
        output_grad: Any,
        data: Any,
        pool_size: Any = ...,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        ceil_mode: Any = ...,
        count_include_pad: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def avg_pool3d_backward(
        output_grad: Any,
        data: Any,
        pool_size: Any = ...,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        ceil_mode: Any = ...,
        count_include_pad: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def conv1d_backward_data(
        output_grad: Any,
        weight: Any,
        shape: Any,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        groups: Any = ...,
        data_layout: Any = ...,
        kernel_layout: Any = ...,
        out_layout: Any = ...,
        out_dtype: Any = ...,
    ) -> Any: ...
    @staticmethod
    def conv1d_backward_weight(
        output_grad: Any,
        data: Any,
        shape: Any,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        groups: Any = ...,
        data_layout: Any = ...,
        kernel_layout: Any = ...,
        out_layout: Any = ...,
        out_dtype: Any = ...,
    ) -> Any: ...
    @staticmethod
    def conv2d_backward_data(
        output_grad: Any,
        weight: Any,
        shape: Any,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        groups: Any = ...,
        data_layout: Any = ...,
        kernel_layout: Any = ...,
        out_layout: Any = ...,
        out_dtype: Any = ...,
    ) -> Any: ...
    @staticmethod
    def conv2d_backward_weight(
        output_grad: Any,
        data: Any,
        shape: Any,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        groups: Any = ...,
        data_layout: Any = ...,
        kernel_layout: Any = ...,
        out_layout: Any = ...,
        out_dtype: Any = ...,
    ) -> Any: ...
    @staticmethod
    def conv3d_backward_data(
        output_grad: Any,
        weight: Any,
        shape: Any,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        groups: Any = ...,
        data_layout: Any = ...,
        kernel_layout: Any = ...,
        out_layout: Any = ...,
        out_dtype: Any = ...,
    ) -> Any: ...
    @staticmethod
    def conv3d_backward_weight(
        output_grad: Any,
        data: Any,
        shape: Any,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        groups: Any = ...,
        data_layout: Any = ...,
        kernel_layout: Any = ...,
        out_layout: Any = ...,
        out_dtype: Any = ...,
    ) -> Any: ...
    @staticmethod
    def cumprod_backward(output_grad: Any, data: Any, axis: Any, exclusive: Any = ...) -> Any: ...
    @staticmethod
    def end_checkpoint(input: Any) -> Any: ...
    @staticmethod
    def grid_sample_backward(
        output_grad: Any,
        data: Any,
        grid: Any,
        method: Any = ...,
        layout: Any = ...,
        padding_mode: Any = ...,
        align_corners: Any = ...,
    ) -> Any: ...
    @staticmethod
    def linear_recurrence(
        factors: Any, terms: Any, axis: Any, transposed: Any = ..., exclusive: Any = ...
    ) -> Any: ...
    @staticmethod
    def max_pool1d_backward(
        output_grad: Any,
        data: Any,
        pool_size: Any = ...,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        ceil_mode: Any = ...,
        count_include_pad: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def max_pool1d_selected(
        values: Any,
        data: Any,
        pool_size: Any = ...,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        ceil_mode: Any = ...,
        count_include_pad: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def max_pool2d_backward(
        output_grad: Any,
        data: Any,
        pool_size: Any = ...,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        ceil_mode: Any = ...,
        count_include_pad: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def max_pool2d_selected(
        values: Any,
        data: Any,
        pool_size: Any = ...,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        ceil_mode: Any = ...,
        count_include_pad: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def max_pool3d_backward(
        output_grad: Any,
        data: Any,
        pool_size: Any = ...,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        ceil_mode: Any = ...,
        count_include_pad: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def max_pool3d_selected(
        values: Any,
        data: Any,
        pool_size: Any = ...,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        ceil_mode: Any = ...,
        count_include_pad: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def nll_loss_backward(
        output_grad: Any,
        predictions: Any,
        targets: Any,
        weights: Any = ...,
        reduction: Any = ...,
        ignore_index: Any = ...,
    ) -> Any: ...
    @staticmethod
    def no_grad(input: Any) -> Any: ...
    @staticmethod
    def resize2d_backward(
        output_grad: Any,
        data: Any,
        roi: Any = ...,
        layout: Any = ...,
        method: Any = ...,
        coordinate_transformation_mode: Any = ...,
        rounding_method: Any = ...,
        cubic_alpha: Any = ...,
        cubic_exclude: Any = ...,
        extrapolation_value: Any = ...,
    ) -> Any: ...
    @staticmethod
    def resize3d_backward(
        output_grad: Any,
        data: Any,
        roi: Any = ...,
        layout: Any = ...,
        method: Any = ...,
        coordinate_transformation_mode: Any = ...,
        rounding_method: Any = ...,
        cubic_alpha: Any = ...,
        cubic_exclude: Any = ...,
        extrapolation_value: Any = ...,
    ) -> Any: ...
    @staticmethod
    def start_checkpoint(input: Any) -> Any: ...
    @staticmethod
    def take_backward(output_grad: Any, x: Any, indices: Any, axis: Any = ...) -> Any: ...

def greater(x1: Any, x2: Any) -> Any: ...
def greater_equal(x1: Any, x2: Any) -> Any: ...
def hamming_window(
    window_size: Any, periodic: Any = ..., alpha: Any = ..., beta: Any = ..., dtype: Any = ...
) -> Any: ...
def hint_on_device(data: Any, dst_vdevice: Any, memory_scope: Any = ...) -> Any: ...

class image:
    @staticmethod
    def affine_grid(data: Any, size: Any, align_corners: Any = ...) -> Any: ...
    @staticmethod
    def grid_sample(
        data: Any,
        grid: Any,
        method: Any = ...,
        layout: Any = ...,
        padding_mode: Any = ...,
        align_corners: Any = ...,
    ) -> Any: ...
    @staticmethod
    def resize2d(
        data: Any,
        size: Any,
        roi: Any = ...,
        layout: Any = ...,
        method: Any = ...,
        coordinate_transformation_mode: Any = ...,
        rounding_method: Any = ...,
        cubic_alpha: Any = ...,
        cubic_exclude: Any = ...,
        extrapolation_value: Any = ...,
        out_dtype: Any = ...,
    ) -> Any: ...
    @staticmethod
    def resize3d(
        data: Any,
        size: Any,
        roi: Any = ...,
        layout: Any = ...,
        method: Any = ...,
        coordinate_transformation_mode: Any = ...,
        rounding_method: Any = ...,
        cubic_alpha: Any = ...,
        cubic_exclude: Any = ...,
        extrapolation_value: Any = ...,
        out_dtype: Any = ...,
    ) -> Any: ...

def index_put(data: Any, indices: Any, values: Any, accumulate: Any = ...) -> Any: ...
def index_tensor(data: Any, indices: Any) -> Any: ...

class inspect:
    @staticmethod
    def tensor_byte_offset(tensor: Any) -> Any: ...
    @staticmethod
    def tensor_dtype_bits(tensor: Any) -> Any: ...
    @staticmethod
    def tensor_dtype_code(tensor: Any) -> Any: ...
    @staticmethod
    def tensor_dtype_lanes(tensor: Any) -> Any: ...
    @staticmethod
    def tensor_elem_offset(tensor: Any) -> Any: ...
    @staticmethod
    def tensor_ndim(tensor: Any) -> Any: ...
    @staticmethod
    def tensor_shape_i(tensor: Any, axis: Any) -> Any: ...
    @staticmethod
    def tensor_stride_i(tensor: Any, axis: Any) -> Any: ...

def invoke_closure(closure: Any, args: Any, sinfo_args: Any = ...) -> Any: ...
def invoke_pure_closure(closure: Any, args: Any, sinfo_args: Any = ...) -> Any: ...
def isfinite(x: Any) -> Any: ...
def isinf(x: Any) -> Any: ...
def isnan(x: Any) -> Any: ...
def layout_transform(
    x: Any,
    index_map: Any,
    pad_value: Any = ...,
    axis_separators: Any = ...,
    input_axis_separators: Any = ...,
) -> Any: ...
def left_shift(x1: Any, x2: Any) -> Any: ...
def less(x1: Any, x2: Any) -> Any: ...
def less_equal(x1: Any, x2: Any) -> Any: ...
def log(x: Any) -> Any: ...
def log10(x: Any) -> Any: ...
def log2(x: Any) -> Any: ...
def log_add_exp(x1: Any, x2: Any) -> Any: ...
def logical_and(x1: Any, x2: Any) -> Any: ...
def logical_not(x: Any) -> Any: ...
def logical_or(x1: Any, x2: Any) -> Any: ...
def logical_xor(x1: Any, x2: Any) -> Any: ...
def make_closure(func: Any, args: Any) -> Any: ...
def matmul(x1: Any, x2: Any, out_dtype: Any = ...) -> Any: ...
def max(x: Any, axis: Any = ..., keepdims: Any = ...) -> Any: ...
def maximum(x1: Any, x2: Any) -> Any: ...
def mean(x: Any, axis: Any = ..., keepdims: Any = ...) -> Any: ...
def median(x: Any, axis: Any = ..., keepdims: Any = ...) -> Any: ...

class memory:
    @staticmethod
    def alloc_storage(
        size: Any, virtual_device_index: Any, storage_scope: Any, dtype: Any
    ) -> Any: ...
    @staticmethod
    def alloc_tensor(
        storage: Any, offset: Any, shape: Any, dtype: Any, vdevice: Any = ...
    ) -> Any: ...
    @staticmethod
    def ensure_zero_offset(data: Any) -> Any: ...
    @staticmethod
    def kill_storage(storage: Any) -> Any: ...
    @staticmethod
    def kill_tensor(tensor: Any) -> Any: ...
    @staticmethod
    def view(
        data: Any, shape: Any = ..., dtype: Any = ..., relative_byte_offset: Any = ...
    ) -> Any: ...

def meshgrid(tensors: Any, indexing: Any = ...) -> Any: ...
def min(x: Any, axis: Any = ..., keepdims: Any = ...) -> Any: ...
def minimum(x1: Any, x2: Any) -> Any: ...
def mod(x1: Any, x2: Any) -> Any: ...
def multinomial_from_uniform(
    prob: Any, uniform_sample: Any, sample_indices: Any, dtype: Any = ...
) -> Any: ...
def multiply(x1: Any, x2: Any) -> Any: ...
def negative(x: Any) -> Any: ...

class nn:
    @staticmethod
    def adaptive_avg_pool1d(
        data: Any, output_size: Any = ..., layout: Any = ..., out_layout: Any = ...
    ) -> Any: ...
    @staticmethod
    def adaptive_avg_pool2d(
        data: Any, output_size: Any = ..., layout: Any = ..., out_layout: Any = ...
    ) -> Any: ...
    @staticmethod
    def adaptive_avg_pool3d(
        data: Any, output_size: Any = ..., layout: Any = ..., out_layout: Any = ...
    ) -> Any: ...
    @staticmethod
    def attention(
        query: Any,
        key: Any,
        value: Any,
        bias: Any = ...,
        scale: Any = ...,
        causal_mask: Any = ...,
        window_size: Any = ...,
    ) -> Any: ...
    @staticmethod
    def attention_bias(
        query: Any,
        key: Any,
        value: Any,
        bias: Any,
        scale: Any = ...,
        causal_mask: Any = ...,
        window_size: Any = ...,
    ) -> Any: ...
    @staticmethod
    def attention_var_len(
        queries: Any,
        keys: Any,
        values: Any,
        seqstart_q: Any,
        max_seqlen_q: Any,
        seqstart_k: Any = ...,
        max_seqlen_k: Any = ...,
        scale: Any = ...,
        causal_mask: Any = ...,
        window_size: Any = ...,
    ) -> Any: ...
    @staticmethod
    def avg_pool1d(
        data: Any,
        pool_size: Any = ...,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        ceil_mode: Any = ...,
        count_include_pad: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def avg_pool2d(
        data: Any,
        pool_size: Any = ...,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        ceil_mode: Any = ...,
        count_include_pad: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def avg_pool3d(
        data: Any,
        pool_size: Any = ...,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        ceil_mode: Any = ...,
        count_include_pad: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def batch_flatten(data: Any) -> Any: ...
    @staticmethod
    def batch_norm(
        data: Any,
        gamma: Any,
        beta: Any,
        moving_mean: Any,
        moving_var: Any,
        axis: Any,
        epsilon: Any = ...,
        center: Any = ...,
        scale: Any = ...,
        momentum: Any = ...,
        training: Any = ...,
    ) -> Any: ...
    @staticmethod
    def conv1d(
        data: Any,
        weight: Any,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        groups: Any = ...,
        data_layout: Any = ...,
        kernel_layout: Any = ...,
        out_layout: Any = ...,
        out_dtype: Any = ...,
    ) -> Any: ...
    @staticmethod
    def conv1d_transpose(
        data: Any,
        weight: Any,
        strides: Any = ...,
        padding: Any = ...,
        output_padding: Any = ...,
        dilation: Any = ...,
        groups: Any = ...,
        data_layout: Any = ...,
        kernel_layout: Any = ...,
        out_layout: Any = ...,
        out_dtype: Any = ...,
    ) -> Any: ...
    @staticmethod
    def conv2d(
        data: Any,
        weight: Any,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        groups: Any = ...,
        data_layout: Any = ...,
        kernel_layout: Any = ...,
        out_layout: Any = ...,
        out_dtype: Any = ...,
    ) -> Any: ...
    @staticmethod
    def conv2d_transpose(
        data: Any,
        weight: Any,
        strides: Any = ...,
        padding: Any = ...,
        output_padding: Any = ...,
        dilation: Any = ...,
        groups: Any = ...,
        data_layout: Any = ...,
        kernel_layout: Any = ...,
        out_layout: Any = ...,
        out_dtype: Any = ...,
    ) -> Any: ...
    @staticmethod
    def conv3d(
        data: Any,
        weight: Any,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        groups: Any = ...,
        data_layout: Any = ...,
        kernel_layout: Any = ...,
        out_layout: Any = ...,
        out_dtype: Any = ...,
    ) -> Any: ...
    @staticmethod
    def conv3d_transpose(
        data: Any,
        weight: Any,
        strides: Any = ...,
        padding: Any = ...,
        output_padding: Any = ...,
        dilation: Any = ...,
        groups: Any = ...,
        data_layout: Any = ...,
        kernel_layout: Any = ...,
        out_layout: Any = ...,
        out_dtype: Any = ...,
    ) -> Any: ...
    @staticmethod
    def cross_entropy_with_logits(predictions: Any, labels: Any) -> Any: ...
    @staticmethod
    def dropout(data: Any, rate: Any = ...) -> Any: ...
    @staticmethod
    def gelu(data: Any) -> Any: ...
    @staticmethod
    def gelu_tanh(data: Any) -> Any: ...
    @staticmethod
    def group_norm(
        data: Any,
        gamma: Any,
        beta: Any,
        num_groups: Any,
        channel_axis: Any,
        axes: Any,
        epsilon: Any = ...,
        center: Any = ...,
        scale: Any = ...,
    ) -> Any: ...
    @staticmethod
    def instance_norm(
        data: Any,
        gamma: Any,
        beta: Any,
        channel_axis: Any,
        axes: Any,
        epsilon: Any = ...,
        center: Any = ...,
        scale: Any = ...,
    ) -> Any: ...
    @staticmethod
    def layer_norm(
        data: Any,
        gamma: Any,
        beta: Any,
        axes: Any,
        epsilon: Any = ...,
        center: Any = ...,
        scale: Any = ...,
    ) -> Any: ...
    @staticmethod
    def leakyrelu(data: Any, alpha: Any = ...) -> Any: ...
    @staticmethod
    def log_softmax(data: Any, axis: Any = ...) -> Any: ...
    @staticmethod
    def max_pool1d(
        data: Any,
        pool_size: Any = ...,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        ceil_mode: Any = ...,
        count_include_pad: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def max_pool2d(
        data: Any,
        pool_size: Any = ...,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        ceil_mode: Any = ...,
        count_include_pad: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def max_pool3d(
        data: Any,
        pool_size: Any = ...,
        strides: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        ceil_mode: Any = ...,
        count_include_pad: Any = ...,
        layout: Any = ...,
        out_layout: Any = ...,
    ) -> Any: ...
    @staticmethod
    def nll_loss(
        predictions: Any,
        targets: Any,
        weights: Any = ...,
        reduction: Any = ...,
        ignore_index: Any = ...,
    ) -> Any: ...
    @staticmethod
    def pad(data: Any, pad_width: Any, pad_mode: Any = ..., pad_value: Any = ...) -> Any: ...
    @staticmethod
    def pixel_shuffle(data: Any, upscale_factor: Any) -> Any: ...
    @staticmethod
    def prelu(data: Any, alpha: Any, axis: Any = ...) -> Any: ...
    @staticmethod
    def relu(data: Any) -> Any: ...
    @staticmethod
    def relu6(data: Any) -> Any: ...
    @staticmethod
    def rms_norm(data: Any, weight: Any, axes: Any = ..., epsilon: Any = ...) -> Any: ...
    @staticmethod
    def selu(data: Any) -> Any: ...
    @staticmethod
    def silu(data: Any) -> Any: ...
    @staticmethod
    def softmax(data: Any, axis: Any = ...) -> Any: ...
    @staticmethod
    def softplus(data: Any, beta: Any = ..., threshold: Any = ...) -> Any: ...

def nonzero(x: Any) -> Any: ...
def not_equal(x1: Any, x2: Any) -> Any: ...
def nth_index(data: Any, n: Any, axis: Any = ...) -> Any: ...
def null_value() -> Any: ...
def one_hot(indices: Any, on_value: Any, off_value: Any, depth: Any, axis: Any = ...) -> Any: ...
def ones(shape: Any, dtype: Any) -> Any: ...
def ones_like(x: Any, dtype: Any = ...) -> Any: ...
def outer(x1: Any, x2: Any) -> Any: ...
def permute_dims(x: Any, axes: Any = ...) -> Any: ...
def power(x1: Any, x2: Any) -> Any: ...
def print(*values: Any, format: Any = ...) -> Any: ...
def prod(x: Any, axis: Any = ..., keepdims: Any = ...) -> Any: ...
def quantize(
    data: Any, scale: Any, zero_point: Any, axis: Any = ..., out_dtype: Any = ...
) -> Any: ...
def repeat(data: Any, repeats: Any, axis: Any = ...) -> Any: ...
def reshape(x: Any, shape: Any) -> Any: ...
def reverse_sequence(
    data: Any, seq_lengths: Any, seq_axis: Any = ..., batch_axis: Any = ...
) -> Any: ...
def right_shift(x1: Any, x2: Any) -> Any: ...
def roll(data: Any, shift: Any, axis: Any = ...) -> Any: ...
def round(x: Any) -> Any: ...
def rsqrt(x: Any) -> Any: ...
def scatter_elements(
    data: Any, indices: Any, updates: Any, axis: Any = ..., reduction: Any = ...
) -> Any: ...
def scatter_nd(data: Any, indices: Any, updates: Any, reduction: Any = ...) -> Any: ...
def shape_of(expr: Any) -> Any: ...
def shape_to_tensor(expr: Any) -> Any: ...
def sigmoid(x: Any) -> Any: ...
def sign(x: Any) -> Any: ...
def sin(x: Any) -> Any: ...
def sinh(x: Any) -> Any: ...
def size(expr: Any) -> Any: ...
def slice_scatter(
    input_tensor: Any, src: Any, start: Any, end: Any, step: Any = ..., axis: Any = ...
) -> Any: ...
def sort(x: Any, axis: Any = ..., descending: Any = ...) -> Any: ...
def split(x: Any, indices_or_sections: Any, axis: Any = ...) -> Any: ...
def sqrt(x: Any) -> Any: ...
def square(x: Any) -> Any: ...
def squeeze(x: Any, axis: Any = ...) -> Any: ...
def stack(tensors: Any, axis: Any = ...) -> Any: ...
def std(x: Any, axis: Any = ..., keepdims: Any = ...) -> Any: ...
def strided_slice(
    x: Any, axes: Any, begin: Any, end: Any, strides: Any = ..., assume_inbound: Any = ...
) -> Any: ...
def subtract(x1: Any, x2: Any) -> Any: ...
def sum(x: Any, axis: Any = ..., keepdims: Any = ...) -> Any: ...
def take(x: Any, indices: Any, axis: Any = ..., mode: Any = ...) -> Any: ...
def tan(x: Any) -> Any: ...
def tanh(x: Any) -> Any: ...
def tensor_to_shape(expr: Any) -> Any: ...
def tile(data: Any, repeats: Any) -> Any: ...
def to_vdevice(data: Any, dst_vdevice: Any) -> Any: ...
def topk(
    data: Any,
    k: Any = ...,
    axis: Any = ...,
    ret_type: Any = ...,
    largest: Any = ...,
    dtype: Any = ...,
) -> Any: ...
def tree_leaves(x: Any, nodes: Any, roots: Any, depth: Any) -> Any: ...
def tril(x: Any, k: Any = ...) -> Any: ...
def triu(x: Any, k: Any = ...) -> Any: ...
def trunc(x: Any) -> Any: ...
def unique(
    x: Any,
    sorted: Any = ...,
    return_index: Any = ...,
    return_inverse: Any = ...,
    return_counts: Any = ...,
    axis: Any = ...,
) -> Any: ...
def variance(x: Any, axis: Any = ..., keepdims: Any = ...) -> Any: ...

class vision:
    @staticmethod
    def all_class_non_max_suppression(
        boxes: Any,
        scores: Any,
        max_output_boxes_per_class: Any,
        iou_threshold: Any,
        score_threshold: Any,
        output_format: Any = ...,
        rows_per_class: Any = ...,
    ) -> Any: ...
    @staticmethod
    def get_valid_counts(
        data: Any, score_threshold: Any = ..., id_index: Any = ..., score_index: Any = ...
    ) -> Any: ...
    @staticmethod
    def multibox_transform_loc(
        cls_pred: Any,
        loc_pred: Any,
        anchor: Any,
        clip: Any = ...,
        threshold: Any = ...,
        variances: Any = ...,
        keep_background: Any = ...,
        apply_softmax: Any = ...,
    ) -> Any: ...
    @staticmethod
    def non_max_suppression(
        data: Any,
        valid_count: Any,
        indices: Any,
        max_output_size: Any = ...,
        iou_threshold: Any = ...,
        force_suppress: Any = ...,
        top_k: Any = ...,
        coord_start: Any = ...,
        score_index: Any = ...,
        id_index: Any = ...,
        return_indices: Any = ...,
        invalid_to_bottom: Any = ...,
        soft_nms_sigma: Any = ...,
        score_threshold: Any = ...,
    ) -> Any: ...
    @staticmethod
    def roi_align(
        data: Any,
        rois: Any,
        pooled_size: Any,
        spatial_scale: Any,
        sample_ratio: Any = ...,
        aligned: Any = ...,
        layout: Any = ...,
        mode: Any = ...,
    ) -> Any: ...
    @staticmethod
    def roi_pool(
        data: Any, rois: Any, pooled_size: Any, spatial_scale: Any, layout: Any = ...
    ) -> Any: ...

class vm:
    @staticmethod
    def alloc_storage(
        shape: Any, runtime_device_index: Any, dtype: Any, storage_scope: Any = ...
    ) -> Any: ...
    @staticmethod
    def alloc_tensor(
        storage: Any, offset: Any, shape: Any, dtype: Any, vdevice: Any = ...
    ) -> Any: ...
    @staticmethod
    def call_tir_dyn(func: Any, args: Any) -> Any: ...
    @staticmethod
    def kill_object(obj: Any) -> Any: ...

def where(condition: Any, x1: Any, x2: Any) -> Any: ...
def wrap_param(data: Any, dtype: Any = ...) -> Any: ...
def zeros(shape: Any, dtype: Any) -> Any: ...
def zeros_like(x: Any, dtype: Any = ...) -> Any: ...
