"""The statements of a kernel as plain Python loops, for the oracle."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from tests.fuzz.kernels.reading import (
    DTYPES,
    Axis,
    Given,
    Layout,
    UnreadableError,
    Value,
    Variable,
    calls,
    conjuncts,
    inner_loop,
    is_call_of,
    is_ignored,
    is_init,
    literal_type,
    may_reduce,
    name_of,
    names_in,
    parts_of,
    predicate_of,
)
from tests.fuzz.kernels.values import Values

_LOOPS = {"serial", "parallel", "vectorized", "unroll", "thread_binding"}


class Writer(Values):
    """Writes the Python of one function; `empty` are the loops without iteration around a block."""

    def __init__(self, function: ast.FunctionDef) -> None:
        super().__init__()
        self.regions: list[ast.stmt] = []
        """The matched regions around a block that may begin: laid where it does."""
        self._function(function)

    # ---- the function and its arguments

    def _function(self, node: ast.FunctionDef) -> None:
        body = [s for s in node.body if not is_ignored(s)]
        self.symbols: set[str] = set()
        self.handles: dict[str, str] = {}
        arrays: list[tuple[str, ast.Call]] = []
        params = [self.fresh(a.arg) for a in node.args.args]
        self.write(f"def program({', '.join(['m', *params])}):")
        self.depth += 1
        self.write("empty = frozenset()")
        for arg, code in zip(node.args.args, params, strict=True):
            annotation = arg.annotation
            if isinstance(annotation, ast.Call) and name_of(annotation.func) == "Buffer":
                self.handles[arg.arg] = code
                arrays.append((arg.arg, annotation))
            elif name_of(annotation) == "handle":
                self.handles[arg.arg] = code
            elif name_of(annotation) in DTYPES:
                dtype = name_of(annotation)
                self.scopes[-1][arg.arg] = Variable(code, dtype)
                self.write(f"{code} = m.scalar({arg.arg!r}, {code}, {dtype!r})")
            else:
                raise UnreadableError(f"parameter {arg.arg}")
        for statement in body:
            if is_call_of(statement, "match_buffer") and (found := self._matched(statement)):
                arrays.append(found)
            elif isinstance(statement, ast.Assign) and self._is_symbol(statement.value):
                self._declare(statement)
        rest = [
            s
            for s in body
            if not (is_call_of(s, "match_buffer") and self._matched(s))
            and not (isinstance(s, ast.Assign) and self._is_symbol(s.value))
        ]
        self._bind(arrays, {a.arg: p for a, p in zip(node.args.args, params, strict=True)})
        self._body(rest)
        self.depth -= 1

    def _matched(self, statement: ast.stmt) -> tuple[str, ast.Call] | None:
        assert isinstance(statement, ast.Assign)
        assert isinstance(statement.value, ast.Call)
        [target] = statement.targets
        source = statement.value.args[0]
        if (
            isinstance(source, ast.Name)
            and source.id in self.handles
            and isinstance(target, ast.Name)
        ):
            return target.id, statement.value
        return None

    def _is_symbol(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and name_of(node.func) in DTYPES and not node.args

    def _declare(self, statement: ast.Assign) -> None:
        [target] = statement.targets
        assert isinstance(target, ast.Name)
        assert isinstance(statement.value, ast.Call)
        self.define(target.id, name_of(statement.value.func))
        self.symbols.add(target.id)

    def _bind(self, arrays: list[tuple[str, ast.Call]], params: dict[str, str]) -> None:
        """Arguments in the order of the parameters: first lone variables, then all comparisons."""
        order = list(params)
        layouts = []
        for name, call in arrays:
            is_match = name_of(call.func) == "match_buffer"
            handle = call.args[0].id if is_match else name  # type: ignore[attr-defined]
            layouts.append(
                (order.index(handle), name, Layout(call, skip=int(is_match)), params[handle])
            )
        layouts.sort(key=lambda found: found[0])
        found = []
        for _, name, layout, code in layouts:
            rank = len(layout.shape)
            own = code if self.handles.get(name) == code else self.fresh(name)
            self.scopes[-1][name] = Variable(own, layout.dtype, rank)
            self.write(f"{own} = m.argument({name!r}, {code}, {layout.dtype!r}, {rank})")
            found.append((own, layout))
        self.unbound: set[str] = set()
        known: set[str] = set()
        for own, layout in found:
            facts = [(e, f"{own}.array.shape[{a}]") for a, e in enumerate(layout.shape)]
            facts += [
                (e, f"{own}.array.strides[{a}] // {own}.array.itemsize")
                for a, e in enumerate(layout.strides or ())
            ]
            facts += [(layout.offset, "0")] if layout.offset is not None else []
            for expr, value in facts:
                if isinstance(expr, ast.Name) and expr.id in self.symbols - known:
                    known.add(expr.id)
                    self.write(f"{self.find(expr.id).code} = {value}")
        self.unbound = self.symbols - known
        for own, layout in found:
            strides = None if layout.strides is None else self._tuple(layout.strides)
            offset = None if layout.offset is None else self.index(layout.offset)
            self.write(f"{own}.check({self._tuple(layout.shape)}, {strides}, {offset})")

    def _tuple(self, parts: Sequence[ast.expr]) -> str:
        return "(" + "".join(f"{self.index(p)}, " for p in parts) + ")"

    # ---- statements

    def _body(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if not is_ignored(statement):
                self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[target], value=value):
                self._assign(target, value)
            case ast.AnnAssign(
                target=ast.Name(id=name), annotation=annotation, value=ast.expr() as v
            ):
                value = self.as_type(self.value(v), name_of(annotation))
                self.write(f"{self.define(name, value.dtype)} = {value.code}")
            case ast.AugAssign(target=ast.Subscript() as target, op=op, value=value):
                loaded = ast.Subscript(target.value, target.slice, ast.Load())
                self._store(target, self.value(ast.BinOp(loaded, op, value)))
            case ast.For():
                self._for(node)
            case ast.While(test=test, body=body, orelse=[]):
                self.write(f"while {self.truth(test)}:")
                with self.indented():
                    self.write("m.tick()")
                    self._body(body)
            case ast.If(test=test, body=body, orelse=orelse):
                self.write(f"if {self.truth(test)}:")
                with self.indented():
                    self._body(body)
                if orelse:
                    self.write("else:")
                    with self.indented():
                        self._body(orelse)
            case ast.With(items=[ast.withitem(context_expr=ast.Call(func=func))], body=body):
                if name_of(func) != "block":
                    raise UnreadableError(ast.unparse(node))
                self._block(body)
            case ast.Assert(test=test, msg=message):
                self.write(
                    f"m.require({self.truth(test)}, {ast.unparse(message or ast.Constant(''))})"
                )
            case ast.Break():
                self.write("break")
            case ast.Continue():
                self.write("continue")
            case ast.Expr(value=ast.Call(func=func, args=[value])) if name_of(func) == "evaluate":
                if calls(value, "break_loop") or calls(value, "continue_loop"):
                    self.write("break" if calls(value, "break_loop") else "continue")
                else:
                    self.write(self.value(value).code)
            case ast.Pass():
                self.write("pass")
            case _:
                raise UnreadableError(ast.unparse(node))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Subscript(), _:
                self._store(target, self.value(value))
            case ast.Name(id=name), ast.Call(func=func) if name_of(func) == "alloc_buffer":
                layout = Layout(value)
                shape = self._tuple(layout.shape)
                own = self.define(name, layout.dtype, len(layout.shape))
                self.write(f"{own} = m.scratch({name!r}, {shape}, {layout.dtype!r})")
            case ast.Name(id=name), ast.Call(func=func) if name_of(func) == "decl_buffer":
                self._view(name, Layout(value))
            case ast.Name(id=name), ast.Call(func=func, args=[source, *_]) if (
                name_of(func) == "match_buffer"
            ):
                self._region(name, source, Layout(value, skip=1))
            case ast.Name(id=name), _:
                found = self.value(value)
                dtype = found.dtype or literal_type(value)
                self.write(f"{self.define(name, dtype)} = {self.as_type(found, dtype).code}")
            case _:
                raise UnreadableError(ast.unparse(target))

    def _store(self, target: ast.Subscript, value: Value) -> None:
        buffer, places = self._access(target)
        code = self.as_type(value, buffer.dtype).code
        self.write(f"{buffer.code}.store({', '.join([code, *places])})")

    def _view(self, name: str, layout: Layout) -> None:
        if not (isinstance(layout.data, ast.Attribute) and isinstance(layout.data.value, ast.Name)):
            raise UnreadableError("decl_buffer without data")
        base = self.find(layout.data.value.id)
        shape = self._tuple(layout.shape)
        strides = None if layout.strides is None else self._tuple(layout.strides)
        offset = "0" if layout.offset is None else self.index(layout.offset)
        own = self.define(name, layout.dtype, len(layout.shape))
        self.write(
            f"{own} = m.View({name!r}, {base.code}, {layout.dtype!r}, {shape}, {strides}, {offset})"
        )

    def _region(self, name: str, source: ast.expr, layout: Layout) -> None:
        if not (isinstance(source, ast.Subscript) and isinstance(source.value, ast.Name)):
            raise UnreadableError("match_buffer of what is not a region")
        base = self.find(source.value.id)
        box = []
        for part in parts_of(source.slice):
            if isinstance(part, ast.Slice):
                assert part.lower is not None
                assert part.upper is not None
                low, high = self.index(part.lower), self.index(part.upper)
                box.append(f"({low}, {high} - ({low}))")
            else:
                box.append(f"({self.index(part)}, 1)")
        if layout.strides is not None or layout.offset is not None:
            raise UnreadableError("layout of a matched region")
        shape = self._tuple(layout.shape)
        own = self.define(name, layout.dtype or base.dtype, len(layout.shape))
        self.write(f"{own} = {base.code}.region({name!r}, [{', '.join(box)}], {shape})")

    # ---- loops and blocks

    def _for(self, node: ast.For) -> None:
        names, ranges = self._ranges(node)
        (name, (start, extent)), *inner = zip(names, ranges, strict=True)
        body = [inner_loop(inner, node)] if inner else node.body
        first, number = self.fresh("start"), self.fresh("extent")
        self.write(f"{first}, {number} = {start.code}, {extent.code}")
        self.scopes.append({})
        code = self._loop_variable(name, start.dtype or extent.dtype or "int32", first)
        self.write(f"for {code} in m.loop({first}, {number}):")
        with self.indented():
            self._body(body)
        if may_reduce(name, node.body):
            self.write(f"if {number} <= 0:")
            with self.indented():
                self.write(f"outer, empty, {code} = empty, empty | {{{code!r}}}, {first}")
                self._begin_all(body, [])
                self.write("empty = outer")
        self.scopes.pop()

    def _loop_variable(self, name: str, dtype: str, start: str) -> str:
        code = self.define(name, dtype)
        self.starts[code] = start
        return code

    def _ranges(self, node: ast.For) -> tuple[list[str], list[tuple[Value, Value]]]:
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        call = node.iter
        if isinstance(call, Given):
            return names, call.ranges
        if not isinstance(call, ast.Call):
            raise UnreadableError(ast.unparse(node.iter))
        kind = name_of(call.func)
        if kind == "grid":
            ranges = [(Value("0", ""), self.value(e)) for e in call.args]
        elif kind in _LOOPS or kind == "range":
            bounds = [self.value(e) for e in call.args]
            if len(bounds) == 1:
                ranges = [(Value("0", ""), bounds[0])]
            else:
                ranges = [(bounds[0], self._binary("sub", bounds[1], bounds[0]))]
                start, _ = self._matching(*bounds)
                ranges = [(start, ranges[0][1])]
        else:
            raise UnreadableError(ast.unparse(node.iter))
        if len(names) != len(ranges):
            raise UnreadableError("loop variables")
        return names, ranges

    def _block(self, body: Sequence[ast.stmt]) -> None:
        self.write("if True:")
        with self.indented():
            predicate = predicate_of(body)
            if predicate is not None:
                self.write(f"if {self.truth(predicate)}:")
                self.depth += 1
            before = len(self.lines)
            axes, lines, rest = self._axes(body)
            self.lines += lines
            self._enter_block(axes, rest)
            if len(self.lines) == before:
                self.write("pass")
            self.depth -= predicate is not None

    def _enter_block(self, axes: list[Axis], rest: Sequence[ast.stmt]) -> None:
        inits = [s for s in rest if is_init(s)]
        others = [s for s in rest if not is_init(s)]
        head = [s for s in others if is_call_of(s, "alloc_buffer") or is_call_of(s, "match_buffer")]
        tail = [s for s in others if s not in head]
        self._body(head)
        for init in inits:
            assert isinstance(init, ast.With)
            self._init(axes, init)
        self._body(tail)

    def _init(self, axes: list[Axis], init: ast.With) -> None:
        self.write(f"if {_begins((a.code, a.start) for a in axes if a.reduces)}:")
        with self.indented():
            self._body(init.body)

    def _axes(
        self, body: Sequence[ast.stmt], *, by_name: bool = True
    ) -> tuple[list[Axis], list[str], list[ast.stmt]]:
        """The axes of a block, the lines that compute them, and the other statements.

        Unless `by_name`, their names stand for what they are bound to.
        """
        axes: list[Axis] = []
        lines = []
        rest = []
        bound: list[tuple[str, Value]] = []
        for statement in body:
            match statement:
                case ast.Assign(
                    targets=[target], value=ast.Call(func=ast.Attribute(attr=kind)) as call
                ) if ast.unparse(call.func).startswith("T.axis."):
                    for name, letter, start, value in self._axis(target, kind, call):
                        bound.append((name, value))
                        axes.append(Axis("", start, letter == "R", value.code))
                case _ if not is_ignored(statement):
                    rest.append(statement)
        found = []
        for axis, (name, value) in zip(axes, bound, strict=True):
            if by_name:
                code = self.define(name, value.dtype or "int32")
                lines.append("    " * self.depth + f"{code} = {value.code}")
            else:
                code = f"({value.code})"
                self.scopes[-1][name] = Variable(code, value.dtype or "int32")
            found.append(Axis(code, axis.start, axis.reduces, axis.binding))
        return found, lines, rest

    def _axis(
        self, target: ast.expr, kind: str, call: ast.Call
    ) -> Iterator[tuple[str, str, str, Value]]:
        if kind == "remap":
            letters, loops = call.args
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            assert isinstance(letters, ast.Constant)
            assert isinstance(loops, ast.List)
            for name, letter, loop in zip(names, str(letters.value), loops.elts, strict=True):
                assert isinstance(name, ast.Name)
                value = self.value(loop)
                if value.code not in self.starts:
                    raise UnreadableError(ast.unparse(call))
                yield name.id, letter, self.starts[value.code], value
            return
        assert isinstance(target, ast.Name)
        domain, binding = call.args
        letter = {"spatial": "S", "S": "S", "reduce": "R", "R": "R"}.get(kind)
        if letter is None:
            raise UnreadableError(ast.unparse(call))
        start = self.index(domain.elts[0]) if isinstance(domain, ast.Tuple) else "0"
        yield target.id, letter, start, self.value(binding)

    # ---- reductions without iterations: the block begins all the same

    def _begin_all(
        self, statements: Sequence[ast.stmt], conditions: list[tuple[ast.expr, bool]]
    ) -> None:
        for statement in statements:
            self._begin(statement, conditions)

    def _begin(self, node: ast.stmt, conditions: list[tuple[ast.expr, bool]]) -> None:
        """The inits in `node` of blocks that all empty loops only reduce.

        Of the `conditions` around them those that speak of such a loop are not evaluated. A let is
        what it stands for, and evaluated where it is used.
        """
        match node:
            case ast.AnnAssign(
                target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value
            ):
                # What is in a region has no value here, where the region may not exist.
                with suppress(UnreadableError):
                    bound = self.as_type(self.value(value), name_of(annotation))
                    self.scopes[-1][name] = Variable(f"({bound.code})", bound.dtype)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not (
                isinstance(value, ast.Call) and name_of(value.func).endswith("_buffer")
            ):
                with suppress(UnreadableError):
                    bound = self.value(value)
                    self.scopes[-1][name] = Variable(f"({bound.code})", bound.dtype)
            case ast.Assign(targets=[ast.Name()]) if is_call_of(node, "match_buffer"):
                self.regions.append(node)
            case ast.Assign(targets=[ast.Name()]):
                self._statement(node)
            case _ if not any(is_init(part) for part in ast.walk(node)):
                pass
            case ast.For():
                names, ranges = self._ranges(node)
                (name, (start, extent)), *inner = zip(names, ranges, strict=True)
                first, number, mark = self.fresh("start"), self.fresh("extent"), self.fresh("outer")
                self.write(f"{first}, {number}, {mark} = {start.code}, {extent.code}, empty")
                self.scopes.append({})
                code = self._loop_variable(name, start.dtype or extent.dtype or "int32", first)
                if may_reduce(name, node.body):
                    self.write(f"if {number} <= 0:")
                    self.write(f"    empty, {number} = empty | {{{code!r}}}, 1")
                self.write(f"for {code} in m.loop({first}, {number}):")
                with self.indented(scope=False):
                    self._begin_all([inner_loop(inner, node)] if inner else node.body, conditions)
                self.scopes.pop()
                self.write(f"empty = {mark}")
            case ast.If(test=test, body=body, orelse=orelse):
                for part, expected in ((body, True), (orelse, False)):
                    self.scopes.append({})
                    self._begin_all(part, [*conditions, (test, expected)])
                    self.scopes.pop()
            case ast.With(body=body):
                self._begin_block(body, conditions)
            case _:  # a while loop begins nothing
                pass

    def _begin_block(
        self, body: Sequence[ast.stmt], conditions: list[tuple[ast.expr, bool]]
    ) -> None:
        self.write("if True:")
        with self.indented():
            inits = [s for s in body if isinstance(s, ast.With) and is_init(s)]
            predicate = predicate_of(body)
            self.depth += 3 * bool(inits)
            axes, lines, rest = self._axes(body, by_name=bool(inits))
            self.depth -= 3 * bool(inits)
            asked = [*conditions, *([(predicate, True)] if predicate is not None else [])]
            if not inits:
                count = len(self.regions)
                self._begin_all(rest, asked)
                del self.regions[count:]
                return
            loops = set(self.starts)
            reduced = {n for a in axes if a.reduces for n in names_in(a.binding)}
            kept = {n for a in axes if not a.reduces for n in names_in(a.binding)}
            self.write(f"if empty <= frozenset({sorted(loops & reduced - kept)!r}):")
            self.depth += 1
            # Nothing else is evaluated but in the iteration that would be the first one.
            tests = [self._would_begin(a, loops, loops & reduced - kept) for a in axes if a.reduces]
            self.write(f"if {' and '.join(tests) or 'True'}:")
            self.depth += 1
            for region in self.regions:
                self._statement(region)
            tests = ["True"]
            for condition, expected in asked:
                for part in conjuncts(condition) if expected else [condition]:
                    code = self.truth(part)
                    names = sorted(names_in(code) & loops)
                    held = code if expected else f"not ({code})"
                    tests.append(f"(empty & frozenset({names!r}) or ({held}))")
            self.write(f"if {' and '.join(tests)}:")
            with self.indented():
                for axis, line in zip(axes, lines, strict=True):
                    first = "    " * self.depth + f"{axis.code} = {axis.start}"
                    self.lines.append(first if axis.reduces else line)
                for part in rest:
                    if is_call_of(part, "alloc_buffer") or is_call_of(part, "match_buffer"):
                        self._statement(part)
                for init in inits:
                    self._body(init.body)
            self.depth -= 2

    def _would_begin(self, axis: Axis, loops: set[str], reduced: set[str]) -> str:
        """The condition that an axis has its first value where some loops have no iteration.

        Its binding is not evaluated if it mentions one of these: then all others of the `reduced`
        ones are at the start.
        """
        names = sorted(names_in(axis.binding) & loops)
        own = (n for n in names if n in reduced)
        others = [f"({n!r} in empty or {n} == {self.starts[n]})" for n in own]
        at_start = " and ".join(others) or "True"
        test = f"(({axis.binding}) == {axis.start})"
        return f"(({at_start}) if empty & frozenset({names!r}) else {test})"


def _begins(axes: Iterable[tuple[str, str]]) -> str:
    """The condition that all of some axes have their first values."""
    return " and ".join(f"({code}) == {start}" for code, start in axes) or "True"
