"""The page docs/python-reference.md, made from the docstrings: `python tests/reference.py` writes it again, and test_reference.py
compares it with what is there.

What needs PyTorch is read from its source, as it cannot be imported everywhere.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import kilnfs

PAGE = Path(__file__).resolve().parents[3] / "docs" / "python-reference.md"
WIDTH = 100
PACKAGE = Path(kilnfs.__file__).parent

MODULES = {
    "kilnfs": None,
    "kilnfs.shards": None,
    "kilnfs.fs": None,
    "kilnfs.torch": "torch",
    "kilnfs.torchvision": "torchvision",
}
"""Modules that users import, and what they need that may be absent."""

GIVEN = {
    "kilnfs._reports": ("ImageInfo", "CheckReport", "Extent", "Cost"),
    "kilnfs._entries": ("DirEntry", "Entry", "ScandirIterator"),
    "kilnfs._file": ("File", "BufferedFile"),
    "kilnfs._pack_result": ("Estimate",),
    "kilnfs._native": ("Positions",),
    "kilnfs.shards._sharded_index": ("ShardedSubset",),
    "kilnfs._locality": ("Locality",),
}
"""Classes that methods give, by the module that has them."""

INHERITED = frozenset(("kilnfs._reports.Report",))


@dataclass(frozen=True)
class Name:
    """Something that users name."""

    path: str
    """From the module on."""
    signature: str | None
    doc: str
    is_member: bool


def names() -> Iterator[tuple[str, list[Name]]]:
    """The public names of each module, and of what methods give."""
    for module, needs in MODULES.items():
        yield module, list(_parsed(module) if needs else _described(importlib.import_module(module)))
    given = []
    for module, classes in GIVEN.items():
        for name in classes:
            given += _of_class(name, getattr(importlib.import_module(module), name))
    yield "What methods give", given


def _described(module: ModuleType) -> Iterator[Name]:
    for name in getattr(module, "__all__", None) or _defined(module):
        found = getattr(module, name)
        if inspect.isclass(found):
            yield from _of_class(name, found)
        elif callable(found):
            yield Name(name, _signature(found), inspect.getdoc(found) or "", False)


def _defined(module: ModuleType) -> list[str]:
    found = vars(module).items()
    return [name for name, value in found if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__]


def _of_class(name: str, cls: type) -> Iterator[Name]:
    yield Name(name, _signature(cls), cls.__dict__.get("__doc__") or "", False)
    members: dict[str, Any] = {}
    fields: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.split(".")[0] == "kilnfs":
            members.update(base.__dict__)
            fields.update(_fields(base))
    for member in sorted(members.keys() | fields.keys()):
        if member.startswith("_"):
            continue
        value = members.get(member)
        if member in fields:
            yield Name(f"{name}.{member}", None, fields[member], True)
        elif isinstance(value, (staticmethod, classmethod)):
            yield Name(f"{name}.{member}", _signature(value.__func__), inspect.getdoc(value.__func__) or "", True)
        elif callable(value):
            yield Name(f"{name}.{member}", _signature(value), inspect.cleandoc(value.__doc__ or ""), True)
        elif isinstance(value, property) or inspect.isgetsetdescriptor(value) or hasattr(value, "__get__"):
            yield Name(f"{name}.{member}", None, inspect.cleandoc(getattr(value, "__doc__", "") or ""), True)


def _fields(cls: type) -> dict[str, str]:
    """The attributes that a class declares, and the text below each."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError):
        return {}  # of the native module
    assert isinstance(tree, ast.ClassDef)
    return _fields_of(tree)


def _fields_of(tree: ast.ClassDef) -> dict[str, str]:
    found = {}
    init = next((one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    bodies = [tree.body] + ([init.body] if init else [])
    for body in bodies:
        for one, behind in zip(body, [*body[1:], None], strict=True):
            text = _text(behind)
            targets = [one.target] if isinstance(one, ast.AnnAssign) else one.targets if isinstance(one, ast.Assign) else []
            for target in targets:
                if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                    name = target.attr
                elif isinstance(target, ast.Name) and body is tree.body and isinstance(one, ast.AnnAssign):
                    name = target.id
                else:
                    continue
                if not name.startswith("_"):
                    found[name] = text or found.get(name, "")
    return found


def _text(statement: ast.stmt | None) -> str:
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return inspect.cleandoc(str(statement.value.value)) if is_text else ""  # type: ignore[union-attr]


def _signature(found: Any) -> str | None:
    try:
        signature = inspect.signature(found)
    except (ValueError, TypeError):
        return None
    kept = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    return _wrapped([one if isinstance(one, str) else _parameter(one) for one in _with_marks(kept)])


def _parameter(one: inspect.Parameter) -> str:
    """A parameter with its type as the source has it."""
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    annotated = one.annotation is not one.empty
    default = "" if one.default is one.empty else f" = {one.default!r}" if annotated else f"={one.default!r}"
    return f"{stars}{one.name}{f': {one.annotation}' if annotated else ''}{default}"


def _with_marks(parameters: list[inspect.Parameter]) -> list[Any]:
    found: list[Any] = []
    keyword_only = False
    for one in parameters:
        if one.kind == one.VAR_POSITIONAL:
            keyword_only = True
        if one.kind == one.KEYWORD_ONLY and not keyword_only:
            found.append("*")
            keyword_only = True
        found.append(one)
    return found


def _wrapped(arguments: list[str]) -> str:
    line = ", ".join(arguments)
    if len(line) <= 80:
        return f"({line})"
    return "(\n" + "".join(f"    {one},\n" for one in arguments) + ")"


def _parsed(module: str) -> Iterator[Name]:
    """The names of `__all__` as the source has them."""
    tree = ast.parse((PACKAGE / (module.removeprefix("kilnfs.") + ".py")).read_text())
    listed: list[str] = []
    for one in tree.body:
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and one.targets[0].id == "__all__":
            listed = ast.literal_eval(one.value)
    for one in tree.body:
        if isinstance(one, ast.FunctionDef) and one.name in listed:
            yield Name(one.name, _parsed_signature(one), ast.get_docstring(one) or "", False)
        elif isinstance(one, ast.ClassDef) and one.name in listed:
            init = next((each for each in one.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
            doc = ast.get_docstring(one) or _taken_over(one)
            yield Name(one.name, _parsed_signature(init) if init else None, doc, False)
            for field, text in sorted(_fields_of(one).items()):
                if text:
                    yield Name(f"{one.name}.{field}", None, text, True)
            for each in one.body:
                if isinstance(each, ast.FunctionDef) and not each.name.startswith("_") and not _is_setter(each):
                    signature = None if each.decorator_list else _parsed_signature(each)
                    yield Name(f"{one.name}.{each.name}", signature, ast.get_docstring(each) or "", True)


def _taken_over(tree: ast.ClassDef) -> str:
    """The text of samplers, which have that of their base."""
    from kilnfs._locality import Locality

    taken = any(isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__doc__" for one in tree.body)
    return inspect.getdoc(Locality) or "" if taken else ""


def _is_setter(function: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Attribute) and one.attr == "setter" for one in function.decorator_list)


def _parsed_signature(function: ast.FunctionDef) -> str:
    scope: dict[str, Any] = {}
    stub = ast.FunctionDef(function.name, function.args, [ast.Pass()], [], function.returns)
    for default in ast.walk(stub):
        if isinstance(default, ast.arg):
            default.annotation = default.annotation and ast.Constant(ast.unparse(default.annotation))
    stub.returns = None
    # Defaults that are names of the module stand for themselves.
    stub.args.defaults = [_shown(one) for one in stub.args.defaults]
    stub.args.kw_defaults = [one and _shown(one) for one in stub.args.kw_defaults]
    exec(compile(ast.fix_missing_locations(ast.Module([stub], [])), "stub", "exec"), {"_Shown": _Shown}, scope)  # noqa: S102
    return _signature(scope[function.name]) or "()"


class _Shown:
    """A default that is shown as the source has it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _shown(default: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("_Shown", ast.Load()), [ast.Constant(ast.unparse(default))], [])


def page() -> str:
    """The page."""
    parts = [
        "# Reference of `kilnfs`\n",
        _filled(
            "All public names, from their docstrings: `help(kilnfs.Image.read_many)` shows the same. Made by "
            "`crates/python/tests/reference.py`; do not edit. [Packing](python-packing.md), "
            "[training](python-training.md) and [fsspec](python-fsspec.md) have pages of their own."
        ),
        "In the examples `image` is `kilnfs.open(\"train.erofs\")`.\n",
    ]
    for module, found in names():
        title = f"`{module}`" if module.startswith("kilnfs") else module
        parts.append(f"## {title}\n")
        for name in found:
            parts.append(f"{'####' if name.is_member else '###'} `{name.path}`\n")
            if name.signature is not None:
                parts.append(f"```python\n{name.path.rpartition('.')[2]}{name.signature}\n```\n")
            parts.append(_as_markdown(name.doc))
    return "\n".join(parts).rstrip() + "\n"


def _as_markdown(doc: str) -> str:
    """Text of a docstring: examples as blocks, the rest in lines of the page's width."""
    out = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(doc)):
        lines = paragraph.split("\n")
        if lines[0].lstrip().startswith(">>>"):
            out.append("```python\n" + textwrap.dedent(paragraph) + "\n```\n")
        elif lines[0].startswith("    "):
            out.append("```python\n" + textwrap.dedent(paragraph) + "\n```\n")
        elif lines[0].startswith("* "):
            items = re.split(r"\n(?=\* )", paragraph)
            out.append("".join(_filled(item[2:], "* ", "  ") for item in items))
        else:
            out.append(_filled(paragraph))
    return "\n".join(out)


def _filled(text: str, first: str = "", rest: str = "") -> str:
    words = " ".join(text.split())
    # "::" at the end announces code, which the page shows as such.
    words = re.sub(r"\s*::$", ":", words)
    return textwrap.fill(
        words, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    ) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
