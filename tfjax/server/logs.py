"""Log lines on stderr: text for people, or one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping

LOGGERS = ("tfjax", "uvicorn.error")


def fields_in(record: logging.LogRecord) -> Mapping[str, object]:
    """What a caller passed as extra={"fields": ...}."""
    fields = record.__dict__.get("fields")
    return fields if isinstance(fields, dict) else {}


class TextLines(logging.Formatter):
    """`time LEVEL message name=value ...`; values that could break the line are quoted."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = "".join(f" {name}={_quoted(value)}" for name, value in fields_in(record).items())
        line = f"{clock} {record.levelname} {record.getMessage()}{fields}"
        return line + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


class JsonLines(logging.Formatter):
    """One object a line, `time` in seconds since 1970."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= fields_in(record)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


class Stderr(logging.Handler):
    """Writes to what sys.stderr is at that moment: while a progress bar is shown, it is what prints above the bar."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001  (a log line never stops the server)
            self.handleError(record)


def configure_logging(log_format: str) -> None:
    """Sends the log of tfjax and uvicorn to stderr in `log_format` (text or json)."""
    handler = Stderr()
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
    logging.getLogger("tfjax").setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


def _quoted(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and not any(c in text for c in ' "=') else json.dumps(text)
