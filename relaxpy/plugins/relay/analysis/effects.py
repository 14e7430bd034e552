"""The expressions that may create, read or write reference cells (RLY-1, RLY-108)."""

from __future__ import annotations

from collections.abc import Iterator

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, reached
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.ty import Type


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
