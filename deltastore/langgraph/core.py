"""What a saver shares with its clones: the store, and the threads its async methods work on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from langgraph.checkpoint.base import CheckpointTuple

from deltastore.errors import ForkedStoreError, StoreClosedError
from deltastore.langgraph.ahead import BYTES_MAX, CHECKPOINTS_MAX, ReadAhead, WalkKey
from deltastore.langgraph.channels import check_reducers
from deltastore.langgraph.configs import Target
from deltastore.langgraph.mailbox import Mailbox
from deltastore.langgraph.pace import Pace
from deltastore.langgraph.serde import Coder
from deltastore.langgraph.tuples import tuple_of
from deltastore.pending import NewWrites
from deltastore.reconstruct import StoredCheckpoint
from deltastore.refill import NewCheckpoint
from deltastore.store import Store
from deltastore.types import Cipher, Wake

T = TypeVar("T")

Made = tuple[NewCheckpoint | NewWrites | None, Cipher | None, Any]
"""What a call stores, if anything, the cipher, and what it returns."""

_WORKERS: Final = 32


class Core:
    """What a saver shares with its clones."""

    def __init__(self, store: Store, reducers: Mapping[str, Any] | None = None) -> None:
        self.store = store
        self.reducers = {} if reducers is None else check_reducers(reducers)
        self._ahead = ReadAhead()
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Mailbox, Pace]]
        self._loops = WeakKeyDictionary()

    def _submit(self, call: Callable[[], T]) -> Future[T]:
        """Hand a call to the saver's threads, which start with the first one."""
        with self._lock:
            if self._closed:
                raise StoreClosedError("the saver was closed; open a new one")
            if self._executor is None:
                self._executor = ThreadPoolExecutor(_WORKERS, thread_name_prefix="deltastore")
            return self._executor.submit(call)

    def close(self) -> None:
        """Let calls under way finish, then close the store."""
        try:
            self.store.check()
        except ForkedStoreError:
            self.store.close()  # the threads, and perhaps the lock, stayed with the parent
            return
        except StoreClosedError:
            pass
        with self._lock:
            self._closed = True
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True)
        self.store.close()

    async def work(self, call: Callable[[], T]) -> T:
        """Run a blocking call on a thread of the saver's own."""
        self.store.check()
        loop = asyncio.get_running_loop()
        return await asyncio.wrap_future(self._submit(call), loop=loop)

    async def get_tuple(self, target: Target, coder: Coder) -> CheckpointTuple | None:
        """Return a checkpoint, read ahead if this is a step of a walk."""
        self.store.check()
        checkpoint_id, cipher = target.checkpoint_id, coder.cipher
        key = WalkKey(target.thread_id, target.checkpoint_ns or "")
        # Before the read: what a later commit changes is then never taken for current.
        version = self.store.version()
        count = 1
        if checkpoint_id is not None:
            known = self._ahead.take(key, cipher, checkpoint_id, version)
            if known is not None:
                return tuple_of(known, coder)
            if self._ahead.is_walk(key, checkpoint_id):
                count = CHECKPOINTS_MAX

        def read() -> tuple[list[StoredCheckpoint], CheckpointTuple | None]:
            found = self.store.get_chain(
                *key, checkpoint_id, cipher, count=count, bytes_max=BYTES_MAX
            )
            return found, tuple_of(found[0], coder) if found else None

        found, result = await self.work(read)
        if found:
            self._ahead.note(key, cipher, found, version)
        return result

    async def commit(self, make: Callable[[], Made], *, is_light: Callable[[], bool]) -> Any:
        """Make a write and wait for its commit; return what it was made with.

        Whether it is light is found out on the loop, and what is light is made there: a few calls
        in each pass. The rest is made on a thread of the saver's own.
        """
        self.store.check()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        mailbox, pace = self._of_loop(loop)

        def submit(new: NewCheckpoint | NewWrites | None, cipher: Cipher | None, told: Any) -> None:
            def done(error: BaseException | None) -> Wake:
                return mailbox.put(future, told, error)

            if new is None:
                done(None)()
            else:
                self.store.submit(new, cipher, done)

        def work(make: Callable[[], Made]) -> None:
            try:
                submit(*make())
            except BaseException as error:  # noqa: BLE001 - it goes to the caller
                mailbox.put(future, None, error)()

        await pace.turn(loop)
        self.store.check()  # it may have been closed meanwhile
        if not is_light():
            self._submit(lambda: work(make))
            return await future
        made = make()
        if made[0] is None:
            return made[2]
        if self.store.is_instant(made[0]):
            submit(*made)
        else:
            self._submit(lambda: work(lambda: made))
        return await future

    def _of_loop(self, loop: asyncio.AbstractEventLoop) -> tuple[Mailbox, Pace]:
        with self._lock:
            found = self._loops.get(loop)
            if found is None:
                # One that was closed while calls waited is referred to by what they waited for.
                for closed in [other for other in self._loops if other.is_closed()]:
                    del self._loops[closed]
                found = self._loops[loop] = Mailbox(), Pace()
            return found
