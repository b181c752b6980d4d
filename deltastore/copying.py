"""Copy a thread to another id, beside live traffic.

Records are written under a thread number that no directory entry names, in small transactions; the
entry comes last, so that a copy is seen whole or not at all. The source is watched meanwhile: what
is stored there since is copied once more, in the transaction that ends the copy. A record is
verified under its old key before it is sealed under its new one.

A copy that is given up, or whose process dies, leaves records under a number that nobody uses; they
are reclaimed at once, or by a later opening (`deltastore.watch`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from deltastore import choosing, directory, dropping, retire, run_index, survivors, watch
from deltastore.append import StaleError
from deltastore.directory import Stream
from deltastore.drops import StreamDrop
from deltastore.engine.api import Pair, Transaction
from deltastore.errors import EngineError, InvalidArgumentError
from deltastore.format import frame, keys, layout
from deltastore.format.entries import DeletedMark, ThreadEntry, with_deleted
from deltastore.plans import CopyReport, Progress, no_progress
from deltastore.reclaim import RECORDS_MAX
from deltastore.session import Session, this_minute
from deltastore.survey import measure
from deltastore.types import Cipher

T = TypeVar("T")

_ATTEMPTS_MAX: Final = 32
_LATE_RECORDS_MAX: Final = RECORDS_MAX // 4  # copied once more, in place of as many, in one go


def copy_thread(
    session: Session,
    source: str,
    target: str,
    *,
    heads_only: bool,
    cipher: Cipher | None,
    progress: Progress,
) -> CopyReport:
    """Copy a thread; see `Store.copy_thread`."""
    if source == target:
        raise InvalidArgumentError(
            f"thread {source!r} cannot be copied onto itself; name another target"
        )
    with session.upkeep(source):
        for attempt in range(_ATTEMPTS_MAX):
            session.back_off(attempt)
            session.reclaim()
            begun = session.queue.run(lambda txn: _begin(txn, source, target))
            if begun is None:
                return CopyReport(source, target)
            work = _Copy(session, begun, source, target, cipher, progress)
            try:
                return work.run_heads() if heads_only else work.run()
            except StaleError:
                work.give_up()
            except BaseException:
                work.give_up()
                raise
    raise EngineError(
        f"thread {source!r} was changed by other maintenance {_ATTEMPTS_MAX} times while it was "
        "copied; nothing was copied, the call may be repeated"
    )


@dataclass(frozen=True, slots=True)
class _Begun:
    """A copy's beginning: the source's entry, the copy's number, and who watches both."""

    entry: ThreadEntry
    number: int
    source_token: bytes
    number_token: bytes


def _begin(txn: Transaction, source: str, target: str) -> _Begun | None:
    _check_target(txn, target)
    entry = directory.find_thread(txn, source)
    if entry is None or entry.number == 0:
        return None
    number = directory.next_thread_number(txn)
    tokens = [watch.begin(txn, one, this_minute()) for one in (entry.number, number)]
    return _Begun(entry, number, *tokens)


def _check_target(txn: Transaction, target: str) -> ThreadEntry | None:
    """Return the target's entry, if it was ever used.

    Raises:
        InvalidArgumentError: It holds something.
    """
    entry = directory.find_thread(txn, target)
    if entry is not None and entry.number:
        prefix = keys.thread_prefix(layout.TAG_LOG, entry.number)
        if txn.scan_keys(prefix, keys.after(prefix), limit=1):
            raise InvalidArgumentError(
                f"thread {target!r} exists; a copy overwrites nothing: delete it first, or name "
                "another target"
            )
    return entry


class _Copy:
    """One attempt."""

    def __init__(
        self,
        session: Session,
        begun: _Begun,
        source: str,
        target: str,
        cipher: Cipher | None,
        progress: Progress,
    ) -> None:
        self._session = session
        self._begun = begun
        self._source = source
        self._target = target
        self._cipher = cipher
        self._progress = progress
        self._namespaces: set[int] = set()
        self._deleted: dict[str, DeletedMark] = {}
        self._checkpoints = 0
        self._records = 0
        self._bytes = 0

    def run(self) -> CopyReport:
        """Copy everything."""
        session, number = self._session, self._begun.entry.number
        total = 0
        if self._progress is not no_progress:  # counting costs a fourth of copying
            with session.view() as txn:
                total, _ = measure(txn, keys.thread_prefix(layout.TAG_LOG, number))
        for tag in (layout.TAG_SECRET, layout.TAG_NAMESPACE, layout.TAG_NAMES, layout.TAG_LATE):
            prefix = keys.thread_prefix(tag, number)
            self._copy_range(prefix + b"\x00", keys.after(prefix), total)
        prefix = keys.thread_prefix(layout.TAG_LOG, number)
        self._copy_range(prefix, keys.after(prefix), total)
        self._copy_runs()
        while True:
            some, is_all = self._touched()
            if is_all:
                break
            self._recount(self._store(partial(self._catch_up, touched=some)))
        self._recount(session.queue.run(self._finish))
        self._progress(total, total)
        return self._report()

    def run_heads(self) -> CopyReport:
        """Copy what pruning would keep, and anchors of what that needs."""
        session, number = self._session, self._begun.entry.number
        prefix = keys.thread_prefix(layout.TAG_SECRET, number)
        self._copy_range(prefix, keys.after(prefix), 0)
        with session.view() as txn:
            drops = choosing.plan_thread(
                session,
                txn,
                self._source,
                choosing.keep_newest(1, None),
                self._cipher,
                recast=True,
            )
        for place, drop in enumerate(drops):
            records, size = self._store(partial(self._copy_heads, drop=drop))
            self._records += records
            self._bytes += size
            if drop.keep:
                self._deleted[drop.stream.checkpoint_ns] = drop.mark()
                self._namespaces.add(drop.stream.namespace)
                self._checkpoints += len(drop.keep)
            self._progress(place + 1, len(drops))
        session.queue.run(self._name)
        return self._report()

    def _copy_heads(self, txn: Transaction, drop: StreamDrop) -> tuple[int, int]:
        """Write what stays of a namespace; return how many records that is and their bytes."""
        self._check(txn)
        here = self._session.reader(txn, drop.stream, self._cipher)
        number, namespace = self._begun.number, drop.stream.namespace
        for other, cid in watch.touched(txn, self._begun.entry.number):
            if other == namespace:
                dropping.check_drop(here, drop, drop.pending(), cid)
        if not drop.keep:
            return 0, 0
        directory.name_namespace(txn, number, drop.stream.checkpoint_ns, namespace)
        prefix = keys.log_prefix(number, namespace)
        stream = drop.stream._replace(thread_id=self._target, thread=number, prefix=prefix)
        there = self._session.reader(txn, stream, self._cipher)
        for run_id in survivors.write_survivors(here, there, drop):
            run_index.note(txn, number, run_id, self._cipher)
        return measure(txn, prefix)

    def give_up(self) -> None:
        """Let go of what was copied."""

        def op(txn: Transaction) -> None:
            begun = self._begun
            if watch.holds(txn, begun.number, begun.number_token):
                watch.end(txn, begun.number)
                directory.put_mark(txn, keys.reclaim_key(begun.number))
            if watch.holds(txn, begun.entry.number, begun.source_token):
                watch.end(txn, begun.entry.number)

        self._session.queue.run(op)
        self._session.reclaim()

    def _report(self) -> CopyReport:
        return CopyReport(
            self._source,
            self._target,
            len(self._namespaces),
            self._checkpoints,
            self._records,
            self._bytes,
        )

    def _check(self, txn: Transaction) -> ThreadEntry:
        """Return the source's entry as it is now; raise `StaleError` if another must be copied."""
        begun = self._begun
        entry = directory.find_thread(txn, self._source)
        if entry is None or entry.number != begun.entry.number:
            raise StaleError
        minute = this_minute()
        if not watch.renew(txn, entry.number, begun.source_token, minute):
            raise StaleError
        if not watch.renew(txn, begun.number, begun.number_token, minute):
            raise StaleError
        return entry

    def _copy_range(self, start: bytes, stop: bytes, total: int) -> None:
        while True:
            with self._session.view() as txn:
                page = txn.scan(start, stop, limit=RECORDS_MAX)
            if not page:
                return
            self._count(page)
            number, cipher, move = self._begun.number.to_bytes(4, "big"), self._cipher, frame.move
            moved = [
                (new_key := key[:1] + number + key[5:], move(key, new_key, record, cipher))
                for key, record in page
            ]
            self._store(partial(self._put, moved=moved))
            start = page[-1][0] + b"\x00"
            self._progress(min(self._records, total), total)

    def _store(self, op: Callable[[Transaction], T]) -> T:
        return self._session.queue.run(self._session.bounded(op))

    def _put(self, txn: Transaction, moved: Sequence[Pair]) -> None:
        self._check(txn)
        for key, record in moved:
            txn.put(key, record)

    def _move(self, key: bytes, record: bytes) -> Pair:
        new_key = self._new_key(key)
        return new_key, frame.move(key, new_key, record, self._cipher)

    def _new_key(self, key: bytes) -> bytes:
        return key[:1] + self._begun.number.to_bytes(4, "big") + key[5:]

    def _count(self, page: Sequence[Pair], sign: int = 1) -> None:
        log = [pair for pair in page if pair[0][0] == layout.TAG_LOG]
        self._records += sign * len(log)
        self._bytes += sign * sum([len(key) + len(record) for key, record in log])
        for key, _ in log:
            # Many keys end in other ways; only a header's ends just after its cid.
            if key[-1] == layout.KIND_HEADER and keys.split(key).kind == layout.KIND_HEADER:
                self._checkpoints += sign
                self._namespaces.add(keys.number_at(key, 5))

    def _recount(self, moved: tuple[list[Pair], list[Pair]]) -> None:
        came, went = moved
        self._count(came)
        self._count(went, -1)

    def _copy_runs(self) -> None:
        last = -1
        while True:
            with self._session.view() as txn:
                found = run_index.scan(txn, self._begun.entry.number, last, RECORDS_MAX // 2)
            if not found:
                return
            self._store(partial(self._put_runs, hashes=found))
            last = found[-1]

    def _put_runs(self, txn: Transaction, hashes: Sequence[int]) -> None:
        self._check(txn)
        run_index.note_hashes(txn, self._begun.number, hashes)

    def _touched(self) -> tuple[list[tuple[int, bytes]], bool]:
        """Return what was stored since, as much as one transaction may copy, and if that is all."""
        number, records = self._begun.entry.number, 0
        some: list[tuple[int, bytes]] = []
        with self._session.view() as txn:
            for namespace, cid in watch.touched(txn, number):
                prefix = keys.log_prefix(number, namespace) + cid
                records += 1 + len(txn.scan_keys(prefix, keys.after(prefix)))
                if some and records > _LATE_RECORDS_MAX:
                    return some, False
                some.append((namespace, cid))
        return some, True

    def _catch_up(
        self, txn: Transaction, touched: Sequence[tuple[int, bytes]]
    ) -> tuple[list[Pair], list[Pair]]:
        """Copy some checkpoints once more, as they are now; return what came and what went."""
        self._check(txn)
        number, copy = self._begun.entry.number, self._begun.number
        came: list[Pair] = []
        went: list[Pair] = []
        for namespace, cid in touched:
            old = keys.log_prefix(copy, namespace) + cid
            for pair in txn.scan(old, keys.after(old)):
                txn.delete(pair[0])
                went.append(pair)
            now = keys.log_prefix(number, namespace)
            moved = [self._move(*pair) for pair in txn.scan(now + cid, keys.after(now + cid))]
            for key, record in moved:
                txn.put(key, record)
            came += moved
            reader = self._session.reader(
                txn, Stream(self._source, "", number, namespace, now), self._cipher
            )
            entry = reader.entry(cid)
            if entry is not None:
                run_index.note(txn, copy, run_index.run_of(entry.header.metadata), self._cipher)
                late = keys.late_key(number, namespace, entry.header.depth, cid)
                if txn.get(late) is not None:
                    directory.put_mark(txn, self._new_key(late))
            written = reader.own_writes(cid)
            for run_id in {run_id for one in written for run_id in one.record.runs()}:
                run_index.note(txn, copy, run_id, self._cipher)
            txn.delete(keys.touched_key(number, namespace, cid))
        return came, went

    def _finish(self, txn: Transaction) -> tuple[list[Pair], list[Pair]]:
        """Copy what came late, and give the copy its name."""
        entry = self._check(txn)
        moved = self._catch_up(txn, watch.touched(txn, entry.number))
        for stream in directory.streams(txn, self._source):
            if stream.namespace > self._begun.entry.namespaces:
                directory.name_namespace(
                    txn, self._begun.number, stream.checkpoint_ns, stream.namespace
                )
            low = keys.late_key(entry.number, stream.namespace, keys.DEPTH_MAX + 1, b"")
            for key in txn.scan_keys(low, keys.after(low[:9])):
                directory.put_mark(txn, self._new_key(key))
        self._name(txn)
        return moved

    def _name(self, txn: Transaction) -> None:
        """Put the directory entry: from now on the copy is there."""
        begun, entry = self._begun, self._check(txn)
        old = _check_target(txn, self._target)
        new = ThreadEntry(self._target, begun.number, entry.namespaces, 0, entry.deleted)
        if old is not None and old.number:
            retire.retire_entry(txn, old)
        before = {} if old is None else old.deleted
        for namespace, mark in (*before.items(), *self._deleted.items()):
            new = with_deleted(new, namespace, mark)
        directory.name_thread(txn, new)
        directory.touch(txn, new, this_minute())
        watch.end(txn, begun.number)
        watch.end(txn, entry.number)
