"""Random bodies of graph functions of few operators, so that patterns of several operators match.

What is varied, each by itself:

- `bodies`: which one to three operators a program has, of one operand or two, the same twice or the
  last values or any; bindings in a row, dataflow blocks with one output or two, conditionals one
  deep, packed calls in between, which are pure, have an effect, or change an argument in place;
- `chains`: values computed from each other, and calls that change one of them in between, which
  may be a parameter;
- the result: a value bound before, or a call.

Names are distinct and all shapes (4,): names are varied by `graph_nodes.py`, shapes by `graphs.py`.
"""

from hypothesis import strategies as st

INFO = 'R.Tensor((4,), "float32")'
WORDS = ("negative", "abs", "add", "twice", "subtract", "maximum", "multiply")


@st.composite
def bodies(
    draw: st.DrawFn, depth: int = 1, impure: bool = True, words: tuple[str, ...] = ()
) -> tuple[list[str], str]:
    """The lines of a function of x, y and the condition c, and its result.

    Few operators to a program, so that patterns of several find something.
    """
    words = words or tuple(draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)))
    known = ["x", "y"]
    lines: list[str] = []

    def operand() -> str:
        return draw(st.sampled_from([known[-1], known[-1], *known[-3:], "x"]))

    def value() -> str:
        word = draw(st.sampled_from(words))
        if word == "twice":
            word, operands = "add", [operand()] * 2
        else:
            operands = [operand() for _ in range(1 if word in ("negative", "abs") else 2)]
        return f"R.{word}({', '.join(operands)})"

    for index in range(draw(st.integers(2, 7))):
        kind = draw(st.integers(0, 9))
        if kind < (4 if impure else 5):
            lines.append(f"v{index} = {value()}")
            known.append(f"v{index}")
        elif kind < 6:
            names = [f"d{index}_{i}" for i in range(draw(st.integers(1, 4)))]
            lines.append("with R.dataflow():")
            before = len(known)
            for name in names:
                lines.append(f"    {name} = {value()}")
                known.append(name)
            outputs = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
            known[before:] = outputs
            lines.append(f"    R.output({', '.join(outputs)})")
        elif kind < 7 and depth:
            lines.append("if c:")
            for branch in ("if", "else"):
                inner, result = draw(bodies(depth - 1, impure, words))
                renamed = [f"    {line}" for line in inner]
                lines += [*renamed, f"    w{index} = {result}"]
                if branch == "if":
                    lines.append("else:")
            known.append(f"w{index}")
        elif impure:
            word = draw(st.sampled_from(["keep", "remember", "change", "change"]))
            if word == "keep":  # pure, but it may fail, so it is made where it stands all the same
                call = f'R.call_pure_packed("test.dpl.remember", {operand()}, sinfo_args={INFO})'
                lines.append(f"v{index} = {call}")
                known.append(f"v{index}")
            else:
                lines.append(f'_ = R.call_packed("test.dpl.{word}", {operand()})')
    if draw(st.booleans()):
        return lines, value()
    return lines, draw(st.sampled_from(known))


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[str], str]:
    """Values computed from each other, and calls that change one of them in between."""
    words = draw(st.sampled_from([("negative", "abs"), ("twice",), ("negative", "multiply")]))
    known = ["x"]
    lines = []
    for index in range(draw(st.integers(2, 4))):
        near = st.sampled_from([known[-1], known[-1], "x"])
        word = draw(st.sampled_from(words))
        if word == "twice":
            operands = [draw(near)] * 2
        else:
            operands = [draw(near) for _ in range(1 + (word == "multiply"))]
        lines.append(f"v{index} = R.{word.replace('twice', 'add')}({', '.join(operands)})")
        known.append(f"v{index}")
        if draw(st.booleans()):
            lines.append(f'_ = R.call_packed("test.dpl.change", {draw(near)})')
    return lines, f"R.add({draw(st.sampled_from(known))}, {known[-1]})"
