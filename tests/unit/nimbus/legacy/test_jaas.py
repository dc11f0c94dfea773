"""JAAS files of Storm's form."""

from __future__ import annotations

import pytest

from squall_nimbus.legacy.jaas import JaasError, parse_jaas

STORMS = """
/* From Storm's documentation,
   with both kinds of comments. */
StormServer {
       org.apache.zookeeper.server.auth.DigestLoginModule required
       user_super="adminsecret"   // "not a value"
       user_bob="b\\"o\\\\b; }";
};
StormClient {
    com.sun.security.auth.module.Krb5LoginModule REQUIRED
    useKeyTab=true keyTab=/etc/storm/storm.keytab
    principal="storm@EXAMPLE.COM" ;
    other.Module optional;
};
"""


def test_a_file_as_storm_documents_it() -> None:
    found = parse_jaas(STORMS)
    assert [module.options for module in found["StormServer"]] == [
        {"user_super": "adminsecret", "user_bob": 'b"o\\b; }'}
    ]
    kerberos, other = found["StormClient"]
    assert kerberos.options["keyTab"] == "/etc/storm/storm.keytab"
    assert kerberos.options["principal"] == "storm@EXAMPLE.COM"
    assert other.name == "other.Module"


def test_an_empty_file_has_no_entries() -> None:
    assert parse_jaas(" \n// nothing\n") == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A", "line 1: it ends too early"),
        ("A {", "line 1: it ends too early"),
        ("A { m required;", "line 1: it ends too early"),
        ("A { m required; }", "line 1: it ends too early"),
        ("A {\n m sometimes; };", "line 2: a flag is one of"),
        ("A {\n m required user=; };", "line 2: the option's value is missing"),
        ("A { m required user; };", "line 1: = is missing"),
        ('A { m required user_a="SECRET\n"; };', "line 1: a quote or a comment does not end"),
        ("A { /* m required; };", "line 1: a quote or a comment does not end"),
        ("A { m required; };\nA { m required; };", "line 2: there are two entries"),
        ('A { m required user_a="SECRET"\nuser_a="b"; };', "line 2: the module has two options"),
        ("} A", "line 1: the name of an entry is missing"),
    ],
)
def test_a_fault_is_named_by_its_line_and_quotes_nothing(text: str, why: str) -> None:
    with pytest.raises(JaasError) as caught:
        parse_jaas(text)
    assert str(caught.value).startswith(why)
    assert "SECRET" not in str(caught.value)
