"""What is a function, a class, an import in which programming language, as tree-sitter names it.

Owns the table of languages and the loading of their grammars, one wheel each. The node names are
those of the grammars' `node-types.json`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from typing import Any

from searchrl import ConfigError


@dataclass(frozen=True, slots=True)
class Language:
    """The node types of a language.

    Attributes:
        name: for messages.
        package: the wheel with its grammar, as it is imported.
        grammar: the function of the package that gives it.
        functions: what becomes a function, or a method inside a class.
        classes: what becomes a class; its functions are methods.
        scopes: what names the things inside it and is no chunk: namespaces, implementations.
        imports: what is collected in the chunk of imports; the name of a package stands there, too.
        wrappers: what stands around a definition and belongs to its text.
        has_docstrings: docstrings are texts inside; elsewhere they are the comments above.
    """

    name: str
    package: str
    grammar: str = "language"
    functions: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()
    wrappers: frozenset[str] = frozenset()
    has_docstrings: bool = False


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_JAVASCRIPT_FUNCTIONS = _set(
    "function_declaration generator_function_declaration method_definition variable_declarator"
)
_JAVASCRIPT_WRAPPERS = _set("export_statement lexical_declaration variable_declaration")
_TYPESCRIPT: dict[str, Any] = {
    "package": "tree_sitter_typescript",
    "functions": _JAVASCRIPT_FUNCTIONS | _set("method_signature abstract_method_signature"),
    "classes": _set(
        "class_declaration abstract_class_declaration interface_declaration enum_declaration "
        "type_alias_declaration"
    ),
    "scopes": _set("internal_module module"),
    "imports": _set("import_statement"),
    "wrappers": _JAVASCRIPT_WRAPPERS | _set("ambient_declaration"),
}
_C_IMPORTS = _set("preproc_include")

PYTHON = Language(
    "Python",
    "tree_sitter_python",
    functions=_set("function_definition"),
    classes=_set("class_definition"),
    imports=_set("import_statement import_from_statement future_import_statement"),
    wrappers=_set("decorated_definition"),
    has_docstrings=True,
)
JAVASCRIPT = Language(
    "JavaScript",
    "tree_sitter_javascript",
    functions=_JAVASCRIPT_FUNCTIONS,
    classes=_set("class_declaration"),
    imports=_set("import_statement"),
    wrappers=_JAVASCRIPT_WRAPPERS,
)
GO = Language(
    "Go",
    "tree_sitter_go",
    functions=_set("function_declaration method_declaration"),
    classes=_set("type_spec type_alias"),
    imports=_set("package_clause import_declaration"),
    wrappers=_set("type_declaration"),
)
RUST = Language(
    "Rust",
    "tree_sitter_rust",
    functions=_set("function_item function_signature_item macro_definition"),
    classes=_set("struct_item enum_item trait_item union_item type_item"),
    scopes=_set("impl_item mod_item"),
    imports=_set("use_declaration extern_crate_declaration"),
)
JAVA = Language(
    "Java",
    "tree_sitter_java",
    functions=_set("method_declaration constructor_declaration"),
    classes=_set(
        "class_declaration interface_declaration enum_declaration record_declaration "
        "annotation_type_declaration"
    ),
    imports=_set("package_declaration import_declaration"),
)
C = Language(
    "C",
    "tree_sitter_c",
    functions=_set("function_definition"),
    classes=_set("struct_specifier enum_specifier union_specifier"),
    imports=_C_IMPORTS,
    wrappers=_set("type_definition"),
)
CPP = Language(
    "C++",
    "tree_sitter_cpp",
    functions=_set("function_definition"),
    classes=_set("class_specifier struct_specifier enum_specifier union_specifier"),
    scopes=_set("namespace_definition"),
    imports=_C_IMPORTS,
    wrappers=_set("template_declaration type_definition"),
)
_TYPESCRIPT_PLAIN = Language("TypeScript", grammar="language_typescript", **_TYPESCRIPT)
_TYPESCRIPT_XML = Language("TypeScript", grammar="language_tsx", **_TYPESCRIPT)

LANGUAGES: Mapping[str, Language] = {
    **dict.fromkeys((".py", ".pyi"), PYTHON),
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), JAVASCRIPT),
    **dict.fromkeys((".ts", ".mts", ".cts"), _TYPESCRIPT_PLAIN),
    ".tsx": _TYPESCRIPT_XML,
    ".go": GO,
    ".rs": RUST,
    ".java": JAVA,
    **dict.fromkeys((".c", ".h"), C),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"), CPP),
}
"""Ending of a file -> its language."""


def find_language(name: str) -> Language | None:
    """The language of a file by its ending; None if it is not one of ours."""
    return LANGUAGES.get(PurePath(name).suffix.lower())


@cache
def load_grammar(language: Language) -> Any:
    """The `tree_sitter.Language` of a language.

    Raises:
        ConfigError: it is not installed; says how.
    """
    try:
        from tree_sitter import Language as Grammar

        module = importlib.import_module(language.package)
    except ImportError as error:
        raise ConfigError(
            f"chunking {language.name} code needs {error.name}, which is not installed. "
            'Run: pip install "searchrl-retrieval[code]"'
        ) from None
    return Grammar(getattr(module, language.grammar)())
