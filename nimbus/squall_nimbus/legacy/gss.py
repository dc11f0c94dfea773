"""The acceptor's side of GSS-API with Kerberos: the few functions that SASL needs of MIT's library
(Debian: libgssapi-krb5-2), by their C interface (RFC 2744, and `gss_acquire_cred_from` of
gssapi_ext.h). The library is loaded when the first acceptor is made.

All calls may block (a keytab, the replay cache): make them in a thread. A context is used by one
thread at a time.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from ctypes import POINTER, byref, c_int, c_size_t, c_uint32, c_void_p
from typing import Any, Final

LIBRARY: Final = "libgssapi_krb5.so.2"
_CONTINUE_NEEDED = 1
_ERRORS = 0xFFFF0000  # routine and calling errors; the rest informs
_ACCEPT = 2  # GSS_C_ACCEPT
_GSS_CODE, _MECH_CODE = 1, 2
_INDEFINITE = 0xFFFFFFFF
_TEXTS_MAX = 4


class GssError(Exception):
    """The library refused. The text is for the log."""


class _Buffer(ctypes.Structure):
    _fields_ = (("length", c_size_t), ("value", c_void_p))


class _Oid(ctypes.Structure):
    _fields_ = (("length", c_uint32), ("elements", c_void_p))


class _OidSet(ctypes.Structure):
    _fields_ = (("count", c_size_t), ("elements", c_void_p))


class _Pair(ctypes.Structure):
    _fields_ = (("key", ctypes.c_char_p), ("value", ctypes.c_char_p))


class _Store(ctypes.Structure):
    _fields_ = (("count", c_uint32), ("elements", c_void_p))


# GSS_KRB5_NT_PRINCIPAL_NAME and the mechanism, 1.2.840.113554.1.2.2 with .1 and without.
_KRB5 = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02"


def _oid(data: bytes) -> _Oid:
    kept = ctypes.create_string_buffer(data, len(data))
    oid = _Oid(len(data), ctypes.addressof(kept))
    oid._kept = kept
    return oid


_MECHANISM = _oid(_KRB5)
_NAME_TYPE = _oid(_KRB5 + b"\x01")


@functools.cache
def _library() -> Any:
    """Raises GssError."""
    try:
        found = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise GssError(f"{LIBRARY} cannot be loaded: {error}") from error
    out, minor = POINTER(c_void_p), POINTER(c_uint32)
    buffer, oid = POINTER(_Buffer), POINTER(_Oid)
    signatures: dict[str, tuple[Any, ...]] = {
        "gss_import_name": (minor, buffer, oid, out),
        "gss_release_name": (minor, out),
        "gss_display_name": (minor, c_void_p, buffer, c_void_p),
        "gss_acquire_cred_from": (
            minor, c_void_p, c_uint32, POINTER(_OidSet), c_int, POINTER(_Store), out, c_void_p,
            c_void_p,
        ),
        "gss_release_cred": (minor, out),
        "gss_accept_sec_context": (
            minor, out, c_void_p, buffer, c_void_p, out, c_void_p, buffer, minor, minor, c_void_p,
        ),
        "gss_delete_sec_context": (minor, out, c_void_p),
        "gss_wrap": (minor, c_void_p, c_int, c_uint32, buffer, POINTER(c_int), buffer),
        "gss_unwrap": (minor, c_void_p, buffer, buffer, POINTER(c_int), minor),
        "gss_release_buffer": (minor, buffer),
        "gss_display_status": (minor, c_uint32, c_int, oid, minor, buffer),
    }  # fmt: skip
    for name, arguments in signatures.items():
        function = getattr(found, name)
        function.argtypes, function.restype = arguments, c_uint32
    return found


class Acceptor:
    """Proves peers to the service `principal` (nimbus/HOST@REALM) by its key in a keytab.
    Construction raises GssError."""

    def __init__(self, principal: str, keytab: str) -> None:
        library = _library()
        name = c_void_p()
        _call("gss_import_name", byref(_input(principal.encode())), byref(_NAME_TYPE), byref(name))
        pairs = (_Pair * 1)(_Pair(b"keytab", f"FILE:{keytab}".encode()))
        store = _Store(1, ctypes.addressof(pairs))
        # Kerberos alone: not what else the library could negotiate.
        mechanisms = _OidSet(1, ctypes.addressof(_MECHANISM))
        credential = c_void_p()
        try:
            _call(
                "gss_acquire_cred_from",
                name, 0, byref(mechanisms), _ACCEPT, byref(store), byref(credential), None, None,
            )  # fmt: skip
        finally:
            library.gss_release_name(byref(c_uint32()), byref(name))
        self._credential = credential
        weakref.finalize(self, _release, "gss_release_cred", credential)

    def context(self) -> Context:
        """One with a new peer."""
        return Context(self)


class Context:
    """A security context with one peer."""

    def __init__(self, acceptor: Acceptor) -> None:
        self._acceptor = acceptor
        self._context = c_void_p()
        self.peer = ""  # the peer's principal, once its token is accepted
        self.lifetime_secs: int | None = None  # of the peer's ticket; None: it does not end
        weakref.finalize(self, _release, "gss_delete_sec_context", self._context, None)

    def accept(self, token: bytes) -> bytes:
        """Take the peer's token: Kerberos has one. Returns what it gets back, which may be empty.
        Raises GssError."""
        library = _library()
        name, answer, lifetime = c_void_p(), _Buffer(), c_uint32()
        try:
            major = _call(
                "gss_accept_sec_context",
                byref(self._context), self._acceptor._credential, byref(_input(token)), None,
                byref(name), None, byref(answer), None, byref(lifetime), None,
            )  # fmt: skip
            if major & _CONTINUE_NEEDED:  # DCE's style, or bytes that are not Kerberos'
                raise GssError("it is not a token that is enough by itself")
            shown = _Buffer()
            try:
                _call("gss_display_name", name, byref(shown), None)
                self.peer = _bytes(shown).decode("utf-8", "replace")
            finally:
                library.gss_release_buffer(byref(c_uint32()), byref(shown))
            if lifetime.value != _INDEFINITE:
                self.lifetime_secs = lifetime.value
            return _bytes(answer)
        finally:
            library.gss_release_buffer(byref(c_uint32()), byref(answer))
            if name:
                library.gss_release_name(byref(c_uint32()), byref(name))

    def wrap(self, data: bytes) -> bytes:
        """Sign a message. Raises GssError."""
        sealed = _Buffer()
        return self._message("gss_wrap", sealed, 0, 0, byref(_input(data)), None, byref(sealed))

    def unwrap(self, data: bytes) -> bytes:
        """The content of a message that the peer has signed. Raises GssError."""
        opened = _Buffer()
        return self._message("gss_unwrap", opened, byref(_input(data)), byref(opened), None, None)

    def _message(self, function: str, result: _Buffer, *arguments: Any) -> bytes:
        try:
            _call(function, self._context, *arguments)
            return _bytes(result)
        finally:
            _library().gss_release_buffer(byref(c_uint32()), byref(result))


def _input(data: bytes) -> _Buffer:
    kept = ctypes.create_string_buffer(data, len(data))
    buffer = _Buffer(len(data), ctypes.addressof(kept))
    buffer._kept = kept
    return buffer


def _bytes(buffer: _Buffer) -> bytes:
    return ctypes.string_at(buffer.value, buffer.length) if buffer.value else b""


def _release(function: str, handle: c_void_p, *more: Any) -> None:
    if handle:
        getattr(_library(), function)(byref(c_uint32()), byref(handle), *more)


def _call(function: str, *arguments: Any) -> int:
    minor = c_uint32()
    major = int(getattr(_library(), function)(byref(minor), *arguments))
    if major & _ERRORS:
        texts = [*_texts(major, _GSS_CODE), *_texts(minor.value, _MECH_CODE)]
        raise GssError("; ".join(dict.fromkeys(texts)) or f"error {major:#x}")
    return major


def _texts(code: int, kind: int) -> list[str]:
    """What the library says about a status code."""
    found: list[str] = []
    more, minor = c_uint32(), c_uint32()
    while code and len(found) < _TEXTS_MAX:
        text = _Buffer()
        major = _library().gss_display_status(
            byref(minor), code, kind, byref(_MECHANISM), byref(more), byref(text)
        )
        if major & _ERRORS:
            break
        found.append(_bytes(text).decode("utf-8", "replace"))
        _library().gss_release_buffer(byref(minor), byref(text))
        if not more.value:
            break
    return found
