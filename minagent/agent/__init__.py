"""The agent: the user's call, prepare-stream, and what comes out.

Nothing is imported here; take what you need from its file.
"""
