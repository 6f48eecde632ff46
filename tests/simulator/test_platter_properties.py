"""Whatever is done to a simulated disk: a power cut that loses all leaves the last flush, one that loses nothing leaves what was there."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.simulator.disk import SimDisk
from penstock.simulator.platter import LOSSES, Loss

NAMES = ("a", "b", "c")

changes = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(NAMES), st.integers(1, 1500)),
        st.tuples(st.just("cut"), st.sampled_from(NAMES), st.integers(0, 1500)),
        st.tuples(st.just("flush"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("rename"), st.sampled_from(NAMES), st.integers(0, 2)),
        st.tuples(st.just("unlink"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("flush names"), st.just(""), st.just(0)),
    ),
    max_size=25,
)


class Model:
    """The disk as it ought to be: files are known by number, names point to them."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.flushed_names: dict[str, int] = {}
        self.contents: list[bytes] = []
        self.flushed_contents: list[bytes] = []

    def now(self) -> dict[str, bytes]:
        return {name: self.contents[number] for name, number in self.names.items()}

    def flushed(self) -> dict[str, bytes]:
        return {name: self.flushed_contents[number] for name, number in self.flushed_names.items()}


def carry_out(disk: SimDisk, model: Model, script: list[tuple[str, str, int]]) -> None:
    for step, (change, name, amount) in enumerate(script):
        if change == "append":
            append(disk, model, name, bytes([step + 1]) * amount)
        elif change == "flush names":
            asyncio.run(disk.sync([], [""]))
            model.flushed_names = dict(model.names)
        elif name in model.names:
            change_file(disk, model, change, name, amount)


def append(disk: SimDisk, model: Model, name: str, content: bytes) -> None:
    if name not in model.names:
        model.names[name] = len(model.contents)
        model.contents.append(b"")
        model.flushed_contents.append(b"")
    file = disk.open(name, create=True)
    disk.append(file, [content])
    model.contents[model.names[name]] += content


def change_file(disk: SimDisk, model: Model, change: str, name: str, amount: int) -> None:
    number = model.names[name]
    file = disk.open(name)
    if change == "cut":
        size = min(amount, disk.size(file))
        disk.truncate(file, size)
        model.contents[number] = model.contents[number][:size]
    elif change == "flush":
        asyncio.run(disk.sync([file]))
        model.flushed_contents[number] = model.contents[number]
    elif change == "rename":
        disk.rename(name, NAMES[amount])
        del model.names[name]
        model.names[NAMES[amount]] = number
    else:
        disk.unlink(name)
        del model.names[name]


def contents(disk: SimDisk) -> dict[str, bytes]:
    return {path: disk.snapshot(path) for path in disk.files()}


@settings(max_examples=60, deadline=None)
@given(changes, st.integers(0, 1000))
def test_losing_all_leaves_the_last_flush_and_losing_nothing_leaves_all(script: list[tuple[str, str, int]], seed: int) -> None:
    for loss in LOSSES:
        disk, model = SimDisk(seed), Model()
        carry_out(disk, model, script)
        assert contents(disk) == model.now()
        disk.power_cut(loss)
        if loss is Loss.ALL:
            assert contents(disk) == model.flushed()
        elif loss is Loss.NONE:
            assert contents(disk) == model.now()
        assert disk.free_bytes() == disk.capacity_bytes - sum(map(len, contents(disk).values()))


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=1, max_size=3000), st.lists(st.binary(min_size=1, max_size=1500), max_size=5), st.integers(0, 10_000))
def test_any_cut_leaves_flushed_bytes_then_new_ones_or_zeros(flushed: bytes, appended: list[bytes], seed: int) -> None:
    disk = SimDisk(seed)
    file = disk.open("a", create=True)
    disk.append(file, [flushed])
    asyncio.run(disk.sync([file], [""]))
    for content in appended:
        disk.append(file, [content])
    disk.power_cut()
    kept, whole = disk.snapshot("a"), flushed + b"".join(appended)
    assert kept[: len(flushed)] == flushed
    assert len(kept) <= len(whole)
    assert all(byte in (0, whole[at]) for at, byte in enumerate(kept))
