"""The attributes of operators as classes, by TVM's names."""

import pytest

from relaxpy import relax
from relaxpy.errors import MisuseError
from relaxpy.ir import ops as op
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax import nodes as rx
from tests.ir.relax.sinfos import tensor

attrs = relax.op.op_attrs
X, LINE, FILTER = (
    rx.Var(name, tensor(*shape))
    for name, shape in (("x", (1, 4, 8, 8)), ("line", (1, 4, 8)), ("w", (4, 4, 3, 3)))
)
SCALE = rx.Var("scale", tensor(8))
CONV = op.nn.conv2d(X, FILTER, padding=1)
POOL = op.nn.max_pool2d(X, (2, 2))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("Conv2DAttrs", CONV),
        ("Conv1DAttrs", op.nn.conv1d(LINE, rx.Var("v", tensor(4, 4, 3)))),
        ("Conv2DTransposeAttrs", op.nn.conv2d_transpose(X, FILTER)),
        ("Pool2DAttrs", POOL),
        ("Pool2DAttrs", op.nn.avg_pool2d(X)),
        ("AdaptivePool2DAttrs", op.nn.adaptive_avg_pool2d(X, (2, 2))),
        ("SoftmaxAttrs", op.nn.softmax(X)),
        ("LayerNormAttrs", op.nn.layer_norm(X, SCALE, SCALE, axes=-1)),
        ("StatisticalAttrs", op.mean(X, 1)),
        ("ArgmaxArgminAttrs", op.argmax(X, 1)),
        ("ScanopAttrs", op.cumsum(X, 1)),
        ("InitAttrs", op.zeros((2,), "float32")),
        ("AstypeAttrs", op.astype(X, "float16")),
        ("TakeAttrs", op.take(X, rx.Var("i", tensor(3, dtype="int64")), 1)),
        ("MatmulAttrs", op.matmul(X, X)),
        ("PermuteDimsAttrs", op.permute_dims(X)),
        ("TopKAttrs", op.topk(X)),
        ("Resize2DAttrs", op.image.resize2d(X, (4, 4))),
        ("AllReduceAttrs", op.ccl.allreduce(X)),
        ("PadAttrs", op.nn.pad(X, (0, 0, 0, 0, 1, 1, 1, 1))),
    ],
)
def test_a_call_has_attributes_of_the_class_of_its_operator(name: str, call: rx.Call) -> None:
    assert isinstance(call.attrs, getattr(attrs, name))


def test_other_attributes_are_of_another_class() -> None:
    assert not isinstance(CONV.attrs, attrs.Conv1DAttrs)
    assert not isinstance(CONV.attrs, attrs.Conv2DTransposeAttrs)
    assert not isinstance(CONV.attrs, attrs.Pool2DAttrs)
    assert not isinstance(POOL.attrs, attrs.Pool3DAttrs)
    assert not isinstance({"axis": -1}, attrs.SoftmaxAttrs)
    assert not isinstance(CONV, attrs.Conv2DAttrs)


def test_attributes_are_read_by_name() -> None:
    assert CONV.attrs.padding == (1, 1, 1, 1)
    assert CONV.attrs.data_layout == "NCHW"


def test_a_class_builds_a_table_with_the_defaults() -> None:
    table = attrs.SoftmaxAttrs(axis=1)
    assert isinstance(table, Attrs)
    assert table == {"axis": 1}
    assert attrs.SoftmaxAttrs() == op.nn.softmax(X).attrs
    assert "nn.softmax" in (attrs.SoftmaxAttrs.__doc__ or "")
    with pytest.raises(MisuseError, match="SoftmaxAttrs has no attribute 'axes'"):
        attrs.SoftmaxAttrs(axes=1)
    with pytest.raises(MisuseError, match="LayerNormAttrs needs axes"):
        attrs.LayerNormAttrs(epsilon=1e-3)


def test_a_name_that_no_operator_has_is_reported() -> None:
    for name in ("Conv9DAttrs", "SoftMinAttrs", "ReluAttrs", "softmax"):
        with pytest.raises(AttributeError, match=f"no operator has attributes of the name {name}"):
            getattr(attrs, name)
