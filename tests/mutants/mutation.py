"""Mutants of a module: its source with one operator, number or statement changed.

A mutant is named by its file, its function, the code before and after, and the number of the occurrence of that change in the function.
The name stays the same while the function does not change.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
MESSAGES = {"HTTPException", "Problem", "log", "logger", "logging", "warnings", "warn", "TypeVar", "NamedTuple"}
"""Calls whose arguments are text for people, or types."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    area: str
    file: str
    scope: str
    before: str
    after: str
    occurrence: int

    def __str__(self) -> str:
        return f"{self.file} {self.scope}: {self.before} -> {self.after} ({self.occurrence})"


@dataclass(frozen=True)
class Change:
    """A node of a syntax tree, and the code that replaces it."""

    node: ast.expr | ast.stmt
    after: str
    scope: str

    @property
    def operator(self) -> str:
        """Kind of the change: the type of the changed code, and whether it is removed."""
        removed = " removed" if self.after in ("pass", "return None") else ""
        return f"{type(self.node).__name__}{removed}"


def mutants_of(area: str, file: str, source: str) -> dict[Mutant, Change]:
    """All mutants of a module in the order of its lines.

    >>> [str(each) for each in mutants_of("a", "m.py", "def f(x):\\n    return x + 1 < 3 or not x\\n")][:3]
    ['m.py f: return x + 1 < 3 or not x -> return None (1)', 'm.py f: x + 1 < 3 or not x -> x + 1 < 3 and (not x) (1)', 'm.py f: x + 1 < 3 -> x + 1 <= 3 (1)']
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    found = {}
    for change in _changes(ast.parse(source), "module"):
        key = (change.scope, ast.unparse(change.node), change.after)
        counts[key] += 1
        found[Mutant(area, file, *key, counts[key])] = change
    return found


def mutate(source: str, change: Change) -> str:
    """The source of a module with one node replaced; the other lines keep their numbers.

    >>> source = "def f(x):\\n    return min(x,\\n        2)\\n"
    >>> print(mutate(source, list(mutants_of("a", "m.py", source).values())[1]))
    def f(x):
        return (max(x, 2) \\
    )
    <BLANKLINE>
    """
    node = change.node
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    lines = source.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    added = "\\\n" * (node.end_lineno - node.lineno)
    after = f"({change.after} {added})" if isinstance(node, ast.expr) else f"{change.after} {added}".rstrip(" ")
    return (source.encode()[:start] + after.encode() + source.encode()[end:]).decode()


def with_probes(source: str, probes: dict[Mutant, int]) -> str:
    """The source of a module in which `_probe(number)` is called wherever the changed code of a mutant is about to run.

    >>> source = "def f(x):\\n    return x + 1\\n"
    >>> print(with_probes(source, dict(zip(mutants_of("a", "m.py", source), (7, 8)))))
    import builtins
    _probe = getattr(builtins, '_probe', lambda number: True)
    <BLANKLINE>
    def f(x):
        _probe(7)
        return x + 1 if _probe(8) else None
    """
    numbers: dict[str, list[int]] = {}
    found = {str(mutant): change for mutant, change in mutants_of("", "", source).items()}
    for mutant, number in probes.items():
        numbers.setdefault(_place(found[str(replace(mutant, area="", file=""))].node), []).append(number)
    tree = ast.fix_missing_locations(_Probes(numbers).visit(ast.parse(source)))
    imports = next(i for i, statement in enumerate(tree.body) if not _is_preamble(statement))
    prelude = "import builtins\n_probe = getattr(builtins, '_probe', lambda number: True)"
    tree.body[imports:imports] = ast.parse(prelude).body
    return ast.unparse(tree)


class _Probes(ast.NodeTransformer):
    def __init__(self, numbers: dict[str, list[int]]) -> None:
        self.numbers = numbers

    def visit(self, node: ast.AST) -> Any:
        mine = self.numbers.get(_place(node), []) if isinstance(node, ast.expr | ast.stmt) else []
        new: Any = self.generic_visit(node)
        for number in mine:
            call = ast.Call(ast.Name("_probe", ast.Load()), [ast.Constant(number)], [])
            if isinstance(new, ast.expr):
                new = ast.IfExp(call, new, ast.Constant(None))
            else:
                new = [ast.Expr(call), *(new if isinstance(new, list) else [new])]
        return new


def _place(node: ast.AST) -> str:
    return f"{type(node).__name__} {getattr(node, 'lineno', 0)} {getattr(node, 'col_offset', 0)} {getattr(node, 'end_col_offset', 0)}"


def _is_preamble(statement: ast.stmt) -> bool:
    """Whether a statement must stay first: the docstring, and `from __future__`."""
    is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_docstring or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")


def _changes(node: ast.AST, scope: str) -> Iterator[Change]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            inner = node.name if scope == "module" else f"{scope}.{node.name}"
            defaults = [] if isinstance(node, ast.ClassDef) else [*node.args.defaults, *node.args.kw_defaults]
            for child in (*(default for default in defaults if default is not None), *node.body):
                yield from _changes(child, inner)
            return
        case ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Assert():
            return
        case ast.Expr(value=ast.Constant()):
            return
        case ast.AnnAssign():
            if node.value is not None:
                yield from _changes(node.value, scope)
            return
        case ast.Raise():
            yield Change(node, "pass", scope)
            return
        case ast.Expr(value=ast.Call() as call):
            if _called(call) not in MESSAGES:
                yield Change(node, "pass", scope)
        case ast.AugAssign():
            yield Change(node, "pass", scope)
            yield from _swapped(node, scope)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield Change(node, "pass", scope)
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield Change(node, "return None", scope)
        case ast.Call() if _called(node) in MESSAGES:
            return
        case ast.expr():
            yield from _swapped(node, scope)
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.arguments | ast.match_case | ast.pattern):
            yield from _changes(child, scope)
        elif isinstance(child, ast.match_case):
            for statement in child.body:
                yield from _changes(statement, scope)


def _swapped(node: ast.expr | ast.AugAssign, scope: str) -> Iterator[Change]:
    """Changes of one expression, its parts left as they are."""

    def changed(new: ast.AST) -> Change:
        return Change(node, ast.unparse(new), scope)

    match node:
        case ast.AugAssign() if type(node.op) in BINARY:
            yield changed(ast.AugAssign(node.target, BINARY[type(node.op)](), node.value))
        case ast.BinOp() if type(node.op) in BINARY and scope != "module" and not _is_text(node):
            yield changed(ast.BinOp(node.left, BINARY[type(node.op)](), node.right))
        case ast.Compare():
            for i, operator in enumerate(node.ops):
                operators = [*node.ops[:i], COMPARISONS[type(operator)](), *node.ops[i + 1 :]]
                yield changed(ast.Compare(node.left, operators, node.comparators))
        case ast.BoolOp():
            yield changed(ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values))
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            yield changed(node.operand)
        case ast.Constant(value=bool()):
            yield changed(ast.Constant(not node.value))
        case ast.Constant(value=int() | float() as number):
            yield changed(ast.Constant(number + 1))
            yield changed(ast.Constant(number - 1))
        case ast.Call(func=ast.Name(id=name)) if name in EXTREMES:
            yield changed(ast.Call(ast.Name(EXTREMES[name]), node.args, node.keywords))
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in EXTREMES:
            yield changed(ast.Call(ast.Attribute(value, EXTREMES[name]), node.args, node.keywords))


def _called(call: ast.Call) -> str:
    """First or last name of the called function: `log` of `log.info(...)`, else `Problem` of `problems.Problem(...)`."""
    names = ast.unparse(call.func).split(".")
    return names[0] if names[0] in MESSAGES else names[-1]


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(operand, ast.JoinedStr) or (isinstance(operand, ast.Constant) and isinstance(operand.value, str))
        for operand in (node.left, node.right)
    )
