"""Self-contained HTML pages of the commands and the services: one look, no script."""
