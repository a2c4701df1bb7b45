#!/usr/bin/env python3
"""Does a model learn from batches in the block-window order as from batches in random order? A small CNN on a generated
set, on a CPU.

    crates/python/tests/torch_root.sh run python3 bench/pyworker/learn.py --out learn.json --svg docs/learning
    bench/pyworker/learn.py --draw learn.json --svg docs/learning          # the charts alone

The set is sorted by class, as directories are: ten classes of patterns of 16×16 pixels, shifted, scaled and covered by
noise, 256 bytes a file. It is packed twice, by path and in a shuffled order. Orders:

  uniform            every sample at random: what a directory gives with shuffle=True
  packed shuffled    LocalityBatchSampler with windows of 64 blocks, of the image whose data lies in shuffled order
  by class           LocalityBatchSampler with its default window, of the image whose data lies class by class
  by class, narrow   the same with windows of 16 blocks: a mistake that `report()` tells
  sequential         no shuffling

Writes accuracies on a test set after so many samples, for each seed, and the dispersion of classes in batches (1: as at
random). Needs `kilnfs` in PYTHONPATH, PyTorch, and nothing else. Charts are written for light and dark pages.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[0] = str(Path(__file__).resolve().parents[1])

from lib import plots  # noqa: E402
from lib.results import RowResult, TableResult  # noqa: E402
from lib.suite import Column, Plot  # noqa: E402

if TYPE_CHECKING:
    import torch
    from torch import nn

SIDE, CLASSES = 16, 10
BATCH = 128
BLOCK_BYTES = 16 * SIDE * SIDE
"""16 samples: 0.08 % of 20,000, as 4 MiB have of ImageNet 0.003 %."""
ORDERS = ("uniform", "packed shuffled", "by class", "by class, narrow", "sequential")


def patterns(seed: int) -> torch.Tensor:
    """A smooth pattern for each class, (CLASSES, 1, SIDE, SIDE), from −1 to 1."""
    import torch

    noise = torch.rand(CLASSES, 1, 5, 5, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return torch.nn.functional.interpolate(noise, size=(SIDE, SIDE), mode="bicubic", align_corners=True).clamp(-1, 1)


def draw_samples(of: torch.Tensor, count: int, noise: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`count` pictures (count, SIDE, SIDE) of uint8, sorted by class, and their labels."""
    import torch

    numbers = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) * CLASSES // count
    pictures = of[labels, 0]
    shifts = torch.randint(-3, 4, (count, 2), generator=numbers).tolist()
    pictures = torch.stack([picture.roll(shift, (0, 1)) for picture, shift in zip(pictures, shifts, strict=True)])
    scale = 0.4 + 0.6 * torch.rand(count, 1, 1, generator=numbers)
    noisy = pictures * scale + noise * torch.randn(count, SIDE, SIDE, generator=numbers)
    return ((noisy * 42).clamp(-128, 127) + 128).to(torch.uint8), labels


def write_set(directory: Path, pictures: torch.Tensor, labels: torch.Tensor) -> None:
    """A file for each picture, in a directory for each class."""
    for number, (picture, label) in enumerate(zip(pictures, labels.tolist(), strict=True)):
        (directory / str(label)).mkdir(parents=True, exist_ok=True)
        (directory / f"{label}/{number:06}").write_bytes(picture.numpy().tobytes())


def pack(source: Path, image: Path, *order: str) -> Path:
    """The set as an image, each file in blocks of its own."""
    from kilnfs import _native

    command = "kiln pack --quiet --preset plain --layout=inline-data=off"
    arguments = [*command.split(), *order, str(source), str(image)]
    if _native.main(list(map(os.fsencode, arguments)), [os.fsencode(sys.executable), b"-m", b"kilnfs"]):
        raise SystemExit(f"{image}: kiln pack has failed")
    return image


class Plain:
    """Batches of all samples, one after the other or in a random permutation, another one for each epoch."""

    def __init__(self, count: int, seed: int, shuffle: bool) -> None:
        self.count, self.seed, self.shuffle, self.epoch = count, seed, shuffle, 0

    def order(self, epoch: int) -> list[int]:
        """The samples of an epoch's whole batches."""
        rows = list(range(self.count))
        if self.shuffle:
            random.Random(f"{self.seed} {epoch}").shuffle(rows)
        return rows[: self.count // BATCH * BATCH]

    def __iter__(self) -> Iterator[list[int]]:
        yield from batches_of(self.order(self.epoch))
        self.epoch += 1


def batches_of(rows: Sequence[int]) -> list[list[int]]:
    return [list(rows[start : start + BATCH]) for start in range(0, len(rows), BATCH)]


def sampler_of(order: str, images: dict[str, Any], seed: int) -> tuple[Any, Any]:
    """The dataset and the sampler of an order."""
    from kilnfs.torch import LocalityBatchSampler

    dataset = images["shuffled" if order == "packed shuffled" else "by class"]
    if order in ("uniform", "sequential"):
        return dataset, Plain(len(dataset), seed, order == "uniform")
    windows: dict[str, int | str] = {"packed shuffled": 64, "by class": "auto", "by class, narrow": 16}
    return dataset, LocalityBatchSampler(
        dataset, BATCH, seed=seed, block_bytes=BLOCK_BYTES, window_blocks=windows[order]
    )


def dispersion(batches: list[list[int]], labels: Any) -> float:
    """χ² of the counts of classes in batches by its degrees of freedom: 1 if samples come at random."""
    shares = [0.0] * CLASSES
    for label in labels:
        shares[label] += 1 / len(labels)
    total = 0.0
    for batch in batches:
        counts = [0] * CLASSES
        for row in batch:
            counts[labels[row]] += 1
        total += sum(
            (count - len(batch) * share) ** 2 / (len(batch) * share)
            for count, share in zip(counts, shares, strict=True)
        )
    return total / (len(batches) * (CLASSES - 1))


def model_of(seed: int) -> nn.Module:
    """A small CNN with batch normalisation, which suffers from batches of few classes as larger models do."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(24 * 16, CLASSES),
    )


def pictures_of(data: torch.Tensor) -> torch.Tensor:
    """Bytes of pictures of equal length as the model takes them."""
    return data.view(-1, 1, SIDE, SIDE).float().sub(128).div(64)


def train(
    order: str, images: dict[str, Any], test: tuple[torch.Tensor, torch.Tensor], seed: int, epochs: int, points: int
) -> dict[str, Any]:
    """Accuracies on the test set, `points` times an epoch, with how many samples were seen before."""
    import torch
    from kilnfs.torch import collate

    dataset, sampler = sampler_of(order, images, seed)
    labels = dataset.targets.tolist()
    model = model_of(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)
    steps = len(dataset) // BATCH
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, total_iters=steps * epochs)
    wanted = {round(steps * (point + 1) / points) for point in range(points)}
    seen, accuracies, spread = [], [], []
    for epoch in range(epochs):
        spread.append(dispersion(batches_of(sampler.order(epoch)), labels))
        for step, batch in enumerate(loader, 1):
            model.train()
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(pictures_of(batch.data)), batch.labels).backward()
            optimizer.step()
            decay.step()
            if step in wanted:
                seen.append((epoch * steps + step) * BATCH)
                accuracies.append(accuracy(model, test))
    return {
        "order": order,
        "seed": seed,
        "dispersion": round(statistics.mean(spread), 3),
        "samples": seen,
        "accuracy": accuracies,
    }


def accuracy(model: nn.Module, test: tuple[torch.Tensor, torch.Tensor]) -> float:
    import torch

    model.eval()
    with torch.no_grad():
        return round(float((model(pictures_of(test[0])).argmax(1) == test[1]).float().mean()), 4)


def run(args: argparse.Namespace) -> dict[str, Any]:
    import torch
    from kilnfs.torch import Dataset

    torch.use_deterministic_algorithms(True)
    began = time.time()
    results = []
    with tempfile.TemporaryDirectory(dir=args.tmp, prefix="kiln-learn-") as scratch:
        work = Path(scratch)
        of = patterns(7)
        write_set(work / "set", *draw_samples(of, args.samples, args.noise, 1))
        images = {
            "by class": Dataset(pack(work / "set", work / "by-class.erofs")),
            "shuffled": Dataset(pack(work / "set", work / "shuffled.erofs", "--order", "shuffle:2")),
        }
        pictures, labels = draw_samples(of, args.samples // 10, args.noise, 3)
        for seed in range(args.seeds):
            for order in args.orders:
                results.append(train(order, images, (pictures.flatten(), labels), seed, args.epochs, args.points))
                last = results[-1]
                print(
                    f"seed {seed}  {order:18} dispersion {last['dispersion']:7.2f}  "
                    f"accuracy {last['accuracy'][-1]:.3f}",
                    file=sys.stderr,
                )
        window = sampler_of("by class", images, 0)[1].window_blocks
    return {
        "schema": 1,
        "what": "accuracy on a test set by order of training samples",
        "samples": args.samples,
        "classes": CLASSES,
        "noise": args.noise,
        "batch": BATCH,
        "block_bytes": BLOCK_BYTES,
        "default_window_blocks": window,
        "torch": torch.__version__,
        "seconds": round(time.time() - began),
        "results": results,
    }


def chart(document: dict[str, Any], scheme: str) -> str:
    """Returns accuracies by epoch as lines, a point with its deviation for each look at the test set."""
    rows = []
    for order in ORDERS:
        runs = [one for one in document["results"] if one["order"] == order]
        spread = statistics.mean(one["dispersion"] for one in runs) if runs else 0.0
        for number, samples in enumerate(runs[0]["samples"] if runs else []):
            labels = {"epochs": f"{samples / document['samples']:.3g}", "order": f"{order}, dispersion {spread:.2f}"}
            rows.append(RowResult(labels, [{"accuracy": one["accuracy"][number]} for one in runs]))
    columns = [asdict(Column("accuracy", "accuracy on a test set, by order of samples", "%", "more"))]
    plot = {**asdict(Plot("lines", "accuracy", x="epochs", series="order")), "only": {}}
    title = "Accuracy on a test set while a small CNN is trained, by order of samples"
    drawn = plots.picture(TableResult("learn", "orders", title, columns, plot, {}, rows=rows), scheme)
    if drawn is None:
        raise SystemExit("no results to draw")
    return drawn


def write(path: Path, text: str) -> None:
    """The file appears when it is complete."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    os.replace(new, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--samples", type=int, default=20_000, help="of training; a tenth more are the test set (default %(default)s)"
    )
    parser.add_argument(
        "--noise", type=float, default=0.9, help="standard deviation of the noise; patterns reach from -1 to 1"
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--points", type=int, default=4, help="accuracies an epoch (default %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each order (default %(default)s)")
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=list(ORDERS))
    parser.add_argument("--tmp", help="directory of the set and its images: 200 MB")
    parser.add_argument("--out", type=Path, help="JSON")
    parser.add_argument("--svg", type=Path, help="charts: this path with -light.svg and -dark.svg")
    parser.add_argument("--draw", type=Path, metavar="JSON", help="draw the charts of an earlier run")
    args = parser.parse_args()
    document = json.loads(args.draw.read_text()) if args.draw else run(args)
    if args.out:
        write(args.out, json.dumps(document, indent=1) + "\n")
    elif not args.draw:
        print(json.dumps(document))
    if args.svg:
        for scheme in ("light", "dark"):
            write(args.svg.with_name(f"{args.svg.name}-{scheme}.svg"), chart(document, scheme))


if __name__ == "__main__":
    main()
