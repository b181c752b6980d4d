"""Refuse a put that would fork its stream, where the store was asked to.

To *fork* is to put a checkpoint on any but the newest of its stream. Who does so without meaning to
has not seen what another writer stored. The parent is compared with the newest one in the
transaction that stores, so of two puts on one parent the second is refused, in whichever process.
"""

from __future__ import annotations

from deltastore.errors import ForkRefusedError
from deltastore.ids import id_from_cid
from deltastore.log import StreamReader
from deltastore.refill import PreparedCheckpoint


def check_head(reader: StreamReader, prepared: PreparedCheckpoint) -> None:
    """Check that a checkpoint becomes the newest of its stream, and its parent was until now.

    The first checkpoint of a stream, and one that is stored already, fork nothing.

    Raises:
        ForkRefusedError: It would fork the stream. So would a later put, if this one had an id
            below the newest: its parent would go on being taken for the newest.

    Cost: two seeks, and up to four look-ups.
    """
    newest = reader.newest()
    if newest is None or reader.raw_header(prepared.cid) is not None:
        return
    new, newest_id = prepared.new, id_from_cid(newest)
    on = "without a parent" if new.parent_id is None else f"on parent {new.parent_id!r}"
    if newest != prepared.header.parent:
        why = (
            f"was put {on}, but the newest is {newest_id!r}: another writer was faster. Nothing "
            "was stored; read the newest and go on from there, or open the store without "
            "refuse_forks to fork on purpose"
        )
    elif new.checkpoint_id <= newest_id:
        why = (
            f"was put {on}, the newest, with an id that is not above it, so nobody would find it: "
            "do the clocks of the writers agree? Nothing was stored; the put may be repeated under "
            "a greater id"
        )
    else:
        return
    raise ForkRefusedError(
        f"checkpoint {new.checkpoint_id!r} of thread {new.thread_id!r}, namespace "
        f"{new.checkpoint_ns!r}, {why}",
        thread_id=new.thread_id,
        checkpoint_ns=new.checkpoint_ns,
        parent_id=new.parent_id,
        newest_id=newest_id,
    )
