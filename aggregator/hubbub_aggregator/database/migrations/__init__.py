"""Migrations: one file for each schema version, run by `schema_version.upgrade`. Each adds to the tables of the version before."""
