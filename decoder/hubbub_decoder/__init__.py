"""hubbub's decoder: from summaries to estimates, tables and plots."""
