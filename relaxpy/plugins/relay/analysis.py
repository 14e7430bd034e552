"""Scopes and effects of expressions, well-formedness, kinds of types, and complete matches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from typing_extensions import override

from relaxpy.errors import Diagnostic, MisuseError, RelayTypeError, check_type, counted
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, postorder, preorder, reached, walk
from relaxpy.plugins.relay import expr as rl, ty as types
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.variables import bound_vars
from relaxpy.support.entry import user_facing

_ATOMS = (rl.Var, rl.GlobalVar, rl.Constant, rl.Literal, rl.Constructor, Op)


def is_atom(expr: Node) -> bool:
    """True if an expression is a name or a constant, whose evaluation does nothing."""
    return isinstance(expr, _ATOMS)


class Scope:
    """A function body, let body, branch or clause: `root` is its expression.

    `nodes` are the expressions evaluated there, operands before the expressions that use them.
    """

    __slots__ = ("depth", "nodes", "parent", "root")

    depth: int

    def __init__(self, root: rl.RelayExpr, parent: Scope | None) -> None:
        self.root = root
        self.parent = parent
        self.depth = 0 if parent is None else parent.depth + 1
        self.nodes: list[rl.RelayExpr] = []

    def common(self, other: Scope) -> Scope:
        """The innermost scope that contains this one and another."""
        one: Scope = self
        while one is not other:
            if one.depth >= other.depth:
                assert one.parent is not None
                one = one.parent
            else:
                assert other.parent is not None
                other = other.parent
        return one


class Scopes:
    """The scopes of an expression, which is the root of the outermost one.

    `nodes` are all expressions but atoms, operands before the expressions that use them; `lets` are
    the lets among them. `uses` are the numbers of their uses, and `inner` the scopes that a
    Function, Let, If or Match opens, in their order.
    """

    def __init__(self, root: rl.RelayExpr) -> None:
        self.outermost = Scope(root, None)
        self.of: dict[int, Scope] = {id(root): self.outermost}
        self.uses: dict[int, int] = {id(root): 1}
        self.inner: dict[int, tuple[Scope, ...]] = {}
        order = [*postorder([root], _operands)]
        self.nodes = order
        self.lets = [node for node in order if isinstance(node, rl.Let)]
        for node in reversed(order):
            self._visit(node)
        for node in order:
            self.of[id(node)].nodes.append(node)

    def _visit(self, node: rl.RelayExpr) -> None:
        """Enter the uses of the operands of a node; those of its own are all known."""
        scope = self.of[id(node)]
        opened = tuple(Scope(root, scope) for root in scope_roots(node))
        if opened:
            self.inner[id(node)] = opened
        for operand in same_scope(node):
            self._use(operand, scope)
        for inner in opened:
            self._use(inner.root, inner)

    def _use(self, expr: rl.RelayExpr, scope: Scope) -> None:
        if is_atom(expr):
            return
        known = self.of.get(id(expr))
        self.of[id(expr)] = scope if known is None else known.common(scope)
        self.uses[id(expr)] = self.uses.get(id(expr), 0) + 1


def same_scope(node: rl.RelayExpr) -> tuple[rl.RelayExpr, ...]:
    """The operands of an expression that are evaluated in its own scope, in order."""
    match node:
        case rl.Tuple(fields=fields):
            return fields
        case rl.TupleGetItem(tuple_value=value) | rl.RefCreate(value=value) | rl.Let(value=value):
            return (value,)
        case rl.Call(op=op, args=args):
            return (op, *args)
        case rl.If(cond=cond):
            return (cond,)
        case rl.Match(data=data):
            return (data,)
        case rl.RefRead(ref=ref):
            return (ref,)
        case rl.RefWrite(ref=ref, value=value):
            return (ref, value)
        case _:
            return ()


def scope_roots(node: rl.RelayExpr) -> tuple[rl.RelayExpr, ...]:
    """The operands of an expression that open a scope of their own."""
    match node:
        case rl.Function(body=body) | rl.Let(body=body):
            return (body,)
        case rl.If(true_branch=true, false_branch=false):
            return (true, false)
        case rl.Match(clauses=clauses):
            return tuple(clause.rhs for clause in clauses)
        case _:
            return ()


def _operands(node: rl.RelayExpr) -> Iterator[rl.RelayExpr]:
    for operand in (*same_scope(node), *scope_roots(node)):
        if not is_atom(operand):
            yield operand


class Effects:
    """The effects of the expressions in the functions of a module, and in those that are entered.

    A call has the effects of the body of its callee, if that is a global function, or a function
    that a let binds. A function that comes from a parameter, a tuple, a cell or an instance may
    have any.
    """

    def __init__(self, module: RelayModule) -> None:
        self.module = module
        self.functions: dict[rl.Var, rl.Function] = {}
        self.known: dict[int, tuple[Node, bool]] = {}
        self._entered: dict[int, Node] = {}

    def entered(self, root: rl.RelayExpr) -> Effects:
        """Enter the functions that lets bind in an expression; return the effects themselves."""
        if id(root) not in self._entered:
            self._entered[id(root)] = root
            for node in _below(root):
                if isinstance(node, rl.Let) and isinstance(node.value, rl.Function):
                    self.functions[node.var] = node.value
        return self

    def of(self, expr: rl.RelayExpr) -> bool:
        """True if the evaluation of an expression may touch a cell."""
        if id(expr) not in self.known:
            self._search(expr)
        return self.known[id(expr)][1]

    def _search(self, root: rl.RelayExpr) -> None:
        """Find the effects of an expression, and of all that its evaluation evaluates."""
        found: dict[int, Node] = {}
        users: dict[int, list[Node]] = {}
        effectful: list[Node] = []
        stack: list[Node] = [root]
        while stack:
            node = stack.pop()
            if id(node) in found:
                continue
            found[id(node)] = node
            evaluated = self._evaluated(node)
            if evaluated is None or any(self.known.get(id(e), (e, False))[1] for e in evaluated):
                effectful.append(node)
                continue
            for part in evaluated:
                if id(part) not in self.known:
                    users.setdefault(id(part), []).append(node)
                    stack.append(part)
        self.known |= {key: (node, False) for key, node in found.items()}
        while effectful:
            node = effectful.pop()
            if not self.known[id(node)][1]:
                self.known[id(node)] = node, True
                effectful += users.get(id(node), ())

    def _evaluated(self, node: Node) -> list[Node] | None:
        """The subexpressions that are evaluated with a node; None if it may touch a cell."""
        if isinstance(node, (rl.RefCreate, rl.RefRead, rl.RefWrite)):
            return None
        if isinstance(node, rl.Function):
            return []  # it is evaluated where it is called
        bodies = self.bodies_called(node.op) if isinstance(node, rl.Call) else []
        if bodies is None:
            return None
        return bodies + [
            c for c in children(node) if not isinstance(c, (types.Type, rl.Constructor))
        ]

    def bodies_called(self, callee: rl.RelayExpr) -> list[Node] | None:
        """The bodies that a call evaluates besides its operands; None if not known."""
        match callee:
            case Op() | rl.Constructor():
                return []
            case rl.Function(body=body):
                return [body]
            case rl.GlobalVar(name_hint=name) if name in self.module:
                function = self.module[name]
                self.entered(function)
                return [function.body]
            case rl.Var() if callee in self.functions:
                return [self.functions[callee].body]
            case _:
                return None


def _below(root: Node) -> Iterator[Node]:
    """Visit all nodes of an expression but types, each once."""
    skipped = (types.Type, rl.Constructor)
    return reached([root], lambda node: [c for c in children(node) if not isinstance(c, skipped)])


def is_dataflow(expr: rl.RelayExpr, mod: RelayModule | None = None) -> bool:
    """True if an expression contains no control flow (RLY-2, RLY-3).

    Branches, matches and recursive calls are control flow, and so is a call of a function whose
    body has some, or that is not known.
    """
    module = RelayModule() if mod is None else mod
    effects = Effects(module).entered(expr)
    done: set[int] = set()
    running: set[int] = set()
    stack: list[tuple[Node, bool]] = [(expr, False)]
    while stack:
        node, leaving = stack.pop()
        if leaving:
            running.discard(id(node))
            done.add(id(node))
            continue
        if id(node) in running:
            return False  # a function that calls itself
        if id(node) in done or isinstance(node, (types.Type, rl.Constructor)):
            continue
        if isinstance(node, (rl.If, rl.Match)):
            return False
        running.add(id(node))
        stack.append((node, True))
        if isinstance(node, rl.Call):
            bodies = effects.bodies_called(node.op)
            if bodies is None and not isinstance(node.op, Op):
                return False
            stack += [(body, False) for body in bodies or ()]
        stack += [(child, False) for child in children(node)]
    return True


@user_facing
def post_order_visit(expr: rl.RelayExpr, fvisit: Callable[[Node], object]) -> None:
    """Call a function for each expression once, operands before the expressions that use them."""
    for node in walk(expr):
        if isinstance(node, rl.RelayExpr):
            fvisit(node)


@user_facing
def well_formed(expr: rl.RelayExpr | RelayModule) -> bool:
    """True if no variable is bound twice or used outside its scope, and no node temporary.

    Variables that nothing binds are free, which is allowed in an expression, but not in the
    functions of a module.

    Errors:
        MisuseError (also TypeError): it is neither an expression nor a module.
    """
    if isinstance(expr, RelayModule):
        return all(
            well_formed(function) and not _uses_outside(function, free=False)
            for function in expr.functions.values()
        )
    check_type(expr, rl.RelayExpr, "expected a Relay expression or module")
    if any(isinstance(node, rl.TempExpr) for node in walk(expr)):
        return False
    binders: list[rl.Var] = []
    for node in walk(expr):
        match node:
            case rl.Function(params=params):
                binders += params
            case rl.Let(var=var) | rl.PatternVar(var=var):
                binders.append(var)
            case _:
                pass
    return len(set(binders)) == len(binders) and not _uses_outside(expr, free=True)


def _uses_outside(root: rl.RelayExpr, *, free: bool) -> bool:
    """True if a variable is used outside the scope that binds it.

    With `free`, variables that nothing binds may be used anywhere.
    """
    scopes = Scopes(root)
    visible = _binders(scopes)
    bound = set(bound_vars(root))
    intervals = _intervals(scopes)
    uses = [(scope, scope.root) for scope in intervals if isinstance(scope.root, rl.Var)]
    for scope in intervals:
        uses += [
            (scope, operand)
            for node in scope.nodes
            for operand in same_scope(node)
            if isinstance(operand, rl.Var)
        ]
    for scope, var in uses:
        first, _ = intervals[scope]
        around = (intervals[binder] for binder in visible.get(var, ()))
        if not any(begin <= first < end for begin, end in around) and (var in bound or not free):
            return True
    return False


def _binders(scopes: Scopes) -> dict[rl.Var, list[Scope]]:
    """The scopes in which each bound variable is visible."""
    visible: dict[rl.Var, list[Scope]] = {}
    for node in scopes.nodes:
        inner = scopes.inner.get(id(node), ())
        match node:
            case rl.Function(params=params):
                for param in params:
                    visible[param] = [inner[0]]
            case rl.Let(var=var, value=value):
                visible[var] = [inner[0]]
                if isinstance(value, rl.Function):
                    visible[var] += scopes.inner[id(value)]
            case rl.Match(clauses=clauses):
                for clause, scope in zip(clauses, inner, strict=True):
                    for var in bound_vars(clause.lhs):
                        visible[var] = [scope]
            case _:
                pass
    return visible


def _intervals(scopes: Scopes) -> dict[Scope, tuple[int, int]]:
    """The number of each scope, and the number after those of all scopes in it."""
    children: dict[Scope, list[Scope]] = {}
    for opened in scopes.inner.values():
        for scope in opened:
            assert scope.parent is not None
            children.setdefault(scope.parent, []).append(scope)
    begin: dict[Scope, int] = {}
    intervals: dict[Scope, tuple[int, int]] = {}
    stack = [(scopes.outermost, False)]
    while stack:
        scope, leaving = stack.pop()
        if leaving:
            intervals[scope] = begin[scope], len(begin)
        else:
            begin[scope] = len(begin)
            stack.append((scope, True))
            stack += [(inner, False) for inner in children.get(scope, ())]
    return intervals


_Row: TypeAlias = dict[int, rl.PatternConstructor | rl.PatternTuple]
"""A row of the match matrix: a clause's refutable patterns by position."""
_Choices: TypeAlias = "tuple[int, rl.Constructor | None, list[int], _Choices] | None"
"""The places that were decided, the last one first: each with its constructor and its fields."""
_MAX_VISITED: Final = 2_000_000
"""The number of rows and demands that are looked at before a match is given up."""


class Case:
    """A pattern that no clause fits; its text is shown in messages."""

    def __init__(self, pattern: rl.Pattern) -> None:
        self.pattern = pattern

    @override
    def __str__(self) -> str:
        return pattern_text(self.pattern)

    __repr__ = __str__


def pattern_text(root: rl.Pattern, name_of: Callable[[rl.Var], str] = lambda var: "_") -> str:
    """The text of a pattern; `name_of` names its variables."""

    def pieces(part: rl.Pattern | str) -> Iterable[rl.Pattern | str]:
        match part:
            case rl.PatternVar(var=var):
                return (name_of(var),)
            case rl.PatternConstructor(constructor=constructor, patterns=()):
                return (constructor.name_hint,)
            case rl.PatternConstructor(constructor=constructor, patterns=patterns):
                return (f"{constructor.name_hint}(", *types.listed(patterns), ")")
            case rl.PatternTuple(patterns=patterns):
                return ("(", *types.listed(patterns, ","), ")")
            case _:
                return () if isinstance(part, str) else ("_",)

    roots: list[rl.Pattern | str] = [root]
    return "".join(part for part in preorder(roots, pieces) if isinstance(part, str))


@user_facing
def unmatched_cases(match: rl.Match, mod: RelayModule | None = None) -> list[Case]:
    """A case that no clause of a match fits, in a list; it is empty if there is none.

    Errors:
        MisuseError: a data type of the patterns is not in the module, or there are too many
            combinations of patterns to decide it.
    """
    try:
        return missing_cases(match, mod)
    except TooManyCasesError as error:
        raise MisuseError(
            str(error), rule="RLY-93", hint=TooManyCasesError.hint, about=match
        ) from None


class TooManyCasesError(Exception):
    """The completeness of a match takes too long to decide: it is as hard as satisfiability."""

    hint = "write match?, or split the match into several"

    def __init__(self) -> None:
        super().__init__("the patterns of the match have too many combinations to be checked")


def missing_cases(match: rl.Match, mod: RelayModule | None) -> list[Case]:
    """The result of `unmatched_cases`.

    Errors:
        TooManyCasesError: it cannot be decided in bounded time.
    """
    return [Case(pattern) for pattern in _Completeness(mod).cases(match)]


class _Completeness:
    """The search for a value that fits no row of patterns.

    The parts of a value have numbered places: 0 is the whole value, and each field of an instance
    or a tuple has one. The search decides places one after the other.

    Rule:
        Maranget, Journal of Functional Programming 17(3), 2007, section 3. A row contains only what
        it demands, and the next place is one of the row that demands least, so that rows that do
        not exclude each other are decided one by one.
    """

    def __init__(self, module: RelayModule | None) -> None:
        self.module = module
        self.visited = 0
        self.places: dict[tuple[int, int], int] = {}

    def cases(self, match: rl.Match) -> list[rl.Pattern]:
        """A pattern of values that fit no clause, if there are such values."""
        start = [_row([(0, clause.lhs)]) for clause in match.clauses]
        stack: list[tuple[list[_Row], _Choices]] = [(start, None)]
        while stack:
            rows, choices = stack.pop()
            if not rows:
                return [self._pattern(choices)]
            shortest = min(rows, key=len)
            if shortest:  # a row that demands nothing fits all values
                stack += reversed(self._decided(rows, next(iter(shortest)), choices))
        return []

    def _decided(
        self, rows: list[_Row], place: int, choices: _Choices
    ) -> list[tuple[list[_Row], _Choices]]:
        """The rows specialised to the values that may be at a place."""
        heads = [row[place] for row in rows if place in row]
        if isinstance(heads[0], rl.PatternTuple):
            return [self._chosen(rows, place, None, len(heads[0].patterns), choices)]
        names = {h.constructor.name_hint for h in heads if isinstance(h, rl.PatternConstructor)}
        every = self._constructors(heads[0].constructor)
        # A value that no row mentions fits only rows that any other value fits as well.
        free = [constructor for constructor in every if constructor.name_hint not in names]
        return [
            self._chosen(rows, place, constructor, len(constructor.inputs), choices)
            for constructor in free[:1] or every
        ]

    def _chosen(
        self,
        rows: list[_Row],
        place: int,
        constructor: rl.Constructor | None,
        count: int,
        choices: _Choices,
    ) -> tuple[list[_Row], _Choices]:
        """The rows specialised to a constructor, or a tuple, at a place."""
        fields = [self.places.setdefault((place, i), len(self.places) + 1) for i in range(count)]
        left: list[_Row] = []
        self.visited += len(rows)
        for row in rows:
            head = row.get(place)
            if head is None:
                left.append(row)
            elif constructor is None or constructor.name_hint == _name(head):
                rest = {other: pattern for other, pattern in row.items() if other != place}
                left.append(rest | _row(zip(fields, head.patterns, strict=True)))
                self.visited += len(left[-1])
        if self.visited > _MAX_VISITED:
            raise TooManyCasesError
        return left, (place, constructor, fields, choices)

    def _pattern(self, choices: _Choices) -> rl.Pattern:
        """The pattern of the values that were chosen."""
        patterns: dict[int, rl.Pattern] = {}
        while choices is not None:  # fields were chosen after what contains them
            place, constructor, fields, choices = choices
            inner = [patterns.get(field) or rl.PatternWildcard() for field in fields]
            patterns[place] = (
                rl.PatternTuple(inner)  # type: ignore[arg-type]
                if constructor is None
                else rl.PatternConstructor(constructor, inner)  # type: ignore[arg-type]
            )
        return patterns.get(0) or rl.PatternWildcard()

    def _constructors(self, known: rl.Constructor) -> Sequence[rl.Constructor]:
        """All constructors of the data type of one."""
        header = known.belong_to
        data = None
        if self.module is not None:
            data = self.module.definitions_by_name.get(header.name_hint)
        if data is None:
            raise MisuseError(
                f"the module has no data type {header}",
                rule="RLY-95",
                hint="pass the module that has it as the second argument",
            )
        return data.constructors


def _row(patterns: Iterable[tuple[int, rl.Pattern]]) -> _Row:
    """The demands of patterns at places."""
    return {
        place: pattern
        for place, pattern in patterns
        if isinstance(pattern, (rl.PatternConstructor, rl.PatternTuple))
    }


def _name(pattern: rl.Pattern) -> str:
    return pattern.constructor.name_hint if isinstance(pattern, rl.PatternConstructor) else ""


@user_facing
def check_kind(t: types.Type, mod: RelayModule | None = None) -> types.TypeKind:
    """The kind of a type.

    Errors:
        RelayTypeError: a component is of another kind than is needed there, or a data type is
            unknown to `mod` or applied to the wrong number of types.
    """
    errors = kind_errors(t, mod)
    if errors:
        raise RelayTypeError([Diagnostic(message, rule, t.span) for rule, message in errors])
    return kind_of(t)


def kind_of(ty: Node) -> types.TypeKind:
    """The kind of a type whose components are right."""
    match ty:
        case types.TypeVar(kind=kind) | types.IncompleteType(kind=kind):
            return kind
        case types.GlobalTypeVar():
            return types.TypeKind.AdtHandle
        case types.TypeData():
            return types.TypeKind.TypeData
        case types.TypeRelation():
            return types.TypeKind.Constraint
        case _:
            return types.TypeKind.Type


def kind_errors(
    root: types.Type, module: RelayModule | None, checked: dict[int, Node] | None = None
) -> list[tuple[str, str]]:
    """The rule and the message of each wrong kind in a type.

    `checked` are types without errors, by identity; it receives those in `root`.
    """
    errors: list[tuple[str, str]] = []
    known = {} if checked is None else checked
    visited: dict[int, Node] = {}
    stack: list[Node] = [root]
    while stack:
        ty = stack.pop()
        if id(ty) in visited or id(ty) in known:
            continue
        visited[id(ty)] = ty
        for part in _types_in(ty):
            kind = kind_of(part)
            if kind is not types.TypeKind.Type:
                text = f"expected a type, found {part}, which is of kind {kind.name}"
                errors.append(("RLY-17", text))
        if isinstance(ty, types.TypeCall):
            errors += _call_errors(ty, module)
        if not isinstance(ty, (types.TypeVar, types.TensorType)):
            stack += children(ty)
    if not errors:
        known.update(visited)
    return errors


def _types_in(ty: Node) -> tuple[Node, ...]:
    """The components of a type that have to be of kind Type."""
    match ty:
        case types.TupleType(fields=fields):
            return fields
        case types.FuncType(arg_types=args, ret_type=result):
            return (*args, result)
        case types.RefType(value=value):
            return (value,)
        case types.TypeCall(args=args):
            return args
        case types.TypeData(constructors=constructors):
            return tuple(field for constructor in constructors for field in constructor.inputs)
        case _:
            return ()


def _call_errors(call: types.TypeCall, module: RelayModule | None) -> list[tuple[str, str]]:
    if module is None:
        return []
    data = module.definitions_by_name.get(call.func.name_hint)
    if data is None:
        return [("RLY-95", f"the module has no data type {call.func}")]
    if len(call.args) != len(data.type_vars):
        number = counted(len(data.type_vars), "type")
        return [("RLY-67", f"the data type {call.func} takes {number}, found {len(call.args)}")]
    return []
