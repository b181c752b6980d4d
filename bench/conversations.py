"""Conversations to replay, cut into turns.

A *turn* is one user message and everything up to the next one: the assistant's messages, the tool
calls among them and their results. A long conversation is the recorded ones, one after another.

Recorded conversations are read where a copy is at hand, else text of the same shape is made from a
seed. Reads one file and nothing else; knows no graph and no saver.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

RECORDED = Path(__file__).parents[2] / "shared" / "data" / "airline_conversations.jsonl.gz"
"""Where recorded conversations lie when they are present: beside the repository."""

_CITIES = ("Austin", "Boston", "Chicago", "Denver", "Houston", "Miami", "Newark", "Seattle")
_ASKS = (
    "I would like to change my flight from {a} to {b} on {day}.",
    "Can you tell me whether there is a later connection from {a} to {b}?",
    "Please cancel the booking to {b}; my plans for {day} have changed.",
    "How many bags may I bring on the flight to {b}, and what does another one cost?",
    "The second option is fine, but only if it leaves {a} after noon.",
)
_ANSWERS = (
    "The connection from {a} to {b} on {day} has {n} seats left in economy.",
    "I have found {n} options between {a} and {b}; the cheapest costs ${price}.",
    "To go on I need your confirmation that ${price} may be charged to the card on file.",
    "The booking to {b} now holds {n} passengers, and a message was sent to each of them.",
    "That fare cannot be changed, but it can be cancelled until {day} for a fee of ${price}.",
)
_TOOLS = ("search_flights", "get_booking", "update_booking", "get_traveller")


@dataclass(frozen=True, slots=True)
class Turn:
    """One user message and the recorded replies to it, oldest first; replies may be empty."""

    user: HumanMessage
    replies: tuple[AIMessage | ToolMessage, ...]

    @property
    def messages(self) -> list[AnyMessage]:
        """All messages of the turn, oldest first."""
        return [self.user, *self.replies]


def get_turns(turns: int, *, path: Path | None, seed: int) -> tuple[list[Turn], str]:
    """Return that many turns, and in words where they come from.

    Args:
        turns: How many, at least 1. Recorded conversations start over when they run out, under
            message ids of their own.
        path: A gzip file of one conversation a line; None for `RECORDED` where it is present and
            made text elsewhere.
        seed: Of the made text.

    Raises:
        OSError: A named file cannot be read.
    """
    if path is None and not RECORDED.is_file():
        made = (make_conversation(seed, number) for number in count())
        return list(islice(_cut(made), turns)), "made text"
    path = path or RECORDED
    recorded = load_conversations(path)
    again = (
        [message.model_copy(update={"id": f"{lap}:{message.id}"}) for message in conversation]
        for lap in count()
        for conversation in recorded
    )
    return list(islice(_cut(again), turns)), f"{len(recorded)} recorded conversations ({path.name})"


def load_conversations(path: Path) -> list[list[AnyMessage]]:
    """Return the conversations of a gzip file of JSON lines, each with stable message ids."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    found = [
        [
            _message(fields, f"{row['conversation']}:{place}")
            for place, fields in enumerate(row["messages"])
        ]
        for row in rows
    ]
    if not any(conversation and conversation[0].type == "human" for conversation in found):
        raise ValueError(f"{path} holds no conversation that a user begins; nothing to replay")
    return found


def make_conversation(seed: int, number: int) -> list[AnyMessage]:
    """Return conversation `number` of a seed: shaped as the recorded ones, its words made up."""
    rng = random.Random(f"{seed}:{number}")
    messages: list[AnyMessage] = []

    def say(**fields: Any) -> None:
        messages.append(_message(fields, f"made-{number}:{len(messages)}"))

    for _ in range(rng.randint(4, 11)):
        say(role="user", content=_sentences(rng, _ASKS, 1, 2))
        while rng.random() < 0.45:
            tool, call = rng.choice(_TOOLS), f"call_{rng.getrandbits(96):024x}"
            arguments = {"origin": rng.choice(_CITIES), "booking": f"{rng.getrandbits(24):06X}"}
            say(
                role="assistant",
                content=None,
                tool_calls=[{"id": call, "name": tool, "arguments": json.dumps(arguments)}],
            )
            say(role="tool", content=_result(rng), tool_call_id=call, name=tool)
        say(role="assistant", content=_sentences(rng, _ANSWERS, 1, 7))
    return messages


def make_text(rng: random.Random, size_bytes: int) -> str:
    """Return lines of made text, cut to that many bytes of ASCII."""
    lines: list[str] = []
    while sum(map(len, lines)) < size_bytes:
        lines.append(f"{len(lines):04d} {_sentences(rng, _ANSWERS, 1, 1)}\n")
    return "".join(lines)[:size_bytes]


def _cut(conversations: Iterable[list[AnyMessage]]) -> Iterator[Turn]:
    for conversation in conversations:
        begins = [place for place, message in enumerate(conversation) if message.type == "human"]
        for begin, end in zip(begins, [*begins[1:], len(conversation)], strict=True):
            user, *replies = conversation[begin:end]
            yield Turn(user, tuple(replies))  # type: ignore[arg-type]


def _message(fields: dict[str, Any], message_id: str) -> AnyMessage:
    content = fields["content"] or ""
    if fields["role"] == "user":
        return HumanMessage(content, id=message_id)
    if fields["role"] == "tool":
        return ToolMessage(
            content, id=message_id, tool_call_id=fields["tool_call_id"], name=fields["name"]
        )
    calls = [
        {"id": call["id"], "name": call["name"], "args": json.loads(call["arguments"])}
        for call in fields.get("tool_calls", ())
    ]
    return AIMessage(content, id=message_id, tool_calls=calls)


def _sentences(rng: random.Random, patterns: tuple[str, ...], least: int, most: int) -> str:
    return " ".join(
        rng.choice(patterns).format(
            a=rng.choice(_CITIES),
            b=rng.choice(_CITIES),
            day=f"{rng.choice(('May', 'June', 'July'))} {rng.randint(1, 28)}",
            n=rng.randint(1, 20),
            price=rng.randint(40, 900),
        )
        for _ in range(rng.randint(least, most))
    )


def _result(rng: random.Random) -> str:
    return json.dumps(
        [
            {
                "flight": f"DS{rng.randint(100, 999)}",
                "origin": rng.choice(_CITIES),
                "destination": rng.choice(_CITIES),
                "departure": f"{rng.randint(5, 22):02d}:{rng.choice((0, 15, 30, 45)):02d}",
                "status": rng.choice(("available", "delayed", "landed")),
                "seats": {"basic": rng.randint(0, 20), "economy": rng.randint(0, 20)},
                "price": rng.randint(40, 900),
            }
            for _ in range(rng.choice((0, 1, 3, 4, 5, 6)))
        ]
    )
