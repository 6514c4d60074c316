"""What can break in the engine room.

EngineError
├── LoadError       a model could not be loaded
├── TemplateError   the chat template refused the conversation
├── GrammarError    an answer cannot be held to what was asked
└── DecodeError     decoding broke off
"""

import traceback


class EngineError(Exception):
    """Something broke in the engine."""


class LoadError(EngineError):
    """A model could not be loaded; its text says what to do."""


class TemplateError(EngineError):
    """The chat template refused the conversation; its text is the template's own reason."""


class GrammarError(EngineError):
    """An answer cannot be held to what was asked: its text is the reason, `tool` the name of the tool at fault."""

    def __init__(self, reason: str, tool: str | None = None) -> None:
        super().__init__(reason)
        self.tool = tool


class DecodeError(EngineError):
    """Decoding broke off; the cause is chained."""


def to_decode_error(text: str, cause: BaseException | None = None) -> DecodeError:
    """Chain a DecodeError to its cause."""
    error = DecodeError(text)
    error.__cause__ = cause
    if cause is not None:
        # The frames of its traceback hold the KV cache.
        traceback.clear_frames(cause.__traceback__)
    return error
