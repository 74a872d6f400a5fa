"""prepare-stream: the outermost workflow, once per run; one file for each of its places."""
