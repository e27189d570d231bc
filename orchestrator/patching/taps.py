"""The call that a probe puts around an expression, and the statement where nothing is returned."""

from __future__ import annotations

import libcst as cst

from orchestrator.patching.weaving import needs_group

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
