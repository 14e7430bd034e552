"""Patterns under names, and the patterns that many backends look for."""

from collections.abc import Callable, Iterator

import pytest

from relaxpy import relax as rx
from relaxpy.errors import MisuseError, UnknownNameError
from relaxpy.ir.op import UNREGISTERED, Op
from relaxpy.relax import backend
from relaxpy.relax.analysis import get_var2val
from relaxpy.relax.backend import get_pattern, get_patterns_with_prefix, patterns, register_patterns
from relaxpy.relax.dpl import DFPattern, is_op, wildcard
from relaxpy.relax.transform import FusionPattern, PatternCheckContext
from relaxpy.script import relax as R
from tests.ir.relax.texts import module

INFO = R.Tensor((4, 4), "float32")
X, Y, Z = (rx.Var(name, INFO) for name in "xyz")
Named = tuple[DFPattern, dict[str, DFPattern]]


def found_names(named: Named, expr: rx.Expr) -> dict[str, rx.Expr] | None:
    """What the named parts of a pattern stand for."""
    pattern, parts = named
    found = pattern.extract_matched_expr(expr)
    return None if found is None else {name: found[part] for name, part in parts.items()}


def test_patterns_are_found_by_name_and_by_prefix() -> None:
    exp, log = is_op("relax.exp")(wildcard()), is_op("relax.log")(wildcard())
    inner = wildcard()

    def check(context: PatternCheckContext) -> bool:
        return True

    whole = FusionPattern("test_backend.whole", exp, {"inner": inner}, check)
    register_patterns([("test_backend.exp", exp), ("test_backend.log", log, {"x": inner}), whole])
    names = [found.name for found in get_patterns_with_prefix("test_backend")]
    assert names == ["test_backend.whole", "test_backend.log", "test_backend.exp"]
    assert get_pattern("test_backend.whole") is whole
    register_patterns([("test_backend.exp", log)])
    latest = get_pattern("test_backend.exp")
    assert latest is not None
    assert latest.pattern is log
    assert get_pattern("test_backend") is None
    assert get_patterns_with_prefix("test_backend.nothing") == []
    assert whole.check is check
    assert dict(whole.annotation_patterns or {}) == {"inner": inner}
    assert backend.pattern_registry.get_pattern is get_pattern


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: register_patterns(3), "expected a list of patterns, found 3"),
        (lambda: register_patterns([3]), "expected a FusionPattern, or a name and a pattern"),
        (lambda: register_patterns([("name",)]), "expected a FusionPattern, or a name and a patt"),
        (lambda: FusionPattern("name", X), "expected a pattern, found Var"),
        (lambda: FusionPattern(3, wildcard()), "the name of a pattern is a string, found 3"),
        (lambda: FusionPattern("name", wildcard(), [1]), "a dict of patterns by name"),
        (lambda: FusionPattern("name", wildcard(), {"a": 1}), "expected a pattern, found int 1"),
        (lambda: FusionPattern("name", wildcard(), {}, 3), "expected a function, found 3"),
        (lambda: get_pattern(3), "the name of a pattern is a string, found 3"),
        (lambda: get_patterns_with_prefix(None), "the beginning of a name is a string"),
        (
            lambda: patterns.make_residual_block_pattern(3),
            "expected a pattern, perhaps with annotations",
        ),
        (lambda: patterns.make_residual_block_pattern((wildcard(),)), "with annotations"),
        (lambda: patterns.make_residual_block_pattern((wildcard(), None)), "with annotations"),
        (lambda: patterns.make_stacked_attention_pattern("cut"), "start_op is 'split' or 'str"),
        (
            lambda: patterns.make_stacked_attention_pattern("split", layout="NHWC"),
            "layout is 'BS3NH' or 'SBN3H', found 'NHWC'",
        ),
    ],
)
def test_misuse_is_refused(make: Callable[[], object], message: str) -> None:
    before = get_patterns_with_prefix("")
    with pytest.raises(MisuseError) as caught:
        make()
    assert message in str(caught.value)
    assert get_patterns_with_prefix("") == before


def test_products_of_matrices() -> None:
    product = R.matmul(X, Y)
    assert found_names(patterns.make_matmul_pattern(), product) == {
        "lhs": X,
        "rhs": Y,
        "root": product,
    }
    full = patterns.make_matmul_pattern(with_bias=True, activation="relax.nn.relu")
    whole = R.nn.relu(R.add(product, Z))
    found = found_names(full, whole)
    assert found is not None
    assert (found["bias"], found["root"]) == (Z, product)
    assert found_names(full, R.add(product, Z)) is None
    turned = patterns.make_matmul_pattern(transposed_rhs=True)
    found = found_names(turned, R.matmul(X, R.permute_dims(Y)))
    assert found is not None
    assert found["rhs"] is Y
    assert found_names(turned, product) is None
    fused = patterns.make_fused_bias_activation_pattern("relax.matmul", with_bias=True)
    assert found_names(fused, R.add(product, Z)) is not None


def test_residual_blocks_have_the_residue_on_either_side() -> None:
    block = patterns.make_residual_block_pattern(
        patterns.make_matmul_pattern(), binary_op="relax.subtract", activation="relax.nn.relu"
    )
    product = R.matmul(X, Y)
    for whole in (R.subtract(product, Z), R.subtract(Z, product)):
        found = found_names(block, R.nn.relu(whole))
        assert found is not None
        assert (found["residual"], found["root"]) == (Z, product)
    plain, parts = patterns.make_residual_block_pattern(is_op("relax.exp")(wildcard()))
    assert list(parts) == ["residual"]
    assert plain.match(R.add(X, R.exp(Y)))


def test_products_with_scales() -> None:
    one = rx.Var("a", R.Tensor((1,), "float32")), rx.Var("b", R.Tensor((1,), "float32"))
    scaled = R.astype(R.multiply(R.matmul(X, Y), R.multiply(*one)), "float16")
    found = found_names(patterns.make_matmul_multiply_pattern(), scaled)
    assert found is not None
    assert {found["scaleA"], found["scaleB"]} == set(one)
    wide = R.astype(R.multiply(R.matmul(X, Y), R.multiply(Z, Z)), "float16")
    assert found_names(patterns.make_matmul_multiply_pattern(), wide) is None


def test_normalisation() -> None:
    gamma, beta = rx.Var("g", R.Tensor((4,), "float32")), rx.Var("b", R.Tensor((4,), "float32"))
    pattern, parts = patterns.make_layer_norm_pattern()
    assert parts == {}
    assert pattern.match(R.nn.layer_norm(X, gamma, beta, axes=[1]))

    Lowered = module("""
    @kernel
    def rms_norm(x: f32[4], w: f32[4], o: f32[4]):
        for i in range(4):
            o[i] = x[i] * w[i]

    def main(x: f32[4], w: f32[4]):
        y = R.call_tir(cls.rms_norm, (x, w), f32[4])
        return y
    """)
    [value] = get_var2val(Lowered["main"]).values()
    found = found_names(patterns.make_rms_norm_pattern(), value)
    assert found is not None
    assert found["gv"].name_hint == "rms_norm"  # type: ignore[attr-defined]
    assert found["inp"] is Lowered["main"].params[0]


MAKERS: dict[str, Callable[[], Named]] = {
    "relax.nn.conv2d": lambda: patterns.make_conv2d_pattern(with_bias=True),
    "relax.nn.attention": lambda: patterns.make_attention_pattern(),
    "relax.nn.attention_bias": lambda: patterns.make_attention_pattern(with_bias=True),
    "relax.nn.attention_var_len": lambda: patterns.make_attention_pattern(var_len=True),
    "relax.dequantize": lambda: patterns.make_matmul_dequantize_pattern(transposed_rhs=True),
}
STACKED = [(start, layout) for start in ("split", "strided_slice") for layout in ("BS3NH", "SBN3H")]


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_a_pattern_of_an_operator_needs_that_operator(name: str) -> None:
    if name in Op.list_op_names():
        pattern, parts = MAKERS[name]()
        assert isinstance(pattern, DFPattern)
        assert all(isinstance(part, DFPattern) for part in parts.values())
    else:
        with pytest.raises(UnknownNameError, match=f"no operator is registered as '{name}'"):
            MAKERS[name]()


@pytest.fixture
def attention() -> Iterator[None]:
    """Operators of attention, as if they were registered."""
    operators = [Op(f"relax.nn.{name}") for name in ("attention", "attention_bias")]
    absent = [operator for operator in operators if operator.record is UNREGISTERED]
    for operator in absent:
        operator.extend(pure=True)
    yield
    for operator in absent:
        operator.enter(UNREGISTERED)


@pytest.mark.usefixtures("attention")
@pytest.mark.parametrize(("start", "layout"), STACKED)
@pytest.mark.parametrize("with_bias", [False, True])
def test_stacked_attention_names_its_parts(start: str, layout: str, with_bias: bool) -> None:
    named = patterns.make_stacked_attention_pattern(start, with_bias, layout)
    stacked = rx.Var("qkv", R.Tensor((12, 4), "float32"))
    if start == "split":
        halves = R.split(stacked, 3)
        raw: list[rx.Expr] = [rx.TupleGetItem(halves, i) for i in range(3)]
    else:
        raw = [R.strided_slice(stacked, [0], [4 * i], [4 * i + 4]) for i in range(3)]
    if layout == "BS3NH":
        operands = [R.reshape(tensor, (2, 8)) for tensor in raw]
    else:
        operands = [R.permute_dims(tensor) for tensor in raw]
    op = "relax.nn.attention_bias" if with_bias else "relax.nn.attention"
    whole = rx.Call(Op(op), [*operands, *([Z] if with_bias else [])], struct_info=INFO)
    if layout == "SBN3H":
        whole = rx.Call(Op("relax.permute_dims"), [whole], struct_info=INFO)
    found = found_names(named, whole)
    assert found is not None
    assert found["stacked_qkv"] is stacked
    assert ("bias" in found) is with_bias
    assert ("split" in found) is (start == "split")
    assert ("query_reshape_list" in found) is (layout == "BS3NH")
