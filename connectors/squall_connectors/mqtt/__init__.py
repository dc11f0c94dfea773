"""MQTT 5 and 3.1.1: `MqttSpout` and `MqttSink`. Needs `squall[mqtt]` (paho-mqtt).

builder.spout("meters", MqttSpout("mqtt://broker", "site/+/meter", client_id="meters"))
builder.bolt("alarms", MqttSink("mqtt://broker", "alarms")).shuffle("judge")
"""

from squall_connectors.mqtt.sink import MqttSink
from squall_connectors.mqtt.spout import MqttSpout

__all__ = ["MqttSink", "MqttSpout"]
