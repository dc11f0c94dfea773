import zlib

from squall import CustomGrouping


class ByRegion(CustomGrouping):
    """One half of the tasks for Europe, the other for everybody else."""

    def __init__(self, field):
        self.field = field  # travels to the workers, like a component's arguments

    def prepare(self, context, stream, target_tasks):
        super().prepare(context, stream, target_tasks)
        names = context.output_fields(stream.component, stream.stream)
        self.index = names.index(self.field)
        half = max(1, len(target_tasks) // 2)
        self.europe, self.rest = target_tasks[:half], target_tasks[half:] or target_tasks

    def choose_tasks(self, task, values):
        region, user = values[self.index], values[0]
        tasks = self.europe if region == "EU" else self.rest
        return [tasks[zlib.crc32(user.encode()) % len(tasks)]]
