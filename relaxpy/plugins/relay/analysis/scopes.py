"""The scope at which each expression is evaluated (RLY-110), its effects, and well-formedness."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from relaxpy.errors import check_type
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, postorder, reached, walk
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis.variables import bound_vars
from relaxpy.plugins.relay.expr import Function, Let, Match, PatternVar, RelayExpr, TempExpr, Var
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.ty import Type
from relaxpy.support.entry import user_facing

_ATOMS = (rl.Var, rl.GlobalVar, rl.Constant, rl.Literal, rl.Constructor, Op)


def is_atom(expr: Node) -> bool:
    """Return whether an expression is a name or a constant, whose evaluation does nothing."""
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
        """Return the innermost scope that contains this one and another."""
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
    """Return the operands of an expression that are evaluated in its own scope, in order."""
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
    """Return the operands of an expression that open a scope of their own."""
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
        """Return whether the evaluation of an expression may touch a cell."""
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
        """Return the subexpressions that are evaluated with a node; None if it may touch a cell."""
        if isinstance(node, (rl.RefCreate, rl.RefRead, rl.RefWrite)):
            return None
        if isinstance(node, rl.Function):
            return []  # it is evaluated where it is called
        bodies = self.bodies_called(node.op) if isinstance(node, rl.Call) else []
        if bodies is None:
            return None
        return bodies + [c for c in children(node) if not isinstance(c, (Type, rl.Constructor))]

    def bodies_called(self, callee: rl.RelayExpr) -> list[Node] | None:
        """Return the bodies that a call evaluates besides its operands; None if not known."""
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
    skipped = (Type, rl.Constructor)
    return reached([root], lambda node: [c for c in children(node) if not isinstance(c, skipped)])


def is_dataflow(expr: rl.RelayExpr, mod: RelayModule | None = None) -> bool:
    """Return whether an expression contains no control flow (RLY-2, RLY-3).

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
        if id(node) in done or isinstance(node, (Type, rl.Constructor)):
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
def post_order_visit(expr: RelayExpr, fvisit: Callable[[Node], object]) -> None:
    """Call a function for each expression once, operands before the expressions that use them."""
    for node in walk(expr):
        if isinstance(node, RelayExpr):
            fvisit(node)


@user_facing
def well_formed(expr: RelayExpr | RelayModule) -> bool:
    """Return whether no variable is bound twice or used outside its scope, and no node temporary.

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
    check_type(expr, RelayExpr, "expected a Relay expression or module")
    if any(isinstance(node, TempExpr) for node in walk(expr)):
        return False
    binders: list[Var] = []
    for node in walk(expr):
        match node:
            case Function(params=params):
                binders += params
            case Let(var=var) | PatternVar(var=var):
                binders.append(var)
            case _:
                pass
    return len(set(binders)) == len(binders) and not _uses_outside(expr, free=True)


def _uses_outside(root: RelayExpr, *, free: bool) -> bool:
    """Return whether a variable is used outside the scope that binds it.

    With `free`, variables that nothing binds may be used anywhere.
    """
    scopes = Scopes(root)
    visible = _binders(scopes)
    bound = set(bound_vars(root))
    intervals = _intervals(scopes)
    uses = [(scope, scope.root) for scope in intervals if isinstance(scope.root, Var)]
    for scope in intervals:
        uses += [
            (scope, operand)
            for node in scope.nodes
            for operand in same_scope(node)
            if isinstance(operand, Var)
        ]
    for scope, var in uses:
        first, _ = intervals[scope]
        around = (intervals[binder] for binder in visible.get(var, ()))
        if not any(begin <= first < end for begin, end in around) and (var in bound or not free):
            return True
    return False


def _binders(scopes: Scopes) -> dict[Var, list[Scope]]:
    """Return the scopes in which each bound variable is visible."""
    visible: dict[Var, list[Scope]] = {}
    for node in scopes.nodes:
        inner = scopes.inner.get(id(node), ())
        match node:
            case Function(params=params):
                for param in params:
                    visible[param] = [inner[0]]
            case Let(var=var, value=value):
                visible[var] = [inner[0]]
                if isinstance(value, Function):
                    visible[var] += scopes.inner[id(value)]
            case Match(clauses=clauses):
                for clause, scope in zip(clauses, inner, strict=True):
                    for var in bound_vars(clause.lhs):
                        visible[var] = [scope]
            case _:
                pass
    return visible


def _intervals(scopes: Scopes) -> dict[Scope, tuple[int, int]]:
    """Return the number of each scope, and the number after those of all scopes in it."""
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
