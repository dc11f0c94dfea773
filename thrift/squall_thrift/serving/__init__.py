"""An asyncio server: connections, turns among callers, calls off the event loop, and the hook that
says who may call what. May import everything else in the package but `client`."""
