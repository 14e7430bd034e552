"""The picture of a module: an item for each binding, a use for each operand, groups of layers."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np

from relaxpy.errors import Diagnostic, RelaxpyError
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.nodes import BaseFunc
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.plugins.pictures import model

#: A sequence of bindings is left out if the picture would have more items. Branches inside of the
#: last ones that are drawn come on top.
MAX_ITEMS: Final = 10_000
#: Groups deeper inside others are left out.
MAX_DEPTH: Final = 24
MAX_PROGRAM_LINES: Final = 60
_FUSED: Final = ("Primitive", "Composite", "Codegen")


def picture_of(mod: IRModule) -> model.Picture:
    """The picture of all functions of a module."""
    builder = _Builder(mod)
    builder.build()
    return builder.picture


_Scoped: TypeAlias = tuple[object, int]
"""A value, and the function, or the call of a fused function, in which it stands."""


class _Builder:
    """Adds the items of a module; functions within functions wait until those outside are drawn."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.functions = mod.functions_by_name
        self.picture = model.Picture()
        self.picture.add("module", "module")
        self.depths = {model.MODULE: 0}
        self.planned = 0
        self.values: dict[_Scoped, int] = {}
        self.uses: list[tuple[rx.Expr, int, int]] = []
        self.nested: list[tuple[rx.Expr, int]] = []
        self.waiting: deque[Callable[[], None]] = deque()
        self.programs: dict[str, str] = {}

    def build(self) -> None:
        called = {name for func in self.functions.values() for name in mentioned_globals(func)}
        for name, func in self.functions.items():
            if isinstance(func, rx.Function) and not (name in called and is_fused(func)):
                self.function("function", name, func, model.MODULE, name)
            elif name not in called:
                self.kernel(name, func)
            if self.is_full:
                self.add("global", f"and others of {len(self.functions)} functions", model.MODULE)
                break
        while self.waiting:
            self.waiting.popleft()()
            while self.nested:
                expr, group = self.nested.pop()
                key = expr, self.scope(group)
                if key not in self.values and self.is_full:
                    self.picture.items[group].omitted += 1
                    self.values[key] = group
                elif key not in self.values:
                    self.values[key] = self.expression(expr, group).number
        for value, user, scope in self.uses:
            self.picture.use(self.source(value, scope), user)

    @property
    def is_full(self) -> bool:
        """True if no items are added but those that were planned."""
        return len(self.picture.items) + self.planned > MAX_ITEMS

    def kernel(self, name: str, func: BaseFunc) -> None:
        """Add a kernel that no function calls: its blocks, or its text if it has none."""
        item = self.add("kernel", name, model.MODULE, about=name, span=func.span)
        item.name = name
        blocks = model.innermost_blocks(func) if isinstance(func, PrimFunc) else []
        if isinstance(func, PrimFunc) and 0 < len(blocks) < MAX_ITEMS and not self.is_full:
            model.add_blocks(self.picture, item.number, func, blocks)
        else:
            item.program = self.program(name)

    def add(self, kind: model.Kind, label: str, parent: int, **fields: object) -> model.Item:
        item = self.picture.add(kind, model.printable(label), parent, **fields)
        self.depths[item.number] = self.depths[parent] + 1
        return item

    def function(
        self, kind: model.Kind, label: str, func: rx.Function, parent: int, name: str
    ) -> model.Item:
        """The group of a function, with its parameters."""
        params = ", ".join(param.name_hint for param in func.params)
        about = f"{name}({params}) -> {func.ret_struct_info}"
        item = self.add(
            kind, label, parent, about=model.printable(about, model.MAX_ABOUT), span=func.span
        )
        item.name = name
        self.enter(item, func.body, func.params)
        return item

    def enter(
        self, item: model.Item, body: rx.Expr, params: Sequence[rx.Var] = ()
    ) -> Sequence[int]:
        """Draw parameters now and a body later, unless they are too many or too deep.

        Returns the numbers of the parameters; if they are not drawn, the item has a count.
        """
        count = 1 + _length(body)
        full = len(self.picture.items) + self.planned + len(params) + count > MAX_ITEMS
        if full or self.depths[item.number] >= MAX_DEPTH:
            item.omitted = len(params) + count
            return ()
        self.planned += count
        numbers = [self.value("parameter", param, item.number) for param in params]
        scope = self.scope(item.number)
        self.values |= {
            (param, scope): number for param, number in zip(params, numbers, strict=True)
        }
        self.waiting.append(lambda: self.sequence(body, item.number, count))
        return numbers

    def value(self, kind: model.Kind, var: rx.Var | rx.GlobalVar, parent: int) -> int:
        about = model.printable(f"{var.name_hint}: {var.struct_info}", model.MAX_ABOUT)
        detail = model.printable(model.sinfo_text(var.struct_info))
        item = self.add(kind, var.name_hint, parent, detail=detail, about=about, span=var.span)
        item.name = var.name_hint
        return item.number

    def sequence(self, body: rx.Expr, group: int, planned: int) -> None:
        """Add the bindings and the result of a body, which were planned, to a group."""
        self.planned -= planned
        if not isinstance(body, rx.SeqExpr):
            self.result(body, group)
            return
        blocks = [block for block in body.blocks if block.bindings]
        for block in blocks:
            parent = group
            if isinstance(block, rx.DataflowBlock) and len(blocks) > 1:
                parent = self.add("block", "dataflow", group, span=block.span).number
            for binding in block.bindings:
                self.binding(binding, parent)
        self.result(body.body, group)

    def result(self, expr: rx.Expr | Op, group: int) -> None:
        """Add the item of a returned value."""
        kind = self.picture.items[group].kind
        label = "result" if kind in ("branch", "if") else "return"
        detail = model.printable(model.sinfo_text(getattr(expr, "struct_info", None)))
        about = model.printable(f"{label} {detail}", model.MAX_ABOUT)
        item = self.add("result", label, group, detail=detail, about=about)
        item.span = getattr(expr, "span", None)
        self.operand(expr, item.number, group)

    def binding(self, binding: rx.Binding, group: int) -> None:
        """Add the item of a binding."""
        if isinstance(binding, rx.MatchCast):
            about = f"R.match_cast(…, {binding.struct_info})"
            item = self.add("cast", "match_cast", group, about=about)
            item.detail = model.printable(model.sinfo_text(binding.struct_info))
            self.operand(binding.value, item.number, group)
        else:
            item = self.expression(binding.value, group, binding.var)
        var = binding.var
        item.span = binding.value.span or binding.span or item.span
        if var is not None:
            item.name = var.name_hint
            sinfo = var.struct_info or getattr(binding.value, "struct_info", None)
            short = "" if isinstance(sinfo, rx.FuncStructInfo) else model.sinfo_text(sinfo)
            if short:
                item.detail = model.printable(f"{var.name_hint}: {short}")
            item.about = model.printable(f"{item.name}: {sinfo} = {item.about}", model.MAX_ABOUT)
            self.values[var, self.scope(group)] = item.number

    def expression(self, expr: rx.Expr, group: int, var: rx.Var | None = None) -> model.Item:
        """The item of an operation."""
        match expr:
            case rx.Call():
                return self.call(expr, group)
            case rx.Function():
                return self.local_function(expr, group, var)
            case rx.If():
                return self.conditional(expr, group)
            case rx.SeqExpr():
                item = self.add("branch", "sequence", group, span=expr.span)
                self.enter(item, expr)
                return item
            case rx.TupleGetItem(tuple_value=value, index=index):
                item = self.add("tuple", f"[{index}]", group, about=f"field {index}")
                self.operand(value, item.number, group)
                return item
            case rx.Tuple():
                item = self.add("tuple", f"tuple of {len(expr.fields)}", group, about="tuple")
                self.operand(expr, item.number, group)
                return item
            case _:
                text = model.literal_text(expr)
                kind: model.Kind = "alias" if text is None else "constant"
                item = self.add(kind, "=" if text is None else text, group, about=text or "=")
                self.operand(expr, item.number, group)
                return item

    def local_function(self, func: rx.Function, group: int, var: rx.Var | None) -> model.Item:
        """The group of a local function, which is a loop if it mentions itself."""
        name = "function" if var is None else var.name_hint
        recursive = var is not None and any(node is var for node in walk(func))
        kind: model.Kind = "loop" if recursive else "local"
        return self.function(kind, f"{'loop' if recursive else 'local'} {name}", func, group, name)

    def conditional(self, expr: rx.If, group: int) -> model.Item:
        """The group of the two branches, which uses the condition."""
        item = self.add("if", "if", group, about="if", span=expr.span)
        self.operand(expr.cond, item.number, group)
        for label, body in (("then", expr.true_branch), ("else", expr.false_branch)):
            branch = self.add("branch", label, item.number, about=label, span=body.span)
            self.enter(branch, body)
        return item

    def call(self, call: rx.Call, group: int) -> model.Item:
        """The item of a call; that of a fused function contains this function."""
        kind: model.Kind = "operator"
        callee, args = call.op, call.args
        first = args[0] if args and isinstance(callee, Op) else callee
        func = self.functions.get(first.name_hint) if isinstance(first, rx.GlobalVar) else None
        if isinstance(first, rx.ExternFunc) or isinstance(func, PrimFunc):
            kind = "kernel" if func is not None else "packed"
            args = args[1:] if isinstance(callee, Op) else args
            callee = first
        elif isinstance(callee, rx.GlobalVar) and func is not None:
            kind = "fused" if is_fused(func) else "call"
        label = model.operator_text(callee)
        literals = [text for arg in args if (text := model.literal_text(arg)) is not None]
        if written := ", ".join([*literals, *filter(None, [model.attributes_text(call)])]):
            label = f"{label}({written})"
        item = self.add(kind, label, group, about=about_call(call), span=call.span)
        params: Sequence[int] = ()
        if isinstance(func, PrimFunc) and isinstance(first, rx.GlobalVar):
            item.program = self.program(first.name_hint)
        elif kind == "fused" and isinstance(func, rx.Function):
            params = self.enter(item, func.body, func.params)
        elif func is None and not isinstance(callee, (Op, rx.ExternFunc)):
            self.operand(callee, item.number, group)
        for index, arg in enumerate(args):
            self.operand(arg, params[index] if index < len(params) else item.number, group)
        return item

    def operand(self, expr: rx.Expr | Op, user: int, group: int) -> None:
        """Record that an item uses the values in an operand."""
        stack: list[rx.Expr | Op] = [expr]
        while stack:
            value = stack.pop()
            match value:
                case rx.Tuple(fields=fields):
                    stack += reversed(fields)
                case rx.Var() | rx.GlobalVar():
                    self.uses.append((value, user, self.scope(group)))
                case rx.Constant() if value.size != 1:
                    self.uses.append((value, user, self.scope(group)))
                case rx.Call() | rx.TupleGetItem() | rx.If() | rx.SeqExpr() | rx.Function():
                    self.nested.append((value, group))
                    self.uses.append((value, user, self.scope(group)))
                case _:
                    pass  # a literal, which the label of its user contains

    def scope(self, group: int) -> int:
        """The function of the module, or the call of a fused function, that contains a group."""
        for number in self.picture.enclosing(group):
            if self.picture.items[number].kind in ("function", "fused"):
                return number
        return group

    def source(self, value: rx.Expr, scope: int) -> int:
        """The item of a value; one that nothing binds has an item of its own."""
        key = value, scope
        if key not in self.values and self.is_full:
            self.picture.items[scope].omitted += 1
            return scope
        if key not in self.values:
            match value:
                case rx.Var() | rx.GlobalVar():
                    kind: model.Kind = "unbound" if isinstance(value, rx.Var) else "global"
                    self.values[key] = self.value(kind, value, scope)
                case _:
                    text = model.printable(model.sinfo_text(value.struct_info))
                    item = self.add("constant", "constant", scope, detail=text, span=value.span)
                    item.about = model.printable(f"constant: {value.struct_info}", model.MAX_ABOUT)
                    self.values[key] = item.number
        return self.values[key]

    def program(self, name: str) -> str:
        """The text of a function, without its imports."""
        if name not in self.programs:
            func: BaseFunc = self.functions[name]
            try:
                lines = func.script(name=name).splitlines()
            except RelaxpyError as error:  # it is too large, or ill-formed
                lines = [error.diagnostic.message]
            lines = [line for line in lines if line and not line.startswith("# from ")]
            if rest := lines[MAX_PROGRAM_LINES:]:
                lines = [*lines[:MAX_PROGRAM_LINES], f"… ({len(rest)} more lines)"]
            self.programs[name] = "\n".join(model.printable(line, 110) for line in lines)
        return self.programs[name]


def is_fused(func: BaseFunc) -> bool:
    """True if a function is a group of operators that FuseOps or a pattern has formed."""
    return isinstance(func, rx.Function) and any(name in func.attrs for name in _FUSED)


def _length(body: rx.Expr) -> int:
    """The number of bindings in a body, without those inside them."""
    blocks = body.blocks if isinstance(body, rx.SeqExpr) else ()
    return sum(len(block.bindings) for block in blocks)


def about_call(call: rx.Call) -> str:
    """The text of a call, without operands inside operands."""
    operands = [model.literal_text(arg) or getattr(arg, "name_hint", "…") for arg in call.args[:20]]
    more = [text] if (text := model.attributes_text(call)) else []
    return model.printable(
        f"{model.operator_text(call.op)}({', '.join([*operands, *more])})", model.MAX_ABOUT
    )


def mark_faults(picture: model.Picture, found: Sequence[Diagnostic]) -> None:
    """Mark the items that diagnostics are about; others have items of their own.

    A diagnostic is about the smallest item at its position, or else about the first one that its
    message names.
    """
    by_name: dict[str, model.Item] = {}
    by_line: dict[tuple[str, int], list[model.Item]] = {}
    for item in picture.items:
        by_name.setdefault(item.name, item)
        if item.span is not None and item.span.end_line - item.span.line < _MAX_LINES:
            for line in range(item.span.line, item.span.end_line + 1):
                by_line.setdefault((item.span.file, line), []).append(item)
    for diagnostic in found:
        span = diagnostic.span
        near = [] if span is None else by_line.get((span.file, span.line), [])
        about = [item for item in near if item.span and span and item.span.covers(span)]
        about.sort(key=lambda item: item.span.end_line - item.span.line if item.span else 0)
        words = _WORD.findall(diagnostic.message)
        near.sort(key=lambda item: item.name not in words)
        candidates = [*about, *near, *(by_name[word] for word in words if word in by_name)]
        if candidates and not candidates[0].fault:
            item = candidates[0]
        else:
            parent = candidates[0].parent if candidates else model.MODULE
            item = picture.add("fault", diagnostic.rule or "error", parent)
            item.detail = model.printable(diagnostic.message)
        item.fault = (diagnostic.rule or "error", model.printable(str(diagnostic), model.MAX_ABOUT))


_WORD: Final = re.compile(r"\w+")
_MAX_LINES: Final = 200


#: Layers of more operations are not found.
MAX_PERIOD: Final = 2_000
#: A repetition is folded if this many operations are no longer seen.
MIN_SAVED: Final = 6
#: More parameters and constants with the same users are one box.
MAX_SOURCES: Final = 8
_NEVER: Final = frozenset((*model.SOURCES, "result", "fault"))
#: The first position, the number of operations in a layer, and the number of layers.
_Run: TypeAlias = tuple[int, int, int]


def fold_repeats(picture: model.Picture) -> None:
    """Group layers that are repeated one after the other, and layers inside these.

    Parameters and constants move into the innermost layer or block that has all their uses. The
    operand of a first layer stays outside, if the other layers have a result of the one before.
    """
    folder = _Folder(picture)
    for members in list(picture.members().values()):
        sequence = [n for n in members if picture.items[n].kind not in _NEVER]
        if len(sequence) > MIN_SAVED:
            folder.fold(sequence)
    users: dict[int, list[int]] = {}
    for value, user in picture.uses:
        users.setdefault(value, []).append(user)
    for item in picture.items:
        if item.kind in model.SOURCES and all(
            folder.is_in_every_layer(item.number, user) for user in users.get(item.number, ())
        ):
            item.parent = _common_group(picture, item.parent, users.get(item.number, ()))


def bundle_sources(picture: model.Picture) -> None:
    """Group many parameters and constants of the same group that have the same users there."""
    users: dict[int, set[int]] = {}
    for value, user in picture.uses:
        item = picture.items[value]
        path = picture.enclosing(user)
        if item.kind in model.SOURCES and item.parent in path[1:]:
            users.setdefault(value, set()).add(path[path.index(item.parent) - 1])
    bundles: dict[tuple[int, frozenset[int]], list[int]] = {}
    for number, used_by in users.items():
        key = picture.items[number].parent, frozenset(used_by)
        bundles.setdefault(key, []).append(number)
    for (parent, _), numbers in bundles.items():
        if len(numbers) > MAX_SOURCES:
            names = ", ".join(picture.items[number].label for number in numbers)
            group = picture.add("bundle", f"{len(numbers)} parameters and constants", parent)
            group.detail, group.about = (
                model.printable(names),
                model.printable(names, model.MAX_ABOUT),
            )
            group.order = picture.items[numbers[0]].order
            group.change = _change(picture, numbers)
            for number in numbers:
                picture.items[number].parent = group.number


def _change(picture: model.Picture, numbers: Iterable[int]) -> model.Change:
    """The change that all of the items have in common; empty if they differ."""
    changes = {picture.items[number].change for number in numbers}
    return changes.pop() if len(changes) == 1 else ""


def _common_group(picture: model.Picture, group: int, users: Sequence[int]) -> int:
    """The innermost group with all users that is inside `group` and part of the same function."""
    common: list[int] | None = None
    for user in users:
        path = picture.enclosing(user)[1:]
        inside = path[: path.index(group)] if group in path else []
        inside.reverse()
        common = (
            inside
            if common is None
            else [a for a, b in zip(common, inside, strict=False) if a == b]
        )
    for inner in common or ():
        if picture.items[inner].kind not in ("block", "repeat", "instance"):
            break
        group = inner
    return group


def _keys(picture: model.Picture) -> list[int]:
    """A number for each item, which is equal for items that look the same, without their names."""
    numbers: dict[object, int] = {}
    members = picture.members()
    keys = [0] * len(picture.items)
    for number in reversed([*picture.groups(), *range(len(picture.items))]):
        item = picture.items[number]
        inside = tuple(keys[n] for n in members.get(number, ()))
        sinfo = item.detail.partition(": ")[2]
        key = (item.kind, item.label, sinfo, item.change, item.fault[:1], inside)
        keys[number] = numbers.setdefault(key, len(numbers))
    return keys


class _Folder:
    """Finds and groups the repetitions in sequences of items.

    `twins` has for each item in a layer the one that corresponds to it in the next.
    """

    def __init__(self, picture: model.Picture) -> None:
        self.picture, self.keys = picture, _keys(picture)
        self.twins: dict[int, int] = {}
        self.operands: dict[int, list[int]] = {}
        for value, user in picture.uses:
            self.operands.setdefault(user, []).append(value)

    def is_in_every_layer(self, value: int, user: int) -> bool:
        """True if the next layer also has a parameter or a constant where this one has `value`."""
        twin = self.twins.get(user, user)
        other = self.operands[twin][self.operands[user].index(value)]
        return self.picture.items[other].kind in model.SOURCES

    def fold(self, sequence: Sequence[int]) -> None:
        waiting = [list(sequence)]
        while waiting:
            items = waiting.pop()
            run = self.best_run(items)
            if run is None:
                continue
            start, period, count = run
            stop = start + period * count
            layers = [items[i : i + period] for i in range(start, stop, period)]
            self.group(layers)
            waiting += [part for part in (items[:start], items[stop:], *layers) if part]

    def group(self, layers: Sequence[Sequence[int]]) -> None:
        """Make a group of layers, each of which is a group."""
        first = self.picture.items[layers[0][0]]
        names = [self.picture.items[n].label.partition("(")[0] for n in layers[0]]
        detail = model.printable(" ".join(names))
        outer = self.picture.add(
            "repeat", f"{len(layers)} x {len(layers[0])} operations", first.parent, detail=detail
        )
        outer.about, outer.order = model.printable(", ".join(names), model.MAX_ABOUT), first.order
        outer.change = _change(self.picture, layers[0])
        for index, layer in enumerate(layers):
            head = self.picture.items[layer[0]]
            inner = self.picture.add("instance", f"{index + 1} of {len(layers)}", outer.number)
            inner.detail, inner.about, inner.order = detail, outer.about, head.order
            inner.change = outer.change
            for number, twin in zip(layer, layers[(index + 1) % len(layers)], strict=True):
                self.picture.items[number].parent = inner.number
                self.twins.setdefault(number, twin)

    def best_run(self, items: Sequence[int]) -> _Run | None:
        """The repetition that hides most operations."""
        keys = np.array([self.keys[n] for n in items])
        best: _Run | None = None
        saved = MIN_SAVED - 1
        for period in range(1, min(len(items) // 2, MAX_PERIOD) + 1):
            for start, length in _runs(keys[:-period] == keys[period:], period):
                if length <= saved:
                    continue
                found = self.aligned(items, start, length + period, period)
                if found is not None and period * (found[2] - 1) > saved:
                    best, saved = found, period * (found[2] - 1)
        return best

    def aligned(self, items: Sequence[int], start: int, length: int, period: int) -> _Run | None:
        """The longest repetition within a range whose layers use values in the same way."""
        places = {n: i for i, n in enumerate(items[start : start + length])}
        crossing = self.crossing(items[start : start + length], places)
        spare = length % period if length // period > 1 else 0
        shift = min(
            range(spare + 1), key=lambda s: crossing[s + period] if s + period < length else 0
        )
        first = start + shift
        count = (length - shift) // period
        shapes = [
            self.wiring(items[i : i + period]) for i in range(first, first + count * period, period)
        ]
        longest = (0, 0)
        begin = 0
        for i in range(1, count + 1):
            if i == count or shapes[i] != shapes[begin]:
                longest = max(longest, (i - begin, -begin))
                begin = i
        layers, begin = longest[0], -longest[1]
        return (first + begin * period, period, layers) if layers > 1 else None

    def crossing(self, items: Sequence[int], places: dict[int, int]) -> list[int]:
        """For each position, how many values from before it are used at or after it."""
        change = [0] * (len(items) + 1)
        last: dict[int, int] = {}
        for place, number in enumerate(items):
            for value in self.operands.get(number, ()):
                if value in places and places[value] < place:
                    last[value] = max(last.get(value, 0), place)
        for value, place in last.items():
            change[places[value] + 1] += 1
            change[place + 1 if place < len(items) else place] -= 1
        total, counts = 0, []
        for step in change:
            total += step
            counts.append(total)
        return counts

    def wiring(self, layer: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """For each item, the positions in its layer of the values that it uses; -1 outside."""
        places = {n: i for i, n in enumerate(layer)}
        return tuple(
            tuple(places.get(value, -1) for value in self.operands.get(number, ()))
            for number in layer
        )


def _runs(
    same: np.ndarray[tuple[int], np.dtype[np.bool_]], at_least: int
) -> Iterator[tuple[int, int]]:
    """The first positions and lengths of sections that are true throughout, and long enough."""
    stops = np.flatnonzero(np.concatenate(([True], ~same, [True])))
    lengths = np.diff(stops) - 1
    for index in np.flatnonzero(lengths >= at_least):
        yield int(stops[index]), int(lengths[index])
