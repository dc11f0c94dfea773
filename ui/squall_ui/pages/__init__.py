"""The pages: one HTML shell for all of them, the streams that they follow, and logs of all nodes.

A page is made in the browser by the modules in `static`, from JSON: text never becomes markup, and
nothing inline is allowed by the policy that every page carries. Imports `live`, `rest`, `nimbus`.
"""
