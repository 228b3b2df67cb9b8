"""Changes that resemble common mistakes, beyond mutmut's. Each function is an operator: it yields changed copies of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import libcst as cst
import libcst.matchers as m

OTHERS = {
    **{"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"},
    **{'"left"': '"right"', '"right"': '"left"'},
}
"""Names and texts that are easily confused."""
JOINING = m.OneOf(*map(m.Name, ("chain", "union", "update", "concat_tables", "concatenate")))
SEVERAL = m.List() | m.Tuple() | m.Set()
CHANGES = m.AugAssign() | m.AssignTarget()


def left_out_statement(line: cst.SimpleStatementLine) -> Iterator[cst.CSTNode]:
    """A call for its effect, an error or a change of a variable is forgotten; so is what makes a cache forget."""
    stored = m.AssignTarget(m.Attribute() | m.Subscript())
    effect = m.Expr(m.Call()) | m.AugAssign() | m.Raise() | m.Del() | m.Assign(targets=[stored])
    if len(line.body) == 1 and m.matches(line.body[0], effect):
        yield line.with_changes(body=[cst.Pass()])


def reversed_check(node: cst.If | cst.While) -> Iterator[cst.CSTNode]:
    condition = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    yield node.with_changes(test=cst.UnaryOperation(cst.Not(), condition))


def dropped_condition(node: cst.BooleanOperation) -> Iterator[cst.CSTNode]:
    yield from _sides(node)


def dropped_operand(node: cst.BinaryOperation) -> Iterator[cst.CSTNode]:
    """A mask, a source of a union, or the offset of a position is forgotten."""
    if m.matches(node.operator, m.BitAnd() | m.BitOr() | m.Add() | m.Subtract()) and not m.findall(node, m.SimpleString()):
        yield from _sides(node)


def _sides(node: cst.BooleanOperation | cst.BinaryOperation) -> Iterator[cst.CSTNode]:
    for side in (node.left, node.right):
        yield side.with_changes(lpar=[*side.lpar, cst.LeftParen()], rpar=[*side.rpar, cst.RightParen()])


def dropped_filter(node: cst.CompFor) -> Iterator[cst.CSTNode]:
    """The `if` of a comprehension is forgotten."""
    for position in range(len(node.ifs)):
        yield node.with_changes(ifs=_without(node.ifs, position))


def only_one_turn(node: cst.For | cst.While) -> Iterator[cst.CSTNode]:
    """Only the first item is handled; `if` instead of `while`."""
    if isinstance(node.body, cst.IndentedBlock):
        end = cst.SimpleStatementLine([cst.Break()])
        yield node.with_changes(body=node.body.with_changes(body=[*node.body.body, end]))


def reset_in_each_turn(block: cst.IndentedBlock) -> Iterator[cst.CSTNode]:
    """What a loop carries from turn to turn, such as a counter, has its first value in each."""
    for place, loop in enumerate(block.body):
        if not isinstance(loop, cst.For | cst.While):
            continue
        changed = {name for change in m.findall(loop.body, CHANGES) if (name := _name(change))}
        for start in block.body[:place]:
            if m.matches(start, m.SimpleStatementLine([m.Assign([m.AssignTarget(m.Name())]) | m.AnnAssign(m.Name())])):
                target = m.findall(start, m.AssignTarget(m.Name())) or m.findall(start, m.AnnAssign(m.Name()))
                if _name(target[0]) in changed:
                    turn = loop.body.with_changes(body=[start, *loop.body.body])
                    yield block.with_changes(body=_with(block.body, place, loop.with_changes(body=turn)))


def _name(change: cst.CSTNode) -> str:
    target = getattr(change, "target", None)
    return target.value if isinstance(target, cst.Name) else ""


def left_out_source(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """One of several sources, names or kinds is forgotten."""
    if isinstance(node, cst.Call):
        function = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
        starred = [place for place, arg in enumerate(node.args) if arg.star == "*" or m.matches(function, JOINING)]
        if len(starred) > 1:
            for place in starred:
                yield node.with_changes(args=_without(node.args, place))
    elif isinstance(node, cst.List | cst.Tuple | cst.Set):
        starred = [place for place, element in enumerate(node.elements) if isinstance(element, cst.StarredElement)]
        for place in starred if len(node.elements) > 1 else ():
            yield node.with_changes(elements=_without(node.elements, place))


def left_out_alternative(node: cst.For | cst.CompFor | cst.ComparisonTarget) -> Iterator[cst.CSTNode]:
    """One item of `in (a, b)` is forgotten."""
    name = "comparator" if isinstance(node, cst.ComparisonTarget) else "iter"
    items = getattr(node, name)
    if m.matches(items, SEVERAL) and len(items.elements) > 1:
        for place in range(len(items.elements)):
            yield node.with_changes(**{name: _shorter(items, place)})


def _shorter(items: Any, place: int) -> Any:
    """Without one of them; the comma that makes a tuple of a single item stays."""
    rest = _without(items.elements, place)
    return items.with_changes(elements=[rest[0].with_changes(comma=cst.Comma())] if len(rest) == 1 else rest)


def one_less(node: cst.Integer) -> Iterator[cst.CSTNode]:
    """A number is off by one, in the other direction than mutmut's."""
    if node.evaluated_value > 0:
        yield node.with_changes(value=repr(node.evaluated_value - 1))


def confused(node: cst.Name | cst.SimpleString | cst.Attribute | cst.Call) -> Iterator[cst.CSTNode]:
    """Minimum and maximum, any and all, or left and right."""
    if isinstance(node, cst.SimpleString) and node.value in OTHERS:
        yield node.with_changes(value=OTHERS[node.value])
    elif isinstance(node, cst.Call):
        name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
        if isinstance(name, cst.Name) and name.value in OTHERS:
            other = cst.Name(OTHERS[name.value])
            yield node.with_changes(func=node.func.with_changes(attr=other) if name is not node.func else other)


def first_of_them(node: cst.Call) -> Iterator[cst.CSTNode]:
    """The first one is taken for the greatest or the least."""
    if m.matches(node.func, m.Name("max") | m.Name("min")) and node.args and not node.args[0].star:
        values = [arg for arg in node.args if arg.keyword is None]
        default = [cst.Arg(arg.value) for arg in node.args if arg.keyword is not None and arg.keyword.value == "default"]
        if len(values) == 1:
            first = cst.Arg(cst.Call(cst.Name("iter"), [cst.Arg(values[0].value)]))
            yield cst.Call(cst.Name("next"), [first, *default])
        else:
            for value in values:
                yield value.value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def other_end(node: cst.Subscript) -> Iterator[cst.CSTNode]:
    """The first one instead of the last, or vice versa."""
    last = m.UnaryOperation(m.Minus(), m.Integer("1"))
    if m.matches(node, m.Subscript(slice=[m.SubscriptElement(m.Index(m.Integer("0")))])):
        yield node.with_changes(slice=[cst.SubscriptElement(cst.Index(cst.UnaryOperation(cst.Minus(), cst.Integer("1"))))])
    elif m.matches(node, m.Subscript(slice=[m.SubscriptElement(m.Index(last))])):
        yield node.with_changes(slice=[cst.SubscriptElement(cst.Index(cst.Integer("0")))])


def not_sorted(node: cst.Call) -> Iterator[cst.CSTNode]:
    """Something is not sorted, or not reversed."""
    if m.matches(node.func, m.Name("sorted") | m.Name("reversed")):
        yield node.with_changes(func=cst.Name("list"), args=node.args[:1])


def unexpected_error(node: cst.ExceptHandler) -> Iterator[cst.CSTNode]:
    """One type of exception is not expected."""
    if isinstance(node.type, cst.Tuple) and len(node.type.elements) > 1:
        for position in range(len(node.type.elements)):
            yield node.with_changes(type=_shorter(node.type, position))


def _without(items: Sequence[Any], place: int) -> list[Any]:
    rest = [*items[:place], *items[place + 1 :]]
    if rest and hasattr(rest[-1], "comma"):
        rest[-1] = rest[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return rest


def _with(items: Sequence[Any], place: int, item: Any) -> list[Any]:
    return [*items[:place], item, *items[place + 1 :]]


Operator = Callable[[Any], Iterable[cst.CSTNode]]
SLIPS: tuple[tuple[type, Operator], ...] = (
    (cst.SimpleStatementLine, left_out_statement),
    (cst.If, reversed_check),
    (cst.While, reversed_check),
    (cst.BooleanOperation, dropped_condition),
    (cst.BinaryOperation, dropped_operand),
    (cst.CompFor, dropped_filter),
    (cst.For, only_one_turn),
    (cst.While, only_one_turn),
    (cst.IndentedBlock, reset_in_each_turn),
    (cst.Call, left_out_source),
    (cst.List, left_out_source),
    (cst.Tuple, left_out_source),
    (cst.Set, left_out_source),
    (cst.For, left_out_alternative),
    (cst.CompFor, left_out_alternative),
    (cst.ComparisonTarget, left_out_alternative),
    (cst.Integer, one_less),
    (cst.SimpleString, confused),
    (cst.Call, confused),
    (cst.Call, first_of_them),
    (cst.Subscript, other_end),
    (cst.Call, not_sorted),
    (cst.ExceptHandler, unexpected_error),
)
