"""The command line. Commands load on first use: `searchrl --help` imports no torch."""

from searchrl.cli.group import main as main
