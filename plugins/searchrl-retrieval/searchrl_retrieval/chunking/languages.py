"""The names of functions, classes and imports in tree-sitter's grammars, and the grammars.

Each grammar is a wheel. The names are those of their `node-types.json`; no two of the eight
languages mean different things by one.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from searchrl import ConfigError

PYTHON = "python"

LANGUAGES: Mapping[str, str] = {
    **dict.fromkeys((".py", ".pyi"), PYTHON),
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), "javascript"),
    **dict.fromkeys((".ts", ".mts", ".cts"), "typescript"),
    ".tsx": "tsx",
    ".go": "go",
    ".rs": "rust",
    ".java": "java",
    **dict.fromkeys((".c", ".h"), "c"),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"), "cpp"),
}
"""Languages by the ending of a file."""

FUNCTIONS = frozenset(
    "function_definition function_declaration generator_function_declaration method_definition "
    "variable_declarator method_signature abstract_method_signature method_declaration "
    "function_item function_signature_item macro_definition constructor_declaration".split()
)
"""Nodes that become a function, or a method inside a class."""

CLASSES = frozenset(
    "class_definition class_declaration abstract_class_declaration interface_declaration "
    "enum_declaration type_alias_declaration type_spec type_alias struct_item enum_item trait_item "
    "union_item type_item record_declaration annotation_type_declaration class_specifier "
    "struct_specifier enum_specifier union_specifier".split()
)
"""Nodes that become a class; its functions are methods."""

SCOPES = frozenset("internal_module module impl_item mod_item namespace_definition".split())
"""Nodes that name the things inside them and are no chunk: namespaces, implementations."""

IMPORTS = frozenset(
    "import_statement import_from_statement future_import_statement package_clause "
    "import_declaration use_declaration extern_crate_declaration package_declaration "
    "preproc_include".split()
)
"""Nodes of the chunk of imports; the name of a package stands there, too."""

WRAPPERS = frozenset(
    "decorated_definition export_statement lexical_declaration variable_declaration "
    "ambient_declaration type_declaration type_definition template_declaration".split()
)
"""Nodes that stand around a definition and belong to its text."""


@cache
def load_grammar(language: str) -> Any:
    """The `tree_sitter.Language` of a language; `ConfigError` if it is not installed."""
    is_typescript = language in ("typescript", "tsx")
    package = f"tree_sitter_{'typescript' if is_typescript else language}"
    try:
        from tree_sitter import Language

        module = importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(
            f"chunking {language} code needs {error.name}, which is not installed. "
            'Run: pip install "searchrl-retrieval[code]"'
        ) from None
    return Language(getattr(module, f"language_{language}" if is_typescript else "language")())
