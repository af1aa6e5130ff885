"""The tools and resources that a client of the Model Context Protocol may ask: what is recorded, and what lies on this disk.

Rules kept here:

1. Nothing is changed: no run is looked at anew, no store is made or migrated, nothing is recorded.
2. An answer is a document with ``ok``, ``defects`` and ``warnings``, like those of the command line, and the lines that it prints. What is
   wrong is a value of the answer; only what is no request at all is an error of the protocol.
3. Answers are bounded (``bounds.py``), and paths are those of the folders that the server was given (``places.py``).
"""
