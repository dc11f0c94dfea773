"""Whether a request may come from a web page elsewhere: what a listener has to ask, since a browser
in its network sends requests, with its cookies and certificates, for every page that it shows.

    a page of another site asks us by our address      its Origin, or Sec-Fetch-Site, is foreign
    a page's own name is made to point at us (DNS      its Host is none of ours
        rebinding)
    a page shows an image that is one of our paths     over plain http a browser says neither;
                                                       but it is a browser, with a GET
    our own page over plain http                       the same, but its script adds a header, which
                                                       no other site's page may without asking us

Programs (curl, HTTP libraries) send none of these headers, and are not affected.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterable, Mapping

# What scripts of our own pages add to their requests. A page of another site would need permission
# for it (CORS), which it does not get.
OWN_PAGE_HEADER = "X-Requested-With"

# A Host may be anything: the listener is behind a proxy that checks it.
ANY_HOST = "*"


def known_hosts(chosen: Iterable[str] | None, others: Iterable[str]) -> frozenset[str]:
    """The names under which a listener may be asked: the chosen ones (`storm.http.hosts`), or if
    there is no choice this machine's and others that it goes by."""
    names = {socket.gethostname(), socket.getfqdn(), *others} if chosen is None else chosen
    return frozenset(name.lower() for name in names if name)


def host_of(host: str) -> str:
    """The name or address in a Host header, without its port and in lower case."""
    if host.startswith("["):
        return host.partition("]")[0].strip("[").lower()
    return host.partition(":")[0].lower()


def host_error(host: str, known: Collection[str], local: str) -> str | None:
    """Why a Host header cannot mean this server, or None. `local` is the address at which the
    connection arrived: a name can be made to point there, but an address cannot."""
    name = host_of(host)
    if name == "localhost" or name in known or ANY_HOST in known:
        return None
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return f"this is not {host!r}; the names it may be asked under are storm.http.hosts"
    if address.is_loopback or str(address) == local.partition("%")[0]:
        return None
    return f"this is not {host!r}: the connection came to {local}"


def page_error(method: str, headers: Mapping[str, str], *, secure: bool = False) -> str | None:
    """Why a request may come from another site's page, or None. `secure`: it came over https."""
    site = headers.get("Sec-Fetch-Site")
    if site in ("cross-site", "same-site"):
        return "not from another site's page"
    origin = headers.get("Origin")
    if origin is not None:
        scheme, _, where = origin.partition("://")
        schemes = ("https",) if secure else ("http", "https")
        if scheme not in schemes or where.lower() != headers.get("Host", "").lower():
            return f"not from a page of {origin}"
        return None
    if site is not None or OWN_PAGE_HEADER in headers:
        return None
    if method in ("GET", "HEAD") and "Mozilla/" in headers.get("User-Agent", ""):
        return "not by a link or an image in a browser: use POST, or a program"
    return None
