"""The command line: parse, call app, print. One file per command, imported only when the command is called.

``countermark --help`` imports neither a database driver nor the training stack; a test lists what it imports.
"""
