"""Steps of random ONNX models that compute with numbers: elementwise, reductions, products."""

from __future__ import annotations

import numpy as np

from tests.fuzz.onnx_draw import (
    ANY,
    FLOATS,
    INTEGERS,
    NUMBERS,
    PLAIN,
    STRINGS,
    UNSIGNED,
    Draw,
    Redraw,
    Value,
    step,
)


@step(
    *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Erf", "Exp", "Log"),
    *("Reciprocal", "Sigmoid", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh"),
    *("Mish", "HardSwish"),
)
def _transcendental(d: Draw, op: str) -> None:
    d.node(op, [d.tensor(FLOATS)], rounds=True)


@step("Ceil", "Floor", "Round", "IsNaN", "IsInf", "Sign", "BitwiseNot", "Not")
def _discrete(d: Draw, op: str) -> None:
    kinds = {"BitwiseNot": INTEGERS, "Not": ("bool",), "Sign": NUMBERS}.get(op, FLOATS)
    attributes = d.some(detect_negative=0, detect_positive=0) if op == "IsInf" else {}
    d.node(op, [d.tensor(kinds, exact=True)], **attributes)


@step("Abs", "Neg", "Relu", "Identity")
def _sign(d: Draw, op: str) -> None:
    d.node(op, [d.tensor(ANY if op == "Identity" else NUMBERS)])


@step(
    "Elu", "Celu", "Selu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Shrink", "Gelu", "Swish"
)
def _activation(d: Draw, op: str) -> None:
    options = {
        "Selu": {"alpha": 1.5, "gamma": 0.75},
        "HardSigmoid": {"alpha": 0.125, "beta": 0.25},
        "Shrink": {"lambd": 1.5, "bias": 0.25},
        "Gelu": {"approximate": "tanh"},
    }.get(op, {"alpha": 0.75})
    x = d.tensor(FLOATS, exact=op in ("ThresholdedRelu", "Shrink"))
    d.node(op, [x], rounds=True, **d.some(**options))


@step("PRelu")
def _prelu(d: Draw, op: str) -> None:
    x = d.tensor(FLOATS)
    slope = d.broadcast(x.shape)
    if d.opset < 7:
        slope = d.rng.choice([(1,), x.shape[1:2]])
    d.node(op, [x, d.like(slope, x.dtype)], rounds=True)


def _other(d: Draw, x: Value, *, exact: bool = False) -> tuple[Value, dict[str, int]]:
    """An operand that broadcasts with x, and the attributes that say so in old opsets."""
    if d.opset >= 7:
        return d.like(d.broadcast(x.shape), x.dtype, exact=exact), {}
    if d.chance():
        return d.like(x.shape, x.dtype, exact=exact), {}
    first = d.rng.randint(0, len(x.shape))
    last = d.rng.randint(first, len(x.shape))
    attributes = {"broadcast": 1} | ({} if last == len(x.shape) and d.chance() else {"axis": first})
    return d.like(x.shape[first:last], x.dtype, exact=exact), attributes


@step("Add", "Sub", "Mul")
def _arithmetic(d: Draw, op: str) -> None:
    x = d.tensor(NUMBERS)
    y, attributes = _other(d, x)
    d.node(op, [x, y] if attributes or d.chance() else [y, x], **attributes)


@step("Div", "Mod", "Pow")
def _division(d: Draw, op: str) -> None:
    x = d.tensor(NUMBERS, exact=op == "Mod")
    y, attributes = _other(d, x, exact=op == "Mod")
    if op != "Pow" and np.any(y.array == 0):
        y = d.new(np.where(y.array == 0, np.array(2, y.dtype), y.array).astype(y.dtype))
    if op == "Mod" and ("float" in x.dtype or d.chance(0.3)):
        attributes["fmod"] = 1
    if op == "Pow":
        kind = d.rng.choice((x.dtype, "int64", "float32", "int32")) if d.opset >= 12 else x.dtype
        y = d.new(np.abs(np.round(y.array.astype("float64"))).astype(kind))
    d.node(op, [x, y], rounds=op != "Mod" and "float" in x.dtype, **attributes)


@step("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor")
def _compare(d: Draw, op: str) -> None:
    logical = op in ("And", "Or", "Xor")
    kinds = ANY if d.opset >= 19 else PLAIN
    x = d.tensor(("bool",) if logical else kinds if op == "Equal" else NUMBERS, exact=True)
    y, attributes = _other(d, x, exact=True)
    d.node(op, [x, y], **attributes)


@step("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift")
def _bits(d: Draw, op: str) -> None:
    x = d.tensor(UNSIGNED if op == "BitShift" else INTEGERS)
    attributes = {"direction": d.rng.choice(("LEFT", "RIGHT"))} if op == "BitShift" else {}
    d.node(op, [x, d.like(d.broadcast(x.shape), x.dtype)], **attributes)


@step("Max", "Min", "Sum", "Mean")
def _variadic(d: Draw, op: str) -> None:
    x = d.tensor(NUMBERS if op in ("Max", "Min") else FLOATS)
    shapes = [d.broadcast(x.shape) if d.opset >= 8 else x.shape for _ in range(d.rng.randint(0, 3))]
    d.node(op, [x, *(d.like(shape, x.dtype) for shape in shapes)], rounds=op == "Mean")


@step("Where")
def _where(d: Draw, op: str) -> None:
    x = d.tensor()
    condition = d.like(d.broadcast(x.shape), "bool")
    d.node(op, [condition, x, d.like(d.broadcast(x.shape), x.dtype)])


@step("Clip")
def _clip(d: Draw, op: str) -> None:
    x = d.tensor(NUMBERS if d.opset >= 12 else FLOATS)
    if d.opset < 11:
        d.node(op, [x], **d.some(min=-1.0, max=1.5))
        return
    low = np.array(1 if "u" in x.dtype else -1, x.dtype)
    bounds = [d.new(b) if d.chance(0.6) else None for b in (low, np.array(2, x.dtype))]
    d.node(op, [x, *bounds])


@step("Cast", "CastLike")
def _cast(d: Draw, op: str) -> None:
    kind = d.rng.choice((*PLAIN, STRINGS, STRINGS))
    # Engines write floats in different ways.
    kinds = (*INTEGERS, "bool") if kind == STRINGS else PLAIN
    x = d.tensor(kinds, exact="float" not in kind)
    if d.chance(0.2) and kind not in (STRINGS, "bool"):
        x = d.new(x.array.astype("uint8").astype(str).astype(object))
    if "u" in kind and x.array.size and x.array.astype("float64").min() < 0 and "float" in x.dtype:
        raise Redraw("what negative floats are as unsigned integers is not defined")
    if op == "CastLike":
        d.node(op, [x, d.like(d.shape(), kind)])
        return
    codes = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7}
    codes |= {STRINGS: 8, "bool": 9, "float16": 10, "float64": 11, "uint32": 12, "uint64": 13}
    names = {8: "STRING", 1: "FLOAT", 7: "INT64", 9: "BOOL", 11: "DOUBLE"}
    code = codes[kind]
    if d.opset < 6:
        d.node(op, [x], to=names.get(code, kind.upper()))
    else:
        d.node(op, [x], to=code)


@step(
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
    *("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
)
def _reduce(d: Draw, op: str) -> None:
    x = d.tensor(PLAIN if op in ("ReduceMax", "ReduceMin") and d.opset >= 20 else NUMBERS)
    axes = d.axes(len(x.shape), signed=d.opset >= 11)
    attributes = d.some(keepdims=d.rng.randrange(2))
    operands: list[Value | None] = [x]
    if d.opset >= (13 if op == "ReduceSum" else 18):
        attributes |= d.some(noop_with_empty_axes=d.rng.randrange(2))
        if d.chance(0.7):
            operands.append(d.known(axes))
            if attributes.get("keepdims", 1) and d.chance():
                d.model.open.add(operands[-1].name)
    elif axes and d.chance(0.7):
        attributes["axes"] = axes
    exact = op in ("ReduceMax", "ReduceMin", "ReduceSum")
    d.node(op, operands, rounds=not exact, **attributes)


@step("ArgMax", "ArgMin")
def _arg(d: Draw, op: str) -> None:
    x = d.tensor(NUMBERS, 1, exact=True)
    axis = d.axis(len(x.shape))
    attributes = d.some(keepdims=d.rng.randrange(2)) | (
        {"axis": axis if d.opset >= 11 else abs(axis)} if d.chance(0.7) else {}
    )
    if d.opset >= 12:
        attributes |= d.some(select_last_index=1)
    d.node(op, [x], **attributes)


@step("Softmax", "LogSoftmax", "Hardmax")
def _softmax(d: Draw, op: str) -> None:
    x = d.tensor(FLOATS, 1 if d.opset >= 13 else 2, exact=op == "Hardmax")  # the default axis is 1
    axis = d.axis(len(x.shape))
    d.node(op, [x], rounds=True, **d.some(axis=axis if d.opset >= 11 else abs(axis)))


@step("CumSum", "CumProd")
def _cumulate(d: Draw, op: str) -> None:
    x = d.tensor(NUMBERS, 1)
    axis = d.known(d.axis(len(x.shape)), d.rng.choice(("int32", "int64")))
    d.node(op, [x, axis], rounds=op == "CumProd", **d.some(exclusive=1, reverse=1))


@step("MatMul")
def _matmul(d: Draw, op: str) -> None:
    x = d.tensor((*FLOATS, "int32", "int64", "uint32", "uint64"), 1, 5)
    inner, columns = x.shape[-1], d.rng.choice((0, 1, 2, 3))
    batch = d.broadcast(x.shape[:-2])
    shape = d.rng.choice([(inner,), (inner, columns), (*batch, inner, columns)])
    d.node(op, [x, d.like(shape, x.dtype)])


@step("Gemm")
def _gemm(d: Draw, op: str) -> None:
    x = d.tensor((*FLOATS, "int32", "int64"), 2, 2)
    a, b = d.rng.randrange(2), d.rng.randrange(2)
    rows, inner = x.shape[::-1] if a else x.shape
    columns = d.rng.choice((0, 1, 2, 3))
    y = d.like((columns, inner) if b else (inner, columns), x.dtype)
    attributes = {**({"transA": a} if a else {}), **({"transB": b} if b else {})}
    attributes |= d.some(alpha=0.5, beta=2.0)
    c = None
    if d.opset < 7:
        c = d.like((rows, columns), x.dtype)
        attributes |= d.some(broadcast=1)
    elif d.opset < 11 or d.chance(0.6):
        c = d.like(d.broadcast((rows, columns)), x.dtype)
    d.node(op, [x, y, c], **attributes)


@step("Einsum")
def _einsum(d: Draw, op: str) -> None:
    x = d.tensor(FLOATS, 2, 4)
    letters = "abcd"[: len(x.shape)]
    y = d.like((x.shape[-1], 2), x.dtype)
    result = d.rng.choice([f"{letters[:-1]}z", f"z{letters[:-1]}", "z", letters[0], ""])
    d.node(op, [x, y], equation=f"{letters},{letters[-1]}z->{result}")


@step("Trilu")
def _trilu(d: Draw, op: str) -> None:
    x = d.tensor(PLAIN, low=2)
    k = [d.known(d.rng.randrange(-3, 4))] if d.chance(0.6) else []
    d.node(op, [x, *k], **d.some(upper=d.rng.randrange(2)))


@step("Dropout")
def _dropout(d: Draw, op: str) -> None:
    x = d.tensor(FLOATS)
    outputs = d.rng.choice((1, 2)) if d.opset >= 10 else 1
    if d.opset < 12:
        attributes = d.some(ratio=0.25) | ({"is_test": 1} if d.opset < 7 else {})
        d.node(op, [x], outputs, **attributes)
        return
    ratio = d.new(np.array(0.5, "float32")) if d.chance() else None
    training = d.new(np.array(False)) if d.chance() else None
    d.node(op, [x, ratio, training], outputs)


@step("NonZero", "Unique", "Compress")
def _by_data(d: Draw, op: str) -> None:
    x = d.tensor(low=1, exact=True, kinds=(*FLOATS, "int64", "bool", STRINGS, STRINGS))
    axis = d.axis(len(x.shape))
    if op == "NonZero":
        d.node(op, [x])
    elif op == "Unique":
        d.node(op, [x], d.rng.choice((1, 4)), **d.some(axis=axis, sorted=1))
    else:
        given = d.some(axis=axis)
        size = x.shape[axis] if given else x.array.size
        count = max(size - d.rng.choice((0, 0, 1)), 0)
        d.node(op, [x, d.new(d.array((count,), "bool"), fixed=True)], **given)


@step("Det")
def _det(d: Draw, op: str) -> None:
    x = d.tensor(FLOATS, 2, 3)
    square = d.like((*x.shape[:-2], 3, 3), x.dtype)
    d.node(op, [square], rounds=True)
