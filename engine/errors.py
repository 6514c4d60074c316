"""What can break in the engine room.

EngineError
├── LoadError       a model could not be loaded
├── TemplateError   the chat template refused the conversation
└── DecodeError     decoding broke off
"""


class EngineError(Exception):
    """Something broke in the engine."""


class LoadError(EngineError):
    """A model could not be loaded; its text says what to do."""


class TemplateError(EngineError):
    """The chat template refused the conversation; its text is the template's own reason."""


class DecodeError(EngineError):
    """Decoding broke off; the cause is chained."""
