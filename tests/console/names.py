"""A name that does harm to a page that takes it for markup."""

HOSTILE = "<img src=x onerror=alert(1)>"
