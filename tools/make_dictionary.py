"""Build the zstd dictionary that deltastore ships, from seeded text of our own wording.

A *sample* is one payload as a store would write it: LangGraph's own serialisation of messages, of
inputs, of small values and of headers. A *domain* is a set of wordings, tools and result fields.
Names, bookings and prices are drawn at random; no recorded conversation is used, so that a measured
ratio on recorded ones says something.

    python tools/make_dictionary.py --output FILE     build and write
    python tools/make_dictionary.py --check           rebuild, compare with the shipped file

The output depends on the releases of zstandard and langchain-core named in BUILT_WITH; the text
depends on nothing but SEED. A shipped dictionary is never replaced: stored records need it. A
better one gets the next number (`deltastore/format/dictionary.py`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

import zstandard
from dictionary_wordings import (
    ASSISTANT,
    BULLETS,
    CHOICES,
    CITY,
    CODE,
    CODE_LINES,
    FILE,
    FIRST,
    ITEM,
    LAST,
    LISTS,
    MODELS,
    MONTH,
    NODES,
    OPENINGS,
    REASON,
    RESULTS,
    ROAD,
    STREET,
    SYSTEM,
    TOOLS,
    TOPIC,
    USER,
)
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send

SEED: Final = 20_240_601
CONVERSATIONS: Final = 700
DICTIONARY_BYTES: Final = 24 << 10  # 16 KiB costs 4 % on chat; 32 KiB gains 1 %, loses 2 on prose
DICTIONARY_ID: Final = 0x8001  # not stored in a record; ids below 0x8000 are zstd's to give out
TEXT_SHA256: Final = "862f3e355b5ecd72c1fbad9be4891d2c36e18841a6ee07d363754b1b886d6089"
SHIPPED: Final = (
    Path(__file__).parent.parent / "deltastore" / "format" / "data" / "dictionary-1.zstd-dict"
)
BUILT_WITH: Final = ("zstandard", "langchain-core", "langgraph-checkpoint", "ormsgpack")


class Writer:
    """Draws text and values from one seed; only `Random.random`, whose sequence never changes."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random

    def below(self, stop: int) -> int:
        """Return 0 to `stop` - 1."""
        return int(self._random() * stop)

    def pick(self, choices: Sequence[Any]) -> Any:
        """Return one of `choices`."""
        return choices[self.below(len(choices))]

    def letters(self, alphabet: str, count: int) -> str:
        """Return `count` letters of `alphabet`."""
        return "".join(self.pick(alphabet) for _ in range(count))

    def uuid(self) -> str:
        """Return a random uuid4."""
        return str(UUID(self.letters("0123456789abcdef", 32), version=4))

    def word(self, slot: str) -> Any:
        """Return a value for `slot`, the name of a blank in the wordings or of a field's kind."""
        if slot in CHOICES:
            return self.pick(CHOICES[slot].split("|"))
        below, pick = self.below, self.pick
        first, last = pick(FIRST), pick(LAST)
        month, day, d4 = 1 + below(12), 1 + below(28), f"{below(10_000):04d}"
        iso = f"2024-{month:02d}-{day:02d}"
        street = f"{1 + below(999)} {pick(STREET)} {pick(ROAD)}"
        return {
            "first": first,
            "last": last,
            "name": f"{first} {last}",
            "handle": f"{first.lower()}_{last.lower()}_{d4}",
            "email": f"{first.lower()}.{last.lower()}{d4}@example.com",
            "city": pick(CITY),
            "code": pick(CODE),
            "date": f"{MONTH[month - 1]} {day}" + pick(["", "th", ", 2024"]),
            "month": MONTH[month - 1],
            "iso": iso,
            "stamp": f"{iso}T{below(24):02d}:{below(60):02d}:{below(60):02d}",
            "clock": f"{below(24):02d}:{below(60):02d}:00",
            "hour": str(1 + below(12)),
            "min": f"{5 * below(12):02d}",
            "n": 1 + below(pick([9, 9, 99, 999])),
            "num": str(10**6 + below(9 * 10**6)),
            "money": f"${1 + below(999)}",
            "d4": d4,
            "zip": f"{10_000 + below(90_000)}",
            "phone": f"+1-{below(1000):03d}-{below(1000):03d}-{d4}",
            "ref": self.letters("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", 6),
            "card": pick(["credit_card_", "gift_card_", "certificate_"])
            + str(10**6 + below(9 * 10**6)),
            "flight": f"{self.letters('ABDFHKLSTU', 2)}{100 + below(900)}",
            "street": street,
            "address": f"{street}, {pick(CITY)}, {d4}",
            "item": pick(ITEM),
            "file": pick(FILE),
            "topic": pick(TOPIC),
            "reason": pick(REASON),
            "url": f"https://www.example.com/{first.lower()}/{last.lower()}",
            "sum": f"{below(999)} * {1 + below(9)} + {below(99)}",
            "line": pick(CODE_LINES).strip(),
            "yes": below(4) != 0,
        }[slot]

    def fill(self, wording: str) -> str:
        """Return `wording` with its blanks filled."""
        out = wording
        while (start := out.find("{")) >= 0 and (stop := out.find("}", start)) >= 0:
            slot = out[start + 1 : stop]
            if not slot.isalnum():
                break
            out = f"{out[:start]}{self.word(slot)}{out[stop + 1 :]}"
        return out.replace("{{", "{").replace("}}", "}")

    def fields(self, spec: str) -> dict[str, Any]:
        """Return a JSON object as `spec` describes: `name:kind`, `name:[kind` or `name:{kind`."""
        result: dict[str, Any] = {}
        for part in spec.split():
            name, _, kind = part.partition(":")
            bare = kind.lstrip("[{")
            count = 1 + self.below(3) if kind[0] == "[" else 1
            values = [
                self.fields(RESULTS[bare])
                if bare in RESULTS and (kind[0] in "[{")
                else self.word(bare)
                for _ in range(count)
            ]
            result[name] = values if kind[0] == "[" else values[0]
        return result

    def prose(self, bank: Sequence[str], count: int) -> str:
        """Return `count` sentences of `bank`."""
        return " ".join(self.fill(self.pick(bank)) for _ in range(count))

    def answer(self) -> str:
        """Return an assistant's text: prose, often a list, sometimes code."""
        text = self.prose(ASSISTANT, 1 + self.below(3))
        shape = self.below(10)
        if shape < 5:
            mark = self.pick(["- ", "{}. ", "   - "])
            lines = (
                mark.format(i + 1) + self.fill(self.pick(BULLETS)) for i in range(2 + self.below(5))
            )
            text += "\n\n" + "\n".join(lines)
        elif shape == 5:
            text += f"\n\n```python\n{self.lines()}\n```"
        return text + "\n\n" + self.prose(ASSISTANT, 1) if self.below(2) else text

    def lines(self) -> str:
        """Return some lines of code."""
        return "\n".join(self.fill(self.pick(CODE_LINES)) for _ in range(2 + self.below(8)))

    def result(self, kind: str) -> str:
        """Return what a tool gives back, as text."""
        if kind == "number":
            return str(self.below(5000))
        if kind == "code":
            return self.lines()
        value: Any
        if kind in LISTS:
            value = [self.fields(RESULTS[LISTS[kind]]) for _ in range(1 + self.below(4))]
        else:
            value = self.fields(RESULTS[kind])
        return json.dumps(value, separators=(",", ":") if self.below(4) == 0 else None)

    def conversation(self) -> list[dict[str, Any]]:
        """Return one conversation as plain values."""
        turns: list[dict[str, Any]] = [
            {"role": "system", "content": self.prose(SYSTEM, 2 + self.below(6)), "id": self.uuid()}
        ]
        for _ in range(2 + self.below(3)):
            content = self.pick(OPENINGS) + self.prose(USER, 1 + self.below(2))
            turns.append({"role": "user", "content": content, "id": self.uuid()})
            for _ in range(self.below(3)):
                name, arguments, kind = self.pick(TOOLS)
                call = "call_" + self.letters(
                    "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ", 24
                )
                thought = self.prose(ASSISTANT, 1) if self.below(4) == 0 else ""
                turns.append(
                    {
                        "role": "assistant",
                        "content": thought,
                        "id": self.uuid(),
                        "call": {"name": name, "args": self.fields(arguments), "id": call},
                        "tokens": [self.below(4000), self.below(300)],
                    }
                )
                turns.append(
                    {
                        "role": "tool",
                        "content": self.result(kind),
                        "id": self.uuid(),
                        "call_id": call,
                        "name": name,
                    }
                )
            tokens = [self.below(4000), self.below(300)]
            turns.append(
                {"role": "assistant", "content": self.answer(), "id": self.uuid(), "tokens": tokens}
            )
        return turns


def make_conversations(count: int = CONVERSATIONS) -> list[list[dict[str, Any]]]:
    """Return the training text as plain values; the same with every release of everything."""
    writer = Writer(SEED)
    return [writer.conversation() for _ in range(count)]


def make_message(turn: dict[str, Any], writer: Writer) -> AnyMessage:
    """Return a turn as the message a model integration would make of it."""
    content, name = turn["content"], turn["id"]
    if turn["role"] == "system":
        return SystemMessage(content, id=name)
    if turn["role"] == "user":
        return HumanMessage(content, id=name)
    if turn["role"] == "tool":
        return ToolMessage(content, id=name, tool_call_id=turn["call_id"], name=turn["name"])
    message = AIMessage(content, id=f"lc_run--{name}-0")
    if "call" in turn:
        message.tool_calls = [
            ToolCall(
                name=turn["call"]["name"],
                args=turn["call"]["args"],
                id=turn["call"]["id"],
                type="tool_call",
            )
        ]
    if writer.below(2):
        told, said = turn["tokens"]
        model, provider = writer.pick(MODELS)
        message.usage_metadata = UsageMetadata(
            input_tokens=told,
            output_tokens=said,
            total_tokens=told + said,
            input_token_details={"audio": 0, "cache_read": 0},
            output_token_details={"audio": 0, "reasoning": 0},
        )
        message.response_metadata = {
            "token_usage": {
                "completion_tokens": said,
                "prompt_tokens": told,
                "total_tokens": told + said,
            },
            "model_provider": provider,
            "model_name": model,
            "system_fingerprint": None,
            "finish_reason": "tool_calls" if "call" in turn else "stop",
            "logprobs": None,
        }
    return message


def make_header(writer: Writer) -> dict[str, Any]:
    """Return the fields of a checkpoint and its metadata, without channel values."""
    step = writer.below(60)

    def stamp() -> str:
        return f"{1 + writer.below(step + 2):032d}.0.{writer.letters('0123456789', 16)}"

    node = writer.pick(NODES)
    return {
        "v": 4,
        "ts": writer.word("stamp") + ".123456+00:00",
        "channel_versions": {
            "messages": stamp(),
            "__start__": stamp(),
            f"branch:to:{node}": stamp(),
        },
        "versions_seen": {
            "__input__": {},
            "__start__": {"__start__": stamp()},
            node: {f"branch:to:{node}": stamp()},
        },
        "updated_channels": [f"branch:to:{node}", "messages"],
        "source": writer.pick(["loop", "input", "update", "fork"]),
        "step": step,
        "parents": {},
        "run_id": writer.uuid(),
        "thread_id": writer.uuid(),
    }


def make_samples(count: int = CONVERSATIONS) -> list[bytes | bytearray | memoryview[int]]:
    """Return the training payloads, in a fixed order."""
    writer = Writer(SEED + 1)
    dump = JsonPlusSerializer().dumps_typed
    samples: list[bytes | bytearray | memoryview[int]] = []
    for turns in make_conversations(count):
        messages = [make_message(turn, writer) for turn in turns]
        for message in messages:
            single = dump([message] if writer.below(3) == 0 else message)[1]
            if writer.below(3) == 0:
                path = f"~__pregel_pull, {writer.pick(NODES)}"
                single = f"{writer.uuid()}{path}messages".encode() + b"msgpack" + single
            samples.append(single)
        others = [
            {"messages": messages[1:2]},
            messages[:4],
            make_header(writer),
            Send("tools", {"messages": messages[2:4], "remaining_steps": writer.below(25)}),
            {writer.word("file"): {"content": writer.lines().split("\n"), "encoding": "utf-8"}},
            {"todos": [{"content": writer.prose(USER, 1), "status": "in_progress"}]},
            writer.pick([None, 0, 7, True, "pending", "", [], {}]),
        ]
        samples += [dump(other)[1] for other in others if writer.below(3) == 0]
    return samples


def text_digest() -> str:
    """Return the SHA-256 of the training text, before any library has touched it."""
    text = json.dumps(make_conversations(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def build(size: int = DICTIONARY_BYTES) -> bytes:
    """Return the dictionary. Cost: about five seconds."""
    trained = zstandard.train_dictionary(size, make_samples(), dict_id=DICTIONARY_ID, level=3)
    return trained.as_bytes()


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Build the zstd dictionary deltastore ships.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--output", type=Path, help="write the dictionary to this file")
    what.add_argument("--check", action="store_true", help="compare with the shipped file")
    options = parser.parse_args()
    built = build()
    digest = hashlib.sha256(built).hexdigest()
    print(f"dictionary: {len(built)} bytes, sha256 {digest}")
    print(f"text: sha256 {text_digest()}")
    print("built with " + ", ".join(f"{name} {version(name)}" for name in BUILT_WITH))
    if options.check:
        same = SHIPPED.read_bytes() == built and text_digest() == TEXT_SHA256
        print("same as the shipped file" if same else f"differs from {SHIPPED}")
        return 0 if same else 1
    options.output.write_bytes(built)
    return 0


if __name__ == "__main__":
    sys.exit(main())
