"""hubbub's aggregator: the service that collects reports and answers with summaries."""
