"""The pages at `/` and `/metric/{name}`: the table of metrics, and one metric."""
