"""Web search by Exa as a retriever: settings and cache, requests and answers."""
