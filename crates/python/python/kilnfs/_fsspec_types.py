"""Parts of fsspec that `kilnfs.fs` builds on, with annotations for type checkers, which fsspec
lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os
    from typing import Literal, Self, overload

    class AbstractFileSystem:
        """Methods that `ErofsFileSystem` inherits from fsspec."""

        blocksize: int
        storage_args: tuple[Any, ...]
        storage_options: dict[str, Any]

        def __init__(self, *args: Any, **storage_options: Any) -> None: ...
        @classmethod
        def _strip_protocol(cls, path: Any) -> Any: ...
        @classmethod
        def clear_instance_cache(cls) -> None: ...
        @classmethod
        def current(cls) -> Self: ...
        def unstrip_protocol(self, name: str) -> str: ...
        def expand_path(
            self, path: str | os.PathLike[str] | list[str], recursive: bool = False, maxdepth: int | None = None
        ) -> list[str]: ...
        def get(
            self, rpath: Any, lpath: Any, recursive: bool = False, *, maxdepth: int | None = None, **kwargs: Any
        ) -> None: ...
        def download(self, rpath: Any, lpath: Any, recursive: bool = False, **kwargs: Any) -> None: ...
        @overload
        def glob(
            self, path: str, maxdepth: int | None = None, *, detail: Literal[False] = False, withdirs: bool = True
        ) -> list[str]: ...
        @overload
        def glob(
            self, path: str, maxdepth: int | None = None, *, detail: Literal[True], withdirs: bool = True
        ) -> dict[str, dict[str, Any]]: ...
        def glob(
            self, path: str, maxdepth: int | None = None, *, detail: bool = False, withdirs: bool = True
        ) -> Any: ...
        def open(
            self,
            path: str,
            mode: str = "rb",
            block_size: int | None = None,
            cache_options: dict[str, Any] | None = None,
            compression: str | None = None,
            **kwargs: Any,
        ) -> Any: ...
        def read_text(
            self,
            path: str,
            encoding: str | None = None,
            errors: str | None = None,
            newline: str | None = None,
            **kwargs: Any,
        ) -> str: ...
        def read_bytes(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes: ...
        def head(self, path: str, size: int = 1024) -> bytes: ...
        def tail(self, path: str, size: int = 1024) -> bytes: ...
        def read_block(self, fn: str, offset: int, length: int | None, delimiter: bytes | None = None) -> bytes: ...
        def get_mapper(self, root: str = "", check: bool = False, create: bool = False) -> Any: ...
        def tree(self, path: str = "/", recursion_limit: int = 2, max_display: int = 25) -> str: ...
        def to_json(self) -> str: ...

    def isfilelike(f: object) -> bool: ...
    def tokenize(*args: object) -> str: ...
else:
    from fsspec import AbstractFileSystem as AbstractFileSystem
    from fsspec.utils import isfilelike as isfilelike
    from fsspec.utils import tokenize as tokenize
