"""A shell bolt that does what $MODE says: the protocol by hand, so that it can be broken.

A mode of the form `once-...` is done by the first process that finds no file `$MARK`.
"""

import json
import os
import signal
import sys
import time


def read():
    lines = []
    for line in sys.stdin:
        if line == "end\n":
            return json.loads("".join(lines))
        lines.append(line)
    sys.exit(0)


def send(message, end="\nend\n"):
    sys.stdout.write(json.dumps(message) + end)
    sys.stdout.flush()


def misbehave(mode, tup):
    if mode == "print":
        print("a stray print")
    elif mode == "print-without-newline":
        print("a stray print", end="")
    elif mode == "unknown-command":
        send({"command": "dance", "id": tup["id"]})
    elif mode == "no-command":
        send({"id": tup["id"]})
    elif mode == "ack-of-a-stranger":
        send({"command": "ack", "id": "987654321"})
    elif mode == "ack-of-a-number":
        send({"command": "ack", "id": 5})
    elif mode == "fail-of-a-stranger":
        send({"command": "fail", "id": "none such"})
    elif mode == "anchored-to-a-stranger":
        send({"command": "emit", "anchors": ["987654321"], "tuple": [-1], "need_task_ids": False})
    elif mode == "tuple-is-no-list":
        send({"command": "emit", "anchors": [], "tuple": "word", "need_task_ids": False})
    elif mode == "no-such-stream":
        send(
            {"command": "emit", "anchors": [], "stream": "x", "tuple": [1], "need_task_ids": False}
        )
    elif mode == "too-many-values":
        # Waits for the answer, which must come.
        send({"command": "emit", "anchors": [], "tuple": [1, 2, 3]})
        assert read_task_ids() == []
    elif mode == "garbage":
        sys.stdout.write("this is no json\nend\n")
        sys.stdout.flush()
        time.sleep(60)
    elif mode == "half":
        sys.stdout.write('{"command": "ack", "id"\nend\n')
        sys.stdout.flush()
        time.sleep(60)
    elif mode == "long":
        for _ in range(1_600):
            sys.stdout.write("x" * 65_536)
        sys.stdout.flush()
        time.sleep(60)
    elif mode == "hang":
        time.sleep(600)
    elif mode == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif mode == "deaf":
        os.close(0)
        time.sleep(600)
    elif mode == "mute":
        os.close(1)
        time.sleep(600)
    elif mode == "exit":
        sys.stderr.write("first line\nthe reason is on stderr\n")
        sys.exit(3)
    elif mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        raise ValueError(mode)


queue = []


def read_task_ids():
    while True:
        message = read()
        if isinstance(message, list):
            return message
        queue.append(message)


def main():
    setup = read()
    mode = os.environ["MODE"]
    once = mode.startswith("once-")
    wait = os.environ.get("MODE_AFTER", "20")
    send({"pid": os.getpid()})
    open(os.path.join(setup["pidDir"], str(os.getpid())), "w").close()
    seen = 0
    while True:
        tup = queue.pop(0) if queue else read()
        if tup["stream"] == "__heartbeat":
            send({"command": "sync"})
            continue
        seen += 1
        if once and seen == int(wait):
            mark = os.environ["MARK"]
            if not os.path.exists(mark):
                open(mark, "w").close()
                misbehave(mode[5:], tup)
        elif not once and mode != "well" and mode != "no-end":
            misbehave(mode, tup)
        send({"command": "emit", "anchors": [tup["id"]], "tuple": tup["tuple"]})
        read_task_ids()
        # With no-end, the line is missing after every second ack.
        missing = mode == "no-end" and seen % 2
        send({"command": "ack", "id": tup["id"]}, end="\n" if missing else "\nend\n")


main()
