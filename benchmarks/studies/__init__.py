"""Investigations that answered a question once: `python -m benchmarks.studies.NAME` repeats one."""
