"""How the log is written: lines for people, or one JSON object a line."""

import logging
from datetime import UTC, datetime
from typing import Any

from gunicorn.glogging import Logger
from msgspec import json

LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """Writes a record as a JSON object, with what its `fields`, a function, tells beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one line."""
        entry: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", dict)(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.encode(entry, enc_hook=str).decode()


class JsonLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """Gunicorn's own log, as JSON too."""

    def setup(self, cfg: Any) -> None:
        """Take gunicorn's settings, but for the form of a line."""
        super().setup(cfg)
        for handler in (*self.error_log.handlers, *self.access_log.handlers):
            handler.setFormatter(JsonFormatter())


def set_up(style: str) -> None:
    """Write Interlock's log to standard error, and of others what went wrong."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if style == "json" else logging.Formatter(LINE))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("interlock").setLevel(logging.INFO)
