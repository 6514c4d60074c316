"""Which model to load, and in one sentence why it could not be.

Imports MLX, as `engine.mlx_engine` does.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx_lm
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # public, but not in its __all__
from mlx_lm.tokenizer_utils import TokenizerWrapper

from engine.errors import LoadError
from engine.mlx_engine import MlxEngine

UNREACHABLE = (LocalEntryNotFoundError, HfHubHTTPError, ConnectionError)


def mlx_engine(source: str, **limits: Any) -> MlxEngine:
    """Make the engine for a model folder, or for a model of the Hugging Face Hub, with `MlxEngine`'s own limits."""

    def load() -> tuple[Any, TokenizerWrapper]:
        folder = Path(source).expanduser()
        try:
            model, tokenizer, *_ = mlx_lm.load(str(folder))
        except Exception as error:
            raise to_load_error(source, folder, error) from error
        return model, tokenizer

    return MlxEngine(load, **limits)


def check_source(source: str) -> None:
    """See, without loading or fetching, whether this can be a model. Raises LoadError."""
    folder = Path(source).expanduser()
    error: Exception | None = None
    if not folder.exists():
        try:
            validate_repo_id(source)
        except HFValidationError as invalid:
            error = invalid
    if reason := _reason(folder, error):
        text = f"{source!r} {reason}"
        raise LoadError(text) from error


def to_load_error(source: str, folder: Path, error: Exception) -> LoadError:
    """Say in one sentence why a model could not be loaded, judging by types and by its folder."""
    unknown = f"could not be loaded: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return LoadError(f"{source!r} {_reason(folder, error) or unknown}")


def is_larger_than_memory(folder: Path) -> bool:
    """Tell whether a model's weights exceed the machine's memory, for which MLX has no exception type of its own."""
    weights = sum(file.stat().st_size for file in folder.glob("model*.safetensors"))
    return weights > memory_bytes()


def memory_bytes() -> int:
    """Tell how much memory the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _reason(folder: Path, error: Exception | None) -> str | None:
    return next((text for looks_so, text in LOAD_FAILURES if looks_so(folder, error)), None)


# fmt: off
LOAD_FAILURES: list[tuple[Callable[[Path, Exception | None], bool], str]] = [
    (lambda _, error: isinstance(error, HFValidationError),
     "does not exist; give a model folder, or a Hub name such as 'owner/model'."),
    (lambda _, error: isinstance(error, RepositoryNotFoundError),
     "is no folder here and no model the Hub shows; for a private model set HF_TOKEN."),
    (lambda _, error: isinstance(error, UNREACHABLE),
     "is no folder here, and the Hub could not be reached to fetch it."),
    (lambda folder, error: not folder.exists() and isinstance(error, FileNotFoundError),
     "is on the Hub, but not as a model for mlx-lm: it has no config.json, or no model*.safetensors."),
    (lambda folder, _: folder.is_file(),
     "is a file; give the folder of an MLX model."),
    (lambda folder, _: folder.is_dir() and not (folder / "config.json").exists(),
     "is not a model folder: it has no config.json."),
    (lambda folder, _: folder.is_dir() and not any(folder.glob("model*.safetensors")),
     "has no weights: there is no model*.safetensors in it."),
    (lambda folder, error: isinstance(error, MemoryError) or is_larger_than_memory(folder),
     "does not fit into memory; take a smaller model, or one with fewer bits a weight."),
]
# fmt: on
