"""How the tables of one schema version become those of the next: one file a version, run by `upgrading.py`."""
