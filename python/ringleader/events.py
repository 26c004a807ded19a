"""Events for ``ringleader diagnose`` and ``watch``: one JSON object a line, schema ``ringleader.event.v1``.

They go to ``RINGLEADER_RING_DIR/events-PID.jsonl``, where the plugin's rings are, by default ``/dev/shm/ringleader``. A file
of 16 MiB is set aside as ``events-PID.1.jsonl`` once; the one before it is dropped.
"""

import json
import os
import threading
import time

SCHEMA = "ringleader.event.v1"
MAX_BYTES = 16 << 20


def folder():
    """Where events go."""
    return os.environ.get("RINGLEADER_RING_DIR") or "/dev/shm/ringleader"


class Events:
    """Writes events of this process. Never raises: a full disk costs events, not the job."""

    def __init__(self):
        self._lock = threading.Lock()
        self._file = None
        self._pid = None

    def path(self):
        return os.path.join(folder(), "events-%d.jsonl" % os.getpid())

    def write(self, kind, **fields):
        """Writes one event: kind is digest, nan, spike or profile; None fields are left out."""
        event = {"schema": SCHEMA, "wall_ns": time.time_ns(), "kind": kind}
        event.update((name, value) for name, value in fields.items() if value is not None)
        line = json.dumps(event, separators=(",", ":"), allow_nan=False, default=str) + "\n"
        with self._lock:
            try:
                self._open()
                if self._file.tell() + len(line) > MAX_BYTES:
                    self._rotate()
                self._file.write(line)
                self._file.flush()
            except (OSError, ValueError):
                self._file = None
        return event

    def _open(self):
        # After a fork the file is the parent's.
        if self._file is None or self._pid != os.getpid():
            os.makedirs(folder(), mode=0o755, exist_ok=True)
            self._pid = os.getpid()
            self._file = open(self.path(), "a", encoding="utf-8")

    def _rotate(self):
        self._file.close()
        self._file = None
        path = self.path()
        os.replace(path, path[: -len(".jsonl")] + ".1.jsonl")
        self._open()


EVENTS = Events()
