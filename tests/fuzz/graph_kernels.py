"""The functions that random graph programs call besides their own: texts by name."""

KERNELS = {
    "doubled": (
        "@T.prim_func(private=True)\n"
        "def doubled(a: T.handle, b: T.handle):\n"
        "    p, q = T.int64(), T.int64()\n"
        '    A = T.match_buffer(a, (p, q), "float32")\n'
        '    B = T.match_buffer(b, (p, q), "float32")\n'
        "    for i, j in T.grid(p, q):\n"
        '        with T.block("B"):\n'
        '            vi, vj = T.axis.remap("SS", [i, j])\n'
        "            B[vi, vj] = A[vi, vj] + A[vi, vj]\n"
    ),
    "columns": (
        "@T.prim_func(private=True)\n"
        "def columns(a: T.handle, b: T.handle):\n"
        "    p, q = T.int64(), T.int64()\n"
        '    A = T.match_buffer(a, (p, q), "int32")\n'
        '    B = T.match_buffer(b, (q,), "int32")\n'
        "    for j, i in T.grid(q, p):\n"
        '        with T.block("B"):\n'
        '            vj, vi = T.axis.remap("SR", [j, i])\n'
        "            with T.init():\n"
        "                B[vj] = 0\n"
        "            B[vj] = B[vj] + A[vi, vj]\n"
    ),
    **{
        name: (
            "@T.prim_func(private=True)\n"
            f"def {name}(a: T.handle):\n"
            "    p, q = T.int64(), T.int64()\n"
            '    A = T.match_buffer(a, (p, q), "float32")\n'
            f"    for i, j in T.grid(p, {columns}):\n"
            '        with T.block("A"):\n'
            '            vi, vj = T.axis.remap("SS", [i, j])\n'
            f"{where}"
            f"            A[vi, {column}] = A[vi, {column}] + A[vi, {column}]\n"
        )
        for name, columns, column, where in (
            ("overwritten", "q", "vj", ""),
            ("later_rows", "q", "vj", "            T.where(i > 0)\n"),
            ("even_columns", "(q + 1) // 2", "vj * 2", ""),
        )
    },
    "repeated": "".join(
        "@R.function(private=True)\n"
        f'def {name}(x: R.Tensor(("k", "l"), "float32"), count: R.Tensor((), "int64"))'
        ' -> R.Tensor(("k", "l"), "float32"):\n'
        "    cls = Module\n"
        '    ends = R.less(count, R.const(1, "int64"))\n'
        "    if ends:\n"
        "        r = x\n"
        "    else:\n"
        "        y = R.negative(x)\n"
        '        less = R.subtract(count, R.const(1, "int64"))\n'
        f"        r = cls.{other}(y, less)\n"
        "    return r\n\n"
        for name, other in (("repeated", "again"), ("again", "repeated"))
    ),
}


def decoding(name: str, rows: int, size: int, bits: int, group: int, dtype: str) -> str:
    """A kernel that decodes rows of `size` weights of few bits, with a scale for each group."""
    per_word, groups = 32 // bits, -(-size // group)
    return (
        "@T.prim_func(private=True)\n"
        f'def {name}(P: T.Buffer(({rows}, {groups * group // per_word}), "uint32"), '
        f'S: T.Buffer(({rows}, {groups}), "{dtype}"), W: T.Buffer(({rows}, {size}), "{dtype}")):\n'
        f"    for i, j in T.grid({rows}, {size}):\n"
        '        with T.block("W"):\n'
        '            vi, vj = T.axis.remap("SS", [i, j])\n'
        f'            W[vi, vj] = (T.Cast("{dtype}", T.bitwise_and(T.shift_right('
        f'P[vi, vj // {per_word}], T.Cast("uint32", vj % {per_word}) * T.uint32({bits})), '
        f"T.uint32({(1 << bits) - 1}))) - T.{dtype}({(1 << bits - 1) - 1})) "
        f"* S[vi, vj // {group}]\n"
    )
