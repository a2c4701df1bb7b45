"""What an image says of itself: its superblock, its check, where files are stored and what reading them costs."""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Self


class Report:
    """Values by their names; `vars(report)` has all of them."""

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        """The report of what the native side has found."""
        report = cls()
        vars(report).update(found)
        return report

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(self) is type(other) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it has lists in it

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class ImageInfo(Report):
    """What the superblock says."""

    block_size: int
    """Bytes."""
    inodes: int
    """Files and directories."""
    build_time: int
    """Seconds since 1970."""
    label: str
    root_nid: int


class CheckReport(Report):
    """What a check has found."""

    problems: list[Any]
    """What is wrong, and where."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class Extent(Report):
    """A piece of a file, and where it is stored."""


class Cost(Report):
    """What reading a range costs."""
