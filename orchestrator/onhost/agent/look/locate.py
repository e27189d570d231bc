"""Asking an install's own interpreter where the package lies that a server imports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ..proc import commandline
from ..proc.describe import describe
from ..refusal import Refusal
from .interpreter import CHECKER, LOCATOR

# Less than the controller waits, so that it hears which interpreter does not answer.
_TIMEOUT_S = 50.0
_TAIL_LINES = 20
# They change what the interpreter does around the locator, not what a server imports.
_DROPPED = ("PYTHONINSPECT", "PYTHONSTARTUP", "PYTHONVERBOSE", "PYTHONPROFILEIMPORTTIME")


def locate(
    python: Optional[str],
    package: str,
    pid: Optional[int],
    env: Mapping[str, str],
    cwd: Optional[str],
    program: Optional[str] = None,
    known: Optional[str] = None,
) -> Dict[str, Any]:
    """Where `package` lies for this interpreter in these surroundings, without importing it.

    With `pid`, interpreter, options, environment, directory and user are those of that process,
    as far as they are not given. `other` of the answer is `None`, or what the server's own
    interpreter says where that is another one than `python` and finds the package elsewhere; it is
    that of the process, else `program`. With `known`, `is_known` says whether it is that very
    directory. Codes `gone`, `no-interpreter`, `not-installed`.
    """
    described = {} if pid is None else describe(pid)
    environ = dict(described.get("environ") or os.environ)
    environ.update(env)
    for name in _DROPPED:
        environ.pop(name, None)
    folder = cwd or described.get("cwd") or "/"
    own = described.get("python") if described.get("intact") else program
    word = python or described.get("python") or "python3"
    answer = _ask(word, package, environ, folder, described)
    answer["other"] = None
    if known is not None:
        answer["is_known"] = _is_same(known, answer["package_dir"])
    agree = not own or commandline.find_executable(own, environ, folder) == answer["python"]
    # Anything else, such as `docker`, is not to be run with an interpreter's words.
    if own and not agree and commandline.is_interpreter(own):
        answer["other"] = _find_other(own, package, environ, folder, described, answer)
    return answer


def _is_same(known: str, package_dir: str) -> bool:
    try:
        return os.path.samefile(known, package_dir)
    except OSError:
        return False


def _find_other(
    own: str,
    package: str,
    environ: Mapping[str, str],
    folder: str,
    described: Mapping[str, Any],
    answer: Mapping[str, Any],
) -> Optional[Dict[str, Any]]:
    """What the server's own interpreter says, if that is another copy of the package."""
    try:
        other = _ask(own, package, environ, folder, described)
    except Refusal:
        return None  # what `python` says is all that there is
    same = os.path.samefile(other["package_dir"], answer["package_dir"])
    return None if same else {name: other[name] for name in ("python", "package_dir")}


def _ask(
    word: str,
    package: str,
    environ: Mapping[str, str],
    folder: str,
    described: Mapping[str, Any],
) -> Dict[str, Any]:
    executable = commandline.find_executable(word, environ, folder)
    if executable is None:
        raise Refusal("no-interpreter", "there is no interpreter `%s`" % word, python=word, tail=[])
    options, first = _imitate(described, folder)
    mark = uuid.uuid4().hex
    # -B: looking must not write a .pyc of an editable install's finder.
    command = [word, *options, "-B", "-c", LOCATOR, mark, package, first]
    done = _run(executable, command, environ, folder, b"", described)
    return _read_answer(executable, package, mark, done)


def check_code(
    python: str, files: Sequence[Mapping[str, Any]], raw: bytes
) -> List[Dict[str, Optional[str]]]:
    """Compile each file's bytes with that interpreter, in memory; the error of each, or `None`."""
    executable = commandline.find_executable(python, os.environ, "/")
    if executable is None:
        message = "there is no interpreter `%s`" % python
        raise Refusal("no-interpreter", message, python=python, tail=[])
    mark = uuid.uuid4().hex
    head = json.dumps([[item["file"], item["size"]] for item in files]).encode() + b"\n"
    command = [python, "-I", "-S", "-B", "-c", CHECKER, mark]
    done = _run(executable, command, dict(os.environ), "/", head + raw, {})
    errors = _find_marked(done, mark)
    if not isinstance(errors, list) or len(errors) != len(files):
        raise _failed(executable, done)
    return [{"file": item["file"], "error": error} for item, error in zip(files, errors)]


def _imitate(described: Mapping[str, Any], cwd: str) -> Any:
    """The options that the server's interpreter got, and what stood first on its `sys.path`."""
    program = commandline.parse_program(described.get("argv") or [])
    if program is None:
        return [], cwd
    if program.kind == "script":
        path = os.path.realpath(os.path.join(cwd, program.name))
        return program.options, os.path.dirname(path)
    return program.options, cwd


class _Done:
    """What an interpreter said; `code` is `None` where its time ran out."""

    def __init__(self, code: Optional[int], stdout: bytes, stderr: bytes) -> None:
        self.code = code
        self.stdout = stdout
        self.tail = stderr.decode("utf-8", "replace").splitlines()[-_TAIL_LINES:]


def _run(
    executable: str,
    command: List[str],
    environ: Mapping[str, str],
    cwd: str,
    data: bytes,
    described: Mapping[str, Any],
) -> _Done:
    try:
        child = subprocess.Popen(
            command,
            executable=executable,
            env=dict(environ),
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_demotion(described),
        )
    except (OSError, subprocess.SubprocessError) as error:
        message = "`%s` does not run: %s" % (executable, error)
        raise Refusal("no-interpreter", message, python=executable, tail=[]) from None
    with child:
        try:
            stdout, stderr = child.communicate(data, timeout=_TIMEOUT_S)
            return _Done(child.returncode, stdout, stderr)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            stdout, stderr = child.communicate()
            return _Done(None, stdout, stderr)


def _demotion(described: Mapping[str, Any]) -> Optional[Callable[[], None]]:
    """Root looks with the eyes of the server's user: that user's `sitecustomize` would run."""
    uid, gid = described.get("uid"), described.get("gid")
    if os.geteuid() != 0 or uid is None or gid is None or uid == 0:
        return None
    groups = described.get("groups") or []

    def become() -> None:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)

    return become


def _find_marked(done: _Done, mark: str) -> Any:
    """The JSON behind the mark; what else was printed is `sitecustomize`'s or a login banner."""
    for line in reversed(done.stdout.decode("utf-8", "replace").splitlines()):
        _, found, text = line.partition(mark)
        if found:
            return json.loads(text)
    return None


def _read_answer(python: str, package: str, mark: str, done: _Done) -> Dict[str, Any]:
    answer = _find_marked(done, mark)
    if not isinstance(answer, dict):
        raise _failed(python, done)
    if "old" in answer:
        message = "`%s` is Python %s; 3.8 or newer is needed" % (python, answer["old"])
        raise Refusal("no-interpreter", message, python=python, tail=[])
    if "missing" in answer:
        message = "`%s` finds no package `%s`: %s" % (python, package, answer["missing"])
        raise Refusal("not-installed", message, python=python, tail=done.tail)
    return dict(answer, python=python)


def _failed(python: str, done: _Done) -> Refusal:
    if done.code is None:
        how = "did not answer within %g s" % _TIMEOUT_S
    elif done.code < 0:
        how = "was ended by signal %d" % -done.code
    else:
        how = "ended with exit status %d and no answer: is it a Python?" % done.code
    return Refusal("no-interpreter", "`%s` %s" % (python, how), python=python, tail=done.tail)
