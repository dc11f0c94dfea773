"""A Kerberos realm on loopback: MIT's KDC of this machine (Debian: krb5-kdc, krb5-admin-server for
kadmin.local, krb5-user for kinit), with its database in a folder."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.devcluster import wait_for
from tests.support.servers import free_port
from tests.support.thirdparty import unavailable

REALM: Final = "TEST.EXAMPLE"
_PATH: Final = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"


class Kdc:
    """A running KDC."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.conf = folder / "krb5.conf"
        # UDP is not used: one port, and nothing that is sent twice.
        self.conf.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n"
            " dns_lookup_realm = false\n rdns = false\n dns_canonicalize_hostname = false\n"
            " udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n"
        )
        profile = folder / "kdc.conf"
        profile.write_text(
            f'[kdcdefaults]\n kdc_listen = ""\n kdc_tcp_listen = 127.0.0.1:{self.port}\n'
            f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n"
            f"  key_stash_file = {folder}/stash\n  acl_file = {folder}/acl\n"
            "  supported_enctypes = aes256-cts-hmac-sha1-96:normal\n }\n"
            f"[logging]\n kdc = FILE:{folder}/kdc.log\n"
        )
        self.env = {
            **os.environ,
            "PATH": _PATH,
            "KRB5_CONFIG": str(self.conf),
            "KRB5_KDC_PROFILE": str(profile),
            "KRB5RCACHEDIR": str(folder),
        }

    def run(self, *command: str, given: str | None = None) -> None:
        try:
            done = subprocess.run(
                command, env=self.env, input=given, capture_output=True, text=True, timeout=60,
                check=False,
            )  # fmt: skip
        except FileNotFoundError:
            unavailable(f"there is no {command[0]} here (krb5-kdc, krb5-admin-server, krb5-user)")
        assert done.returncode == 0, done.stdout + done.stderr

    def principal(self, name: str) -> Path:
        """Make a principal with a random key; returns its keytab."""
        keytab = self.folder / f"{name.replace('/', '-')}.keytab"
        self.run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {name}")
        self.run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {keytab} {name}")
        assert keytab.stat().st_mode & 0o077 == 0
        return keytab

    def ticket_cache(self, name: str) -> Path:
        """A cache with a ticket of a principal, as `kinit` leaves it."""
        cache = self.folder / f"{name}.cache"
        keytab = self.folder / f"{name}.keytab"
        self.run("kinit", "-c", f"FILE:{cache}", "-k", "-t", str(keytab), name)
        return cache


@contextlib.contextmanager
def kdc(folder: Path) -> Iterator[Kdc]:
    """A KDC with an empty realm."""
    found = Kdc(folder)
    found.run("kdb5_util", "create", "-r", REALM, "-s", "-P", "of-the-database")
    process = subprocess.Popen(
        ["krb5kdc", "-n", "-r", REALM], env=found.env,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        log = folder / "kdc.log"

        def commences() -> bool:
            assert process.poll() is None, log.read_text()
            return log.exists() and "commencing operation" in log.read_text()

        wait_for("the KDC", commences, 60)
        yield found
    finally:
        process.terminate()
        process.wait(30)
