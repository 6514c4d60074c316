"""How a database file is opened: looked at first, changed only once it is known to be ours."""

import os
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from struct import unpack_from

import duckdb

from storage import locks
from storage.errors import (
    DamagedDatabaseError,
    ForeignDatabaseError,
    LockedDatabaseError,
    NewerDatabaseError,
    NotADatabaseError,
    OpenError,
    UnusablePathError,
)
from storage.migrations import MIGRATIONS, is_foreign, migrate, recorded_version

MEMORY = ":memory:"
CONFIG: dict[str, str | int | bool | float | list[str]] = {"memory_limit": "512MB", "threads": 2}
RETRY_SECONDS = 0.1

# DuckDB's file: a main header, two database headers of 4,096 bytes each, then blocks.
MAGIC, MAGIC_AT = b"DUCK", 8
HEADERS_END = 3 * 4096
STORAGE_VERSION_AT = (4096 + 56, 2 * 4096 + 56)


class Database:
    """An open database; `file` is None in memory, and `clean` removes what it left elsewhere."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, file: Path | None, clean: Callable[[], None] = lambda: None
    ) -> None:
        self.connection = connection
        self.file = file
        self._clean = clean
        self._opened = file and _identity(file)

    @property
    def has_lost_file(self) -> bool:
        """Whether another file, or none, is at the path; DuckDB goes on in the one it opened and notices nothing."""
        return self.file is not None and _identity(self.file) != self._opened

    def close(self) -> None:
        self.connection.close()
        self._clean()
        if self.file is not None:
            locks.unclaim(self.file)


def open_database(path: str, patience: float) -> Database:
    """Open or make a database with all migrations applied. A locked file is tried again for `patience` seconds.

    Raises OpenError. Blocks.
    """
    if path == MEMORY:
        return _open_memory()
    file, deadline = Path(os.path.realpath(path)), time.monotonic() + patience
    while True:
        try:
            return Database(_open_claimed(file), file)
        except LockedDatabaseError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(RETRY_SECONDS)


def _open_memory() -> Database:
    # DuckDB would put what outgrows its memory into the folder the server was started in, where others may read it
    try:
        spill = tempfile.TemporaryDirectory(prefix="interlock-", ignore_cleanup_errors=True)
    except OSError as error:
        msg = f"What outgrows memory has no place ({error.strerror}); set TMPDIR to a folder that can be written."
        raise UnusablePathError(msg) from error
    connection = duckdb.connect(MEMORY, config={**CONFIG, "temp_directory": spill.name})
    migrate(connection)
    return Database(connection, None, spill.cleanup)


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _open_claimed(file: Path) -> duckdb.DuckDBPyConnection:
    if not locks.claim(file):
        raise _locked(file, os.getpid())
    try:
        if _exists(file):
            _check_file(file)
            _check_contents(file)
        else:
            _check_place(file)
        return _open_writable(file)
    except BaseException:
        locks.unclaim(file)
        raise


def _exists(file: Path) -> bool:
    try:
        mode = file.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unusable(file, error) from error
    if not stat.S_ISREG(mode):
        msg = f"{file} is not a file; give the path of a database file."
        raise UnusablePathError(msg)
    return True


def _check_place(file: Path) -> None:
    wal = Path(f"{file}.wal")
    try:
        if wal.exists():  # DuckDB would delete it
            msg = f"{file} is missing but {wal.name}, its last writes, is there; put the file back or move that away."
            raise DamagedDatabaseError(msg)
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(file, error) from error


def _check_file(file: Path) -> None:
    if not (os.access(file, os.R_OK | os.W_OK) and os.access(file.parent, os.W_OK | os.X_OK)):
        msg = f"{file} or its folder may not be written by this user; change their owner or give another path."
        raise UnusablePathError(msg)
    try:
        with file.open("rb") as opened:
            holder = locks.lock_holder(opened.fileno())
            start = opened.read(HEADERS_END)
    except OSError as error:
        raise _unusable(file, error) from error
    if holder is not None:
        raise _locked(file, holder)
    if start[MAGIC_AT : MAGIC_AT + len(MAGIC)] != MAGIC:
        what = "not a DuckDB database" if start else "empty"
        msg = f"{file} is {what}; move it away or give another path."
        raise NotADatabaseError(msg)


def _check_contents(file: Path) -> None:
    try:
        connection = duckdb.connect(str(file), read_only=True, config=CONFIG)
    except duckdb.Error as error:
        raise _unreadable(file, error) from error
    try:
        _check_tables(file, connection)
    except duckdb.Error as error:
        raise _damaged(file) from error
    finally:
        connection.close()


def _check_tables(file: Path, connection: duckdb.DuckDBPyConnection) -> None:
    if _is_cut(file, connection):
        raise _damaged(file)
    if is_foreign(connection):
        msg = f"{file} is a database of another program; give another path."
        raise ForeignDatabaseError(msg)
    if recorded_version(connection) > len(MIGRATIONS):
        msg = f"{file} was written by a newer Interlock; upgrade Interlock or give another path."
        raise NewerDatabaseError(msg)


def _is_cut(file: Path, connection: duckdb.DuckDBPyConnection) -> bool:
    # A checkpoint cuts off the free blocks at the end, whole, after it has written how many blocks there were.
    sizes = connection.execute("SELECT block_size, total_blocks, free_blocks FROM pragma_database_size()").fetchone()
    block_size, total, free = sizes or (1, 0, 0)
    there, rest = divmod(file.stat().st_size - HEADERS_END, block_size)
    return bool(there < total and (rest or there < total - free))


def _open_writable(file: Path) -> duckdb.DuckDBPyConnection:
    try:
        connection = duckdb.connect(str(file), config=CONFIG)
    except duckdb.Error as error:
        raise _unwritable(file) from error
    try:
        migrate(connection)
    except duckdb.Error as error:
        connection.close()
        msg = f"{file} could not be brought up to date, and is as it was; check the disk's free space."
        raise OpenError(msg) from error
    return connection


def _unreadable(file: Path, error: duckdb.Error) -> OpenError:
    _check_file(file)  # another process may have taken the lock since
    # A header whose checksum is wrong is no IOException, and its version means nothing.
    if isinstance(error, duckdb.IOException) and _storage_version(file) > _our_storage_version():
        msg = f"{file} was written by a newer DuckDB than {duckdb.__version__}; upgrade the duckdb package."
        return NewerDatabaseError(msg)
    return _damaged(file)


def _unwritable(file: Path) -> OpenError:
    if _exists(file):
        _check_file(file)
    msg = f"{file} could not be opened for writing; check its folder's permissions and the disk's free space."
    return UnusablePathError(msg)


def _storage_version(file: Path) -> int:
    with file.open("rb") as opened:
        start = opened.read(HEADERS_END)
    if len(start) < HEADERS_END:
        return 0
    return int(max(unpack_from("<Q", start, at)[0] for at in STORAGE_VERSION_AT))


def _our_storage_version() -> int:
    with tempfile.TemporaryDirectory() as folder:
        sample = Path(folder) / "sample.duckdb"
        duckdb.connect(str(sample)).close()
        return _storage_version(sample)


def _locked(file: Path, holder: int) -> LockedDatabaseError:
    by = f"process {holder}" if holder else "another process"
    if holder and (parent := locks.parent_of(holder)):
        by += f", a child of process {parent}"
    return LockedDatabaseError(f"{file} is in use by {by}; stop that server or give another path.")


def _damaged(file: Path) -> DamagedDatabaseError:
    return DamagedDatabaseError(f"{file} is damaged; put a copy back in its place, or move it away to start anew.")


def _unusable(file: Path, error: OSError) -> UnusablePathError:
    return UnusablePathError(f"{file} cannot hold a database ({error.strerror}); give another path.")
