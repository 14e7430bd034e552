"""Which operators mixed precision computes in a narrower datatype.

The table is that of TVM but for functions that leave the range of float16 for ordinary operands,
which PyTorch's autocast computes in float32, too.
"""

from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition.registry import register, registered_ops
from relaxpy.ir.relax import nodes as rx
from tests.ir.ops.scratch import forgotten_operators

#: Sums of products: most of the time of a model, and accumulated in float32.
ALWAYS = """
matmul outer nn.conv1d nn.conv2d nn.conv3d nn.attention nn.attention_bias nn.attention_var_len
"""
#: Cheap, in whatever datatype their operands have.
FOLLOW = """
abs acosh asinh atan atanh bitwise_not ceil clip cos erf floor isfinite isinf
isnan logical_not negative round sigmoid sign sin sqrt square tanh trunc
add subtract multiply divide floor_divide mod floor_mod log_add_exp atan2 maximum minimum
equal not_equal less less_equal greater greater_equal
logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift right_shift
ewise_fma astype
broadcast_to concat expand_dims flatten nn.batch_flatten layout_transform permute_dims reshape
split squeeze stack strided_slice image.resize2d image.resize3d
nn.relu nn.gelu nn.gelu_tanh nn.selu nn.silu
nn.layer_norm nn.group_norm nn.instance_norm nn.rms_norm nn.dropout
nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d
nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d
"""
#: What autocast of PyTorch computes in float32, of the operators that follow in TVM.
NEVER = "acos asin cosh exp log log2 log10 power rsqrt sinh tan"
POLICIES = dict.fromkeys(ALWAYS.split(), 0) | dict.fromkeys(FOLLOW.split(), 1)
assert not POLICIES.keys() & set(NEVER.split())


def test_operators_have_the_policies_of_the_table() -> None:
    names = sorted(n for n in registered_ops() if n.startswith("relax."))
    found = {name: Op.get(name).get_attr("TMixedPrecisionPolicy") for name in names}
    assert found == {name: POLICIES.get(name.removeprefix("relax."), 2) for name in names}


def test_an_operator_without_a_word_on_precision_is_never_narrowed() -> None:
    with forgotten_operators():

        @register("test.exact")
        def exact(x: rx.TensorStructInfo) -> rx.TensorStructInfo:
            return x

        assert exact.record.precision_policy == 2
