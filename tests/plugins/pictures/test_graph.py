"""Pictures of programs: what is in them, the formats, and what hostile or broken programs show."""

import json
import re
import runpy
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.errors import MisuseError
from relaxpy.exec.inspect.explain import explain
from relaxpy.ir.relax import nodes as rx
from relaxpy.plugins.pictures.build import MAX_ITEMS, picture_of
from relaxpy.plugins.pictures.graph import Graph, graph
from relaxpy.plugins.pictures.model import MODULE, Item, Picture
from relaxpy.relax.frontend import nn
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from relaxpy.testing import assert_golden
from tests.fuzz.graphs import write
from tests.fuzz.seed import SEED

ROOT = Path(__file__).parents[3]
SVG = "{http://www.w3.org/2000/svg}"


@I.ir_module
class Model:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"), flag: R.Tensor((), "bool"), count: R.Tensor((), "int64")
    ) -> R.Tensor(("n", 4), "float32"):
        n = T.int64()

        @R.function
        def again(i: R.Tensor((), "int64"), total: R.Tensor((n, 4), "float32")) -> R.Tensor(
            (n, 4), "float32"
        ):
            stop = R.less(i, R.const(0, "int64"))
            if stop:
                r = total
            else:
                rest = R.subtract(i, R.const(1, "int64"))
                r = again(rest, R.add(total, x))
            return r

        if flag:
            y = R.exp(x)
        else:
            size = R.abs(x)
            y = R.sqrt(size)
        with R.dataflow():
            p = R.nn.relu(y)
            q = R.multiply(p, y)
            R.output(q)
        z = again(count, q)
        return z


def chain(layers: int) -> IRModule:
    """A model of layers of four operators, each with weights of its own."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter((4, 4), "float32")

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            y = nn.op.softmax(nn.op.matmul(x, self.weight))
            return x + nn.op.relu(y)

    class Layers(nn.Module):
        def __init__(self) -> None:
            self.layers = nn.ModuleList([Layer() for _ in range(layers)])

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            for layer in self.layers:
                x = layer(x)
            return nn.op.exp(x)

    spec = {"forward": {"x": nn.spec.Tensor([2, 4], "float32")}}
    return Layers().export_tvm(spec)[0]


def by_label(picture: Picture, label: str) -> Item:
    [item] = [item for item in picture.items if item.label == label]
    return item


def kinds(picture: Picture) -> Counter[str]:
    return Counter(item.kind for item in picture.items)


def bindings(mod: IRModule) -> Iterator[rx.Binding]:
    """The bindings of all functions of a module, at every depth."""
    waiting: list[rx.Expr] = [f.body for f in mod.functions.values() if isinstance(f, rx.Function)]
    while waiting:
        body = waiting.pop()
        for block in body.blocks if isinstance(body, rx.SeqExpr) else ():
            for binding in block.bindings:
                yield binding
                match binding.value:
                    case rx.If(true_branch=one, false_branch=other):
                        waiting += (one, other)
                    case rx.Function(body=inner):
                        waiting.append(inner)


def operands(expr: rx.Expr) -> Iterator[rx.Var]:
    """The variables that the operation of a binding uses itself."""
    match expr:
        case rx.Var():
            yield expr
        case rx.Tuple(fields=values) | rx.Call(args=values):
            yield from operands(expr.op) if isinstance(expr, rx.Call) else ()
            for value in values:
                yield from operands(value)
        case rx.TupleGetItem(tuple_value=value) | rx.If(cond=value):
            yield from operands(value)


def check(mod: IRModule) -> None:
    """Compare a picture with the module: an item for each binding, a use for each operand."""
    picture = picture_of(mod)
    found = Counter(item.name for item in picture.items if item.kind not in ("parameter", "input"))
    uses = Counter(
        (picture.items[value].name, picture.items[user].name) for value, user in picture.uses
    )
    expected, used = Counter[str](), Counter[tuple[str, str]]()
    for binding in bindings(mod):
        name = binding.var.name_hint if binding.var else ""
        expected[name] += bool(binding.var)
        for value in {*operands(binding.value)}:
            used[value.name_hint, name] += 1
    assert +expected - found == Counter()
    assert used - uses == Counter()
    svg = ElementTree.fromstring(mod.graph(fold=False).to_svg())
    shown = {element.get("data-i") for element in svg.iter() if element.get("data-i")}
    assert {str(item.number) for item in picture.items} <= shown


@pytest.mark.parametrize("mod", [Model, chain(3), relaxpy.get_pipeline("default")(chain(3))])
def test_bindings_are_items_and_operands_are_uses(mod: IRModule) -> None:
    check(mod)


@pytest.mark.parametrize("k", range(12))
def test_pictures_of_random_programs_have_all_bindings(k: int, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(write(f"{SEED}.{k}").relax, encoding="utf-8")
    check(runpy.run_path(str(program))["Module"])


def test_functions_branches_loops_and_blocks_are_boxes() -> None:
    picture = picture_of(Model)
    assert kinds(picture) >= Counter({"if": 2, "branch": 4, "loop": 1, "block": 1, "function": 1})
    loop = by_label(picture, "loop again")
    assert {picture.items[n].label for n in picture.members()[loop.number]} == {
        *("i", "total", "less(0)", "if", "return")
    }
    assert by_label(picture, "sqrt").parent != by_label(picture, "exp").parent
    assert picture.items[by_label(picture, "sqrt").parent].label == "else"
    inner = [item for item in picture.items if item.label == "again"]
    assert {(loop.number, item.number) for item in inner} <= {*picture.uses}


def test_values_say_their_struct_info_and_operators_link_to_their_line() -> None:
    svg = ElementTree.fromstring(Model.graph().to_svg())
    titles = [element.text or "" for element in svg.iter(f"{SVG}title")]
    [title] = [text for text in titles if text.startswith("p: ")]
    assert 'p: R.Tensor((n, 4), dtype="float32") = nn.relu(y)' in title
    line = next(
        number
        for number, text in enumerate(Path(__file__).read_text().splitlines(), 1)
        if "p = R.nn.relu(y)" in text
    )
    links = [element.get("href") or "" for element in svg.iter(f"{SVG}a")]
    assert [link for link in links if link.endswith(f"test_graph.py#L{line}")] != []


def test_repeated_layers_are_folded_and_their_weights_are_inside() -> None:
    mod = chain(12)
    drawn = mod.graph()
    picture = drawn._scene.picture
    repeat = by_label(picture, "12 x 4 operations")
    layers = picture.members()[repeat.number]
    instances = [n for n in layers if picture.items[n].kind == "instance"]
    assert len(instances) == 12
    for index, instance in enumerate(instances):
        inside = [picture.items[n] for n in picture.members()[instance]]
        names = [item.label.partition("(")[0] for item in inside if item.kind == "operator"]
        assert names == ["matmul", "nn.softmax", "nn.relu", "add"]
        weights = [item.label for item in inside if item.kind == "parameter"]
        assert weights == [f"layers.{index}.weight"]
    assert picture.items[by_label(picture, "exp").parent].kind == "function"
    [x] = [item for item in picture.items if item.label == "x" and item.kind == "parameter"]
    assert picture.items[x.parent].kind == "function"
    assert "12 x 4 operations" in drawn.to_mermaid()
    assert drawn.to_mermaid().count('["matmul') == 0
    assert mod.graph(fold=False).to_mermaid().count('["matmul') == 12


@pytest.mark.parametrize(("count", "folded"), [(8, False), (9, True), (300, True)])
def test_many_parameters_of_one_operation_are_one_box(count: int, folded: bool) -> None:
    params = ", ".join(f'p{k}: R.Tensor((2,), "float32")' for k in range(count))
    names = ", ".join(f"p{k}" for k in range(count))
    text = f"@R.function\ndef main(x: R.Tensor((2,), 'float32'), {params}):\n"
    drawn = from_source(
        f"{text}    y = R.concat(({names}, x))\n    return R.add(R.sum(y), x)"
    ).graph()
    [*boxes] = [item for item in drawn._scene.picture.items if item.kind == "bundle"]
    assert [box.label for box in boxes] == [f"{count} parameters and constants"] * folded
    assert ("p3<br>" in drawn.to_mermaid()) != folded
    assert drawn._scene.open_sizes[MODULE][0] < 1_200
    assert "x<br>" in drawn.to_mermaid()


def test_layers_that_use_values_in_other_ways_are_not_folded_together() -> None:
    text = ["@R.function", 'def main(x: R.Tensor((4,), "float32")):', "    v = x", "    w = x"]
    for index in range(8):
        text += ["    a = R.exp(v)", "    b = R.exp(a)"]
        text += [f"    v = R.add({'a, b' if index < 4 else 'b, a'})"]
    drawn = from_source("\n".join([*text, "    return v"])).graph()
    labels = [item.label for item in drawn._scene.picture.items if item.kind == "repeat"]
    assert labels == ["4 x 3 operations", "4 x 3 operations"]


def test_fused_groups_contain_their_operators_and_kernels_their_program() -> None:
    passes = [relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern()]
    mod = relaxpy.transform.Sequential([*passes, relax.transform.FuseOps()])(chain(2))
    picture = picture_of(mod)
    fused = [item for item in picture.items if item.kind == "fused"]
    assert len(fused) == 2
    for item in fused:
        inside = [picture.items[n] for n in picture.members()[item.number]]
        assert {"parameter", "kernel", "result"} == {member.kind for member in inside}
        values = [user for _, user in picture.uses if user in [m.number for m in inside]]
        assert {m.number for m in inside if m.kind == "parameter"} <= {*values}
    assert len(picture.members()[MODULE]) == 1  # their functions are not drawn again
    svg = mod.graph().to_svg()
    assert 'class="fused fused0"' in svg
    assert "def add(" in re.sub("<[^>]+>", "", svg)


@pytest.mark.parametrize("fold", [None, True, False])
@pytest.mark.parametrize("mod", [Model, chain(9), IRModule()])
def test_formats_are_well_formed(mod: IRModule, fold: bool | None, tmp_path: Path) -> None:
    drawn = mod.graph(fold)
    root = ElementTree.fromstring(drawn.to_svg())
    data = json.loads(root.findtext(f"{SVG}metadata") or "")
    items = {element.get("data-i") for element in root.iter() if element.get("data-i")}
    for group, rows in data["rows"].items():
        entries = {entry[0] for row in rows for entry in row}
        for path in data["paths"].get(group, ()):
            assert entries >= {*path}
        assert items >= {str(entry) for entry in entries if entry >= 0}
    dot, mermaid = drawn.to_dot(), drawn.to_mermaid()
    assert dot.count("{") == dot.count("}")
    known = {*re.findall(r"^ *(n\d+) \[", dot, re.MULTILINE)}
    for one, other in re.findall(r"(n\d+) -> (n\d+)", dot):
        assert {one, other} <= known
    assert len(re.findall("^ *subgraph", mermaid, re.MULTILINE)) == len(
        re.findall("^ *end$", mermaid, re.MULTILINE)
    )
    known = {*re.findall(r"^ *(?:subgraph )?(n\d+)[\[(]", mermaid, re.MULTILINE)}
    for one, other in re.findall(r"(n\d+) --> (n\d+)", mermaid):
        assert {one, other} <= known
    for suffix, start in ((".svg", "<svg"), (".html", "<!DOCTYPE"), (".dot", "digraph")):
        drawn.save(tmp_path / f"a{suffix}")
        assert (tmp_path / f"a{suffix}").read_text("utf-8").startswith(start)


def test_a_notebook_shows_the_picture() -> None:
    bundle = Model.graph()._repr_mimebundle_()
    assert bundle["text/plain"] == "<Graph of 30 items and 24 uses>"
    page = bundle["text/html"]
    encoded = page.partition('src="data:image/svg+xml;base64,')[2].partition('"')[0]
    shown = ElementTree.fromstring(b64decode(encoded))
    assert shown.tag == f"{SVG}svg"
    assert list(shown.iter(f"{SVG}script")) == []
    assert "prefers-color-scheme:dark" in b64decode(encoded).decode()


def test_a_notebook_that_is_not_trusted_shows_an_image() -> None:
    page = Model.graph()._repr_mimebundle_()["text/html"]
    assert page.count("<script>") == 1
    kept = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert re.fullmatch('<img [^<>]*alt="&lt;Graph of 30 items and 24 uses&gt;"[^<>]*>', kept)


@pytest.mark.parametrize("path", ["a.png", "a", 3, None])
def test_a_file_of_another_kind_is_refused(path: object) -> None:
    with pytest.raises(MisuseError, match=r"expected the path of a file \.svg, \.html"):
        Model.graph().save(path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("document", "picture"), [("docs/pictures.md", "model.svg"), ("README.md", "readme.svg")]
)
def test_the_picture_of_a_page_is_that_of_its_program(document, picture, request) -> None:
    page = (ROOT / document).read_text("utf-8")
    program = page.partition("@I.ir_module\n")[2].partition("\n\n\n")[0]
    drawn = from_source(f"@I.ir_module\n{program}", filename="model.py").graph()
    update = bool(request.config.getoption("--update-golden"))
    assert_golden(drawn.to_svg(), ROOT / "docs" / "images" / picture, update=update)


NAMES = [
    *('</title><script>alert("x")</script>', "]]></style>", '"]; n1 --> n2["', "a\nb\x00\x1b[31m"),
    *("\ud800", "\u202eabc", "#quot;`**b**`", "x" * 5000, "", "end", "\\", "名前" * 30),
]


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_are_text(name: str) -> None:
    x = rx.Var(name, relax.TensorStructInfo((2,), "float32"))
    y = rx.Var(name, relax.TensorStructInfo((2,), "float32"))
    call = rx.Call(rx.ExternFunc(name), [x], {"a": name})
    block = rx.BindingBlock([rx.VarBinding(y, call)])
    func = rx.Function([x], rx.SeqExpr([block], y), is_pure=False)
    drawn = IRModule({name: func, "f": func}).graph()
    root = ElementTree.fromstring(drawn.to_svg())
    assert [element.tag for element in root.iter(f"{SVG}script")] == [f"{SVG}script"]
    dot = re.sub(r'"(\\.|[^"\\])*"', '""', drawn.to_dot())
    assert re.fullmatch(r"[\w\s=;,\[\]{}>-]*", dot.replace('""', ""))
    for line in drawn.to_mermaid().splitlines():
        assert re.fullmatch(r"[^\"]*(\"[^\"`\\]*\"[^\"]*)?", line)
    assert len(drawn.to_svg()) < 60_000


def test_a_source_with_a_name_like_a_command_is_not_run() -> None:
    text = '@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    return R.exp(x)'
    for name in ("javascript:alert(1)", 'a"b.py', "data:text/html,x"):
        svg = ElementTree.fromstring(from_source(text, filename=name).graph().to_svg())
        links = [element.get("href") or "" for element in svg.iter(f"{SVG}a")]
        assert links != []
        assert all(link.startswith("./") for link in links)


def broken() -> IRModule:
    """A program with a variable that nothing binds, one that is used early, and no function f."""
    sinfo = relax.TensorStructInfo((2,), "float32")
    x, y, z, lost = (rx.Var(name, sinfo) for name in ("x", "y", "z", "lost"))
    one = rx.VarBinding(y, relax.op.add(z, lost))
    other = rx.VarBinding(z, relax.op.exp(x))
    body = rx.SeqExpr([rx.BindingBlock([one, other])], y)
    return IRModule({"main": rx.Function([x], body, sinfo).with_attr("global_symbol", "main")})


def test_a_broken_program_is_drawn_with_its_faults() -> None:
    found = relax.analysis.check_well_formed(broken())
    picture = broken().graph()._scene.picture
    assert by_label(picture, "lost").kind == "unbound"
    assert Counter(item.fault[0] for item in picture.items if item.fault) == Counter(
        diagnostic.rule for diagnostic in found
    )
    assert {item.name for item in picture.items if item.fault} >= {"lost", "z"}
    root = ElementTree.fromstring(broken().graph().to_svg())
    rules = {element.text for element in root.iter(f"{SVG}text") if element.get("class") == "rule"}
    assert rules == {diagnostic.rule for diagnostic in found}
    assert "faulty" in broken().graph().to_mermaid()
    assert "color=red" in broken().graph().to_dot()
    assert "2 faults" in repr(broken().graph()) or len(found) != 2


def test_a_change_is_added_removed_and_kept() -> None:
    passes = relaxpy.transform.Sequential(
        [relax.transform.LegalizeOps(), relax.transform.DeadCodeElimination()]
    )
    explained = explain(Model, passes)
    picture = explained.graph("LegalizeOps")._scene.picture
    changes = {(item.label.partition("(")[0], item.change) for item in picture.items}
    assert {("nn.relu", "removed"), ("relu", "added"), ("x", "kept"), ("if", "kept")} <= changes
    [relu] = [item for item in picture.items if item.label == "relu"]
    [old] = [item for item in picture.items if item.label == "nn.relu"]
    assert picture.items[relu.parent].kind == picture.items[old.parent].kind == "block"
    same = explained.graph("DeadCodeElimination")._scene.picture
    assert {item.change for item in same.items if item.kind not in ("module", "input")} == {"kept"}
    whole = explained.graph()
    assert 'class="kernel added"' in whole.to_svg()
    assert repr(explained.graph("LegalizeOps", "DeadCodeElimination")) == repr(whole)
    assert repr(explained.graph(Model, explained.mod)) == repr(whole)
    with pytest.raises(KeyError, match="FuseOps"):
        explained.graph("FuseOps")


@pytest.mark.parametrize("attrs", [{}, {"global_symbol": "main"}])
def test_functions_alone_have_no_faults(attrs: dict[str, object]) -> None:
    for name in ("main", "product"):
        func = Kernels[name].without_attr("global_symbol").with_attrs(attrs)
        assert "fault" not in repr(func.graph())


@I.ir_module
class Kernels:
    @T.prim_func
    def product(
        a: T.Buffer((4, 8), "float32"), b: T.Buffer((8, 4), "float32"), n: T.int64, c: T.handle
    ):
        C = T.match_buffer(c, (4, 4), "float32")
        sums = T.alloc_buffer((4, 4), "float32")
        for i, j, k in T.grid(4, 4, 8):
            with T.block("sum"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    sums[vi, vj] = T.float32(0)
                sums[vi, vj] = sums[vi, vj] + a[vi, vk] * b[vk, vj]
        for i, j in T.grid(4, 4):
            with T.block("root of it"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.sqrt(sums[vi, vj])

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return R.exp(x)


def test_kernels_are_blocks_that_pass_buffers_on() -> None:
    picture = picture_of(IRModule.from_expr(Kernels["product"]))
    labels = {item.number: item.label for item in picture.items}
    assert {(labels[value], labels[user]) for value, user in picture.uses} == {
        *(("a", "sum"), ("b", "sum"), ("sum", "root of it"), ("root of it", "C"))
    }
    assert kinds(picture) == {"module": 1, "kernel": 1, "parameter": 3, "operator": 2, "result": 1}
    assert by_label(picture, "sum").detail == "vi: spatial, vj: spatial, vk: reduce"


@pytest.mark.parametrize(
    "draw", [lambda: Model["main"].graph(), lambda: relaxpy.compile(Model, "numpy").graph()]
)
def test_functions_and_executables_have_graphs(draw: Callable[[], Graph]) -> None:
    assert "loop" in draw().to_mermaid()


def test_a_program_that_is_too_large_is_drawn_closed() -> None:
    x = y = rx.Var("x", relax.TensorStructInfo((2,), "float32"))
    rows = []
    for index in range(MAX_ITEMS):
        rows.append(rx.VarBinding(rx.Var(f"v{index}", x.struct_info), relax.op.exp(y)))
        y = rows[-1].var
    mod = IRModule({"main": rx.Function([x], rx.SeqExpr([rx.BindingBlock(rows)], y))})
    drawn = graph(mod)
    assert f"{MAX_ITEMS + 2} items, not drawn" in drawn.to_svg()
    assert len(drawn.to_svg()) < 10_000


def nested(count: int) -> rx.Expr:
    expr: rx.Expr = rx.Var("x", relax.TensorStructInfo((2,), "float32"))
    for _ in range(count):
        expr = rx.Call(rx.ExternFunc("f"), [expr])
    return expr


@pytest.mark.parametrize(
    "mod",
    [
        lambda: IRModule({"main": rx.Function([], nested(3 * MAX_ITEMS))}),
        lambda: IRModule(
            {"main": rx.Function([], rx.Tuple([nested(1) for _ in range(3 * MAX_ITEMS)]))}
        ),
        lambda: IRModule(dict.fromkeys([f"f{k}" for k in range(MAX_ITEMS)], Model["main"])),
    ],
)
def test_programs_without_bound_have_bounded_pictures(mod: Callable[[], IRModule]) -> None:
    picture = picture_of(mod())
    assert 0.9 * MAX_ITEMS < len(picture.items) < 1.5 * MAX_ITEMS
    assert any(item.omitted or "others of" in item.label for item in picture.items)
