"""Discovery of strings without a list of candidates. `hubbub_decoder/cli/discover.py` is the command."""
