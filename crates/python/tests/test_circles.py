"""The modules of the package import each other in one direction: at import time, and within functions."""

from __future__ import annotations

import ast
from pathlib import Path

import kilnfs

PACKAGE = Path(kilnfs.__file__).parent
EXCEPTIONS: frozenset[tuple[str, str]] = frozenset()
"""Late imports that close a circle, as pairs of modules, with the reason beside each. None at present."""


def imports(path: Path) -> set[str]:
    """Returns the modules of the package that a module imports, except those for type checkers alone."""
    package = ("kilnfs", *path.relative_to(PACKAGE).parts[:-1])
    todo: list[ast.AST] = [ast.parse(path.read_text())]
    found: set[str] = set()
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "kilnfs"}
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == "kilnfs"):
            base = [*package[: len(package) + 1 - node.level]] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from . import name` imports a module, `from .module import name` usually does not.
            names = {f"{module}.{alias.name}" for alias in node.names}
            found |= {name if _is_module(name) else module for name in names}
        todo += ast.iter_child_nodes(node)
    return found


def _is_module(name: str) -> bool:
    path = PACKAGE.joinpath(*name.split(".")[1:])
    return any(path.with_suffix(end).exists() for end in (".py", ".pyi")) or (path / "__init__.py").exists()


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Returns modules that import each other in a circle, or an empty list."""
    left = {module: targets & graph.keys() for module, targets in graph.items()}
    while ends := [module for module, targets in left.items() if not targets & left.keys()]:
        for end in ends:
            del left[end]
    if not left:
        return []
    path = [min(left)]
    while True:
        following = min(left[path[-1]] & left.keys())
        if following in path:
            return path[path.index(following) :]
        path.append(following)


def graph() -> dict[str, set[str]]:
    """Returns the imports of all modules."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = ("kilnfs", *path.relative_to(PACKAGE).with_suffix("").parts)
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[module] = {target for target in imports(path) if (module, target) not in EXCEPTIONS}
    return found


def test_no_circles() -> None:
    modules = graph()
    assert len(modules) > 50 and "kilnfs._verbs" in modules["kilnfs._image"]
    assert "kilnfs._fsspec_source" in modules["kilnfs._source"], "late imports count"
    assert circle(modules) == []


def test_the_package_imports_itself_nowhere() -> None:
    # `import kilnfs` would hide a circle: the package imports its modules by name.
    assert not [module for module, targets in graph().items() if "kilnfs" in targets]


def test_circles_are_found() -> None:
    assert circle({"a": {"b"}, "b": {"c", "x"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c"]
    assert circle({"a": {"b"}, "b": set()}) == []
