"""Glob patterns over an image, with the rules of `pathlib`.

`*`, `?` and `[…]` match within a name, hidden names included; `**` alone between slashes matches
any number of directories, and at the end the whole tree below. `**` does not follow links; a name
in the pattern does. Only directories are read, never inodes of files. """

from __future__ import annotations

from functools import lru_cache
from stat import S_IFDIR, S_IFLNK

from ._names import decode, is_absence, joined
from ._walk import leads_to_directory, members

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ._primitives import ImagePrimitives

_MAGIC = frozenset("*?[")


def select(image: ImagePrimitives, root: str, pattern: str) -> Iterator[str]:
    """Yields the matching paths below `root`, relative to it; for an absolute pattern, absolute
    paths. "" is the root itself.

    A pattern that ends with a slash matches directories only; their paths have no slash at the end.
    """
    if not pattern:
        raise ValueError("the pattern is empty")
    start = ""
    if pattern.startswith("/"):
        root, start = "/", "/"
    parts = [part for part in pattern.split("/") if part and part != "."]
    # "a/**/**/b" is "a/**/b".
    parts = [part for i, part in enumerate(parts) if part != "**" or i == 0 or parts[i - 1] != "**"]
    if not leads_to_directory(image, root):
        return iter(())
    found = _below(image, root, start, parts, 0, directories_only=pattern.endswith("/"))
    # Two "**" may match one path in several ways.
    return _distinct(found) if parts.count("**") > 1 else found


def _below(
    image: ImagePrimitives, root: str, path: str, parts: Sequence[str], i: int, *, directories_only: bool
) -> Iterator[str]:
    """Yields the paths that match the parts from `i` on, in the directory `path`, which exists. The
    depth of recursion is at most the number of parts. """
    if i == len(parts):
        yield path
        return
    last, part, here = i + 1 == len(parts), parts[i], joined(root, path) if path else root
    if part == "**":
        yield from _below(image, root, path, parts, i + 1, directories_only=directories_only)
        for below, _, kind in members(image, here, path):
            if kind == S_IFDIR:
                yield from _below(image, root, below, parts, i + 1, directories_only=directories_only)
            elif last and not directories_only:
                yield below
        return
    for name, kind in _matching(image, here, part):
        child = joined(path, name)
        if last and not directories_only:
            yield child
        elif kind == S_IFDIR or kind in (0, S_IFLNK) and leads_to_directory(image, joined(root, child)):
            yield from _below(image, root, child, parts, i + 1, directories_only=directories_only)


def _matching(image: ImagePrimitives, directory: str, part: str) -> Iterator[tuple[str, int]]:
    """Yields the names in a directory that match one part of a pattern, and their types; 0 for an
    unknown type."""
    if _MAGIC.isdisjoint(part):
        # A name without wildcards is looked up, as the directory may be large.
        try:
            image._lookup(joined(directory, part), False)
        except OSError as error:
            if not is_absence(error):
                raise
        else:
            yield part, 0
        return
    match = matcher(part)
    for raw, _, kind in image._listdir(directory):
        name = decode(raw)
        if match(name):
            yield name, kind


@lru_cache(256)
def matcher(part: str) -> Callable[[str], object]:
    """Returns a function that matches a name with one part of a pattern."""
    import re
    from fnmatch import translate

    return re.compile(translate(part)).match


def matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Returns true if the names of a path match all parts of a pattern.

    As in `pathlib`, `**` after other parts matches at least one name: "a/**" does not match "a".
    """
    if len(parts) > 1 and parts[-1] == "**":
        parts = (*parts, "*")
    # Lengths of the prefixes of the pattern that match the names so far.
    states = {0}
    for name in (*names, None):
        todo = list(states)
        while todo:  # "**" also matches no name
            state = todo.pop()
            if state < len(parts) and parts[state] == "**" and state + 1 not in states:
                states.add(state + 1)
                todo.append(state + 1)
        if name is None:
            break
        states = {
            state if parts[state] == "**" else state + 1
            for state in states
            if state < len(parts) and (parts[state] == "**" or matcher(parts[state])(name))
        }
    return len(parts) in states


def _distinct(paths: Iterator[str]) -> Iterator[str]:
    seen: set[str] = set()
    for path in paths:
        if path not in seen:
            seen.add(path)
            yield path
