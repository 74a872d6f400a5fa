"""The real server from the installed extra: started by the command line, and gone afterwards."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest

from minagent.llm import local

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.service
@pytest.mark.local_model
@pytest.mark.skipif(sys.version_info < (3, 10) or not importlib.util.find_spec(local.SERVER_MODULE),
                    reason="the extra `local` is not installed here")
def test_serve_keeps_a_server_until_it_is_told_to_end(tmp_path):
    """Its first line is the URL, its second the log, in which each request leaves a line; nothing stays behind."""
    environ = dict(os.environ, XDG_CACHE_HOME=str(tmp_path))
    keeper = subprocess.Popen([sys.executable, "-m", "minagent.llm.local", "serve"], stdout=subprocess.PIPE, text=True,
                              env=environ)
    url, log = keeper.stdout.readline().strip(), keeper.stdout.readline().strip()
    state = json.loads((Path(log).parent / "server.json").read_text(encoding="utf-8"))

    body = {"messages": [{"role": "user", "content": "What is the capital of Italy?"}], "max_tokens": 12}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
        assert json.load(answer)["choices"][0]["message"]["content"]
    assert Path(log).read_text(encoding="utf-8", errors="replace").count("processing task") == 1
    assert str(tmp_path) in log

    keeper.send_signal(signal.SIGTERM)
    assert keeper.wait(30) == 0
    keeper.stdout.close()
    end = time.monotonic() + 60
    while any(os.path.exists("/proc/%d/exe" % state[name]) and os.access("/proc/%d/exe" % state[name], os.R_OK)
              for name in ("pid", "keeper")):
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.checkout
def test_template_and_keeper_are_found_in_a_zip(tmp_path):
    """The package may be imported from an archive, where its data are no files."""
    archive = str(tmp_path / "app.zip")
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((ROOT / "minagent").rglob("*")):
            if path.suffix in (".py", ".jinja"):
                file.write(str(path), str(path.relative_to(ROOT)))
    code = """
import pkgutil, sys
sys.path.insert(0, sys.argv[1])
from minagent.llm import local, local_server
assert local.__file__.startswith(sys.argv[1]), local.__file__
server = local_server.LocalServer(sys.argv[2], lambda: [sys.executable, sys.argv[3], "{port}"], {}, linger=0.1)
print(len(local.template()) > 100, server.url().startswith("http://127.0.0.1:"))
"""
    server = str(ROOT / "tests" / "_small_server.py")
    done = subprocess.run([sys.executable, "-c", code, archive, str(tmp_path), server], stdout=subprocess.PIPE,
                          text=True, cwd=str(tmp_path))

    assert done.stdout == "True True\n"
