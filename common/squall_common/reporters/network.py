"""Reporters to Graphite and to StatsD."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from squall_common.component.metrics.consumers import ConsumerContext
from squall_common.reporters.base import MetricsReporter, MetricValue, port_option, text_option

_TIMEOUT_SECS = 5.0
_PACKET_BYTES_MAX = 1_400  # of UDP: fits a frame of Ethernet
_NOT_GRAPHITES = re.compile(r"[^\w.:%/+*\-]", re.ASCII)
_NOT_STATSDS = re.compile(r"[^\w.%/+*\-]", re.ASCII)


class GraphiteReporter(MetricsReporter):
    """Sends `NAME VALUE TIME` lines to Graphite: to `graphite.host` and `graphite.port` (2003), by
    `graphite.transport` (tcp or udp). `graphite.prefixed.with` comes before each name. A
    connection is made for each report.

        conf = {
            "topology.metrics.reporters": [
                {"class": "squall.metrics.GraphiteReporter", "graphite.host": "graphite.example"}
            ]
        }
    """

    options = ("graphite.host", "graphite.port", "graphite.transport", "graphite.prefixed.with")

    def prepare(self, options: Mapping[str, Any], context: ConsumerContext) -> None:
        self._address = (
            text_option(options, "graphite.host"),
            port_option(options, "graphite.port", 2003),
        )
        self._transport = text_option(options, "graphite.transport", "tcp").lower()
        if self._transport not in ("tcp", "udp"):
            raise ValueError(f"graphite.transport: expected tcp or udp, not {self._transport!r}")
        self._prefix = _prefix(options, "graphite.prefixed.with")

    def report(self, values: Sequence[MetricValue]) -> None:
        now = int(time.time())
        lines = [
            f"{self._prefix}{_NOT_GRAPHITES.sub('_', self.name(one))} {one.value:.10g} {now}\n"
            for one in values
        ]
        if self._transport == "udp":
            _send_packets(self._address, lines)
        elif lines:
            with socket.create_connection(self._address, _TIMEOUT_SECS) as connection:
                connection.sendall("".join(lines).encode())


class StatsdReporter(MetricsReporter):
    """Sends packets to StatsD: to `statsd.host` (localhost) and `statsd.port` (8125), with
    `statsd.prefixed.with` before each name. Counters are sent as what they gained since the report
    before, all else as gauges.

        conf = {"topology.metrics.reporters": [{"class": "squall.metrics.StatsdReporter"}]}
    """

    options = ("statsd.host", "statsd.port", "statsd.prefixed.with")

    def prepare(self, options: Mapping[str, Any], context: ConsumerContext) -> None:
        self._address = (
            text_option(options, "statsd.host", "localhost"),
            port_option(options, "statsd.port", 8125),
        )
        self._prefix = _prefix(options, "statsd.prefixed.with")
        self._sent: dict[str, float] = {}

    def report(self, values: Sequence[MetricValue]) -> None:
        lines = []
        counts = {}
        for one in values:
            name = f"{self._prefix}{_NOT_STATSDS.sub('_', self.name(one))}"
            if one.kind == "counter":
                gained = one.value - self._sent.get(name, 0.0)
                counts[name] = one.value
                if gained:
                    lines.append(f"{name}:{gained:.10g}|c\n")
                continue
            if one.value < 0:
                lines.append(f"{name}:0|g\n")  # a sign alone would mean a change
            lines.append(f"{name}:{one.value:.10g}|g\n")
        _send_packets(self._address, lines)
        self._sent |= counts


def _prefix(options: Mapping[str, Any], key: str) -> str:
    return f"{text_option(options, key)}." if options.get(key) is not None else ""


def _send_packets(address: tuple[str, int], lines: Sequence[str]) -> None:
    """Send lines by UDP, as many in a packet as fit. Raises OSError for an unknown host."""
    family, kind, protocol, _, where = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as sender:
        packet = b""
        for line in lines:
            data = line.encode()
            if packet and len(packet) + len(data) > _PACKET_BYTES_MAX:
                sender.sendto(packet, where)
                packet = b""
            packet += data
        if packet:
            sender.sendto(packet, where)
