"""What gevent and eventlet replace in a module is looked up when it is used: a name bound at import blocks all greenlets."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

import pytest

from tests.support.paths import REPOSITORY

SDK = REPOSITORY / "client" / "hubbub"
FILES = sorted([SDK / "client.py", *(SDK / "sdk").rglob("*.py"), *(SDK / "files").glob("*.py")])
REPLACED = {
    "queue": {"SimpleQueue", "Queue", "LifoQueue", "PriorityQueue"},
    "threading": {"Lock", "RLock", "Condition", "Event", "Semaphore", "Thread", "Timer", "local", "get_ident"},
    "time": {"sleep"},
    "socket": {"socket", "create_connection", "getaddrinfo"},
    "select": {"select", "poll", "epoll"},
    "ssl": {"SSLContext", "create_default_context"},
    "subprocess": {"Popen", "run"},
    "os": {"fork", "read", "write", "waitpid"},
}


def is_replaced(node: ast.AST) -> TypeGuard[ast.Attribute]:
    match node:
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return name in REPLACED.get(module, ())
        case _:
            return False


def bound_at_import(tree: ast.Module) -> Iterator[str]:
    """Names of the replaced things that a module, a default value or a class keeps from its import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in REPLACED:
            kept = {alias.name for alias in node.names} & REPLACED[node.module]
            yield from (f"line {node.lineno}: from {node.module} import {name}" for name in sorted(kept))
    runs_at_import: list[ast.AST] = [tree]
    while runs_at_import:
        node = runs_at_import.pop()
        inner: list[ast.AST] = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inner = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        elif isinstance(node, ast.AnnAssign):
            inner = [] if node.value is None else [node.value]
        elif is_replaced(node):
            yield f"line {node.lineno}: {ast.unparse(node)}"
        runs_at_import += inner


@pytest.mark.parametrize(
    ("code", "number"),
    [
        ("from queue import Empty, SimpleQueue", 1),
        ("import time\ndef f(sleep=time.sleep): pass", 1),
        ("import threading\nlock = threading.Lock()", 1),
        ("import threading\nclass A(threading.Thread):\n    lock = threading.RLock()", 2),
        ("import threading\ndef f(lock: threading.Lock) -> None:\n    threading.Lock()", 0),
    ],
)
def test_rule_finds_what_is_bound_at_import(code: str, number: int) -> None:
    assert len(list(bound_at_import(ast.parse(code)))) == number


def test_client_binds_nothing_that_a_host_replaces() -> None:
    assert len(FILES) > 30
    found = [
        f"{path.relative_to(SDK)}, {name}" for path in FILES for name in bound_at_import(ast.parse(path.read_text()))
    ]
    assert not found
