"""Files of the commands and the client: their modes, and which of them are regular."""
