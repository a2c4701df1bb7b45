"""composefs and dm-verity: images and stores, dumps, mounts, verified reads, hash trees.

In full about 20 minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from lib import disks, images, machine, trees
from lib.bench import Bench
from lib.mounts import Mount, mount
from lib.process import measure, quiet
from lib.programs import need, reason, typed
from lib.results import Results
from lib.suite import CPU, MEMORY, SIZE, WALL, Column, Missing, Plot, Row, Run, Suite, Table
from lib.words import Words, number

AGAIN = [Column("again_wall_s", "again: wall", "s"), Column("again_cpu_s", "again: CPU", "s")]
OBJECTS = Column("objects", "objects", "", "", timed=False)
ABSENT = {
    "composefs-rs": "composefs-rs: no package has its programs",
    "composefs-fuse": "composefs-fuse: the distribution's package of composefs does not have it",
}
NO_SALT = "0" * 64  # as kiln's default: 32 zero bytes
SEALED = {"zstd 3": images.kiln("zstd,3", 128), "lz4": images.kiln("lz4", 64)}
MTIME = "1700000000.0"


def kiln_as(bench: Bench, name: str) -> str:
    """Returns a path by which kiln is called as another program."""
    path = bench.scratch / "names" / name
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.symlink_to(need("kiln"))
    return str(path)


Act = Callable[[list[str]], object]


def row_of(labels: dict[str, str], line: Callable[[], list[str]], run: Act, check: Act | None) -> Row:
    """Returns a row of a command line; a program that is not here is its reason."""
    row = Row(labels, ours=any("kiln" in label for label in labels.values()))
    try:
        command = line()
    except Missing as error:
        row.reason = str(error)
        return row
    row.command, row.measure = typed(command), partial(run, command)  # type: ignore[arg-type]
    row.check = partial(check, command) if check else None  # type: ignore[arg-type]
    return row


def both(bench: Bench, name: str) -> dict[str, Callable[[], str]]:
    """Returns a program of composefs and kiln under its name: functions that return their paths."""
    return {name: partial(need, name), f"kiln as {name}": partial(kiln_as, bench, name)}


def stores(bench: Bench) -> Iterator[Row]:
    """Yields programs that make an image and a store of objects of a tree, and the floor: a hash and a copy."""
    tree, same = bench.tree("rootfs"), trees.Same()
    bench.warm(tree)
    store, image = bench.new("objects"), bench.new("out")
    for name, path in both(bench, "mkcomposefs").items():
        yield row_of(
            {"program": name},
            lambda path=path: [path(), f"--digest-store={store}", str(tree), str(image)],  # type: ignore[misc]
            lambda line: stored(line, store, image, None),
            lambda line: stored(line, store, image, same),
        )
    yield Row({"program": "composefs-rs"}, reason=ABSENT["composefs-rs"])
    line = ["sh", "-c", 'find "$1" -type f -print0 | xargs -0 -n 256 -P "$3" sha256sum && cp -a "$1" "$2"']
    row = Row({"program": "the floor: sha256sum and cp"}, command="find -type f | xargs sha256sum; cp -a")
    row.measure = partial(stored, [*line, "sh", str(tree), str(store), str(machine.cpus())], store, None, None)
    yield row


def stored(line: list[str], store: Path, image: Path | None, same: trees.Same | None) -> Run:
    """Makes a store that was not there, and removes it. `same` compares the image and the names of all objects."""
    try:
        cost = measure(line, flush=image)
        objects = sorted(str(path.relative_to(store)) for path in store.rglob("*") if path.is_file())
        if same and image:
            same((trees.digest(image), objects))
        return cost.run(objects=len(objects), **({"size_bytes": image.stat().st_size} if image else {}))
    finally:
        quiet("rm", "-rf", store, *([image] if image else []))


def dumps(bench: Bench) -> Iterator[Row]:
    """Yields images of a long dump, and the dump of that image."""
    count = 10_000 if bench.quick else 300_000
    dump = bench.kept(("dump",), lambda path: path.write_bytes(b""))
    with dump.open("w") as out:  # line by line: memory of ours would hide that of the programs
        out.writelines(f"{line}\n" for line in dump_lines(count))
    same, image, said, source = trees.Same(), bench.new("out"), bench.new("said"), bench.new("image")
    bench.stack.callback(source.unlink, missing_ok=True)

    def same_image(line: list[str]) -> None:
        measure(line)
        same(trees.digest(image))
        image.rename(source)

    def same_again(line: list[str]) -> None:
        measure(line, output=said)
        measure([need("mkcomposefs"), "--from-file", str(said), str(image)])
        same(trees.digest(image))

    for name, path in both(bench, "mkcomposefs").items():
        yield row_of(
            {"work": "an image of a dump", "program": name},
            lambda path=path: [path(), "--from-file", str(dump), str(image)],  # type: ignore[misc]
            lambda line: images.built(line, image=image),
            same_image,
        )
    yield Row({"work": "an image of a dump", "program": "composefs-rs"}, reason=ABSENT["composefs-rs"])
    for name, path in both(bench, "composefs-info").items():
        yield row_of(
            {"work": "a dump of an image", "program": name},
            lambda path=path: [path(), "dump", str(source)],  # type: ignore[misc]
            lambda line: measure(line, output=said).run(size_bytes=said.stat().st_size),
            same_again,
        )


def dump_lines(count: int) -> Iterator[str]:
    """Yields the lines of a dump: directories of a hundred; files that are objects, short files, links."""
    folders = count // 100
    yield f"/ 4096 40755 {folders + 2} 0 0 0 {MTIME} - - -"
    for folder in range(folders):
        yield f"/d{folder:05} 4096 40755 2 0 0 0 {MTIME} - - -"
        for idx in range(99):
            path, value = f"/d{folder:05}/file{idx:02}", f"{folder * 99 + idx:064x}"
            if idx % 10 == 0:
                yield f"{path} 5 120777 1 0 0 0 {MTIME} other - -"
            elif idx % 10 == 1:
                yield f"{path} 8 100644 1 {idx} {idx} 0 {MTIME} - {value[-8:]} -"
            else:
                # The last digits are the first of a name, so that objects lie in all directories.
                name = value[::-1]
                yield f"{path} {4096 + idx} 100644 1 {idx} 0 0 {MTIME} {name[:2]}/{name[2:]} - {name}"


# Who mounts, with options of kiln's FUSE server.
MOUNTS: dict[str, Sequence[str]] = {
    "mount.composefs": (),
    "kiln composefs mount": (),
    "kiln mount": (),
    "kiln mount --trust-objects": ("--trust-objects",),
}


@contextmanager
def mounted(bench: Bench, name: str, image: Path, store: Path) -> Iterator[Mount]:
    """A composefs image that is mounted with its objects: by the kernel, or by kiln's FUSE server. Raises Missing,
    Failed."""
    machine.need_root("mounting")
    if name.startswith("kiln mount"):
        options = ["--objects", str(store), *MOUNTS[name]]
        with mount("kiln mount", image, bench.scratch / "mount", options=options) as served:
            yield served
        return
    place = bench.scratch / "mount"
    place.mkdir(exist_ok=True)
    if name == "mount.composefs":
        quiet(need(name), "-o", f"basedir={store}", image, place)
    else:
        quiet(need("kiln"), "composefs", "mount", "--objects", store, image, place)
    try:
        yield Mount(place, None, "erofs|loop")
    finally:
        disks.unmount(place)


def over_mounts(bench: Bench, work: Callable[[Mount], dict[str, float]], cold: bool, plain: bool) -> Iterator[Row]:
    """Yields work on a system tree as a composefs image, by all that mount one; and on the tree itself if it is asked
    for. Work is done twice in a mount."""
    tree, store = bench.tree("rootfs"), bench.directory("objects")
    line = ["--digest-store=" + str(store), str(tree)]
    image = bench.kept(("composefs",), lambda path: quiet(need("mkcomposefs"), *line, path))

    def run(name: str) -> Run:
        with mounted(bench, name, image, store) as one:
            if cold:
                machine.drop_caches()
                quiet("ls", "-lR", "/dev/null")  # the program itself is not cold
            first = work(one)
            return {
                **first,
                **{f"again_{key}": value for key, value in work(one).items() if key in ("wall_s", "cpu_s")},
            }

    def look(name: str) -> None:
        with mounted(bench, name, image, store) as one:
            images.compare(bench.digests(tree), one.root)

    for name in MOUNTS:
        row = Row({"mounted by": name}, partial(run, name), partial(look, name), ours=name.startswith("kiln"))
        row.reason = reason(name) if name == "mount.composefs" else ""
        yield row
    yield Row({"mounted by": "composefs-fuse"}, reason=ABSENT["composefs-fuse"])
    if plain:
        yield Row({"mounted by": "(the tree itself)"}, lambda: work(Mount(tree)))


def kept(run: dict[str, float]) -> dict[str, float]:
    """Returns what the tables of mounts show of a run."""
    return {key: value for key, value in run.items() if key in ("wall_s", "cpu_s", "memory_bytes")}


def list_all(one: Mount) -> dict[str, float]:
    """Lists a mount."""
    return kept(one.client(["ls", "-lR", "."]))


def read_all(one: Mount) -> dict[str, float]:
    """Reads all files of a mount; tar reads nothing for /dev/null."""
    return kept(one.client(["tar", "-cf", "-", "."], ["cat"]))


def sealing(bench: Bench) -> Iterator[Row]:
    """Yields packing with a hash tree and without, and the making of a tree behind it."""
    tree, image, hashes = bench.tree("rootfs"), bench.new("out"), bench.new("tree")
    bench.warm(tree)
    for method, options in SEALED.items():
        same, files = trees.Same(), [str(bench.image("kiln", options, tree)), str(hashes)]
        ways: dict[str, tuple[Path, Callable[[], list[str]], Act | None]] = {
            "kiln pack": (image, partial(images.command, "kiln", options, tree, image), None),
            "kiln pack --verity": (
                image,
                partial(images.command, "kiln", f"{options} --verity --force", tree, image),
                partial(same_root, image, same),
            ),
            "kiln verity format": (
                hashes,
                lambda files=files: [need("kiln"), "verity", "format", "-q", *files],  # type: ignore[misc]
                partial(same_tree, hashes, same),
            ),
            "veritysetup format": (
                hashes,
                lambda files=files: [need("veritysetup"), "format", f"--salt={NO_SALT}", *files],  # type: ignore[misc]
                partial(same_tree, hashes, same),
            ),
        }
        for work, (out, line, check) in ways.items():
            run = lambda line, out=out: images.built(line, image=out)  # noqa: E731
            yield row_of({"method": method, "work": work}, line, run, check)


def roots(said: str) -> str:
    """Returns the root hash in what a program says: the only word of 64 hexadecimal digits that are not all zero."""
    hashes = {word for word in said.split() if len(word) == 64 and set(word) <= set("0123456789abcdef")}
    return " ".join(hashes - {NO_SALT})


def same_tree(tree_file: Path, same: trees.Same, line: list[str]) -> None:
    """Makes a hash tree, and compares the root hash. Raises Wrong, Failed."""
    try:
        same(roots(quiet(*line)))
    finally:
        tree_file.unlink(missing_ok=True)


def same_root(image: Path, same: trees.Same, line: list[str]) -> None:
    """Packs with a hash tree, verifies the image by it, and compares the root hash. Raises Wrong, Failed."""
    hash_file = image.with_suffix(".roothash")
    try:
        quiet(*line[:-2], "--root-hash-file", hash_file, *line[-2:])
        quiet(need("kiln"), "check", "--root-hash", hash_file, image)
        same(roots(hash_file.read_text()))
    finally:
        image.unlink(missing_ok=True)
        hash_file.unlink(missing_ok=True)


def rooted(bench: Bench) -> Iterator[Row]:
    """Yields reading of all files by kiln's FUSE server, with and without a root hash."""
    tree, hashes = bench.tree("rootfs"), {}
    for method, options in {**SEALED, "uncompressed": "--preset plain"}.items():

        def make(path: Path, method: str = method, options: str = options) -> None:
            quiet(*images.command("kiln", options, tree, path))
            hashes[method] = quiet(need("kiln"), "verity", "format", "-q", path).strip()

        image = bench.kept(("rooted", method), make)
        for name in ("plain", "--root-hash"):
            more = [] if name == "plain" else [name, hashes[method]]

            def run(image: Path = image, more: list[str] = more) -> Run:
                with mount("kiln mount", image, bench.scratch / "mount", options=more) as served:
                    return read_all(served)

            def look(image: Path = image, more: list[str] = more) -> None:
                with mount("kiln mount", image, bench.scratch / "mount", options=more) as served:
                    images.compare(bench.digests(tree), served.root)

            yield Row({"image": method, "how": name}, run, look, command="kiln mount; tar -cf - . | cat", ours=True)


def words(results: Results) -> list[str]:
    """Returns sentences about the results."""
    text = Words(results, "composefs")
    ours, theirs = {"program": "kiln as mkcomposefs"}, {"program": "mkcomposefs"}
    to_dump, of_dump = {"work": "a dump of an image"}, {"work": "an image of a dump"}
    text.compare("store", "wall_s", ours, theirs, "time", of="an image with its store by kiln", to="mkcomposefs")
    floor = {"program": "the floor: sha256sum and cp"}
    text.compare("store", "wall_s", ours, floor, "time", of="an image with its store by kiln", to="a hash and a copy")
    text.compare("dumps", "cpu_s", of_dump | ours, of_dump | theirs, "CPU", of="an image of a dump", to="mkcomposefs")
    info = ({**to_dump, "program": f"{kiln}composefs-info"} for kiln in ("kiln as ", ""))
    text.compare("dumps", "cpu_s", *info, "CPU", of="a dump of an image", to="composefs-info")
    kernel = {"mounted by": "mount.composefs"}
    for name in list(MOUNTS)[1:]:
        for table, what in (("list", "ls -lR"), ("read", "reading all files")):
            said = {"of": name, "to": "mount.composefs", "where": f"for {what}"}
            for column, unit in (("cpu_s", "CPU"), ("wall_s", "time")):
                text.compare(table, column, {"mounted by": name}, kernel, unit, **said)
    verified = ({"mounted by": f"kiln mount{options}"} for options in ("", " --trust-objects"))
    text.compare("read", "cpu_s", *verified, "CPU", of="reading with verified objects", to="reading that trusts them")
    for method in SEALED:
        costs = [
            results.median("composefs", "sealing", "cpu_s", method=method, work=work)
            for work in ("kiln pack", "kiln pack --verity", "veritysetup format")
        ]
        if None not in costs:
            plain, sealed, setup = (cost or 0.0 for cost in costs)
            text.say(
                f"pack --verity takes {sealed / plain - 1:+.1%} CPU over pack ({method}); what it adds is "
                f"{number((sealed - plain) / setup)} of veritysetup format: blocks are hashed as they are written.",
                loses=sealed - plain > setup,
            )
    for method in (*SEALED, "uncompressed"):
        plain_row = {"image": method, "how": "plain"}
        rows = ({**plain_row, "how": "--root-hash"}, plain_row)
        text.compare("rooted", "cpu_s", *rows, "CPU", of="a mount by root hash", to="one without", where=f"({method})")
    return text.sentences()


SUITE = Suite(
    "composefs",
    "composefs and verity: images that are trusted by 32 bytes",
    "What do images cost whose contents are verified? Images of composefs and their stores are made beside "
    "mkcomposefs, to the same bytes; they are mounted and read by the kernel and by kiln's server, which verifies each "
    "object. Hash trees of dm-verity are made beside veritysetup, to the same root hash, and images are read by them.",
    [
        Table(
            "store",
            "An image of composefs and a new store of a system tree",
            [WALL, CPU, MEMORY, SIZE, OBJECTS],
            stores,
            Plot("bars", "wall_s"),
            note="The tree is in memory, the store on the disk. Image and names of all objects are the same. The floor "
            "hashes and copies equal files twice.",
        ),
        Table(
            "dumps",
            "Dumps of 300,000 lines",
            [CPU, WALL, MEMORY, SIZE],
            dumps,
            Plot("bars", "cpu_s", series="program"),
            note="The quick form has 10,000 lines. Each dump of the image gives the same image again.",
        ),
        Table(
            "list",
            "ls -lR over composefs mounts, cold and again",
            [WALL, CPU, *AGAIN, MEMORY],
            lambda bench: over_mounts(bench, list_all, True, False),
            Plot("bars", "cpu_s"),
            note="CPU of client, server and the kernel's threads.",
        ),
        Table(
            "read",
            "Reading all files over composefs mounts, and again",
            [CPU, WALL, *AGAIN, MEMORY],
            lambda bench: over_mounts(bench, read_all, False, True),
            Plot("bars", "cpu_s"),
            note="Objects are in memory. This kernel has no fs-verity: mounts by the kernel verify nothing. kiln mount "
            "verifies each object at its first opening.",
        ),
        Table(
            "sealing",
            "Packing with a hash tree of dm-verity, and making one behind",
            [CPU, WALL, SIZE],
            sealing,
            Plot("bars", "cpu_s", series="work"),
            note="Sizes of the last two are those of the tree. All have the same root hash.",
        ),
        Table(
            "rooted",
            "Reading all files by a mount, with and without a root hash",
            [CPU, WALL, MEMORY],
            rooted,
            Plot("bars", "cpu_s", series="how"),
            note="Images are in memory, each with its hash tree behind it.",
        ),
    ],
    words,
)
