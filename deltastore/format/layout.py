"""Numbers on disk: never renumbered, never reused, 0 invalid on purpose. Grammar: docs/format.md.

Changing any of these makes every existing store unreadable.
"""

from __future__ import annotations

from typing import Final

FORMAT_VERSION: Final = 1  # high four bits of a record's first byte; also in the store's own record

# First byte of a key: which keyspace.
TAG_STORE: Final = 0x00  # the store's own record: format version and identity
TAG_THREAD: Final = 0x01  # thread id -> thread number and tombstones
TAG_NAMESPACE: Final = 0x02  # thread number, namespace -> namespace number
TAG_NAMES: Final = 0x03  # thread number [, namespace number] -> its text
TAG_ACTIVITY: Final = 0x04  # minutes before the end of time, thread number: newest activity first
TAG_SECRET: Final = 0x05  # thread number, ordinal -> encrypted secret that keys task suffixes
TAG_LATE: Final = 0x06  # thread, namespace, depth, cid: writes that came after a child was stored
TAG_RECLAIM: Final = 0x07  # threads, and checkpoints, whose records wait to be deleted
TAG_RUN: Final = 0x08  # hash of a run id, thread number: which threads a run touched
TAG_WATCH: Final = 0x09  # thread number: maintenance plans; with namespace and cid: stored since
TAG_THREAD_RUNS: Final = 0x0A  # thread number, hash of a run id: which runs touched a thread
TAG_LEASE: Final = 0x0B  # thread id -> who holds the thread, and until when
TAG_LOG: Final = 0x10  # thread, namespace, cid, kind, suffix: the log

# Kind of a log record; part of its key, and repeated in its frame.
KIND_HEADER: Final = 1
KIND_VALUE: Final = 2
KIND_WRITES: Final = 3
KIND_ANCHOR: Final = 4
KIND_FOLDED: Final = 5  # writes of dropped ancestors, kept at an anchor
# Kinds of records outside the log (frame only).
KIND_STORE: Final = 16
KIND_THREAD: Final = 17
KIND_NAME: Final = 18
KIND_SECRET: Final = 19
KIND_MARK: Final = 20  # nothing but its key: activity, late writes, runs, what was stored since
KIND_DROPPED: Final = 21  # checkpoints whose records wait to be deleted
KIND_WATCH: Final = 22  # who plans maintenance of a thread, and since when
KIND_LEASE: Final = 23  # who holds a thread, and until when

# Low four bits of a record's first byte: how the payload is coded.
CODEC_RAW: Final = 1
CODEC_ZSTD: Final = 2
CODEC_ZSTD_DICT: Final = 3
CODEC_ENCRYPTED: Final = 8  # added to one of the above: compressed first, then encrypted

HEADER_WHOLE_EVERY: Final = 32  # headers at depths that are multiples of this are coded whole
ZSTD_LEVEL: Final = 3
DICT_RECORD_BYTES_MAX: Final = 8 << 10  # larger payloads compress better without the dictionary
PAYLOAD_BYTES_MAX: Final = (1 << 31) - 1  # cap on what a record may claim to decompress to
