"""The environment `multisource`: its world, how plans run, and scripted policies."""
