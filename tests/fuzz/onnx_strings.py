"""Steps of random ONNX models that read strings."""

from __future__ import annotations

from tests.fuzz.onnx_draw import STRINGS, Draw, step


@step("StringConcat", "StringSplit", "RegexFullMatch", "StringNormalizer")
def _read(d: Draw, op: str) -> None:
    if op == "StringConcat":
        x = d.tensor((STRINGS,))
        d.node(op, [x, d.like(d.broadcast(x.shape), STRINGS)])
    elif op == "StringSplit":
        x = d.tensor((STRINGS,), high=4)
        d.node(op, [x], 2, **d.some(delimiter=d.rng.choice(("", " ", "a")), maxsplit=1))
    elif op == "RegexFullMatch":
        pattern = d.rng.choice((r"\w*", "[ab]+", ".* .*", "", r"-?\d", "[[:alpha:]]"))
        d.node(op, [d.tensor((STRINGS,))], pattern=pattern)
    else:
        given = d.some(
            case_change_action=d.rng.choice(("LOWER", "UPPER", "NONE")),
            is_case_sensitive=d.rng.randrange(2),
            stopwords=d.rng.sample(("a", "ab", "b", "B", "-7"), 2),
        )
        x = d.tensor((STRINGS,), 1, 1) if d.chance() else d.like((1, 4), STRINGS)
        d.node(op, [x], locale="C", **given)
