"""Who can reach an address."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """True when only this machine can reach the address. A name other than localhost counts as reachable."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
