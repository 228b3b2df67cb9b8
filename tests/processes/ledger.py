"""What each commit of each writer holds, computed from its number alone, so that anybody can say what a table must hold.

Writer w owns partition w. Its commit n moves money between two accounts (the bank: the sum never changes), sets all
registers to n (append order: what is seen rises), adds one key and removes an older one (the set: nothing lost, nothing
twice). All of it is one commit, so a read shows all of it or nothing.
"""

from __future__ import annotations

import random
from functools import cache

Rows = dict[int, int]
"""`v` by `k`, in one partition."""

ACCOUNTS = range(10)
REGISTERS = range(100, 104)
FIRST_KEY = 1000
KEYS_KEPT = 25
DEPOSIT = 100


def changes(seed: int, writer: int, number: int) -> dict[int, int | None]:
    """Commit `number` (from 1): rows to upsert, None for keys to delete."""
    found: dict[int, int | None] = dict(_moved(seed, writer, number))
    found |= dict.fromkeys(REGISTERS, number)
    found[FIRST_KEY + number] = number
    if number > KEYS_KEPT:
        found[FIRST_KEY + number - KEYS_KEPT] = None
    return found


def state(seed: int, writer: int, number: int) -> Rows:
    """All rows of the partition after commit `number`; none before the first."""
    if number == 0:
        return {}
    keys = range(max(1, number - KEYS_KEPT + 1), number + 1)
    rows = {FIRST_KEY + key: key for key in keys}
    return {**_balances(seed, writer, number), **dict.fromkeys(REGISTERS, number), **rows}


def _moved(seed: int, writer: int, number: int) -> Rows:
    """The accounts that commit `number` writes; the first opens them all."""
    balances = _balances(seed, writer, number)
    if number == 1:
        return balances
    return {account: balances[account] for account in _transfer(seed, writer, number)[:2]}


def _transfer(seed: int, writer: int, number: int) -> tuple[int, int, int]:
    chance = random.Random(f"{seed} {writer} {number}")
    giver, taker = chance.sample(ACCOUNTS, 2)
    return giver, taker, chance.randrange(1, 20)


@cache
def _balances(seed: int, writer: int, number: int) -> Rows:
    for known in range(_STEP, number, _STEP):  # not deeper than the stack
        _balances(seed, writer, known)
    if number <= 1:
        return dict.fromkeys(ACCOUNTS, DEPOSIT)
    giver, taker, amount = _transfer(seed, writer, number)
    before = _balances(seed, writer, number - 1)
    return {**before, giver: before[giver] - amount, taker: before[taker] + amount}


_STEP = 200


def complaints(seed: int, writer: int, rows: Rows, at_least: int, at_most: int) -> list[str]:
    """What is wrong with the rows that a read saw, given the commits that the writer had acknowledged and begun."""
    number = max((rows.get(register, 0) for register in REGISTERS), default=0)
    found = []
    if not at_least <= number <= at_most:
        found.append(f"shows commit {number}, {at_least} were acknowledged and {at_most} begun")
    if len({rows.get(register) for register in REGISTERS}) != 1:
        found.append(f"shows half a commit: {[rows.get(register) for register in REGISTERS]}")
    if number and sum(rows.get(account, 0) for account in ACCOUNTS) != DEPOSIT * len(ACCOUNTS):
        found.append(f"the bank holds {sum(rows.get(account, 0) for account in ACCOUNTS)}")
    expected = state(seed, writer, number)
    if rows != expected and not found:
        differ = sorted(key for key in rows.keys() | expected.keys() if rows.get(key) != expected.get(key))
        found.append(f"lost, doubled or wrong keys at commit {number}: {differ[:10]}")
    return [f"writer {writer} {complaint}" for complaint in found]
