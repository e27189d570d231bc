"""The two programs that run in an install's own interpreter, which may be an old one.

They are texts, not modules: nothing of ours is put on the path of that interpreter. Both print
one line, a mark that the caller chose and JSON.
"""

from __future__ import annotations

# Arguments: mark, package, the directory that stands first on the server's sys.path. Parses under
# Python 2 as well, so that an interpreter that is too old can say so itself.
LOCATOR = r"""
import json, os, sys

def find_dist(name, package_dir):
    from importlib import metadata
    best = None
    for dist in metadata.distributions(name=name):
        path = getattr(dist, "_path", None)
        found = [dist, str(path) if path is not None else None, False]
        try:
            near = os.path.samefile(str(dist.locate_file(name)), package_dir)
        except OSError:
            near = False
        try:
            link = json.loads(dist.read_text("direct_url.json") or "{}")
        except ValueError:
            link = {}
        folder, base = os.path.split(str(path))
        installed = os.path.basename(folder) in ("site-packages", "dist-packages")
        develop = base.endswith(".egg-info") and not installed
        found[2] = bool(link.get("dir_info", {}).get("editable")) or develop or not near
        if near:
            return found
        best = best or found
    return best or [None, None, False]

def find_hidden(name, package_dir):
    found = []
    for folder in sys.path:
        place = os.path.join(os.path.abspath(folder), name)
        if not os.path.isfile(os.path.join(place, "__init__.py")):
            continue
        if not any(os.path.samefile(place, known) for known in found + [package_dir]):
            found.append(place)
    return found

def find(name, first):
    if sys.version_info < (3, 8):
        return {"old": ".".join(str(part) for part in sys.version_info[:3])}
    import importlib.util, platform
    if sys.path and sys.path[0] == "":
        sys.path[0] = first
    try:
        spec = importlib.util.find_spec(name)
    except Exception as error:
        return {"missing": "%s: %s" % (type(error).__name__, error)}
    if spec is None:
        return {"missing": "it is not on its path"}
    if spec.origin is None or spec.submodule_search_locations is None:
        places = list(spec.submodule_search_locations or [])
        if not places:
            return {"missing": "it is no package but %s" % spec.origin}
        return {"missing": "%s has no __init__.py" % ", ".join(places)}
    package_dir = os.path.dirname(os.path.abspath(spec.origin))
    if not os.path.isdir(package_dir):
        return {"missing": "%s is no directory" % package_dir}
    dist, dist_info, editable = find_dist(name, package_dir)
    return {
        "version": platform.python_version(),
        "root": os.path.dirname(package_dir),
        "package_dir": package_dir,
        "package_version": dist.version if dist is not None else None,
        "dist_info": dist_info and os.path.abspath(dist_info),
        "pycache_prefix": sys.pycache_prefix,
        "tag": sys.implementation.cache_tag,
        "editable": editable,
        "hidden": find_hidden(name, package_dir),
    }

mark, name, first = sys.argv[1:]
sys.stdout.write("\n" + mark + json.dumps(find(name, first)) + "\n")
"""

# Argument: mark. Stdin: a line of JSON, [[file, size], ...], then the bytes of all files.
CHECKER = r"""
import json, sys, warnings

def check(name, data):
    try:
        compile(data, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        where = " (line %d)" % error.lineno if error.lineno else ""
        return "%s: %s%s" % (type(error).__name__, error.msg, where)
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return "%s: %s" % (type(error).__name__, error)
    return None

warnings.simplefilter("ignore")
source = sys.stdin.buffer
errors = [check(name, source.read(size)) for name, size in json.loads(source.readline())]
sys.stdout.write("\n" + sys.argv[1] + json.dumps(errors) + "\n")
"""
