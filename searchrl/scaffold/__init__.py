"""What `searchrl new` writes: plugins that work, are tested and are short enough to learn from.

`writer.py` turns a kind and a name into files; their texts are the templates in
`assets/scaffold/`, which use the hooks and the contracts that any plugin uses and nothing else.
"""
