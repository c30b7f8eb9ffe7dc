"""The page at `/`: what is collected, what it can reveal, what came in, what was refused, how the service is."""
