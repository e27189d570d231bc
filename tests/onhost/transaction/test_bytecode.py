"""What is imported after a swap is the planned text, after a revert the original: by importing."""

from __future__ import annotations

import errno
import os
import py_compile
import subprocess
import sys

import pytest

from orchestrator.onhost.agent.refusal import Refusal
from tests.onhost.transaction.place import op, stage

LAYERS = "sglang/srt/layers.py"
SAME_SIZE = {LAYERS: b"X = 'patched!'\n"}


def imported(place, *options, **environ):
    """The value that a fresh interpreter gets."""
    done = subprocess.run(
        [sys.executable, *options, "-c", "import sglang.srt.layers as m; print(m.X)"],
        cwd=place.root,
        env={"PATH": os.environ["PATH"], **environ},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return done.stdout.strip()


def session(place, context, while_patched):
    """Stage, swap, do something, revert, finish."""
    op(context, "swap")
    while_patched()
    value = op(context, "revert")
    assert value["verified"], value
    op(context, "finish")


def test_equal_size_in_the_same_second(place):
    """A stale `.pyc` cannot hide planned bytes of the same size, made in the same second."""
    os.utime(place.root / LAYERS)
    assert imported(place) == "original"
    place.before = place.tree()
    context = place.begin()
    stage(place, context, edits=SAME_SIZE)

    def look():
        assert imported(place) == "patched!"
        assert imported(place, "-O") == "patched!"

    session(place, context, look)
    assert place.changes() == []
    assert imported(place) == "original"


def test_an_unchecked_pyc(place):
    """A `.pyc` that ignores its source is set aside, and put back as it was."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(place.root / LAYERS), invalidation_mode=mode, doraise=True)
    place.before = place.tree()
    context = place.begin()
    stage(place, context, edits=SAME_SIZE)
    session(place, context, lambda: imported(place) == "patched!" or pytest.fail("stale"))
    assert place.changes() == []
    assert imported(place) == "original"


def test_a_cache_elsewhere(place):
    """PYTHONPYCACHEPREFIX: compiled files below the prefix are treated the same."""
    prefix = str(place.top / "prefix")
    assert imported(place, PYTHONPYCACHEPREFIX=prefix) == "original"
    (cached,) = (place.top / "prefix").rglob("layers.*.pyc")
    before = cached.read_bytes(), cached.stat().st_ino, cached.parent.stat().st_mtime_ns
    context = place.begin()
    args, raw = place.stage_args(edits=SAME_SIZE)
    op(context, "stage", raw, **{**args, "pycache_prefix": prefix})

    def look():
        assert not cached.exists()
        assert imported(place, PYTHONPYCACHEPREFIX=prefix) == "patched!"

    session(place, context, look)
    assert place.changes() == []
    after = cached.read_bytes(), cached.stat().st_ino, cached.parent.stat().st_mtime_ns
    assert after == before


def test_a_cache_directory_that_was_not_there(place):
    """A `__pycache__` that the debug life made is gone afterwards, if nothing else is in it."""
    subprocess.run(["rm", "-r", place.root / "sglang/srt/__pycache__"], check=True)
    os.utime(place.root / "sglang/srt", ns=(10**18, 10**18))
    place.before = place.tree()
    context = place.begin()
    stage(place, context, edits=SAME_SIZE, runtime=False)

    def look():
        py_compile.compile(str(place.root / LAYERS), doraise=True)

    session(place, context, look)
    assert place.changes() == []


def test_a_half_written_pyc_of_a_killed_server(place):
    """The name with a number that an interpreter leaves when it is killed goes as well."""
    context = place.begin()
    stage(place, context, edits=SAME_SIZE)
    cache = place.root / "sglang/srt/__pycache__"
    session(place, context, lambda: (cache / "layers.cpython-311.pyc.1234").write_bytes(b"half"))
    assert place.changes() == []


def test_a_swap_that_is_tried_again(place, monkeypatch):
    """A swap that failed between compiled files and source may be repeated, and loses neither."""
    context = place.begin()
    stage(place, context)

    def broken(planned):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("orchestrator.onhost.agent.files.files.put_in", broken)
        with pytest.raises(OSError, match="Input/output error"):
            op(context, "swap")
    assert imported(place) == "original"  # and compiles what was set aside anew
    session(place, context, lambda: None)
    assert place.changes() == []


def test_no_bytecode_is_written(place):
    """PYTHONDONTWRITEBYTECODE: a cache of before is not read either, and none is made."""
    context = place.begin()
    stage(place, context, edits=SAME_SIZE)

    def look():
        before = place.tree()
        assert imported(place, PYTHONDONTWRITEBYTECODE="1") == "patched!"
        assert place.tree() == before

    session(place, context, look)
    assert place.changes() == []
    assert imported(place, PYTHONDONTWRITEBYTECODE="1") == "original"


def test_a_module_without_source(place):
    """Compiled code alone cannot be patched: refused, and nothing of ours is left."""
    source = place.root / LAYERS
    context = place.begin()
    args, raw = place.stage_args(edits=SAME_SIZE)
    py_compile.compile(str(source), cfile=str(source) + "c", doraise=True)
    source.unlink()
    assert imported(place) == "original"
    place.before = place.tree()
    with pytest.raises(Refusal) as refused:
        op(context, "stage", raw, **args)
    assert (refused.value.code, refused.value.message) == (
        "unsupported",
        f"`{source}` has no source, only compiled code stands there",
    )
    assert place.changes() == []


def test_other_modules_are_left_alone(place):
    """Files with a name like that of a compiled one, but of another module or kind, stay."""
    cache = place.root / "sglang/srt/__pycache__"
    for name in ("layers_v2.cpython-311.pyc", "layers.cpython-311.txt"):
        (cache / name).write_bytes(b"other")
    place.before = place.tree()
    context = place.begin()
    stage(place, context, edits=SAME_SIZE)
    session(place, context, lambda: imported(place))
    assert place.changes() == []


def test_the_effective_code(place):
    """`effective` sees what would run: not the text of a swap that an unchecked `.pyc` hides."""
    context = place.begin()
    stage(place, context, edits=SAME_SIZE)
    needles = [
        {"file": LAYERS, "needle": "patched!"},
        {"file": "sglang/srt/models/llama.py", "needle": "WIDTH"},
        {"file": "sglang/srt/absent.py", "needle": "x"},
    ]
    op(context, "describe-server", pid=None, argv=["x"], env={}, cwd=str(place.root))

    def ask():
        value = op(context, "effective", python=sys.executable, needles=needles)
        return [(item["found"], item["why"]) for item in value["files"]]

    absent = (False, "the import system does not find it")
    hidden = (False, f"{place.root / LAYERS} is imported without it")
    assert ask() == [hidden, (True, ""), absent]
    op(context, "swap")
    before = place.tree()
    assert ask() == [(True, ""), (True, ""), absent]
    assert place.tree() == before
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    stale = place.root / "stale.py"
    stale.write_bytes(b"X = 'stale'\n")
    cached = place.root / "sglang/srt/__pycache__/layers.cpython-311.pyc"
    py_compile.compile(str(stale), cfile=str(cached), invalidation_mode=mode, doraise=True)
    assert ask()[0] == hidden
    stale.unlink()
    op(context, "revert")
    op(context, "finish")
