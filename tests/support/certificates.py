"""A certificate authority and a server's certificate for tests of TLS."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.thirdparty import command


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM: the authority to trust, and what the server at 127.0.0.1 proves itself with."""

    ca: Path
    certificate: Path
    key: Path

    @classmethod
    def make(cls, folder: Path, owner: str | None = None) -> Certificates:
        """New ones. The key is readable by `owner` alone, by default the user of this process."""
        made = cls(folder / "ca.pem", folder / "server.pem", folder / "server.key")
        ca_key, request = folder / "ca.key", folder / "server.csr"
        new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
        _openssl(
            *("req", "-x509", *new_key, "-subj", "/CN=Test authority"),
            # Since Python 3.13 an authority must say that it signs certificates.
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-keyout", str(ca_key), "-out", str(made.ca)),
        )
        names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
        _openssl(
            *("req", *new_key[:-2], "-subj", "/CN=localhost", "-addext", names),
            *("-keyout", str(made.key), "-out", str(request)),
        )
        _openssl(
            *("x509", "-req", "-in", str(request), "-copy_extensions", "copy", "-days", "2"),
            *("-CA", str(made.ca), "-CAkey", str(ca_key), "-CAcreateserial"),
            *("-out", str(made.certificate)),
        )
        made.key.chmod(0o600)
        if owner is not None and os.geteuid() == 0:
            shutil.chown(made.key, owner)
        return made

    def for_server(self) -> ssl.SSLContext:
        """TLS of a server in Python."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


def _openssl(*arguments: str) -> None:
    subprocess.run([command("openssl"), *arguments], check=True, capture_output=True, timeout=60)
