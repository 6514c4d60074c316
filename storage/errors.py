"""What can break in the storage room.

StoreError
├── OpenError                   the database cannot be opened, and its file is as it was
│   ├── UnusablePathError         no file can be kept at that path
│   ├── NotADatabaseError         the file is not a DuckDB database
│   ├── DamagedDatabaseError      the file cannot be read as a whole
│   ├── ForeignDatabaseError      the database belongs to another program
│   ├── NewerDatabaseError        a newer Interlock or DuckDB wrote the file
│   └── LockedDatabaseError       another process has the file open
├── ReadError                   a row could not be read
└── WriteError                  a row could not be written
"""


class StoreError(Exception):
    """Something broke in the store."""


class OpenError(StoreError):
    """The database cannot be opened; its text names the file and says what to do."""


class UnusablePathError(OpenError):
    """No database file can be kept at the path."""


class NotADatabaseError(OpenError):
    """The file is not a DuckDB database."""


class DamagedDatabaseError(OpenError):
    """The file cannot be read as a whole."""


class ForeignDatabaseError(OpenError):
    """The database holds tables of another program."""


class NewerDatabaseError(OpenError):
    """The file was written by a newer Interlock or a newer DuckDB."""


class LockedDatabaseError(OpenError):
    """The file is open in another process, or already in this one."""


class ReadError(StoreError):
    """A row or its chain could not be read; the cause is chained."""


class WriteError(StoreError):
    """A row could not be written; the cause, if there is one, is chained."""
