"""minagent: agents for synchronous Python programs."""

__version__ = "0.1.0"
