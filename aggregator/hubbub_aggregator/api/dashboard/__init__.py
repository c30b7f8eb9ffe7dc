"""The web dashboard: the table of metrics at `/`, and the page of each metric at `/metric/{name}`."""
