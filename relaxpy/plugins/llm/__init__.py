"""Language models: text in, text out, in Python, on the command line and over HTTP."""
