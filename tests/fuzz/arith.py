"""Random questions to integer reasoning, and whether the answers are true.

`python -m tests.fuzz.arith COUNT [SEED]` holds COUNT sessions, and as many about data, whose
arithmetic wraps around (`wrapping.py`). An answer is compared with the values of the expressions by
definition; and no question gets anything but an answer or an error of the package's own.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

from relaxpy import arith
from relaxpy.arith import Analyzer, ConstIntBound, Extension, IntervalSet, ModularSet
from relaxpy.errors import RelaxpyError
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.iteration import Range
from tests.fuzz import wrapping
from tests.fuzz.progress import command_line, report
from tests.fuzz.scalars import Env, Expressions, NoValueError, evaluate, limits, same, text

E = tir.PrimExpr
POINTS = 24
QUESTIONS_EACH = 8
# What has an answer for every expression that divides by no literal 0.
ANSWERED = (
    *("simplify", "rewrite_simplify", "canonical_simplify", "const_int_bound", "modular_set"),
    *("can_prove", "prove_equal", "int_set", "can_prove_less", "can_prove_greater_equal"),
    *("constraint_scope", "detect_common_subexpr", "detect_linear_equation"),
    "detect_clip_bound",
)


class WrongAnswerError(AssertionError):
    """An answer that does not hold, or an error that no caller expects."""


class Session:
    """One analyzer with some facts, and the points at which these hold."""

    def __init__(self, seed: str, dtypes: tuple[str, ...] | None = None) -> None:
        self.chosen = random.Random(seed)
        self.seed = seed
        self.source = Expressions(self.chosen, dtypes)
        self.analyzer = Analyzer()
        self.told: list[str] = []
        self.tests: list[Callable[[Env], bool]] = []
        self.values: dict[tir.Var, E] = {}

    def ask(self, count: int) -> None:
        """Tell some facts and ask `count` questions. Errors: WrongAnswerError."""
        for _ in range(self.chosen.choice((0, 0, 1, 2))):
            self.tell()
        condition = self.source.condition(2) if self.chosen.random() < 0.3 else None
        if condition is None:
            self.questions(count)
            return
        self.told.append(f"where {text(condition)}")
        self.tests.append(lambda env: bool(evaluate(condition, env)))

        scope = self.analyzer.constraint_scope(condition)
        self.run("constraint_scope", (condition,), scope.__enter__)
        self.questions(count)
        scope.__exit__(None, None, None)

    def questions(self, count: int) -> None:
        points = list(self.points())
        for _ in range(count):
            question = self.chosen.choice(QUESTIONS)
            question(self, points)

    def tell(self) -> None:
        chosen, analyzer = self.chosen, self.analyzer
        integers = [
            v
            for dtype, own in self.source.variables.items()
            if dtype.startswith(("int", "uint"))
            for v in own
        ]
        var = chosen.choice(integers)
        low, high = limits(str(var.dtype))
        begin = max(low, min(high, chosen.choice((-5, -1, 0, 1, 2, low))))
        kind = chosen.randint(0, 4)
        if kind == 0:
            extent = max(1, min(high - begin, chosen.choice((1, 2, 7, 16))))
            domain = Range.from_min_extent(
                ops.const(begin, var.dtype), ops.const(extent, var.dtype)
            )
            self.state(f"{var} in {domain}", (var,), lambda: analyzer.bind(var, domain, True))
            self.tests.append(lambda env: begin <= env[var] < begin + extent)
        elif kind == 1:
            bound = ConstIntBound(begin, min(high, begin + chosen.choice((0, 3, 40))))
            self.state(f"{var}: {bound}", (var,), lambda: analyzer.update(var, bound, True))
            self.tests.append(lambda env: bound.min_value <= env[var] <= bound.max_value)
        elif kind == 2:
            coeff = chosen.choice((0, 1, 2, 3, 8))
            known = ModularSet(coeff, chosen.randint(0, 3))
            self.state(f"{var}: {known}", (var,), lambda: analyzer.update(var, known, True))
            self.tests.append(
                lambda env: (
                    (env[var] - known.base) % coeff == 0 if coeff else env[var] == known.base
                )
            )
        elif kind == 3:
            value = self.source.number(str(var.dtype), 2)
            inside = set(tir_vars(value))
            if var in inside or var in self.values or inside & self.values.keys():
                return
            self.values[var] = value
            self.state(
                f"{var} = {text(value)}", (var, value), lambda: analyzer.bind(var, value, True)
            )
            self.tests.append(lambda env: bool(env[var] == evaluate(value, env)))
        else:
            flags = chosen.randint(0, 15)
            self.told.append(f"extensions {flags}")
            analyzer.enabled_extensions = Extension(flags)

    def state(self, what: str, about: tuple[E, ...], work: Callable[[], object]) -> None:
        self.told.append(what)
        self.run("a fact", about, work)

    def points(self) -> Iterator[Env]:
        """Points at which all that was told is true."""
        for _ in range(4 * POINTS):
            env = self.source.point()
            try:
                for var, value in self.values.items():
                    env[var] = evaluate(value, env)
                if all(test(env) for test in self.tests):
                    yield env
            except NoValueError:
                continue

    def run(self, name: str, about: tuple[Any, ...], work: Callable[[], Any]) -> Any:
        """What `work` gives, None for an error of the package's own."""
        try:
            return work()
        except RelaxpyError as error:
            if name in ANSWERED and "PX-3" not in str(error):
                raise self.wrong(name, about, repr(error)) from error
            return None
        except WrongAnswerError:
            raise
        except Exception as error:
            raise self.wrong(name, about, f"{type(error).__name__}: {error}") from error

    def wrong(self, name: str, about: tuple[Any, ...], found: object) -> WrongAnswerError:
        lines = [f"seed {self.seed}: {name}", *self.told]
        lines += [text(part) if isinstance(part, E) else repr(part) for part in about]
        return WrongAnswerError("\n  ".join([*lines, f"gives {found}"]))


def tir_vars(expr: E) -> Iterator[tir.Var]:
    from relaxpy.ir.core.traverse import walk

    return (node for node in walk(expr) if isinstance(node, tir.Var))


def value_at(expr: E, env: Env, *, exact: bool = True) -> Any:
    """The value, None where there is none."""
    try:
        return evaluate(expr, env, exact=exact)
    except NoValueError:
        return None


def shown(env: Env) -> str:
    return ", ".join(f"{var.name}_{var.dtype}={value!r}" for var, value in env.items())


# --- questions of the Analyzer


def simplified(session: Session, points: list[Env]) -> None:
    expr = session.source.any(session.chosen.randint(2, 8))
    method = session.chosen.choice(("simplify", "rewrite_simplify", "canonical_simplify"))
    found = session.run(method, (expr,), lambda: getattr(session.analyzer, method)(expr))
    if found is None:
        return
    if found.dtype != expr.dtype:
        raise session.wrong(method, (expr, found), f"another datatype, {found.dtype}")
    for env in points:
        value = value_at(expr, env)
        if value is not None:
            again = value_at(found, env, exact=False)
            if again is None or not same(value, again):
                raise session.wrong(
                    method, (expr, found), f"{again!r}, not {value!r}: {shown(env)}"
                )


def bounded(session: Session, points: list[Env]) -> None:
    expr = session.source.any(session.chosen.randint(1, 7))
    found = session.run(
        "const_int_bound", (expr,), lambda: session.analyzer.const_int_bound(expr).interval
    )
    if found is None or not expr.dtype.is_int:
        return
    for env in points:
        value = value_at(expr, env)
        for lane in value if isinstance(value, tuple) else (value,):
            if lane is not None and not found[0] <= lane <= found[1]:
                raise session.wrong("const_int_bound", (expr, found), f"{lane}: {shown(env)}")


def modular(session: Session, points: list[Env]) -> None:
    expr = session.source.any(session.chosen.randint(1, 7))
    found = session.run("modular_set", (expr,), lambda: session.analyzer.modular_set(expr))
    if found is None or not expr.dtype.is_int:
        return
    for env in points:
        value = value_at(expr, env)
        for lane in value if isinstance(value, tuple) else (value,):
            if lane is None:
                continue
            apart = lane - found.base
            if apart % found.coeff if found.coeff else apart:
                raise session.wrong("modular_set", (expr, found), f"{lane}: {shown(env)}")


def proved(session: Session, points: list[Env]) -> None:
    condition = session.source.condition(session.chosen.randint(1, 4))
    strength = arith.ProofStrength(session.chosen.randint(0, 1))
    found = session.run(
        "can_prove", (condition,), lambda: session.analyzer.can_prove(condition, strength)
    )
    for env in points if found else ():
        if value_at(condition, env) is False:
            raise session.wrong("can_prove", (condition,), f"True: {shown(env)}")


def equal(session: Session, points: list[Env]) -> None:
    dtypes = session.source.dtypes
    dtype = session.chosen.choice(dtypes)
    a = session.source.number(dtype, session.chosen.randint(1, 5))
    b = session.source.number(dtype, session.chosen.randint(1, 5))
    if session.chosen.random() < 0.3:
        simple = session.run("simplify", (a,), lambda: arith.simplify(a))
        b = b if simple is None else simple
    found = session.run("prove_equal", (a, b), lambda: session.analyzer.prove_equal(a, b))
    plain = session.run("prove_equal", (a, b), lambda: arith.prove_equal(a, b))
    for env in points:
        p, q = value_at(a, env), value_at(b, env)
        if p is None or q is None:
            continue
        for answer in (found, plain):
            if answer is not None and answer != bool(p == q) and p == p and q == q:
                raise session.wrong("prove_equal", (a, b), f"{answer}: {shown(env)}")


def limited(session: Session, points: list[Env]) -> None:
    expr = session.source.number(session.chosen.choice(session.source.dtypes), 4)
    limit = session.chosen.choice((-9, -1, 0, 1, 4, 2**31, -(2**63), 2**63, 2**70))
    above = session.run(
        "can_prove_greater_equal",
        (expr, limit),
        lambda: session.analyzer.can_prove_greater_equal(expr, limit),
    )
    below = session.run(
        "can_prove_less", (expr, limit), lambda: session.analyzer.can_prove_less(expr, limit)
    )
    for env in points:
        value = value_at(expr, env)
        if value is None or value != value:
            continue
        if (above and value < limit) or (below and value >= limit):
            raise session.wrong("can_prove_less", (expr, limit), f"{above, below}: {shown(env)}")


def shape_limit(session: Session, points: list[Env]) -> None:
    a, b = (session.source.number("int64", 3) for _ in range(2))
    method = session.analyzer.can_prove_less_equal_than_symbolic_shape_value
    found = session.run("can_prove_less_equal_…", (a, b), lambda: method(a, b))
    for env in points if found else ():
        p, q = value_at(a, env), value_at(b, env)
        if p is not None and q is not None and p > q:
            raise session.wrong("can_prove_less_equal_…", (a, b), f"True: {shown(env)}")


def domains(session: Session, count: int = 2) -> dict[tir.Var, Any]:
    """Intervals or Ranges for some variables, literal or over others."""
    chosen, found = session.chosen, {}
    own = [v for dtype in ("int32", "int64") for v in session.source.variables[dtype]]
    for var in chosen.sample(own, count):
        begin = chosen.randint(-4, 3)
        extent: E | int = chosen.randint(1, 6)
        if chosen.random() < 0.15:
            extent = chosen.choice(own)
        low = ops.const(begin, var.dtype)
        extent = ops.cast_to(ops.convert(extent), var.dtype)
        if chosen.random() < 0.5:
            found[var] = Range.from_min_extent(low, extent)
        else:
            ends: list[Any] = [low, ops.sub(ops.add(low, extent), 1)]
            if chosen.random() < 0.2:
                ends[chosen.randint(0, 1)] = None
            found[var] = IntervalSet(*ends)
    return found


def ends_at(table: dict[tir.Var, Any], env: Env) -> bool:
    """Whether the variables of `table` lie in their domains at `env`."""
    found = {var: IntervalSet.of(domain) for var, domain in table.items()}
    ends = [end for d in found.values() for end in (d.min_value, d.max_value)]
    known = all(end.dtype == "handle" or value_at(end, env) is not None for end in ends)
    return known and all(lies_in(env[var], domain, env) for var, domain in found.items())


def lies_in(value: int, covered: IntervalSet, env: Env) -> bool:
    low = value_at(covered.min_value, env) if covered.has_lower_bound() else -math.inf
    high = value_at(covered.max_value, env) if covered.has_upper_bound() else math.inf
    return (low is None or low <= value) and (high is None or value <= high)


def covered(session: Session, points: list[Env]) -> None:
    expr = session.source.any(session.chosen.randint(1, 5))
    table = domains(session)
    found = session.run("int_set", (expr, table), lambda: session.analyzer.int_set(expr, table))
    if found is None or not expr.dtype.is_int or found.is_nothing():
        return
    inside = [env for env in points if ends_at(table, env)]
    for env in inside:
        value = value_at(expr, env)
        for lane in value if isinstance(value, tuple) else (value,):
            if lane is not None and not lies_in(lane, found, env):
                raise session.wrong("int_set", (expr, table, found), f"{lane}: {shown(env)}")


# --- functions beside the Analyzer


def linear(session: Session, points: list[Env]) -> None:
    expr = session.source.any(session.chosen.randint(1, 6))
    own = session.source.variables
    chosen = session.chosen.sample(own["int32"] + own["int64"], 2)
    found = session.run(
        "detect_linear_equation", (expr,), lambda: arith.detect_linear_equation(expr, chosen)
    )
    if not found or expr.dtype.vector or expr.dtype.family != "int":
        return
    for env in points:
        value = value_at(expr, env)
        parts = [value_at(part, env, exact=False) for part in found]
        if value is None or None in parts:
            continue
        total = parts[-1] + sum(p * env[v] for p, v in zip(parts, chosen, strict=False))
        if total != value:
            raise session.wrong("detect_linear_equation", (expr, *found), f"{value}: {shown(env)}")


def clipped(session: Session, points: list[Env]) -> None:
    condition = session.source.condition(session.chosen.randint(1, 3))
    own = session.source.variables
    variables = session.chosen.sample(own["int32"] + own["int64"], 2)
    found = session.run(
        "detect_clip_bound", (condition,), lambda: arith.detect_clip_bound(condition, variables)
    )
    for env in points if found else ():
        if value_at(condition, env) is not True:
            continue
        for k, var in enumerate(variables):
            low, high = (
                None if end is None else value_at(end, env, exact=False)
                for end in found[2 * k : 2 * k + 2]
            )
            if (low is not None and env[var] < low) or (high is not None and env[var] > high):
                raise session.wrong("detect_clip_bound", (condition, *found), shown(env))


def repeated(session: Session, points: list[Env]) -> None:
    expr = session.source.any(session.chosen.randint(1, 8))
    session.run("detect_common_subexpr", (expr,), lambda: arith.detect_common_subexpr(expr, 2))


def iterators(session: Session) -> dict[tir.Var, Range]:
    chosen = session.chosen
    own = chosen.sample(session.source.variables["int32"], chosen.randint(1, 3))
    return {
        var: Range.from_min_extent(
            ops.const(chosen.choice((0, 0, 0, 1, -2)), "int32"),
            ops.const(chosen.choice((1, 2, 3, 4, 6, 8)), "int32"),
        )
        for var in own
    }


def index(session: Session, iters: dict[tir.Var, Range]) -> E:
    """Something that is often an index: sums, quotients and remainders of iterators."""
    chosen = session.chosen
    if chosen.random() < 0.1:
        return session.source.any(3)
    total: E = ops.const(chosen.choice((0, 0, 1, -3)), "int32")
    for var in iters:
        total = total + var * chosen.choice((0, 1, 1, 2, 3, 4, 8, 12, -1))
    for _ in range(chosen.randint(0, 2)):
        by = ops.const(chosen.choice((1, 2, 3, 4, 8)), "int32")
        total = chosen.choice((tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod))(total, by)
        if chosen.random() < 0.3:
            total = total * chosen.choice((2, 3, -1)) + chosen.choice(list(iters))
    return total


def runs(iters: dict[tir.Var, Range]) -> Iterator[Env]:
    """All values of the iterators."""
    found: list[dict[tir.Var, int]] = [{}]
    for var, domain in iters.items():
        start, extent = int(domain.min), int(domain.extent)  # type: ignore[call-overload]
        found = [{**env, var: k} for env in found for k in range(start, start + extent)]
    return iter(found)


def predicate_over(session: Session, iters: dict[tir.Var, Range]) -> E:
    """A condition on iterators, or the one that always holds."""
    chosen = session.chosen
    if chosen.random() < 0.5:
        return ops.const(True)
    parts: list[E] = []
    for _ in range(chosen.choice((1, 2))):
        bounded = index(session, iters) if chosen.random() < 0.5 else chosen.choice([*iters])
        if bounded.dtype == "int32":
            kind = chosen.choice((tir.LT, tir.LE, tir.GT, tir.GE, tir.EQ))
            parts.append(ops.compare(kind, bounded, chosen.randint(-2, 9)))
    if parts and chosen.random() < 0.2:
        parts[0] = ops.logical_not(parts[0])
    joined = chosen.choice((ops.all_of, ops.any_of))
    return joined(*parts) if parts else ops.const(True)


def iterated(session: Session, points: list[Env]) -> None:
    iters = iterators(session)
    indices = [index(session, iters) for _ in range(session.chosen.randint(1, 2))]
    predicate = predicate_over(session, iters)
    level = session.chosen.choice((0, 1, 3))
    about = (indices, iters, predicate, level)
    found = session.run("detect_iter_map", about, lambda: arith.detect_iter_map(*about))
    simple = session.run("iter_map_simplify", about, lambda: arith.iter_map_simplify(*about))
    first = indices[0]
    summed = session.run(
        "normalize_to_iter_sum", about, lambda: arith.normalize_to_iter_sum(first, iters)
    )
    forms: list[tuple[E, E]] = []
    if found is not None and not found.errors and level != 3 and not found.padded:
        forms += zip(indices, map(arith.normalize_iter_map_to_expr, found.indices), strict=True)
    if simple is not None:
        forms += zip(indices, simple, strict=True)
    if summed is not None:
        forms.append((first, arith.normalize_iter_map_to_expr(summed)))
    taken = set()
    point = points[0] if points else session.source.point()
    for env in runs(iters):
        full = {**point, **env}
        holds = value_at(predicate, full)
        if holds is None:
            return
        if not holds:
            continue
        for before, after in forms:
            value = value_at(before, full)
            if value is not None and not same(value_at(after, full, exact=False), value):
                raise session.wrong("iterator maps", (*about, before, after), shown(full))
        taken.add(tuple(value_at(i, full) for i in indices))
    if found is not None and not found.errors and level == 0 and not found.padded:
        count = math.prod(
            int(s.extent.value) if isinstance(s.extent, tir.IntImm) else 0  # type: ignore[attr-defined]
            for i in found.indices
            for s in i.args
        )
        if count and count != len(taken):
            raise session.wrong("detect_iter_map", about, f"{found}: {len(taken)} values")
    if found is not None and not found.errors:
        outputs = [tir.Var(f"o{k}", "int32") for k in range(len(found.indices))]
        session.run(
            "inverse_affine_iter_map",
            about,
            lambda: arith.inverse_affine_iter_map(list(found.indices), outputs),
        )
    own = list(iters)[: session.chosen.randint(0, len(iters))]
    session.run(
        "subspace_divide",
        about,
        lambda: arith.subspace_divide(indices, iters, own, predicate, level),
    )


def sets(session: Session, points: list[Env]) -> None:
    chosen = session.chosen
    parts = []
    for _ in range(chosen.randint(0, 4)):
        begin = chosen.choice((chosen.randint(-5, 9), session.source.leaf("int32")))
        parts.append(IntervalSet(begin, begin + chosen.randint(-1, 4)))
    found = session.run("union_lower_bound", (parts,), lambda: arith.union_lower_bound(parts))
    for env in points[:4] if found is not None and not found.is_nothing() else ():
        if not (found.has_lower_bound() and found.has_upper_bound()):
            continue
        low, high = value_at(found.min_value, env), value_at(found.max_value, env)
        if low is None or high is None:
            continue
        for value in range(low, min(high, low + 40) + 1):
            if not any(lies_in(value, part, env) for part in parts):
                raise session.wrong("union_lower_bound", (parts, found), f"{value}: {shown(env)}")
    vector = session.source.vector(chosen.choice(session.source.dtypes[:2]), 4, 2)
    session.run("IntSet.vector", (vector,), lambda: arith.IntSet.vector(vector))
    condition = session.source.condition(2)
    session.run("PresburgerSet", (condition,), lambda: arith.PresburgerSet(condition).is_nothing())


QUESTIONS: list[Callable[[Session, list[Env]], None]] = [
    *([simplified] * 6),
    *([bounded] * 3),
    *([modular] * 3),
    *([proved] * 3),
    *([equal] * 2),
    limited,
    shape_limit,
    *([covered] * 3),
    linear,
    clipped,
    repeated,
    *([iterated] * 2),
    sets,
]


def main(count: int, seed: str) -> int:
    """Report wrong answers in `count` sessions; 1 if there are any."""
    ask = lambda name, number: Session(name).ask(QUESTIONS_EACH)  # noqa: E731
    wrap = lambda name, number: wrapping.Session(name).ask(QUESTIONS_EACH)  # noqa: E731
    wrong = report("sessions of queries", count, seed, ask)
    return report("sessions of queries about data", count, seed, wrap) or wrong


if __name__ == "__main__":
    command_line(main)
