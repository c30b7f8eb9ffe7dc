"""Commands of the decoder; they import numpy and other heavy packages inside the functions, so that `hubbub --help` is fast."""
