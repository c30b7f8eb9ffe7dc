"""The decoder's commands; their modules import click only, what is heavy comes inside the command."""
