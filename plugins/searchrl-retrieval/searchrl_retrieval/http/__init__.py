"""Retrieval over HTTP: the server of `searchrl serve-retriever`, and the retriever `http`.

`wire` is what both sides write and read; `client` asks; `app` and `mcp_tool`
answer. FastAPI, uvicorn and mcp are imported when a server is made, not before. Imports nothing.
"""
