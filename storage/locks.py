"""Who has a database file open: other processes by their file lock, this one by its claims."""

import fcntl
import re
import struct
import sys
import threading
from pathlib import Path

if sys.platform == "darwin":  # struct flock: start, length, pid, type, whence
    FLOCK, TYPE, PID = "qqihh", 3, 2
else:  # type, whence, start, length, pid
    FLOCK, TYPE, PID = "hhqqi4x", 0, 4

_claims: set[Path] = set()
_claiming = threading.Lock()


def lock_holder(descriptor: int) -> int | None:
    """Tell the process whose lock keeps this one from writing: its id, 0 if the kernel will not say, None if free."""
    wanted = [0] * 5
    wanted[TYPE] = fcntl.F_WRLCK
    answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(FLOCK, *wanted))
    found = struct.unpack(FLOCK, answer)
    return None if found[TYPE] == fcntl.F_UNLCK else max(found[PID], 0)


def claim(file: Path) -> bool:
    """Reserve a file for one store of this process; False if it is reserved already.

    A process loses its lock when it closes *any* descriptor of the file, so nothing may even look at a claimed file.
    """
    with _claiming:
        if file in _claims:
            return False
        _claims.add(file)
        return True


def unclaim(file: Path) -> None:
    """Let another store of this process open the file."""
    with _claiming:
        _claims.discard(file)


def parent_of(pid: int) -> int | None:
    """Find the process that started another, where Linux tells; a server's worker is no use to stop by itself."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = re.search(r"^PPid:\s+(\d+)$", status, re.MULTILINE)
    return int(found[1]) if found and found[1] not in ("0", "1") else None
