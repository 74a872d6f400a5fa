"""The loop: the agentic-loop workflow, its leaves, its state and what watches it.

Nothing is imported here; take what you need from its file.
"""
