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
    "overwritten": (
        "@T.prim_func(private=True)\n"
        "def overwritten(a: T.handle):\n"
        "    p, q = T.int64(), T.int64()\n"
        '    A = T.match_buffer(a, (p, q), "float32")\n'
        "    for i, j in T.grid(p, q):\n"
        '        with T.block("A"):\n'
        '            vi, vj = T.axis.remap("SS", [i, j])\n'
        "            A[vi, vj] = A[vi, vj] + A[vi, vj]\n"
    ),
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
