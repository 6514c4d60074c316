"""Finds the clients that `make clients` installs, and runs programs with them."""

import os
import platform
import subprocess
from pathlib import Path

import pytest

from tests.live import ROOT

FOLDER = ROOT / ".clients"
MODULES = FOLDER / "node" / "node_modules"
HAS_NODE = platform.system() in {"Linux", "Darwin"} and platform.machine() in {"x86_64", "aarch64", "arm64"}
PATIENCE = 280  # seconds until a client that does not end is given up


def find_python() -> Path:
    """Give the Python that has the clients."""
    return _find(FOLDER / "python/bin/python")


def find_node() -> Path:
    """Give the Node.js that has the clients, which not every platform has."""
    if not HAS_NODE:
        pytest.skip(f"there is no Node.js package for {platform.system()} on {platform.machine()}")
    _find(MODULES)
    return _find(FOLDER / "python/bin/node")


def run(*command: str | Path, program: str = "", cwd: Path = ROOT, code: int = 0, **env: str) -> str:
    """Run a client, its program on standard input, until it ends with `code`; gives what it prints."""
    outside = {"input": program, "cwd": cwd, "env": to_env(**env), "timeout": PATIENCE}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, **outside)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout


def run_node(program: str, **env: str) -> str:
    """Run a program with Node.js; gives what it prints."""
    return run(find_node(), "--input-type=module", "-", program=program, cwd=MODULES.parent, **env)


def to_env(**env: str) -> dict[str, str]:
    """Give clients a world where nothing answers but this machine."""
    dead = "http://127.0.0.1:9"
    proxies = {"HTTP_PROXY": dead, "HTTPS_PROXY": dead, "ALL_PROXY": dead, "NO_PROXY": "127.0.0.1,localhost"}
    return {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "PYTHONWARNINGS": "ignore", **proxies, **env}


def _find(path: Path) -> Path:
    if not path.exists():
        say = f"{path.relative_to(ROOT)} is not there: `make clients` installs it"
        pytest.skip(say)
    return path
