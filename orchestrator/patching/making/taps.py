"""The call that a probe puts around an expression, and the statement where nothing is returned."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from orchestrator.patching.making.weaving import needs_group

RUNTIME = "_sgldbg"
# The runtime's word for a call around an expression that stood without parentheses.
NAMES = {False: "tap", True: "tap_group"}


def make_tap(site: str, node: cst.BaseExpression, *, shown: str) -> cst.Call:
    """A call that evaluates `node` once, in its turn, and passes its value on.

    `shown` is the code that gives the names of the place, evaluated only where the site is on. The
    weaver puts the expression in the place of `None`.
    """
    call = cst.parse_expression(tap_code(site, "None", shown, grouped=needs_group(node)))
    assert isinstance(call, cst.Call)
    return call


def tap_code(site: str, value: str, shown: str, *, grouped: bool = False) -> str:
    """The code of a call around `value`."""
    off = f'{RUNTIME}.off("{site}")'
    return f'{RUNTIME}.{NAMES[grouped]}("{site}", {value}, None if {off} else {shown})'


def is_tap_of(node: cst.CSTNode, site: str) -> bool:
    """Whether a call of this site stands around an expression of a statement itself."""
    return any(True for _ in _calls(node, site, tuple(NAMES.values())))


def names_shown(node: cst.CSTNode, site: str) -> tuple[str, ...] | None:
    """The names that the site's code gives one by one; `None` where it gives all of them."""
    for call in _calls(node, site, (*NAMES.values(), "hit")):
        shown = call.args[-1].value
        if isinstance(shown, cst.IfExp):
            shown = shown.orelse
        if isinstance(shown, cst.Dict):
            values = [getattr(element, "value", None) for element in shown.elements]
            return tuple(v.value for v in values if isinstance(v, cst.Name))
    return None


def _calls(node: cst.CSTNode, site: str, names: tuple[str, ...]) -> Iterator[cst.Call]:
    waiting: list[cst.CSTNode] = [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, cst.Call) and _is_call(current, site, names):
            yield current
        waiting += (c for c in current.children if not isinstance(c, cst.BaseSuite))


def _is_call(node: cst.Call, site: str, names: tuple[str, ...]) -> bool:
    func = node.func
    if not isinstance(func, cst.Attribute) or not isinstance(func.value, cst.Name):
        return False
    first = node.args[0].value if node.args else None
    is_site = isinstance(first, cst.SimpleString) and first.value == f'"{site}"'
    return is_site and func.value.value == RUNTIME and func.attr.value in names
