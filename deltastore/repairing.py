"""Make a new store of what is left of a damaged one; the damaged one is not changed.

 1. *Read*: the file's pages are read without being mapped (`engine.lmdb_salvage`). Records whose
    checksums hold go into a new store under a name that nobody opens; of the others it is noted
    what they may have been (`losses`).
 2. *Mend* there: the directory (`mend_directory`), then stream after stream (`mending`). What does
    not rebuild goes, and so does what may lack a write.
 3. *Verify* it, both levels. What is found goes too; a store that is not sound is never left.
 4. Put it in its place.

Never guesses: what is lost is in the report, and reading what needs it raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Final

from deltastore import directory
from deltastore.directory import Stream
from deltastore.engine.api import Pair, Transaction
from deltastore.engine.lmdb import LmdbEngine
from deltastore.engine.lmdb_partial import check_target, partial_directory
from deltastore.engine.lmdb_paths import check_damaged_path
from deltastore.engine.lmdb_salvage import Salvage, open_salvage
from deltastore.errors import CorruptionError, DecryptionError
from deltastore.findings import STRUCTURE, Finding, RepairReport, Report
from deltastore.format import keys, layout
from deltastore.format.entries import DeletedMark, with_deleted
from deltastore.format.frame import HINT
from deltastore.ids import cid_from_id, least_cid
from deltastore.log import StreamReader
from deltastore.losses import Loss, Losses, between, place_of, single, told
from deltastore.mend_directory import mend_directory
from deltastore.mending import Mended, mend_stream
from deltastore.options import StoreOptions
from deltastore.plans import Progress, no_progress, part_of
from deltastore.session import Session, this_minute
from deltastore.types import Cipher
from deltastore.values import Values
from deltastore.verify import verify_store
from deltastore.verify_directory import find_stream, is_passing, name_of
from deltastore.verify_records import check_record

_BATCH: Final = 1_000
_ROUNDS_MAX: Final = 8
_OPTIONS: Final = StoreOptions(durability="normal", verify_bytes_max=0)
Forced = dict[tuple[str, str], dict[bytes, Finding]]


def repair(
    path: str | PathLike[str],
    target: str | PathLike[str],
    *,
    cipher: Cipher | None = None,
    progress: Progress = no_progress,
) -> RepairReport:
    """Write every checkpoint of a damaged store that still rebuilds into a new one.

    Args:
        path: The damaged store; nobody may have it open, and nothing in it is changed.
        target: Absent, or an empty directory.
        cipher: Opens encrypted records; records of another cipher are kept if their checksums hold.
        progress: Called with parts done and parts there are.

    Raises:
        StorePathError: There is no store, or the target holds something.
        CorruptionError: Nothing tells what is in use: both meta pages are damaged.
        DecryptionError: Records are encrypted and there is no cipher; nothing was written.
        EngineError: A process has the store open.
        StoreFullError: No room; nothing is left of the new store.

    Cost: everything is read once, written once, and rebuilt twice or more. Memory: about 500 bytes
        a thread, and 300 bytes a checkpoint of one namespace.
    """
    source = check_damaged_path(path)
    where = check_target(target, source)
    with open_salvage(source) as salvage, partial_directory(where, "repair") as partial:
        session = Session(LmdbEngine(partial, durability="normal", verify_bytes_max=0), _OPTIONS)
        try:
            work = _Repair(session, cipher, RepairReport(str(where)))
            work.load(salvage, part_of(progress, 0, 3))
            work.mend(part_of(progress, 1, 3))
            work.settle(part_of(progress, 2, 3))
            session.queue.run(directory.make_store)
            _measure(session, work.report)
        finally:
            session.close()
    return work.report


@dataclass(slots=True)
class _Repair:
    session: Session
    cipher: Cipher | None
    report: RepairReport
    losses: Losses = field(default_factory=Losses)

    # 1. Read

    def load(self, salvage: Salvage, progress: Progress) -> None:
        """Copy the records whose checksums hold."""
        batch: list[Pair] = []
        done = 0
        for pair in self._sound(salvage):
            batch.append(pair)
            if len(batch) == _BATCH:
                done += len(batch)
                self._put(batch)
                batch = []
                progress(done, max(done, salvage.entries))
        self._put(batch)
        self.losses.found += [
            Loss(low, high, None, "pages of the file cannot be read") for low, high in salvage.lost
        ]
        self.report.lost += [Finding(STRUCTURE, message) for message in salvage.findings]

    def _sound(self, salvage: Salvage) -> Iterator[Pair]:
        before = b""
        bad: list[tuple[bytes, str]] = []  # since the last sound one
        for key, record in salvage.pairs():
            try:
                if not 0 < len(key) <= self.session.engine.key_bytes_max:
                    raise CorruptionError(f"key of {len(key)} bytes")
                self._check(key, record)
            except CorruptionError as error:
                bad.append((key, error.message.removesuffix(HINT)))
                continue
            self.losses.found += [between(before, at, key, why) for at, why in bad]
            bad, before = [], key
            yield key, record
        self.losses.found += [between(before, at, b"\xff", why) for at, why in bad]

    def _check(self, key: bytes, record: bytes) -> None:
        try:
            check_record(key, record, self.cipher)
        except DecryptionError:
            if self.cipher is None:
                raise DecryptionError(
                    "the store holds encrypted records, and whether they rebuild cannot be told "
                    "without the key: repair it from Python, with cipher=serde.cipher; nothing was "
                    "written"
                ) from None

    def _put(self, batch: Sequence[Pair]) -> None:
        def op(txn: Transaction) -> list[bytes]:
            twice = []
            for key, record in batch:
                if txn.get(key) not in (None, record):
                    twice.append(key)
                txn.put(key, record)
            for key in twice:
                txn.delete(key)
            return twice

        for key in self.session.queue.run(op):
            why = "two pages hold records under this key, and nothing tells which is in use"
            self.losses.found.append(single(key, why))

    # 2. Mend

    def mend(self, progress: Progress) -> None:
        """Take out what does not rebuild."""
        run = self.session.queue.run
        self.report.lost += run(lambda txn: mend_directory(txn, self.losses, this_minute()))
        self.session.reclaim()
        self._mend_streams({}, progress)
        self._tell_losses()

    def _tell_losses(self) -> None:
        """Tell of the losses that are not of a checkpoint that is told of by now."""
        known = {(one.thread_id, one.checkpoint_ns, one.checkpoint_id) for one in self.report.lost}
        with self.session.engine.begin(write=False) as txn:
            for loss in self.losses.found:
                place = place_of(loss.key or loss.low) or place_of(loss.high)
                names = (
                    (None, None) if place is None else name_of(txn, place.thread, place.namespace)
                )
                found = told(loss, *names)
                if (found.thread_id, found.checkpoint_ns, found.checkpoint_id) not in known:
                    self.report.lost.append(found)

    def _mend_streams(self, forced: Forced, progress: Progress) -> None:
        at = bytes([layout.TAG_LOG])
        stop = keys.after(at)
        while True:
            with self.session.engine.begin(write=False) as txn:
                page = txn.scan_keys(at, stop, limit=1)
                given = directory.threads_given(txn)
            if not page:
                return
            prefix = page[0][:9]
            thread = keys.number_at(prefix, 1)
            self._mend_stream(thread, keys.number_at(prefix, 5), forced)
            at = keys.after(prefix)
            progress(thread, max(given, thread))

    def _mend_stream(self, thread: int, namespace: int, forced: Forced) -> None:
        def op(txn: Transaction) -> tuple[Stream | None, Mended]:
            stream = find_stream(txn, thread, namespace)
            if stream is None:
                return None, Mended()
            values = Values(self.session.options.bounds, self.session.options.value_cache_bytes)
            reader = StreamReader(txn, stream, self.cipher, self.session.fresh_caches())
            own = forced.get((stream.thread_id, stream.checkpoint_ns), {})
            losses = Losses() if forced else self.losses
            mended = mend_stream(reader, values, losses, own)
            entry = directory.find_thread(txn, stream.thread_id)
            assert entry is not None  # the stream was found by it
            mark = mended.mark
            if mended.is_vague:
                # The newest may be gone without a name: none is of a later minute.
                mark = mark.joined(DeletedMark(least_cid(60_000 * (entry.minute + 1))))
            if mark != DeletedMark():
                entry = with_deleted(entry, stream.checkpoint_ns, mark)
                directory.save_thread(txn, entry)
            return stream, mended

        stream, mended = self.session.queue.run(op)
        if stream is None:
            self._drop_nameless(thread, namespace)
        self.report.lost += mended.lost.values()

    def _drop_nameless(self, thread: int, namespace: int) -> None:
        prefix = keys.log_prefix(thread, namespace)
        marks = keys.late_key(thread, namespace, 0, b"")[:9]

        def op(txn: Transaction) -> bool:
            left = txn.delete_range(prefix, keys.after(prefix), limit=_BATCH)
            left += txn.delete_range(marks, keys.after(marks), limit=_BATCH)
            return left > 0

        with self.session.engine.begin(write=False) as txn:
            thread_id, _ = name_of(txn, thread, namespace)
            known = is_passing(txn, thread)
        if not known:
            self.report.lost.append(
                Finding(
                    "references",
                    f"thread number {thread}, namespace number {namespace}: its name is lost, and "
                    "all its checkpoints with it",
                    thread_id,
                    key=prefix.hex(),
                )
            )
        while self.session.queue.run(op):
            pass

    # 3. Verify

    def settle(self, progress: Progress) -> None:
        """Verify, and take out what is found, until nothing is.

        Raises:
            CorruptionError: That does not end.
        """
        for left in reversed(range(_ROUNDS_MAX)):
            found = self._verify(progress)
            forced = _forced(found)
            if not found.damage:
                self.report.gaps = found.gaps
                return
            if not forced or not left:
                break
            self._mend_streams(forced, no_progress)
        first = found.damage[0]
        raise CorruptionError(
            f"what is left could not be made a sound store ({len(found.damage)} findings, the "
            f"first: {first}); nothing was written, restore it from a backup"
        )

    def _verify(self, progress: Progress) -> Report:
        total = self.session.engine.stat().entries
        with self.session.engine.begin(write=False) as txn:
            values = Values(self.session.options.bounds, self.session.options.value_cache_bytes)
            caches = self.session.fresh_caches()
            return verify_store(
                txn,
                lambda txn, stream: StreamReader(txn, stream, self.cipher, caches),
                values,
                self.cipher,
                total=total,
                progress=progress,
            )


def _forced(found: Report) -> Forced:
    """Return the checkpoints that a check found damage at."""
    forced: Forced = {}
    for one in found.damage:
        if one.thread_id is None or one.checkpoint_ns is None or one.checkpoint_id is None:
            continue
        of = forced.setdefault((one.thread_id, one.checkpoint_ns), {})
        of.setdefault(cid_from_id(one.checkpoint_id), one)
    return forced


def _measure(session: Session, report: RepairReport) -> None:
    """Count what the new store holds."""
    with session.engine.begin(write=False) as txn:
        at, stop = bytes([layout.TAG_LOG]), bytes([layout.TAG_LOG + 1])
        while page := txn.scan_keys(at, stop, limit=_BATCH):
            report.records += len(page)
            report.checkpoints += sum(keys.split(k).kind == layout.KIND_HEADER for k in page)
            at = page[-1] + b"\x00"
        last = None
        while ids := directory.scan_thread_ids(txn, last, _BATCH):
            report.threads += len(ids)
            last = ids[-1]
