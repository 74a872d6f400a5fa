"""``minagent doctor``: what is installed, set and writable.  Names of keys, never their values."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any, Dict, List, Mapping, Optional

from .exits import DONE, FAILED
from .loading import default_model
from .terminal import Terminal

DEPENDENCIES = ("requests", "urllib3", "jsonschema")

Json = Dict[str, Any]


def doctor(args: Any, terminal: Terminal) -> int:
    """Print what was found; returns the exit code, 1 if something must be mended."""
    found = examined(os.environ, args.runs)
    if args.json:
        terminal.write_json(found)
    else:
        for line in lines(found):
            terminal.write(line + "\n")
    return FAILED if found["problems"] else DONE


def examined(environ: Mapping[str, str], runs: Optional[str]) -> Json:
    """What there is, as JSON."""
    from .. import __version__

    model, variable = default_model(environ)
    found: Json = {"minagent": __version__, "python": platform.python_version(),
                   "implementation": platform.python_implementation(), "platform": platform.platform(),
                   "encoding": sys.getfilesystemencoding()}
    found.update({name: version_of(name) for name in DEPENDENCIES})
    found.update(keys=keys_of(environ), default_model=model, default_model_because=variable, local=local(environ))
    if runs is not None:
        found["runs"] = {"folder": os.path.abspath(runs), "problem": store_problem(runs)}
    found["problems"] = problems(found)
    return found


def version_of(distribution: str) -> Optional[str]:
    """The installed version, or None."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def keys_of(environ: Mapping[str, str]) -> List[str]:
    """Names of the provider keys that are set."""
    from ..llm.resolve import SERVERS

    known = sorted({server.key_variable for server in SERVERS.values()})
    return [variable for variable in known if environ.get(variable)]


def local(environ: Mapping[str, str]) -> Json:
    """The parts of the extra `local`, and whether a server of one's own is named instead."""
    from ..llm.local import MODEL_MODULE, SERVER_MODULE, URL_VARIABLE

    return {"server": version_of(SERVER_MODULE.replace("_", "-")),
            "weights": version_of(MODEL_MODULE.replace("_", "-")), "url_is_set": bool(environ.get(URL_VARIABLE))}


def store_problem(folder: str) -> Optional[str]:
    """Why runs cannot be kept in a folder, or None; leaves no trace in it."""
    path = os.path.abspath(folder)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if not os.path.isdir(path):
        return "%s is no folder" % path
    return _write_problem(path) if path == os.path.abspath(folder) else _make_problem(path)


def _make_problem(parent: str) -> Optional[str]:
    """Tried, because permissions do not tell of every file system."""
    import tempfile

    try:
        os.rmdir(tempfile.mkdtemp(dir=parent, prefix=".doctor-"))
    except OSError as error:
        return "it does not exist and cannot be made in %s: %s" % (parent, error.strerror or error)
    return None


def _write_problem(folder: str) -> Optional[str]:
    import tempfile

    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
            file.write(b"{}\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return "a file in it cannot be written: %s" % (error.strerror or error)
    return None


def problems(found: Json) -> List[str]:
    """What must be mended, a sentence each."""
    missing = ["%s is not installed; pip install %s" % (name, name) for name in DEPENDENCIES if found[name] is None]
    store = found.get("runs", {})
    if store.get("problem"):
        missing.append("runs cannot be kept in %s: %s" % (store["folder"], store["problem"]))
    return missing


def lines(found: Json) -> List[str]:
    """The same for people."""
    because = found["default_model_because"]
    said = ["minagent %s, Python %s (%s)" % (found["minagent"], found["python"], found["implementation"]),
            "platform %s, file names in %s" % (found["platform"], found["encoding"]),
            ", ".join(["%s %s" % (name, found[name] or "missing") for name in DEPENDENCIES]),
            "provider keys set: %s" % (", ".join(found["keys"]) or "none"),
            "default model: %s (%s)" % (found["default_model"], because + " is set" if because else "no key is set"),
            "local model: %s" % told_of_local(found["local"])]
    if "runs" in found and not found["runs"]["problem"]:
        said.append("runs can be kept in %s" % found["runs"]["folder"])
    return said + ["PROBLEM: %s" % sentence for sentence in found["problems"]]


def told_of_local(found: Json) -> str:
    """Where ``model="local"`` comes from."""
    if found["url_is_set"]:
        return "a server named by the environment"
    if found["server"] and found["weights"]:
        return "installed (server %s)" % found["server"]
    return 'not installed (from where minagent came, such as pip install "/path/to/minagent[local]")'
