"""What a worker may take, as configured, and what a supervisor may give."""

import resource

import pytest

from squall_common.config.options.typed import SupervisorOptions
from squall_common.errors import ConfigError
from squall_supervisor.confine.capabilities import Capability, held
from squall_supervisor.confine.rlimits import rlimits_of
from squall_supervisor.settings import SupervisorSettings


def test_limits_come_from_the_configuration() -> None:
    assert rlimits_of(SupervisorOptions.read({})) == {"RLIMIT_CORE": 0}
    conf = {
        "supervisor.worker.limit.open.files": 128,
        "supervisor.worker.limit.core.mb": None,
        "supervisor.worker.limit.file.mb": 2,
    }
    assert rlimits_of(SupervisorOptions.read(conf)) == {
        "RLIMIT_NOFILE": 128,
        "RLIMIT_FSIZE": 2 << 20,
    }
    assert SupervisorSettings.from_conf(conf).rlimits == rlimits_of(SupervisorOptions.read(conf))


@pytest.mark.parametrize("value", [0, -1, "many", True, 1.5, 2**70])
def test_an_invalid_limit_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"supervisor\.worker\.limit\.open\.files"):
        rlimits_of(SupervisorOptions.read({"supervisor.worker.limit.open.files": value}))


def test_a_limit_above_the_supervisors_own_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1000, 1000))
    monkeypatch.setattr("squall_supervisor.confine.rlimits._may_raise", lambda: False)
    with pytest.raises(ConfigError, match="may only have 1000"):
        rlimits_of(SupervisorOptions.read({"supervisor.worker.limit.open.files": 1001}))


def test_capabilities_are_read_from_proc_status() -> None:
    assert held("Name:\tx\nCapEff:\t00000000000000c1\n") == {
        Capability.CHOWN, Capability.SETGID, Capability.SETUID,
    }  # fmt: skip
    assert held("CapEff:\t0000000000000000") == frozenset()
    assert held("") == frozenset()
