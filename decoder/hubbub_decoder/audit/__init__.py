"""Statistical audit of a client's privacy: lower bounds on epsilon from its reports. `hubbub_decoder/cli/audit.py` is the command."""
