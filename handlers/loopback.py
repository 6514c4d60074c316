"""What names and addresses stand for this machine itself."""

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Tell whether a host name or an address can only be this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def to_hostname(url: str) -> str:
    """Take the host, in lower case, out of a URL, or of a Host header behind `//`; empty if there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
