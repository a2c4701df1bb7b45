"""fsspec's own tests for filesystems: getting files, and opening. The image holds what they would otherwise write."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")
abstract = pytest.importorskip("fsspec.tests.abstract")

from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]  # noqa: E402
from fsspec_support import pack  # noqa: E402
from kilnfs.fs import ErofsFileSystem  # noqa: E402

SCENARIOS = {
    "fs_bulk_operations_scenario_0": "_bulk_operations_scenario_0",
    "fs_glob_edge_cases_files": "_glob_edge_cases_files",
    "fs_dir_and_file_with_same_name_prefix": "_dir_and_file_with_same_name_prefix",
    "fs_10_files_with_hashed_names": "_10_files_with_hashed_names",
}


class ErofsFixtures(abstract.AbstractFixtures):  # type: ignore[misc, name-defined]
    """An image that has the files of each scenario in a directory of the scenario's name."""

    @pytest.fixture(scope="class")
    @classmethod
    def image(cls, tmp_path_factory: pytest.TempPathFactory) -> str:
        directory = tmp_path_factory.mktemp("abstract")
        local = LocalFileSystem(auto_mkdir=True)
        for name, make in SCENARIOS.items():
            getattr(cls(), make)(local, lambda *parts: "/".join(parts), str(directory / "tree" / name))
        local.touch(str(directory / "tree" / "src" / "file"))
        return pack(directory / "tree", directory / "image.erofs")

    @pytest.fixture
    def fs(self, image: str) -> ErofsFileSystem:
        return ErofsFileSystem(image)

    @pytest.fixture
    def fs_path(self) -> str:
        return ""

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda *parts: "/".join(part for part in parts if part)

    @pytest.fixture
    def fs_target(self) -> Iterator[str]:
        yield "target"

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self) -> str:
        return "fs_bulk_operations_scenario_0/source"

    @pytest.fixture
    def fs_glob_edge_cases_files(self) -> str:
        return "fs_glob_edge_cases_files/source"

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self) -> str:
        return "fs_dir_and_file_with_same_name_prefix/source"

    @pytest.fixture
    def fs_10_files_with_hashed_names(self) -> str:
        return "fs_10_files_with_hashed_names/source"


class TestGet(ErofsFixtures, abstract.AbstractGetTests):  # type: ignore[misc, name-defined]
    """All of fsspec's tests of `get`."""

    def test_get_directory_recursive(
        self, fs: Any, fs_join: Any, fs_path: Any, local_fs: Any, local_join: Any, local_target: Any
    ) -> None:
        class Prepared:
            """The filesystem, on which this test makes a directory and a file: they are in the image already."""

            def mkdir(self, path: str) -> None:
                assert fs.isdir(path)

            def touch(self, path: str) -> None:
                assert fs.isfile(path)

            def __getattr__(self, name: str) -> Any:
                return getattr(fs, name)

        super().test_get_directory_recursive(Prepared(), fs_join, fs_path, local_fs, local_join, local_target)


class TestOpen(ErofsFixtures, abstract.AbstractOpenTests):  # type: ignore[misc, name-defined]
    """fsspec's tests of `open` write first: here, each way to write is refused."""

    def test_open_exclusive(self, fs: ErofsFileSystem, fs_target: str, tmp_path: Path) -> None:
        for mode in ("wb", "xb"):
            with pytest.raises(OSError) as caught:
                fs.open(fs_target, mode)
            assert caught.value.errno == errno.EROFS
        assert not fs.exists(fs_target)
