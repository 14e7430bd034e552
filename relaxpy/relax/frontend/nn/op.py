"""The operators of models."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.plugins.nn.core import wrap_nested as wrap_nested
    from relaxpy.plugins.nn.ops.arrange import IntExpr as IntExpr, arange as arange, argsort as argsort, broadcast_to as broadcast_to, chunk as chunk, concat as concat, cumsum as cumsum, empty as empty, full as full, max as max, min as min, ones as ones, permute as permute, permute_dims as permute_dims, repeat as repeat, reshape as reshape, sort as sort, split as split, squeeze as squeeze, sum as sum, take as take, topk as topk, triu as triu, unsqueeze as unsqueeze, zeros as zeros
    from relaxpy.plugins.nn.ops.custom import debug_func as debug_func, extern as extern, print_ as print_, tensor_expr_op as tensor_expr_op, tensor_ir_inplace_op as tensor_ir_inplace_op, tensor_ir_op as tensor_ir_op
    from relaxpy.plugins.nn.ops.elementwise import add as add, astype as astype, divide as divide, equal as equal, exp as exp, floor as floor, gelu as gelu, greater as greater, greater_equal as greater_equal, less as less, less_equal as less_equal, log as log, maximum as maximum, minimum as minimum, multiply as multiply, negative as negative, not_equal as not_equal, prelu as prelu, relu as relu, relu6 as relu6, sigmoid as sigmoid, silu as silu, softplus as softplus, sqrt as sqrt, square as square, subtract as subtract, tanh as tanh, where as where
    from relaxpy.plugins.nn.ops.layers import ccl_allgather as ccl_allgather, ccl_allreduce as ccl_allreduce, ccl_broadcast_from_worker0 as ccl_broadcast_from_worker0, conv1d as conv1d, conv1d_transpose as conv1d_transpose, conv2d as conv2d, conv3d as conv3d, get_timestep_embedding as get_timestep_embedding, group_norm as group_norm, interpolate as interpolate, layer_norm as layer_norm, matmul as matmul, pad as pad, rms_norm as rms_norm, scaled_dot_product_attention as scaled_dot_product_attention, softmax as softmax
    from relaxpy.plugins.nn.ops.sampling import multinomial_from_uniform as multinomial_from_uniform, renormalize_top_p_top_k_prob as renormalize_top_p_top_k_prob, sample_top_p_top_k_from_sorted_prob as sample_top_p_top_k_from_sorted_prob
else:
    _face(globals(), """
        relaxpy.plugins.nn.core: wrap_nested
        relaxpy.plugins.nn.ops.arrange: IntExpr arange argsort broadcast_to chunk concat cumsum empty full max min ones permute permute_dims repeat reshape sort split squeeze sum take topk triu unsqueeze zeros
        relaxpy.plugins.nn.ops.custom: debug_func extern print_ tensor_expr_op tensor_ir_inplace_op tensor_ir_op
        relaxpy.plugins.nn.ops.elementwise: add astype divide equal exp floor gelu greater greater_equal less less_equal log maximum minimum multiply negative not_equal prelu relu relu6 sigmoid silu softplus sqrt square subtract tanh where
        relaxpy.plugins.nn.ops.layers: ccl_allgather ccl_allreduce ccl_broadcast_from_worker0 conv1d conv1d_transpose conv2d conv3d get_timestep_embedding group_norm interpolate layer_norm matmul pad rms_norm scaled_dot_product_attention softmax
        relaxpy.plugins.nn.ops.sampling: multinomial_from_uniform renormalize_top_p_top_k_prob sample_top_p_top_k_from_sorted_prob
    """, "relaxpy.plugins.nn.names:missing_name")
