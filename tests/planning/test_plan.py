"""A plan is made of bytes: equal hosts share an edit, and a patch is all or nothing."""

from __future__ import annotations

import hashlib

import pytest

from orchestrator.diagnostics import render
from orchestrator.errors import PatchError
from orchestrator.model.patch import (
    Anchor,
    Capture,
    Delete,
    Edit,
    Expectation,
    Insert,
    Patch,
    Probe,
    Replace,
)
from orchestrator.model.plan import Plan
from orchestrator.patching.making.splice import remove_insertions
from orchestrator.planning.plan import make_plan
from orchestrator.planning.table import probe_table
from orchestrator.planning.view import HostView
from tests.planning.making import (
    FILE,
    OTHER,
    RUNTIME,
    SOURCE,
    make_anchor,
    make_patch,
    make_view,
)


def _plan(patches: list[Patch], views: list[HostView]) -> Plan:
    return make_plan("s1", patches, views, RUNTIME)


def _error(patches: list[Patch], views: list[HostView]) -> PatchError:
    with pytest.raises(PatchError) as caught:
        _plan(patches, views)
    return caught.value


def test_hosts_with_equal_bytes_share_one_edit() -> None:
    """Each distinct content is edited once, for all the hosts that hold it."""
    changed = SOURCE.replace(b"import os", b"import sys")
    views = [make_view("a"), make_view("b", {FILE: changed}), make_view("c")]
    plan = _plan([make_patch("p", Probe())], views)
    files = [f for f in plan.files if f.file == FILE]
    assert [f.hosts for f in files] == [("a", "c"), ("b",)]
    assert files[0].before_sha256 == hashlib.sha256(SOURCE).hexdigest()
    for file, before in zip(files, (SOURCE, changed), strict=True):
        assert hashlib.sha256(file.after).hexdigest() == file.after_sha256
        assert remove_insertions(file.after, file.insertions) == before
    assert [s.line for s in plan.sites()] == [5, 5]


def test_the_runtime_stands_first_with_its_own_start_line() -> None:
    """Each host gets the runtime's source and one line that names session, host and directory."""
    plan = _plan([make_patch("p", Probe())], [make_view("a"), make_view("b")])
    assert [(f.file, f.hosts) for f in plan.files] == [
        ("sglang/_sgldbg.py", ("a",)),
        ("sglang/_sgldbg.py", ("b",)),
        (FILE, ("a", "b")),
    ]
    assert plan.files[0].before_sha256 is None
    assert plan.files[0].after == RUNTIME + (
        b'_start({"session": "s1", "host": "a", "dir": "/run/a"})\n'
    )
    assert [f.file for f in plan.of_host("b")] == ["sglang/_sgldbg.py", FILE]


def test_inserts_alone_need_no_runtime() -> None:
    """Without a probe nothing of ours is imported, and no table is needed."""
    plan = _plan([make_patch("p", Insert("x = 1"))], [make_view("a")])
    assert [f.file for f in plan.files] == [FILE]
    assert plan.table == {}


def test_the_diff_shows_exactly_the_change() -> None:
    """The diff is unified, with the numbers of the whole file."""
    source = b"# 1\n# 2\n# 3\n# 4\n" + SOURCE
    plan = _plan([make_patch("p", Insert("print(hidden)"))], [make_view("a", {FILE: source})])
    assert plan.files[0].diff == (
        "--- a/sglang/srt/model.py\n"
        "+++ b/sglang/srt/model.py\n"
        "@@ -7,4 +7,5 @@\n"
        " \n"
        " def forward(x):\n"
        "     hidden = g(x)\n"
        "+    print(hidden)\n"
        "     return hidden\n"
    )


def test_several_patches_on_one_file_are_one_edit_of_the_original() -> None:
    """The second patch does not see the first: both are found in the original bytes."""
    patches = [make_patch("p", Probe()), make_patch("q", Probe(), Insert("x = 1"))]
    plan = _plan(patches, [make_view("a")])
    assert [f.file for f in plan.files] == ["sglang/_sgldbg.py", FILE]
    assert [s.site for s in plan.sites()] == ["p.1", "q.1", "q.2"]
    assert plan.files[1].after.count(b"from sglang import _sgldbg") == 1


def test_patches_that_change_the_same_code_are_refused_with_both_places() -> None:
    """Neither is applied, and the hosts that hold this content are named."""
    place = make_anchor(position="replace")
    one = Patch("p", "A test.", "sglang", "", (Edit((place,), Replace("hidden = 1\n"), "p.1"),))
    other = Patch("q", "A test.", "sglang", "", (Edit((place,), Delete(), "q.1"),))
    error = _error([one, other], [make_view("a"), make_view("b")])
    assert error.state == "conflict"
    assert render(error) == (
        "error: `p.1` and `q.1` change the same code\n"
        " ::: sglang/srt/model.py on a, b\n"
        "note: `p.1` replaces line 5: `hidden = g(x)`\n"
        "note: `q.1` deletes line 5: `hidden = g(x)`\n"
        "hint: use one of them, or put both changes into one edit"
    )


def test_what_stands_already_is_told_and_left_alone() -> None:
    """A fix that some hosts have goes to the others; only where all have it is that an error."""
    fix = Edit((make_anchor(position="replace"),), Replace("hidden = g(x, 2)\n"), "p.1")
    more = Edit((make_anchor(file=OTHER),), Insert("more = 1\n"), "p.2")
    patch = Patch("p", "A test.", "sglang", "", (fix, more))
    fixed = SOURCE.replace(b"g(x)", b"g(x, 2)")
    added = SOURCE.replace(b"g(x)", b"g(x); more = 1")
    told = [
        f"the code that replaces stands already in line 5 of `{FILE}`",
        f"the code to insert already stands after line 5 of `{OTHER}`",
    ]
    views = [
        make_view("a", {FILE: SOURCE, OTHER: added}),
        make_view("b", {FILE: fixed, OTHER: SOURCE}),
        make_view("c", {FILE: fixed, OTHER: added}),
        make_view("d", {FILE: fixed, OTHER: added}),
    ]
    plan = _plan([patch], views)
    assert [(f.file, f.hosts) for f in plan.files] == [(FILE, ("a",)), (OTHER, ("b",))]
    assert plan.files[0].after == fixed
    assert plan.warnings[:2] == (
        f"on a, c, d, {told[1]}: it is left alone",
        f"on b, c, d, {told[0]}: it is left alone",
    )
    error = _error([patch], views[2:])
    assert [(e.state, e.message, e.hosts) for e in (error, *error.others)] == [
        ("already there", message, ("c", "d")) for message in told
    ]
    missing = make_view("e", {FILE: fixed, OTHER: b"pass\n"})
    error = _error([patch], [*views, missing])
    assert ("not found", ("e",)) in [(e.state, e.hosts) for e in (error, *error.others)]


def test_a_place_that_no_way_leads_to_does_not_keep_a_fix_from_standing() -> None:
    """Some hosts have it before each `return` that is reached: the others get it."""
    anchor = Anchor(FILE, "f", "return", None)
    patch = Patch("p", "A test.", "sglang", "", (Edit((anchor,), Insert("log(x)\n"), "p.1"),))
    bare = b"def f(x):\n    return 1\n    return 2\n"
    fixed = b"def f(x):\n    log(x)\n    return 1\n    return 2\n"
    plan = _plan([patch], [make_view("a", {FILE: bare}), make_view("b", {FILE: fixed})])
    assert [(f.file, f.hosts, f.after) for f in plan.files] == [(FILE, ("a",), fixed)]
    there = f"the code to insert already stands before line 3 of `{FILE}`"
    assert plan.warnings[0] == f"on b, {there}: it is left alone"


@pytest.mark.parametrize("code", ["pass\n", "return None\n"])
def test_code_that_names_nothing_stands_nowhere_already(code: str) -> None:
    """Else a typo in the anchor would look like a fix that is there."""
    source = SOURCE.replace(b"return hidden", b"pass; return None")
    place = make_anchor("hidden = typo(x)", position="replace")
    patch = Patch("p", "A test.", "sglang", "", (Edit((place,), Replace(code), "p.1"),))
    assert _error([patch], [make_view("a", {FILE: source})]).state == "not found"


@pytest.mark.parametrize("position", ["after", "replace"])
def test_what_stands_at_some_of_its_places_only_is_refused(position: str) -> None:
    """Whether the others are to be changed is not ours to guess."""
    new = "hidden = g(x, 2)\n"
    again = b"    hidden = g(x, 2)\n" if position == "replace" else b"    hidden = g(x); more = 1\n"
    source = SOURCE.replace(b"    return", again + b"    return")
    code = "hidden = g($$$)" if position == "replace" else "hidden = g(x)"
    place = make_anchor(code, position=position, occurrence=0, of=2)
    action = Replace(new) if position == "replace" else Insert("more = 1\n")
    other = Edit((make_anchor(file=OTHER),), Insert("more = 1\n"), "p.2")
    patch = Patch("p", "A test.", "sglang", "", (Edit((place,), action, "p.1"), other))
    error = _error([patch], [make_view("a", {FILE: source, OTHER: SOURCE})])
    assert (error.state, error.others) == ("already there", ())


def test_a_table_that_no_host_takes_is_refused_before_anything_is_sent() -> None:
    """It travels in one piece; found out only at the swap, the server would be down already."""
    long = tuple(Capture(f"c{n}", f"'{'x' * 9000}'") for n in range(110))
    error = _error([make_patch("p", Probe(long))], [make_view("a")])
    assert (error.state, error.message) == (
        "refused",
        "the probes of this session make a table of 970 KiB, and a host takes 960 KiB",
    )


def test_what_replaces_is_one_change_of_the_plan() -> None:
    """The plan says what went for what came, so that it can be taken back."""
    place = make_anchor(position="replace")
    edit = Edit((place,), Replace("hidden = g(x, 2)\n"), "p.1")
    plan = _plan([Patch("p", "A test.", "sglang", "", (edit,))], [make_view("a")])
    (file,) = plan.files
    (change,) = file.insertions
    assert (change.removed, change.data) == (b"", b", 2")
    assert remove_insertions(file.after, file.insertions) == SOURCE
    assert plan.table == {}


def test_alternatives_are_chosen_by_each_host() -> None:
    """Exactly one place fits each content, and the site says which."""
    newer = SOURCE.replace(b"g(x)", b"h(x)")
    edit = (make_anchor(), make_anchor("hidden = h(x)"))
    views = [make_view("a"), make_view("b", {FILE: newer})]
    plan = _plan([make_patch("p", edit)], views)
    assert [(f.hosts, f.sites[0].alternative) for f in plan.files if f.file == FILE] == [
        (("a",), 1),
        (("b",), 2),
    ]


def test_an_alternative_in_a_file_that_is_not_there_does_not_fit() -> None:
    """A file that moved between releases is named twice; the one that exists is patched."""
    edit = (make_anchor(file=OTHER), make_anchor())
    plan = _plan([make_patch("p", edit)], [make_view("a", {FILE: SOURCE, OTHER: None})])
    assert [f.file for f in plan.files] == ["sglang/_sgldbg.py", FILE]
    assert plan.sites()[0].alternative == 2


def test_two_alternatives_that_fit_are_an_error() -> None:
    """Which one was meant is not ours to guess."""
    error = _error([make_patch("p", (make_anchor(), make_anchor("$_ = g(x)")))], [make_view("a")])
    assert error.state == "ambiguous"
    assert render(error) == (
        "error: 2 of the 2 places of `p.1` fit, not one\n"
        " ::: sglang/srt/model.py on a\n"
        "note: place 1 fits `sglang/srt/model.py`, line 5\n"
        "note: place 2 fits `sglang/srt/model.py`, line 5\n"
        "hint: make each place say what only its releases have"
    )


def test_no_alternative_names_the_reason_of_each() -> None:
    """Every place says why it does not fit, with what would."""
    edit = (make_anchor("hidden = h(x)"), make_anchor(file=OTHER))
    error = _error([make_patch("p", edit)], [make_view("a"), make_view("b")])
    assert error.state == "not found"
    assert render(error) == (
        "error: none of the 2 places of `p.1` fits\n"
        " ::: sglang/srt/model.py on a, b\n"
        "note: place 1: the anchor was not found in `forward` of `sglang/srt/model.py`\n"
        "note: place 2: `sglang/srt/runner.py` does not exist\n"
        "hint: place 1: by its target alone it fits line 5: `after: hidden = $_`\n"
        "hint: place 1: the function itself is there: `at: start`"
    )


def test_a_place_that_may_not_be_used_says_more_than_one_that_is_missing() -> None:
    """With one place missing and one refused, the refusal is the error."""
    edit = (make_anchor("hidden = h(x)"), make_anchor("return hidden"))
    error = _error([make_patch("p", edit)], [make_view("a")])
    assert error.state == "refused"
    assert error.message == "nothing after the `return` in line 6 is ever reached"
    assert error.notes == (
        "place 1 does not fit: the anchor was not found in `forward` of `sglang/srt/model.py`",
    )


def test_all_problems_of_all_hosts_are_told() -> None:
    """One edit that fits does not help: the plan fails, naming each problem with its hosts."""
    other = SOURCE.replace(b"hidden", b"states")
    patches = [make_patch("p", Probe()), make_patch("q", (make_anchor("x = y"),))]
    error = _error(patches, [make_view("a"), make_view("b", {FILE: other})])
    assert error.message == "the anchor was not found in `forward` of `sglang/srt/model.py`"
    assert error.hosts == ("a", "b")
    (further,) = error.others
    assert further.message == error.message
    assert further.notes == ("nearest statement, line 5: `states = g(x)`",)
    assert further.hosts == ("b",)


def test_a_release_outside_the_range_is_refused() -> None:
    """The error names what was found on which hosts."""
    views = [make_view("a"), make_view("b", version="0.4.1"), make_view("c", version="0.4.1")]
    error = _error([make_patch("p", Probe(), versions=">=0.4.5,<0.6")], views)
    assert error.state == "out of range"
    assert render(error) == (
        "error: patch `p` is for sglang >=0.4.5,<0.6\n"
        " --> p.yaml:3:11\n"
        " ::: on b, c\n"
        "note: found 0.4.1 on b, c\n"
        "hint: if its code is the same there, widen `versions`"
    )


def test_a_release_that_is_not_known_is_told() -> None:
    """A checkout may have no version: the patch is tried, with a warning."""
    versions = {"a": None, "b": "main", "c": "0.5.6.dev1+g1"}
    views = [make_view(host, version=version) for host, version in versions.items()]
    plan = _plan([make_patch("p", Probe(), versions=">=0.4.5")], views)
    assert plan.warnings == (
        "the version of sglang on a is not known: `versions` of `p` was not checked",
        "the version of sglang on b is `main`, which cannot be compared: "
        "`versions` of `p` was not checked",
    )


def test_a_range_that_is_none() -> None:
    """A text that is no range is an error of the patch."""
    error = _error([make_patch("p", Probe(), versions="latest")], [make_view("a")])
    assert error.message == "`latest` is not a range of versions"


def test_a_runtime_that_already_stands_there() -> None:
    """Where another session left its runtime, nothing is planned."""
    view = make_view("a", {FILE: SOURCE, "sglang/_sgldbg.py": b""})
    error = _error([make_patch("p", Probe())], [view])
    assert error.state == "already there"
    assert error.message == "`sglang/_sgldbg.py` already exists"
    assert error.hosts == ("a",)


def test_the_table_says_what_the_runtime_needs() -> None:
    """Every key of the contract, from the probe and from its place."""
    probe = Probe(
        capture=(Capture("w", "x.shape[-1]"),),
        once_per=(Capture("x", "x"),),
        limit=3,
        every=2,
        rate_per_s=5.0,
        when=Capture("when", "x > 1"),
        emit_if=Capture("emit_if", "stats.w.nan"),
        ranks=(0, 1),
        expect=(Expectation("wide", "x == 1", "x > 0"),),
    )
    plan = _plan([make_patch("p", probe)], [make_view("a")])
    assert probe_table(plan, 2, "armed") == {
        "session": "s1",
        "generation": 2,
        "phase": "armed",
        "over": False,
        "sites": {
            "p.1": {
                "file": FILE,
                "line": 5,
                "class": None,
                "clear": True,
                "capture": [{"name": "w", "code": "x.shape[-1]"}],
                "once_per": ["x"],
                "max_keys": 64,
                "limit": 3,
                "every": 2,
                "rate_per_s": 5.0,
                "when": "x > 1",
                "emit_if": "stats.w.nan",
                "ranks": [0, 1],
                "expect": {"wide": {"that": "x == 1", "when": "x > 0"}},
            }
        },
    }
    assert probe_table(plan, 3, "start", over=True)["over"] is True


def test_the_table_of_a_host_names_its_own_lines() -> None:
    """Lines differ between contents; clearing locals is right only where it is right for all."""
    other = b"# one more line\n" + SOURCE.replace(b"return hidden", b"return locals()")
    plan = _plan([make_patch("p", Probe())], [make_view("a"), make_view("b", {FILE: other})])
    lines = {host: probe_table(plan, 1, "armed", host=host)["sites"]["p.1"] for host in ("a", "b")}
    assert [lines[h]["line"] for h in ("a", "b")] == [5, 6]
    assert [lines[h]["clear"] for h in ("a", "b")] == [False, False]


def test_warnings_of_edits_reach_the_plan_once() -> None:
    """What an edit warns of is told once, however many hosts it goes to."""
    probe = Probe(capture=(Capture("x", "x.cpu()"),))
    other = SOURCE.replace(b"import os", b"import sys")
    plan = _plan([make_patch("p", probe)], [make_view("a"), make_view("b", {FILE: other})])
    assert plan.warnings == (
        "`x.cpu()`: `.cpu()` waits for the device and copies the whole tensor",
    )
