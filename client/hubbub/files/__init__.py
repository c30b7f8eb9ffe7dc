"""Files of the commands and the client: their modes."""
