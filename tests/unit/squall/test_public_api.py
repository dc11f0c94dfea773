"""What `import squall` offers, and that it costs nothing until it is used."""

import pytest

import squall


def test_every_exported_name_is_there_and_documented():
    for name in squall.__all__:
        value = getattr(squall, name)
        assert value.__doc__, name
        assert name in dir(squall)
        assert value.__module__.startswith(("squall.", "squall_common.")), name


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'squall' has no attribute 'Topolgy'"):
        squall.Topolgy  # noqa: B018
