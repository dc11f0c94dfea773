"""An identity provider for tests: its keys, the tokens that it signs, and a server that misbehaves
on demand."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS, PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from squall_common.security.jws import b64

ISSUER, AUDIENCE = "https://login.example.org", "squall-prod"


class ProviderKeys:
    """A key for each algorithm, with the algorithm's name as its id."""

    def __init__(self, suffix: str = "") -> None:
        self.suffix = suffix
        rsa = generate_rsa(65_537, 2_048)
        self.keys: dict[str, RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey] = {
            "RS256": rsa,
            "PS256": rsa,
            "ES256": generate_private_key(SECP256R1()),
            "EdDSA": Ed25519PrivateKey.generate(),
        }

    def jwks(self) -> dict[str, Any]:
        return {
            "keys": [
                {"kid": alg + self.suffix, "use": "sig", "alg": alg, **_jwk(key)}
                for alg, key in self.keys.items()
            ]
        }


def _jwk(key: Any) -> dict[str, str]:
    public = key.public_key()
    if isinstance(key, Ed25519PrivateKey):
        return {"kty": "OKP", "crv": "Ed25519", "x": b64(public.public_bytes_raw())}
    numbers = public.public_numbers()
    if isinstance(key, RSAPrivateKey):
        return {"kty": "RSA", "n": b64(numbers.n.to_bytes(256)), "e": b64(numbers.e.to_bytes(3))}
    x, y = (b64(number.to_bytes(32)) for number in (numbers.x, numbers.y))
    return {"kty": "EC", "crv": "P-256", "x": x, "y": y}


def signed(
    claims: Mapping[str, Any],
    keys: ProviderKeys,
    alg: str = "RS256",
    header: Mapping[str, Any] | None = None,
    *,
    drop: bool = False,
) -> str:
    """A token; `header` replaces parts of its header, None takes one away. With `drop`, claims that
    are `...` are left out."""
    head = {"alg": alg, "kid": alg + keys.suffix, "typ": "JWT", **(header or {})}
    head = {name: value for name, value in head.items() if value is not None}
    body = {name: value for name, value in claims.items() if not (drop and value is ...)}
    text = f"{b64(json.dumps(head).encode())}.{b64(json.dumps(body).encode())}"
    key, data = keys.keys[alg], text.encode()
    if isinstance(key, RSAPrivateKey):
        padding = PSS(MGF1(SHA256()), 32) if alg == "PS256" else PKCS1v15()
        signature = key.sign(data, padding, SHA256())
    elif isinstance(key, Ed25519PrivateKey):
        signature = key.sign(data)
    else:
        r, s = decode_dss_signature(key.sign(data, ECDSA(SHA256())))
        signature = r.to_bytes(32) + s.to_bytes(32)
    return f"{text}.{b64(signature)}"


class ProviderServer:
    """Serves a provider's documents by HTTPS, from bytes, so that it can answer anything."""

    def __init__(self, context: ssl.SSLContext, keys: ProviderKeys) -> None:
        self._context = context
        self.keys = keys
        self.asked: list[str] = []
        # path -> a whole answer, instead of the right one; an empty one: nothing, for ever.
        self.answers: dict[str, Callable[[], bytes]] = {}
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.url = f"https://localhost:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1].decode()
            self.asked.append(path)
            answer = self.answers.get(path, lambda: self._right(path))()
            if not answer:
                await reader.read()  # until the peer hangs up
            writer.write(answer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _right(self, path: str) -> bytes:
        if path == "/.well-known/openid-configuration":
            return ok({"issuer": self.url, "jwks_uri": f"{self.url}/keys"})
        return ok(self.keys.jwks())


def ok(value: Any) -> bytes:
    """An answer with a value as JSON."""
    return raw("200 OK", json.dumps(value).encode())


def raw(status: str, body: bytes = b"", *headers: str) -> bytes:
    """An answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body
