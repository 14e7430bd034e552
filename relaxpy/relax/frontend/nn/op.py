"""The operators of models."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import Any as _Any

from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.nn.op", "relaxpy.plugins.nn.methods:missing_name")
if TYPE_CHECKING:
    from relaxpy.plugins.nn.core import wrap_nested as wrap_nested
    from relaxpy.plugins.nn.ops.custom import debug_func as debug_func, extern as extern, multinomial_from_uniform as multinomial_from_uniform, print_ as print_, renormalize_top_p_top_k_prob as renormalize_top_p_top_k_prob, sample_top_p_top_k_from_sorted_prob as sample_top_p_top_k_from_sorted_prob, tensor_expr_op as tensor_expr_op, tensor_ir_inplace_op as tensor_ir_inplace_op, tensor_ir_op as tensor_ir_op
    from relaxpy.plugins.nn.ops.layers import IntExpr as IntExpr, add as add, arange as arange, argsort as argsort, astype as astype, broadcast_to as broadcast_to, ccl_allgather as ccl_allgather, ccl_allreduce as ccl_allreduce, ccl_broadcast_from_worker0 as ccl_broadcast_from_worker0, chunk as chunk, concat as concat, conv1d as conv1d, conv1d_transpose as conv1d_transpose, conv2d as conv2d, conv3d as conv3d, cumsum as cumsum, divide as divide, empty as empty, equal as equal, exp as exp, floor as floor, full as full, gelu as gelu, get_timestep_embedding as get_timestep_embedding, greater as greater, greater_equal as greater_equal, group_norm as group_norm, interpolate as interpolate, layer_norm as layer_norm, less as less, less_equal as less_equal, log as log, matmul as matmul, max as max, maximum as maximum, min as min, minimum as minimum, multiply as multiply, negative as negative, not_equal as not_equal, ones as ones, pad as pad, permute as permute, permute_dims as permute_dims, prelu as prelu, relu as relu, relu6 as relu6, repeat as repeat, reshape as reshape, rms_norm as rms_norm, scaled_dot_product_attention as scaled_dot_product_attention, sigmoid as sigmoid, silu as silu, softmax as softmax, softplus as softplus, sort as sort, split as split, sqrt as sqrt, square as square, squeeze as squeeze, subtract as subtract, sum as sum, take as take, tanh as tanh, topk as topk, triu as triu, unsqueeze as unsqueeze, where as where, zeros as zeros

    def __getattr__(name: str) -> _Any: ...
