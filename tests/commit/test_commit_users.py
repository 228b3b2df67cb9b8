"""What snapshots record about users: the format, its size limit, and that no user who has committed counts as new."""

from __future__ import annotations

import base64
import json
import zlib

import pytest

from paimon_cli.commit.deduplication import MAX_NAMED_USERS, PROPERTY, CommitUsers


def read_back(users: CommitUsers) -> CommitUsers | None:
    return CommitUsers.from_properties({PROPERTY: users.to_text()})


def test_the_highest_identifier_of_each_user() -> None:
    users = CommitUsers(5).with_commit("a", 3).with_commit("b", 0).with_commit("a", 1)
    assert [users.identifier_of(user) for user in "abc"] == [3, 0, None]
    assert list(users.highest) == ["b", "a"], "who committed last comes last"
    assert not users.may_know("c")
    assert read_back(users) == users
    assert json.loads(users.to_text()) == {"since": 5, "highest": {"b": 0, "a": 3}}


def test_many_users_stay_within_a_bound_and_none_is_forgotten() -> None:
    users = CommitUsers()
    names = [f"run-{number}-{'x' * 200 if number % 2 else 'é'}" for number in range(3000)]
    for name in names:
        users = users.with_commit(name, 0)
    again = read_back(users)
    assert again == users and len(again.highest) == MAX_NAMED_USERS
    assert len(users.to_text()) < 45_000
    assert all(again.may_know(name) for name in names)
    assert [again.identifier_of(name) for name in names[-2:]] == [0, 0] and again.identifier_of(names[0]) is None
    strangers = sum(again.may_know(f"stranger-{number}") for number in range(10_000))
    assert strangers < 100, "fewer than 1 of 100"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "{}",
        '{"since":0}',
        '{"since":true}',
        '{"since":1,"highest":[]}',
        '{"since":1,"highest":{"a":"1"}}',
        '{"since":1,"others":"#"}',
        '{"since":1,"others":"AAAA"}',
        '{"since":1,"others":"eJwLAQAAQgBC"}',
        "[" * 100_000,
    ],
)
def test_what_cannot_be_read_is_not_there(text: str) -> None:
    assert CommitUsers.from_properties({PROPERTY: text}) is None
    assert CommitUsers.from_properties(None) is None


@pytest.mark.parametrize(("size", "is_read"), [(1, False), (8191, False), (8192, True), (8193, False), (10**6, False)])
def test_a_filter_has_its_one_size(size: int, is_read: bool) -> None:
    """A shorter one would end where a user is looked for, a longer one could grow without a bound."""
    packed = base64.b64encode(zlib.compress(bytes(size))).decode()
    users = CommitUsers.from_properties({PROPERTY: json.dumps({"since": 1, "others": packed})})
    assert (users is not None) == is_read
    if users is not None:
        assert not users.may_know("a") and users.with_commit("a", 1).may_know("a")
