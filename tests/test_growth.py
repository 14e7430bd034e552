"""Twice the program is at most 2.3 times the work, at every entry point that builds or rewrites."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax, te, tir, topi
from relaxpy.errors import RelaxpyError
from relaxpy.ir import load_json, ops as op, save_json, structural_equal, structural_hash
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.relax.dpl import PatternMatchingRewriter, is_op, rewrite_call, wildcard
from relaxpy.relax.frontend import nn
from relaxpy.script import from_source
from relaxpy.script.ir_builder import IRBuilder, ir as ir_builder, relax as builder_words
from relaxpy.tvm.relax.binding_rewrite import DataflowBlockRewrite
from tests.counting import calls
from tests.ir.relax.sinfos import rank, tensor

SIZE = 24
SQUARE = tensor(4, 4)
Work = Callable[[], object]
CASES: dict[str, Callable[[int], Work]] = {}


def case(make: Callable[[int], Work]) -> Callable[[int], Work]:
    """Enter what makes the work on a program of a size, which itself does not count."""
    CASES[make.__name__] = make
    return make


@pytest.mark.parametrize("name", CASES)
def test_work_grows_with_the_program_and_no_faster(name: str) -> None:
    make = CASES[name]
    make(2)()  # what is made once for all programs
    assert calls(make(2 * SIZE)) <= 2.3 * calls(make(SIZE))


def functions_text(count: int) -> str:
    parts = [
        f"""
    @R.function
    def f{i}(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        with R.dataflow():
            y = R.add(x, R.const({i}.0, "float32"))
            z = R.exp(y)
            R.output(z)
        return z

    @T.prim_func
    def k{i}(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = A[i] + T.float32({i})
"""
        for i in range(count)
    ]
    return "@I.ir_module\nclass Module:" + "".join(parts)


@cache
def functions(count: int) -> IRModule:
    found = from_source(functions_text(count))
    assert isinstance(found, IRModule)
    return found


def chain_text(count: int) -> str:
    lines = [f"        y{i} = R.exp(y{i - 1})\n" for i in range(1, count)]
    return f"""
@R.function
def f(x: R.Tensor((4, 4), "float32")):
    with R.dataflow():
        y0 = R.exp(x)
{"".join(lines)}        R.output(y{count - 1})
    return y{count - 1}
"""


@cache
def chain(count: int) -> rx.Function:
    found = from_source(chain_text(count))
    assert isinstance(found, rx.Function)
    return found


@case
def reads_at_remainders(count: int) -> Work:
    terms = " + ".join(f"A[(v + {k}) % 64, v * {k}, T.min(v * {k}, 63)]" for k in range(count))
    text = f"""
@T.prim_func
def f(A: T.Buffer((64, 4096, 64), "int32"), B: T.Buffer((64,), "int32")):
    for i in range(64):
        with T.block("B"):
            v = T.axis.spatial(64, i)
            B[v] = {terms}
"""
    return lambda: from_source(text)


@case
def inline_one_of_many_stages(count: int) -> Work:
    stages = [te.placeholder((64,), name="x")]
    for k in range(count):
        stages.append(_next_stage(stages[-1], k))
    kernel = te.create_prim_func([stages[0], stages[-1]])
    return lambda: tir.Schedule(kernel).compute_inline("stage0")


def _next_stage(x: te.Tensor, k: int) -> te.Tensor:
    return te.compute((64,), lambda i: x[i] * 0.5 + float(k), name=f"stage{k}")


@case
def split_and_fuse_again(count: int) -> Work:
    x = te.placeholder((64,), name="x")
    kernel = te.create_prim_func([x, _next_stage(x, count)])  # no other one has the same steps

    def run() -> None:
        sch = tir.Schedule(kernel)
        for k in range(count // 4):
            (loop,) = sch.get_loops(f"stage{count}")
            sch.fuse(*sch.split(loop, [None, 3 + k % 4]))
        sch.mod.script()

    return run


def building(fill: Callable[[BlockBuilder, rx.Var], rx.Var], sinfo: rx.StructInfo = SQUARE) -> Work:
    def run() -> IRModule:
        builder, x = BlockBuilder(), rx.Var("x", sinfo)
        with builder.function("f", [x]):
            builder.emit_func_output(fill(builder, x))
        return builder.finalize()

    return run


@case
def builder_functions(count: int) -> Work:
    def run() -> IRModule:
        builder = BlockBuilder()
        for i in range(count):
            x = rx.Var("x", SQUARE)
            with builder.function("f", [x]):
                builder.emit_func_output(builder.emit(op.add(x, rx.const(float(i), "float32"))))
        return builder.finalize()

    return run


@case
def builder_emit(count: int) -> Work:
    def fill(builder: BlockBuilder, x: rx.Var) -> rx.Var:
        for _ in range(count):
            x = builder.emit(op.exp(x))
        return x

    return building(fill)


@case
def builder_outputs(count: int) -> Work:
    def fill(builder: BlockBuilder, x: rx.Var) -> rx.Var:
        with builder.dataflow():
            for _ in range(count):
                x = builder.emit_output(op.exp(builder.emit(op.exp(x))))
        return x

    return building(fill)


@case
def builder_casts(count: int) -> Work:
    def fill(builder: BlockBuilder, x: rx.Var) -> rx.Var:
        for i in range(count):
            found = builder.match_cast(x, tensor(tir.Var(f"n{i}", "int64"), 4))
        assert found is not None
        return found

    return building(fill, rank(2))


@case
def builder_kernels(count: int) -> Work:
    def fill(builder: BlockBuilder, x: rx.Var) -> rx.Var:
        for i in range(count):
            x = builder.emit_te(topi.add, x, float(i))
        return x

    return building(fill)


@case
def builder_tuples(count: int) -> Work:
    def fill(builder: BlockBuilder, x: rx.Var) -> rx.Var:
        whole = builder.emit(rx.Tuple((x,) * count))
        return builder.emit(
            rx.Tuple(tuple(builder.emit(rx.TupleGetItem(whole, i)) for i in range(count)))
        )

    return building(fill)


@case
def builder_add_func(count: int) -> Work:
    def run() -> None:
        builder = BlockBuilder()
        for func in functions(count).functions.values():
            builder.add_func(func, "f")

    functions(count)
    return run


@case
def builder_update_func(count: int) -> Work:
    mod = functions(count)

    def run() -> None:
        builder = BlockBuilder(mod)
        for var, func in mod.items():
            builder.update_func(var, func)

    return run


@case
def builder_over_a_module_per_function(count: int) -> Work:
    mod = functions(count)
    return lambda: [BlockBuilder(mod).get() for _ in mod]


class Layer(nn.Module):
    define_subroutine = True

    def __init__(self) -> None:
        self.linear = nn.Linear(4, 4)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.relu(self.linear(x))  # type: ignore[no-any-return]


@case
def exporting_layers_that_share_a_function(size: int) -> Work:
    model = nn.ModuleList([Layer() for _ in range(size)])
    return lambda: model.export_tvm({"forward": {"x": nn.spec.Tensor([2, 4], "float32")}})


@case
def ir_builder_functions(count: int) -> Work:
    def run() -> None:
        with IRBuilder() as builder, ir_builder.ir_module():
            for i in range(count):
                with builder_words.function():
                    builder_words.func_name(f"f{i}")
                    x = builder_words.arg("x", SQUARE)
                    y = builder_words.emit(op.add(x, rx.const(float(i), "float32")))
                    builder_words.func_ret_value(y)
        builder.get()

    return run


def block_rewrite() -> tuple[rx.Var, DataflowBlockRewrite]:
    func = chain(2)
    [block] = func.body.blocks
    assert isinstance(block, rx.DataflowBlock)
    return func.params[0], DataflowBlockRewrite(block, func)


@case
def block_rewrite_add(count: int) -> Work:
    def run() -> None:
        x, rewrite = block_rewrite()
        for _ in range(count):
            rewrite.add(op.exp(x))
        rewrite.mutated_root_fn()

    return run


@case
def block_rewrite_remove(count: int) -> Work:
    def run() -> None:
        value, rewrite = block_rewrite()
        added = []
        for i in range(count):
            added.append(rx.DataflowVar(f"v{i}", SQUARE))
            rewrite.add_binding(rx.VarBinding(added[-1], op.exp(value)))
            value = added[-1]
        for var in reversed(added):
            rewrite.remove_unused(var)
        rewrite.mutated_root_fn()

    return run


def exp_to_sin() -> PatternMatchingRewriter:
    x = wildcard()
    return PatternMatchingRewriter.from_pattern(
        is_op("relax.exp")(x), lambda expr, matches: op.sin(matches[x])
    )


@case
def rewriter_on_a_module(count: int) -> Work:
    mod, rewriter = functions(count), exp_to_sin()
    return lambda: rewriter(mod)


@case
def rewriter_on_a_chain(count: int) -> Work:
    func, x = chain(count), wildcard()
    pattern = is_op("relax.exp")(x)
    return lambda: rewrite_call(pattern, lambda expr, matches: op.sin(matches[x]), func)


@case
def mutators_per_function(count: int) -> Work:
    mod = functions(count)
    graphs = [func for func in mod.functions.values() if isinstance(func, rx.Function)]
    return lambda: [relax.PyExprMutator(mod).visit_expr(func) for func in graphs]


@case
def inlining(count: int) -> Work:
    x, p = rx.Var("x", SQUARE), rx.Var("p", SQUARE)
    callee = rx.Function((p,), op.exp(p), SQUARE)
    value: rx.Expr = x
    for _ in range(count):
        value = rx.Call(rx.GlobalVar("g"), (value,))
    mod = IRModule({"g": callee, "f": rx.Function((x,), value)})
    caller = relax.transform.Normalize()(mod)["f"]
    return lambda: caller.inline_functions({"g": callee})


def many_params(count: int) -> rx.Function:
    params = [rx.Var(f"x{i}", tensor(4, tir.Var(f"n{i}", "int64"))) for i in range(count)]
    return rx.Function(tuple(params), params[0])


@case
def binding_of_params(count: int) -> Work:
    func, array = many_params(count), np.ones((4, 5), "float32")
    return lambda: func.bind_params({f"x{i}": array for i in range(count)})


@case
def binding_of_sizes(count: int) -> Work:
    func = many_params(count)
    return lambda: func.bind_symbolic_vars({f"n{i}": 5 for i in range(count)})


@case
def call_of_many_params(count: int) -> Work:
    func = many_params(count)
    args = [rx.Var(f"a{i}", tensor(4, 5)) for i in range(count)]
    call = rx.Call(rx.GlobalVar("f"), args)  # type: ignore[arg-type]
    mod = IRModule({"f": func, "main": rx.Function(tuple(args), call)})
    return lambda: relax.transform.Normalize()(mod)


@case
def module_entries(count: int) -> Work:
    mod = functions(count)

    def run() -> None:
        other = mod.clone()
        for var, func in mod.items():
            other[rx.GlobalVar(var.name_hint)] = func
        for var in mod:
            del other[var]

    return run


@case
def many_faults(count: int) -> Work:
    unbound = [rx.Var(f"v{i}", SQUARE) for i in range(count)]
    bindings = [rx.VarBinding(rx.Var(f"w{i}"), op.exp(v)) for i, v in enumerate(unbound)]
    func = rx.Function((), rx.SeqExpr((rx.BindingBlock(tuple(bindings)),), rx.Tuple(())))
    return lambda: [str(d) for d in check_well_formed(func)]


@case
def callers_of_an_ill_formed_function(count: int) -> Work:
    table: dict[str, rx.BaseFunc] = {"f0": rx.Function((), op.exp(rx.Var("v", SQUARE)))}
    for i in range(1, count):
        table[f"f{i}"] = rx.Function((), rx.Call(rx.GlobalVar(f"f{i - 1}"), ()))
    mod = IRModule(table)
    return lambda: check_well_formed(mod)


@case
def calls_with_an_ill_formed_end(count: int) -> Work:
    def run() -> None:
        x, y = rx.Var("x", SQUARE), rx.Var("y", tensor(3))
        value: rx.Expr = x
        for _ in range(count):
            value = rx.Call(op.exp.op, (value,))
        with pytest.raises(RelaxpyError):
            BlockBuilder().normalize_function(rx.Function((x, y), rx.Call(op.add.op, (value, y))))

    return run


@case
def native_code_of_shared_values(count: int) -> Work:
    a, c = (tir.decl_buffer((8,), "int32", name) for name in "AC")
    i = tir.Var("i", "int64")
    value: tir.PrimExpr = a[i]
    for n in range(count):
        value = tir.abs(value - n)  # reads its operand three times
    store = tir.BufferStore(c, value, [i])
    loop = tir.For(i, te.const(0, "int64"), te.const(8, "int64"), tir.ForKind.SERIAL, store)
    func = tir.PrimFunc([a.data, c.data], loop, buffer_map={a.data: a, c.data: c})
    return lambda: relaxpy.compile(func)


USES: dict[str, Callable[[IRModule], object]] = {
    "check": check_well_formed,
    "print": lambda mod: mod.script(),
    "save": save_json,
    "hash": structural_hash,
    "normalise": lambda mod: relax.transform.Normalize()(mod),
    "rename": lambda mod: mod.replace_global_vars({v: f"{v.name_hint}_" for v in mod}),
    "legalise": lambda mod: relax.transform.LegalizeOps()(mod),
    "compile": lambda mod: relaxpy.compile(mod, "reference"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("program", [functions, lambda count: IRModule({"f": chain(count)})])
def test_uses_of_a_module_grow_with_it(use: str, program: Callable[[int], IRModule]) -> None:
    USES[use](program(2))
    short, long = program(SIZE), program(2 * SIZE)
    work = calls(lambda: USES[use](short))  # first, since `long` has the operators of `short`
    assert calls(lambda: USES[use](long)) <= 2.3 * work


def test_compilation_grows_with_the_module() -> None:
    relaxpy.compile(functions(2))
    short, long = functions(6), functions(12)
    assert calls(lambda: relaxpy.compile(long)) <= 2.3 * calls(lambda: relaxpy.compile(short))


@pytest.mark.parametrize("text", [functions_text, chain_text])
def test_reading_and_comparing_grow_with_the_text(text: Callable[[int], str]) -> None:
    from_source(text(2))
    short, long = text(SIZE), text(2 * SIZE)
    assert calls(lambda: from_source(long)) <= 2.3 * calls(lambda: from_source(short))
    pairs = {size: (from_source(size), from_source(size)) for size in (short, long)}
    assert calls(lambda: structural_equal(*pairs[long])) <= 2.3 * calls(
        lambda: structural_equal(*pairs[short])
    )
    saved = {size: save_json(pairs[size][0]) for size in (short, long)}
    assert calls(lambda: load_json(saved[long])) <= 2.3 * calls(lambda: load_json(saved[short]))


def steps_text(count: int) -> str:
    steps = "".join(f"        A[j] = A[j] * T.float32(2) + T.float32({i})\n" for i in range(count))
    return f"""
@T.prim_func
def k(A: T.Buffer((16,), "float32")):
    for j in range(16):
{steps}"""


def loops_text(count: int) -> str:
    loop = "    for j in range(16):\n        A[j] = A[j] * T.float32(2) + T.float32({})\n"
    loops = "".join(loop.format(i) for i in range(count))
    return f'@T.prim_func\ndef k(A: T.Buffer((16,), "float32")):\n{loops}'


def straight_text(count: int) -> str:
    stores = "".join(f"    A[{i}] = A[{i}] * T.float32(2)\n" for i in range(count))
    return f'@T.prim_func\ndef k(A: T.Buffer((1000,), "float32")):\n{stores}'


def columns_text(count: int) -> str:
    stores = "".join(f"        A[j, {i}] = A[j, {i}] * T.float32(2)\n" for i in range(count))
    return f"""
@T.prim_func
def k(A: T.Buffer((16, 1000), "float32")):
    for j in range(16):
{stores}"""


def sums_text(count: int) -> str:
    loop = "    for j in range(8):\n        B[{0}] = B[{0}] + A[{0} + j]\n"
    params = 'A: T.Buffer((1000,), "float32"), B: T.Buffer((1000,), "float32")'
    return f"@T.prim_func\ndef k({params}):\n{''.join(map(loop.format, range(count)))}"


def locals_text(count: int) -> str:
    buffers = [f'    L{i} = T.alloc_buffer((1000,), "float32")\n' for i in range(count)]
    loop = "    for j in range(1000):\n        L{}[j] = L{}[j] * T.float32(2)\n"
    steps = [loop.format(i + 1, i) for i in range(count - 1)]
    return f"""
@T.prim_func
def k(A: T.Buffer((1000,), "float32")):
{"".join(buffers)}    for j in range(1000):
        L0[j] = A[j]
{"".join(steps)}    for j in range(1000):
        A[j] = L{count - 1}[j]
"""


def params_text(count: int) -> str:
    params = "".join(f'x{i}: T.Buffer((4,), "float32"), ' for i in range(count))
    total = " + ".join(f"x{i}[j]" for i in range(count))
    return f"""
@T.prim_func
def k({params}out: T.Buffer((4,), "float32")):
    for j in range(4):
        out[j] = {total}
"""


@pytest.mark.parametrize("text", [steps_text, loops_text, params_text])
def test_printing_grows_with_the_kernel(text: Callable[[int], str]) -> None:
    programs = {size: from_source(text(size)) for size in (2, 8 * SIZE, 16 * SIZE)}
    programs[2].script()
    assert calls(programs[16 * SIZE].script) <= 2.3 * calls(programs[8 * SIZE].script)


@pytest.mark.parametrize(
    "text",
    [steps_text, loops_text, straight_text, columns_text, sums_text, locals_text, params_text],
)
@pytest.mark.parametrize("target", ["numpy", "native"])
def test_compilation_grows_with_the_statements(text: Callable[[int], str], target: str) -> None:
    relaxpy.compile(from_source(text(2)), target)
    short, long = from_source(text(2 * SIZE)), from_source(text(4 * SIZE))
    assert calls(lambda: relaxpy.compile(long, target)) <= 2.3 * calls(
        lambda: relaxpy.compile(short, target)
    )
