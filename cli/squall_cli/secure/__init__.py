"""Files of a secured cluster that commands make: the CA's folder, certificates, tokens.

Imported only by the commands that need it: `cryptography` takes some 40 ms.
"""
