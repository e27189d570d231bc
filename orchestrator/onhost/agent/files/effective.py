"""Whether the code that an interpreter would run is the patched one, asked of its import system."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Dict, List, Optional

from ..refusal import Refusal

# Less than the controller waits, so that it hears which interpreter does not answer.
_TIMEOUT_S = 50.0
# Runs in the install's interpreter, Python 3.8 or newer. Only the top-level package is looked up
# by name (an editable install may answer through a hook); a dotted name would import its parents.
# `get_code` is what an import would run: it alone sees an unchecked `.pyc` or a shadowed install.
_PROGRAM = r"""
import importlib.machinery, importlib.util, json, sys
sys.dont_write_bytecode = True

def texts(code):
    for name in code.co_names:
        yield name
    for value in code.co_consts:
        if isinstance(value, str):
            yield value
        elif hasattr(value, "co_consts"):
            yield from texts(value)

def find(file):
    parts = file[:-3].split("/")
    if parts[-1] == "__init__":
        parts.pop()
    spec = importlib.util.find_spec(parts[0])
    for count in range(1, len(parts)):
        if spec is None or spec.submodule_search_locations is None:
            return None
        # By its last name only: the path of a namespace package (sglang/srt is one) asks for its
        # parent in sys.modules as soon as it is read, and nothing here is imported.
        folders = list(spec.submodule_search_locations)
        spec = importlib.machinery.PathFinder.find_spec(parts[count], folders)
    return spec

def judge(file, needle):
    spec = find(file)
    if spec is None or spec.loader is None:
        return False, "the import system does not find it"
    code = spec.loader.get_code(spec.name)
    if code is None:
        return False, "%s has no Python code" % spec.origin
    if not needle:
        source = spec.loader.get_data(spec.origin)
        same = code == spec.loader.source_to_code(source, spec.origin)
        return same, "" if same else "%s is imported from other bytecode" % spec.origin
    if any(needle in text for text in texts(code)):
        return True, ""
    return False, "%s is imported without it" % spec.origin

found = []
for item in json.load(sys.stdin):
    try:
        there, why = judge(item["file"], item["needle"])
    except Exception as error:
        there, why = False, "%s: %s" % (type(error).__name__, error)
    found.append({"file": item["file"], "found": there, "why": why})
print("\n" + json.dumps(found))
"""


def find_needles(
    python: str,
    needles: List[Dict[str, str]],
    environ: Optional[Dict[str, str]] = None,
    cwd: Optional[str] = None,
) -> List[Dict[str, Any]]:
    """Ask `python`, in the given environment and directory, about each file; writes nothing.

    A needle is a text that the code must hold; an empty one asks for the code of the file as it is.
    """
    variables = dict(os.environ if environ is None else environ, PYTHONDONTWRITEBYTECODE="1")
    try:
        done = subprocess.run(
            [python, "-c", _PROGRAM],
            input=json.dumps(needles).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            cwd=cwd or "/",
            timeout=_TIMEOUT_S,
        )
    except OSError as error:
        raise Refusal("no-interpreter", "cannot run `%s`: %s" % (python, error.strerror)) from None
    except subprocess.TimeoutExpired:
        message = "`%s` did not answer in %d s" % (python, _TIMEOUT_S)
        raise Refusal("no-interpreter", message) from None
    # What the interpreter's start-up files print comes before our line.
    line = done.stdout.decode("utf-8", "replace").rstrip("\n").rpartition("\n")[2]
    try:
        found: List[Dict[str, Any]] = json.loads(line)
    except ValueError:
        tail = done.stderr.decode("utf-8", "replace").splitlines()[-5:]
        message = "`%s` could not look at the code" % python
        raise Refusal("no-interpreter", message, tail=tail) from None
    return found
