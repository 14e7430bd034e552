"""The parameters of the functions that build calls are those of TVM v0.18, in their order."""

import inspect
from functools import reduce
from typing import Any

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import MisuseError

# The names of parameters in their order, and the defaults of those that have one. Functions of
# relaxpy may have more defaults, and more parameters after these.
SIGNATURES = """
adv_index(inputs)
all(data, axis=None, keepdims=False, exclude=False)
arange(start, stop=None, step=None, dtype='float32')
argmax(data, axis=None, keepdims=False, exclude=False, select_last_index=False)
argsort(data, axis=-1, is_ascend=1, dtype='int32')
argwhere(condition)
broadcast_to(data, shape)
broadcast_to_like(data, broadcast_type)
cast(data, dtype)
cast_like(data, dtype_like)
clip(a, a_min, a_max)
collapse_sum_like(data, collapse_type)
collapse_sum_to(data, shape)
concatenate(data, axis)
einsum(data, equation)
expand_dims(data, axis, num_newaxis=1)
full(fill_value, shape=(), dtype='')
full_like(data, fill_value)
gather(data, axis, indices)
gather_nd(data, indices, batch_dims=0, index_rank=None)
layout_transform(data, src_layout, dst_layout)
logsumexp(data, axis=None, keepdims=False)
mean_std(data, axis=None, keepdims=False, exclude=False, unbiased=False)
mean_variance(data, axis=None, keepdims=False, exclude=False, unbiased=False)
meshgrid(data, indexing='ij')
ndarray_size(data, dtype='int32')
one_hot(indices, on_value, off_value, depth, axis, dtype)
ones(shape, dtype)
reinterpret(data, dtype)
repeat(data, repeats, axis)
reshape(data, newshape, allowzero=False)
reshape_like(data, shape_like, lhs_begin=0, lhs_end=None, rhs_begin=0, rhs_end=None)
reverse(data, axis)
reverse_sequence(data, seq_lengths, seq_axis=1, batch_axis=0)
scatter_elements(data, indices, updates, axis=0, reduction='update')
scatter_nd(data, indices, updates, mode='update')
searchsorted(sorted_sequence, values, right=False, dtype='int32')
shape_of(data, dtype='int32')
slice_like(data, shape_like, axes=None)
sort(data, axis=-1, is_ascend=1)
split(data, indices_or_sections, axis=0)
squeeze(data, axis=None)
stack(data, axis)
std(data, axis=None, keepdims=False, exclude=False, unbiased=False)
strided_set(data, v, begin, end, strides=None)
strided_slice(data, begin, end, strides=None, axes=None, slice_mode='end')
sum(data, axis=None, keepdims=False, exclude=False)
take(data, indices, axis=None, batch_dims=0, mode='clip')
tile(data, reps)
topk(data, k=1, axis=-1, ret_type='both', is_ascend=False, dtype='int32')
transpose(data, axes=None)
trilu(data, k, upper=True)
variance(data, axis=None, keepdims=False, exclude=False, unbiased=False, with_mean=None)
where(condition, x, y)
zeros(shape, dtype)
image.affine_grid(data, target_shape)
image.grid_sample(data, grid, method='bilinear', layout='NCHW', padding_mode='zeros', \
align_corners=True)
image.resize2d(data, size, roi=(0.0, 0.0, 0.0, 0.0), layout='NCHW', method='linear', \
coordinate_transformation_mode='half_pixel', rounding_method='', cubic_alpha=-0.5, \
cubic_exclude=0, extrapolation_value=0.0)
nn.adaptive_avg_pool2d(data, output_size=None, layout='NCHW', out_layout='')
nn.avg_pool2d(data, pool_size=(1, 1), strides=(1, 1), dilation=(1, 1), padding=(0, 0), \
layout='NCHW', out_layout='', ceil_mode=False, count_include_pad=False)
nn.batch_flatten(data)
nn.batch_matmul(tensor_a, tensor_b, out_dtype='', transpose_a=False, transpose_b=True)
nn.batch_norm(data, gamma, beta, moving_mean, moving_var, axis=1, epsilon=1e-05, center=True, \
scale=True)
nn.bias_add(data, bias, axis=1)
nn.conv1d(data, weight, strides=(1,), padding=(0,), dilation=(1,), groups=1, channels=None, \
kernel_size=None, data_layout='NCW', kernel_layout='OIW', out_layout='', out_dtype='')
nn.conv2d(data, weight, strides=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, \
channels=None, kernel_size=None, data_layout='NCHW', kernel_layout='OIHW', out_layout='', \
out_dtype='')
nn.conv2d_transpose(data, weight, strides=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, \
channels=None, kernel_size=None, data_layout='NCHW', kernel_layout='IOHW', out_layout='', \
output_padding=(0, 0), out_dtype='')
nn.conv3d(data, weight, strides=(1, 1, 1), padding=(0, 0, 0), dilation=(1, 1, 1), groups=1, \
channels=None, kernel_size=None, data_layout='NCDHW', kernel_layout='OIDHW')
nn.cross_entropy(predictions, targets)
nn.dense(data, weight, units=None, out_dtype='')
nn.depth_to_space(data, block_size, layout='NCHW', mode='DCR')
nn.dropout(data, rate=0.5)
nn.dropout_raw(data, rate=0.5)
nn.global_avg_pool2d(data, layout='NCHW', out_layout='')
nn.group_norm(data, gamma, beta, num_groups, axis=1, epsilon=1e-05, center=True, scale=True)
nn.instance_norm(data, gamma, beta, axis=1, epsilon=1e-05, center=True, scale=True)
nn.l2_normalize(data, eps, axis=None)
nn.layer_norm(data, gamma, beta, axis=-1, epsilon=1e-05, center=True, scale=True)
nn.leaky_relu(data, alpha=0.01)
nn.log_softmax(data, axis=-1)
nn.lrn(data, size=5, axis=1, bias=2, alpha=1e-05, beta=0.75)
nn.matmul(tensor_a, tensor_b, units=None, out_dtype='', transpose_a=False, transpose_b=False)
nn.max_pool1d(data, pool_size=(1,), strides=(1,), dilation=(1,), padding=(0,), layout='NCW')
nn.max_pool2d_grad(out_grad, data, pool_size=(1, 1), strides=(1, 1), padding=(0, 0), \
layout='NCHW', out_layout='', ceil_mode=False)
nn.max_pool2d(data, pool_size=(1, 1), strides=(1, 1), dilation=(1, 1), padding=(0, 0), \
layout='NCHW', out_layout='', ceil_mode=False)
nn.nll_loss(predictions, targets, weights, reduction='mean', ignore_index=-100)
nn.pad(data, pad_width, pad_value=0, pad_mode='constant')
nn.prelu(data, alpha, axis=1)
nn.softmax(data, axis=-1)
nn.space_to_depth(data, block_size, layout='NCHW')
nn.upsampling(data, scale_h=1, scale_w=1, layout='NCHW', method='nearest_neighbor', \
align_corners=False)
nn.upsampling3d(data, scale_d=1, scale_h=1, scale_w=1, layout='NCDHW', \
method='nearest_neighbor', coordinate_transformation_mode='asymmetric')
qnn.add(lhs, rhs, lhs_scale, lhs_zero_point, rhs_scale, rhs_zero_point, output_scale, \
output_zero_point, lhs_axis=-1, rhs_axis=-1)
qnn.avg_pool2d(data, input_scale, input_zero_point, output_scale, output_zero_point, pool_size, \
strides, padding, dilation, ceil_mode=False, count_include_pad=True, layout='NHWC', out_layout='')
qnn.batch_matmul(x, y, x_zero_point, y_zero_point, x_scale, y_scale, out_dtype='int32')
qnn.concatenate(data, input_scales, input_zero_points, output_scale, output_zero_point, axis)
qnn.conv2d(data, kernel, input_zero_point, kernel_zero_point, input_scale, kernel_scale, \
kernel_size, channels, strides=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, \
data_layout='NCHW', kernel_layout='OIHW', out_layout='', out_dtype='int32')
qnn.conv2d_transpose(data, weight, input_zero_point, kernel_zero_point, input_scale, \
kernel_scale, strides=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, channels=None, \
kernel_size=None, data_layout='NCHW', kernel_layout='IOHW', out_layout='', \
output_padding=(0, 0), out_dtype='int32')
qnn.dense(data, weight, input_zero_point, kernel_zero_point, input_scale, kernel_scale, units, \
out_dtype='int32')
qnn.dequantize(data, input_scale, input_zero_point, axis=-1, out_dtype='float32')
qnn.leaky_relu(x, alpha, input_scale, input_zero_point, output_scale, output_zero_point)
qnn.quantize(data, output_scale, output_zero_point, axis=-1, out_dtype='int8')
qnn.requantize(data, input_scale, input_zero_point, output_scale, output_zero_point, axis=-1, \
rounding='None', compute_dtype='None', out_dtype='int8')
qnn.softmax(x, scale, zero_point, output_scale, output_zero_point, axis=-1)
qnn.tanh(x, scale, zero_point, output_scale, output_zero_point)
vision.all_class_non_max_suppression(boxes, scores, max_output_boxes_per_class=-1, \
iou_threshold=-1.0, score_threshold=-1.0, output_format='onnx')
vision.get_valid_counts(data, score_threshold, id_index=0, score_index=1)
""".strip().splitlines()


@pytest.mark.parametrize("signature", SIGNATURES)
def test_parameters_are_those_of_tvm(signature: str) -> None:
    name, _, parameters = signature.partition("(")
    expected = inspect.signature(eval(f"lambda {parameters[:-1]}: None")).parameters
    function: Any = reduce(getattr, name.split("."), relay)
    actual = inspect.signature(function).parameters
    assert list(actual)[: len(expected)] == list(expected)
    for key, parameter in expected.items():
        if parameter.default is not parameter.empty:
            default = actual[key].default
            assert default == parameter.default or (default, parameter.default) == ((1,), None)
    for key in list(actual)[len(expected) :]:
        assert actual[key].default is not inspect.Parameter.empty


def vector(*shape: int, dtype: str = "float32") -> relay.Var:
    return relay.var("x", shape=shape, dtype=dtype)


RESULTS = [
    (relay.split(vector(6), 3), 3),
    (relay.split(vector(6), (1, 3)), 3),
    (relay.topk(vector(6), k=2), 2),
    (relay.meshgrid([vector(2), vector(3)]), 2),
    (relay.nn.batch_norm(*[vector(1, 3)] + [vector(3)] * 4), 3),
    (relay.nn.dropout_raw(vector(3)), 2),
    (relay.vision.get_valid_counts(vector(1, 5, 6), 0.5), 3),
]


@pytest.mark.parametrize(("call", "number"), RESULTS)
def test_several_results_are_indexed_and_unpacked(call: relay.Call, number: int) -> None:
    assert len(call) == number
    fields = list(call)
    assert all(field.index == i and field.tuple_value is call for i, field in enumerate(fields))
    assert call[-1].index == number - 1
    assert call.astuple() is call
    with pytest.raises(IndexError):
        call[number]
    typed = relay.testing.run_infer_type(call)
    assert len(typed.checked_type.fields) == number


def test_one_result_is_not_indexed() -> None:
    call = relay.exp(vector(3))
    assert call
    with pytest.raises(MisuseError, match="does not have several results"):
        call[0]
    with pytest.raises(MisuseError, match="does not have several results"):
        len(relay.topk(vector(3), ret_type="values"))


def evaluate(expr: relay.Expr, **binds: np.ndarray) -> Any:
    free = relay.analysis.free_vars(expr)
    function = relay.Function(free, expr)
    return relay.create_executor().evaluate(function)(*(binds[v.name_hint] for v in free))


X = np.arange(12, dtype="float32").reshape(3, 4)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x: relay.variance(x, axis=1), X.var(1)),
        (lambda x: relay.variance(x, axis=1, unbiased=True), X.var(1, ddof=1)),
        (lambda x: relay.std(x, axis=0, keepdims=True), X.std(0, keepdims=True)),
        (lambda x: relay.mean_variance(x, axis=1)[1], X.var(1)),
        (lambda x: relay.mean_std(x, axis=(0, 1))[0], X.mean()),
        (lambda x: relay.logsumexp(x, axis=1), np.log(np.exp(X).sum(1))),
        (lambda x: relay.logsumexp(x, keepdims=True), np.log(np.exp(X).sum(keepdims=True))),
        (lambda x: relay.cumsum(x, axis=1, dtype=None, exclusive=None), X.cumsum(1)),
        (lambda x: relay.gather(x, 1, relay.const([[0], [1], [3]])),
         X[[0, 1, 2], [0, 1, 3]][:, None]),
        (lambda x: relay.reshape_like(x, relay.const(np.ones((5, 2, 2))), 1, rhs_begin=1),
         X.reshape(3, 2, 2)),
        (lambda x: relay.take(x, relay.const([[3, 0], [1, 9], [2, -1]]), 1, 1),
         np.take_along_axis(X, np.array([[3, 0], [1, 3], [2, 0]]), 1)),
        (lambda x: relay.take(relay.reshape(x, (3, 2, 2)), relay.const([[3], [-1], [0]]), 2, 1,
                              "wrap"),
         X.reshape(3, 2, 2)[[0, 1, 2], :, [1, 1, 0]][:, :, None]),
        (lambda x: relay.strided_set(x, relay.const([[7.0]]), [0, 1], [1, 2]),
         np.where(np.arange(12).reshape(3, 4) == 1, np.float32(7), X)),
        (lambda x: relay.strided_slice(x, [0, 1], [3, 3]), X[:, 1:3]),
        (lambda x: relay.strided_slice(x, [2, 3], [0, 0], [-1, -2]), X[2:0:-1, 3:0:-2]),
        (lambda x: relay.nn.adaptive_avg_pool2d(relay.reshape(x, (1, 3, 2, 2)), (1, 1)),
         X.mean(1)[None, :, None, None]),
        (lambda x: relay.nn.batch_matmul(relay.expand_dims(x, 0), relay.expand_dims(x, 0)),
         (X @ X.T)[None]),
        (lambda x: relay.reverse_sequence(x, relay.const([1, 2, 3, 0]), 0, 1),
         np.stack([X[:, 0], X[[1, 0, 2], 1], X[::-1, 2], X[:, 3]], 1)),
        (lambda x: relay.one_hot(relay.const([0, 2]), relay.const(1.0), relay.const(0.0), 3, -1,
                                 "float32"), np.eye(3)[[0, 2]]),
        (lambda x: relay.nn.pad(x, ((1, 0), (0, 0))), np.pad(X, ((1, 0), (0, 0)))),
        (lambda x: relay.nn.dropout(x), X),
        (lambda x: relay.split(x, 2, axis=1)[1], X[:, 2:]),
        (lambda x: relay.arange(relay.const(3.0)), np.arange(3.0)),
        (lambda x: x.astype("int8"), X.astype("int8")),
        (lambda x: relay.reshape(x, relay.const([4, 3])), X.reshape(4, 3)),
        (lambda x: relay.reshape(x, relay.shape_of(relay.transpose(x))), X.reshape(4, 3)),
        (lambda x: relay.topk(x, relay.ndarray_size(relay.const([1, 1])), ret_type="values"),
         X[:, :1:-1]),
        (lambda x: relay.full(relay.const(2.0), relay.shape_of(x)), np.full((3, 4), 2.0)),
        (lambda x: relay.strided_slice(x, relay.shape_of(relay.const([0.0])), [3]), X[1:]),
        (lambda x: relay.image.resize2d(relay.reshape(x, (1, 1, 3, 4)), (6, 8), None, "NCHW",
                                        "nearest_neighbor", "asymmetric"),
         X.repeat(2, 0).repeat(2, 1)[None, None]),
    ],
)  # fmt: skip
def test_functions_compute_what_numpy_computes(build: Any, expected: np.ndarray) -> None:
    x = relay.var("x", shape=X.shape)
    np.testing.assert_allclose(evaluate(build(x), x=X), expected, rtol=1e-5)


IMAGES, KERNEL = vector(1, 3, 8, 8), relay.var("w", shape=(4, 3, 3, 3))
WRONG_KINDS = [
    (lambda: relay.nn.conv2d(IMAGES, KERNEL, strides="2"), "strides is an integer or a list of "
     "integers, found '2'"),
    (lambda: relay.nn.conv2d(IMAGES, KERNEL, padding=[0, [0.5, 1]]), "padding is an integer or"),
    (lambda: relay.nn.conv2d(IMAGES, KERNEL, data_layout=3), "data_layout is a string, found 3"),
    (lambda: relay.nn.conv2d(IMAGES, KERNEL, groups=True), "groups is an integer, found True"),
    (lambda: relay.nn.softmax(IMAGES, axis=1.0), "axis is an integer, found 1.0"),
    (lambda: relay.sum(IMAGES, axis="0"), "axis is an integer or a list of integers, found '0'"),
    (lambda: relay.sum(IMAGES, keepdims="no"), "keepdims is True or False, found 'no'"),
    (lambda: relay.cast(IMAGES, "flot32"), "dtype is the name of a datatype, found 'flot32'"),
    (lambda: relay.clip(IMAGES, None, 1.0), "a_min is a number, found None"),
    (lambda: relay.nn.leaky_relu(IMAGES, "x"), "alpha is a number, found 'x'"),
    (lambda: relay.image.resize2d(IMAGES, 4, roi=("a",) * 4), "roi is a number or a list of"),
]  # fmt: skip


@pytest.mark.rule("RLY-71")
@pytest.mark.parametrize(("build", "message"), WRONG_KINDS)
def test_an_attribute_of_a_wrong_type_is_refused_when_the_call_is_built(build, message) -> None:
    with pytest.raises(MisuseError) as refusal:
        build()
    assert message in str(refusal.value)
    assert refusal.value.diagnostic.rule == "RLY-71"
    assert isinstance(refusal.value, TypeError)


@pytest.mark.rule("RLY-71")
def test_attributes_of_numpy_and_missing_ones_are_accepted() -> None:
    given = {"strides": np.int64(2), "padding": [np.int32(1)] * 2, "kernel_size": None}
    assert relay.nn.conv2d(IMAGES, KERNEL, **given).attrs["strides"] == 2
    assert relay.sum(IMAGES, axis=None, keepdims=np.bool_(True)).attrs["keepdims"] is True
    assert relay.sort(IMAGES, is_ascend=1).attrs["is_ascend"] == 1


@pytest.mark.rule("RLY-23")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (relay.nn.softmax(IMAGES, axis=4), "axis 4 is out of range for rank 4"),
        (relay.nn.conv2d(IMAGES, KERNEL, channels=5), "weight of 5 on axis O of OIHW, found 4"),
        (relay.nn.conv2d(IMAGES, KERNEL, kernel_size=5), "weight of 5 on axis H of OIHW, found 3"),
        (relay.nn.conv2d_transpose(IMAGES, relay.var("w", shape=(3, 2, 3, 3)), channels=3),
         "weight of 3 on axis O of IOHW, found 2"),
    ],
)  # fmt: skip
def test_attributes_that_do_not_fit_the_operands_are_type_errors(call, message) -> None:
    with pytest.raises(relay.RelayTypeError, match=message):
        relay.testing.run_infer_type(call)


def test_an_expression_for_a_plain_attribute_is_refused() -> None:
    x = vector(3)
    with pytest.raises(MisuseError, match="cumsum: axis is a number or a list, found an expr"):
        relay.cumsum(x, axis=x)
