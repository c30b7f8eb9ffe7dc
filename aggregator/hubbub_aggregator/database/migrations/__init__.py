"""Migrations: one file for each schema version, run by `upgrade.py`. Each adds to the tables of the version before."""
