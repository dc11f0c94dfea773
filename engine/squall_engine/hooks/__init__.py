"""Users' hooks (`squall.TaskHook`, `squall.WorkerHook`): making them, and calling them about what
happens. A task without a hook knows nothing of them: its collector is the core's own, and its calls
are not wrapped. Imports only the core."""
