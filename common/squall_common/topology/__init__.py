"""The description of a topology: its model, its Thrift form, and what is added to it.

`model` is plain values; `thrift` converts to and from the IDL; `system` adds ackers and the other
system components; `construction`, `arguments` and `import_paths` describe how a worker makes the
objects that a client made. Everything here is a pure function or a value. May import `config`,
`errors` and `names`.
"""
