"""Reads the text of a policy: YAML of which only mappings, lists and texts are taken, each with its line.

The file lies where many can write, so it is read as an adversary's: at most `MAX_POLICY` bytes, no tags, anchors, aliases or
directives, nothing repeated, nothing deep. Numbers, dates and truth values stay texts: what a setting means, its key decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import printable

MAX_POLICY, MAX_NODES, _MAX_NESTING, _LONGEST_VALUE = 1 << 20, 50_000, 6, 1000
"""Bounds of the file (bytes), of the keys and values in it, of mappings within mappings, and of one text (characters)."""
_SHOWN_KEY = 60
_QUOTED, _NO_VALUE = tuple("'\"|>"), ("", "~", "null")


class PlacedValue(NamedTuple):
    """What stands in the file at a line (from 1): a text, a list, or a mapping by keys, each with its line."""

    value: str | list[PlacedValue] | dict[str, PlacedValue]
    line: int
    has_value: bool = True


def read_policy_text(content: bytes, name: str, most: int = MAX_POLICY) -> dict[str, PlacedValue]:
    """The mapping in a file; `name`: how errors call it. Raises `UsageError` with the line for anything else."""
    if len(content) > most:
        raise UsageError(f"{name} is too large", f"it has {len(content):,} bytes, and at most {most:,} are read")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{name}:{line} is not UTF-8", "a policy is a text", "save it as UTF-8") from None
    found = _composed(_events(text, name), name)
    if found is None:
        return {}
    if not isinstance(found.value, dict):
        raise at(name, found.line, "this is no mapping", "a policy has the keys catalog, databases and tables")
    return found.value


def at(name: str, line: int, what: str, why: str = "", hint: str = "") -> UsageError:
    """An error about a line of the file."""
    return UsageError(f"{name}:{line}: {what}", why, hint)


def shown_key(key: str) -> str:
    """A key of the file in a message."""
    return printable(key if len(key) <= _SHOWN_KEY else f"{key[:_SHOWN_KEY]}...")


def _events(text: str, name: str) -> Iterator[Any]:
    import yaml

    try:
        yield from yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = text.count("\n", 0, getattr(error, "position", 0) or 0) + 1 if mark is None else mark.line + 1
        hint = "put values that contain one of : # @ % & * ! ? { [ in quotes"
        raise at(
            name, line, "this is not YAML", str(getattr(error, "problem", "") or "a character is not allowed"), hint
        ) from None


def _composed(events: Iterator[Any], name: str) -> PlacedValue | None:
    """The one value that the events describe; None for an empty file. Nothing is built of what is refused."""
    import yaml

    open_ones: list[tuple[PlacedValue, list[PlacedValue]]] = []
    whole: PlacedValue | None = None
    nodes = documents = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1 or event.tags:
                raise at(name, line, "directives and further documents are refused", "a policy is one plain document")
            continue
        if isinstance(event, (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentEndEvent)):
            continue
        _refuse_references(event, name, line)
        nodes += 1
        if nodes > MAX_NODES:
            raise at(name, line, "the file has too much in it", f"at most {MAX_NODES:,} keys and values are read")
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if len(open_ones) >= _MAX_NESTING:
                raise at(name, line, "this is nested too deeply", f"at most {_MAX_NESTING} levels are read")
            open_ones.append((PlacedValue({} if isinstance(event, yaml.MappingStartEvent) else [], line), []))
            continue
        if isinstance(event, yaml.ScalarEvent):
            done = PlacedValue(_text(event, name, line), line, event.style in _QUOTED or event.value not in _NO_VALUE)
        else:
            done = open_ones.pop()[0]
        whole = _put(open_ones, done, name, line) or whole
    return whole


def _refuse_references(event: Any, name: str, line: int) -> None:
    import yaml

    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        raise at(name, line, "anchors and aliases are refused", "each value stands where it counts", "write it out")
    if getattr(event, "tag", None) is not None:
        raise at(name, line, "tags are refused", "the key says what a value means", "leave out the !")


def _text(event: Any, name: str, line: int) -> str:
    if len(event.value) > _LONGEST_VALUE:
        raise at(name, line, "this text is too long", f"at most {_LONGEST_VALUE:,} characters are read")
    return str(event.value)


def _put(open_ones: list[tuple[PlacedValue, list[PlacedValue]]], done: PlacedValue, name: str, line: int) -> PlacedValue | None:
    """Put a value into the innermost open one; returns it if there is none, so that it is the whole."""
    if not open_ones:
        return done
    holder, key = open_ones[-1]
    inside = holder.value
    if isinstance(inside, list):
        inside.append(done)
    elif isinstance(inside, dict) and key:
        of_key = key.pop()
        inside[str(of_key.value)] = done._replace(line=of_key.line)
    elif isinstance(inside, dict):
        if not isinstance(done.value, str):
            raise at(name, line, "this key is no text", "keys are names")
        if done.value in inside:
            why = f"it stands in line {inside[done.value].line}, too"
            raise at(name, done.line, f"'{shown_key(done.value)}' is there twice", why, "remove one")
        key.append(done)
    return None
