"""Listings of checkpoints and of threads: exact order, exact bounds, and no value read."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from deltastore import directory
from deltastore.engine.counting import CountingEngine, EngineCounts
from deltastore.engine.memory import MemoryEngine
from deltastore.errors import InvalidArgumentError
from deltastore.format import keys
from deltastore.ids import ulid_from_uuid6
from deltastore.langgraph.saver import DeltaStoreSaver
from deltastore.listing import ThreadInfo
from deltastore.store import Store
from deltastore.testing import Caller, Lane

EPOCH_TICKS = 0x01B21DD213814000
MINUTE_MS = 60_000
NAMESPACES = ["", "sub", "sub|in:9"]


def id_at(ms: int, node: int = 0) -> str:
    """Return a canonical uuid6 of a Unix time in milliseconds."""
    time = EPOCH_TICKS + ms * 10_000
    digits = f"{time >> 12:012x}"
    return f"{digits[:8]}-{digits[8:]}-6{time & 0xFFF:03x}-8000-{node:012x}"


class Bench(NamedTuple):
    """A saver on a memory engine, the store and the counter underneath."""

    caller: Caller
    store: Store
    engine: CountingEngine

    def lane(self, thread_id: str = "t", ns: str = "") -> Lane:
        return Lane(self.caller, thread_id, ns)

    def touch(self, thread_id: str, minute: int) -> None:
        """Say that a thread was last active in a minute."""
        with self.engine.begin(write=True) as txn:
            entry, _ = directory.intern_stream(txn, thread_id, "")
            if entry.minute:
                txn.delete(keys.activity_key(entry.minute, entry.number))
            directory.touch(txn, replace(entry, minute=0), minute)

    def listed(self, before: str | None = None, ns: str | None = None) -> list[tuple[str, str]]:
        """Return (id, namespace) as both ways of listing give them."""
        rows = [
            (row.checkpoint_id, row.checkpoint_ns)
            for row in self.store.list("t", ns, before=before)
        ]
        found = self.store.checkpoints("t", ns, before=before)
        assert rows == [(row.checkpoint_id, row.checkpoint_ns) for row in found]
        return rows

    def pages(self, limit: int, prefix: str = "") -> list[list[str]]:
        """Read all pages of threads."""
        cursor, pages = None, []
        while True:
            page = self.store.threads(prefix=prefix, limit=limit, cursor=cursor)
            pages.append([one.thread_id for one in page.threads])
            cursor = page.cursor
            if cursor is None:
                return pages
            assert len(pages) < 100


@pytest.fixture
def bench() -> Iterator[Bench]:
    engine = CountingEngine(MemoryEngine())
    store = Store(engine)
    caller = Caller(lambda: DeltaStoreSaver.on_store(store), close_saver=lambda _: store.close())
    yield Bench(caller, store, engine)
    caller.close()


def mixed_ids() -> list[str]:
    """Return ids of both forms whose order interleaves."""
    uuids = [id_at(1_700_000_000_000 + i, i) for i in range(12)]
    odd = [one[:-1] for one in uuids[::3]] + [one.upper() for one in uuids[:2]]
    return [*uuids, *odd, "0", "1f", "zz", "\U0010ffff", "a\0", "a"]


def test_checkpoints_come_by_id_over_namespaces_and_both_forms(bench: Bench) -> None:
    """Keys sort by form first; the caller is promised the order of the ids' text."""
    rng = random.Random(4)
    placed = [(one, rng.choice(NAMESPACES)) for one in mixed_ids()]
    for one, ns in rng.sample(placed, len(placed)):
        bench.lane("t", ns).put(one)
        bench.lane("other", ns).put(one)
    assert sorted(placed, reverse=True) == bench.listed()
    for ns in NAMESPACES:
        assert sorted([row for row in placed if row[1] == ns], reverse=True) == bench.listed(ns=ns)
    assert [] == bench.listed(ns="unknown")


def test_one_id_in_several_namespaces_is_listed_once_for_each(bench: Bench) -> None:
    """A subgraph may share its parent's id, and a page may end between the two."""
    for one in ("a", "b", "c", "d"):
        for ns in NAMESPACES:
            bench.lane("t", ns).put(one)
    rows = bench.listed()
    assert ["d"] * 3 + ["c"] * 3 + ["b"] * 3 + ["a"] * 3 == [one for one, _ in rows]
    assert 12 == len(set(rows))


def test_before_excludes_itself_and_everything_above(bench: Bench) -> None:
    """Canonical, not canonical, of the other form, stored or not, empty: it is a text."""
    ids = mixed_ids()
    for i, one in enumerate(ids):
        bench.lane("t", NAMESPACES[i % 3]).put(one)
    between = [
        id_at(1_700_000_000_003, 2),
        id_at(1_700_000_000_003, 4),
        id_at(1_700_000_000_003)[:20],
    ]
    for before in [*ids, *between, "", "a\0\0", "zzz", "1" * 500, id_at(0).upper()]:
        assert sorted((one for one in ids if one < before), reverse=True) == [
            one for one, _ in bench.listed(before)
        ]


def test_before_passes_by_any_number_of_greater_ids(bench: Bench) -> None:
    """A text that is no key has to be searched for, in pages."""
    ids = [id_at(1_700_000_000_000 + i) for i in range(600)]
    lane = bench.lane()
    for one in ids:
        lane.put(one)
    before = ids[5][:-1] + "G"  # no hexadecimal digit
    assert ids[5::-1] == [one for one, _ in bench.listed(before)]
    assert ids[0:1] == [one for one, _ in bench.listed(ids[1][:-1])]


@pytest.mark.parametrize("limit", [0, 1, 2, 15, 16, 17, 31, 40, 1_000])
def test_a_limit_cuts_the_listing_and_changes_nothing_else(bench: Bench, limit: int) -> None:
    """Pages of the lister grow; their ends must not show."""
    ids = [f"{i:02}" for i in range(40)]
    for one in ids:
        bench.lane().put(one)
    expected = ids[::-1][:limit]
    assert expected == [row.checkpoint_id for row in bench.store.list("t", limit=limit)]
    assert expected == [row.checkpoint_id for row in bench.store.checkpoints("t", limit=limit)]


def test_a_listing_of_one_id_finds_it_in_every_namespace(bench: Bench) -> None:
    """And is bound by `before` as any other."""
    for ns in NAMESPACES:
        bench.lane("t", ns).put("a")
        bench.lane("t", ns).put("b")
    rows = list(bench.store.list("t", only="a"))
    assert NAMESPACES == sorted(row.checkpoint_ns for row in rows)
    assert {"a"} == {row.checkpoint_id for row in rows}
    assert [] == list(bench.store.list("t", only="a", before="a"))
    assert 1 == len(list(bench.store.list("t", "sub", only="a", before="aa")))


def test_a_listing_of_everything_goes_thread_by_thread(bench: Bench) -> None:
    """Order across threads is that of their keys."""
    for thread_id in ("t2", "t1"):
        for one in ("a", "b"):
            bench.lane(thread_id).put(one)
    rows = [(row.thread_id, row.checkpoint_id) for row in bench.store.list()]
    assert [("t1", "b"), ("t1", "a"), ("t2", "b"), ("t2", "a")] == rows


def test_a_listing_goes_on_below_what_it_gave(bench: Bench) -> None:
    """Neither a new head nor a deletion of the thread may repeat a row or raise."""
    for i in range(9):
        bench.lane().put(f"b{i}")
    rows = bench.store.checkpoints("t")
    first = [next(rows).checkpoint_id for _ in range(2)]
    bench.lane().put("c")
    bench.lane().put("a")
    rest = [row.checkpoint_id for row in rows]
    assert [f"b{i}" for i in range(8, -1, -1)] + ["a"] == first + rest
    rows = bench.store.checkpoints("t")
    next(rows)
    bench.store.delete_thread("t")
    assert len(list(rows)) <= 1


def test_writes_without_a_checkpoint_are_not_listed(bench: Bench) -> None:
    """They are early: their checkpoint may come, or not."""
    bench.lane().put("b")
    for one in ("a", "c", id_at(1_700_000_000_000)):
        bench.lane().write(one, [("x", 1)])
    assert [("b", "")] == bench.listed()


def test_a_listed_checkpoint_tells_its_parent_and_metadata(bench: Bench) -> None:
    """That is what it is listed for."""
    bench.lane().put("a", metadata={"step": 1})
    bench.lane().put("b", "a", metadata={"step": 2})
    new, old = bench.store.checkpoints("t")
    assert ("a", 2, None, 1) == (
        new.parent_id,
        new.header.metadata["step"],
        old.parent_id,
        old.header.metadata["step"],
    )


def fill(bench: Bench, thread_id: str, channels: int) -> None:
    """Store 20 checkpoints, each with writes and so many large values."""
    lane = bench.lane(thread_id)
    for i in range(20):
        versions = {f"c{k}": i + 1 for k in range(channels)}
        values = {name: f"{i}.{name}" * 500 for name in versions}
        lane.put(f"{i:02}", f"{i - 1:02}" if i else None, new=versions, values=values)
        lane.write(f"{i:02}", [("c0", "x" * 500)], f"task {i}")


def test_checkpoints_and_threads_read_no_value(bench: Bench) -> None:
    """Their cost must not depend on what is stored: five values each, or none."""
    fill(bench, "full", 5)
    fill(bench, "bare", 0)

    def cost(call: Callable[[Store], int]) -> EngineCounts:
        fresh = Store(bench.engine)
        fresh.setup()
        before = bench.engine.counts()
        assert call(fresh)
        return bench.engine.counts() - before

    def cost_of(thread_id: str) -> list[EngineCounts]:
        return [
            cost(lambda store: len(list(store.checkpoints(thread_id)))),
            cost(lambda store: len(store.threads(prefix=thread_id).threads)),
            cost(lambda store: len(list(store.list(thread_id)))),
        ]

    *without, whole = cost_of("full")
    *expected, bare = cost_of("bare")
    assert expected == without
    assert whole.gets >= bare.gets + 20 * 5  # what the law is about: a listing with values


def test_threads_come_newest_first_exactly(bench: Bench) -> None:
    """By minute of activity, within it by the time in the newest id, then by thread id."""
    rng = random.Random(5)
    expected = []
    for i in range(40):
        thread_id, minute = f"t{i:02}", 28_000_000 + rng.randrange(4)
        ms = minute * MINUTE_MS + rng.randrange(3)
        bench.lane(thread_id).put(id_at(ms - 5, i))
        bench.lane(thread_id, "sub").put(id_at(ms, i))
        bench.touch(thread_id, minute)
        expected.append((-minute, -ms, thread_id))
    expected.sort()
    for limit in (1, 3, 7, 39, 40, 41):
        pages = bench.pages(limit)
        assert [name for _, _, name in expected] == [name for page in pages for name in page]
        assert {limit} >= {len(page) for page in pages[:-1]}
        assert 0 < len(pages[-1]) <= limit


def test_threads_are_paged_over_minutes_busier_than_a_page(bench: Bench) -> None:
    """A minute is sorted as a whole, however many threads were active in it."""
    ids = {}
    for i in range(150):
        minute = 28_000_001 if i < 140 else 28_000_000
        ids[f"t{i:03}"] = minute * MINUTE_MS + (i * 37) % 140
        bench.lane(f"t{i:03}").put(id_at(ids[f"t{i:03}"]))
        bench.touch(f"t{i:03}", minute)
    expected = sorted(ids, key=lambda name: (-(ids[name] // MINUTE_MS), -ids[name], name))
    for limit in (50, 64, 149, 150):
        assert expected == [name for page in bench.pages(limit) for name in page]


def test_a_prefix_picks_threads_and_pages_stay_full(bench: Bench) -> None:
    """Thread ids often begin with a user's; a prefix of a thread id is another thread's id."""
    names = ["u1", "u1:a", "u1:b", "u10", "u2", "u1\0", "", "u1:" + "n" * 5_000]
    for i, name in enumerate(names):
        bench.lane(name).put(id_at(1_700_000_000_000 + i))
        bench.touch(name, 28_000_000 + i // 2)
    for prefix in ("", "u1", "u1:", "u", "x"):
        wanted = [name for name in reversed(names) if name.startswith(prefix)]
        for limit in (1, 2, 10):
            found = [name for page in bench.pages(limit, prefix) for name in page]
            assert sorted(wanted) == sorted(found)
    assert [["u1:" + "n" * 5_000, "u1:b"], ["u1:a"]] == bench.pages(2, "u1:")


def test_a_thread_tells_its_newest_checkpoint_by_time(bench: Bench) -> None:
    """Over its namespaces; an id without a time counts as of the minute noted."""
    first, second = id_at(28_000_000 * MINUTE_MS + 1), id_at(28_000_000 * MINUTE_MS + 2)
    bench.lane("t", "sub").put(second)
    bench.lane("t").put(first)
    bench.touch("t", 28_000_000)
    info = ThreadInfo("t", "sub", second, 28_000_000 * MINUTE_MS + 2, 2)
    assert [info] == bench.store.threads().threads
    bench.lane("u").put("odd")
    bench.touch("u", 27_000_000)
    info = ThreadInfo("u", "", "odd", 27_000_000 * MINUTE_MS, 1)
    assert [info] == bench.store.threads(prefix="u").threads


def test_threads_of_early_writes_are_no_ghosts(bench: Bench) -> None:
    """A thread is there from its first checkpoint until it is deleted."""
    bench.lane("early").write("a", [("x", 1)])
    assert [[]] == bench.pages(10)
    bench.touch("early", 28_000_000)
    assert [[]] == bench.pages(10)
    bench.lane("early").put("a")
    bench.lane("gone").put("a")
    assert ["early", "gone"] == sorted(bench.pages(10)[0])
    bench.store.delete_thread("gone")
    bench.lane("gone").write("a", [("x", 1)])
    assert [["early"]] == bench.pages(10)


def test_a_cursor_holds_while_threads_come_and_go(bench: Bench) -> None:
    """It names a place, not a thread: what it names may be deleted meanwhile."""
    for i in range(6):
        bench.lane(f"t{i}").put(id_at(1_700_000_000_000 + i))
        bench.touch(f"t{i}", 28_333_333 - i // 2)
    page = bench.store.threads(limit=3)
    assert ["t1", "t0", "t3"] == [one.thread_id for one in page.threads]
    bench.store.delete_thread("t3")
    bench.lane("new").put(id_at(1_800_000_000_000))
    rest = bench.store.threads(limit=9, cursor=page.cursor)
    assert ["t2", "t5", "t4"] == [one.thread_id for one in rest.threads]
    assert rest.cursor is None


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "1",
        "1:2",
        "a:1:t",
        "-1:1:t",
        "1:²:t",
        "4294967296:1:t",
        "9" * 20 + ":1:t",
        " 1:1:t",
    ],
)
def test_a_cursor_no_page_gave_is_refused(bench: Bench, cursor: str) -> None:
    """Web applications pass on what a browser sent."""
    with pytest.raises(InvalidArgumentError, match="cursor"):
        bench.store.threads(cursor=cursor)


def test_a_cursor_takes_any_thread_id(bench: Bench) -> None:
    """Separators and line ends may be part of it."""
    names = ["a:b", "a\nb", "é", ":", ""]
    for name in names:
        bench.lane(name).put(id_at(1_700_000_000_000))
        bench.touch(name, 28_000_000)
    assert [[name] for name in sorted(names)] == bench.pages(1)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_of_no_threads_is_refused(bench: Bench, limit: int) -> None:
    """Its cursor could name nothing."""
    with pytest.raises(InvalidArgumentError, match=f"got {limit}"):
        bench.store.threads(limit=limit)


def test_ids_of_this_file_are_canonical() -> None:
    """Else the laws above would hold for one form only."""
    ulid = ulid_from_uuid6(id_at(1_700_000_000_123, 7))
    assert ulid is not None
    assert 1_700_000_000_123 == int.from_bytes(ulid[:6], "big")
