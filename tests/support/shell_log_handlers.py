"""Handlers of `topology.multilang.log.handler`."""

LOGGED: list[tuple[str, int, str]] = []


class Collects:
    def set_up_context(self, context):
        self.component = context.this_component_id

    def log(self, level, message):
        LOGGED.append((self.component, level, message))


class Raises:
    def set_up_context(self, context):
        pass

    def log(self, level, message):
        raise OSError("the disk of the logs is full")


class Lacks:
    def set_up_context(self, context):
        pass
