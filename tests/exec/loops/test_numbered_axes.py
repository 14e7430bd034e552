"""One axis of a store numbers the iterations of several axes of an accumulation."""

import pytest

from tests.exec.loops.written import run_row

ROW = """
def sums(x: f32[30, 5], y: f32[30]):
    for i in range(SIZE):
        y[i] = INITIAL
    for i in OUTER:
        for j in range(4):
            for k in range(5):
                y[INDEX] = y[INDEX] + x[INDEX, k]
# args: x=[k * k % 7 - 3 for k in range(150)], y=[99] * 30
# rtol: 0
"""
CASES = {
    "i * 4 + j": (True, "T.serial(3)", 12),
    "j * 3 + i": (True, "T.serial(3)", 12),
    "i * 4 + j + 2": (False, "T.serial(3)", 12),
    "i * 4 + j ": (False, "T.serial(3)", 13),
    "i * 5 + j": (False, "T.serial(3)", 15),
    "i + j": (False, "T.serial(3)", 6),
    "j * 4 + i": (False, "T.serial(3)", 16),
    "i * 4 + j - 4": (True, "T.serial(1, 4)", 12),
}


@pytest.mark.parametrize("index", CASES)
@pytest.mark.parametrize("initial", ["f32(7)", "x[i, 0] * f32(2)"])
def test_stores_of_initial_values(index: str, initial: str) -> None:
    is_folded, outer, size = CASES[index]
    row = ROW.replace("OUTER", outer).replace("INITIAL", initial).replace("SIZE", str(size))
    tree = f"# {'tree' if is_folded else 'not tree'}: from T.float32(7.0)\n"
    run_row(row.replace("INDEX", index) + tree * (initial == "f32(7)"))
